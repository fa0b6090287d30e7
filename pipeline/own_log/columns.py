"""Whole batches of topics' and partitions' records as columns, without one Python object per record.

Theory of operation. Most batches of a log have records of one type, written in full by our encoder: an array of the type's
length, the type's number, version 0. All records of many such batches are decoded side by side. A vector holds the position of
each record's next byte; field by field (`_FIELDS`, derived from the types) the bytes there become a column and the positions
advance. Lists become their items one after the other and a count per record.

The beginnings of records are guessed: every place in a body with the type's first bytes. The guess is verified afterwards. A
batch is taken only if its first record begins after the array's head, each record ends where the next begins, the last one ends
where the body ends, and their number is that of the array's head and of the batch's header. Then they are the batch's records,
since each was decoded from the end of the one before it.

A batch that fails, or has any value of an unusual form (an integer of 64 bits, a list of more than 15 items, a name that is not
ASCII, a forbidden null), is left to `records`, which also names its faults. So everything decoded here is accepted, and read the
same, by the types of a node.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from kraftlab.common.uuids import Uuid
from kraftlab.metadata.records import Partition, PartitionChange, Topic

Vector = np.ndarray[Any, Any]
AnyRecord = PartitionChange | Partition | Topic

_NIL, _BIN8, _ARRAY16, _ARRAY32 = 0xC0, 0xC4, 0xDC, 0xDD
_FIX_END, _NEGATIVE = 0x80, 0xE0
_FIXARRAY, _FIXARRAY_END = 0x90, 0xA0
_FIXSTR, _STR8 = 0xA0, 0xD9
_UUID_BYTES = 16
_INT32_END = 1 << 31
_WIDE = {0xCC: ">u1", 0xCD: ">u2", 0xCE: ">u4", 0xD0: ">i1", 0xD1: ">i2", 0xD2: ">i4"}
"""First byte of an integer → the type of the bytes after it."""


class Bodies(NamedTuple):
    """Bodies of data batches: [start, end) of each in `data`, which is bytes, and the number of records in its header."""

    data: Vector
    starts: Vector
    ends: Vector
    counts: Vector

    def only(self, numbers: Vector) -> Bodies:
        return Bodies(self.data, self.starts[numbers], self.ends[numbers], self.counts[numbers])


class Integers(NamedTuple):
    """A column of int32. The field is null where `given` is False; if `given` is None it never is."""

    values: Vector
    given: Vector | None


class Lists(NamedTuple):
    """A column of lists: all items one after the other, int32 or rows of 16 bytes, and the number of items per record."""

    items: Vector
    counts: Vector
    given: Vector | None


class Uuids(NamedTuple):
    """A column of uuids, as rows of 16 bytes."""

    values: Vector


class Texts(NamedTuple):
    """A column of ASCII texts: all their bytes one after the other, and the length of each."""

    data: Vector
    counts: Vector


Column = Integers | Lists | Uuids | Texts


class Records(NamedTuple):
    """The records of some of the bodies: the numbers of the bodies, in order, and every field of all their
    records by its name.
    """

    numbers: Vector
    columns: Mapping[str, Column]


class _Reader:
    """The records that begin at some places, read field by field. `at` is the beginning of each record's next field. `is_good`
    tells whether all its fields so far had a supported form; the values of other records are garbage, but from within the
    data.
    """

    def __init__(self, data: Vector, at: Vector) -> None:
        self._data = data
        self.at = at
        self.is_good = np.ones(len(at), bool)

    def integers(self, *, may_be_null: bool) -> Integers:
        values, sizes, given, is_good = self._numbers(self.at)
        self.at = self.at + sizes
        if is_good is not None:
            self.is_good &= is_good
        if given is not None and not may_be_null:
            self.is_good &= given
        return Integers(values, given)

    def texts(self) -> Texts:
        first = self._bytes(self.at)
        is_short, is_long = (first >= _FIXSTR) & (first < _NIL), first == _STR8
        self.is_good &= is_short | is_long
        counts = np.where(is_short, first - _FIXSTR, np.where(is_long, self._bytes(self.at + 1), 0)).astype(np.int64)
        self.at = self.at + 1 + is_long
        owners, within = spread(counts)
        data = self._bytes(self.at[owners] + within)
        self.is_good[owners[data >= _FIX_END]] = False
        self.at = self.at + counts
        return Texts(data, counts)

    def uuids(self) -> Uuids:
        values, is_good = self._raw(self.at)
        self.is_good &= is_good
        self.at = self.at + (_UUID_BYTES + 2)
        return Uuids(values)

    def lists_of_integers(self, *, may_be_null: bool) -> Lists:
        counts, given = self._heads(may_be_null=may_be_null)
        owners, within = spread(counts)
        items = self._bytes(self.at[owners] + within)
        if not items.size or items.max() < _FIX_END:
            self.at = self.at + counts
            return Lists(items.astype(np.int32), counts, given)
        numbers = np.zeros(len(owners), np.int32)
        for place in range(int(counts.max())):
            found = np.flatnonzero(within == place)
            lanes = owners[found]
            values, sizes, present, is_good = self._numbers(self.at[lanes])
            numbers[found] = values
            self.at[lanes] += sizes
            for test in (present, is_good):
                if test is not None:
                    self.is_good[lanes[~test]] = False
        return Lists(numbers, counts, given)

    def lists_of_uuids(self, *, may_be_null: bool) -> Lists:
        counts, given = self._heads(may_be_null=may_be_null)
        owners, within = spread(counts)
        items, is_good = self._raw(self.at[owners] + within * (_UUID_BYTES + 2))
        self.is_good[owners[~is_good]] = False
        self.at = self.at + counts * (_UUID_BYTES + 2)
        return Lists(items, counts, given)

    def _heads(self, *, may_be_null: bool) -> tuple[Vector, Vector | None]:
        """Return how many items the lists have that begin here, and which lists are given."""
        first = self._bytes(self.at)
        is_list = (first >= _FIXARRAY) & (first < _FIXARRAY_END)
        self.at = self.at + 1
        if is_list.all():
            return (first - _FIXARRAY).astype(np.int64), None
        self.is_good &= is_list | (first == _NIL) if may_be_null else is_list
        return np.where(is_list, first - _FIXARRAY, 0).astype(np.int64), is_list

    def _numbers(self, at: Vector) -> tuple[Vector, Vector | int, Vector | None, Vector | None]:
        """Return (values, bytes of each, given, supported). None means all."""
        first = self._bytes(at)
        values = first.astype(np.int32)
        if not first.size or first.max() < _FIX_END:
            return values, 1, None, None
        values[first >= _NEGATIVE] -= 256
        given = first != _NIL
        others = np.flatnonzero(given & (first >= _FIX_END) & (first < _NEGATIVE))
        if not others.size:
            return values, 1, given, None
        sizes, is_good = np.ones(len(at), np.int64), np.ones(len(at), bool)
        is_good[others] = False
        for code, kind in _WIDE.items():
            lanes = others[first[others] == code]
            if lanes.size:
                width = np.dtype(kind).itemsize
                read = self._bytes(at[lanes, None] + np.arange(1, width + 1)).view(kind)[:, 0].astype(np.int64)
                values[lanes] = read.astype(np.int32)
                sizes[lanes] += width
                is_good[lanes] = read < _INT32_END
        return values, sizes, given, is_good

    def _raw(self, at: Vector) -> tuple[Vector, Vector]:
        """Return (16 bytes, whether a head announces them)."""
        is_good = (self._bytes(at) == _BIN8) & (self._bytes(at + 1) == _UUID_BYTES)
        return self._bytes(at[:, None] + np.arange(2, 2 + _UUID_BYTES)), is_good

    def _bytes(self, at: Vector) -> Vector:
        found: Vector = self._data.take(at, mode="clip")
        return found


Read = Callable[[_Reader], Column]


class _Form(NamedTuple):
    """The beginning of a type's records when our encoder writes them in full, and the fields after it."""

    start: bytes
    fields: Mapping[str, Read]


