"""Rights that the calls of consumer groups need, and the places of refusals in their answers."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.access import NOT_ASKED
from kraftlab.access.authorizer import AccessSettings, Authorizer, Rights
from kraftlab.common.errors import ErrorCode
from kraftlab.messages.generated.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kraftlab.messages.generated.offset_delete_request import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from kraftlab.messages.generated.offset_fetch_request import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kraftlab.metadata.acls import CLUSTER_NAME, Acl, AclsImage, Operation, PatternType, PermissionType, ResourceType

TOPIC, CLUSTER, GROUP = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.GROUP
REFUSED_GROUP, REFUSED_TOPIC = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED


def rights(*rules: tuple[ResourceType, str, Operation]) -> Rights:
    """Rights of alice with these ACLs."""
    made = [Acl(kind, name, PatternType.LITERAL, "User:alice", "*", what, PermissionType.ALLOW) for kind, name, what in rules]
    acls = AclsImage().after({bytes([number]) * 16: acl for number, acl in enumerate(made)})
    return Authorizer(AccessSettings(is_enabled=True)).rights(acls, "User:alice", "127.0.0.1")


@pytest.fixture
async def with_two_topics(cluster: Any) -> Any:
    await cluster.world.create_topic("u", [0, 1, 2])
    for topic in ("t", "u"):
        assert await cluster.commit("a", 1, topic=topic) == ErrorCode.NONE
    return cluster


@pytest.mark.parametrize(
    ("api", "operation"),
    [
        ("JoinGroup", Operation.READ),
        ("SyncGroup", Operation.READ),
        ("Heartbeat", Operation.READ),
        ("LeaveGroup", Operation.READ),
        ("OffsetDelete", Operation.DELETE),
        ("OffsetFetch", Operation.DESCRIBE),
    ],
)
async def test_a_call_about_one_group_needs_an_operation_on_it(
    cluster: Any, autojump_clock: Any, api: str, operation: Operation
) -> None:
    version = {"SyncGroup": 4, "OffsetFetch": 7}.get(api)
    cluster.rights = rights((GROUP, "a", operation))
    allowed = await cluster.call(cluster.coordinator("a"), api, version, group_id="a")
    assert allowed.error_code != REFUSED_GROUP
    cluster.rights = rights((GROUP, "other", operation))
    refused = await cluster.call(cluster.coordinator("a"), api, version, group_id="a")
    assert refused.error_code == REFUSED_GROUP


async def test_a_refused_member_keeps_its_id(cluster: Any, autojump_clock: Any) -> None:
    cluster.rights = rights()
    refused = await cluster.join("a", "mine")
    assert (refused.error_code, refused.member_id, refused.generation_id) == (REFUSED_GROUP, "mine", -1)


async def test_the_oldest_version_names_the_error_in_each_partition(cluster: Any, autojump_clock: Any) -> None:
    cluster.rights = rights()
    topics = [OffsetFetchRequestTopic("t", (0, 1))]
    refused = await cluster.call(cluster.coordinator("a"), "OffsetFetch", 1, group_id="a", topics=topics)
    codes = [each.error_code for each in refused.topics[0].partitions]
    assert codes == [REFUSED_GROUP, REFUSED_GROUP]


async def test_offsets_are_committed_for_topics_that_may_be_read(with_two_topics: Any, autojump_clock: Any) -> None:
    cluster = with_two_topics
    ids = cluster.world.image.topics.by_name
    partitions = [OffsetCommitRequestPartition(0, 5)]
    cluster.rights = rights((GROUP, "a", Operation.READ), (TOPIC, "t", Operation.READ))
    for version in (9, 10):
        topics = [OffsetCommitRequestTopic(name, ids[name], partitions) for name in ("u", "t")]
        answer = await cluster.call(cluster.coordinator("a"), "OffsetCommit", version, group_id="a", topics=topics)
        named = [row.name if version == 9 else next(name for name in ids if ids[name] == row.topic_id) for row in answer.topics]
        assert named == ["t", "u"]
        assert [row.partitions[0].error_code for row in answer.topics] == [ErrorCode.NONE, REFUSED_TOPIC]
    cluster.rights = rights((TOPIC, "t", Operation.READ))
    answer = await cluster.call(cluster.coordinator("a"), "OffsetCommit", 9, group_id="a", topics=topics)
    assert [row.partitions[0].error_code for row in answer.topics] == [REFUSED_GROUP, REFUSED_GROUP]


async def test_offsets_are_deleted_for_topics_that_may_be_read(with_two_topics: Any, autojump_clock: Any) -> None:
    cluster = with_two_topics
    topics = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in ("u", "t")]
    cluster.rights = rights((GROUP, "a", Operation.DELETE), (TOPIC, "t", Operation.READ))
    answer = await cluster.call(cluster.coordinator("a"), "OffsetDelete", group_id="a", topics=topics)
    found = [(row.name, row.partitions[0].error_code) for row in answer.topics]
    assert found == [("t", ErrorCode.NONE), ("u", REFUSED_TOPIC)]


async def test_offsets_are_fetched_for_topics_that_may_be_described(with_two_topics: Any, autojump_clock: Any) -> None:
    cluster = with_two_topics
    topics = [OffsetFetchRequestTopics(name, partition_indexes=(0, 1)) for name in ("u", "t")]
    groups = [OffsetFetchRequestGroup(group_id, topics=topics) for group_id in ("a", "hidden")]
    cluster.rights = rights((GROUP, "a", Operation.DESCRIBE), (TOPIC, "t", Operation.DESCRIBE))
    shown, refused = (await cluster.call(cluster.coordinator("a"), "OffsetFetch", 9, groups=groups)).groups
    assert [(row.name, [each.committed_offset for each in row.partitions]) for row in shown.topics] == [
        ("t", [1, -1]),
        ("u", [-1, -1]),
    ]
    assert [each.error_code for each in shown.topics[1].partitions] == [REFUSED_TOPIC, REFUSED_TOPIC]
    assert (refused.group_id, refused.error_code, len(refused.topics)) == ("hidden", REFUSED_GROUP, 0)


@pytest.mark.parametrize("version", [7, 9])
async def test_of_all_offsets_only_those_of_visible_topics_are_shown(
    with_two_topics: Any, autojump_clock: Any, version: int
) -> None:
    cluster = with_two_topics
    cluster.rights = rights((GROUP, "a", Operation.DESCRIBE), (TOPIC, "t", Operation.DESCRIBE))
    asked: dict[str, Any] = {"groups": [OffsetFetchRequestGroup("a", topics=None)]}
    if version == 7:
        asked = {"group_id": "a", "topics": None}
    answer = await cluster.call(cluster.coordinator("a"), "OffsetFetch", version, **asked)
    row = answer if version == 7 else answer.groups[0]
    assert [topic.name for topic in row.topics] == ["t"]


async def test_only_coordinators_of_described_groups_are_found(cluster: Any, autojump_clock: Any) -> None:
    cluster.rights = rights((GROUP, "a", Operation.DESCRIBE))
    broker = cluster.coordinator("a")
    answer = await cluster.call(broker, "FindCoordinator", coordinator_keys=("hidden", "a"))
    assert [(row.key, row.node_id >= 0, row.error_code) for row in answer.coordinators] == [
        ("hidden", False, REFUSED_GROUP),
        ("a", True, 0),
    ]
    old = await cluster.call(broker, "FindCoordinator", 3, key="hidden")
    assert (old.error_code, old.node_id, old.port) == (REFUSED_GROUP, -1, -1)
    assert (await cluster.call(broker, "FindCoordinator", 3, key="a")).error_message == "NONE"


async def test_described_groups_have_the_callers_operations_on_request(cluster: Any, autojump_clock: Any) -> None:
    await cluster.alone("a")
    cluster.rights = rights((GROUP, "a", Operation.DESCRIBE))
    for is_asked in (False, True):
        answer = await cluster.call(
            cluster.coordinator("a"), "DescribeGroups", groups=("hidden", "a"), include_authorized_operations=is_asked
        )
        shown, refused = answer.groups
        assert shown.authorized_operations == (1 << Operation.DESCRIBE if is_asked else NOT_ASKED)
        assert (refused.group_id, refused.error_code, refused.group_state) == ("hidden", REFUSED_GROUP, "")


async def test_groups_are_listed_by_rights_on_the_cluster_or_on_each(cluster: Any, autojump_clock: Any) -> None:
    broker = cluster.coordinator("a")
    here = [name for name in ("a", "b", "c", "d", "e", "f") if cluster.coordinator(name) is broker]
    for name in here:
        assert await cluster.commit(name, 1) == ErrorCode.NONE
    for who, listed in (
        (rights((CLUSTER, CLUSTER_NAME, Operation.DESCRIBE)), here),
        (rights((GROUP, here[1], Operation.DESCRIBE)), here[1:2]),
        (rights(), []),
    ):
        cluster.rights = who
        answer = await cluster.call(broker, "ListGroups")
        assert sorted(row.group_id for row in answer.groups) == listed


async def test_each_group_is_deleted_with_a_right_of_its_own(cluster: Any, autojump_clock: Any) -> None:
    assert await cluster.commit("a", 1) == ErrorCode.NONE
    cluster.rights = rights((GROUP, "a", Operation.DELETE))
    answer = await cluster.call(cluster.coordinator("a"), "DeleteGroups", groups_names=("h", "a", "h"))
    assert [(row.group_id, row.error_code) for row in answer.results] == [("a", ErrorCode.NONE), ("h", REFUSED_GROUP)]
