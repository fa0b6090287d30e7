"""What each admin call needs, and what becomes of the parts of a request that the caller may not have.

Theory of operation. `admit` is asked before a call is carried out, on the node that carries it out. A row of `CALLS` either
refuses the whole request (ApiError), or gives back what of it may be carried out and how the answer is to be completed: entries
that were taken out are answered there, with the codes and in the places that Kafka gives them. Some answers also tell what the
caller may do; they are completed even if there is no authorizer. The handlers of the calls know nothing of all this.

A call without a row is for super users only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.uuids import ZERO, from_text, to_text

from .authorizer import NOT_ASKED, Rights

TOPIC_REFUSED = "Topic authorization failed."
CLUSTER_REFUSED = "Cluster authorization failed."
GROUP_REFUSED = "Group authorization failed."

_NO_ID = to_text(ZERO)


class Admission(NamedTuple):
    """`request`: what may be carried out. `complete`: puts into the response what was taken out of the request, or what only
    concerns this caller. `is_void`: nothing is left to carry out, an empty response is completed.
    """

    request: Any
    complete: Callable[[Any], None] | None = None
    is_void: bool = False


class Asked(NamedTuple):
    """One call that wants to be admitted. `image` is what the node knows."""

    api: str
    rights: Rights
    request: Any
    image: MetadataImage


Admit = Callable[[Asked], Admission]


def admit(api: str, rights: Rights, request: object, image: MetadataImage) -> Admission:
    """Decides one call. ApiError refuses all of it; the caller's request is not changed."""
    row = CALLS.get(api)
    if row is None:
        row = _SUPER_USERS_ONLY
    return row(Asked(api, rights, request, image))


# --- whole requests ----------------------------------------------------------------------------------------------------------


def _anybody(asked: Asked) -> Admission:
    return Admission(asked.request)


def _super_users_only(asked: Asked) -> Admission:
    if not asked.rights.are_unlimited:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"Request {asked.api} is for super users only.")
    return Admission(asked.request)


_SUPER_USERS_ONLY: Admit = _super_users_only


def _on_cluster(operation: Operation, text: str | None = None) -> Admit:
    """The operation on the cluster, or nothing. `text`: what Kafka says where it does not name the operation; "" for null."""

    def decide(asked: Asked) -> Admission:
        if not asked.rights.allow_on_cluster(operation):
            needs = f"Request {asked.api} by {asked.rights.principal} on the cluster needs {operation.name} permission."
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, needs if text is None else text)
        return Admission(asked.request)

    return decide


def _init_producer_id(asked: Asked) -> Admission:
    """Transactions: WRITE on their id. Else: to write idempotently anywhere, or to write to some topic (KIP-679)."""
    rights, request = asked.rights, asked.request
    if request.HasField("transactional_id"):
        if not rights.allow(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                f"{rights.principal} may not WRITE transactional id {request.transactional_id!r}.",
            )
    elif not rights.allow_on_cluster(Operation.IDEMPOTENT_WRITE) and not rights.allow_any(Operation.WRITE, ResourceType.TOPIC):
        raise ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"Request InitProducerId by {rights.principal} needs WRITE permission on a topic or IDEMPOTENT_WRITE on the cluster.",
        )
    return Admission(request)


def _describe_cluster(asked: Asked) -> Admission:
    """Anybody; who may not DESCRIBE the cluster may do nothing with it that would be told."""

    def complete(response: Any) -> None:
        response.cluster_authorized_operations = _cluster_operations(asked)

    return Admission(asked.request, complete)


def _cluster_operations(asked: Asked) -> int:
    if not asked.request.include_cluster_authorized_operations:
        return NOT_ASKED
    if not asked.rights.allow_on_cluster(Operation.DESCRIBE):
        return 0
    return asked.rights.operations(ResourceType.CLUSTER, CLUSTER_NAME)


# --- topics ------------------------------------------------------------------------------------------------------------------


def _without(request: Any, field: str, kept: list[Any]) -> Any:
    """A copy of the request with only these entries."""
    reduced = type(request)()
    reduced.CopyFrom(request)
    del getattr(reduced, field)[:]
    getattr(reduced, field).extend(kept)
    return reduced


def _create_topics(asked: Asked) -> Admission:
    """CREATE on the cluster or on the topic. Who may not describe a topic's configs is not shown those it got."""
    rights, request = asked.rights, asked.request
    if rights.are_unlimited:
        return Admission(request)
    refused: list[str] = []
    if not rights.allow_on_cluster(Operation.CREATE):
        named = Counter(topic.name for topic in request.topics)
        # A name that stands there twice is refused by whoever carries it out.
        refused = [
            name for name, times in named.items() if times == 1 and not rights.allow(Operation.CREATE, ResourceType.TOPIC, name)
        ]

    def complete(response: Any) -> None:
        for result in response.topics:
            may_see = rights.allow(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name)
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
    return Admission(_without(request, "topics", kept) if refused else request, complete, is_void=bool(refused) and not kept)


