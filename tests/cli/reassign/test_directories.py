"""Replicas are asked into directories before a reassignment starts, which is taken back if a broker refuses, and then moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli.reassign.actions import Execution, Verification, cancel, clear_throttles
from kraftlab.cli.reassign.directories import ReassignmentFailed, move_directories
from kraftlab.cli.reassign.moves import replica_states, roll_back
from kraftlab.cli.reassign.plan import Placement, Plan
from kraftlab.cli.reassign.text import Progress, overall, progress_table, verify_lines
from kraftlab.client import ClusterUnreachable, MoveOptions
from kraftlab.client.log_dirs import LogDirCalls
from kraftlab.client.results import cluster_of, reassignments_of, topics_of
from kraftlab.common.errors import ApiError, ErrorCode


class Brokers(LogDirCalls):
    """Broker 1 takes whatever it is asked, broker 2 refuses whole requests. All have an empty `/d0` and `/d1`."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Mapping[tuple[str, int], str]]] = []

    def describe_cluster(self, **_: object) -> Any:
        raise AssertionError("every question names its brokers")

    def call_broker(self, broker_id: int, answer: Any, request: Any, *, timeout_ms: int | None = None) -> Any:
        return self.describe_log_dirs(broker_id)

    def describe_log_dirs(self, broker: int) -> pb.DescribeLogDirsResponse:
        response = pb.DescribeLogDirsResponse(broker_id=broker)
        for path in ("/d0", "/d1"):
            response.results.add(log_dir=path)
        return response

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

    def rollback_plan(self, plan_id: str, options: MoveOptions) -> pb.RollbackPlanResponse:
        response = pb.RollbackPlanResponse()
        topic = response.responses.add(name="t")
        for number, directory in enumerate(("here", "gone")):
            topic.partitions.add(partition_index=number).directory_moves.add(broker_id=1, directory_id=directory)
        return response

    def describe_topics(self, topics: object) -> Any:
        return {}

    def describe_log_dirs(self, broker: int) -> pb.DescribeLogDirsResponse:
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

    def rollback_plan(self, plan_id: str, options: MoveOptions) -> pb.RollbackPlanResponse:
        response = pb.RollbackPlanResponse()
        topic = response.responses.add(name="t")
        for number, (broker, directory) in enumerate(((3, "there"), (1, "here"))):
            topic.partitions.add(partition_index=number).directory_moves.add(broker_id=broker, directory_id=directory)
        return response

    def describe_log_dirs(self, broker: int) -> pb.DescribeLogDirsResponse:
        if broker == 3:
            raise ClusterUnreachable("no answer")
        return super().describe_log_dirs(broker)


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

    def list_partition_reassignments(self) -> Any:
        return reassignments_of(pb.ListPartitionReassignmentsResponse())

    def describe_cluster(self, *, include_fenced_brokers: bool = False) -> Any:
        response = pb.DescribeClusterResponse()
        for broker in range(2):
            response.brokers.add(broker_id=broker)
        return cluster_of(response)

    def describe_topics(self, topics: object) -> Any:
        response = pb.DescribeTopicPartitionsResponse()
        topic = response.topics.add(name="t")
        for number in range(2):
            topic.partitions.add(partition_index=number, replica_nodes=[0])
        return topics_of(response)

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
    cluster.list_partition_reassignments = lambda: reassignments_of(listing)

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

    done = cancel(cluster, Plan((Placement("t", 1, (1,), ("/d1",)),)))

    assert done.partitions == [] and done.moves == {} and done.silent == {}
    assert cluster.asked == [(1, {("t", 1): "any"})]


