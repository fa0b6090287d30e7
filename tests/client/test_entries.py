"""Refused entries of a request: every call raises them, names each, and keeps the whole response."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, EntriesFailed, answer_of
from kraftlab.client.caller import Caller
from kraftlab.client.entries import ENTRIES, STATES, checked
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.rpc.methods import API_OF_RESPONSE, METHODS

REFUSED, WHY = ErrorCode.POLICY_VIOLATION, "the policy forbids it"


def calls() -> Iterator[tuple[type[Message], Callable[[AdminClient], object]]]:
    """Yield every response that can refuse an entry, with the ways to get it."""
    for kind in ENTRIES:
        yield kind, lambda client, kind=kind: client.call(kind, METHODS[API_OF_RESPONSE[kind]].request())
    yield pb.IncrementalAlterConfigsResponse, lambda client: client.incremental_alter_configs([pb.AlterConfigsResource()])
    yield pb.AlterReplicaLogDirsResponse, lambda client: client.alter_replica_log_dirs(0, {("a", 0): "/d", ("b", 0): "/d"})


NAMES = ("name", "topic", "topic_name", "resource_name", "user", "feature")


def places(kind: Descriptor) -> Iterator[tuple[str, ...]]:
    """Yield the paths of fields whose messages have an error code."""
    for field in kind.fields:
        if field.message_type is not None and field.name != "header":
            if "error_code" in field.message_type.fields_by_name:
                yield (field.name,)
            yield from ((field.name, *rest) for rest in places(field.message_type))


def refusing(kind: type[Message]) -> Any:
    """Return a response in which entry `a` is refused and entry `b` is not, at the first place for errors."""
    response: Any = kind()
    outer, *inner = next(places(kind.DESCRIPTOR))
    for name, code in (("a", REFUSED), ("b", ErrorCode.NONE)):
        entry = getattr(response, outer).add()
        for field in NAMES:
            if field in entry.DESCRIPTOR.fields_by_name:
                setattr(entry, field, name)
        if "entity" in entry.DESCRIPTOR.fields_by_name:
            entry.entity.add(entity_type="user", entity_name=name)
        for deeper in inner:
            entry = getattr(entry, deeper).add()
        entry.error_code, entry.error_message = code, WHY if code else ""
    return response


def test_every_answer_that_can_refuse_an_entry_is_in_the_tables() -> None:
    used = {kind for kind in (METHODS[api].response for api in METHODS) if any(places(kind.DESCRIPTOR))}
    without_a_method = {"DeleteRecords"}
    assert ENTRIES.keys().isdisjoint(STATES)
    assert ENTRIES.keys() | STATES.keys() == used - {METHODS[api].response for api in without_a_method}


@pytest.mark.parametrize(("kind", "call"), list(calls()))
def test_a_refused_entry_raises_its_error_with_its_name(
    monkeypatch: pytest.MonkeyPatch, kind: type[Message], call: Callable[[AdminClient], object]
) -> None:
    answer = refusing(kind)
    for way in ("_send", "call_broker"):
        monkeypatch.setattr(Caller, way, lambda *_, **__: answer)
    with AdminClient("localhost:1") as client, pytest.raises(ApiError) as raised:
        call(client)
    error = raised.value
    assert isinstance(error, EntriesFailed)
    assert (error.code, error.message, error.response) == (REFUSED, WHY, answer)
    [(name, failure)] = error.failures.items()
    assert (failure.code, failure.message) == (REFUSED, WHY)
    assert str(error).startswith(f"{name}: POLICY_VIOLATION(44): {WHY}") and name.split()[-1] in ("a", "a-0", "1")
    assert len(error.done) >= 1 and f"; succeeded: {', '.join(error.done)}" in str(error)
    with AdminClient("localhost:1") as client:
        assert answer_of(lambda: call(client)) is answer


def test_several_refusals_are_all_in_the_message() -> None:
    response = pb.DeleteTopicsResponse()
    for name, code in (("x", 3), ("y", 0), ("z", 29)):
        response.responses.add(name=name, error_code=code, error_message=f"no {name}" if code else None)
    with pytest.raises(EntriesFailed) as raised:
        checked(response)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (
        raised.value.message
        == str(raised.value)
        == ("topic x: UNKNOWN_TOPIC_OR_PARTITION(3): no x; topic z: TOPIC_AUTHORIZATION_FAILED(29): no z; succeeded: topic y")
    )
    assert [*raised.value.failures] == ["topic x", "topic z"]


def test_an_answer_without_refusals_is_returned() -> None:
    response = pb.DeleteTopicsResponse(responses=[pb.DeletableTopicResult(name="y")])
    assert checked(response) is response


def test_the_error_of_a_topic_that_is_deleted_by_its_id_names_the_id() -> None:
    response = pb.DeleteTopicsResponse(responses=[pb.DeletableTopicResult(topic_id="abc", error_code=100)])
    with pytest.raises(EntriesFailed, match=r"^topic abc: UNKNOWN_TOPIC_ID\(100\): "):
        checked(response)
