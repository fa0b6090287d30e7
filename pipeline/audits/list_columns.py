"""Columns of short lists of numbers, compared and combined by the column.

A list is a stretch of a pool of values: a start and a length. So lists are chosen and repeated without touching their values. For
comparisons of members the lists of all rows are laid out side by side, padded to the longest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..own_log.columns import Vector, spread

PAD = -(1 << 31)
"""Fills the places after the end of a list. No list that is compared here contains it."""
_TYPE = pa.list_(pa.field("element", pa.int32()))


class Lists(NamedTuple):
    """One list per row: `counts` items of `pool` from `starts` on. A null list has no items and is not `given`."""

    pool: Vector
    starts: Vector
    counts: Vector
    given: Vector

    def at(self, rows: Vector) -> Lists:
        """Return the lists of some rows."""
        return Lists(self.pool, self.starts[rows], self.counts[rows], self.given[rows])

    def or_else(self, others: Lists) -> Lists:
        """Return these lists, with the others in place of empty ones."""
        has = self.counts > 0
        starts = np.where(has, self.starts, others.starts + len(self.pool))
        pool = np.concatenate([self.pool, others.pool])
        return Lists(pool, starts, np.where(has, self.counts, others.counts), has | others.given)

    def side_by_side(self) -> Members:
        """Return all lists, padded: row k has the k-th items."""
        width = int(self.counts.max(initial=0))
        places = np.arange(width)[:, None]
        if not len(self.pool):
            return Members(np.full((width, len(self.counts)), PAD, np.int32), self.counts)
        items = self.pool.take(self.starts + places, mode="clip")
        items[places >= self.counts] = PAD
        return Members(items, self.counts)

    def arrow(self) -> pa.ListArray:
        """Return the lists as Arrow, without nulls."""
        owners, within = spread(self.counts)
        ends = np.concatenate(([0], np.cumsum(self.counts))).astype(np.int32)
        values = self.pool[self.starts[owners] + within]
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(values, pa.int32()), type=_TYPE)


class Members(NamedTuple):
    """Lists side by side: `items` of [place, row]."""

    items: Vector
    counts: Vector

    def at(self, rows: Vector) -> Members:
        return Members(self.items[:, rows], self.counts[rows])

    def have(self, values: Vector) -> Vector:
        """Return row by row whether the list has this value."""
        found = np.zeros(len(values), bool)
        for items in self.items:
            found |= items == values
        return found

    def within(self, *others: Members) -> Vector:
        """Return row by row whether every item is in one of the others."""
        found = np.ones(len(self.counts), bool)
        for items in self.items:
            is_there = items == PAD
            for other in others:
                is_there |= other.have(items)
            found &= is_there
        return found

    def without(self, others: Members) -> Vector:
        """Return row by row whether no item is in the others."""
        found = np.ones(len(self.counts), bool)
        for items in self.items:
            found &= (items == PAD) | ~others.have(items)
        return found

    def equals(self, others: Members) -> Vector:
        """Return row by row whether both lists are equal."""
        found: Vector = self.counts == others.counts
        for items, other_items in zip(self.items, others.items, strict=False):
            found &= items == other_items
        return found

    def same_as(self, others: Members) -> Vector:
        """Return row by row whether both lists have the same members, in any order."""
        return self.within(others) & others.within(self)

    def minus(self, others: Members) -> Lists:
        """Return the lists without the items of the others."""
        kept = np.stack([(items != PAD) & ~others.have(items) for items in self.items], axis=1) if len(self.items) else None
        if kept is None:
            none = np.zeros(len(self.counts), np.int64)
            return Lists(np.zeros(0, np.int32), none, none, np.ones(len(none), bool))
        counts = kept.sum(axis=1)
        return Lists(self.items.T[kept], np.cumsum(counts) - counts, counts, np.ones(len(counts), bool))


def lists_of(column: pa.ListArray, order: Vector) -> Lists:
    """Return a column of lists without null items, with its rows in this order."""
    ends = column.offsets.to_numpy().astype(np.int64)
    given = np.ones(len(column), bool) if not column.null_count else column.is_valid().to_numpy(zero_copy_only=False)
    counts = np.where(given, np.diff(ends), 0)
    return Lists(column.values.to_numpy(), ends[:-1][order], counts[order], given[order])
