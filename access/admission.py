"""Rights that each admin call needs, and the answers to the parts of a request that its caller may not have.

Theory of operation. A row of `rpc/calls.py` names the rule of a call, and the node that carries the call out asks that rule
first. A rule of `RULES` either refuses the whole request with an ApiError, or returns the part that may be executed and a
function that completes the response. That function answers the entries that were taken out, with Kafka's codes and in Kafka's
places. Some responses also list the operations that the caller may do; they are completed without an authorizer too. The handlers
of the calls know nothing of rights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import ZERO, from_text, to_text
from kraftlab.metadata.acls import CLUSTER_NAME, Operation, ResourceType

from . import NOT_ASKED, refusals
from .authorizer import Rights
from .calls import Admission, Admit, CallContext, refusing, without
from .refusals import Refuse

TOPIC_REFUSED = "Topic authorization failed."
CLUSTER_REFUSED = "Cluster authorization failed."
GROUP_REFUSED = "Group authorization failed."

_NO_ID = to_text(ZERO)


# --- whole requests ----------------------------------------------------------------------------------------------------------


def _anybody(call: CallContext) -> Admission:
    return Admission(call.request)


def _on_cluster(operation: Operation, text: str | None = None) -> Admit:
    """Require the operation on the cluster. `text`: Kafka's refusal where it does not name the operation; "" for null."""

    def decide(call: CallContext) -> Admission:
        if not call.rights.allow_on_cluster(operation):
            needs = f"Request {call.api} by {call.rights.principal} on the cluster needs {operation.name} permission."
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, needs if text is None else text)
        return Admission(call.request)

    return decide


def init_producer_id(call: CallContext) -> Admission:
    """With a transactional id: require WRITE on it. Otherwise require IDEMPOTENT_WRITE, or WRITE on any topic (KIP-679)."""
    rights, request = call.rights, call.request
    if request.HasField("transactional_id"):
        if not rights.allow(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                f"{rights.principal} may not WRITE transactional id {request.transactional_id!r}.",
            )
    elif not rights.allow_any(Operation.WRITE, ResourceType.TOPIC) and not rights.allow_on_cluster(Operation.IDEMPOTENT_WRITE):
        raise ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"Request InitProducerId by {rights.principal} needs WRITE permission on a topic or IDEMPOTENT_WRITE on the cluster.",
        )
    return Admission(request)


def describe_cluster(call: CallContext) -> Admission:
    """Admit every caller. A caller without DESCRIBE on the cluster sees no authorized operations."""

    def complete(response: Any) -> None:
        response.cluster_authorized_operations = _cluster_operations(call)

    return Admission(call.request, complete)


def _cluster_operations(call: CallContext) -> int:
    if not call.request.include_cluster_authorized_operations:
        return NOT_ASKED
    if not call.rights.may_on_cluster(Operation.DESCRIBE):
        return 0
    return call.rights.operations(ResourceType.CLUSTER, CLUSTER_NAME)


# --- topics ------------------------------------------------------------------------------------------------------------------


def create_topics(call: CallContext) -> Admission:
    """Require CREATE on the cluster or on the topic. The configs of a new topic need DESCRIBE_CONFIGS to be shown."""
    rights, request = call.rights, call.request
    if rights.are_unlimited:
        return Admission(request)
    refused: list[str] = []
    if not rights.may_on_cluster(Operation.CREATE):
        named = Counter(topic.name for topic in request.topics)
        # The handler refuses a name that is given twice.
        refused = [
            name for name, times in named.items() if times == 1 and not rights.allow(Operation.CREATE, ResourceType.TOPIC, name)
        ]

    def complete(response: Any) -> None:
        for result in response.topics:
            may_see = rights.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name)
            if not result.error_code and not may_see:
                result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                result.num_partitions = result.replication_factor = -1
                del result.configs[:]
        for name in refused:
            response.topics.add(
                name=name,
                topic_id=_NO_ID,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message="Authorization failed.",
                num_partitions=-1,
                replication_factor=-1,
            )

    taken_out = set(refused)
    kept = [topic for topic in request.topics if topic.name not in taken_out]
    return Admission(without(request, "topics", kept) if refused else request, complete, is_void=bool(refused) and not kept)


