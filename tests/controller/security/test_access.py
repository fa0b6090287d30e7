"""The controller's API with an authorizer: admitted calls on both paths, and the place of the decision."""

from __future__ import annotations

import logging
import random
from typing import Any

import msgspec
import pytest

from kraftlab.access.authorizer import AccessSettings
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.controller.api.service import ControllerService
from kraftlab.metadata.acls import CLUSTER_NAME, Operation, PatternType, PermissionType, ResourceType
from kraftlab.metadata.peer_rpc import Api, EnvelopeRequest, EnvelopeResponse
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call
from kraftlab.wire.transport import PeerRequest

ACCESS = AccessSettings(is_enabled=True, super_users=frozenset({"User:admin"}))
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
HERE = "127.0.0.1"


class GuardedController:
    """The API of a controller with an authorizer."""

    def __init__(self, served: Any) -> None:
        self.served = served
        self.cluster = served.cluster

    async def call(self, api: str, request: Any, user: str = "alice", host: str = HERE) -> Any:
        return await self.served.ask(Call(api, request, f"User:{user}", host))

    async def allow(self, operation: Operation, kind: ResourceType = ResourceType.CLUSTER, name: str = CLUSTER_NAME) -> None:
        rule = pb.AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=PatternType.LITERAL,
            principal="User:alice",
            host=HERE,
            operation=operation,
            permission_type=PermissionType.ALLOW,
        )
        response = await self.call("CreateAcls", pb.CreateAclsRequest(creations=[rule]), "admin")
        assert [result.error_code for result in response.results] == [0]


@pytest.fixture(params=[True, False], ids=["accept", "dispatch"])
async def guarded(cluster: Any, tools: Any, request: pytest.FixtureRequest) -> GuardedController:
    await cluster.start_brokers(0, 1)
    cluster.controller.settings = msgspec.structs.replace(cluster.controller.settings, static=AUTHORIZER)
    return GuardedController(tools.ServedController(cluster, request.param, access=ACCESS))


def creation(*names: str) -> pb.CreateTopicsRequest:
    return pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names])


async def test_a_caller_without_rights_changes_nothing(guarded: GuardedController) -> None:
    offset = guarded.cluster.controller.newest.image.provenance.offset
    for api in ("ElectLeaders", "UnregisterBroker", "CreateAcls", "UpdateFeatures"):
        response = await guarded.call(api, METHODS[api].request())
        assert response.header.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, api
    assert [topic.error_code for topic in (await guarded.call("CreateTopics", creation("t"))).topics] == [29]
    assert guarded.cluster.controller.newest.image.provenance.offset == offset


