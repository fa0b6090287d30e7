"""Columns of whole batches say what the records' own types say, and take no batch that those would read differently."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.metadata import records as r
from kraftlab.metadata.codec import decode, encode
from kraftlab.pipeline.own_log.columns import TYPES, Bodies, Column, Integers, Lists, Texts, records_of

ID = bytes(range(16))
CHANGE = r.PartitionChange(0, 1, ID, isr=(1, 300, -1), leader=2, removing_replicas=(), directories=(ID, bytes(16)))
PARTITION = r.Partition(0, 70_000, ID, (1, 2, 3), (1,), leader=-1, target_replicas=(4,))

_UUIDS = st.binary(min_size=16, max_size=16) | st.just(b"\x9f\x05\x00" * 5 + b"\x9f")
_LEADERS = st.integers(-1, 70) | st.integers(-(2**31), 2**32)


def _lists(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=4).map(tuple) | st.lists(items, max_size=17).map(tuple)


def _values(hint: str, name: str) -> st.SearchStrategy[Any]:
    kinds = {
        "int": st.integers(0, 200) | _LEADERS,
        "Uuid": _UUIDS,
        "str": st.text(max_size=9) | st.text(st.characters(max_codepoint=127), max_size=300),
        "tuple[int, ...]": _lists(_LEADERS),
        "tuple[Uuid, ...]": _lists(_UUIDS),
    }
    bare = hint.removesuffix(" | None")
    return kinds[bare] if bare == hint else st.none() | kinds[bare]


def _records(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = {name: hint for name, hint in kind.__annotations__.items() if name not in ("TYPE", "version")}
    return st.builds(kind, version=st.just(0), **{name: _values(hint, name) for name, hint in hints.items()})


_BODIES = st.one_of(*(st.lists(_records(kind), min_size=1, max_size=20) for kind in TYPES)).map(encode)


def _bodies(*found: tuple[bytes, int]) -> Bodies:
    """Bodies in one buffer, with other bytes between them."""
    parts, starts, ends = [b"\x9f\x05\x00"], [], []
    for body, _ in found:
        starts.append(sum(map(len, parts)))
        parts += [body, b"\xdc\x00\x11\x03\x00\x9f"]
        ends.append(starts[-1] + len(body))
    counts = np.array([count for _, count in found], np.int64)
    return Bodies(np.frombuffer(b"".join(parts), np.uint8), np.array(starts, np.int64), np.array(ends, np.int64), counts)


def _cells(column: Column) -> list[Any]:
    match column:
        case Integers(values, given):
            return [value if has else None for value, has in zip(values.tolist(), _given(given, len(values)), strict=True)]
        case Lists(items, counts, given):
            values = [item.tobytes() for item in items] if items.ndim == 2 else items.tolist()
            ends = np.cumsum(counts).tolist()
            found = [tuple(values[end - count : end]) for end, count in zip(ends, counts.tolist(), strict=True)]
            return [cell if has else None for cell, has in zip(found, _given(given, len(counts)), strict=True)]
        case Texts(data, counts):
            ends = np.cumsum(counts).tolist()
            return [data.tobytes()[end - count : end].decode() for end, count in zip(ends, counts.tolist(), strict=True)]
        case _:
            return [value.tobytes() for value in column.values]


def _given(given: Any, count: int) -> list[bool]:
    return [True] * count if given is None else given.tolist()


def _taken(*found: tuple[bytes, int]) -> dict[int, list[Any]]:
    """Number of a body → its records, of those that are taken."""
    bodies, taken = _bodies(*found), {}
    for kind in TYPES:
        records = records_of(kind, bodies)
        if records is None:
            continue
        columns = {name: _cells(column) for name, column in records.columns.items()}
        rows = [kind(0, **dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
        for number in records.numbers.tolist():
            count = found[number][1]
            taken[number], rows = rows[:count], rows[count:]
        assert not rows
    return taken


def _is_plain(record: Any) -> bool:
    """Return whether the columns should take it: short lists of small numbers, and no bytes that look like another record."""
    lists = [value for value in msgspec.structs.astuple(record) if isinstance(value, tuple)]
    numbers = [value for value in msgspec.structs.astuple(record) if isinstance(value, int)]
    numbers += [item for each in lists for item in each if isinstance(item, int)]
    body = msgspec.msgpack.encode(record)
    is_alone = sum(map(body.count, (b"\x9f\x05\x00", b"\xdc\x00\x11\x03\x00", b"\x94\x02\x00"))) == 1
    name = getattr(record, "name", "")
    return (
        name.isascii()
        and len(name) < 256
        and is_alone
        and all(len(each) <= 15 for each in lists)
        and all(-(2**31) <= number < 2**31 for number in numbers)
    )


@settings(max_examples=12, deadline=None)
@given(st.lists(_BODIES, min_size=1, max_size=4))
def test_what_is_taken_is_what_the_types_decode(found: list[tuple[bytes, int]]) -> None:
    taken = _taken(*found)
    for number, (body, _) in enumerate(found):
        records = decode(body)
        if number in taken:
            assert taken[number] == records
        else:
            assert not all(map(_is_plain, records))


@settings(deadline=None)
@given(_BODIES, st.data())
def test_a_body_with_a_changed_byte_is_taken_only_if_its_types_decode_the_same(
    found: tuple[bytes, int], data: st.DataObject
) -> None:
    body, count = found
    place = data.draw(st.integers(0, len(body) - 1))
    changed = body[:place] + bytes([data.draw(st.integers(0, 255))]) + body[place + 1 :]
    for records in _taken((changed, count)).values():
        assert records == decode(changed, record_count=count)


@pytest.mark.parametrize("record", [CHANGE, PARTITION, r.Topic(0, "orders", ID)], ids=["change", "partition", "topic"])
def test_batches_of_any_length_are_taken(record: Any) -> None:
    found = [encode([record] * count) for count in (1, 15, 16, 300)]
    assert _taken(*found) == {number: [record] * count for number, (_, count) in enumerate(found)}


def _with_head(head: bytes, record: Any) -> tuple[bytes, int]:
    return head + msgspec.msgpack.encode(record), 1


LEFT = {
    "records of two types": encode([CHANGE, PARTITION]),
    "another record among them": encode([CHANGE, r.NoOp(0), CHANGE]),
    "fewer records than the header says": (encode([CHANGE])[0], 2),
    "more records than the header says": (encode([CHANGE, CHANGE])[0], 1),
    "a head that says more": _with_head(b"\x92", CHANGE),
    "bytes left over": (encode([CHANGE])[0] + b"\xc0", 1),
    "a record cut short": (encode([CHANGE])[0][:-1], 1),
    "a list of sixteen": encode([r.PartitionChange(0, 1, ID, isr=tuple(range(16)))]),
    "a number of 33 bits": encode([r.PartitionChange(0, 2**32, ID)]),
    "a version that is not known": encode([r.PartitionChange(1, 2, ID)]),
    "a null that may not be": (msgspec.msgpack.encode([[5, 0, None, ID, *[None] * 11]]), 1),
    "a null within a list": (msgspec.msgpack.encode([[5, 0, 1, ID, [None], *[None] * 10]]), 1),
    "a uuid of 15 bytes": (msgspec.msgpack.encode([[5, 0, 1, ID[1:], *[None] * 11]]), 1),
    "fields left out": (msgspec.msgpack.encode([[5, 0, 1, ID]]), 1),
    "a name that is not ASCII": encode([r.Topic(0, "é", ID)]),
    "a name that is no text": (msgspec.msgpack.encode([[2, 0, b"orders", ID]]), 1),
    "nothing": (b"", 1),
}


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT.keys())
def test_any_other_batch_is_left_and_takes_no_neighbour_with_it(left: tuple[bytes, int]) -> None:
    assert _taken(encode([CHANGE]), left, encode([CHANGE] * 2)) == {0: [CHANGE], 2: [CHANGE] * 2}


def test_an_array_head_of_32_bits_is_read_too() -> None:
    assert _taken(_with_head(b"\xdd\0\0\0\1", CHANGE)) == {0: [CHANGE]}
