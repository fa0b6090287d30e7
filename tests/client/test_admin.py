from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable, raise_first_error
from kraftlab.client.channels import Channels
from kraftlab.client.entries import EntriesFailed
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode


def test_a_call_follows_the_node_that_is_the_controller(cluster) -> None:
    with AdminClient(cluster.nodes[1].server) as client:
        client.describe_cluster()
        client.describe_cluster()
        assert client.leader == Endpoint("127.0.0.1", cluster.nodes[0].port)
    assert len(cluster.nodes[1].calls) == 1
    assert len(cluster.nodes[0].calls) == 2


def test_a_dead_bootstrap_server_is_passed_over(cluster, new_port: Callable[[], int]) -> None:
    with AdminClient(f"127.0.0.1:{new_port()},{cluster.nodes[0].server}") as client:
        client.describe_cluster()


def test_the_client_goes_on_with_the_next_controller_when_one_dies(cluster) -> None:
    with AdminClient(",".join(node.server for node in cluster.nodes)) as client:
        client.describe_cluster()
        cluster.stop_node(cluster.nodes[0])
        threading.Timer(0.2, cluster.lead, (cluster.nodes[2],)).start()
        client.describe_cluster()
        assert client.leader == Endpoint("127.0.0.1", cluster.nodes[2].port)


def test_a_node_that_names_a_dead_controller_does_not_keep_the_client_from_asking_the_others(cluster) -> None:
    dead, stale, active = cluster.nodes
    active.leader = active
    cluster.stop_node(dead)
    with AdminClient(f"{stale.server},{active.server}", timeout_ms=10_000) as client:
        client.describe_cluster()
        assert client.leader == Endpoint("127.0.0.1", active.port)


def test_a_listing_without_progress_is_asked_for_again_at_the_active_controller(cluster) -> None:
    active, standby, _ = cluster.nodes

    def answer(has_progress: bool) -> pb.ListPartitionReassignmentsResponse:
        response = pb.ListPartitionReassignmentsResponse(has_progress=has_progress)
        response.topics.add(name="t").partitions.add(partition_index=0)
        return response

    standby.answers["ListPartitionReassignments"] = lambda _: answer(False)
    standby.is_reader = True
    active.answers["ListPartitionReassignments"] = lambda _: answer(True)
    with AdminClient(standby.server) as client:
        assert client.list_partition_reassignments().has_progress
    assert (len(standby.calls), len(active.calls)) == (1, 1)


def test_unreachable_nodes_are_listed_with_causes(new_port: Callable[[], int]) -> None:
    port = new_port()
    with AdminClient(f"127.0.0.1:{port}", timeout_ms=200) as client, pytest.raises(ClusterUnreachable) as raised:
        client.describe_cluster()
    assert f"127.0.0.1:{port}: connection refused" in str(raised.value)
    assert "check the addresses and that the nodes run" in str(raised.value)


def test_a_name_that_cannot_be_resolved_is_final(caplog: pytest.LogCaptureFixture) -> None:
    with AdminClient("no-such-host.invalid:1", timeout_ms=60_000) as client, pytest.raises(ClusterUnreachable) as raised:
        client.describe_cluster()
    assert "(no-such-host.invalid:1: the host name cannot be resolved)" in str(raised.value)


def test_nodes_that_are_all_gone_are_given_up_before_the_deadline(
    monkeypatch: pytest.MonkeyPatch, new_port: Callable[[], int]
) -> None:
    monkeypatch.setattr("kraftlab.client.caller._REFUSED_PATIENCE_S", 0.1)
    with (
        AdminClient(f"127.0.0.1:{new_port()}", timeout_ms=60_000) as client,
        pytest.raises(ClusterUnreachable, match=r"within 0\.\d s"),
    ):
        client.describe_cluster()


def test_a_port_that_is_not_grpc_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlab.client.caller._REFUSED_PATIENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as other:

        def hang_up() -> None:
            while True:
                try:
                    other.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=hang_up, daemon=True).start()
        with AdminClient(f"127.0.0.1:{other.getsockname()[1]}") as client, pytest.raises(ClusterUnreachable) as raised:
            client.describe_cluster()
        other.shutdown(socket.SHUT_RDWR)
    assert "is this the port of its GRPC listener?" in str(raised.value)


