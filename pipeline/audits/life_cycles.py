"""The life cycles of partition reassignments (KIP-455), derived from a partition's change records.

Theory of operation. A `PartitionHistory` reads one partition's rows of `silver.partition_changes` in log order and appends a
`Reassignment` whenever one ends. It keeps five things about the partition: replicas, ISR, leader, directories, and the running
cycle. A cycle begins when adding or removing becomes non-empty, and ends when both become empty. Another non-empty pair ends the
cycle as superseded and begins the next with the same record. The ISR of a record is applied before its adding and removing,
because the record that completes a reassignment usually brings the last replica into the ISR.

The endings of a cycle:

| status     | the record that ends it                                                                          |
| ---------- | ------------------------------------------------------------------------------------------------ |
| completed  | clears the pair; every adding replica is in the new list, no removing one, and the list is target |
| cancelled  | clears the pair; the list is the original one, or the list before without the adding replicas    |
| superseded | names another pair; or clears it with another list: a new target that was reached at once, `instant` |
| instant    | changes the list while nothing runs: a reorder, or a target that was in sync already             |
| deleted    | removes the topic                                                                                |
| unknown    | clears a pair that was never seen, in a log without its beginning                                |
| open       | none so far                                                                                      |

Kafka can leave sets that contradict a replacement: it writes removing or adding only if the new set is not empty. `target` is the
target according to the records: the list without the removing replicas. A replica that is in both sets can therefore never
complete. `requested` is the requested list: Kafka writes the requested list followed by the replicas to remove, sorted; a list
that does not end with the old removing replicas was requested as a whole.

Fields that a log cannot give are null. A cycle first seen in a snapshot has no start (`truncated_left`) and no duration, and no
lag for replicas that were in sync in the snapshot. A cycle that ends between the end of the log and a later snapshot ends at the
snapshot. Times are append times of changing leaders and can step back. Rows are ordered by offset alone, durations are never
negative, and `clock_skew` marks a cycle in which a time was smaller than one before it.

A topic's removal before any row of a partition is ignored: the later rows show that the topic exists.

This is both the oracle of the tests and the code that runs in Spark's workers, which handle common histories column by column
(`life_cycles_columns`). It does not check that the rows are complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Replicas = tuple[int, ...]
Removal = tuple[int, int]
"""(offset, ms) of a topic's removal."""

_NEVER: tuple[None, None] = (None, None)
_row = tuple.__new__
"""Make a named tuple of a plain one, in a third of the time of naming its fields: there are hundreds of thousands."""

OPEN, COMPLETED, CANCELLED, SUPERSEDED = "open", "completed", "cancelled", "superseded"
INSTANT, DELETED, UNKNOWN = "instant", "deleted", "unknown"
ADDING, REMOVING = "adding", "removing"

CREATE, CHANGE, SNAPSHOT, DELETE = "create", "change", "snapshot", "delete"
"""Kinds of rows. `delete` is the removal of the topic, which is a row of `silver.topics`."""


class Change(NamedTuple):
    """The columns of a row of `silver.partition_changes` that life cycles need. None is *unchanged*, an empty tuple *cleared*."""

    offset: int
    ts_ms: int
    kind: str = CHANGE
    isr: Replicas | None = None
    leader: int | None = None
    replicas: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None
    directories: tuple[str, ...] | None = None
    original: Replicas | None = None
    target: Replicas | None = None


class ReplicaProgress(NamedTuple):
    """The outcome for one adding or removing replica. `caught_up_*` describe the first record with the replica in the ISR."""

    replica: int
    role: str
    caught_up_offset: int | None
    caught_up_ms: int | None
    lag_ms: int | None
    dir_id: str | None


class Reassignment(NamedTuple):
    """A row of `gold.reassignments`, with its replicas in the order of their lists, adding replicas first.

    `orig` is the list before the first of a run of replacements, and so the list that a cancel restores. `rf_after` is None as
    long as the partition has not settled (open, superseded, deleted).
    """

    reassignment_id: str
    topic: str | None
    partition: int
    start_offset: int | None
    start_ms: int | None
    end_offset: int | None
    end_ms: int | None
    status: str
    superseded_by: str | None
    orig: Replicas | None
    target: Replicas | None
    adding: Replicas | None
    removing: Replicas | None
    n_adding: int
    duration_ms: int | None
    rf_before: int | None
    rf_after: int | None
    leader_changes: int
    isr_shrinks: int
    truncated_left: bool
    clock_skew: bool
    topic_id: str
    requested: Replicas | None
    replicas: tuple[ReplicaProgress, ...]


class PartitionState(NamedTuple):
    """The state of a partition: a row of `silver.partition_state`. `since_offset` is the offset of the last record that changed
    it. A field is None if the log never gave it.
    """

    topic_id: str
    topic: str | None
    partition: int
    replicas: Replicas | None
    isr: Replicas | None
    leader: int | None
    adding: Replicas | None
    removing: Replicas | None
    directories: tuple[str, ...] | None
    rf_settled: int | None
    since_offset: int


