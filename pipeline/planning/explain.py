"""Plans in words: goals before and after, and the reason for each move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from kraftlab.cli.tables import aligned
from kraftlab.common.sizes import bytes_text

from .goals import DISK_CAPACITY_SHARE, GOALS, NOT_DONE, band_of_counts
from .plan import BrokerLoad, PartitionMove, Plan, Reason
from .scenarios import Summary
from .waves import Wave

SHOWN_BROKERS = 12


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Sentences:
    """Reasons of one plan's moves, with the numbers before the plan."""

    def __init__(self, plan: Plan) -> None:
        self.options = plan.options
        self.load = {load.id: load for load in plan.brokers}
        counted = [load for load in plan.brokers if load.share_bytes >= 0]
        mean_count = sum(load.replicas_after for load in counted) / max(len(counted), 1)
        self.fewest, self.most = band_of_counts(mean_count, plan.options.eps)
        self.mean_leaders = sum(load.leaders_after for load in counted) / max(len(counted), 1)

    def of(self, why: Reason) -> str:
        """Return the sentence for a reason; the name of a reason that this release does not know."""
        if why.reason in OTHERS:
            return OTHERS[why.reason](self, why)
        sentence = MOVED.get(why.reason)
        return f"broker {why.source} → {why.target}: {sentence(self, why) if sentence is not None else why.reason}"

    def disk(self, broker: int) -> str:
        load = self.load[broker]
        return f"{load.bytes_before / load.share_bytes:.2f} x its share of bytes" if load.share_bytes > 0 else "no share of bytes"

    def leaders(self, broker: int) -> str:
        return f"{self.load[broker].leaders_before / max(self.mean_leaders, 1e-9):.2f} x the mean number of leaderships"


def _band(sentences: Sentences, high: bool) -> str:
    eps = sentences.options.eps
    return f"{1 + eps if high else 1 - eps:.2f}"


def _factor(_: Sentences, why: Reason) -> str:
    if why.target < 0:
        return f"broker {why.source} gives its replica up: the replication factor falls"
    return f"broker {why.target} gets a new replica: the replication factor rises"


def _within(_: Sentences, why: Reason) -> str:
    paths = f"broker {why.source}, {why.source_dir} → {why.target_dir}"
    if why.reason == "drain-dir":
        return f"{paths}: the directory is drained"
    return f"{paths}: IntraBrokerDiskUsageDistributionGoal: the directories of broker {why.source} are uneven"


def _leader(of: Sentences, why: Reason) -> str:
    brokers = f"preferred leader {why.source} → {why.target}"
    if why.reason == "leader-leaves":
        return f"{brokers}: broker {why.source} no longer has a replica"
    has = f"{why.source} has {of.leaders(why.source)}, {why.target} has {of.leaders(why.target)}"
    return f"{brokers}: LeaderReplicaDistributionGoal: {has}; no data moves"


MOVED: dict[str, Callable[[Sentences, Reason], str]] = {
    "drain": lambda of, why: f"broker {why.source} is drained",
    "replace": lambda of, why: f"broker {why.source} is replaced",
    "rack": lambda of, why: (
        f"RackAwareGoal: broker {why.source} shares a rack ({of.load[why.source].rack}) with another replica of the partition"
    ),
    "disk-full": lambda of, why: (
        f"DiskCapacityGoal: the disks of broker {why.source} are more than {DISK_CAPACITY_SHARE:.0%} full"
    ),
    "topic": lambda of, why: f"TopicReplicaDistributionGoal: broker {why.source} has too much of the topic",
    "disk-high": lambda of, why: (
        f"DiskUsageDistributionGoal: broker {why.source} holds {of.disk(why.source)}, the maximum is {_band(of, True)}"
    ),
    "disk-low": lambda of, why: (
        f"DiskUsageDistributionGoal: broker {why.target} holds {of.disk(why.target)}, the minimum is {_band(of, False)}"
    ),
    "count-high": lambda of, why: (
        f"ReplicaDistributionGoal: broker {why.source} has {of.load[why.source].replicas_before} replicas, "
        f"the maximum is {of.most}"
    ),
    "count-low": lambda of, why: (
        f"ReplicaDistributionGoal: broker {why.target} has {of.load[why.target].replicas_before} replicas, "
        f"the minimum is {of.fewest}"
    ),
    "exchange": lambda of, why: "makes room: brokers get into their bands by this and other moves together",
}
"""Reason of a replica's move between brokers → the sentence after `broker A → B`."""

OTHERS: dict[str, Callable[[Sentences, Reason], str]] = {
    "rf": _factor,
    "leader": _leader,
    "leader-leaves": _leader,
    "directory": _within,
    "drain-dir": _within,
}
"""Any other reason → the whole sentence."""