def hangs_up(door: socket.socket) -> socket.socket:
    """The second connection, after one that began while the node started."""
    door.accept()[0].close()
    return door.accept()[0]


def is_slow(door: socket.socket) -> socket.socket:
    """The first connection, when a busy machine gets round to it."""
    connected = door.accept()[0]
    threading.Event().wait(0.4)
    return connected


@pytest.mark.parametrize("let_in", [hangs_up, is_slow])
def test_a_node_that_hangs_up_while_it_starts_or_is_slow_gets_the_request(
    cluster, let_in: Callable[[socket.socket], socket.socket]
) -> None:
    node = cluster.nodes[0]
    node.answers["DescribeMetadata"] = lambda _: pb.DescribeMetadataResponse(offset=7)
    with socket.create_server(("127.0.0.1", 0)) as door:

        def lead_on() -> None:
            client_side = let_in(door)
            node_side = socket.create_connection(("127.0.0.1", node.port))
            threading.Thread(target=carry, args=(client_side, node_side), daemon=True).start()
            carry(node_side, client_side)

        def carry(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

        thread = threading.Thread(target=lead_on, daemon=True)
        thread.start()
        with AdminClient(node.server) as client:
            at = Endpoint("127.0.0.1", door.getsockname()[1])
            assert client.call_at(at, pb.DescribeMetadataResponse, pb.DescribeMetadataRequest()).offset == 7
        thread.join(10)
        assert not thread.is_alive()


def test_a_cluster_without_a_controller_is_reported_at_the_deadline(cluster) -> None:
    for node in cluster.nodes:
        node.leader = None
    with (
        AdminClient(cluster.nodes[0].server, timeout_ms=200) as client,
        pytest.raises(ClusterUnreachable, match="not the controller"),
    ):
        client.describe_cluster()


def test_an_earlier_fault_is_reported_instead_of_a_short_last_attempt(cluster) -> None:
    node = cluster.nodes[0]
    node.leader, node.last_words = None, 2
    with AdminClient(node.server, timeout_ms=500) as client, pytest.raises(ClusterUnreachable, match="not the controller"):
        client.describe_cluster()
    assert len(node.calls) > node.last_words


def test_an_error_of_the_whole_request_is_raised_with_its_name(cluster) -> None:
    refusal = pb.ResponseHeader(error_code=104, error_message="wrong cluster")
    cluster.nodes[0].answers["CreateTopics"] = lambda _: pb.CreateTopicsResponse(header=refusal)
    with AdminClient(cluster.nodes[0].server) as client, pytest.raises(ApiError, match="wrong cluster") as raised:
        client.create_topics([pb.CreatableTopic(name="t")])
    assert raised.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_reads_are_linearizable_by_argument_or_client_default(cluster) -> None:
    modes = []

    def answer(request: pb.DescribeClusterRequest) -> pb.DescribeClusterResponse:
        modes.append(request.header.read_mode)
        return pb.DescribeClusterResponse()

    cluster.nodes[0].answers["DescribeCluster"] = answer
    with (
        AdminClient(cluster.nodes[0].server) as client,
        AdminClient(cluster.nodes[0].server, linearizable=True) as careful,
    ):
        client.describe_cluster()
        client.describe_cluster(linearizable=True)
        careful.describe_cluster()
        careful.describe_cluster(linearizable=False)
    assert modes == [0, pb.READ_MODE_LINEARIZABLE, pb.READ_MODE_LINEARIZABLE, 0]


def test_a_read_is_never_older_than_an_earlier_answer(cluster) -> None:
    leader = cluster.nodes[0]
    leader.answers["CreateTopics"] = lambda request: pb.CreateTopicsResponse(header=pb.ResponseHeader(metadata_offset=42))
    with AdminClient(leader.server) as client:
        client.create_topics([pb.CreatableTopic(name="t")])
        client.describe_topics()
        client.describe_topics(min_offset=50)
    asked = [call.request.header.min_offset for call in leader.calls if call.api == "DescribeTopicPartitions"]
    assert asked == [42, 50]


def test_errors_of_entries_are_raised(cluster) -> None:
    entry = pb.CreatableTopicResult(name="t", error_code=36, error_message="Topic 't' already exists.")
    cluster.nodes[0].answers["CreateTopics"] = lambda _: pb.CreateTopicsResponse(topics=[entry])
    with AdminClient(cluster.nodes[0].server) as client, pytest.raises(ApiError, match="already exists") as raised:
        client.create_topics([pb.CreatableTopic(name="t")])
    assert raised.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(ApiError, match="already exists"):
        raise_first_error([entry])


def test_requests_carry_the_time_that_is_left_and_the_cluster_id(cluster) -> None:
    with AdminClient(cluster.nodes[0].server, timeout_ms=1234, cluster_id="c") as client:
        client.describe_quorum()
    header = cluster.nodes[0].calls[0].request.header
    assert 0 < header.timeout_ms <= 1234
    assert header.cluster_id == "c"


def test_null_and_empty_replicas_are_different(cluster) -> None:
    with AdminClient(cluster.nodes[0].server) as client:
        client.alter_partition_reassignments({("t", 0): [1, 2], ("t", 1): None, ("t", 2): []})
    partitions = cluster.nodes[0].calls[0].request.topics[0].partitions
    assert [(p.HasField("replicas"), list(p.replicas.values)) for p in partitions] == [(True, [1, 2]), (False, []), (True, [])]


def test_a_brokers_own_calls_go_to_that_broker(cluster) -> None:
    cluster.describe()
    cluster.nodes[1].answers["DescribeLogDirs"] = lambda _: pb.DescribeLogDirsResponse(results=[{"log_dir": "/d1"}])
    with AdminClient(cluster.nodes[0].server) as client:
        client.describe_cluster()
        cluster.nodes[1].leader = cluster.nodes[1]
        assert [found.log_dir for found in client.describe_log_dirs(1)] == ["/d1"]
        with pytest.raises(ApiError, match="broker 9 is not registered; registered brokers: 0,1"):
            client.describe_log_dirs(9)


def test_a_broker_that_was_taken_out_of_the_cluster_is_not_registered_any_more(cluster) -> None:
    cluster.describe()
    with AdminClient(cluster.nodes[0].server) as client:
        client.endpoint_of(1)
        del cluster.nodes[0].answers["DescribeCluster"](None).brokers[1]
        cluster.stop_node(cluster.nodes[1])
        with pytest.raises(ApiError, match="broker 1 is not registered; registered brokers: 0"):
            client.describe_log_dirs(1)
        with pytest.raises(ApiError, match="node 1 is not registered"):
            client.endpoint_of(1)


def test_the_time_of_a_call_to_a_broker_holds_for_finding_it_too(cluster) -> None:
    for node in cluster.nodes:
        node.leader = None
    with (
        AdminClient(cluster.nodes[0].server, timeout_ms=10_000) as client,
        pytest.raises(ClusterUnreachable, match=r"within 0\.\d s"),
    ):
        client.describe_log_dirs(1, timeout_ms=200)


def test_a_stream_keeps_many_calls_in_flight(cluster) -> None:
    with AdminClient(cluster.nodes[1].server) as client, client.open_stream() as stream:
        futures = [stream.submit("DescribeCluster", pb.DescribeClusterRequest()) for _ in range(200)]
        assert {type(future.result(10)) for future in futures} == {pb.DescribeClusterResponse}
        assert stream.endpoint.port == cluster.nodes[0].port


def test_a_call_on_its_way_cannot_be_cancelled_and_the_stream_goes_on(cluster) -> None:
    tried = threading.Event()

    def answer(_: pb.DescribeClusterRequest) -> pb.DescribeClusterResponse:
        tried.wait(10)
        return pb.DescribeClusterResponse()

    with AdminClient(cluster.nodes[0].server) as client, client.open_stream() as stream:
        cluster.nodes[0].answers["DescribeCluster"] = answer
        assert not stream.submit("DescribeCluster", pb.DescribeClusterRequest()).cancel(), "the call is on its way"
        tried.set()
        assert not stream.submit("DescribeCluster", pb.DescribeClusterRequest()).result(10).header.error_code


def test_a_stream_raises_errors_of_requests_from_their_futures(cluster) -> None:
    with AdminClient(cluster.nodes[0].server) as client, client.open_stream() as stream:
        cluster.lead(cluster.nodes[1])
        with pytest.raises(ApiError, match="not the controller"):
            stream.submit("DescribeCluster", pb.DescribeClusterRequest()).result(10)


def test_the_end_of_a_node_fails_the_open_calls_of_its_stream(cluster) -> None:
    with AdminClient(cluster.nodes[0].server) as client, client.open_stream() as stream:
        cluster.stop_node(cluster.nodes[0])
        with pytest.raises(ClusterUnreachable):
            stream.submit("DescribeCluster", pb.DescribeClusterRequest()).result(10)


@pytest.mark.parametrize(
    "unsent",
    [
        "failed to connect to all addresses; last error: Socket closed",
        "errors resolving absent:9092: [field:hostname lookup error:Domain name not found]",
        "DNS resolution failed for absent:9092: C-ares status is not ARES_SUCCESS",
    ],
)
def test_a_change_of_voters_that_may_have_been_made_is_not_asked_for_again(
    cluster, monkeypatch: pytest.MonkeyPatch, unsent: str
) -> None:
    sent: list[str] = []

    def unary(channels: Channels, endpoint: Endpoint, api: str) -> Callable[..., None]:
        def cut_off(request: object, timeout: float) -> None:
            if str(endpoint) == cluster.nodes[0].server:
                raise grpc.RpcError(unsent)
            sent.append(api)
            raise grpc.RpcError("Socket closed")

        return cut_off

    monkeypatch.setattr(Channels, "unary", unary)
    with AdminClient(",".join(node.server for node in cluster.nodes)) as admin:
        with pytest.raises(
            ApiError, match=r"NETWORK_EXCEPTION\(13\): .* did not answer AddRaftVoter \(Socket closed\); the request"
        ):
            admin.add_raft_voter(3003, "GDAXWlNIRRKoB5wdxbZcYg", {})
        with pytest.raises(ApiError, match="the request may have taken effect"):
            admin.remove_raft_voter(3003, "GDAXWlNIRRKoB5wdxbZcYg")
    assert sent == ["AddRaftVoter", "RemoveRaftVoter"]


def test_nodes_are_found_by_their_ids(cluster) -> None:
    cluster.describe()
    described = cluster.nodes[0].answers["DescribeCluster"](None)
    described.controllers.add(controller_id=3000, host="127.0.0.1", port=7)
    with AdminClient(cluster.nodes[0].server) as admin:
        assert admin.endpoint_of(1) == Endpoint("127.0.0.1", cluster.nodes[1].port)
        assert admin.endpoint_of(3000) == Endpoint("127.0.0.1", 7)
        with pytest.raises(ApiError, match="node 77 is not registered; registered nodes: 0,1,3000"):
            admin.endpoint_of(77)


def described(name: str, *numbers: int, topic_id: str = "first") -> pb.DescribedTopic:
    return pb.DescribedTopic(
        name=name, topic_id=topic_id, partitions=[pb.DescribedPartition(partition_index=number) for number in numbers]
    )


def parts(*answers: tuple[list[pb.DescribedTopic], tuple[str, int] | None]) -> list[pb.DescribeTopicPartitionsResponse]:
    made = []
    for offset, (topics, cursor) in enumerate(answers, 7):
        response = pb.DescribeTopicPartitionsResponse(header=pb.ResponseHeader(metadata_offset=offset), topics=topics)
        if cursor is not None:
            response.next_cursor.topic_name, response.next_cursor.partition_index = cursor
        made.append(response)
    return made


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        (parts(([described("a", 0, 1), described("b", 0)], None)), [None]),
        (parts(([described("a", 0)], ("a", 1)), ([described("a", 1), described("b", 0)], None)), [None, ("a", 1)]),
        (
            parts(([described("a", 0)], ("a", 1)), ([described("a", 1)], ("b", 0)), ([described("b", 0)], None)),
            [None, ("a", 1), ("b", 0)],
        ),
        (
            parts(
                ([described("a", 0, topic_id="deleted")], ("a", 1)),
                ([described("a", 1), described("b", 0)], None),
                ([described("a", 0, 1), described("b", 0)], None),
            ),
            [None, ("a", 1), ("a", 0)],
        ),
    ],
)
def test_topics_that_fill_several_answers_are_put_together(
    cluster, answers: list[pb.DescribeTopicPartitionsResponse], asked: list[tuple[str, int] | None]
) -> None:
    requests: list[pb.DescribeTopicPartitionsRequest] = []

    def answer(request: pb.DescribeTopicPartitionsRequest) -> pb.DescribeTopicPartitionsResponse:
        requests.append(request)
        return answers[len(requests) - 1]

    cluster.nodes[0].answers["DescribeTopicPartitions"] = answer
    with AdminClient(cluster.nodes[0].server) as client:
        whole = client.describe_topics()
    told = [(name, [item.partition_index for item in topic.partitions]) for name, topic in whole.items()]
    assert told == [("a", [0, 1]), ("b", [0])]
    cursors = [(request.cursor.topic_name, request.cursor.partition_index) for request in requests]
    assert cursors == [cursor or ("", 0) for cursor in asked]
    assert all(request.header.min_offset >= 7 for request in requests[1:])


