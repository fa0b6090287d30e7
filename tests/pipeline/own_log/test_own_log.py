"""Our own logs read without a node: every record type, what is unknown, what is damaged."""

from __future__ import annotations

import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import msgspec
import pytest

from kraftlab.metadata import records as r
from kraftlab.pipeline.framing import UNWRITTEN
from kraftlab.pipeline.kraft_log.batches import Batch, ControlRecord, Damage, Record, UndecodedRecord
from kraftlab.pipeline.own_log.reader import read_file
from kraftlab.pipeline.own_log.records import RECORD_NAMES, decode_body
from kraftlab.quorum.core import batch as own_batch
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES

ID = bytes(range(16))
ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


def _has_bytes(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, bytes) or any(map(_has_bytes, items))


def _decode(*records: list[Any]) -> list[Any]:
    return decode_body(msgpack.packb(list(records)), 10, len(records), 5, False)


def test_types_that_kafka_has_carry_its_names() -> None:
    assert RECORD_NAMES[5] == "PARTITION_CHANGE_RECORD"
    assert RECORD_NAMES[18] == "ACCESS_CONTROL_ENTRY_RECORD"
    assert RECORD_NAMES[20] == "NO_OP_RECORD"
    assert RECORD_NAMES[1000] == "REQUEST_OUTCOME_RECORD"


@pytest.mark.parametrize("kind", typing.get_args(r.AnyRecord), ids=lambda kind: kind.__name__)
def test_every_type_decodes_to_its_fields(kind: type[msgspec.Struct]) -> None:
    examples = {int: 7, str: "text", bytes: ID, bool: True, float: 1.5}

    def example(hint: Any) -> Any:
        if hint in examples:
            return examples[hint]
        if typing.get_origin(hint) is typing.Annotated:
            return ID
        if typing.get_origin(hint) is tuple:
            arguments = typing.get_args(hint)
            return tuple(example(each) for each in arguments if each is not ...)
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return make(hint)
        return example(typing.get_args(hint)[0])

    def make(struct: type[msgspec.Struct]) -> msgspec.Struct:
        hints = typing.get_type_hints(struct, include_extras=True)
        values = {name: example(hint) for name, hint in hints.items() if name in struct.__struct_fields__}
        values |= {field.name: False for field in msgspec.structs.fields(struct) if field.default is True}
        return struct(**values | ({"version": 0} if "version" in values else {}))

    body = msgspec.msgpack.encode([make(kind)])
    (found,) = decode_body(body, 3, 1, 9, False)
    assert isinstance(found, Record)
    assert (found.offset, found.timestamp_ms, found.type) == (3, 9, RECORD_NAMES[kind.TYPE])  # type: ignore[attr-defined]
    assert not _has_bytes(found.data)
    plain = {name for name in kind.__struct_fields__ if name != "version"}
    assert len(found.data) == len(plain), "no field holds its default, so none is left out"


def test_defaults_are_left_out_and_ids_are_text() -> None:
    (found,) = _decode([5, 0, 2, ID, None, 3])
    assert found.data == {"partitionId": 2, "topicId": ID_TEXT, "leader": 3}


@pytest.mark.parametrize(
    ("odd", "reason"), [(b"\xa1\xff", "utf-8"), (b"\x91" * 5000 + b"\x90", "recursion")], ids=["text", "depth"]
)
def test_a_record_whose_text_is_none_or_that_is_too_deep_is_kept(odd: bytes, reason: str) -> None:
    raw = b"\x94\x02\x00" + odd + b"\xc4\x10" + ID
    found = decode_body(b"\x92" + msgpack.packb([20, 0]) + raw, 10, 2, 5, False)
    assert reason in found[-1].error.lower()  # type: ignore[union-attr]
    for known in (False, True):
        found = decode_body(b"\x91" + raw, 10, 1, 5, known)
        assert all(isinstance(each, UndecodedRecord) for each in found)


def test_the_type_of_a_record_whose_text_is_none_is_known() -> None:
    (found,) = decode_body(b"\x91\x94\x02\x00\xa1\xff\xc4\x10" + ID, 10, 1, 5, False)
    assert isinstance(found, UndecodedRecord)
    assert (found.type_number, found.version, found.error.partition(":")[0]) == (2, 0, "Topic")


def test_an_unknown_record_is_among_the_others_with_its_bytes() -> None:
    first, newer, unknown, odd, last = _decode([20, 0], [2, 1, "t", ID], [777, 3, "x"], [2, 0, 5, ID], [20, 0])
    assert isinstance(first, Record)
    assert isinstance(last, Record)
    assert (newer.type_number, newer.version, newer.offset) == (2, 1, 11)
    assert newer.error == "unknown version 1 of TOPIC_RECORD; versions 0 to 0 are known"
    assert (unknown.type_number, unknown.version, unknown.error) == (777, 3, "unknown record type 777")
    assert msgpack.unpackb(unknown.raw) == [777, 3, "x"]
    assert "Topic: " in odd.error
    assert odd.offset == 13


@pytest.mark.parametrize(
    ("body", "count", "error"),
    [
        (b"\xc1", 1, "not an array of records"),
        (msgpack.packb([[20, 0]]), 2, "holds 1 records, the header counts 2"),
        (msgpack.packb([[20, 0]] * 3), 2, "holds 3 records, the header counts 2"),
        (msgpack.packb(["text"]), 1, "begins with its type's number"),
        (msgpack.packb([[2**40, 0]]), 1, "unknown record type"),
    ],
)
def test_a_body_that_does_not_fit_its_header_keeps_its_bytes(body: bytes, count: int, error: str) -> None:
    found = decode_body(body, 0, count, 1, False)
    assert any(isinstance(record, UndecodedRecord) and error in record.error for record in found)
    assert len(found) >= count or len(found) == 1


