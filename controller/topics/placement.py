"""Placement of new partitions: striped over racks, with an even share of leaders.

Racks form a ring, sorted by name. Brokers without a rack form a rack of their own, in front. Each partition starts at the next
rack of the ring. Its leader is the next unfenced broker from there. The other replicas are dealt rack by rack around the ring
from the same rack, without the leader's rack in the first round, until there are enough. Within a rack unfenced brokers come
before fenced ones, and the first broker of a rack advances by one with each partition. So not only leaders but also pairs of
replicas are spread. After as many partitions as there are unfenced brokers the pattern would repeat, so racks and brokers are
shuffled then.

A partition never has two replicas on one broker. Its racks are used as evenly as their sizes allow. A fenced broker gets a
replica only if its rack has no unfenced broker left for that partition, and never the first replica. Free space and current
numbers of replicas do not matter.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

from kraftlab.common.errors import ApiError, ErrorCode


class UsableBroker(NamedTuple):
    """A broker that may get replicas: registered, and not shutting down."""

    broker_id: int
    rack: str | None
    fenced: bool


def place(
    brokers: Iterable[UsableBroker], partition_count: int, replication_factor: int, source: random.Random
) -> list[tuple[int, ...]]:
    """Replicas of each of `partition_count` new partitions, preferred leader first.

    `source` picks the starting points of the rings and shuffles them. ApiError INVALID_REPLICATION_FACTOR if there are too few
    brokers.
    """
    usable = list(brokers)
    if replication_factor <= 0:
        raise _refusal("Replication factor must be larger than 0, or -1 to use the default value.")
    if replication_factor > len(usable):
        raise _refusal(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(usable)} broker(s) are registered or some brokers have "
            "all their log directories cordoned."
        )
    if all(broker.fenced for broker in usable):
        raise _refusal("All brokers are currently fenced.")
    ring = _RackRing(usable, source)
    return [ring.next_partition(replication_factor) for _ in range(partition_count)]


def _refusal(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


class _Deck:
    """Brokers of one kind in one rack. Each is dealt at most once per partition, and each partition starts one broker further."""

    def __init__(self, broker_ids: Iterable[int], source: random.Random) -> None:
        self.broker_ids = sorted(broker_ids)
        self.first = source.randrange(len(self.broker_ids)) if self.broker_ids else 0
        self.turn = 0
        self.dealt = 0

    def deal(self, turn: int) -> int | None:
        """Next broker for the partition of this turn, None if all have been dealt."""
        if turn != self.turn:
            self.turn = turn
            self.dealt = 0
            self.first += 1
        if self.dealt == len(self.broker_ids):
            return None
        broker_id = self.broker_ids[(self.first + self.dealt) % len(self.broker_ids)]
        self.dealt += 1
        return broker_id


class _Rack:
    """Brokers of one rack, unfenced and fenced ones apart."""

    def __init__(self, brokers: list[UsableBroker], source: random.Random) -> None:
        self.unfenced = _Deck((broker.broker_id for broker in brokers if not broker.fenced), source)
        self.fenced = _Deck((broker.broker_id for broker in brokers if broker.fenced), source)

    def deal(self, turn: int) -> int | None:
        broker_id = self.unfenced.deal(turn)
        return self.fenced.deal(turn) if broker_id is None else broker_id


class _RackRing:
    """All racks, and the starting point of the next partition."""

    def __init__(self, brokers: list[UsableBroker], source: random.Random) -> None:
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self.racks = [_Rack(by_rack[name], source) for name in names]
        self.first = source.randrange(len(self.racks))
        self.turn = 0
        self.turns_before_shuffle = sum(not broker.fenced for broker in brokers)
        self.source = source

    def next_partition(self, replication_factor: int) -> tuple[int, ...]:
        """Replicas of one more partition. There must be enough brokers, one of them unfenced."""
        count = len(self.racks)
        around = [self.racks[(self.first + step) % count] for step in range(count)]
        leader_rack, leader = self._leader(around)
        replicas = [leader]
        round_number = 0
        while len(replicas) < replication_factor:
            for rack in around:
                if len(replicas) == replication_factor:
                    break
                if round_number == 0 and rack is leader_rack:
                    continue
                broker_id = rack.deal(self.turn)
                if broker_id is not None:
                    replicas.append(broker_id)
            round_number += 1
        self._advance()
        return tuple(replicas)

    def _leader(self, around: list[_Rack]) -> tuple[_Rack, int]:
        """First unfenced broker around the ring, with its rack."""
        for rack in around:
            leader = rack.unfenced.deal(self.turn)
            if leader is not None:
                return rack, leader
        raise ValueError("no unfenced broker to place a leader on")

    def _advance(self) -> None:
        """Move on to the next partition, and shuffle before the pattern would repeat."""
        self.first = (self.first + 1) % len(self.racks)
        self.turn += 1
        if self.turns_before_shuffle > 1 and self.turn % self.turns_before_shuffle == 0:
            self.source.shuffle(self.racks)
            for rack in self.racks:
                self.source.shuffle(rack.unfenced.broker_ids)
                self.source.shuffle(rack.fenced.broker_ids)