def create_partitions(call: CallContext) -> Admission:
    """Require ALTER on the topic. Refusals come first and have no text."""
    rights, request = call.rights, call.request
    refused = dict.fromkeys(
        topic.name for topic in request.topics if not rights.allow(Operation.ALTER, ResourceType.TOPIC, topic.name)
    )
    if not refused:
        return Admission(request)
    kept = [topic for topic in request.topics if topic.name not in refused]

    def complete(response: Any) -> None:
        answered = list(response.results)
        del response.results[:]
        for name in refused:
            response.results.add(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        response.results.extend(answered)

    return Admission(without(request, "topics", kept), complete, is_void=not kept)


def delete_topics(call: CallContext) -> Admission:
    """Require DELETE on the cluster or on the topic. To a caller without DESCRIBE, existing and missing topics look the same."""
    rights, request = call.rights, call.request
    if rights.are_unlimited or rights.may_on_cluster(Operation.DELETE):
        return Admission(request)
    kept: list[Any] = []
    refused: list[admin_pb2.DeletableTopicResult] = []
    for entry in request.topics:
        has_id = entry.HasField("topic_id") and entry.topic_id != _NO_ID
        if entry.HasField("name") == has_id:
            kept.append(entry)  # names no topic, or too many: the handler refuses it
            continue
        refusal = _id_refusal(call, entry.topic_id) if has_id else _name_refusal(call, entry.name)
        if refusal is None:
            kept.append(entry)
        else:
            refused.append(refusal)
    if not refused:
        return Admission(request)
    return Admission(without(request, "topics", kept), lambda response: response.responses.extend(refused), is_void=not kept)


def _name_refusal(call: CallContext, name: str) -> admin_pb2.DeletableTopicResult | None:
    rights = call.rights
    may_delete = rights.allow(Operation.DELETE, ResourceType.TOPIC, name)
    if rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
        if may_delete:
            return None
        if name not in call.image.topics.by_name:
            return admin_pb2.DeletableTopicResult(
                name=name,
                topic_id=_NO_ID,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=f"There is no topic named {name!r}.",
            )
    return admin_pb2.DeletableTopicResult(
        name=name, topic_id=_NO_ID, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=TOPIC_REFUSED
    )


def _id_refusal(call: CallContext, text: str) -> admin_pb2.DeletableTopicResult | None:
    """Refuse an id whose topic the caller may not delete. An id that is not committed is unknown."""
    rights = call.rights
    try:
        topic = call.image.topics.by_id.get(from_text(text))
    except ValueError:
        topic = None
    if topic is None:
        return admin_pb2.DeletableTopicResult(
            topic_id=text, error_code=ErrorCode.UNKNOWN_TOPIC_ID, error_message=f"There is no topic with id {text}."
        )
    if rights.allow(Operation.DELETE, ResourceType.TOPIC, topic.name):
        return None
    refusal = admin_pb2.DeletableTopicResult(
        topic_id=text, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=TOPIC_REFUSED
    )
    if rights.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        refusal.name = topic.name
    return refusal


def _by_topic(operation: Operation, refuse: Refuse, text: str = "") -> Admit:
    """Require the operation on each topic."""

    def decide(call: CallContext) -> Admission:
        return refusing(call.request, lambda topic: call.rights.allow(operation, ResourceType.TOPIC, topic.name), refuse, text)

    return decide


def describe_topic_partitions(call: CallContext) -> Admission:
    """Require DESCRIBE on the topic. Without it, named topics are refused and others left out."""
    rights, request = call.rights, call.request

    def complete_operations(response: Any) -> None:
        for topic in response.topics:
            topic.topic_authorized_operations = rights.operations(ResourceType.TOPIC, topic.name)

    if rights.are_unlimited:
        return Admission(request, complete_operations)
    is_named = request.HasField("topics")
    names = list(dict.fromkeys(request.topics.names)) if is_named else sorted(call.image.topics.by_name)
    sees = rights.allow if is_named else rights.may
    kept = [name for name in names if sees(Operation.DESCRIBE, ResourceType.TOPIC, name)]
    if kept == names:
        return Admission(request, complete_operations)
    first = request.cursor.topic_name if request.HasField("cursor") else ""
    refused = sorted(name for name in set(names).difference(kept) if name >= first) if is_named else []

    def complete(response: Any) -> None:
        complete_operations(response)
        for name in refused:
            response.topics.add(
                name=name,
                topic_id=_NO_ID,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                topic_authorized_operations=NOT_ASKED,
            )

    reduced = admin_pb2.DescribeTopicPartitionsRequest()
    reduced.CopyFrom(request)
    if request.cursor.partition_index >= 0 and (not is_named or first in names) and first not in kept:
        # The cursor is at a topic that is hidden or deleted: describe the topics after it.
        reduced.ClearField("cursor")
        kept = [name for name in kept if name >= first]
    reduced.topics.CopyFrom(admin_pb2.TopicNames(names=kept))
    return Admission(reduced, complete, is_void=not kept)


# --- configs -----------------------------------------------------------------------------------------------------------------

_CONFIGS_OF_CLUSTER = frozenset({4, 8, 16})
"""Config resource types that need rights on the cluster: BROKER, BROKER_LOGGER, CLIENT_METRICS."""
_CONFIGS_OF: Mapping[int, tuple[ResourceType, ErrorCode, str]] = {
    2: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_REFUSED),
    32: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, GROUP_REFUSED),
}


