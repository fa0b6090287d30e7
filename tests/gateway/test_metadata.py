"""Metadata from the published image, in every version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraftlab.access import NOT_ASKED
from kraftlab.access.authorizer import AccessSettings, Authorizer, Rights
from kraftlab.common.errors import ErrorCode
from kraftlab.gateway.codec import encode_response
from kraftlab.gateway.metadata import MetadataCalls
from kraftlab.metadata.acls import Acl, AclsImage
from kraftlab.metadata.image import MetadataImage
from kraftlab.rpc.caller import Caller

from .conftest import (
    OFFSETS,
    ORDERS,
    broker,
    everything,
    image_of,
    limited_to,
    make_request,
    partition,
    read_response,
    topic_id,
)

CALLER = Caller("User:ANONYMOUS", "127.0.0.1")
FIRST, LAST = 0, 13


class Cluster:
    """The published image, and the topics that were created."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.created: list[str] = []
        self.creates = True
        self.refuses_with = ErrorCode.NONE

    async def create(self, name: str, caller: Caller) -> ErrorCode:
        self.created.append(name)
        if not self.refuses_with:
            self.image = image_of(broker(1), **{name: (ORDERS, {0: partition(1, 1)})})
        return self.refuses_with

    async def ask(self, version: int, *topics: Any, every: bool = False, rights: Any = everything, **fields: Any) -> Any:
        calls = MetadataCalls(1, "cluster", lambda: self.image, rights, lambda: self.create if self.creates else None)
        entries = [{"name": each} if isinstance(each, str) else {"name": None, "topic_id": topic_id(each)} for each in topics]
        request = make_request(3, version, topics=None if every and version else entries, **fields)
        return read_response(3, version, encode_response(request.header, await calls.metadata(request, CALLER)))


@pytest.fixture
def cluster(image: MetadataImage) -> Cluster:
    return Cluster(image)


@pytest.mark.parametrize("version", range(FIRST, LAST + 1))
async def test_brokers_and_topics_are_described_in_every_version(version: int, cluster: Cluster) -> None:
    answer = await cluster.ask(version, every=True)
    assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [(1, "127.0.0.1", 9001), (2, "127.0.0.1", 9002)]
    assert [topic.name for topic in answer.topics] == ["__consumer_offsets", "orders"]
    orders = answer.topics[1]
    rows = [(part.partition_index, part.leader_id, part.replica_nodes) for part in orders.partitions]
    assert rows == [(0, 1, (1, 2)), (1, 2, (2, 1))]
    if version >= 1:
        assert answer.controller_id == 1
        assert [topic.is_internal for topic in answer.topics] == [True, False]
    if version >= 7:
        assert [part.leader_epoch for part in orders.partitions] == [4, 6]
    if version >= 10:
        assert [topic.topic_id.bytes for topic in answer.topics] == [OFFSETS, ORDERS]


async def test_no_topic_is_named_by_an_empty_list_except_in_version_0(cluster: Cluster) -> None:
    assert len((await cluster.ask(0)).topics) == 2
    assert len((await cluster.ask(1)).topics) == 0


async def test_topics_are_found_by_name_or_id_each_once(cluster: Cluster) -> None:
    answer = await cluster.ask(12, "orders", "orders")
    assert [topic.name for topic in answer.topics] == ["orders"]
    answer = await cluster.ask(12, ORDERS, bytes([7] * 16))
    assert [(topic.name, int(topic.error_code)) for topic in answer.topics] == [("orders", 0), (None, 100)]


async def test_an_entry_with_neither_name_nor_id_refuses_all_entries(cluster: Cluster) -> None:
    answer = await cluster.ask(12, "orders", bytes(16))
    assert [(topic.name, int(topic.error_code)) for topic in answer.topics] == [("orders", 42), ("", 42)]
    assert (answer.brokers, answer.controller_id, answer.cluster_id) == ((), -1, None)


async def test_a_leader_without_a_kafka_listener_is_not_named(cluster: Cluster) -> None:
    cluster.image = image_of(broker(1), broker(2, kafka=False), orders=(ORDERS, {0: partition(2, 2, 1), 1: partition(-1, 1)}))
    answer = await cluster.ask(12, "orders")
    assert [each.node_id for each in answer.brokers] == [1]
    rows = [(int(part.error_code), part.leader_id) for part in answer.topics[0].partitions]
    assert rows == [(ErrorCode.LISTENER_NOT_FOUND, -1), (ErrorCode.LEADER_NOT_AVAILABLE, -1)]


async def test_the_controller_is_a_broker_of_the_answer(cluster: Cluster) -> None:
    """Trap: clients look the controller up among the brokers."""
    cluster.image = image_of(broker(1, fenced=True), broker(2))
    assert (await cluster.ask(12)).controller_id == 2


