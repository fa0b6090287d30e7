"""Random requests for every call of the Admin service, at a controller and at a broker: codes of the table, texts, no fault.

What a call does inside a controller is tried with many more requests in `controller/test_random_requests.py`.
Here each node answers as it is, for its log, its snapshots, its directories and its quorum too. Requests are made from the
service's own descriptor: a call that is added tomorrow is asked.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

from kraftlab.client import AdminClient
from kraftlab.client.channels import Channels
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import to_text
from kraftlab.demo.lab import wait_until
from kraftlab.rpc.methods import METHODS, SERVICE

REQUESTS = 8
BITS = {FieldDescriptor.TYPE_INT32: 31, FieldDescriptor.TYPE_INT64: 63, FieldDescriptor.TYPE_UINT64: 64}
TEXTS = ("t", "t", "t", "", "0", "3000", "nope", "a b", "\x00", "é", "-1", "t" * 250, to_text(bytes(16)), to_text(b"\xff" * 16))
NOT_BY_CHANCE = {
    "AddRaftVoter": "it needs a node that follows and does not vote",
    "RemoveRaftVoter": "it needs the directory id of a voter, and another voter",
    "TransferLeadership": "it needs another voter",
    "AllocateProducerIds": "it needs the epoch of a broker",
    "UnregisterBroker": "the only broker is left alone",
    "AlterReplicationFactors": "it needs as many brokers",
    "RollbackPlan": "it needs a plan",
    "AlterUserScramCredentials": "its salts and iterations fit rarely",
    "UpdateFeatures": "its names fit rarely",
    "DeleteAcls": "there is no authorizer",
    "DescribeAcls": "there is no authorizer",
    "OnlineLogDir": "it needs the path of a log directory",
    "ResolveReplicaCopy": "it needs a copy that a failure left behind",
}
"""Calls whose success other tests show."""
SPARED = {"UnregisterBroker": {"broker_id": 77}, "DescribeMetadata": {"at_offset": 0}}
"""Fixed fields: the only broker stays registered, and no call waits for an offset within a batch."""
LAST = "DeleteTopics"


def fill(message: Any, source: random.Random, depth: int = 0) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.name == "header" and depth == 0:
            continue
        if field.is_repeated:
            entries = getattr(message, field.name)
            for _ in range(source.choice((0, 1, 1, 2))):
                if field.message_type is None:
                    entries.append(scalar(field, source))
                else:
                    fill(entries.add(), source, depth + 1)
            if len(entries) and source.random() < 0.2:
                entries.extend([entries[0]])
        elif source.random() < 0.3:
            continue
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            fill(getattr(message, field.name), source, depth + 1)
        else:
            setattr(message, field.name, scalar(field, source))


def scalar(field: FieldDescriptor, source: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return source.choice(TEXTS)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return source.random() < 0.3
    if field.type == FieldDescriptor.TYPE_BYTES:
        return source.choice((b"", source.randbytes(16), source.randbytes(5000)))
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return source.choice((0.0, 1.0, -1.0, 1e308, float("nan"), float("inf")))
    if field.type == FieldDescriptor.TYPE_ENUM:
        return source.choice((0, 1, 2, 99))
    highest = (1 << BITS[field.type]) - 1
    lowest = 0 if BITS[field.type] == 64 else -highest - 1
    return max(lowest, source.choice((0, 0, 0, 1, 1, 2, 3, 4, -1, 99, lowest, highest)))


def request_of(api: str, source: random.Random, cluster_id: str, *, is_empty: bool) -> Any:
    request: Any = METHODS[api].request()
    if not is_empty:
        fill(request, source)
        request.header.cluster_id = source.choice(("", "", "", cluster_id, "another"))
        request.header.timeout_ms = source.choice((200, 200, 200, 0, -1))
        if source.random() < 0.1:
            request.header.min_offset = source.choice((-1, 1 << 40, 1 << 62))
        if source.random() < 0.3:
            request.header.api_version = source.choice((0, 1, 2, 3, -1, 99))
    for name, value in SPARED.get(api, {}).items():
        setattr(request, name, value)
    return request


def codes_of(message: Any) -> list[tuple[int, str | None]]:
    """(code, text) of a response and of everything in it that has a code."""
    found: list[tuple[int, str | None]] = []
    for field, value in message.ListFields():
        if field.name == "error_code":
            found.append((value, getattr(message, "error_message", None)))
        elif field.message_type is not None:
            for entry in value if field.is_repeated else (value,):
                found += codes_of(entry)
    return found


def whole(lab: Any) -> bool:
    """Return whether the only broker serves."""
    try:
        return [broker.broker_id for broker in lab.admin.describe_cluster().brokers if not broker.is_fenced] == [0]
    except ApiError:
        return False


def test_every_call_is_answered_from_the_table_by_a_controller_and_by_a_broker(small_lab: Any) -> None:
    lab = small_lab
    lab.create_topic("t", [0])
    source, carried_out, asked = random.Random(21), Counter[str](), set()
    channels = Channels()
    pids = {node.node_id: lab.cluster.pid(node.node_id) for node in lab.cluster.plan.nodes}
    for node in lab.cluster.plan.nodes:
        for api in sorted(METHODS, key=lambda name: (name == LAST, name)):
            for number in range(REQUESTS):
                request = request_of(api, source, lab.cluster.cluster_id, is_empty=number == 0)
                shown = f"{api} at {node.node_id}\n{request}"
                response: Any = channels.unary(node.grpc, api)(request, timeout=10)
                for code, text in codes_of(response):
                    assert code != ErrorCode.UNKNOWN_SERVER_ERROR, f"{text}\n{shown}"
                    assert ErrorCode(code).name
                    assert not text or len(text) >= 15, f"{text}\n{shown}"
                asked.add(api)
                carried_out[api] += response.header.error_code == 0
    channels.close()
    assert asked == METHODS.keys()
    assert {api for api in METHODS if not carried_out[api]} <= NOT_BY_CHANCE.keys()
    assert {node.node_id: lab.cluster.pid(node.node_id) for node in lab.cluster.plan.nodes} == pids
    wait_until("the broker serves", lambda: whole(lab))
    for path in sorted((lab.cluster.directory / "logs").glob("*.log")):
        faults = [line for line in path.read_text().splitlines() if "Traceback" in line or " ERROR " in line]
        assert not faults, f"{path.name}: {faults[:3]}"


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\xff", b"\x08", b"\x9a\x06\x05", bytes(range(256))], ids=bytes.hex)
def test_invalid_messages_are_refused_and_the_node_continues(lab: Any, body: bytes) -> None:
    for node in lab.cluster.plan.nodes:
        with grpc.insecure_channel(f"{node.grpc.host}:{node.grpc.port}") as channel:
            for api in ("CreateTopics", "AlterPartitionReassignments", "DescribeLogDirs"):
                ask = channel.unary_unary(f"/{SERVICE}/{api}", request_serializer=bytes, response_deserializer=bytes)
                try:
                    ask(body, timeout=10)
                except grpc.RpcError as error:
                    assert error.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT), error
        versions = METHODS["ApiVersions"]
        assert lab.admin.call_at(node.grpc, versions.response, versions.request()).header.error_code == 0


def test_requests_for_another_cluster_are_refused_by_every_node(lab: Any) -> None:
    with AdminClient(lab.cluster.bootstrap_servers, cluster_id="another-cluster", timeout_ms=5000) as stranger:
        for node in lab.cluster.plan.nodes:
            with pytest.raises(ApiError) as refused:
                describe = METHODS["DescribeCluster"]
                stranger.call_at(node.grpc, describe.response, describe.request())
            assert refused.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID
            assert "another-cluster" in str(refused.value.message)