def _config_refusal(rights: Rights, operation: Operation, kind: int, name: str) -> tuple[ErrorCode, str] | None:
    """Code and text of a refusal, or None. Unknown types are left to the handler."""
    if kind in _CONFIGS_OF_CLUSTER:
        may = rights.allow_on_cluster(operation)
        return None if may else (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_REFUSED)
    if kind in _CONFIGS_OF:
        resource_type, code, text = _CONFIGS_OF[kind]
        return None if rights.allow(operation, resource_type, name) else (code, text)
    return None


def _configs(operation: Operation, answers: str) -> Admit:
    """Require the operation on each resource. Refusals follow the other answers, in the response's field `answers`."""

    def decide(call: CallContext) -> Admission:
        rights, request = call.rights, call.request
        if rights.are_unlimited:
            return Admission(request)
        kept: list[Any] = []
        refused: list[tuple[Any, ErrorCode, str]] = []
        for resource in request.resources:
            refusal = _config_refusal(rights, operation, resource.resource_type, resource.resource_name)
            if refusal is None:
                kept.append(resource)
            else:
                refused.append((resource, *refusal))
        if not refused:
            return Admission(request)

        def complete(response: Any) -> None:
            for resource, code, text in refused:
                getattr(response, answers).add(
                    error_code=code,
                    error_message=text,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )

        return Admission(without(request, "resources", kept), complete, is_void=not kept)

    return decide


# --- the table ---------------------------------------------------------------------------------------------------------------

RULES: Mapping[str, Admit] = {
    "anybody": _anybody,
    **{
        f"{operation.name} CLUSTER{suffix}": _on_cluster(operation, text)
        for operation in Operation
        for suffix, text in (("", None), (", Kafka's text", CLUSTER_REFUSED), (", no text", ""))
    },
    "ALTER_CONFIGS": _configs(Operation.ALTER_CONFIGS, "responses"),
    "DESCRIBE_CONFIGS": _configs(Operation.DESCRIBE_CONFIGS, "results"),
    "delete_records": _by_topic(Operation.DELETE, refusals.delete_records),
    **{
        decide.__name__: decide
        for decide in (
            create_topics,
            create_partitions,
            delete_topics,
            describe_cluster,
            describe_topic_partitions,
            init_producer_id,
        )
    },
}
"""Rule of a row in `rpc/calls.py` → function that decides on the call."""
