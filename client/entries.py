"""Errors of the entries of a response: a topic, partition, resource, rule or user that was refused while others succeeded.

A call of `AdminClient` whose response names a refused entry raises `EntriesFailed`, as the futures of Kafka's clients do. The
exception has the error of each refused entry, the entries that succeeded, and the whole response. A caller that judges entries
one by one takes that response with `answer_of`.

`ENTRIES` has every response of a call of `AdminClient` with entries that can be refused. `STATES` has the responses whose error
codes describe the state of something that exists, so that they are results and not refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError
from kraftlab.config.resources import ResourceType

from .errors import api_error

R = TypeVar("R")
T = TypeVar("T")


class EntryResult(Protocol):
    """Outcome of one entry of a request. Most have an `error_message` too."""

    @property
    def error_code(self) -> int: ...


class EntriesFailed(ApiError):
    """Some entries of a request were refused. `code` is that of the first one. `failures` has the errors by entry, `done` the
    entries that succeeded, `response` the call's answer. `message` is the text of a single refusal, of several all texts.
    """

    def __init__(self, failures: Sequence[tuple[str, ApiError]], done: Sequence[str], response: object) -> None:
        _, first = failures[0]
        lines = [f"{entry}: {error}" for entry, error in failures]
        if done:
            lines.append(f"succeeded: {', '.join(done)}")
        self._text = "; ".join(lines)
        super().__init__(first.code, (first.message or "") if len(failures) == 1 else self._text)
        self.failures = dict(failures)
        self.done = tuple(done)
        self.response: Any = response

    def __str__(self) -> str:
        return self._text


def checked(response: T) -> T:
    """Return a response without refused entries. EntriesFailed."""
    return read(response, lambda response: response)


def read(response: T, convert: Callable[[T], R]) -> R:
    """Return what `convert` makes of a response without refused entries. EntriesFailed with the same of the other entries."""
    answer = convert(response)
    entries = ENTRIES.get(type(response))  # type: ignore[arg-type]
    outcomes = [(name, _error(result)) for name, result in entries(response)] if entries else []
    failures = [(name, error) for name, error in outcomes if error is not None]
    if failures:
        raise EntriesFailed(failures, [name for name, error in outcomes if error is None], answer)
    return answer


def answer_of(call: Callable[[], T]) -> T:
    """Return the answer of a call of `AdminClient` with the errors of its entries, for a caller that judges each. ApiError for a
    refusal of the whole request.
    """
    try:
        return call()
    except EntriesFailed as error:
        answer: T = error.response
        return answer


def raise_first_error(results: Iterable[EntryResult]) -> None:
    """Raise the error of the first result that has one, as ApiError: for responses of streams and of `AdminClient.call`."""
    for result in results:
        error = _error(result)
        if error is not None:
            raise error


def _error(result: EntryResult) -> ApiError | None:
    return api_error(result.error_code, getattr(result, "error_message", None)) if result.error_code else None


Entries = Iterator[tuple[str, EntryResult]]


def _named(field: str, kind: str, key: str = "name") -> Callable[[Any], Entries]:
    """Return the entries of a repeated field, named by one of their fields."""

    def entries(response: Any) -> Entries:
        for entry in getattr(response, field):
            yield f"{kind} {getattr(entry, key)}", entry

    return entries


def _partitions(topics: str, partitions: str = "partitions", name: str = "name", index: str = "partition_index") -> Any:
    """Return the partitions of a response by topic."""

    def entries(response: Any) -> Entries:
        for topic in getattr(response, topics):
            for entry in getattr(topic, partitions):
                yield f"partition {getattr(topic, name)}-{getattr(entry, index)}", entry

    return entries


def _numbered(field: str, kind: str) -> Callable[[Any], Entries]:
    """Return the entries of a repeated field without names, by their place in the request."""

    def entries(response: Any) -> Entries:
        for number, entry in enumerate(getattr(response, field), 1):
            yield f"{kind} {number}", entry

    return entries


def _deleted_topics(response: pb.DeleteTopicsResponse) -> Entries:
    for entry in response.responses:
        yield f"topic {entry.name or entry.topic_id}", entry


def _resources(field: str) -> Callable[[Any], Entries]:
    def entries(response: Any) -> Entries:
        for entry in getattr(response, field):
            known = entry.resource_type in set(ResourceType)
            kind = ResourceType(entry.resource_type).name.lower().replace("_", " ") if known else f"type {entry.resource_type}"
            yield f"{kind} {entry.resource_name or '(default)'}", entry

    return entries


def _deleted_acls(response: pb.DeleteAclsResponse) -> Entries:
    for number, found in enumerate(response.filter_results, 1):
        yield f"filter {number}", found
        for acl in found.matching_acls:
            yield f"filter {number}, rule of {acl.principal} on {acl.resource_name}", acl


def _quotas(response: pb.AlterClientQuotasResponse) -> Entries:
    for entry in response.entries:
        parts = (f"{each.entity_type} {each.entity_name or '(default)'}" for each in entry.entity)
        yield "quota of " + ", ".join(parts), entry


ENTRIES: Mapping[type[Message], Callable[..., Entries]] = {
    pb.CreateTopicsResponse: _named("topics", "topic"),
    pb.DeleteTopicsResponse: _deleted_topics,
    pb.CreatePartitionsResponse: _named("results", "topic"),
    pb.DescribeTopicPartitionsResponse: _named("topics", "topic"),
    pb.ElectLeadersResponse: _partitions("replica_election_results", "partition_result", "topic", "partition_id"),
    pb.IncrementalAlterConfigsResponse: _resources("responses"),
    pb.AlterConfigsResponse: _resources("responses"),
    pb.DescribeConfigsResponse: _resources("results"),
    pb.AlterClientQuotasResponse: _quotas,
    pb.UpdateFeaturesResponse: _named("results", "feature", "feature"),
    pb.AlterPartitionReassignmentsResponse: _partitions("responses"),
    pb.CancelReassignmentsResponse: _partitions("responses"),
    pb.RollbackPlanResponse: _partitions("responses"),
    pb.AlterReplicationFactorsResponse: _named("topics", "topic"),
    pb.AlterPartitionCountsResponse: _named("topics", "topic"),
    pb.AlterReplicaLogDirsResponse: _partitions("results", name="topic_name"),
    pb.CreateAclsResponse: _numbered("results", "rule"),
    pb.DeleteAclsResponse: _deleted_acls,
    pb.AlterUserScramCredentialsResponse: _named("results", "user", "user"),
    pb.DescribeUserScramCredentialsResponse: _named("results", "user", "user"),
}
STATES: Mapping[type[Message], str] = {
    pb.DescribeLogDirsResponse: "the error of a log directory says that it is offline",
    pb.DescribeQuorumResponse: "a request of Kafka's names one partition; its error is the error of the request",
}