def test_a_repeated_request_carries_the_remaining_time(cluster) -> None:
    """No node may execute a request after its caller has given up."""
    cluster.describe()
    described = cluster.nodes[0].answers["DescribeCluster"]
    seen: list[int] = []

    def alter(request: pb.AlterReplicaLogDirsRequest) -> pb.AlterReplicaLogDirsResponse:
        seen.append(request.header.timeout_ms)
        return pb.AlterReplicaLogDirsResponse()

    cluster.nodes[0].answers["AlterReplicaLogDirs"] = alter
    with AdminClient(cluster.nodes[0].server) as client:
        moved = pb.DescribeClusterResponse()
        moved.CopyFrom(described(pb.DescribeClusterRequest()))
        moved.brokers[0].port = 1
        cluster.nodes[0].answers["DescribeCluster"] = lambda _: moved
        client.describe_cluster(include_fenced_brokers=True)
        cluster.nodes[0].answers["DescribeCluster"] = described
        client.alter_replica_log_dirs(0, {("t", 0): "any"}, timeout_ms=20_000)
    assert len(seen) == 1 and seen[0] < 19_500


def test_a_node_that_is_asked_again_has_the_time_that_is_left(cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    real = Channels.unary

    def unary(channels: Channels, endpoint: Endpoint, api: str) -> Callable[..., Any]:
        def refused_once(request: Any, timeout: float) -> Any:
            given.append(timeout)
            if len(given) == 1:
                raise grpc.RpcError("failed to connect to all addresses")
            return real(channels, endpoint, api)(request, timeout=timeout)

        return refused_once

    monkeypatch.setattr(Channels, "unary", unary)
    with AdminClient(cluster.nodes[0].server) as client:
        client.call_at(
            Endpoint("127.0.0.1", cluster.nodes[0].port),
            pb.DescribeClusterResponse,
            pb.DescribeClusterRequest(),
            timeout_ms=5_000,
        )
    assert given[1] <= 4.98, "the pause before it is over"


def test_calls_about_groups_name_the_right_that_finding_brokers_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may not see where brokers listen is not told that they lack a listener."""
    refused = EntriesFailed([("broker 0", ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no right"))], [], {})

    def refuse(*arguments: object, **more: object) -> None:
        raise refused

    with AdminClient("127.0.0.1:1") as client:
        monkeypatch.setattr(client, "describe_cluster", lambda **more: SimpleNamespace(brokers=[SimpleNamespace(broker_id=0)]))
        monkeypatch.setattr(client, "describe_configs", refuse)
        with pytest.raises(EntriesFailed, match="no right"):
            client.group_calls()
