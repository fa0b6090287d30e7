"""Texts of `reassign-partitions` as in Kafka's tool: pure functions from states to lines."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kraftlab.common.sizes import bytes_text

from ..tables import aligned, time_text
from .plan import ANY, Plan, TopicPartition, TopicPartitionReplica

RUNNING_REFUSAL = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a new "
    "partition assignment in addition to the existing one. The --additional flag can also be used to change the throttle by "
    "resubmitting the current reassignment."
)
ROLLBACK_ADVICE = "Save this to use as the --reassignment-json-file option during rollback"
THROTTLE_WARNING = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
NOTHING_RUNS = "No partition reassignments found."
THROTTLES_KEPT = "Throttles are kept, since other reassignments still run; run --verify when they are done."

RATE_KEYS = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOG_DIR_RATE_KEY = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_LIST_KEY = "leader.replication.throttled.replicas"
FOLLOWER_LIST_KEY = "follower.replication.throttled.replicas"


class Progress(enum.Enum):
    """Progress of a plan over all its partitions and moves."""

    DONE = "done"
    RUNNING = "running"
    WRONG = "not as planned"


class OngoingReassignment(msgspec.Struct, frozen=True):
    """A running reassignment."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    original: tuple[int, ...] = ()
    target: tuple[int, ...] = ()

    @property
    def before(self) -> tuple[int, ...]:
        """Replicas before the reassignment."""
        return self.original or tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def after(self) -> tuple[int, ...]:
        """Replicas after the reassignment."""
        return self.target or tuple(broker for broker in self.replicas if broker not in self.removing)


class PartitionState(msgspec.Struct, frozen=True):
    """A planned partition as `--verify` finds it."""

    current: tuple[int, ...]
    target: tuple[int, ...]
    running: bool

    @property
    def progress(self) -> Progress:
        if self.running:
            return Progress.RUNNING
        return Progress.DONE if self.current == self.target else Progress.WRONG


class Answer(enum.Enum):
    """Answer of a broker to the question for its log directories."""

    GIVEN = "given"
    SILENT = "a registered broker that does not answer: its moves go on when it is back"
    UNREGISTERED = "no such broker"

    @classmethod
    def of(cls, *, is_silent: bool, is_registered: bool) -> Answer:
        if not is_silent:
            return cls.GIVEN
        return cls.SILENT if is_registered else cls.UNREGISTERED


class LogDirMoveState(msgspec.Struct, frozen=True):
    """A planned move between log directories. `current` and `future` are the directories of existing replicas. `is_pending`: a
    running or queued reassignment will add the replica."""

    target: str
    current: str | None = None
    future: str | None = None
    answer: Answer = Answer.GIVEN
    is_pending: bool = False

    @property
    def progress(self) -> Progress:
        is_open = self.answer is Answer.SILENT or self.future is not None
        if is_open or (self.current is None and self.is_pending):
            return Progress.RUNNING
        return Progress.DONE if self.current == self.target else Progress.WRONG