class OffsetsStepBack(ValueError):
    """The rows of a partition are not in the order of the log."""


class _Cycle:
    """A running reassignment."""

    __slots__ = (
        "adding",
        "caught_up",
        "clock_skew",
        "first_offset",
        "isr_shrinks",
        "last_ms",
        "leader_changes",
        "orig",
        "removing",
        "requested",
        "start_ms",
        "start_offset",
        "target",
    )

    def __init__(
        self, offset: int, ts_ms: int, orig: Replicas, target: Replicas, requested: Replicas, adding: Replicas, removing: Replicas
    ) -> None:
        self.first_offset = offset
        self.start_offset: int | None = offset
        self.start_ms: int | None = ts_ms
        self.orig = orig
        self.target = target
        self.requested = requested
        self.adding = adding
        self.removing = removing
        self.caught_up: dict[int, tuple[int, int]] = {}
        self.leader_changes = 0
        self.isr_shrinks = 0
        self.clock_skew = False
        self.last_ms = ts_ms

    def catch_up(self, isr: Replicas, offset: int, ts_ms: int) -> None:
        caught_up = self.caught_up
        if len(caught_up) < len(self.adding):
            for replica in self.adding:
                if replica in isr and replica not in caught_up:
                    caught_up[replica] = (offset, ts_ms)