def test_a_segment_is_its_page_its_batches_and_what_was_reserved(own_log: Callable[..., Any]) -> None:
    log = own_log()
    path = log.segment([[r.NoOp(0)], [r.Topic(0, "a", ID), r.NoOp(0)]], zeros=300)
    first, second, rest = read_file(path)
    assert isinstance(first, Batch)
    assert first.position == HEADER_PAGE_BYTES
    assert isinstance(second, Batch)
    assert [record.offset for record in second.records] == [1, 2]
    assert isinstance(rest, Damage)
    assert (rest.status, rest.size_bytes) == (UNWRITTEN, 300)


def test_a_snapshot_begins_with_its_header_and_counts_from_zero(own_log: Callable[..., Any]) -> None:
    path = own_log().snapshot(50, [r.Topic(0, "a", ID), r.Topic(0, "b", ID), r.NoOp(0)])
    batches = list(read_file(path))
    assert all(isinstance(each, Batch) for each in batches)
    records = [record for each in batches for record in each.records]  # type: ignore[union-attr]
    assert [record.offset for record in records] == list(range(5))
    assert isinstance(records[0], ControlRecord)
    assert records[0].control == "SnapshotHeader"
    assert records[0].data["clusterId"] == "test-cluster"


def test_a_control_batch_shows_voters_with_their_directories(own_log: Callable[..., Any]) -> None:
    log = own_log()
    data = log.batch([own_batch.LeaderChange(0, 3, (1, 2, 3), (1, 3))], control=True)
    (found, *_) = read_file(log.segment(data, base_offset=0))
    assert isinstance(found, Batch)
    assert found.records[0].data == {"version": 0, "leaderId": 3, "voters": (1, 2, 3), "grantingVoters": (1, 3)}  # type: ignore[union-attr]


def test_a_rotten_header_page_hides_no_batch(own_log: Callable[..., Any]) -> None:
    path = own_log().segment([[r.NoOp(0)], [r.NoOp(0)]])
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    page, first, second, _ = read_file(path)
    assert isinstance(page, Damage)
    assert (page.position, page.size_bytes, page.status) == (0, HEADER_PAGE_BYTES, "bad_header")
    assert isinstance(first, Batch)
    assert isinstance(second, Batch)


@pytest.mark.parametrize(("size", "status"), [(100, "torn"), (0, None)])
def test_a_segment_that_was_hardly_begun(own_log: Callable[..., Any], size: int, status: str | None) -> None:
    path = own_log().segment([], zeros=0)
    path.write_bytes(path.read_bytes()[:size])
    found = list(read_file(path))
    assert [entry.status for entry in found if isinstance(entry, Damage)] == ([status] if status else [])


def test_a_rotten_batch_is_one_damage_and_the_next_is_read(own_log: Callable[..., Any]) -> None:
    path = own_log().segment([[r.NoOp(0)], [r.Topic(0, "x" * 100, ID)], [r.NoOp(0)]])
    data = bytearray(path.read_bytes())
    at = data.index(b"xxx")
    data[at] ^= 0xFF
    path.write_bytes(data)
    _, bad, last, _ = read_file(path)
    assert isinstance(bad, Damage)
    assert bad.status == "bad_crc"
    assert isinstance(last, Batch)
    assert last.base_offset == 2
    assert bad.position + bad.size_bytes == last.position


def _covered(path: Path) -> int:
    """Bytes that entries cover without gap or overlap, the header page included."""
    position = 0
    for entry in read_file(path):
        if position == 0 and entry.position == HEADER_PAGE_BYTES:
            position = HEADER_PAGE_BYTES
        assert entry.position == position
        position += entry.size_bytes
    return position


def test_whichever_byte_is_flipped_every_byte_is_reported(own_log: Callable[..., Any], tmp_path: Path) -> None:
    path = own_log().segment([[r.Topic(0, "a", ID)], [r.PartitionChange(0, 1, ID, isr=(1, 2))], [r.NoOp(0)]], zeros=70)
    whole = path.read_bytes()
    other = tmp_path / path.name
    for at in (*range(0, 140, 3), *range(HEADER_PAGE_BYTES - 4, len(whole))):
        data = bytearray(whole)
        data[at] ^= 0x5A
        other.write_bytes(data)
        assert _covered(other) == len(whole), at


def test_wherever_it_is_cut_every_byte_is_reported(own_log: Callable[..., Any], tmp_path: Path) -> None:
    path = own_log().segment([[r.Topic(0, "a", ID)], [r.NoOp(0)]], zeros=0)
    whole = path.read_bytes()
    other = tmp_path / path.name
    for size in (*range(0, HEADER_PAGE_BYTES, 501), *range(HEADER_PAGE_BYTES, len(whole) + 1)):
        other.write_bytes(whole[:size])
        assert _covered(other) in (size, 0) or size == HEADER_PAGE_BYTES
        if size > HEADER_PAGE_BYTES:
            assert _covered(other) == size


@pytest.mark.parametrize("zeros", [0, 4096])
def test_a_snapshot_that_ends_before_its_footer_is_torn_there(own_log: Callable[..., Any], zeros: int) -> None:
    path = own_log().snapshot(40, [r.Topic(0, name, ID) for name in "abc"])
    whole = path.read_bytes()
    batches = list(read_file(path))
    assert all(isinstance(each, Batch) for each in batches)

    for end in (each.position for each in batches):
        path.write_bytes(whole[:end] + bytes(zeros))
        damage = list(read_file(path))[-1]
        assert isinstance(damage, Damage)
        assert (damage.position, damage.status) == (end + zeros, "torn")
        assert "without its footer" in damage.error