def name(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"


def names(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(name(partition) for partition in sorted(partitions))


def ids(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


# -- execute ------------------------------------------------------------------------------------------------------------


def rollback_lines(current_json: str) -> list[str]:
    return ["Current partition replica assignment", "", current_json, "", ROLLBACK_ADVICE]


def throttle_lines(rate: int, log_dir_rate: int) -> list[str]:
    """Return the lines about throttles that are set; a negative rate is not set."""
    lines = [THROTTLE_WARNING] if rate >= 0 or log_dir_rate >= 0 else []
    if rate >= 0:
        lines.append(f"The inter-broker throttle limit was set to {rate} B/s")
    if log_dir_rate >= 0:
        lines.append(f"The replica-alter-dir throttle limit was set to {log_dir_rate} B/s")
    return lines


def started_line(partitions: Sequence[TopicPartition]) -> str:
    plural = "" if len(partitions) == 1 else "s"
    return f"Successfully started partition reassignment{plural} for {names(partitions)}"


def queued_line(partitions: Sequence[TopicPartition]) -> str:
    return f"Waiting for free slots: {names(partitions)}"


def queued_replica_lines(replicas: Mapping[TopicPartitionReplica, str]) -> list[str]:
    return [
        f"Replica {topic}-{partition} will be created in log directory {path} on broker {broker} when its move starts"
        for (topic, partition, broker), path in replicas.items()
    ]


def own_throttle_line(rate: int) -> str:
    if not rate:
        return "These moves no longer have a throttle."
    return f"These moves are limited to {bytes_text(rate)}/s into each broker; the throttle ends with the moves."


def preview_lines(
    after: Mapping[TopicPartition, OngoingReassignment], moves: Mapping[TopicPartitionReplica, str] | None = None
) -> list[str]:
    """Return one line for each partition with its replicas after the change, and one for each replica that the plan puts into a
    log directory.
    """
    lines = [f"{name(key)}: would be replicas: {state_text(after[key])}" for key in sorted(after)]
    return lines + [
        f"{topic}-{partition}: would be in log directory {path} on broker {broker}"
        for (topic, partition, broker), path in sorted((moves or {}).items())
    ]


def rolled_back_line(plan_id: str, partitions: Sequence[TopicPartition]) -> str:
    plural = "" if len(partitions) == 1 else "s"
    return f"Successfully started the rollback of plan {plan_id} for partition{plural} {names(partitions)}"


def moved_lines(moves: Mapping[TopicPartitionReplica, str]) -> list[str]:
    return [move_line(replica, moves[replica]) for replica in sorted(moves, key=lambda r: (r[2], r[0], r[1]))]


def move_line(replica: TopicPartitionReplica, path: str) -> str:
    topic, partition, broker = replica
    return f"Successfully started moving log directory to {path} for replica {topic}-{partition} with broker {broker} "


def error_lines(verb: str, errors: Mapping[TopicPartition, str]) -> list[str]:
    return [verb, *(f"{name(partition)}: {errors[partition]}" for partition in sorted(errors))]


# -- throttles -----------------------------------------------------------------------------------------------------------


class ByteFlow(msgspec.Struct, frozen=True):
    """Sources and destinations of a partition's bytes."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]


def partition_moves(
    plan: Plan, current: Mapping[TopicPartition, Sequence[int]], ongoing: Mapping[TopicPartition, OngoingReassignment]
) -> dict[TopicPartition, ByteFlow]:
    """Return the moves that throttles have to cover: running moves and moves of the plan."""
    moves = {
        partition: ByteFlow(tuple(broker for broker in running.replicas if broker not in running.adding), running.adding)
        for partition, running in ongoing.items()
    }
    for partition, replicas in plan.targets().items():
        sources = moves[partition].sources if partition in moves else tuple(current[partition])
        moves[partition] = ByteFlow(sources, tuple(broker for broker in replicas if broker not in sources))
    return moves


def throttled_replicas(moves: Mapping[TopicPartition, ByteFlow]) -> dict[str, dict[str, str]]:
    """Return topic → config key → `partition:broker,…`, sorted as text, as Kafka's tool writes them."""
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    for (topic, partition), move in moves.items():
        leaders.setdefault(topic, set()).update(f"{partition}:{broker}" for broker in move.sources)
        followers.setdefault(topic, set()).update(f"{partition}:{broker}" for broker in move.destinations)
    return {
        topic: {
            key: ",".join(sorted(items))
            for key, items in ((LEADER_LIST_KEY, leaders[topic]), (FOLLOWER_LIST_KEY, followers[topic]))
            if items
        }
        for topic in leaders
    }


def throttled_brokers(moves: Mapping[TopicPartition, ByteFlow]) -> tuple[int, ...]:
    return tuple(sorted({broker for move in moves.values() for broker in (*move.sources, *move.destinations)}))


def cleared_lines(brokers: Iterable[int], topics: Iterable[str]) -> list[str]:
    listed = sorted(topics)
    lines = [f"Clearing broker-level throttles on brokers {ids(sorted(brokers))}"]
    if listed:
        lines.append(f"Clearing topic-level throttles on topic{'' if len(listed) == 1 else 's'} {','.join(listed)}")
    return lines


# -- verify --------------------------------------------------------------------------------------------------------------


def partition_line(partition: TopicPartition, state: PartitionState) -> str:
    match state.progress:
        case Progress.RUNNING:
            return f"Reassignment of partition {name(partition)} is still in progress."
        case Progress.DONE:
            return f"Reassignment of partition {name(partition)} is completed."
        case Progress.WRONG:
            return (
                f"There is no active reassignment of partition {name(partition)}, "
                f"but replica set is {ids(state.current)} rather than {ids(state.target)}."
            )


def move_state_line(replica: TopicPartitionReplica, state: LogDirMoveState) -> str:
    topic, partition, broker = replica
    where = f"Partition {topic}-{partition}"
    if state.answer is Answer.SILENT:
        return f"{where} on broker {broker} cannot be checked: broker {broker} does not answer."
    if state.answer is Answer.UNREGISTERED:
        return f"{where} cannot be found in any live log directory on broker {broker}."
    if state.current is None and state.is_pending:
        return f"Reassignment of replica {topic}-{partition}-{broker} is still in progress."
    if state.current is None:
        return (
            f"{where} is not found in any live log dir on broker {broker}. "
            "There is likely an offline log directory on the broker."
        )
    if state.future is None:
        if state.current == state.target:
            return f"Reassignment of replica {topic}-{partition}-{broker} completed successfully."
        return f"{where} on broker {broker} is not being moved from log dir {state.current} to {state.target}."
    if state.future == state.target:
        return f"Reassignment of replica {topic}-{partition}-{broker} is still in progress."
    return f"{where} on broker {broker} is being moved to log dir {state.future} instead of {state.target}."


def verify_lines(
    partitions: Mapping[TopicPartition, PartitionState], moves: Mapping[TopicPartitionReplica, LogDirMoveState]
) -> list[str]:
    lines = ["Status of partition reassignment:"]
    lines += [partition_line(partition, partitions[partition]) for partition in sorted(partitions)]
    ordered = sorted(moves, key=lambda replica: (replica[2], replica[0], replica[1]))
    return lines + ([move_state_line(replica, moves[replica]) for replica in ordered] or [""])


class ReplicaState(msgspec.Struct, frozen=True):
    """A planned replica as `--progress` finds it (KIP-179). `behind` is the number of missing messages, -1 if it is unknown, for
    example without a replica or an answer; Kafka's brokers report `bytes_behind` in its place. `waits`: nothing is
    copied now. Unknown sizes, rates and ETAs are -1, an unknown `why` is empty."""

    status: str
    behind: int = -1
    bytes_behind: int = -1
    waits: bool = False
    bytes_per_second: float = -1
    eta_ms: int = -1
    why: str = ""

    @property
    def progress(self) -> Progress:
        if self.behind < 0 and self.bytes_behind < 0:
            return Progress.RUNNING if self.waits else Progress.WRONG
        return Progress.RUNNING if max(self.behind, self.bytes_behind) > 0 else Progress.DONE


def progress_table(states: Mapping[TopicPartitionReplica, ReplicaState], width_max: int | None = None) -> list[str]:
    """Return KIP-179's table, with rates, ETAs and blockers while a replica copies or waits. Stacked if it is wider than
    `width_max`.
    """
    detailed = any(state.why or state.bytes_per_second >= 0 for state in states.values())
    rows = [("Topic", "Partition", "Broker", "Status", *(("Rate", "ETA", "Waits for") if detailed else ()))]
    for (topic, partition, broker), state in states.items():
        rows.append((topic, str(partition), str(broker), state.status, *(_copying(state) if detailed else ())))
    lines = aligned(rows, width_max=width_max)
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def _copying(state: ReplicaState) -> tuple[str, str, str]:
    if state.progress is Progress.DONE:
        return "-", "-", ""
    if state.bytes_per_second < 0 and (state.waits or state.why):
        return "-", "-", state.why
    rate = f"{bytes_text(state.bytes_per_second)}/s" if state.bytes_per_second >= 0 else "?"
    return rate, time_text(state.eta_ms), state.why


def overall(states: Iterable[PartitionState | LogDirMoveState | ReplicaState]) -> Progress:
    """Return WRONG if any state is, otherwise RUNNING if any is, otherwise DONE."""
    found = {state.progress for state in states}
    return next((progress for progress in (Progress.WRONG, Progress.RUNNING) if progress in found), Progress.DONE)


# -- cancel and list ------------------------------------------------------------------------------------------------------


def cancelled_line(partitions: Sequence[TopicPartition]) -> str:
    if not partitions:
        return "None of the specified partition reassignments are active."
    return f"Successfully cancelled partition reassignments for: {names(partitions)}"


def cancelled_move_lines(moves: Mapping[TopicPartitionReplica, str], silent: Iterable[int] = ()) -> list[str]:
    lines = [
        f"Broker {broker} does not answer: its moves between log directories are not cancelled; repeat --cancel when it runs."
        for broker in sorted(silent)
    ]
    if not moves:
        return lines or ["None of the specified partition moves are active."]
    cancelled = [
        f"Cancelled the move of replica {topic}-{partition} on broker {broker}"
        + ("." if path == ANY else f"; it stays in log directory {path}")
        for (topic, partition, broker), path in sorted(moves.items(), key=lambda item: (item[0][2], item[0]))
    ]
    return cancelled + lines


def list_lines(ongoing: Mapping[TopicPartition, OngoingReassignment]) -> list[str]:
    if not ongoing:
        return [NOTHING_RUNS]
    lines = (f"{name(partition)}: replicas: {state_text(ongoing[partition])}" for partition in sorted(ongoing))
    return ["Current partition reassignments:", *lines]


def state_text(state: OngoingReassignment) -> str:
    """Return the replica sets of a partition in the format of --list."""
    line = f"{ids(state.replicas)}."
    if state.adding:
        line += f" adding: {ids(state.adding)}."
    if state.removing:
        line += f" removing: {ids(state.removing)}."
    return line


def generate_lines(current_json: str, proposed_json: str) -> list[str]:
    return [
        "Current partition replica assignment",
        current_json,
        "",
        "Proposed partition reassignment configuration",
        proposed_json,
    ]
