"""Records on the wire: one MessagePack array per batch, readable without schemas. An unknown type or version stops the node."""

from __future__ import annotations

import typing
from collections.abc import Callable

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.metadata import codec
from kraftlab.metadata.codec import UnknownRecord, UnreadableRecords
from kraftlab.metadata.records import AnyRecord, Config, NoOp, PartitionChange, Record, Topic

TOPIC_ID = bytes(range(16))


@given(st.integers(0, 10_000), st.integers(1, 60))
def test_written_records_are_read_back(history: Callable[[int, int], list[AnyRecord]], seed: int, length: int) -> None:
    records = history(seed, length)
    body, record_count = codec.encode(records)
    assert record_count == len(records)
    assert codec.decode(body, 7, record_count) == records


def test_a_reader_without_schemas_sees_type_version_and_fields() -> None:
    body, _ = codec.encode([Topic(0, "foo", TOPIC_ID), PartitionChange(0, 3, TOPIC_ID, isr=(1, 2), leader=-1), NoOp(0)])
    assert msgpack.unpackb(body) == [
        [2, 0, "foo", TOPIC_ID],
        [5, 0, 3, TOPIC_ID, [1, 2], -1, None, None, None, None, None, None, None, None, None],
        [20, 0],
    ]


def test_a_writer_without_schemas_is_understood() -> None:
    body = msgpack.packb([[4, 0, 2, "foo", "segment.bytes", None], [5, 0, 3, TOPIC_ID, [1]]])
    assert codec.decode(body) == [Config(0, 2, "foo", "segment.bytes", None), PartitionChange(0, 3, TOPIC_ID, isr=(1,))]


def test_types_are_those_of_the_wire_and_none_is_used_twice() -> None:
    kinds: tuple[type[Record], ...] = typing.get_args(AnyRecord)
    assert [kind.TYPE for kind in kinds] == [kind.__struct_config__.tag for kind in kinds]
    assert sorted({kind.TYPE for kind in kinds}) == sorted(codec.HIGHEST_VERSION) and len(codec.HIGHEST_VERSION) == len(kinds)


@pytest.mark.parametrize(
    ("record", "record_type", "version"), [([999, 0, 1], 999, 0), ([20, 1], 20, 1), ([2, -1, "a", TOPIC_ID], 2, -1)]
)
def test_an_unknown_type_or_version_names_record_offset_and_next_step(
    record: list[object], record_type: int, version: int
) -> None:
    body = msgpack.packb([[20, 0], record, [20, 0]])
    message = rf"offset 101 has type {record_type} version {version}: .*must stop: run the software"
    with pytest.raises(UnknownRecord, match=message) as error:
        codec.decode(body, 100)
    assert (error.value.record_type, error.value.version, error.value.offset) == (record_type, version, 101)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgpack.packb({"a": 1}),
        msgpack.packb([1, 2]),
        msgpack.packb([[2, 0, "name", b"short id"]]),
        msgpack.packb([[2, 0, 5, TOPIC_ID]]),
        codec.encode([NoOp(0)])[0] + b"\x00",
        b"\x91\x94\x02\x00\xa2\xff\xff\xc4\x10" + TOPIC_ID,
        b"\x91\x95\x02\x00\xa1t\xc4\x10" + TOPIC_ID + b"\x91" * 100_000 + b"\xc0",
    ],
)
def test_a_body_that_is_no_list_of_records_is_unreadable(body: bytes) -> None:
    with pytest.raises(UnreadableRecords, match=r"metadata batch at offset 9 .*must stop"):
        codec.decode(body, 9)


@pytest.mark.parametrize("body", [msgpack.packb([[]]), msgpack.packb([["2", 0]]), msgpack.packb([[2, "0", "name", TOPIC_ID]])])
def test_a_record_without_a_numeric_type_and_version_is_unknown(body: bytes) -> None:
    with pytest.raises(UnknownRecord):
        codec.decode(body)


def test_the_headers_record_count_must_hold() -> None:
    body, _ = codec.encode([NoOp(0), NoOp(0)])
    with pytest.raises(UnreadableRecords, match="offset 4 holds 2 records, its header says 3"):
        codec.decode(body, 4, 3)


@given(st.binary(max_size=64))
def test_arbitrary_bytes_are_records_or_refused(body: bytes) -> None:
    try:
        records = codec.decode(body)
    except UnreadableRecords:
        return
    assert msgspec.msgpack.decode(codec.encode(records)[0], type=list[AnyRecord]) == records


def test_a_record_prints_as_one_line_without_its_defaults() -> None:
    record = PartitionChange(0, 3, TOPIC_ID, isr=(1, 2), leader=-1)
    assert repr(record) == "PartitionChange(partition_id=3 topic_id=AAECAwQFBgcICQoLDA0ODw isr=[1,2] leader=-1)"
