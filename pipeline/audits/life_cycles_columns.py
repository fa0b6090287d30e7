"""The histories of many partitions at once, column by column, if nothing unusual happened to them.

Theory of operation. The rows come sorted, with those of a partition as neighbours that begin with its creation. The state of a
partition after a row (replicas, ISR, leader, adding, removing) follows from the last row at or before it that has the field: a
running maximum of row numbers. From the states follow the beginnings and ends of cycles, without a look at single rows. The
counts within a cycle (leader changes, shrinks of the ISR, steps back of the clock) are differences of two running sums. Lists are
compared for all cycles together (`list_columns`).

The result is the same as that of `life_cycles.PartitionHistory`, which is the definition. A partition is left to the definition,
with all its rows, if any of them is of a kind that is not handled here:

- it was deleted, was seen in a snapshot, does not begin with its creation in full, or was created twice;
- a replica has a directory;
- its list changes while no reassignment runs, or a record ends a reassignment with a list that is neither the target nor the
  original one;
- a record repeats the running pair, or keeps an old removing set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..own_log.columns import Vector, spread
from ..storage.schemas import arrow_schema, batch_of_columns
from .life_cycles import ADDING, CANCELLED, CHANGE, COMPLETED, CREATE, OPEN, REMOVING, SUPERSEDED
from .life_cycles_arrow import REASSIGNMENTS, REPLICAS, ROWS_PER_BATCH, STATE, Deletions
from .life_cycles_arrow import histories_of as stepped
from .list_columns import PAD, Lists, Members, lists_of

LIST_MAX = 16
"""Partitions with longer lists are left to the definition: the lists of all rows are laid out side by side."""
_LISTS = ("isr", "replicas", "adding", "removing", "original", "target")
_STATUSES = (OPEN, SUPERSEDED, COMPLETED, CANCELLED)
_OPEN, _SUPERSEDED, _COMPLETED, _CANCELLED = range(4)


def histories_of(rows: pa.Table, order: Vector, deletions: Deletions) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the same batches as `life_cycles_arrow.histories_of` does for these rows in this `order`, in another order. A
    partition's topic has the name that any of its rows has.
    """
    sorted_rows = _Rows(rows.combine_chunks(), order)
    if rows["topic"].null_count:
        rows = _named(rows, sorted_rows)
        sorted_rows = _Rows(rows, order)
    is_left = np.repeat(_is_unusual(sorted_rows, deletions), sorted_rows.sizes)
    histories = _Histories(sorted_rows.only(~is_left))
    if len(histories.rows.order):
        yield from histories.tables()
    is_left[np.flatnonzero(~is_left)] = np.repeat(histories.is_odd, histories.rows.sizes)
    if is_left.any():
        yield from stepped(rows.take(pa.array(order[is_left])).to_batches(max_chunksize=ROWS_PER_BATCH), deletions)


def _named(rows: pa.Table, sorted_rows: _Rows) -> pa.Table:
    """Fill in the topic's name in rows that were built before the name was known."""
    of = np.empty(len(sorted_rows.order), np.int64)
    of[sorted_rows.order] = np.repeat(np.arange(len(sorted_rows.firsts)), sorted_rows.sizes)
    names = pa.table({"of": of, "name": rows["topic"]}).group_by("of").aggregate([("name", "max")]).sort_by("of")
    topics = names["name_max"].take(pa.array(of)).combine_chunks()
    return rows.set_column(rows.schema.get_field_index("topic"), "topic", topics).combine_chunks()


class _Rows:
    """The sorted rows. `order` has the place of each in the table."""

    def __init__(self, table: pa.Table, order: Vector) -> None:
        self.table, self.order = table, order
        topics = _chunk(table, "topic_id").dictionary_encode()
        self.topics = topics.dictionary
        self.topic_of = topics.indices.to_numpy()[order]
        self.partition = table["partition"].to_numpy()[order]
        self.is_first = np.ones(len(order), bool)
        self.is_first[1:] = (np.diff(self.topic_of) != 0) | (np.diff(self.partition) != 0)
        self.firsts = np.flatnonzero(self.is_first)
        self.sizes = np.diff(np.append(self.firsts, len(order)))

    def only(self, kept: Vector) -> _Rows:
        return self if kept.all() else _Rows(self.table, self.order[kept])

    def lists(self, name: str) -> Lists:
        return lists_of(_chunk(self.table, name), self.order)

    def any_of(self, of_rows: Vector) -> Vector:
        """Return for each partition whether any of its rows is marked."""
        return np.logical_or.reduceat(of_rows, self.firsts) if len(self.firsts) else np.zeros(0, bool)