def plan_lines(plan: Plan) -> list[str]:
    """Return the whole plan: sums, goals, brokers that change most, numbers of reasons, notes."""
    lines = [
        f"plan {plan.plan_id}  (solver: {plan.solver}, as of metadata offset {plan.as_of_offset})"
        if plan.as_of_offset >= 0
        else f"plan {plan.plan_id}  (solver: {plan.solver})",
        f"moves {plan.replica_moves} replicas, {bytes_text(plan.bytes_moved)} (a plan that met every goal would copy at "
        f"least {bytes_text(plan.lower_bound_bytes)}), between directories {plan.intra_moves}, {bytes_text(plan.intra_bytes)}; "
        f"{plan.leader_changes} preferred leaders change; {plan.waves} waves",
        "",
        *goal_lines(plan),
        "",
        *broker_lines(plan.brokers),
    ]
    reasons = Counter(why.reason for move in plan.moves for why in move.why)
    if reasons:
        lines += ["", "why: " + ", ".join(f"{reason} {number}" for reason, number in sorted(reasons.items()))]
    lines += [f"note: {note}" for note in plan.notes]
    return lines


def goal_lines(plan: Plan) -> list[str]:
    rows = [("goal", "kind", "before", "after", "violations", "worst after")]
    for goal in plan.goals:
        before, after = goal.before, goal.after
        rows.append(
            (
                goal.name,
                "hard" if goal.hard else "soft",
                f"{before.least:.3f} … {before.most:.3f}",
                f"{after.least:.3f} … {after.most:.3f}",
                f"{before.violations} → {after.violations}",
                after.worst if after.violations else "",
            )
        )
    return aligned(rows)


def broker_lines(brokers: Iterable[BrokerLoad]) -> list[str]:
    """Return the brokers that change most, at most a dozen."""
    changed = sorted((load for load in brokers if _loads(load)[0] != _loads(load)[1]), key=lambda load: -_change(load))
    if not changed:
        return ["no broker's load changes"]
    rows = [("broker", "rack", "bytes", "replicas", "leaders")]
    rows += [
        (
            str(load.id),
            load.rack,
            f"{bytes_text(load.bytes_before)} → {bytes_text(load.bytes_after)}",
            f"{load.replicas_before} → {load.replicas_after}",
            f"{load.leaders_before} → {load.leaders_after}",
        )
        for load in changed[:SHOWN_BROKERS]
    ]
    more = [f"… and {len(changed) - SHOWN_BROKERS} more"] if len(changed) > SHOWN_BROKERS else []
    return aligned(rows) + more


def _loads(load: BrokerLoad) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return the loads (before, after)."""
    return (
        (load.bytes_before, load.replicas_before, load.leaders_before),
        (load.bytes_after, load.replicas_after, load.leaders_after),
    )


def _change(load: BrokerLoad) -> int:
    return abs(load.bytes_after - load.bytes_before)


def goals_known() -> list[str]:
    """Return the goals that plans support, and those that they do not."""
    lines = ["goals, in order of priority:"]
    lines += [f"  {goal.name} ({'hard' if goal.hard else 'soft'}, --goals {goal.short}): {goal.about}" for goal in GOALS]
    return [*lines, "not done:", *(f"  {names}: {why}" for names, why in NOT_DONE)]


def move_lines(plan: Plan, moves: Iterable[PartitionMove]) -> list[str]:
    """Return each move with its reasons."""
    sentences = Sentences(plan)
    lines = []
    for move in moves:
        amount = f", {bytes_text(move.size_bytes)} a replica" if move.size_bytes else ""
        lines.append(f"{move.name}: {_list(move.before)} → {_list(move.after)}{amount}, wave {move.wave}")
        lines += [f"  {sentences.of(why)}" for why in move.why]
    return lines


def wave_lines(waves: Iterable[Wave]) -> list[str]:
    rows = [("wave", "partitions", "replicas", "bytes", "in directories", "leaders", "busiest", "time")]
    rows += [
        (
            str(wave.wave),
            str(wave.partitions),
            str(wave.replica_moves),
            bytes_text(wave.bytes),
            f"{wave.intra_moves}, {bytes_text(wave.intra_bytes)}",
            str(wave.leader_changes),
            f"{wave.busiest_broker}: {bytes_text(wave.busiest_bytes)}" if wave.busiest_bytes else "",
            duration(wave.seconds) if wave.seconds is not None else "",
        )
        for wave in waves
    ]
    return aligned(rows)


def summary_lines(summaries: Iterable[Summary]) -> list[str]:
    """Return what-ifs, a line each."""
    rows = [
        ("scenario", "replicas", "bytes", "at least", "bytes per broker", "replicas per broker", "unmet, or why there is no plan")
    ]
    rows += [
        (
            one.scenario,
            str(one.replica_moves),
            bytes_text(one.bytes_moved),
            bytes_text(one.lower_bound_bytes),
            f"{one.disk_least:.2f} … {one.disk_most:.2f}",
            f"{one.replicas_least:.2f} … {one.replicas_most:.2f}",
            one.problem or one.unmet,
        )
        for one in summaries
    ]
    return aligned(rows)


def _list(brokers: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, brokers)) + "]"