def _create_partitions(asked: Asked) -> Admission:
    """ALTER on the topic; refusals stand first and have no text."""
    rights, request = asked.rights, asked.request
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

    return Admission(_without(request, "topics", kept), complete, is_void=not kept)


def _delete_topics(asked: Asked) -> Admission:
    """DELETE on the cluster or on the topic. What may not even be described is not told apart from what does not exist."""
    rights, request = asked.rights, asked.request
    if rights.are_unlimited or rights.allow_on_cluster(Operation.DELETE):
        return Admission(request)
    kept: list[Any] = []
    refused: list[admin_pb2.DeletableTopicResult] = []
    for entry in request.topics:
        has_id = entry.HasField("topic_id") and entry.topic_id != _NO_ID
        if entry.HasField("name") == has_id:
            kept.append(entry)  # names nothing, or too much: whoever carries it out says so
            continue
        refusal = _id_refusal(asked, entry.topic_id) if has_id else _name_refusal(asked, entry.name)
        if refusal is None:
            kept.append(entry)
        else:
            refused.append(refusal)
    if not refused:
        return Admission(request)
    return Admission(_without(request, "topics", kept), lambda response: response.responses.extend(refused), is_void=not kept)


def _name_refusal(asked: Asked, name: str) -> admin_pb2.DeletableTopicResult | None:
    rights = asked.rights
    may_delete = rights.allow(Operation.DELETE, ResourceType.TOPIC, name)
    if rights.allow(Operation.DESCRIBE, ResourceType.TOPIC, name):
        if may_delete:
            return None
        if name not in asked.image.topics.by_name:
            return admin_pb2.DeletableTopicResult(
                name=name,
                topic_id=_NO_ID,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=f"There is no topic named {name!r}.",
            )
    return admin_pb2.DeletableTopicResult(
        name=name, topic_id=_NO_ID, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=TOPIC_REFUSED
    )


def _id_refusal(asked: Asked, text: str) -> admin_pb2.DeletableTopicResult | None:
    """An id that is not committed is unknown: nobody knows yet what it would be the right to."""
    rights = asked.rights
    try:
        topic = asked.image.topics.by_id.get(from_text(text))
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
    if rights.allow(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        refusal.name = topic.name
    return refusal


def _delete_records(asked: Asked) -> Admission:
    """DELETE on the topic."""
    rights, request = asked.rights, asked.request
    refused = [topic for topic in request.topics if not rights.allow(Operation.DELETE, ResourceType.TOPIC, topic.name)]
    if not refused:
        return Admission(request)
    names = {topic.name for topic in refused}
    kept = [topic for topic in request.topics if topic.name not in names]

    def complete(response: Any) -> None:
        for topic in refused:
            answer = response.topics.add(name=topic.name)
            for partition in topic.partitions:
                answer.partitions.add(
                    partition_index=partition.partition_index,
                    low_watermark=-1,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                )

    return Admission(_without(request, "topics", kept), complete, is_void=not kept)


def _describe_topic_partitions(asked: Asked) -> Admission:
    """DESCRIBE on the topic. Named topics that may not be described are refused, others left out."""
    rights, request = asked.rights, asked.request

    def tell(response: Any) -> None:
        for topic in response.topics:
            topic.topic_authorized_operations = rights.operations(ResourceType.TOPIC, topic.name)

    if rights.are_unlimited:
        return Admission(request, tell)
    is_named = request.HasField("topics")
    names = list(dict.fromkeys(request.topics.names)) if is_named else sorted(asked.image.topics.by_name)
    kept = [name for name in names if rights.allow(Operation.DESCRIBE, ResourceType.TOPIC, name)]
    if kept == names:
        return Admission(request, tell)
    first = request.cursor.topic_name if request.HasField("cursor") else ""
    refused = sorted(name for name in set(names).difference(kept) if name >= first) if is_named else []

    def complete(response: Any) -> None:
        tell(response)
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
        # A cursor at a topic that is hidden, or gone: what comes behind it is told all the same.
        reduced.ClearField("cursor")
        kept = [name for name in kept if name >= first]
    reduced.topics.CopyFrom(admin_pb2.TopicNames(names=kept))
    return Admission(reduced, complete, is_void=not kept)


def _metadata(asked: Asked) -> Admission:
    """As `_describe_topic_partitions`; topics can be asked for by id, too."""
    rights, request = asked.rights, asked.request

    def tell(response: Any) -> None:
        response.cluster_authorized_operations = _cluster_operations(asked)
        for topic in response.topics:
            topic.topic_authorized_operations = (
                rights.operations(ResourceType.TOPIC, topic.name)
                if request.include_topic_authorized_operations and topic.name
                else NOT_ASKED
            )

    if rights.are_unlimited:
        return Admission(request, tell)

    def complete(response: Any) -> None:
        tell(response)
        answered = list(response.topics)
        is_named = request.HasField("topics")
        seen = [topic for topic in answered if _may_describe(rights, topic)]
        hidden = [topic for topic in answered if not _may_describe(rights, topic)] if is_named else []
        del response.topics[:]
        response.topics.extend(seen)
        asked_ids = (
            {topic.topic_id for topic in request.topics.values if topic.topic_id not in ("", _NO_ID)} if is_named else set()
        )
        for topic in hidden:
            is_by_id = topic.topic_id in asked_ids
            refusal = response.topics.add(
                topic_id=topic.topic_id if is_by_id else _NO_ID,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                topic_authorized_operations=NOT_ASKED,
            )
            if not is_by_id:
                refusal.name = topic.name

    return Admission(request, complete)


def _may_describe(rights: Rights, topic: Any) -> bool:
    """A topic without a name was asked for by an id that nobody has."""
    return not topic.name or rights.allow(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)


# --- configs -----------------------------------------------------------------------------------------------------------------

_CONFIGS_OF_CLUSTER = frozenset({4, 8, 16})
"""Config resource types of which the cluster's rules decide: BROKER, BROKER_LOGGER, CLIENT_METRICS."""
_CONFIGS_OF: Mapping[int, tuple[ResourceType, ErrorCode, str]] = {
    2: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_REFUSED),
    32: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, GROUP_REFUSED),
}