def _read_of(hint: Any) -> Read:
    """Return the reader for a field with this annotation. TypeError for an annotation that no such record has."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    may_be_null = type(None) in options
    (kind,) = (option for option in options if option is not type(None))
    if kind is int:
        return partial(_Reader.integers, may_be_null=may_be_null)
    if kind is Uuid and not may_be_null:
        return _Reader.uuids
    if kind is str and not may_be_null:
        return _Reader.texts
    if kind == tuple[int, ...]:
        return partial(_Reader.lists_of_integers, may_be_null=may_be_null)
    if kind == tuple[Uuid, ...]:
        return partial(_Reader.lists_of_uuids, may_be_null=may_be_null)
    raise TypeError(f"records that are read here have no fields of type {hint}")


def _form(record: AnyRecord) -> _Form:
    hints = typing.get_type_hints(type(record), include_extras=True)
    names = [field.name for field in msgspec.structs.fields(record) if field.name != "version"]
    array_head = 1 if len(names) + 2 < _FIXARRAY_END - _FIXARRAY else 3
    start = msgspec.msgpack.encode(record)[: array_head + 2]
    return _Form(start, {name: _read_of(hints[name]) for name in names})


_FORMS: Mapping[type[AnyRecord], _Form] = {
    PartitionChange: _form(PartitionChange(0, 0, bytes(_UUID_BYTES))),
    Partition: _form(Partition(0, 0, bytes(_UUID_BYTES), (), ())),
    Topic: _form(Topic(0, "", bytes(_UUID_BYTES))),
}
TYPES = tuple(_FORMS)


def records_of(kind: type[AnyRecord], bodies: Bodies) -> Records | None:
    """Return the records of the bodies that hold only this type, in a supported form."""
    form = _FORMS[kind]
    numbers, firsts, lanes = _candidate_places(form.start, bodies)
    while numbers.size:
        reader = _Reader(bodies.data, lanes + len(form.start))
        columns = {name: read(reader) for name, read in form.fields.items()}
        ends = np.append(lanes[1:], 0)
        ends[np.append(firsts[1:], len(lanes)) - 1] = bodies.ends[numbers]
        is_good = np.logical_and.reduceat(reader.is_good & (reader.at == ends), firsts)
        if is_good.all():
            return Records(numbers, columns)
        counts = np.diff(np.append(firsts, len(lanes)))
        lanes = lanes[np.repeat(is_good, counts)]
        numbers, counts = numbers[is_good], counts[is_good]
        firsts = np.cumsum(counts) - counts
    return None


def _candidate_places(start: bytes, bodies: Bodies) -> tuple[Vector, Vector, Vector]:
    """Return (bodies in which as many places look like a record as there are records, the first one after the array's head; the
    number of each one's first place; places).
    """
    data = bodies.data
    heads, lengths = _array_heads(bodies)
    places = places_of(start, data)
    froms, tos = np.searchsorted(places, bodies.starts), np.searchsorted(places, bodies.ends)
    is_likely = (tos - froms == bodies.counts) & (lengths == bodies.counts) & (bodies.counts > 0)
    is_likely[is_likely] = places[froms[is_likely]] == bodies.starts[is_likely] + heads[is_likely]
    numbers = np.flatnonzero(is_likely)
    counts = bodies.counts[numbers]
    owners, within = spread(counts)
    return numbers, np.cumsum(counts) - counts, places[froms[numbers][owners] + within]


def _array_heads(bodies: Bodies) -> tuple[Vector, Vector]:
    """Return (size in bytes, length) of the head of each body's array, with length -1 if there is no array."""
    first = bodies.data.take(bodies.starts, mode="clip").astype(np.int64)
    is_fix = (first >= _FIXARRAY) & (first < _FIXARRAY_END)
    sizes, lengths = np.ones(len(first), np.int64), np.where(is_fix, first - _FIXARRAY, -1)
    for code, kind in ((_ARRAY16, ">u2"), (_ARRAY32, ">u4")):
        lanes = np.flatnonzero(first == code)
        width = np.dtype(kind).itemsize
        raw = bodies.data.take(bodies.starts[lanes, None] + np.arange(1, width + 1), mode="clip")
        sizes[lanes], lengths[lanes] = 1 + width, raw.view(kind)[:, 0]
    return sizes, lengths


def places_of(start: bytes, data: Vector) -> Vector:
    """Return the places of these bytes in the data."""
    last = len(data) - len(start) + 1
    if last <= 0:
        return np.zeros(0, np.int64)
    places = np.flatnonzero(data[:last] == start[0])
    for index, byte in enumerate(start[1:], 1):
        places = places[data[places + index] == byte]
    return places


def spread(counts: Vector) -> tuple[Vector, Vector]:
    """Return (owner, place within its owner) of all items, if each owner has so many."""
    owners = np.repeat(np.arange(len(counts)), counts)
    return owners, np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
