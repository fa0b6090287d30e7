"""Replicas are asked into directories before a reassignment starts, which is taken back if a broker refuses, and then moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli.reassign.actions import Execution, ReassignmentFailed, Verification, cancel
from kraftlab.cli.reassign.moves import roll_back
from kraftlab.cli.reassign.plan import Placement, Plan
from kraftlab.cli.reassign.text import Progress, verify_lines
from kraftlab.client import ClusterUnreachable, MoveOptions
from kraftlab.metadata.errors import ApiError, ErrorCode


class Brokers:
    """Broker 1 takes whatever it is asked, broker 2 refuses whole requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Mapping[tuple[str, int], str]]] = []

    def alter_replica_log_dirs(self, broker: int, moves: Mapping[tuple[str, int], str]) -> pb.AlterReplicaLogDirsResponse:
        self.asked.append((broker, dict(moves)))
        if broker == 2:
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed")
        return pb.AlterReplicaLogDirsResponse()

    def alter_partition_reassignments(self, *_: object, **__: object) -> pb.AlterPartitionReassignmentsResponse:
        raise ApiError(ErrorCode.INVALID_REQUEST, "there is such a plan already")

    def paths(self) -> list[str]:
        """Return the directories that broker 1 was asked for."""
        return [path for broker, moves in self.asked if broker == 1 for path in moves.values()]


def execution(brokers: Any) -> Execution:
    return Execution(brokers, Plan(()), lambda lines: None, rate=-1, log_dir_rate=-1, timeout_ms=0, allow_change=True)


def test_brokers_forget_directories_if_another_broker_refuses() -> None:
    brokers = Brokers()
    with pytest.raises(ReassignmentFailed, match="Error: Failed to alter dir for t-0-2: not allowed"):
        execution(brokers).announce_directories({("t", 0, 1): "/d1", ("t", 0, 2): "/d2"})
    assert brokers.paths() == ["/d1", "any"]


def test_brokers_forget_directories_of_a_refused_reassignment() -> None:
    brokers = Brokers()
    new_replicas = {("t", 0, 1): "/d1"}
    run = execution(brokers)
    run.announce_directories(new_replicas)
    with pytest.raises(ApiError, match="such a plan already"):
        run.start(new_replicas, {})
    assert brokers.paths() == ["/d1", "any"]


class RolledBackBrokers(Brokers):
    """Broker 1 has `/d1` of two directories that replicas were in before the plan."""

    def rollback_reassignment(self, plan_id: str, options: MoveOptions) -> pb.AlterPartitionReassignmentsResponse:
        response = pb.AlterPartitionReassignmentsResponse()
        topic = response.responses.add(name="t")
        for number, directory in enumerate(("here", "gone")):
            topic.partitions.add(partition_index=number).directory_moves.add(broker_id=1, directory_id=directory)
        return response

    def describe_topics(self, topics: object) -> pb.DescribeTopicPartitionsResponse:
        return pb.DescribeTopicPartitionsResponse()

    def describe_log_dirs(self, broker: int, partitions: object) -> pb.DescribeLogDirsResponse:
        response = pb.DescribeLogDirsResponse()
        response.results.add(log_dir="/d1", directory_id="here")
        return response


@pytest.mark.parametrize(("validate_only", "asked", "said"), [(False, ["/d1"], "is being"), (True, [], "would be")])
def test_a_rollback_without_a_previous_directory_reports_it_and_does_the_rest(
    validate_only: bool, asked: list[str], said: str
) -> None:
    brokers: Any = RolledBackBrokers()
    with pytest.raises(
        ReassignmentFailed, match=f"t-1-1 stays in .*: its previous log directory is gone; everything else {said} rolled back"
    ):
        roll_back(brokers, "friday", MoveOptions(validate_only=validate_only), 0)
    assert brokers.paths() == asked


class HalfReachable(RolledBackBrokers):
    """A plan moved replicas on brokers 1 and 3, and broker 3 does not answer."""

    def rollback_reassignment(self, plan_id: str, options: MoveOptions) -> pb.AlterPartitionReassignmentsResponse:
        response = pb.AlterPartitionReassignmentsResponse()
        topic = response.responses.add(name="t")
        for number, (broker, directory) in enumerate(((3, "there"), (1, "here"))):
            topic.partitions.add(partition_index=number).directory_moves.add(broker_id=broker, directory_id=directory)
        return response

    def describe_log_dirs(self, broker: int, partitions: object) -> pb.DescribeLogDirsResponse:
        if broker == 3:
            raise ClusterUnreachable("no answer")
        return super().describe_log_dirs(broker, partitions)