class MovingCluster(QueueingCluster):
    """Broker 1 has t-0 in /d0 and, while `bytes_left` is not None, moves it to /d1. With `is_down` it does not answer."""

    def __init__(self, bytes_left: int | None, *, is_down: bool = False, place: str = "/d0") -> None:
        super().__init__()
        self.bytes_left = bytes_left
        self.is_down = is_down
        self.place = place
        self.altered: list[str] = []

    def describe_topics(self, topics: object) -> Any:
        response = pb.DescribeTopicPartitionsResponse()
        response.topics.add(name="t").partitions.add(partition_index=0, replica_nodes=[1], isr_nodes=[1], leader_id=1)
        return topics_of(response)

    def describe_log_dirs(self, broker: int) -> pb.DescribeLogDirsResponse:
        if self.is_down:
            raise ClusterUnreachable("connection refused")
        response = super().describe_log_dirs(broker)
        for found in response.results:
            found.error_code = ErrorCode.KAFKA_STORAGE_ERROR if found.log_dir == "/broken" else 0
            if found.log_dir == self.place:
                found.topics.add(name="t").partitions.add(partition_index=0, bytes_left=-1, bytes_per_second=-1, started_ms=-1)
            elif found.log_dir == "/d1" and self.bytes_left is not None:
                future = found.topics.add(name="t").partitions.add(partition_index=0, is_future_key=True, started_ms=5)
                future.bytes_left, future.bytes_per_second, future.source_log_dir = self.bytes_left, 1024.0, self.place
        return response

    def describe_cluster(self, *, include_fenced_brokers: bool = False) -> Any:
        """Broker 1 is fenced while it is down."""
        response = pb.DescribeClusterResponse()
        response.brokers.add(broker_id=0)
        if include_fenced_brokers or not self.is_down:
            response.brokers.add(broker_id=1, is_fenced=self.is_down)
        return cluster_of(response)

    def incremental_alter_configs(self, resources: Any) -> pb.IncrementalAlterConfigsResponse:
        response = pb.IncrementalAlterConfigsResponse()
        for resource in resources:
            self.altered.append(resource.resource_name)
            code = ErrorCode.INVALID_CONFIG if resource.resource_name == "0" else 0
            response.responses.add(resource_type=resource.resource_type, resource_name=resource.resource_name, error_code=code)
        return response


TO_D1 = Plan((Placement("t", 0, (1,), ("/d1",)),))


@pytest.mark.parametrize(
    ("cluster", "status", "progress"),
    [
        (MovingCluster(87 * 1024), "Moving to /d1: 87.0 KiB left", Progress.RUNNING),
        (MovingCluster(0), "Moving to /d1: 0 B left", Progress.RUNNING),
        (MovingCluster(None), "In /d0, not moving to /d1", Progress.WRONG),
        (MovingCluster(None, place="/d1"), "In sync", Progress.DONE),
        (MovingCluster(9, is_down=True), "Broker is down", Progress.RUNNING),
    ],
)
def test_progress_and_verify_agree_on_a_move_between_directories(cluster: Any, status: str, progress: Progress) -> None:
    states = replica_states(cluster, TO_D1)
    assert states["t", 0, 1].status == status
    assert overall(states.values()) is progress
    assert states["t", 0, 1].why == ("broker 1 is fenced; start it" if status == "Broker is down" else "")
    assert Verification(cluster, TO_D1).progress() is progress


@pytest.mark.parametrize(
    ("leader", "why"),
    [(None, "the partition has no leader to copy from"), (7, "its leader, broker 7, does not answer; start it again")],
)
def test_progress_of_a_replica_whose_leader_is_down_names_the_leader_and_no_rate(leader: int | None, why: str) -> None:
    cluster: Any = MovingCluster(None)
    response = pb.DescribeTopicPartitionsResponse()
    response.topics.add(name="t").partitions.add(
        partition_index=0, replica_nodes=[7, 1], isr_nodes=[7], leader_id=-1 if leader is None else leader
    )
    cluster.describe_topics = lambda topics: topics_of(response)

    assert progress_table(replica_states(cluster, Plan((Placement("t", 0, (1,), ("any",)),)))) == [
        "Topic  Partition  Broker  Status  Rate  ETA  Waits for",
        "-" * (45 + len(why)),
        f"t      0          1       Behind  -     -    {why}",
    ]


def test_progress_shows_the_rate_and_the_time_of_a_move_between_directories() -> None:
    cluster: Any = MovingCluster(87 * 1024)
    assert progress_table(replica_states(cluster, TO_D1)) == [
        "Topic  Partition  Broker  Status                        Rate       ETA    Waits for",
        "-" * 83,
        "t      0          1       Moving to /d1: 87.0 KiB left  1.0 KiB/s  1m27s",
    ]


def test_an_in_sync_replica_is_not_done_while_the_reassignment_of_its_partition_waits() -> None:
    cluster: Any = MovingCluster(None)
    listing = pb.ListPartitionReassignmentsResponse()
    listing.queued.add(topic="t", partition_index=0, replicas=[1, 0], target_replicas=[1], waits_for="a free slot")
    cluster.list_partition_reassignments = lambda: reassignments_of(listing)

    [state] = replica_states(cluster, Plan((Placement("t", 0, (1,), ("any",)),))).values()

    assert (state.status, state.why, state.progress) == ("In sync, reassignment not complete", "a free slot", Progress.RUNNING)


def test_an_in_sync_replica_names_the_dead_broker_that_its_partition_waits_for() -> None:
    cluster: Any = MovingCluster(None)
    listing = pb.ListPartitionReassignmentsResponse()
    moving = listing.topics.add(name="t").partitions.add(partition_index=0, replicas=[1, 2], adding_replicas=[2])
    moving.blockers.add(broker_id=2, state="FENCED", text="broker 2 is fenced; start it, or choose another target")
    cluster.list_partition_reassignments = lambda: reassignments_of(listing)

    [state] = replica_states(cluster, Plan((Placement("t", 0, (1,), ("any",)),))).values()

    assert state.why == "broker 2 is fenced; start it, or choose another target"


