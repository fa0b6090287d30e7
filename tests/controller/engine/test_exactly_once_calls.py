"""Requests with an id: each is carried out once, and every repetition gets the same answer, at any node and after any
failover.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from kraftlab.access.authorizer import AccessSettings
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ErrorCode
from kraftlab.controller.api.service import ControllerService
from kraftlab.controller.engine import exactly_once
from kraftlab.controller.engine.quorum_controller import QuorumController
from kraftlab.metadata import codec
from kraftlab.metadata.peer_rpc import Api, EnvelopeRequest, EnvelopeResponse
from kraftlab.metadata.records import AnyRecord, EndTransaction, RequestOutcome
from kraftlab.metadata.snapshot import ImageSnapshot
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.rpc.calls import CALLS
from kraftlab.rpc.server import Call

CLIENT = bytes(range(16))
ANONYMOUS = "User:ANONYMOUS"
MINUTE_MS = 60_000


class Client:
    """A client that numbers its requests."""

    def __init__(self, served: Any) -> None:
        self.served = served
        self.cluster = served.cluster

    async def send(self, api: str, request: Any, sequence: int | None, answers: list[Any], **call: Any) -> None:
        """Send without committing anything. `sequence` None: without an id."""
        await self.served.send(self._numbered(api, request, sequence, **call), answers)

    async def call(self, api: str, request: Any, sequence: int | None, **call: Any) -> Any:
        """Send, commit, and return the answer."""
        return await self.served.ask(self._numbered(api, request, sequence, **call))

    def _numbered(self, api: str, request: Any, sequence: int | None, **call: Any) -> Call:
        sent = type(request)()
        sent.CopyFrom(request)
        if sequence is not None:
            sent.header.request_id.client_id = call.pop("client_id", CLIENT)
            sent.header.request_id.sequence = sequence
        sent.header.timeout_ms = call.pop("timeout_ms", 30_000)
        return Call(api, sent, **{"principal": ANONYMOUS} | call)

    async def create(self, sequence: int | None, name: str = "t", **call: Any) -> Any:
        return await self.call("CreateTopics", creation(name), sequence, **call)

    def outcomes(self) -> list[tuple[int, list[AnyRecord]]]:
        """(end offset, records) of the batches that hold an outcome."""
        batches = [(batch.end_offset, codec.decode(batch.body)) for batch in self.cluster.quorum.batches if batch.body]
        return [(end, records) for end, records in batches if any(isinstance(record, RequestOutcome) for record in records)]


@pytest.fixture(params=[True, False], ids=["accept", "dispatch"])
async def client(cluster: Any, tools: Any, request: pytest.FixtureRequest) -> Client:
    await cluster.start_brokers(0, 1, 2)
    return Client(tools.ServedController(cluster, request.param))


def creation(name: str = "t") -> pb.CreateTopicsRequest:
    return pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


def deletion(name: str = "t") -> pb.DeleteTopicsRequest:
    return pb.DeleteTopicsRequest(topics=[pb.DeleteTopicState(name=name)])


def code_of(response: Any) -> int:
    return response.header.error_code or response.topics[0].error_code


def body_of(response: Any) -> bytes:
    """An answer without facts about the answering node."""
    copy = type(response)()
    copy.CopyFrom(response)
    copy.header.ClearField("epoch")
    copy.header.ClearField("leader_id")
    copy.header.ClearField("leader")
    return copy.SerializeToString(deterministic=True)


# --- one node -----------------------------------------------------------------------------------------------------------------


async def test_a_retry_gets_the_same_answer_and_offset_and_nothing_is_done_again(client: Client) -> None:
    first = await client.create(1)
    await client.create(2, "later")
    end_offset = client.cluster.quorum.end_offset
    again = await client.create(1, timeout_ms=7_000)
    assert body_of(again) == body_of(first)
    assert again.header.metadata_offset == first.header.metadata_offset < end_offset
    assert again.topics[0].topic_id == first.topics[0].topic_id
    assert client.cluster.quorum.end_offset == end_offset


async def test_the_outcome_is_the_last_record_of_the_batch_that_holds_the_changes(client: Client) -> None:
    response = await client.create(1)
    [(end_offset, records)] = client.outcomes()
    assert [type(record).__name__ for record in records] == ["Topic", "Partition", "RequestOutcome"]
    assert end_offset == response.header.metadata_offset


async def test_requests_without_an_id_are_not_remembered(client: Client) -> None:
    assert code_of(await client.create(None)) == ErrorCode.NONE
    assert code_of(await client.create(None)) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert client.outcomes() == []
    assert not client.cluster.controller.committed.image.requests.clients


async def test_a_retry_while_the_first_is_in_flight_waits_for_the_same_commit(client: Client) -> None:
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send, "CreateTopics", creation(), 1, answers)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(client.send, "CreateTopics", creation(), 1, answers)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        await client.cluster.commit()
    assert body_of(answers[0]) == body_of(answers[1])
    assert len(client.outcomes()) == 1


async def test_an_answer_without_changes_is_repeated_although_it_would_differ_now(client: Client) -> None:
    await client.create(1)
    refused = await client.create(2)
    assert code_of(refused) == ErrorCode.TOPIC_ALREADY_EXISTS
    await client.call("DeleteTopics", deletion(), 3)
    assert body_of(await client.create(2)) == body_of(refused)
    assert client.cluster.controller.committed.image.topics.get("t") is None


async def test_the_refusal_of_a_whole_request_is_not_remembered(client: Client) -> None:
    request = pb.UnregisterBrokerRequest(broker_id=9)
    refused = await client.call("UnregisterBroker", request, 1)
    assert refused.header.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert client.outcomes() == []
    await client.cluster.register(9)
    assert (await client.call("UnregisterBroker", request, 1)).header.error_code == ErrorCode.NONE
    assert (await client.call("UnregisterBroker", request, 1)).header.error_code == ErrorCode.NONE


async def test_validation_is_not_remembered(client: Client) -> None:
    request = creation()
    request.validate_only = True
    assert code_of(await client.call("CreateTopics", request, 1)) == ErrorCode.NONE
    assert client.outcomes() == []
    assert code_of(await client.create(1)) == ErrorCode.NONE
    assert code_of(await client.call("CreateTopics", request, 1)) == ErrorCode.TOPIC_ALREADY_EXISTS


# --- ids ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client_id", [b"", b"short", bytes(17)])
async def test_a_client_id_that_has_not_sixteen_bytes_is_refused(client: Client, client_id: bytes) -> None:
    refused = await client.create(1, client_id=client_id)
    assert code_of(refused) == ErrorCode.INVALID_REQUEST
    assert f"not {len(client_id)}" in refused.header.error_message
    assert client.cluster.controller.committed.image.topics.get("t") is None


@pytest.mark.parametrize(
    "other", [{"name": "other"}, {"principal": "User:mallory"}, {"api": "DeleteTopics"}], ids=["request", "caller", "call"]
)
async def test_the_same_id_on_something_else_is_refused(client: Client, other: dict[str, str]) -> None:
    await client.create(1)
    end_offset = client.cluster.quorum.end_offset
    if "api" in other:
        refused = await client.call("DeleteTopics", deletion(), 1)
        assert refused.responses[0].error_code == ErrorCode.INVALID_REQUEST
    else:
        refused = await client.create(1, **other)
        assert code_of(refused) == ErrorCode.INVALID_REQUEST
    assert "different request" in refused.header.error_message
    assert client.cluster.quorum.end_offset == end_offset


async def test_only_the_last_five_are_kept_and_older_ones_are_refused(client: Client) -> None:
    first = [await client.create(sequence, f"t{sequence}") for sequence in range(1, 8)]
    for sequence in (1, 2):
        refused = await client.create(sequence, f"t{sequence}")
        assert code_of(refused) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        assert "new sequence" in refused.header.error_message
    for sequence in range(3, 8):
        assert body_of(await client.create(sequence, f"t{sequence}")) == body_of(first[sequence - 1])


async def test_a_late_first_sending_is_carried_out_while_it_is_among_the_last_five(client: Client) -> None:
    for sequence in (2, 3, 4, 5):
        await client.create(sequence, f"t{sequence}")
    assert code_of(await client.create(1, "t1")) == ErrorCode.NONE
    assert code_of(await client.create(0, "t0")) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


async def test_after_ten_minutes_a_retry_is_refused(client: Client) -> None:
    first = await client.create(1)
    client.cluster.clock.now_ms += 10 * MINUTE_MS - 1
    assert body_of(await client.create(1)) == body_of(first)
    client.cluster.clock.now_ms += 1
    assert code_of(await client.create(1)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    await client.create(1, "of another", client_id=bytes(16))
    assert not client.cluster.controller.committed.image.requests.get(CLIENT).answered
    assert code_of(await client.create(1)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


async def test_clients_do_not_know_of_each_other(client: Client) -> None:
    await client.create(1, "a")
    assert code_of(await client.create(1, "b", client_id=bytes(16))) == ErrorCode.NONE
    assert code_of(await client.create((1 << 64) - 1, "c")) == ErrorCode.NONE


async def test_an_answer_that_is_too_long_to_keep_changes_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "ANSWER_BYTES_MAX", 10)
    assert code_of(await client.create(1)) == ErrorCode.POLICY_VIOLATION
    assert client.cluster.controller.newest.image.topics.get("t") is None
    assert code_of(await client.create(None)) == ErrorCode.NONE


# --- failover -----------------------------------------------------------------------------------------------------------------


async def take_over(client: Client, *, from_snapshot: bool = False) -> None:
    """Another node becomes active, after replaying the committed log or loading a snapshot of it."""
    cluster = client.cluster
    old, quorum = cluster.controller, cluster.quorum
    image = old.committed.image
    cluster.controller = QuorumController(
        msgspec.structs.replace(cluster.settings, node_id=3001), cluster.clock, random.Random(8), lambda: None
    )
    cluster.controller.attach(quorum)
    if from_snapshot:
        state = cluster.controller.read_snapshot(body for body, _ in ImageSnapshot(image).batches())
        provenance = image.provenance
        await cluster.controller.load_snapshot(OffsetAndEpoch(provenance.offset, provenance.epoch), 0, state)
    else:
        committed = quorum.batches[: quorum.committed_batches]
        await cluster.controller.apply(committed, committed[-1].end_offset)
    client.served.service = ControllerService(cluster.controller, cluster.clock, {})
    await cluster.lead()


@pytest.mark.parametrize("from_snapshot", [False, True], ids=["log", "snapshot"])
async def test_a_retry_at_the_next_leader_gets_the_same_answer(client: Client, from_snapshot: bool) -> None:
    first = await client.create(1)
    await client.cluster.lose_leadership(survives=True)
    await take_over(client, from_snapshot=from_snapshot)
    end_offset = client.cluster.quorum.end_offset
    again = await client.create(1)
    assert body_of(again) == body_of(first)
    assert again.header.epoch > first.header.epoch
    assert client.cluster.quorum.end_offset == end_offset


@pytest.mark.parametrize("survives", [True, False])
async def test_leadership_is_lost_between_the_append_and_the_answer(client: Client, survives: bool) -> None:
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send, "CreateTopics", creation(), 1, answers)
        await trio.testing.wait_all_tasks_blocked()
        appended_to = client.cluster.quorum.end_offset
        await client.cluster.lose_leadership(survives=survives)
    assert code_of(answers[0]) == ErrorCode.NOT_CONTROLLER
    await take_over(client)
    again = await client.create(1)
    assert code_of(again) == ErrorCode.NONE
    assert (again.header.metadata_offset == appended_to) == survives
    assert len(client.outcomes()) == 1


async def test_a_node_that_is_not_active_sends_a_retry_on(client: Client) -> None:
    await client.create(1)
    await client.cluster.lose_leadership(survives=True)
    assert code_of(await client.create(1)) == ErrorCode.NOT_CONTROLLER


# --- larger than a batch ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def small_client(small_batches: Any, tools: Any) -> Client:
    await small_batches.start_brokers(0, 1, 2)
    return Client(tools.ServedController(small_batches, True))


async def test_the_outcome_of_a_large_change_is_inside_its_transaction(small_client: Client) -> None:
    client = small_client
    first = await client.create(1)
    assert code_of(first) == ErrorCode.NONE
    assert first.header.metadata_offset == client.cluster.quorum.end_offset
    records = [record for batch in client.cluster.quorum.batches[-3:] for record in codec.decode(batch.body)]
    assert isinstance(records[-2], RequestOutcome)
    assert isinstance(records[-1], EndTransaction)
    await client.create(2, "later")
    assert body_of(await client.create(1)) == body_of(first)


async def test_a_large_change_that_was_cut_off_is_done_by_the_retry(small_client: Client) -> None:
    client = small_client
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send, "CreateTopics", creation(), 1, answers)
        await trio.testing.wait_all_tasks_blocked()
        await client.cluster.commit(1)
        await client.cluster.lose_leadership(survives=False)
    assert code_of(answers[0]) == ErrorCode.NOT_CONTROLLER
    await take_over(client)
    assert not client.cluster.controller.committed.image.requests.clients
    assert code_of(await client.create(1)) == ErrorCode.NONE


# --- other ways in ------------------------------------------------------------------------------------------------------------


async def test_a_retry_through_another_broker_gets_the_same_answer(client: Client) -> None:
    first = await client.create(1, host="10.0.0.1")
    request = creation()
    request.header.request_id.CopyFrom(pb.RequestId(client_id=CLIENT, sequence=1))
    request.header.timeout_ms = 123
    envelope = EnvelopeRequest("CreateTopics", ANONYMOUS, request.SerializeToString(), "client", None, "10.0.0.2")
    wrapped = await client.served.peer(Api.ENVELOPE, envelope, EnvelopeResponse)
    assert body_of(pb.CreateTopicsResponse.FromString(wrapped.response)) == body_of(first)


async def test_a_caller_without_rights_is_refused_and_not_remembered(client: Client, tools: Any) -> None:
    static = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    client.cluster.controller.settings = msgspec.structs.replace(client.cluster.settings, static=static)
    access = AccessSettings(is_enabled=True, super_users=frozenset({"User:admin"}))
    guarded = Client(tools.ServedController(client.cluster, client.served.accepts, access=access))
    assert code_of(await guarded.create(1, principal="User:alice")) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert guarded.outcomes() == []
    first = await guarded.create(1, principal="User:admin")
    assert code_of(first) == ErrorCode.NONE
    assert code_of(await guarded.create(1, principal="User:alice")) == ErrorCode.INVALID_REQUEST
    assert body_of(await guarded.create(1, principal="User:admin")) == body_of(first)


# --- every call ---------------------------------------------------------------------------------------------------------------

CLUSTER_DEFAULT = {"resource_type": 4, "resource_name": ""}
RULE = {"resource_type": 2, "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
REQUESTS: dict[str, Any] = {
    "CreateTopics": creation("new"),
    "DeleteTopics": deletion(),
    "CreatePartitions": pb.CreatePartitionsRequest(topics=[pb.CreatePartitionsTopic(name="t", count=3)]),
    "ElectLeaders": pb.ElectLeadersRequest(),
    "IncrementalAlterConfigs": pb.IncrementalAlterConfigsRequest(
        resources=[
            pb.AlterConfigsResource(**CLUSTER_DEFAULT, configs=[pb.AlterableConfig(name="log.segment.bytes", value="1048576")])
        ]
    ),
    "AlterConfigs": pb.AlterConfigsRequest(resources=[pb.ReplaceConfigsResource(**CLUSTER_DEFAULT)]),
    "AlterClientQuotas": pb.AlterClientQuotasRequest(
        entries=[
            pb.ClientQuotaAlteration(
                entity=[pb.QuotaEntityPart(entity_type="user", entity_name="u")],
                ops=[pb.ClientQuotaOperation(key="producer_byte_rate", value=5.0)],
            )
        ]
    ),
    "UpdateFeatures": pb.UpdateFeaturesRequest(
        feature_updates=[pb.FeatureUpdate(feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2)]
    ),
    "AlterPartitionReassignments": pb.AlterPartitionReassignmentsRequest(
        topics=[
            pb.ReassignableTopic(
                name="t", partitions=[pb.ReassignablePartition(partition_index=0, replicas=pb.Int32List(values=[0, 1, 2]))]
            )
        ]
    ),
    "CancelReassignments": pb.CancelReassignmentsRequest(),
    "RollbackPlan": pb.RollbackPlanRequest(rollback_plan_id="friday"),
    "ForgetPlans": pb.ForgetPlansRequest(plan_ids=["friday"]),
    "AlterReplicationFactors": pb.AlterReplicationFactorsRequest(
        topics=[pb.TopicReplicationFactor(name="t", replication_factor=2)]
    ),
    "AlterPartitionCounts": pb.AlterPartitionCountsRequest(topics=[pb.TopicPartitionCount(name="t", count=2)]),
    "AlterInterBrokerThrottle": pb.AlterInterBrokerThrottleRequest(leader_rate=1_000),
    "UnregisterBroker": pb.UnregisterBrokerRequest(broker_id=8),
    "AllocateProducerIds": pb.AllocateProducerIdsRequest(broker_id=0, broker_epoch=0),
    "CreateAcls": pb.CreateAclsRequest(creations=[pb.AclCreation(**RULE, resource_name="t", resource_pattern_type=3)]),
    "DeleteAcls": pb.DeleteAclsRequest(
        filters=[pb.DeleteAclsFilter(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)]
    ),
    "AlterUserScramCredentials": pb.AlterUserScramCredentialsRequest(
        deletions=[pb.ScramCredentialDeletion(name="nobody", mechanism=1)]
    ),
}


def test_every_write_and_no_other_call_can_have_an_id() -> None:
    assert {api for api, row in CALLS.items() if row.keeps_id} == set(REQUESTS)


@pytest.mark.parametrize("api", sorted(REQUESTS))
async def test_every_write_is_answered_once(client: Client, api: str) -> None:
    client.cluster.controller.settings = msgspec.structs.replace(
        client.cluster.settings,
        static={"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
    )
    await client.create(None)
    await client.cluster.register(8)
    request = REQUESTS[api]
    if api == "AllocateProducerIds":
        request.broker_epoch = client.cluster.broker(0).epoch
    if api in ("RollbackPlan", "ForgetPlans"):
        plan = pb.AlterPartitionReassignmentsRequest(plan_id="friday")
        plan.topics.add(name="t").partitions.add(partition_index=0).replicas.values.append(8)
        await client.call("AlterPartitionReassignments", plan, None)
    first = await client.call(api, request, 1)
    assert first.header.error_code == ErrorCode.NONE, first
    assert len(client.outcomes()) == 1
    end_offset = client.cluster.quorum.end_offset
    again = await client.call(api, request, 1)
    assert body_of(again) == body_of(first)
    assert client.cluster.quorum.end_offset == end_offset
    assert again.header.metadata_offset == first.header.metadata_offset


async def test_the_id_of_a_read_is_ignored(client: Client) -> None:
    answers = [await client.call("DescribeTopicPartitions", pb.DescribeTopicPartitionsRequest(), 1, client_id=b"x") for _ in "ab"]
    assert [answer.header.error_code for answer in answers] == [0, 0]