async def test_the_audit_log_has_refusals_and_changes_with_who_and_from_where(
    guarded: GuardedController, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kraftlab.audit")
    await guarded.call("CreateTopics", creation("theirs"), host="10.0.0.7")
    await guarded.call("ElectLeaders", METHODS["ElectLeaders"].request())
    tried = creation("tried")
    tried.validate_only = True
    await guarded.call("CreateTopics", tried, "admin")
    await guarded.call("CreateTopics", creation("orders", *(f"t{number}" for number in range(9))), "admin", host="10.0.0.8")
    lines = [record.getMessage() for record in caplog.records if record.name == "kraftlab.audit"]
    assert lines[:2] == [
        "refused: User:alice from 10.0.0.7 has no right to CREATE on TOPIC theirs",
        "refused: User:alice from 127.0.0.1 has no right to ALTER on CLUSTER kafka-cluster",
    ]
    [change] = lines[2:]
    assert change.startswith("changed: User:admin from 10.0.0.8, CreateTopics orders, t0, t1, t2, t3 and 5 more, committed below")


@pytest.mark.parametrize("principal", ["User:broker-1", "User:controller-3000"])
async def test_a_broker_does_not_speak_for_a_node(
    guarded: GuardedController, principal: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Under TLS. Without it a principal of that form may be any user's."""
    request = EnvelopeRequest("DescribeCluster", principal, b"", HERE)
    handler: Any = guarded.served.service.peer_handlers()[Api.ENVELOPE]
    for role, code in ((None, ErrorCode.NONE), ("broker", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)):
        body = memoryview(msgspec.msgpack.encode(request))
        peer_request = PeerRequest(Api.ENVELOPE, 0, ReplicaKey(0), body, "User:broker-0", "10.0.0.1:5", role)
        answer = msgspec.msgpack.decode(await handler(peer_request), type=EnvelopeResponse)
        assert answer.error == code
    assert f"refused: User:broker-0 from 10.0.0.1 has no right to SPEAK on behalf of {principal}" in caplog.text


async def test_a_super_user_needs_no_rules(guarded: GuardedController) -> None:
    response = await guarded.call("CreateTopics", creation("t"), "admin")
    assert [topic.error_code for topic in response.topics] == [0]


async def test_a_rule_counts_from_its_commit_on_for_its_host_only(guarded: GuardedController) -> None:
    await guarded.allow(Operation.CREATE)
    assert (await guarded.call("CreateTopics", creation("t"))).topics[0].error_code == 0
    assert (await guarded.call("CreateTopics", creation("u"), host="10.0.0.1")).topics[0].error_code == 29


async def test_the_permitted_part_of_a_write_is_carried_out(guarded: GuardedController) -> None:
    await guarded.allow(Operation.CREATE, ResourceType.TOPIC, "t")
    response = await guarded.call("CreateTopics", creation("x", "t"))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", 0), ("x", 29)]
    topics = guarded.cluster.controller.committed.image.topics
    assert topics.get("t") is not None and topics.get("x") is None
    assert guarded.served.accepted == (2 if guarded.served.accepts else 0)


async def test_an_empty_write_needs_rights_too(guarded: GuardedController) -> None:
    response = await guarded.call("AlterPartitionReassignments", pb.AlterPartitionReassignmentsRequest())
    assert response.header.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_refused_reassignment_repeats_the_error_per_partition(guarded: GuardedController) -> None:
    partitions = [pb.ReassignablePartition(partition_index=index) for index in (0, 1)]
    request = pb.AlterPartitionReassignmentsRequest(topics=[pb.ReassignableTopic(name="t", partitions=partitions)])
    response = await guarded.call("AlterPartitionReassignments", request)
    assert [partition.error_code for partition in response.responses[0].partitions] == [31, 31]
    assert response.header.error_message.endswith("on the cluster needs ALTER permission.")


async def test_a_refused_listing_repeats_the_requested_partitions(guarded: GuardedController) -> None:
    topic = pb.ListReassignmentsTopic(name="t", partition_indexes=[3])
    request = pb.ListPartitionReassignmentsRequest(topics=pb.ListReassignmentsTopics(topics=[topic]))
    response = await guarded.call("ListPartitionReassignments", request)
    assert response.header.error_code == 31
    assert [(t.name, t.partitions[0].partition_index, list(t.partitions[0].replicas)) for t in response.topics] == [("t", 3, [])]


async def test_a_standby_sends_writes_to_the_active_controller_and_does_not_judge_them(guarded: GuardedController) -> None:
    await guarded.cluster.lose_leadership(survives=True)
    response = await guarded.call("CreateTopics", creation("t"))
    assert response.header.error_code == ErrorCode.NOT_CONTROLLER
    listed = await guarded.call("ListPartitionReassignments", pb.ListPartitionReassignmentsRequest())
    assert listed.header.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_an_envelope_is_authorized_for_the_principal_in_it(guarded: GuardedController) -> None:
    await guarded.allow(Operation.CREATE)

    async def passed_on(principal: str, host: str) -> pb.CreateTopicsResponse:
        envelope = EnvelopeRequest("CreateTopics", principal, creation("t").SerializeToString(), host=host)
        answer = await guarded.served.peer(Api.ENVELOPE, envelope, EnvelopeResponse)
        return pb.CreateTopicsResponse.FromString(answer.response)

    assert (await passed_on("User:alice", "10.0.0.1")).topics[0].error_code == 29
    assert (await passed_on("User:bob", HERE)).topics[0].error_code == 29
    assert (await passed_on("User:alice", HERE)).topics[0].error_code == 0


async def test_before_the_first_complete_state_only_super_users_are_answered(cluster: Any) -> None:
    controller = type(cluster.controller)(cluster.settings, cluster.clock, random.Random(0), lambda: None)
    service = ControllerService(controller, cluster.clock, {}, ACCESS)
    request = pb.ListPartitionReassignmentsRequest()
    refused: Any = await service.dispatch(Call("ListPartitionReassignments", request, "User:alice", HERE))
    assert refused.header.error_code == ErrorCode.BROKER_NOT_AVAILABLE
    answered: Any = await service.dispatch(Call("ListPartitionReassignments", request, "User:admin", HERE))
    assert answered.header.error_code == 0


BY_ENTRY = {"CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords", "DescribeTopicPartitions"}
BY_ENTRY |= {"IncrementalAlterConfigs", "AlterConfigs", "DescribeConfigs"}
FOR_ANYBODY = {"DescribeCluster", "ApiVersions"}


@pytest.mark.parametrize("api", sorted(METHODS.keys() - BY_ENTRY - FOR_ANYBODY))
async def test_no_call_is_carried_out_for_a_caller_without_rights(guarded: GuardedController, api: str) -> None:
    response = await guarded.call(api, METHODS[api].request(), "nobody")
    assert response.header.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
