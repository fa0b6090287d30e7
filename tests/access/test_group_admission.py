"""Rights that the calls of consumer groups need, and the places of refusals in their responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import immutables
import pytest

from kraftlab.access import NOT_ASKED
from kraftlab.access.authorizer import AccessSettings, Authorizer, Rights
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import to_text
from kraftlab.metadata.acls import CLUSTER_NAME, Acl, AclsImage, Operation, PatternType, PermissionType, ResourceType
from kraftlab.metadata.image import EMPTY, MetadataImage, TopicImage, TopicsImage
from kraftlab.node.api import admit
from kraftlab.rpc.methods import METHODS

TOPIC, CLUSTER, GROUP = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.GROUP
IDS = {"t": bytes([1]) * 16, "u": bytes([2]) * 16}
IMAGE = MetadataImage(
    topics=TopicsImage(
        immutables.Map({topic_id: TopicImage(name, topic_id, immutables.Map()) for name, topic_id in IDS.items()}),
        immutables.Map(IDS),
    )
)
REFUSED_GROUP, REFUSED_TOPIC = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED


def rights(*rules: tuple[ResourceType, str, Operation]) -> Rights:
    """Rights of alice with these ACLs."""
    made = [Acl(kind, name, PatternType.LITERAL, "User:alice", "*", what, PermissionType.ALLOW) for kind, name, what in rules]
    acls = AclsImage().after({bytes([number]) * 16: acl for number, acl in enumerate(made)})
    return Authorizer(AccessSettings(is_enabled=True)).rights(acls, "User:alice", "127.0.0.1")


def answered(api: str, who: Rights, request: Any, response: Any = None) -> tuple[Any, Any]:
    """Return the admitted request and the completed response."""
    admission = admit(api, who, request, IMAGE)
    response = METHODS[api].response() if response is None else response
    if admission.complete is not None:
        admission.complete(response)
    return admission.request, response


def names(entries: Iterable[Any]) -> list[str]:
    return [entry.name for entry in entries]


@pytest.mark.parametrize(
    ("api", "operation"),
    [
        ("JoinGroup", Operation.READ),
        ("SyncGroup", Operation.READ),
        ("Heartbeat", Operation.READ),
        ("LeaveGroup", Operation.READ),
        ("OffsetCommit", Operation.READ),
        ("OffsetFetch", Operation.DESCRIBE),
        ("OffsetDelete", Operation.DELETE),
    ],
)
def test_a_call_about_one_group_needs_an_operation_on_it(api: str, operation: Operation) -> None:
    request = METHODS[api].request(group_id="g")
    assert admit(api, rights((GROUP, "g", operation)), request, EMPTY).request == request
    with pytest.raises(ApiError) as raised:
        admit(api, rights((GROUP, "other", operation)), request, EMPTY)
    assert raised.value.code is REFUSED_GROUP


def test_offsets_are_committed_for_topics_that_may_be_read() -> None:
    partitions = [pb.OffsetCommitPartition(partition_index=1)]
    named = [pb.OffsetCommitTopic(name=name, partitions=partitions) for name in ("t", "u")]
    by_id = [pb.OffsetCommitTopic(topic_id=to_text(IDS[name]), partitions=partitions) for name in ("t", "u")]
    who = rights((GROUP, "g", Operation.READ), (TOPIC, "t", Operation.READ))
    for topics in (named, by_id):
        request, response = answered("OffsetCommit", who, pb.OffsetCommitRequest(group_id="g", topics=topics))
        assert list(request.topics) == topics[:1]
        (refused,) = response.topics
        assert (refused.name, refused.topic_id) == (topics[1].name, topics[1].topic_id)
        assert [(each.partition_index, each.error_code) for each in refused.partitions] == [(1, REFUSED_TOPIC)]


def test_offsets_are_deleted_for_topics_that_may_be_read() -> None:
    partitions = [pb.OffsetDeletePartition(partition_index=1)]
    topics = [pb.OffsetDeleteTopic(name=name, partitions=partitions) for name in ("t", "u")]
    who = rights((GROUP, "g", Operation.DELETE), (TOPIC, "t", Operation.READ))
    request, response = answered("OffsetDelete", who, pb.OffsetDeleteRequest(group_id="g", topics=topics))
    assert names(request.topics) == ["t"]
    assert [(each.name, each.partitions[0].error_code) for each in response.topics] == [("u", REFUSED_TOPIC)]


def test_offsets_are_fetched_for_topics_that_may_be_described() -> None:
    topics = pb.OffsetFetchTopics(values=[pb.OffsetFetchTopic(name=name, partition_indexes=[0, 1]) for name in ("t", "u")])
    groups = [pb.OffsetFetchGroup(group_id=group_id, topics=topics) for group_id in ("g", "hidden")]
    who = rights((GROUP, "g", Operation.DESCRIBE), (TOPIC, "t", Operation.DESCRIBE))
    response = pb.OffsetFetchResponse()
    response.groups.add(group_id="g").topics.add(name="t")
    request, response = answered("OffsetFetch", who, pb.OffsetFetchRequest(groups=groups), response)
    assert [(group.group_id, names(group.topics.values)) for group in request.groups] == [("g", ["t"])]
    shown, refused = response.groups
    assert names(shown.topics) == ["t", "u"]
    assert [(each.committed_offset, each.error_code) for each in shown.topics[1].partitions] == [(-1, REFUSED_TOPIC)] * 2
    assert (refused.group_id, refused.error_code, len(refused.topics)) == ("hidden", REFUSED_GROUP, 0)


@pytest.mark.parametrize("version", [7, 9])
def test_of_all_offsets_only_those_of_visible_topics_are_shown(version: int) -> None:
    who = rights((GROUP, "g", Operation.DESCRIBE), (TOPIC, "t", Operation.DESCRIBE))
    response, request = pb.OffsetFetchResponse(), pb.OffsetFetchRequest()
    if version == 7:
        request.group_id = "g"
        row: Any = response
    else:
        request.groups.add(group_id="g")
        row = response.groups.add(group_id="g")
    for name in ("t", "u"):
        row.topics.add(name=name)
    answered("OffsetFetch", who, request, response)
    assert names(row.topics) == ["t"]


def test_only_coordinators_of_described_groups_are_found() -> None:
    who = rights((GROUP, "g", Operation.DESCRIBE))
    request, response = answered("FindCoordinator", who, pb.FindCoordinatorRequest(coordinator_keys=["g", "hidden"]))
    assert list(request.coordinator_keys) == ["g"]
    assert [(row.key, row.node_id, row.error_code) for row in response.coordinators] == [("hidden", -1, REFUSED_GROUP)]
    with pytest.raises(ApiError):
        admit("FindCoordinator", who, pb.FindCoordinatorRequest(key="hidden"), IMAGE)


def test_described_groups_have_the_callers_operations_on_request() -> None:
    who = rights((GROUP, "g", Operation.DESCRIBE))
    for is_asked in (False, True):
        response = pb.DescribeGroupsResponse()
        response.groups.add(group_id="g")
        asked = pb.DescribeGroupsRequest(groups=["g", "hidden"], include_authorized_operations=is_asked)
        request, response = answered("DescribeGroups", who, asked, response)
        assert list(request.groups) == ["g"]
        shown, refused = response.groups
        assert shown.authorized_operations == (1 << Operation.DESCRIBE if is_asked else NOT_ASKED)
        assert (refused.group_id, refused.error_code, refused.group_state) == ("hidden", REFUSED_GROUP, "")


def test_groups_are_listed_by_rights_on_the_cluster_or_on_each() -> None:
    for who, listed in (
        (rights((CLUSTER, CLUSTER_NAME, Operation.DESCRIBE)), ["g", "h"]),
        (rights((GROUP, "h", Operation.DESCRIBE)), ["h"]),
        (rights(), []),
    ):
        response = pb.ListGroupsResponse(groups=[pb.ListedGroup(group_id=name) for name in ("g", "h")])
        _, response = answered("ListGroups", who, pb.ListGroupsRequest(), response)
        assert [row.group_id for row in response.groups] == listed


def test_each_group_is_deleted_with_a_right_of_its_own() -> None:
    who = rights((GROUP, "g", Operation.DELETE))
    request, response = answered("DeleteGroups", who, pb.DeleteGroupsRequest(groups_names=["h", "g", "h"]))
    assert list(request.groups_names) == ["g"]
    assert [(row.group_id, row.error_code) for row in response.results] == [("h", REFUSED_GROUP)]