def _chunk(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_unusual(rows: _Rows, deletions: Deletions) -> Vector:
    """Return for each partition whether a single row of it is of a kind that is not handled here."""
    kinds = _chunk(rows.table, "kind").dictionary_encode()
    codes = {kind: code for code, kind in enumerate(kinds.dictionary.to_pylist())}
    kind_of = kinds.indices.to_numpy()[rows.order]
    found = kind_of != np.where(rows.is_first, codes.get(CREATE, -1), codes.get(CHANGE, -1))
    for name in _LISTS:
        lists = rows.lists(name)
        if _chunk(rows.table, name).values.null_count or lists.pool.min(initial=0) == PAD:
            return np.ones(len(rows.firsts), bool)
        found |= lists.counts > LIST_MAX
        if name in ("isr", "replicas", "adding", "removing"):
            found |= rows.is_first & ~lists.given
        if name in ("adding", "removing"):
            found |= rows.is_first & (lists.counts > 0)
        if name == "replicas":
            found |= lists.given & (lists.counts == 0)
    directories = _chunk(rows.table, "directories")
    if directories.null_count < len(directories):
        found |= pc.fill_null(pc.list_value_length(directories), 0).to_numpy()[rows.order] > 0
    if len(rows.order):
        found |= rows.is_first & ~_chunk(rows.table, "leader").is_valid().to_numpy(zero_copy_only=False)[rows.order]
    if deletions:
        deleted = np.array([topic in deletions for topic in rows.topics.to_pylist()], bool)
        found |= deleted[rows.topic_of]
    return rows.any_of(found)


class _Cycles(NamedTuple):
    """The reassignments, in the order of their starts. `start` is the row that begins one, `end` the row that ends it (-1 if it
    is open), and `stop` its last row. `status` is an index into `_STATUSES`.
    """

    start: Vector
    end: Vector
    stop: Vector
    status: Vector
    adding: Lists
    removing: Lists
    orig: Lists
    target: Lists


class _Histories:
    """All partitions of some rows. `is_odd` marks the partitions that cannot be handled here after all."""

    def __init__(self, rows: _Rows) -> None:
        self.rows = rows
        self.of = np.repeat(np.arange(len(rows.firsts)), rows.sizes)
        self.lasts = rows.firsts + rows.sizes - 1
        self.is_odd = np.zeros(len(rows.firsts), bool)
        if not len(rows.order):
            return
        table, order = rows.table, rows.order
        self.offset, self.ts_ms = table["offset"].to_numpy()[order], table["ts_ms"].to_numpy()[order]
        self.isr, self.replicas, self.adding, self.removing, self.original, self.target = map(rows.lists, _LISTS)
        leader = _chunk(table, "leader")
        self.leader = leader.fill_null(0).to_numpy()[order]
        self.leader_given = leader.is_valid().to_numpy(zero_copy_only=False)[order]
        self.replicas_at, self.isr_at, self.leader_at = map(_last, (self.replicas.given, self.isr.given, self.leader_given))
        self.adding_at, self.removing_at = _last(self.adding.given), _last(self.removing.given)
        self.runs = (self.adding.counts[self.adding_at] > 0) | (self.removing.counts[self.removing_at] > 0)
        self.ran = _before(self.runs) & ~rows.is_first
        self.cycles = self._cycles()

    def _cycles(self) -> _Cycles:
        touches = (self.replicas.given | self.adding.given | self.removing.given) & ~self.rows.is_first
        begins, ends = touches & self.runs & ~self.ran, touches & self.ran & ~self.runs
        replaces = touches & self.ran & self.runs
        self._find_odd(np.flatnonzero(touches & ~self.ran & ~self.runs & self.replicas.given), np.flatnonzero(replaces))
        starts = begins | replaces
        start, events = np.flatnonzero(starts), np.flatnonzero(starts | ends)
        following = np.append(events, -1)[np.searchsorted(events, start) + 1]
        end = np.where((following >= 0) & (self.of[following] == self.of[start]), following, -1)
        stop = np.where(end >= 0, end, self.lasts[self.of[start]])
        adding, removing = self.adding.at(self.adding_at[start]), self.removing.at(self.removing_at[start])
        own = self.target.at(start)
        if not own.counts.all():
            after = self.replicas.at(self.replicas_at[start])
            own = own.or_else(after.side_by_side().minus(removing.side_by_side()))
        orig = self._originals(start, begins)
        status = np.where(end < 0, _OPEN, np.where(starts[end], _SUPERSEDED, _COMPLETED))
        cycles = _Cycles(start, end, stop, status, adding, removing, orig, own)
        self._decide(cycles)
        return cycles

    def _find_odd(self, resting: Vector, replacing: Vector) -> None:
        """Mark partitions by their rows with a list while nothing runs, and their rows with a pair while a cycle runs."""
        before, after = self.replicas.at(self.replicas_at[resting - 1]), self.replicas.at(resting)
        changes = ~before.side_by_side().equals(after.side_by_side())
        self.is_odd[self.of[resting[changes]]] = True
        left_over = ~self.removing.given & (self.removing.counts[self.removing_at] > 0) & (self.target.counts == 0)
        same = left_over[replacing]
        repeats = np.ones(len(replacing), bool)
        for lists, at in ((self.adding, self.adding_at), (self.removing, self.removing_at)):
            old, new = lists.at(at[replacing - 1]), lists.at(at[replacing])
            repeats &= old.side_by_side().same_as(new.side_by_side())
        self.is_odd[self.of[replacing[same | repeats]]] = True

    def _originals(self, start: Vector, begins: Vector) -> Lists:
        """Return the list that each cycle would restore: the record's own, or the list before the first cycle of a run."""
        own = self.original.at(start)
        if own.counts.all():
            return own
        found = own.or_else(self.replicas.at(self.replicas_at[np.maximum(start - 1, 0)]))
        return found.at(_last((own.counts > 0) | begins[start]))

    def _decide(self, cycles: _Cycles) -> None:
        """Decide the ends of the cycles whose pair was cleared. Partitions with an unexpected list are odd."""
        (which,) = np.nonzero(cycles.status == _COMPLETED)
        end = cycles.end[which]
        after = self.replicas.at(self.replicas_at[end]).side_by_side()
        before = self.replicas.at(self.replicas_at[end - 1]).side_by_side()
        adding, removing = cycles.adding.at(which).side_by_side(), cycles.removing.at(which).side_by_side()
        orig, target = cycles.orig.at(which).side_by_side(), cycles.target.at(which).side_by_side()
        is_completed = after.same_as(target) & adding.within(after) & removing.without(after)
        is_before = after.within(before) & after.without(adding) & before.within(after, adding)
        is_cancelled = ~is_completed & (after.same_as(orig) | is_before)
        cycles.status[which[is_cancelled]] = _CANCELLED
        self.is_odd[self.of[end[~is_completed & ~is_cancelled]]] = True

    def _caught_up(self, adding: Members) -> Vector:
        """Return [k, c]: the row at which the k-th adding replica of cycle c was first in the ISR, or -1."""
        start = self.cycles.start
        at_start = self.isr.at(self.isr_at[start]).side_by_side()
        later = np.flatnonzero(self.isr.given & self.ran)
        cycle_of = np.searchsorted(start, later) - 1
        isr = self.isr.at(later).side_by_side()
        found = np.full(adding.items.shape, -1, np.int64)
        for place, replicas in enumerate(adding.items):
            is_there = replicas != PAD
            found[place] = np.where(is_there & at_start.have(replicas), start, -1)
            is_missing = is_there & (found[place] < 0)
            has = np.flatnonzero(is_missing[cycle_of] & isr.have(replicas[cycle_of]))
            owners = cycle_of[has]
            is_first = np.diff(owners, prepend=-1) != 0
            found[place, owners[is_first]] = later[has[is_first]]
        return found

    def _shrinks(self) -> Vector:
        """Return for each row of a running reassignment whether the ISR lost a replica."""
        rows = np.flatnonzero(self.isr.given & self.ran)
        before = self.isr.at(self.isr_at[rows - 1]).side_by_side()
        found = np.zeros(len(self.ran), bool)
        found[rows] = ~before.within(self.isr.at(rows).side_by_side())
        return found

    def tables(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield rows of reassignments, of their replicas and of states."""
        if len(self.cycles.start):
            yield from self._reassignments()
        yield from self._states()

    def _reassignments(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        cycles, partitions = self.cycles, self.of[self.cycles.start]
        start, end, stop = cycles.start, cycles.end, cycles.stop
        is_ended, is_settled = end >= 0, cycles.status >= _COMPLETED
        moved = self.leader_given & self.ran & (self.leader != self.leader[_before(self.leader_at)])
        shrunk_until = np.where(is_ended, end - 1, stop)
        steps_back = _before(self.ts_ms) > self.ts_ms
        start_ms, end_ms = self.ts_ms[start], self.ts_ms[end]
        names = self._names(partitions)
        ids = self._ids(names, partitions, pa.array(self.offset[start]))
        n_adding = pa.array(cycles.adding.counts.astype(np.int32))
        topics = self._topics(partitions)
        nothing = np.zeros(len(start), bool)
        columns = {
            "reassignment_id": ids,
            "topic": topics["topic"],
            "partition": pa.array(self.rows.partition[start]),
            "start_offset": pa.array(self.offset[start]),
            "start_ms": pa.array(start_ms),
            "end_offset": pa.array(self.offset[end], mask=~is_ended),
            "end_ms": pa.array(end_ms, mask=~is_ended),
            "status": pa.array(_STATUSES).take(pa.array(cycles.status)),
            "superseded_by": self._ids(names, partitions, pa.array(self.offset[end], mask=cycles.status != _SUPERSEDED)),
            "orig": cycles.orig.arrow(),
            "target": cycles.target.arrow(),
            "adding": cycles.adding.arrow(),
            "removing": cycles.removing.arrow(),
            "n_adding": n_adding,
            "duration_ms": pa.array(np.maximum(0, end_ms - start_ms), mask=~is_ended),
            "rf_before": pa.array(cycles.orig.counts.astype(np.int32)),
            "rf_after": pa.array(self.replicas.counts[self.replicas_at[end]].astype(np.int32), mask=~is_settled),
            "leader_changes": pa.array(_between(moved, start, stop).astype(np.int32)),
            "isr_shrinks": pa.array(_between(self._shrinks(), start, shrunk_until).astype(np.int32)),
            "truncated_left": pa.array(nothing),
            "clock_skew": pa.array(_between(steps_back, start, stop) > 0),
            "topic_id": topics["topic_id"],
            "requested": cycles.target.arrow(),
        }
        kept = pa.array(~self.is_odd[partitions])
        yield REASSIGNMENTS, batch_of_columns(REASSIGNMENTS, columns).filter(kept)
        replicas, owners = self._replicas(ids)
        yield REPLICAS, replicas.filter(kept.take(pa.array(owners)))

    def _replicas(self, ids: pa.Array) -> tuple[pa.RecordBatch, Vector]:
        """Return the rows, and the number of each row's cycle."""
        cycles = self.cycles
        adding, removing = cycles.adding, cycles.removing
        owners, within = spread(adding.counts + removing.counts)
        is_adding = within < adding.counts[owners]
        of_adding = np.where(is_adding, adding.starts[owners] + within, 0)
        of_removing = np.where(is_adding, 0, removing.starts[owners] + within - adding.counts[owners])
        caught_up = np.full(len(owners), -1, np.int64)
        caught_up[is_adding] = self._caught_up(adding.side_by_side())[within[is_adding], owners[is_adding]]
        is_never = caught_up < 0
        ts_ms = self.ts_ms[caught_up]
        columns = {
            "reassignment_id": ids.take(pa.array(owners)),
            "replica": pa.array(np.where(is_adding, _taken(adding.pool, of_adding), _taken(removing.pool, of_removing))),
            "role": pa.array((REMOVING, ADDING)).take(pa.array(is_adding.astype(np.int8))),
            "caught_up_offset": pa.array(self.offset[caught_up], mask=is_never),
            "caught_up_ms": pa.array(ts_ms, mask=is_never),
            "lag_ms": pa.array(np.maximum(0, ts_ms - self.ts_ms[cycles.start[owners]]), mask=is_never),
            "dir_id": pa.nulls(len(owners), pa.string()),
        }
        return batch_of_columns(REPLICAS, columns), owners

    def _states(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        partitions = np.flatnonzero(~self.is_odd)
        last = self.lasts[partitions]
        directories = _chunk(self.rows.table, "directories").is_valid().to_numpy(zero_copy_only=False)[self.rows.order]
        is_empty = self.rows.any_of(directories)[partitions]
        ends = pa.array(np.zeros(len(last) + 1, np.int32))
        has_factor = ~self.runs | (self.original.counts > 0)
        settled = np.where(self.runs, self.original.counts, self.replicas.counts[self.replicas_at])
        touches = self.replicas.given | self.adding.given | self.removing.given
        columns = {
            **self._topics(partitions),
            "partition": pa.array(self.rows.partition[last]),
            "replicas": self.replicas.at(self.replicas_at[last]).arrow(),
            "isr": self.isr.at(self.isr_at[last]).arrow(),
            "leader": pa.array(self.leader[self.leader_at[last]]),
            "adding": self.adding.at(self.adding_at[last]).arrow(),
            "removing": self.removing.at(self.removing_at[last]).arrow(),
            "directories": pa.ListArray.from_arrays(
                ends, pa.array([], pa.string()), type=arrow_schema(STATE).field("directories").type, mask=pa.array(~is_empty)
            ),
            "rf_settled": pa.array(settled[_last(touches & has_factor)[last]].astype(np.int32)),
            "since_offset": pa.array(self.offset[last]),
        }
        yield STATE, batch_of_columns(STATE, columns)

    def _topics(self, partitions: Vector) -> dict[str, pa.Array]:
        """Return ids and names from the partitions' first rows."""
        rows = pa.array(self.rows.order[self.rows.firsts[partitions]])
        return {name: _chunk(self.rows.table, name).take(rows) for name in ("topic_id", "topic")}

    def _names(self, partitions: Vector) -> pa.Array:
        """Return the beginnings of reassignment ids: the topic's name, or its id if it has no name."""
        topics = self._topics(partitions)
        has_name = pc.fill_null(pc.not_equal(topics["topic"], ""), False)
        return pc.if_else(has_name, topics["topic"], topics["topic_id"])

    def _ids(self, names: pa.Array, partitions: Vector, offsets: pa.Array) -> pa.Array:
        numbers = pa.array(self.rows.partition[self.rows.firsts[partitions]])
        return pc.binary_join_element_wise(names, numbers.cast(pa.string()), offsets.cast(pa.string()), ":")


def _last(given: Vector) -> Vector:
    """Return for each row the last row at or before it that is given, if there is one."""
    return np.maximum.accumulate(np.where(given, np.arange(len(given)), 0)) if len(given) else np.zeros(0, np.int64)


def _before(values: Vector) -> Vector:
    """Return for each row the value of the row before it; the first row keeps its own."""
    return np.concatenate([values[:1], values[:-1]])


def _between(of_rows: Vector, after: Vector, until: Vector) -> Vector:
    """Return how many marked rows there are after row `after` and up to row `until`."""
    counts = np.cumsum(of_rows)
    found: Vector = counts[until] - counts[after]
    return found


def _taken(pool: Vector, places: Vector) -> Vector:
    return pool[places] if len(pool) else np.zeros(len(places), np.int32)
