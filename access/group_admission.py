"""Rights that the calls of consumer groups need: READ, DESCRIBE or DELETE on the group, and rights on the topics of offsets.

A topic without the right is answered partition by partition. Groups and topics that a caller may not see are left out of lists.
"""

from __future__ import annotations

from typing import Any

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import from_text
from kraftlab.metadata.acls import Operation, ResourceType
from kraftlab.metadata.image import MetadataImage

from . import NOT_ASKED, refusals
from .authorizer import Rights
from .calls import Admission, Admit, CallContext, refusing, without

GROUP_KEY = 0
"""Type of a key that FindCoordinator takes for a group id."""
NO_OFFSET = -1


def on_group(operation: Operation) -> Admit:
    """Require the operation on the request's group."""

    def decide(call: CallContext) -> Admission:
        if not call.rights.allow(operation, ResourceType.GROUP, call.request.group_id):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return Admission(call.request)

    return decide


def _topic_name(topic: Any, image: MetadataImage) -> str:
    """Name of a topic that a request names or gives the id of; "" if the id is not known."""
    if topic.name or not topic.topic_id:
        return str(topic.name)
    try:
        found = image.topics.by_id.get(from_text(topic.topic_id))
    except ValueError:
        return ""
    return found.name if found is not None else ""


def _may(rights: Rights, operation: Operation, topic: str) -> bool:
    """Return True also for a topic without a name: the handler refuses an unknown id."""
    return not topic or rights.allow(operation, ResourceType.TOPIC, topic)


def offset_commit(call: CallContext) -> Admission:
    """Require READ on the group and on each topic."""
    on_group(Operation.READ)(call)
    return refusing(
        call.request,
        lambda topic: _may(call.rights, Operation.READ, _topic_name(topic, call.image)),
        refusals.offset_commit,
    )


def offset_delete(call: CallContext) -> Admission:
    """Require DELETE on the group and READ on each topic."""
    on_group(Operation.DELETE)(call)
    request = call.request
    refused = [topic for topic in request.topics if not _may(call.rights, Operation.READ, topic.name)]
    if not refused:
        return Admission(request)

    def complete(response: Any) -> None:
        if response.header.error_code:
            return
        for topic in refused:
            row = response.topics.add(name=topic.name)
            for partition in topic.partitions:
                index = partition.partition_index
                row.partitions.add(partition_index=index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    kept = [topic for topic in request.topics if topic not in refused]
    return Admission(without(request, "topics", kept), complete, is_void=not kept)


def offset_fetch(call: CallContext) -> Admission:
    """Require DESCRIBE on each group and topic. Of a request for all topics, those without the right are left out."""
    rights, request, image = call.rights, call.request, call.image
    if rights.are_unlimited:
        return Admission(request)
    if not request.groups:
        return _offset_fetch_of_one(call)
    refused = [group for group in request.groups if not rights.allow(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)]
    kept = [group for group in request.groups if group not in refused]
    hidden = {group.group_id: _take_topics(group, rights, image) for group in kept}
    reduced = without(request, "groups", [group for group, _ in hidden.values()])

    def complete(response: Any) -> None:
        for row in response.groups:
            _show_topics(row, hidden[row.group_id][1], rights, image)
        for group in refused:
            response.groups.add(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    return Admission(reduced, complete, is_void=not kept)


def _offset_fetch_of_one(call: CallContext) -> Admission:
    on_group(Operation.DESCRIBE)(call)
    reduced, hidden = _take_topics(call.request, call.rights, call.image)
    return Admission(reduced, lambda response: _show_topics(response, hidden, call.rights, call.image))


def _take_topics(asked: Any, rights: Rights, image: MetadataImage) -> tuple[Any, list[Any]]:
    """Return what may be fetched of a group, and the named topics that may not."""
    if not asked.HasField("topics"):
        return asked, []
    hidden = [topic for topic in asked.topics.values if not _may(rights, Operation.DESCRIBE, _topic_name(topic, image))]
    reduced = type(asked)()
    reduced.CopyFrom(asked)
    del reduced.topics.values[:]
    reduced.topics.values.extend(topic for topic in asked.topics.values if topic not in hidden)
    return reduced, hidden


def _show_topics(row: Any, hidden: list[Any], rights: Rights, image: MetadataImage) -> None:
    visible = [topic for topic in row.topics if _may(rights, Operation.DESCRIBE, _topic_name(topic, image))]
    if len(visible) < len(row.topics):
        del row.topics[:]
        row.topics.extend(visible)
    for topic in hidden:
        refused = row.topics.add(name=topic.name, topic_id=topic.topic_id)
        for index in topic.partition_indexes:
            refused.partitions.add(
                partition_index=index,
                committed_offset=NO_OFFSET,
                committed_leader_epoch=-1,
                metadata="",
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )


def find_coordinator(call: CallContext) -> Admission:
    """Require DESCRIBE on each group."""
    rights, request = call.rights, call.request
    if request.key_type != GROUP_KEY:
        return Admission(request)
    if not request.coordinator_keys:
        if request.key and not rights.allow(Operation.DESCRIBE, ResourceType.GROUP, request.key):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return Admission(request)
    refused = [key for key in request.coordinator_keys if not rights.allow(Operation.DESCRIBE, ResourceType.GROUP, key)]
    if not refused:
        return Admission(request)

    def complete(response: Any) -> None:
        for key in refused:
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            response.coordinators.add(key=key, node_id=-1, port=-1, error_code=code, error_message=code.message)

    kept = [key for key in request.coordinator_keys if key not in refused]
    return Admission(without(request, "coordinator_keys", kept), complete, is_void=not kept)


def describe_groups(call: CallContext) -> Admission:
    """Require DESCRIBE on each group."""
    rights, request = call.rights, call.request
    refused = [name for name in request.groups if not rights.allow(Operation.DESCRIBE, ResourceType.GROUP, name)]
    kept = [name for name in request.groups if name not in refused]

    def complete(response: Any) -> None:
        for row in response.groups:
            row.authorized_operations = NOT_ASKED
            if request.include_authorized_operations and not row.error_code:
                row.authorized_operations = rights.operations(ResourceType.GROUP, row.group_id)
        for name in refused:
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            response.groups.add(group_id=name, error_code=code, authorized_operations=NOT_ASKED)

    return Admission(without(request, "groups", kept) if refused else request, complete, is_void=bool(refused) and not kept)


def list_groups(call: CallContext) -> Admission:
    """List all groups for callers with DESCRIBE on the cluster, otherwise those with DESCRIBE on the group."""
    rights = call.rights
    if rights.allow_on_cluster(Operation.DESCRIBE):
        return Admission(call.request)

    def complete(response: Any) -> None:
        visible = [row for row in response.groups if rights.allow(Operation.DESCRIBE, ResourceType.GROUP, row.group_id)]
        del response.groups[:]
        response.groups.extend(visible)

    return Admission(call.request, complete)


def delete_groups(call: CallContext) -> Admission:
    """Require DELETE on each group."""
    rights, request = call.rights, call.request
    refused = [name for name in request.groups_names if not rights.allow(Operation.DELETE, ResourceType.GROUP, name)]
    if not refused:
        return Admission(request)

    def complete(response: Any) -> None:
        for name in dict.fromkeys(refused):
            response.results.add(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    kept = [name for name in request.groups_names if name not in refused]
    return Admission(without(request, "groups_names", kept), complete, is_void=not kept)
