"""A plan as a document: the moves with reasons and waves, and the goals before and after.

A plan carries its cluster, so that it can be checked, explained and cut into waves without that cluster. Its id is the hash of
the cluster and of the options: the same request has the same id, and the same answer, byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from kraftlab.config.json_files import BadJson, decode_json

from ..errors import WrongUse
from .documents import ClusterDocument, encode_cluster, read_bytes
from .goals import GoalState
from .options import PlanOptions

FORMAT = "kraftlab-plan"
ANY = "any"


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change and its reason, a key of `explain.MOVED` or `explain.OTHERS`. Broker ids are -1 for none; paths are given for
    a change of directory.
    """

    reason: str
    source: int = -1
    target: int = -1
    source_dir: str = ""
    target_dir: str = ""


class PartitionMove(msgspec.Struct, frozen=True, omit_defaults=True):
    """One partition's change. `dirs`: by replica of `after`, "any" if it stays or any directory will do. `bytes`: copied between
    brokers; `intra_bytes`: between directories of one broker.
    """

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    dirs: tuple[str, ...]
    bytes: int
    intra_bytes: int
    size_bytes: int
    wave: int
    why: tuple[Reason, ...]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def added(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def removed(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.before if broker not in self.after)

    @property
    def leader_changes(self) -> bool:
        return self.before[0] != self.after[0]


class BrokerLoad(msgspec.Struct, frozen=True):
    """Bytes, replicas and preferred leaderships of a broker, and its share of bytes (-1 if it is in no mean)."""

    id: int
    rack: str
    share_bytes: int
    bytes_before: int
    bytes_after: int
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int


class GoalReport(msgspec.Struct, frozen=True):
    """A goal before and after. `worse` counts those that violate a hard goal by more than before. `met`: nothing violates it."""

    name: str
    hard: bool
    before: GoalState
    after: GoalState
    worse: int = 0

    @property
    def met(self) -> bool:
        return self.after.violations == 0


class Plan(msgspec.Struct, frozen=True):
    """`moves`: partitions that change, sorted by topic and number. `replica_moves`: replicas copied to another broker;
    `intra_moves`: to another directory; `leader_changes`: partitions with another preferred leader.
    """

    format: str
    version: int
    plan_id: str
    solver: str
    as_of_offset: int
    options: PlanOptions
    goals: tuple[GoalReport, ...]
    notes: tuple[str, ...]
    bytes_moved: int
    lower_bound_bytes: int
    replica_moves: int
    intra_moves: int
    intra_bytes: int
    leader_changes: int
    waves: int
    brokers: tuple[BrokerLoad, ...]
    moves: tuple[PartitionMove, ...]
    cluster: ClusterDocument

    @property
    def breaks_hard_goals(self) -> bool:
        """True if a hard goal of the plan is unmet. A plan that moves only named things must make nothing worse."""
        return any((goal.after.violations if self.options.balances else goal.worse) for goal in self.goals if goal.hard)

    @property
    def is_incomplete(self) -> bool:
        """True if a broker to be emptied keeps replicas, for a reason in the notes."""
        return any(broker.replicas_after for broker in self.brokers if broker.id in self.options.emptied)

    @property
    def leaves_in_directories(self) -> bool:
        """True if a log directory to be emptied keeps replicas, for a reason in the notes."""
        return bool(self.options.drain_dirs and kept_in_directories(self.cluster, self.options, self.moves))

    @property
    def misses_factors(self) -> bool:
        """True if a partition does not get its requested number of replicas, for a reason in the notes."""
        after = {(move.topic, move.partition): len(move.after) for move in self.moves}
        return any(
            after.get((topic.name, entry.partition), len(entry.settled)) != self.options.rf[topic.name]
            for topic in self.cluster.topics
            if topic.name in self.options.rf
            for entry in topic.partitions
        )


def kept_in_directories(
    cluster: ClusterDocument, options: PlanOptions, moves: Iterable[PartitionMove]
) -> dict[tuple[int, str], int]:
    """Return how many replicas stay in each log directory to be emptied; directories without any are left out."""
    goes = {(move.topic, move.partition): dict(zip(move.after, move.dirs, strict=True)) for move in moves}
    kept: dict[tuple[int, str], int] = {}
    for topic in cluster.topics:
        for entry in topic.partitions:
            after = goes.get((topic.name, entry.partition), dict.fromkeys(entry.settled, ANY))
            for broker, path in zip(entry.replicas, entry.log_dirs, strict=False):
                if path is not None and (broker, path) in options.drain_dirs and after.get(broker) in (ANY, path):
                    kept[broker, path] = kept.get((broker, path), 0) + 1
    return kept


def plan_id(document: ClusterDocument, options: PlanOptions) -> str:
    """Return 16 hex digits."""
    digest = hashlib.sha256(encode_cluster(document))
    digest.update(msgspec.json.encode(options, order="deterministic"))
    return digest.hexdigest()[:16]


def encode_plan(plan: Plan) -> bytes:
    return msgspec.json.encode(plan)


def read_plan(path: str) -> Plan:
    """Return the plan of a file. WrongUse for any other file."""
    try:
        plan = decode_json(read_bytes(path), Plan)
    except BadJson as error:
        raise WrongUse(f"{path} is not a plan: {error}; `kraftlab pipeline plan propose --output FILE` writes one") from None
    if plan.format != FORMAT or plan.version != 1:
        raise WrongUse(f"{path} is {plan.format} version {plan.version}; this release reads {FORMAT} version 1")
    for move in plan.moves:
        if not move.before or not move.after or len(move.dirs) != len(move.after):
            raise WrongUse(
                f"{path} has been changed: {move.name} needs replicas before and after, and one dir for each replica after"
            )
    return plan