class PartitionHistory:
    """One partition's history so far. Call `step` for each row, then `finish`; cycles that ended are appended to `ended` in log
    order.

    `state` is the partition's state after the last row. Its settled number of replicas is the length of the list, or, while a
    reassignment runs, of the list before the first of the run.
    """

    __slots__ = (
        "_adding",
        "_cycle",
        "_directories",
        "_isr",
        "_leader",
        "_offset",
        "_removing",
        "_replicas",
        "_rf_settled",
        "ended",
        "is_removed",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(self, topic_id: str, topic: str | None, partition: int, ended: list[Reassignment]) -> None:
        self.topic_id = topic_id
        self.topic = topic
        self.partition = partition
        self.ended = ended
        self.is_removed = False
        self._offset = -1
        self._replicas: Replicas | None = None
        self._isr: Replicas | None = None
        self._leader: int | None = None
        self._directories: tuple[str, ...] | None = None
        self._adding: Replicas | None = None
        self._removing: Replicas | None = None
        self._rf_settled: int | None = None
        self._cycle: _Cycle | None = None

    def state(self) -> PartitionState:
        return PartitionState(
            self.topic_id,
            self.topic,
            self.partition,
            self._replicas,
            self._isr,
            self._leader,
            self._adding,
            self._removing,
            self._directories,
            self._rf_settled,
            self._offset,
        )

    def step(self, change: Change) -> None:
        """Apply the next row. OffsetsStepBack if its offset is smaller than the offset before."""
        offset, ts_ms, kind, isr, leader, replicas, adding, removing, directories, _, _ = change
        if offset < self._offset:
            raise OffsetsStepBack(
                f"offset {offset} after {self._offset} in {self.topic or self.topic_id}-{self.partition}; "
                "sort the rows by topic_id, partition, offset and kind before they are read"
            )
        self._offset = offset
        cycle = self._cycle
        if cycle is not None:
            if kind == SNAPSHOT:
                pass  # a snapshot's time is not an append time
            elif ts_ms < cycle.last_ms:
                cycle.clock_skew = True
            else:
                cycle.last_ms = ts_ms
            if leader is not None and leader != self._leader:
                cycle.leader_changes += 1
            if isr is not None:
                cycle.catch_up(isr, offset, ts_ms)
        if replicas is not None or adding is not None or removing is not None:
            self._reassign(change)
            cycle = None if cycle is not self._cycle else cycle  # the record that ends a cycle shrinks the ISR on purpose
        elif kind == DELETE:
            self._end(DELETED, change)
        if isr is not None:
            if cycle is not None and self._isr is not None:
                for replica in self._isr:
                    if replica not in isr:
                        cycle.isr_shrinks += 1
                        break
            self._isr = isr
        if leader is not None:
            self._leader = leader
        if directories is not None:
            self._directories = directories

    def finish(self, removal: Removal | None = None) -> None:
        """End the history: a running cycle is recorded as open, or as deleted if the topic was removed."""
        if removal is not None and self._offset < removal[0]:
            self.is_removed = True
            self.step(Change(*removal, kind=DELETE))
        self._end(OPEN, None)

    def _reassign(self, change: Change) -> None:
        """Apply a record with replicas, adding or removing: it begins, ends, replaces or reorders."""
        cycle, before = self._cycle, self._replicas
        _, _, kind, _, _, replicas, adding, removing, _, _, _ = change
        after = replicas if replicas is not None else before or ()
        if cycle is not None:
            adding = cycle.adding if adding is None else adding
            removing = cycle.removing if removing is None else removing
        runs = bool(adding or removing)
        if cycle is None:
            if runs:
                self._begin(change, before, after, adding or (), removing or (), seen=kind != SNAPSHOT)
            elif before is None:
                if kind == CHANGE and (adding is not None or removing is not None):
                    self._write_unknown(change, after)
            elif after != before:
                self._write_instant(change, before, before, after)
        elif not runs:
            self._end_with(change, cycle, before or (), after)
        elif not _same(adding or (), cycle.adding) or not _same(removing or (), cycle.removing):
            self._end(SUPERSEDED, change, superseded_by=self._id(change.offset, seen=change.kind != SNAPSHOT), after=after)
            self._begin(change, cycle.orig, after, adding or (), removing or (), seen=change.kind != SNAPSHOT)
        elif replicas is not None or change.target is not None:
            cycle.target = change.target or tuple(replica for replica in after if replica not in cycle.removing)
        self._settle(change)

    def _settle(self, change: Change) -> None:
        _, _, _, _, _, replicas, adding, removing, _, original, _ = change
        if replicas is not None:
            self._replicas = replicas
        if adding is not None:
            self._adding = adding
        if removing is not None:
            self._removing = removing
        if self._replicas is None:
            return
        if not self._adding and not self._removing:
            self._rf_settled = len(self._replicas)
        elif original:
            self._rf_settled = len(original)
        elif self._rf_settled is None:
            self._rf_settled = len(set(self._replicas).difference(self._adding or ()))

    def _begin(
        self, change: Change, before: Replicas | None, after: Replicas, adding: Replicas, removing: Replicas, *, seen: bool
    ) -> None:
        orig = change.original or before or tuple([replica for replica in after if replica not in adding])
        target = change.target or tuple([replica for replica in after if replica not in removing])
        left_over = change.removing is None and after[-len(removing) :] != tuple(sorted(removing))
        requested = after if removing and left_over and not change.target else target
        cycle = self._cycle = _Cycle(change.offset, change.ts_ms, orig, target, requested, adding, removing)
        if not seen:
            cycle.start_offset = cycle.start_ms = None
        isr = change.isr if change.isr is not None else self._isr
        if isr is not None:
            cycle.catch_up(isr, change.offset, change.ts_ms)

    def _end_with(self, change: Change, cycle: _Cycle, before: Replicas, after: Replicas) -> None:
        """End the cycle by a record that clears the pair. The new list decides the status."""
        members = set(after)
        if members == set(cycle.target) and members.issuperset(cycle.adding) and members.isdisjoint(cycle.removing):
            self._end(COMPLETED, change, after=after)
        elif members == set(cycle.orig) or members == set(before).difference(cycle.adding):
            self._end(CANCELLED, change, after=after)
        else:
            self._end(SUPERSEDED, change, superseded_by=self._id(change.offset, seen=change.kind != SNAPSHOT), after=after)
            self._write_instant(change, cycle.orig, before, after)

    def _end(
        self, status: str, change: Change | None, *, superseded_by: str | None = None, after: Replicas | None = None
    ) -> None:
        cycle = self._cycle
        if cycle is None:
            return
        self._cycle = None
        duration_ms = None
        if change is not None and cycle.start_ms is not None:
            duration_ms = max(0, change.ts_ms - cycle.start_ms)
        adding, orig = cycle.adding, cycle.orig
        fields = (
            self._id(cycle.first_offset, seen=cycle.start_offset is not None),
            self.topic,
            self.partition,
            cycle.start_offset,
            cycle.start_ms,
            None if change is None else change.offset,
            None if change is None else change.ts_ms,
            status,
            superseded_by,
            orig,
            cycle.target,
            adding,
            cycle.removing,
            len(adding),
            duration_ms,
            len(orig),
            len(after) if after is not None and status in (COMPLETED, CANCELLED) else None,
            cycle.leader_changes,
            cycle.isr_shrinks,
            cycle.start_offset is None,
            cycle.clock_skew,
            self.topic_id,
            cycle.requested,
            self._progress(cycle, change),
        )
        self.ended.append(_row(Reassignment, fields))

    def _progress(self, cycle: _Cycle, change: Change | None) -> tuple[ReplicaProgress, ...]:
        """Return the outcome per replica. Directories of adding replicas are those after the end, of removing replicas those
        before it.
        """
        known: Mapping[int, str] = {}
        if self._directories is not None:
            known = _placed(self._replicas, self._directories)
        if change is not None and change.directories is not None:
            replicas = change.replicas if change.replicas is not None else self._replicas
            known = {**known, **_placed(replicas, change.directories)}
        rows = []
        start_ms, caught_up, place = cycle.start_ms, cycle.caught_up, known.get
        for replica in cycle.adding:
            offset, ts_ms = caught_up.get(replica, _NEVER)
            lag_ms = None if start_ms is None or ts_ms is None else max(0, ts_ms - start_ms)
            rows.append(_row(ReplicaProgress, (replica, ADDING, offset, ts_ms, lag_ms, place(replica))))
        rows += [_row(ReplicaProgress, (replica, REMOVING, None, None, None, place(replica))) for replica in cycle.removing]
        return tuple(rows)

    def _write_instant(self, change: Change, orig: Replicas, before: Replicas, after: Replicas) -> None:
        """Record a list that changed without any adding or removing; in a snapshot, at some time before it."""
        seen = change.kind != SNAPSHOT
        adding = tuple(replica for replica in after if replica not in before)
        removing = tuple(replica for replica in before if replica not in after)
        offset, ts_ms = (change.offset, change.ts_ms) if seen else (None, None)
        placed = _placed(before, self._directories) | _placed(after, change.directories)
        caught = tuple(
            ReplicaProgress(replica, ADDING, change.offset, change.ts_ms, 0 if seen else None, placed.get(replica))
            for replica in adding
        )
        left = tuple(ReplicaProgress(replica, REMOVING, None, None, None, placed.get(replica)) for replica in removing)
        self.ended.append(
            Reassignment(
                self._id(change.offset, seen=seen),
                self.topic,
                self.partition,
                offset,
                ts_ms,
                change.offset,
                change.ts_ms,
                INSTANT,
                None,
                orig,
                after,
                adding,
                removing,
                len(adding),
                0 if seen else None,
                len(orig),
                len(after),
                0,
                0,
                not seen,
                False,
                self.topic_id,
                after,
                caught + left,
            )
        )

    def _write_unknown(self, change: Change, after: Replicas) -> None:
        """Record the end of a reassignment whose start is before the log. Nothing else is known of it."""
        target = after or None
        self.ended.append(
            Reassignment(
                self._id(change.offset, seen=False),
                self.topic,
                self.partition,
                None,
                None,
                change.offset,
                change.ts_ms,
                UNKNOWN,
                None,
                None,
                target,
                None,
                None,
                0,
                None,
                None,
                len(after) or None,
                0,
                0,
                True,
                False,
                self.topic_id,
                target,
                (),
            )
        )

    def _id(self, offset: int, *, seen: bool) -> str:
        return f"{self.topic or self.topic_id}:{self.partition}:{offset if seen else f'before-{offset}'}"


def _same(one: Replicas, other: Replicas) -> bool:
    """Return whether two lists have the same members."""
    return one == other or set(one) == set(other)


def _placed(replicas: Replicas | None, directories: tuple[str, ...] | None) -> dict[int, str]:
    """Return replica → directory, or nothing if the lists do not fit together."""
    if directories is None or replicas is None or len(replicas) != len(directories):
        return {}
    return dict(zip(replicas, directories, strict=True))


class PartitionKey(NamedTuple):
    """The partition of some changes. A topic that is deleted and created again has another id."""

    topic_id: str
    topic: str | None
    partition: int


def all_life_cycles(
    rows: Iterable[tuple[PartitionKey, Change]], deletions: Mapping[str, Removal] | None = None
) -> list[Reassignment]:
    """Return the life cycles of many partitions whose rows are in the order of the log, in the order of their ends, open ones
    last: the oracle of the tests. `deletions` is by topic id.
    """
    ended: list[Reassignment] = []
    _all_histories(rows, ended, deletions or {})
    return ended


def partition_states(
    rows: Iterable[tuple[PartitionKey, Change]],
    at_offset: int | None = None,
    deletions: Mapping[str, Removal] | None = None,
) -> list[PartitionState]:
    """Return the states after the record at `at_offset` (None: after all) of all partitions whose topic exists then."""
    known = [(key, change) for key, change in rows if at_offset is None or change.offset <= at_offset]
    removed = {topic: at for topic, at in (deletions or {}).items() if at_offset is None or at[0] <= at_offset}
    return [history.state() for history in _all_histories(known, [], removed) if not history.is_removed]


def _all_histories(
    rows: Iterable[tuple[PartitionKey, Change]], ended: list[Reassignment], deletions: Mapping[str, Removal]
) -> list[PartitionHistory]:
    histories: dict[tuple[str, int], PartitionHistory] = {}
    for key, change in rows:
        history = histories.get((key.topic_id, key.partition))
        if history is None:
            history = histories[key.topic_id, key.partition] = PartitionHistory(*key, ended)
        history.step(change)
    for history in histories.values():
        history.finish(deletions.get(history.topic_id))
    return list(histories.values())
