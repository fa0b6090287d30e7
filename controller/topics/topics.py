"""Topics: create (manual assignment or placement by rack) and delete.

Theory of operation. Each topic of a request is checked on its own, in one order of checks, and its records are added only when
it is complete. Everything that is accepted is one atomic batch. Names that differ only in '.' and '_' collide, with existing
topics and with topics that were accepted earlier in the same request. A partition starts with the active members of its
replicas as ISR and the first of them as leader. A deletion writes one record: replay removes partitions, configs and any
running reassignment.
"""

from __future__ import annotations

from collections import Counter

from kraftlab.access.refusals import set_error
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import ZERO, from_text, to_text
from kraftlab.metadata import eligible_leaders
from kraftlab.metadata.features import MIN_INSYNC_REPLICAS
from kraftlab.metadata.image import MetadataImage, TopicImage
from kraftlab.metadata.index import collision_form
from kraftlab.metadata.records import RESOURCE_TOPIC, AnyRecord, ClearElr, Config, RemoveTopic, Topic
from kraftlab.metadata.topic_names import METADATA_TOPIC, name_problem
from kraftlab.quorum.core.batch import MAX_RECORDS

from ..configs import policies
from ..configs.configs import new_topic_values
from ..configs.description import topic_entries
from ..engine.state import Context, ControllerState, Outcome, Settings, check_record_count, fresh_uuid
from .assignments import bad_assignment, check_assignments, new_partition, spread

VERSION_WITH_DELETION_DISABLED = 3
"""First version of DeleteTopics with a code for disabled deletion."""
LONG_PARTITIONS = 1000
"""Placing or removing more partitions takes longer than the quorum should wait for its leader: about 10 µs each, and more on a
busy machine.
"""
DEFAULT = -1
"""In counts of a creation: the controller's default, or the manual assignment's."""


def create(
    state: ControllerState, request: admin_pb2.CreateTopicsRequest, context: Context
) -> Outcome[admin_pb2.CreateTopicsResponse]:
    """Create topics. Answers are in the order of the request; duplicate names come last, once. ApiError POLICY_VIOLATION for
    too many partitions.
    """
    partitions = sum(_partition_count(topic, context.settings) for topic in request.topics)
    if partitions > MAX_RECORDS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {partitions} is more than {MAX_RECORDS}. Split the request.",
        )
    appearances = Counter(topic.name for topic in request.topics)
    response = admin_pb2.CreateTopicsResponse()
    records: list[AnyRecord] = []
    accepted: dict[str, str] = {}
    for creatable in request.topics:
        if appearances[creatable.name] > 1:
            continue
        try:
            made, result = _create_one(state, creatable, accepted, context)
        except ApiError as error:
            response.topics.append(failed_creation(creatable.name, error))
            continue
        accepted[collision_form(creatable.name)] = creatable.name
        records += made
        response.topics.append(result)
    duplicate = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    response.topics.extend(failed_creation(name, duplicate) for name, count in appearances.items() if count > 1)
    check_record_count(records)
    return Outcome([] if request.validate_only else records, response)


def is_long(state: ControllerState, request: admin_pb2.CreateTopicsRequest) -> bool:
    """Return True if the request places very many partitions."""
    return sum(len(topic.assignments) or topic.num_partitions for topic in request.topics) > LONG_PARTITIONS


def is_long_deletion(state: ControllerState, request: admin_pb2.DeleteTopicsRequest) -> bool:
    """Return True if the request removes very many partitions."""
    topics = [_named(state.image, entry) for entry in request.topics]
    return sum(len(topic.partitions) for topic in topics if topic is not None) > LONG_PARTITIONS


def failed_creation(name: str, error: ApiError) -> admin_pb2.CreatableTopicResult:
    result = admin_pb2.CreatableTopicResult(name=name, topic_id=to_text(ZERO), num_partitions=DEFAULT, replication_factor=DEFAULT)
    set_error(result, error)
    return result


def _partition_count(topic: admin_pb2.CreatableTopic, settings: Settings) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return settings.num_partitions if topic.num_partitions == DEFAULT else max(0, topic.num_partitions)


def _create_one(
    state: ControllerState, topic: admin_pb2.CreatableTopic, accepted: dict[str, str], context: Context
) -> tuple[list[AnyRecord], admin_pb2.CreatableTopicResult]:
    image = state.image
    _check_name(state, topic.name, accepted)
    values = new_topic_values(topic.configs)
    replica_lists = _manual(image, topic) if topic.assignments else _placed(image, topic, context)
    policies.check_topic(context.settings.static, topic.name, dict(enumerate(replica_lists)), values)
    context.mutations.take(len(replica_lists))
    topic_id = fresh_uuid(context.random, image.topics.by_id)
    records: list[AnyRecord] = [Topic(0, topic.name, topic_id)]
    records += [Config(0, RESOURCE_TOPIC, topic.name, name, value) for name, value in values.items()]
    if MIN_INSYNC_REPLICAS in values and eligible_leaders.are_on(image):
        records.append(ClearElr(0, topic.name))
    records += [new_partition(image, topic_id, index, replicas) for index, replicas in enumerate(replica_lists)]
    return records, admin_pb2.CreatableTopicResult(
        name=topic.name,
        topic_id=to_text(topic_id),
        num_partitions=len(replica_lists),
        replication_factor=len(replica_lists[0]),
        configs=topic_entries(image, values, context.settings),
    )