def test_a_rollback_without_an_answer_of_a_broker_reports_it_and_does_the_rest() -> None:
    brokers: Any = HalfReachable()
    with pytest.raises(
        ReassignmentFailed, match=r"t-0-3 stays in .*broker 3 does not describe .* no answer; everything else is being rolled"
    ):
        roll_back(brokers, "friday", MoveOptions(), 0)
    assert brokers.paths() == ["/d1"]


class QueueingCluster(Brokers):
    """Two queued targets: t-0 starts at once, t-1 waits. Broker 1 has a replica of neither; it gets t-0's when that starts."""

    def __init__(self) -> None:
        super().__init__()
        self.hosted: set[int] = set()

    def check(self, request: pb.AlterPartitionReassignmentsRequest) -> None:
        """Every option is known."""

    def list_partition_reassignments(self) -> pb.ListPartitionReassignmentsResponse:
        return pb.ListPartitionReassignmentsResponse()

    def describe_cluster(self) -> pb.DescribeClusterResponse:
        response = pb.DescribeClusterResponse()
        for broker in range(2):
            response.brokers.add(broker_id=broker)
        return response

    def describe_topics(self, topics: object) -> pb.DescribeTopicPartitionsResponse:
        response = pb.DescribeTopicPartitionsResponse()
        topic = response.topics.add(name="t")
        for number in range(2):
            topic.partitions.add(partition_index=number, replica_nodes=[0])
        return response

    def describe_log_dirs(self, broker: int, partitions: object) -> pb.DescribeLogDirsResponse:
        return pb.DescribeLogDirsResponse()

    def alter_replica_log_dirs(self, broker: int, moves: Mapping[tuple[str, int], str]) -> pb.AlterReplicaLogDirsResponse:
        self.asked.append((broker, dict(moves)))
        response = pb.AlterReplicaLogDirsResponse()
        for topic, number in moves:
            code = 0 if number in self.hosted else ErrorCode.REPLICA_NOT_AVAILABLE
            response.results.add(topic_name=topic).partitions.add(partition_index=number, error_code=code)
        return response

    def alter_partition_reassignments(self, *_: object, **__: object) -> pb.AlterPartitionReassignmentsResponse:
        self.hosted.add(0)
        response = pb.AlterPartitionReassignmentsResponse()
        topic = response.responses.add(name="t")
        for number in range(2):
            topic.partitions.add(partition_index=number, queued=number == 1)
        return response


def test_execute_does_not_wait_for_replicas_of_queued_moves() -> None:
    cluster: Any = QueueingCluster()
    plan = Plan(tuple(Placement("t", number, (1,), (f"/d{number}",)) for number in range(2)))
    said: list[str] = []
    options = MoveOptions(queued=True)
    run = Execution(cluster, plan, said.extend, rate=-1, log_dir_rate=-1, timeout_ms=0, allow_change=True, options=options)

    run.run(additional=False)

    assert said[-3:] == [
        "Waiting for free slots: t-1",
        "Replica t-1 will be created in log directory /d1 on broker 1 when its move starts",
        "Successfully started moving log directory to /d0 for replica t-0 with broker 1 ",
    ]
    assert cluster.asked == [(1, {("t", 0): "/d0", ("t", 1): "/d1"}), (1, {("t", 0): "/d0"})]


def test_a_replica_of_a_running_or_queued_move_is_pending() -> None:
    """Broker 1 has neither: t-0's move has just started, t-1's waits in the queue."""
    cluster: Any = QueueingCluster()
    listing = pb.ListPartitionReassignmentsResponse()
    listing.topics.add(name="t").partitions.add(partition_index=0, replicas=[1, 0], adding_replicas=[1], removing_replicas=[0])
    listing.queued.add(topic="t", partition_index=1, replicas=[0], target_replicas=[1])
    cluster.list_partition_reassignments = lambda: listing

    found = Verification(cluster, Plan(tuple(Placement("t", number, (1,), (f"/d{number}",)) for number in range(2))))

    assert verify_lines(found.partitions, found.moves) == [
        "Status of partition reassignment:",
        "Reassignment of partition t-0 is still in progress.",
        "Reassignment of partition t-1 is still in progress.",
        "Reassignment of replica t-0-1 is still in progress.",
        "Reassignment of replica t-1-1 is still in progress.",
    ]
    assert found.progress() is Progress.RUNNING


def test_a_cancel_has_brokers_forget_where_replicas_were_to_be_created() -> None:
    cluster: Any = QueueingCluster()

    cancelled, moves, _ = cancel(cluster, Plan((Placement("t", 1, (1,), ("/d1",)),)))

    assert cancelled == [] and moves == {}
    assert cluster.asked == [(1, {("t", 1): "any"})]
