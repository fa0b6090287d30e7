"""A generated metadata log of reassignments with known results, of any length: rows as `silver.partition_changes` holds them.

Its controller creates partitions, three to a topic, and keeps a number of reassignments running at a time. Each further record
starts the reassignment of an idle partition; or brings the next replica into the ISR; or changes a leader or shrinks an ISR on
the way; or ends a reassignment: of 100, about 88 complete, 7 are cancelled and 5 superseded by another target. Reassignments that
run at the end are open. The generator counts its own actions; no count is computed from the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

BROKERS = 60
RECORDS_PER_LOG_BATCH = 100
FIRST_MS = 1_700_000_000_000
PARTITIONS_PER_CHANGE = 0.116
RUNNING_PER_CHANGE = 0.0042

Row = tuple[Any, ...]
"""(offset, ts_ms, kind, topic number, partition, isr, leader, replicas, adding, removing)."""


@dataclass
class Truth:
    """Known results: life cycles by status, and the number of adding replicas that came into the ISR."""

    partitions: int = 0
    completed: int = 0
    cancelled: int = 0
    superseded: int = 0
    open: int = 0
    caught_up: int = 0
    cycles: list[tuple[int, int | None, str]] = field(default_factory=list)
    """(offset of the start, offset of the end, status), if wanted."""


class _Partition:
    """A partition of the log, and its running reassignment."""

    __slots__ = ("adding", "index", "isr", "leader", "missing", "orig", "removing", "replicas", "start", "topic")

    def __init__(self, topic: int, index: int, replicas: tuple[int, ...]) -> None:
        self.topic = topic
        self.index = index
        self.replicas = self.isr = self.orig = replicas
        self.leader = replicas[0]
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        self.missing: list[int] = []
        self.start = 0


class ReassignmentLog:
    """`rows` generates the rows, once; `truth` is complete after the last row."""

    def __init__(self, changes: int, *, keep_cycles: bool = False) -> None:
        self.changes = changes
        self.truth = Truth()
        self._keep_cycles = keep_cycles
        self._random = Random(1)
        self._partitions: list[_Partition] = []

    def rows(self) -> Iterator[Row]:
        random, truth = self._random, self.truth
        truth.partitions = max(3, int(self.changes * PARTITIONS_PER_CHANGE))
        for offset in range(truth.partitions):
            replicas = tuple(random.sample(range(BROKERS), 3))
            partition = _Partition(offset // 3, offset % 3, replicas)
            self._partitions.append(partition)
            yield self._row(offset, partition, "create", replicas, replicas[0], replicas, (), ())
        idle = list(self._partitions)
        random.shuffle(idle)
        running: list[_Partition] = []
        at_a_time = max(1, int(self.changes * RUNNING_PER_CHANGE))
        for offset in range(truth.partitions, self.changes):
            if len(running) < at_a_time and idle:
                index = random.randrange(len(idle))
                idle[index], idle[-1] = idle[-1], idle[index]
                partition = idle.pop()
                running.append(partition)
                yield self._start(offset, partition)
                continue
            index = random.randrange(len(running))
            partition = running[index]
            yield self._continue(offset, partition)
            if not partition.removing:
                running[index] = running[-1]
                running.pop()
                idle.append(partition)
        truth.open = len(running)
        for partition in running:
            self._ended(partition, None, "open")

    def _continue(self, offset: int, partition: _Partition) -> Row:
        chance = self._random.random()
        if chance < 0.026:
            self.truth.cancelled += 1
            return self._end(offset, partition, partition.orig, "cancelled")
        if chance < 0.043:
            self.truth.superseded += 1
            self._ended(partition, offset, "superseded")
            return self._start(offset, partition)
        if chance < 0.575:
            return self._disturb(offset, partition)
        self.truth.caught_up += 1
        replica = partition.missing.pop()
        if partition.missing:
            partition.isr = (*partition.isr, replica)
            return self._row(offset, partition, "change", partition.isr, None, None, None, None)
        self.truth.completed += 1
        target = tuple(replica for replica in partition.replicas if replica not in partition.removing)
        return self._end(offset, partition, target, "completed")

    def _start(self, offset: int, partition: _Partition) -> Row:
        """Exchange one or two replicas of the original list. A replacement drops the replicas that were being added."""
        random = self._random
        count = random.choice((1, 1, 2))
        keep = partition.orig[: len(partition.orig) - count]
        adding = tuple(random.sample([broker for broker in range(BROKERS) if broker not in partition.replicas], count))
        current = partition.replicas
        partition.adding = adding
        partition.removing = tuple(sorted(replica for replica in current if replica not in keep))
        partition.replicas = (*adding, *keep, *partition.removing)
        partition.missing = list(adding)
        partition.start = offset
        return self._row(offset, partition, "change", None, None, partition.replicas, adding, partition.removing)

    def _end(self, offset: int, partition: _Partition, replicas: tuple[int, ...], status: str) -> Row:
        self._ended(partition, offset, status)
        partition.replicas = partition.isr = partition.orig = replicas
        partition.adding = partition.removing = ()
        partition.missing = []
        partition.leader = replicas[0]
        return self._row(offset, partition, "change", replicas, replicas[0], replicas, (), ())

    def _disturb(self, offset: int, partition: _Partition) -> Row:
        """Remove a staying replica from the ISR, or change the leader."""
        partition.leader = partition.isr[-1]
        isr = partition.isr[1:] if len(partition.isr) > 2 and partition.isr[0] not in partition.adding else partition.isr
        partition.isr = isr
        return self._row(offset, partition, "change", isr, partition.leader, None, None, None)

    def _ended(self, partition: _Partition, offset: int | None, status: str) -> None:
        if self._keep_cycles:
            self.truth.cycles.append((partition.start, offset, status))

    def _row(self, offset: int, partition: _Partition, kind: str, *fields: Any) -> Row:
        return (offset, FIRST_MS + offset // RECORDS_PER_LOG_BATCH * 20, kind, partition.topic, partition.index, *fields)