def _config_refusal(rights: Rights, operation: Operation, kind: int, name: str) -> tuple[ErrorCode, str] | None:
    """Code and text, or None. Types that nobody knows are for the handler to refuse."""
    if kind in _CONFIGS_OF_CLUSTER:
        may = rights.allow_on_cluster(operation)
        return None if may else (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_REFUSED)
    if kind in _CONFIGS_OF:
        resource_type, code, text = _CONFIGS_OF[kind]
        return None if rights.allow(operation, resource_type, name) else (code, text)
    return None


def _configs(operation: Operation, answers: str) -> Admit:
    """The operation on each resource; refusals stand behind the other answers, in the response's field `answers`."""

    def decide(asked: Asked) -> Admission:
        rights, request = asked.rights, asked.request
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

        return Admission(_without(request, "resources", kept), complete, is_void=not kept)

    return decide


# --- the table ---------------------------------------------------------------------------------------------------------------

_ALTER = _on_cluster(Operation.ALTER)
_DESCRIBE = _on_cluster(Operation.DESCRIBE)

CALLS: Mapping[str, Admit] = {
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "CreatePartitions": _create_partitions,
    "DeleteRecords": _delete_records,
    "DescribeTopicPartitions": _describe_topic_partitions,
    "Metadata": _metadata,
    "ElectLeaders": _ALTER,
    "IncrementalAlterConfigs": _configs(Operation.ALTER_CONFIGS, "responses"),
    "AlterConfigs": _configs(Operation.ALTER_CONFIGS, "responses"),
    "DescribeConfigs": _configs(Operation.DESCRIBE_CONFIGS, "results"),
    "ListConfigResources": _on_cluster(Operation.DESCRIBE_CONFIGS),
    "AlterClientQuotas": _on_cluster(Operation.ALTER_CONFIGS, CLUSTER_REFUSED),
    "DescribeClientQuotas": _on_cluster(Operation.DESCRIBE_CONFIGS, ""),
    "UpdateFeatures": _ALTER,
    "AlterPartitionReassignments": _ALTER,
    "ListPartitionReassignments": _DESCRIBE,
    "AlterReplicationFactors": _ALTER,
    "AlterPartitionCounts": _ALTER,
    "AlterInterBrokerThrottle": _on_cluster(Operation.ALTER_CONFIGS),
    "ApiVersions": _anybody,
    "DescribeCluster": _describe_cluster,
    "DescribeQuorum": _on_cluster(Operation.DESCRIBE, CLUSTER_REFUSED),
    "AddRaftVoter": _on_cluster(Operation.ALTER, CLUSTER_REFUSED),
    "RemoveRaftVoter": _on_cluster(Operation.ALTER, CLUSTER_REFUSED),
    "TransferLeadership": _ALTER,
    "UnregisterBroker": _ALTER,
    "AllocateProducerIds": _on_cluster(Operation.CLUSTER_ACTION),
    "InitProducerId": _init_producer_id,
    "CreateSnapshot": _ALTER,
    "ListSnapshots": _DESCRIBE,
    "DescribeMetadata": _DESCRIBE,
    "DescribeImage": _DESCRIBE,
    "ListMetadataRecords": _DESCRIBE,
    "AlterReplicaLogDirs": _ALTER,
    "DescribeLogDirs": _DESCRIBE,
    "CreateAcls": _ALTER,
    "DeleteAcls": _ALTER,
    "DescribeAcls": _DESCRIBE,
    "AlterUserScramCredentials": _ALTER,
    "DescribeUserScramCredentials": _on_cluster(Operation.DESCRIBE, ""),
}
"""Method of the Admin service → who may call it, and what of it."""