def _check_name(state: ControllerState, name: str, accepted: dict[str, str]) -> None:
    if name == METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    problem = name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if state.image.topics.get(name) is not None:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    colliding = accepted.get(collision_form(name)) or next(iter(state.index.colliding_topics(name)), None)
    if colliding is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {colliding}")


def _manual(image: MetadataImage, topic: admin_pb2.CreatableTopic) -> list[tuple[int, ...]]:
    """Replicas of each partition as the request assigns them."""
    if topic.replication_factor != DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if topic.num_partitions != DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "A manual partition assignment was specified, but numPartitions was not set to -1."
        )
    lists = check_assignments(image, ((entry.partition_index, tuple(entry.broker_ids)) for entry in topic.assignments))
    if sorted(lists) != list(range(len(lists))):
        raise bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return [lists[index] for index in range(len(lists))]


def _placed(image: MetadataImage, topic: admin_pb2.CreatableTopic, context: Context) -> list[tuple[int, ...]]:
    """Replicas of each partition, spread over racks."""
    factor, count = topic.replication_factor, topic.num_partitions
    if factor == 0 or factor < DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count == 0 or count < DEFAULT:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    settings = context.settings
    return spread(
        image,
        settings.num_partitions if count == DEFAULT else count,
        settings.default_replication_factor if factor == DEFAULT else factor,
        context,
    )


def delete(
    state: ControllerState, request: admin_pb2.DeleteTopicsRequest, context: Context
) -> Outcome[admin_pb2.DeleteTopicsResponse]:
    """Delete topics by name or id, all in one change. A topic that is named twice, by name, by id or by both, is refused once
    and not deleted.

    ApiError TOPIC_DELETION_DISABLED if delete.topic.enable is false.
    """
    image = state.image
    _check_deletion_enabled(request, context.settings)
    by_name = Counter(entry.name for entry in request.topics if entry.HasField("name") and not _has_id(entry))
    by_id = Counter(entry.topic_id for entry in request.topics if _has_id(entry) and not entry.HasField("name"))
    ids_of_names = {to_text(topic.topic_id) for name in by_name if (topic := image.topics.get(name)) is not None}
    response = admin_pb2.DeleteTopicsResponse()
    records: list[AnyRecord] = []
    answered: set[tuple[str, str]] = set()
    for entry in request.topics:
        named, has_id = entry.HasField("name"), _has_id(entry)
        identity = (entry.name, entry.topic_id if has_id else "")
        if identity in answered or (has_id and not named and entry.topic_id in ids_of_names):
            continue
        if named != has_id:
            answered.add(identity)
        result = admin_pb2.DeletableTopicResult(topic_id=entry.topic_id if has_id else to_text(ZERO))
        if named:
            result.name = entry.name
        try:
            topic = _to_delete(image, entry, by_name, by_id)
            context.mutations.take(len(topic.partitions))
        except ApiError as error:
            set_error(result, error)
            known = image.topics.get(entry.name) if named else None
            if known is not None and by_id[to_text(known.topic_id)]:
                result.topic_id = to_text(known.topic_id)
        else:
            result.name = topic.name
            result.topic_id = to_text(topic.topic_id)
            records.append(RemoveTopic(0, topic.topic_id))
        response.responses.append(result)
    return Outcome(records, response, transaction="topic deletion")


def merge_topic_names(request: admin_pb2.DeleteTopicsRequest) -> None:
    """Convert the names of an older version's request into entries."""
    for name in request.topic_names:
        request.topics.add(name=name)
    del request.topic_names[:]


def _check_deletion_enabled(request: admin_pb2.DeleteTopicsRequest, settings: Settings) -> None:
    if settings.static.get("delete.topic.enable", "true").strip().lower() == "false":
        header = request.header
        is_old = header.HasField("api_version") and header.api_version < VERSION_WITH_DELETION_DISABLED
        raise ApiError(
            ErrorCode.INVALID_REQUEST if is_old else ErrorCode.TOPIC_DELETION_DISABLED,
            "Topic deletion is disabled: the controller's delete.topic.enable is false.",
        )


def _has_id(entry: admin_pb2.DeleteTopicState) -> bool:
    return entry.HasField("topic_id") and entry.topic_id != to_text(ZERO)


def _named(image: MetadataImage, entry: admin_pb2.DeleteTopicState) -> TopicImage | None:
    """Topic of an entry, by name or by id; None if it does not exist."""
    if entry.HasField("name"):
        return image.topics.get(entry.name)
    try:
        return image.topics.by_id.get(from_text(entry.topic_id))
    except ValueError:
        return None


def _to_delete(image: MetadataImage, entry: admin_pb2.DeleteTopicState, by_name: Counter[str], by_id: Counter[str]) -> TopicImage:
    """Topic of an entry. ApiError if it names none, or if another entry names the same topic."""
    if entry.HasField("name") and _has_id(entry):
        raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if entry.HasField("name"):
        if by_name[entry.name] > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        topic = image.topics.get(entry.name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic named {entry.name!r}.")
        if by_id[to_text(topic.topic_id)]:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")
        return topic
    if not _has_id(entry):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if by_id[entry.topic_id] > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    try:
        topic = image.topics.by_id.get(from_text(entry.topic_id))
    except ValueError as error:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"{error}; there is no such topic.") from error
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with id {entry.topic_id}.")
    return topic