async def test_replicas_on_fenced_brokers_are_offline(cluster: Cluster) -> None:
    cluster.image = image_of(broker(1), broker(2, fenced=True), orders=(ORDERS, {0: partition(1, 1, 2, 3)}))
    [part] = (await cluster.ask(12, "orders")).topics[0].partitions
    assert (part.replica_nodes, part.offline_replicas) == ((1, 2, 3), (2, 3))


async def test_an_unknown_topic_is_created_if_client_and_broker_want_it(cluster: Cluster) -> None:
    cluster.creates = False
    [topic] = (await cluster.ask(12, "new")).topics
    assert (topic.name, int(topic.error_code)) == ("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.creates = True
    [topic] = (await cluster.ask(12, "new", allow_auto_topic_creation=False)).topics
    assert int(topic.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.created == []
    [topic] = (await cluster.ask(12, "new")).topics
    assert (int(topic.error_code), len(topic.partitions)) == (0, 1)


async def test_names_that_are_not_valid_and_internal_topics_are_not_created(cluster: Cluster) -> None:
    cluster.image = image_of(broker(1))
    answer = await cluster.ask(12, "bad name!", "__consumer_offsets")
    assert [int(topic.error_code) for topic in answer.topics] == [17, 3]
    assert cluster.created == []
    cluster.refuses_with = ErrorCode.INVALID_REPLICATION_FACTOR
    assert int((await cluster.ask(12, "new")).topics[0].error_code) == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_a_caller_sees_only_topics_with_describe_permission(cluster: Cluster) -> None:
    rights = limited_to(DESCRIBE={"orders"})
    assert [topic.name for topic in (await cluster.ask(12, every=True, rights=rights)).topics] == ["orders"]
    [topic] = (await cluster.ask(12, "__consumer_offsets", rights=rights)).topics
    assert (topic.name, int(topic.error_code), topic.partitions) == ("__consumer_offsets", 29, ())
    [topic] = (await cluster.ask(12, OFFSETS, rights=rights)).topics
    assert (topic.name, int(topic.error_code)) == (None, 29)


async def test_authorized_operations_are_shown_when_asked_for(cluster: Cluster) -> None:
    plain = await cluster.ask(9, "orders")
    assert (plain.topics[0].topic_authorized_operations, plain.cluster_authorized_operations) == (NOT_ASKED, NOT_ASKED)
    asked = await cluster.ask(9, "orders", include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    assert asked.topics[0].topic_authorized_operations > 0
    assert asked.cluster_authorized_operations > 0


# --- rights, as recorded ----------------------------------------------------------------------------------------------------

RECORDINGS = {
    path.stem: steps
    for path in sorted((Path(__file__).parents[1] / "cases" / "recordings").glob("*-auth-*.json"))
    for steps in [json.loads(path.read_text())["steps"]]
    if any(step.get("api") == "Metadata" for step in steps)
}


def recorded_rights(steps: list[dict[str, Any]]) -> Rights:
    """Return alice's rights by the ACLs that the super user creates in a recording."""
    acls = [
        Acl(
            entry["resource_type"],
            entry["resource_name"],
            entry["resource_pattern_type"],
            entry["principal"],
            entry["host"],
            entry["operation"],
            entry["permission_type"],
        )
        for step in steps
        if step.get("api") == "CreateAcls" and "as" not in step
        for entry in step["request"]["creations"]
    ]
    image = AclsImage().after({bytes([number]) * 16: acl for number, acl in enumerate(acls)})
    return Authorizer(AccessSettings(is_enabled=True)).rights(image, "User:alice", "127.0.0.1")


@pytest.mark.parametrize("steps", RECORDINGS.values(), ids=RECORDINGS)
async def test_topics_are_shown_to_those_who_may_see_them_as_recorded(steps: list[dict[str, Any]]) -> None:
    created = [step["topic"] for step in steps if step.get("action") == "create_topic"]
    ids = {name: bytes([number + 1]) * 16 for number, name in enumerate(created)}
    cluster = Cluster(image_of(broker(1), **{name: (ids[name], {0: partition(1, 1)}) for name in created}))
    cluster.creates = False
    for step in (step for step in steps if step.get("api") == "Metadata"):
        asked, expected = step["request"], step["response"]["topics"]
        if asked["topics"] is None:  # in no order
            expected = sorted(expected, key=lambda row: row["name"])
        answer = await cluster.ask(
            step["version"],
            *(entry["name"] for entry in asked["topics"] or ()),
            every=asked["topics"] is None,
            rights=lambda principal, host: recorded_rights(steps),
            include_topic_authorized_operations=asked["include_topic_authorized_operations"],
        )
        assert [(row.name, row.error_code, row.topic_authorized_operations) for row in answer.topics] == [
            (row["name"], row["error_code"], row["topic_authorized_operations"]) for row in expected
        ]
        for row, recorded in zip(answer.topics, expected, strict=True):
            assert (row.topic_id is None) == (recorded["topic_id"].replace("-", "") == "0" * 32)