def test_verify_names_a_broker_that_does_not_answer_and_keeps_the_throttles() -> None:
    cluster: Any = MovingCluster(9, is_down=True)
    found = Verification(cluster, TO_D1)
    assert verify_lines(found.partitions, found.moves)[-1] == (
        "Partition t-0 on broker 1 cannot be checked: broker 1 does not answer."
    )
    assert found.progress() is Progress.RUNNING
    assert not found.may_clear_throttles


def test_verify_says_as_kafka_that_an_unknown_broker_has_no_directory() -> None:
    cluster: Any = MovingCluster(9, is_down=True)
    found = Verification(cluster, Plan((Placement("t", 0, (7,), ("/d1",)),)))
    assert verify_lines(found.partitions, found.moves)[-1] == (
        "Partition t-0 cannot be found in any live log directory on broker 7."
    )
    assert found.progress() is Progress.WRONG


def test_a_cancel_names_the_brokers_whose_moves_it_could_not_drop() -> None:
    cluster: Any = MovingCluster(9, is_down=True)
    assert cancel(cluster, TO_D1).silent == {1: "connection refused"}


def test_throttles_are_cleared_on_dead_brokers_too_and_after_a_refusal() -> None:
    cluster: Any = MovingCluster(None, is_down=True)
    said: list[str] = []
    with pytest.raises(ReassignmentFailed, match="cannot change configs of broker 0"):
        clear_throttles(cluster, ["t"], said.extend)
    assert said[0] == "Clearing broker-level throttles on brokers 0,1"
    assert cluster.altered == ["0", "1", "t"]


def test_each_unknown_broker_of_a_plan_is_named() -> None:
    cluster: Any = QueueingCluster()
    run = Execution(
        cluster,
        Plan((Placement("t", 0, (8, 9), ("any", "any")),)),
        print,
        rate=-1,
        log_dir_rate=-1,
        timeout_ms=0,
        allow_change=True,
        options=MoveOptions(),
    )
    with pytest.raises(ReassignmentFailed, match=r"^Error: Unknown broker id 8\nError: Unknown broker id 9$"):
        run.run(additional=False)


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_plan_with_directories_that_brokers_lack_is_refused_whole_before_anything_starts(validate_only: bool) -> None:
    cluster: Any = QueueingCluster()
    plan = Plan((Placement("t", 0, (1,), ("/nope",)), Placement("t", 1, (1, 0), ("/d1", "/typo"))))
    said: list[str] = []
    run = Execution(
        cluster,
        plan,
        said.extend,
        rate=5,
        log_dir_rate=5,
        timeout_ms=0,
        allow_change=True,
        options=MoveOptions(validate_only=validate_only),
    )
    with pytest.raises(ReassignmentFailed) as failed:
        run.run(additional=False)
    assert str(failed.value).splitlines() == [
        "Error: Failed to alter dir for t-1-0: '/typo' is not a log directory of broker 0; it has /d0, /d1",
        "Error: Failed to alter dir for t-0-1: '/nope' is not a log directory of broker 1; it has /d0, /d1",
    ]
    assert (said, cluster.asked, cluster.hosted) == ([], [], set())


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("error_code", ErrorCode.KAFKA_STORAGE_ERROR, "log directory /d1 of broker 1 is offline: its disk failed"),
        ("is_cordoned", True, "log directory /d1 of broker 1 is cordoned; choose another directory"),
    ],
)
def test_a_plan_with_a_directory_that_takes_no_replicas_is_refused(field: str, value: Any, said: str) -> None:
    cluster: Any = QueueingCluster()
    [_, other] = (response := cluster.describe_log_dirs(1)).results
    setattr(other, field, value)
    cluster.describe_log_dirs = lambda broker: response
    run = Execution(cluster, TO_D1, lambda lines: None, rate=-1, log_dir_rate=-1, timeout_ms=0, allow_change=True)
    with pytest.raises(ReassignmentFailed, match=f"^Error: Failed to alter dir for t-0-1: {said}$"):
        run.run(additional=False)


def test_a_refused_move_does_not_keep_the_others_from_starting() -> None:
    brokers: Any = Brokers()
    started = move_directories(brokers, {("t", 0, 2): "/d0", ("t", 0, 1): "/d1"}, 0)
    assert next(started) == ("t", 0, 1)
    with pytest.raises(ReassignmentFailed, match="Error: Failed to alter dir for t-0-2: not allowed"):
        next(started)
