"""A broker's own calls with an authorizer: judged here, by the rules in the published image."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from google.protobuf.message import Message

from kraftlab.access.authorizer import AccessSettings
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.broker.api.admin_service import AdminService
from kraftlab.broker.control.metadata_publisher import MetadataPublisher
from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.acls import Acl, AclsImage, Operation
from kraftlab.metadata.image import MetadataImage, Provenance
from kraftlab.metadata.peer_rpc import EnvelopeRequest, EnvelopeResponse
from kraftlab.rpc.server import Call

ACCESS = AccessSettings(is_enabled=True, super_users=frozenset({"User:admin"}))
HERE = "127.0.0.1"


class Channel:
    """Passes everything on, and remembers it."""

    controller_id = 3000

    def __init__(self) -> None:
        self.passed_on: list[EnvelopeRequest] = []

    async def pass_on(self, api: int, body: bytes, *, timeout_ms: int) -> bytes:
        self.passed_on.append(msgspec.msgpack.decode(body, type=EnvelopeRequest))
        return msgspec.msgpack.encode(EnvelopeResponse(0, None, b""))

    async def wait_for_change(self, timeout_s: float) -> None:
        raise AssertionError("there is a controller")


def cluster_rule(operation: Operation) -> Acl:
    return Acl(4, "kafka-cluster", 3, "User:alice", HERE, operation, 3)


class Broker:
    """Its admin service, with local calls that remember what they were asked."""

    def __init__(self, *rules: Acl, is_loaded: bool = True) -> None:
        self.carried_out: list[Any] = []
        self.channel = Channel()
        publisher = MetadataPublisher((), lambda: None)
        if is_loaded:
            acls = AclsImage().after({bytes([number]) * 16: rule for number, rule in enumerate(rules)})
            publisher.image = MetadataImage(Provenance(offset=5), acls=acls)
        local = {
            "AlterReplicaLogDirs": self._answer(pb.AlterReplicaLogDirsResponse),
            "DescribeLogDirs": self._answer(pb.DescribeLogDirsResponse),
            "DeleteRecords": self._answer(pb.DeleteRecordsResponse),
            "InitProducerId": self._answer(pb.InitProducerIdResponse),
        }
        self.service = AdminService("cluster", self.channel, publisher, local, ACCESS)

    def _answer(self, response: type[Message]) -> Any:
        async def carry_out(request: Message) -> Message:
            self.carried_out.append(request)
            return response()

        return carry_out

    async def call(self, api: str, request: Message, user: str = "alice", host: str = HERE) -> Any:
        return await self.service.dispatch(Call(api, request, f"User:{user}", host))


def moves() -> pb.AlterReplicaLogDirsRequest:
    topic = pb.AlterReplicaLogDirTopic(name="t", partitions=[0, 1])
    return pb.AlterReplicaLogDirsRequest(dirs=[pb.AlterReplicaLogDir(path=path, topics=[topic]) for path in ("/a", "/b")])


def records() -> pb.DeleteRecordsRequest:
    partition = pb.DeleteRecordsPartition(partition_index=0, offset=7)
    return pb.DeleteRecordsRequest(topics=[pb.DeleteRecordsTopic(name=name, partitions=[partition]) for name in ("t", "u")])


async def test_moves_between_directories_need_alter_on_the_cluster() -> None:
    broker = Broker()
    response = await broker.call("AlterReplicaLogDirs", moves())
    assert [(r.topic_name, [(p.partition_index, p.error_code) for p in r.partitions]) for r in response.results] == [
        ("t", [(0, 31), (1, 31)])
    ]
    assert broker.carried_out == []
    allowed = Broker(cluster_rule(Operation.ALTER))
    assert (await allowed.call("AlterReplicaLogDirs", moves())).header.error_code == 0
    assert allowed.carried_out == [moves()]


async def test_a_rule_counts_for_its_host_only() -> None:
    broker = Broker(cluster_rule(Operation.DESCRIBE))
    assert (await broker.call("DescribeLogDirs", pb.DescribeLogDirsRequest())).header.error_code == 0
    refused = await broker.call("DescribeLogDirs", pb.DescribeLogDirsRequest(), host="10.0.0.1")
    assert refused.header.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_records_are_deleted_of_topics_that_may_be() -> None:
    broker = Broker(Acl(2, "t", 3, "User:alice", "*", Operation.DELETE, 3))
    response = await broker.call("DeleteRecords", records())
    assert [topic.name for topic in broker.carried_out[0].topics] == ["t"]
    assert [(t.name, t.partitions[0].low_watermark, t.partitions[0].error_code) for t in response.topics] == [("u", -1, 29)]


async def test_nothing_is_carried_out_of_which_nothing_is_left() -> None:
    broker = Broker()
    response = await broker.call("DeleteRecords", records())
    assert ([t.partitions[0].error_code for t in response.topics], broker.carried_out) == ([29, 29], [])


async def test_a_producer_without_rights_gets_no_id() -> None:
    response = await Broker().call("InitProducerId", pb.InitProducerIdRequest())
    assert (response.header.error_code, response.producer_id, response.producer_epoch) == (31, -1, -1)


@pytest.mark.parametrize(("user", "code"), [("alice", ErrorCode.BROKER_NOT_AVAILABLE), ("admin", ErrorCode.NONE)])
async def test_before_its_first_image_a_broker_answers_super_users_only(user: str, code: ErrorCode) -> None:
    broker = Broker(is_loaded=False)
    assert (await broker.call("DescribeLogDirs", pb.DescribeLogDirsRequest(), user)).header.error_code == code


async def test_a_call_that_is_passed_on_is_not_authorized_here_and_names_principal_and_host() -> None:
    broker = Broker()
    await broker.call("CreateTopics", pb.CreateTopicsRequest(), host="10.0.0.7")
    (envelope,) = broker.channel.passed_on
    assert (envelope.api, envelope.principal, envelope.host) == ("CreateTopics", "User:alice", "10.0.0.7")
