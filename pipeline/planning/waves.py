"""Waves: parts of a plan that keep to the caps of brokers and cluster, for execution one after the other.

A move between brokers uses a slot of each broker that gets or loses a replica. A move between directories uses a slot of another
kind on its broker. Another preferred leader counts against the cluster's cap of leader changes. Moves that correct faults (rack,
full disks, drain, replacement, replication factor) go first, then the large ones, so that a wave's moves have similar sizes and
end together. Each goes into the first wave in which all its brokers have a free slot. The defaults are those of Cruise Control's
executor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from .documents import ClusterDocument
from .plan import PartitionMove, Plan

CORRECTIONS = frozenset({"rack", "disk-full", "drain", "replace", "rf", "drain-dir"})


class Caps(msgspec.Struct, frozen=True):
    """Maximum at a time: moves per broker, directory moves per broker, moves in the cluster, leader changes."""

    per_broker: int = 10
    per_broker_intra: int = 2
    cluster: int = 1250
    leaders: int = 1000


class Wave(msgspec.Struct, frozen=True):
    """Summary of a wave. `busiest_bytes`: bytes that the busiest broker takes in or gives out; `seconds`: their time at the
    throttle, None without one. `overfull`: brokers whose disk would exceed its capacity before the wave's old replicas go.
    """

    wave: int
    partitions: int
    replica_moves: int
    intra_moves: int
    leader_changes: int
    bytes: int
    intra_bytes: int
    busiest_broker: int
    busiest_bytes: int
    seconds: float | None
    overfull: tuple[int, ...]


def assign_waves(moves: Sequence[PartitionMove], caps: Caps) -> tuple[list[int], int]:
    """Return (wave of each move, counted from 1; number of waves)."""
    order = sorted(range(len(moves)), key=lambda at: (not _corrects(moves[at]), -moves[at].bytes - moves[at].intra_bytes, at))
    slots = _Slots(caps)
    waves = [0] * len(moves)
    for at in order:
        waves[at] = slots.first_free(moves[at])
    used = {wave: number for number, wave in enumerate(sorted(set(waves)), 1)}
    return [used[wave] for wave in waves], len(used)


def _corrects(move: PartitionMove) -> bool:
    return any(why.reason in CORRECTIONS for why in move.why)


class _Slots:
    """Used slots of each wave. `begin` skips waves that are full for a key."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.taken: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.begin: dict[tuple[str, int], int] = defaultdict(int)

    def first_free(self, move: PartitionMove) -> int:
        needs = self._needs(move)
        wave = max(self.begin[key] for key in needs)
        while True:
            after = max((self._from(key, wave, amount) for key, amount in needs.items()), default=wave)
            if after == wave:
                break
            wave = after
        for key, amount in needs.items():
            taken = self.taken[key]
            taken.extend([0] * (wave + 1 - len(taken)))
            taken[wave] += amount
            cap = self._cap(key[0])
            while self.begin[key] < len(taken) and taken[self.begin[key]] >= cap:
                self.begin[key] += 1
        return wave

    def _needs(self, move: PartitionMove) -> dict[tuple[str, int], int]:
        busy = {*move.added, *move.removed}
        needs: dict[tuple[str, int], int] = {("broker", broker): 1 for broker in busy}
        if busy:
            needs["cluster", 0] = 1
        for why in move.why:
            if why.source_dir:
                key = ("intra", why.source)
                needs[key] = needs.get(key, 0) + 1
        if move.leader_changes:
            needs["leaders", 0] = 1
        return needs or {("leaders", 0): 1}

    def _cap(self, kind: str) -> int:
        caps = self.caps
        return {"broker": caps.per_broker, "intra": caps.per_broker_intra, "cluster": caps.cluster, "leaders": caps.leaders}[kind]

    def _from(self, key: tuple[str, int], wave: int, amount: int) -> int:
        """Return the first wave from this one on with that many free slots for the key; an empty wave always has them."""
        taken, cap = self.taken[key], self._cap(key[0])
        while wave < len(taken) and taken[wave] and taken[wave] + amount > cap:
            wave += 1
        return wave


def summaries(plan: Plan, throttle: float | None) -> list[Wave]:
    """Return every wave of a plan. `throttle`: bytes per second that a broker takes in, and gives out, for moves."""
    by_wave: dict[int, list[PartitionMove]] = defaultdict(list)
    for move in plan.moves:
        by_wave[move.wave].append(move)
    free = _free_bytes(plan.cluster)
    return [_summary(number, moves, free, throttle) for number, moves in sorted(by_wave.items())]


def _summary(number: int, moves: list[PartitionMove], free: dict[int, int], throttle: float | None) -> Wave:
    """Summarize a wave. `free`: free bytes of each broker's disks, updated by this wave."""
    into: dict[int, int] = defaultdict(int)
    out: dict[int, int] = defaultdict(int)
    within: dict[int, int] = defaultdict(int)
    gone: dict[int, int] = defaultdict(int)
    for move in moves:
        for broker in move.added:
            into[broker] += move.size_bytes
        out[move.before[0]] += move.bytes
        for broker in move.removed:
            gone[broker] += move.size_bytes
        for why in move.why:
            if why.source_dir:
                within[why.source] += move.size_bytes
    overfull = tuple(sorted(broker for broker, amount in into.items() if broker in free and amount > free[broker]))
    for broker in free:
        free[broker] += gone[broker] - into[broker]
    work = {broker: max(side.get(broker, 0) for side in (into, out, within)) for broker in {*into, *out, *within}}
    busiest = max(work, key=lambda broker: (work[broker], -broker), default=-1)
    return Wave(
        wave=number,
        partitions=len(moves),
        replica_moves=sum(len(move.added) for move in moves),
        intra_moves=sum(1 for move in moves for why in move.why if why.source_dir),
        leader_changes=sum(move.leader_changes for move in moves),
        bytes=sum(move.bytes for move in moves),
        intra_bytes=sum(move.intra_bytes for move in moves),
        busiest_broker=busiest,
        busiest_bytes=work.get(busiest, 0),
        seconds=work.get(busiest, 0) / throttle if throttle else None,
        overfull=overfull,
    )


def _free_bytes(cluster: ClusterDocument) -> dict[int, int]:
    """Return the free bytes of the online directories of each broker that reports them for all."""
    free = {}
    for broker in cluster.brokers:
        usable = [entry.usable_bytes for entry in broker.log_dirs if entry.online]
        if usable and min(usable) >= 0:
            free[broker.id] = sum(usable)
    return free


def with_waves(plan: Plan, caps: Caps) -> Plan:
    """Return the plan with waves by other caps."""
    waves, count = assign_waves(plan.moves, caps)
    moves = tuple(msgspec.structs.replace(move, wave=wave) for move, wave in zip(plan.moves, waves, strict=True))
    return msgspec.structs.replace(plan, moves=moves, waves=count)
