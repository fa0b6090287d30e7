"""Requests that lie about their size, and requests with any number at its ends, at the KAFKA listeners of real nodes: the first
close their connection with one line in the log, the others are answered; the nodes go on.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kraftlab.common.errors import ErrorCode
from kraftlab.gateway.client_codec import decode_response
from kraftlab.gateway.door import CONTROLLERS_OFFERS, OFFERS
from kraftlab.lab.local import LocalCluster
from kraftlab.messages.catalog import response_class
from kraftlab.messages.schema import Structure
from kraftlab.records.record_batch import Record, build_batch

from ..helpers.waiting import wait_until
from . import whole_messages as messages
from .conftest import ask

OVERSIZED = {
    "Metadata": "0003000c00000001000178" + "00" + "ffffffff0f",
    "Produce": "0000000900000001000178" + "00" + "00" + "0001" + "00000000" + "ffffffff0f",
    "CreateTopics": "0013000700000001000178" + "00" + "ffffffff0f",
    "DescribeConfigs": "0020000400000001000178" + "00" + "ffffffff0f",
}
SPARED = {"UnregisterBroker", "RemoveRaftVoter", "AddRaftVoter", "JoinGroup"}
"""Requests that would end the cluster, or wait for members."""
QUICK = {
    "Produce",
    "Fetch",
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "OffsetCommit",
    "CreateTopics",
    "CreatePartitions",
    "DeleteRecords",
}
VALUES = {
    **dict.fromkeys(("name", "topic", "resource_name"), "orders"),
    **dict.fromkeys(("group_id", "key", "coordinator_keys"), "g"),
    **dict.fromkeys(("member_id",), ""),
    **dict.fromkeys(("generation_id_or_member_epoch", "leader_epoch", "current_leader_epoch", "last_fetched_epoch"), -1),
    **dict.fromkeys(("producer_id", "producer_epoch", "replica_id", "retention_time", "acks"), -1),
    **dict.fromkeys(("transactional_id", "instance_id", "group_instance_id"), messages.NULL),
    **dict.fromkeys(("partition_max_bytes", "max_bytes"), 1000),
    "timeout": 5000,
    "max_wait": 100,
    "resource_type": 2,
    "count": 3,
    "num_partitions": 1,
    "replication_factor": 1,
    "topics.configs.name": "retention.ms",
    "topics.configs.value": "100000000",
    "resources.configs.name": "retention.ms",
    "resources.configs.value": "100000000",
    "entries.ops.key": "producer_byte_rate",
    "entries.ops.value": 1.0,
}


CLUSTER = (1, 1, 1)


@pytest.fixture(scope="module")
def values(cluster: LocalCluster) -> dict[str, Any]:
    """Values for requests about a topic that exists, and a group whose coordinator is loaded."""
    topic = {"name": "orders", "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()}
    [created] = ask(cluster.node(0).kafka, 19, 7, topics=[topic]).topics
    wait_until(
        lambda: ask(cluster.node(0).kafka, 10, 6, key_type=0, coordinator_keys=("g",)).coordinators[0].error_code == 0,
        "the coordinator is loaded",
    )
    batch = build_batch([Record(b"k", b"v", 1)])
    return VALUES | {"topic_id": created.topic_id.bytes, "records": batch, "cluster_id": cluster.cluster_id}


@pytest.mark.parametrize("node_id", [0, 3000])
@pytest.mark.parametrize("name", OVERSIZED)
def test_a_frame_that_claims_too_much_closes_its_connection_with_one_line(cluster: LocalCluster, node_id: int, name: str) -> None:
    node, pid = cluster.node(node_id), cluster.pid(node_id)
    assert node.kafka is not None
    logged = cluster.log_path(node_id).stat().st_size
    body = bytes.fromhex(OVERSIZED[name])
    with socket.create_connection((node.kafka.host, node.kafka.port), timeout=20) as client:
        client.sendall(struct.pack(">i", len(body)) + body)
        assert client.recv(1) == b""
    log = cluster.log_path(node_id).read_bytes()[logged:].decode()
    assert [line.count("closed a connection of 127.0.0.1") for line in log.splitlines() if "gateway" in line] == [1], log
    assert ask(node.kafka, 18, 3, client_software_name="a", client_software_version="1").error_code == 0
    assert cluster.pid(node_id) == pid


def test_requests_with_numbers_at_their_ends_are_answered(cluster: LocalCluster, values: dict[str, Any]) -> None:
    assert_all_are_answered(cluster, 0, values, QUICK, all_versions=False)


@pytest.mark.nightly
@pytest.mark.parametrize("node_id", [0, 3000])
def test_every_number_of_every_request_at_its_ends_is_answered(
    cluster: LocalCluster, values: dict[str, Any], node_id: int
) -> None:
    offers = OFFERS if node_id == 0 else CONTROLLERS_OFFERS
    assert_all_are_answered(cluster, node_id, values, {offer.name for offer in offers.values()} - SPARED, all_versions=True)


def assert_all_are_answered(
    cluster: LocalCluster, node_id: int, values: dict[str, Any], names: set[str], *, all_versions: bool
) -> None:
    """Send requests with each number at its ends: each has an answer, and nothing fails. `all_versions` False: the oldest and
    the newest.
    """
    node, pid = cluster.node(node_id), cluster.pid(node_id)
    assert node.kafka is not None
    offers = OFFERS if node_id == 0 else CONTROLLERS_OFFERS
    logged = cluster.log_path(node_id).stat().st_size
    with socket.create_connection((node.kafka.host, node.kafka.port), timeout=20) as client, client.makefile("rb") as answers:
        for offer in sorted(offers.values(), key=lambda each: each.name == "DeleteTopics"):
            if offer.name not in names:
                continue
            versions = range(max(offer.lowest, messages.OLDEST.get(offer.key, 0)), offer.highest + 1)
            for version in versions if all_versions else {versions[0], versions[-1]}:
                for sent, data in requests(offer.name, offer.key, version, values):
                    client.sendall(struct.pack(">i", len(data)) + data)
                    start = answers.read(4)
                    assert len(start) == 4, f"the connection was closed: {sent}"
                    frame = answers.read(int.from_bytes(start, "big"))
                    codes = list(codes_of(decode_response(frame, response_class(offer.key), version)))
                    assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes, sent
    assert cluster.pid(node_id) == pid
    log = cluster.log_path(node_id).read_bytes()[logged:].decode()
    assert "Traceback" not in log
    assert " ERROR " not in log


def requests(name: str, key: int, version: int, values: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield a request's description and bytes, for each end of each of its numbers."""
    own = {"topics.assignments": messages.NULL if name == "CreatePartitions" else ()}
    message = messages.request(key, version, {**values, **own, "endpoint_type": 2 if key in CONTROLLERS_OFFERS else 1})
    for place in message.places:
        if place.kind not in "bBhHiIqQ" or place.field.startswith("header"):
            continue
        for number in messages.ends(place):
            if name != "Produce" or not place.field.endswith(".acks") or number:  # acks=0 has no answer
                data = messages.replaced(message.data, place, struct.pack(">" + place.kind, number))
                yield f"{name} {version}: {place.field} = {number}", data


def codes_of(value: Any) -> Iterator[int]:
    if isinstance(value, tuple):
        for each in value:
            yield from codes_of(each)
    elif isinstance(value, Structure):
        for field in value.FIELDS:
            found = getattr(value, field.name)
            if field.name == "error_code":
                yield found
            yield from codes_of(found)
