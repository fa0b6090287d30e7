from __future__ import annotations

import socket
import threading
import time

import msgspec
import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable, DataClient, answer_of
from kraftlab.client.data import PeerConnection
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError
from kraftlab.metadata.peer_rpc import (
    Api,
    FetchedPartition,
    LogDigestRequest,
    LogDigestResponse,
    ProduceRequest,
    ProduceResponse,
    ReplicaDigest,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from kraftlab.records.record_batch import Record, build_batch
from kraftlab.wire.frames import MAX_FRAME_BYTES

TOPIC_ID = bytes(15) + b"\xff"


def test_produce_reaches_the_leader_with_offset_keeping(cluster) -> None:
    cluster.describe(leader_id=1)
    seen: list[ProduceRequest] = []

    def produce(body: bytes) -> ProduceResponse:
        seen.append(msgspec.msgpack.decode(body, type=ProduceRequest))
        return ProduceResponse(0, None, 10, 12)

    cluster.nodes[1].peer_answers[Api.PRODUCE] = produce
    with AdminClient(cluster.nodes[0].server) as admin, DataClient(admin) as data:
        response = data.produce("t", 0, b"batch", acks=1, keep_offsets=True)
        assert (response.base_offset, response.log_end_offset) == (10, 12)
    assert [(r.topic_id, r.partition, r.acks, r.records, r.keep_offsets) for r in seen] == [(TOPIC_ID, 0, 1, b"batch", True)]


def test_the_leader_gives_the_bounds_of_a_partition(cluster) -> None:
    cluster.describe(leader_id=1)

    def fetch(body: bytes) -> ReplicaFetchResponse:
        (wanted,) = msgspec.msgpack.decode(body, type=ReplicaFetchRequest).partitions
        assert wanted.fetch_offset < 0
        return ReplicaFetchResponse(0, None, (FetchedPartition(TOPIC_ID, 0, 1, 7, 3, 9),))

    cluster.nodes[1].peer_answers[Api.REPLICA_FETCH] = fetch
    with AdminClient(cluster.nodes[0].server) as admin, DataClient(admin) as data:
        assert data.bounds("t", 0) == (3, 7)


def test_only_topics_that_are_needed_are_asked_about(cluster) -> None:
    cluster.describe()
    described = cluster.nodes[0].answers["DescribeTopicPartitions"]
    asked: list[list[str]] = []

    def describe(request: pb.DescribeTopicPartitionsRequest) -> pb.DescribeTopicPartitionsResponse:
        asked.append(list(request.topics.names))
        return described(request)

    cluster.nodes[0].answers["DescribeTopicPartitions"] = describe
    cluster.nodes[0].peer_answers[Api.PRODUCE] = lambda _: ProduceResponse(0, None, 5, 6)
    with AdminClient(cluster.nodes[0].server) as admin, DataClient(admin) as data:
        data.produce("t", 0, b"x")
        data.produce("t", 0, b"x")
        with pytest.raises(ApiError):
            data.topic_id("u")
    assert asked == [["t"], ["t", "u"], ["t", "u"]]


def test_a_leader_that_moved_is_found_again(cluster) -> None:
    cluster.describe(leader_id=0)

    def not_here(_: bytes) -> ProduceResponse:
        cluster.describe(leader_id=1)
        return ProduceResponse(6, "not the leader")

    cluster.nodes[0].peer_answers[Api.PRODUCE] = not_here
    cluster.nodes[1].peer_answers[Api.PRODUCE] = lambda _: ProduceResponse(0, None, 5, 6)
    with AdminClient(cluster.nodes[0].server) as admin, DataClient(admin) as data:
        assert data.produce("t", 0, b"x").base_offset == 5


def test_a_client_goes_along_with_a_quorum_that_was_forced(cluster) -> None:
    cluster.describe()
    cluster.nodes[0].peer_answers[Api.PRODUCE] = lambda _: ProduceResponse(0, None, 5, 6)
    with AdminClient(cluster.nodes[0].server) as admin, DataClient(admin) as data:
        data.produce("t", 0, b"x")
        server = cluster.nodes[0].peer_server
        server.identity = server.identity._replace(generation=3)
        assert data.produce("t", 0, b"x").base_offset == 5


def test_a_final_refusal_is_raised_at_once(cluster) -> None:
    cluster.describe()
    cluster.nodes[0].peer_answers[Api.PRODUCE] = lambda _: ProduceResponse(2, "crc of batch at 7 does not hold")
    with (
        AdminClient(cluster.nodes[0].server) as admin,
        DataClient(admin) as data,
        pytest.raises(ApiError, match="crc of batch"),
    ):
        data.produce("t", 0, b"x")


def test_a_batch_that_an_earlier_attempt_appended_is_found(cluster) -> None:
    """The first answer was lost with a connection or a leader; the batches are in the log."""
    cluster.describe()
    answers = [ProduceResponse(7, "not every in-sync replica had it in time"), ProduceResponse(87, "it reaches 12 already")]
    cluster.nodes[0].peer_answers[Api.PRODUCE] = lambda _: answers.pop(0)
    sent, stored = (two_batches(10, leader_epoch) for leader_epoch in (-1, 4))
    marks = [11, 12]

    def fetch(body: bytes) -> ReplicaFetchResponse:
        (wanted,) = msgspec.msgpack.decode(body, type=ReplicaFetchRequest).partitions
        assert (wanted.fetch_offset, wanted.max_bytes) == (10, len(sent))
        committed = marks.pop(0)
        return ReplicaFetchResponse(
            0, None, (FetchedPartition(TOPIC_ID, 0, 0, committed, 0, 12, None, stored[: len(stored) * (committed - 10) // 2]),)
        )

    cluster.nodes[0].peer_answers[Api.REPLICA_FETCH] = fetch
    with AdminClient(cluster.nodes[0].server) as admin, DataClient(admin) as data:
        response = data.produce("t", 0, sent, keep_offsets=True)
    assert (response.error, response.base_offset, response.log_end_offset) == (0, 10, 12)


@pytest.mark.parametrize("sendings", [1, 2])
def test_batches_that_do_not_stand_where_they_belong_are_refused(cluster, sendings: int) -> None:
    cluster.describe()
    answers = [ProduceResponse(7, "late")] * (sendings - 1) + [ProduceResponse(87, "it reaches 12 already")]
    cluster.nodes[0].peer_answers[Api.PRODUCE] = lambda _: answers.pop(0)
    others = FetchedPartition(TOPIC_ID, 0, 0, 12, 0, 12, None, two_batches(10, 4, b"other"))
    cluster.nodes[0].peer_answers[Api.REPLICA_FETCH] = lambda _: ReplicaFetchResponse(0, None, (others,))
    with AdminClient(cluster.nodes[0].server) as admin, DataClient(admin) as data, pytest.raises(ApiError, match="reaches 12"):
        data.produce("t", 0, two_batches(10, -1), keep_offsets=True)


def two_batches(base_offset: int, leader_epoch: int, value: bytes = b"value") -> bytes:
    return b"".join(
        build_batch([Record(b"key", value, 1)], base_offset=offset, leader_epoch=leader_epoch)
        for offset in (base_offset, base_offset + 1)
    )


def test_a_batch_above_the_frame_limit_is_refused_at_once(cluster) -> None:
    cluster.describe()
    cluster.nodes[0].peer_answers[Api.PRODUCE] = lambda _: ProduceResponse(0, None, 5, 6)
    with AdminClient(cluster.nodes[0].server) as admin, DataClient(admin, timeout_ms=5000) as data:
        began = time.monotonic()
        with pytest.raises(ApiError, match=r"MESSAGE_TOO_LARGE.*over the limit"):
            data.produce("t", 0, bytes(MAX_FRAME_BYTES))
        assert time.monotonic() - began < 4
        assert data.produce("t", 0, b"x").base_offset == 5


def test_fetch_gives_batches_as_a_consumer_sees_them(cluster) -> None:
    cluster.describe()

    def fetch(body: bytes) -> ReplicaFetchResponse:
        request = msgspec.msgpack.decode(body, type=ReplicaFetchRequest)
        assert (request.replica_id, request.partitions[0].fetch_offset) == (-1, 7)
        return ReplicaFetchResponse(0, None, (FetchedPartition(TOPIC_ID, 0, 0, 9, 0, 9, None, b"bytes"),))

    cluster.nodes[0].peer_answers[Api.REPLICA_FETCH] = fetch
    with AdminClient(cluster.nodes[0].server) as admin, DataClient(admin) as data:
        assert data.fetch("t", 0, 7).records == b"bytes"


def test_a_digest_names_replicas_by_topic(cluster) -> None:
    cluster.describe()

    def digest(body: bytes) -> LogDigestResponse:
        request = msgspec.msgpack.decode(body, type=LogDigestRequest)
        assert request.replicas == ((TOPIC_ID, 0),)
        return LogDigestResponse(0, None, 5, b"d", (ReplicaDigest(TOPIC_ID, 0, 0, crc32c=77),))

    cluster.nodes[1].peer_answers[Api.LOG_DIGEST] = digest
    with AdminClient(cluster.nodes[0].server) as admin, DataClient(admin) as data:
        assert data.log_digest(1, [("t", 0)]).replicas[0].crc32c == 77


def test_a_digest_of_a_topic_that_is_not_there_is_refused(cluster) -> None:
    cluster.describe()
    with (
        AdminClient(cluster.nodes[0].server) as admin,
        DataClient(admin) as data,
        pytest.raises(ApiError, match=r"UNKNOWN_TOPIC_OR_PARTITION.*Topic absent not found"),
    ):
        data.log_digest(1, [("absent", 0)])


def test_unknown_partitions_and_silent_leaders_end_with_the_deadline(cluster) -> None:
    cluster.describe()
    with AdminClient(cluster.nodes[0].server) as admin, DataClient(admin, timeout_ms=150) as data:
        with pytest.raises(ApiError, match="Partition t-9 not found"):
            data.produce("t", 9, b"x")
        cluster.nodes[0].peer_port = 1
        cluster.describe()
        data.refresh()
        with pytest.raises(ClusterUnreachable, match="no leader of t-0 answered in time"):
            data.produce("t", 0, b"x")


def test_the_time_of_a_call_holds_for_finding_the_leader_too(cluster) -> None:
    for node in cluster.nodes:
        node.leader = None
    with (
        AdminClient(cluster.nodes[0].server, timeout_ms=10_000) as admin,
        DataClient(admin) as data,
        pytest.raises(ClusterUnreachable, match=r"DescribeCluster within 0\.\d s"),
    ):
        data.produce("t", 0, b"x", timeout_ms=200)


def test_a_leader_may_refuse_a_deletion_with_a_code_of_a_later_version(cluster) -> None:
    cluster.describe(leader_id=0)
    answer = pb.DeleteRecordsResponse()
    answer.topics.add(name="t").partitions.add(partition_index=0, error_code=777, error_message="not today")
    cluster.nodes[0].answers["DeleteRecords"] = lambda _: answer
    with AdminClient(cluster.nodes[0].server) as admin:
        error = answer_of(lambda: admin.delete_records({("t", 0): 1}))["t", 0].error
    assert error is not None
    assert str(error) == "UNKNOWN_SERVER_ERROR(-1): error code 777: not today"


def describe_two(cluster, *, leader_id):
    """Topic t, which node 0 leads, and u, which that node leads."""
    cluster.describe(leader_id=0)
    (topic,) = cluster.nodes[0].answers["DescribeTopicPartitions"](None).topics
    second = pb.DescribedTopic(name="u", partitions=[pb.DescribedPartition(partition_index=0, leader_id=leader_id)])
    both = pb.DescribeTopicPartitionsResponse(topics=[topic, second])
    cluster.nodes[0].answers["DescribeTopicPartitions"] = lambda _: both


def test_a_refusal_of_one_leader_keeps_the_deletions_of_another(cluster) -> None:
    describe_two(cluster, leader_id=1)
    deleted = pb.DeleteRecordsResponse()
    deleted.topics.add(name="t").partitions.add(partition_index=0, low_watermark=5)
    cluster.nodes[0].answers["DeleteRecords"] = lambda _: deleted
    refusal = pb.ResponseHeader(error_code=-1, error_message="DeleteRecords failed on this node")
    cluster.nodes[1].answers["DeleteRecords"] = lambda _: pb.DeleteRecordsResponse(header=refusal)
    with AdminClient(cluster.nodes[0].server) as admin:
        admin.describe_cluster()
        cluster.nodes[1].leader = cluster.nodes[1]
        results = answer_of(lambda: admin.delete_records({("t", 0): 5, ("u", 0): 5}))
    assert results["t", 0] == (5, None)
    assert str(results["u", 0].error) == "UNKNOWN_SERVER_ERROR(-1): DeleteRecords failed on this node"


def test_answers_of_a_leader_may_come_in_any_order(cluster) -> None:
    """Refused topics come last."""
    describe_two(cluster, leader_id=0)
    answer = pb.DeleteRecordsResponse()
    answer.topics.add(name="u").partitions.add(partition_index=0, low_watermark=5)
    answer.topics.add(name="t").partitions.add(partition_index=0, low_watermark=-1, error_code=29)
    cluster.nodes[0].answers["DeleteRecords"] = lambda _: answer
    with AdminClient(cluster.nodes[0].server) as admin:
        results = answer_of(lambda: admin.delete_records({("t", 0): 5, ("u", 0): 5}))
    assert results["u", 0] == (5, None)
    assert results["t", 0].error is not None and results["t", 0].error.code == 29


def test_a_request_that_waits_too_long_for_the_connection_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = PeerConnection(Endpoint(*silent.getsockname()), "c")

        def takes_long() -> None:
            with pytest.raises(OSError):
                connection.request(Api.PRODUCE, b"", 5.0)

        first = threading.Thread(target=takes_long)
        first.start()
        with silent.accept()[0]:
            began = time.monotonic()
            with pytest.raises(TimeoutError, match="busy"):
                connection.request(Api.PRODUCE, b"", 0.1)
            assert time.monotonic() - began < 4
        first.join()


def test_a_request_without_time_to_connect_times_out() -> None:
    connection = PeerConnection(Endpoint("127.0.0.1", 1), "c")
    with pytest.raises(TimeoutError):
        connection.request(Api.PRODUCE, b"", -0.1)


def test_metadata_that_is_asked_for_again_gets_no_more_time_than_the_call_has_left(cluster) -> None:
    cluster.describe(leader_id=0)
    answers = [ProduceResponse(6, "not the leader", -1, -1), ProduceResponse(0, None, 5, 6)]
    cluster.nodes[0].peer_answers[Api.PRODUCE] = lambda _: answers.pop(0)
    with AdminClient(cluster.nodes[0].server) as admin, DataClient(admin) as data:
        data.produce("t", 0, b"batch", timeout_ms=5_000)
    asked = [call.request.header.timeout_ms for call in cluster.nodes[0].calls if call.api == "DescribeCluster"]
    assert asked[0] <= 5_000
    assert asked[1] <= 4_980, "the pause before it is over"
