"""Whatever a file holds, batches and damages cover it, and what is sound is read."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.pipeline.kraft_log.batches import Batch, Damage, Record, UndecodedRecord
from kraftlab.pipeline.kraft_log.reader import read_log
from kraftlab.records.record_batch import CRC_FROM, HEADER_BYTES

Make = Callable[..., bytes]
NO_OP = b"\x01\x14\x00\x00"
SNAPSHOT_FOOTER = b"\x00\x00\x00"


def topic(name: str) -> bytes:
    return b"\x01\x02\x00" + bytes([len(name) + 1]) + name.encode() + bytes(16) + b"\0"


def read(data: bytes) -> list[Batch | Damage]:
    return list(read_log(io.BytesIO(data), len(data)))


@pytest.fixture(scope="session")
def segment(batch: Make) -> bytes:
    return (
        batch([b"\x00\x00" + bytes(4) + b"\x01\x01\x00"], control=2)
        + batch([topic("a"), topic("b"), NO_OP], 1)
        + batch([topic("c")], 4)
        + batch([NO_OP] * 3, 5)
    )


def assert_covered(entries: list[Batch | Damage], size: int) -> None:
    position = 0
    for entry in entries:
        assert entry.position == position
        assert entry.size_bytes > 0
        position += entry.size_bytes
    assert position == size


def offsets(entries: list[Batch | Damage]) -> list[int]:
    return [record.offset for entry in entries if isinstance(entry, Batch) for record in entry.records]


def damages(entries: list[Batch | Damage]) -> list[Damage]:
    return [entry for entry in entries if isinstance(entry, Damage)]


def test_a_sound_segment_has_no_damage(segment: bytes) -> None:
    entries = read(segment)

    assert_covered(entries, len(segment))
    assert offsets(entries) == list(range(8))
    assert all(type(record) is not UndecodedRecord for entry in entries if isinstance(entry, Batch) for record in entry.records)


def test_every_byte_flipped_one_by_one_costs_at_most_its_own_batch(segment: bytes) -> None:
    batches = read(segment)
    for position in range(len(segment)):
        damaged = bytearray(segment)
        damaged[position] ^= 0xFF

        entries = read(bytes(damaged))

        assert_covered(entries, len(segment))
        hit = next(index for index, entry in enumerate(batches) if position < entry.position + entry.size_bytes)
        in_unchecked_fields = position - batches[hit].position < CRC_FROM
        others = [entry for index, entry in enumerate(batches) if index != hit]
        assert [entry for entry in entries if entry in others] == others, position
        assert in_unchecked_fields or len(damages(entries)) == 1, position


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_damage_is_never_anything_but_batches_and_damages(segment: bytes, data: st.DataObject) -> None:
    damaged = bytearray(segment)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged)))
        cut = data.draw(st.integers(0, 12))
        damaged[at : at + cut] = data.draw(st.binary(max_size=12))

    assert_covered(read(bytes(damaged)), len(damaged))


@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=300))
def test_any_bytes_are_batches_and_damages(data: bytes) -> None:
    assert_covered(read(data), len(data))


@settings(max_examples=80, deadline=None)
@given(body=st.binary(max_size=60), count=st.integers(0, 3), is_control=st.booleans())
def test_a_batch_with_a_good_crc_and_any_content_is_read(batch: Make, body: bytes, count: int, is_control: bool) -> None:
    import google_crc32c

    header = batch([NO_OP], 7, control=4 if is_control else None)[:HEADER_BYTES]
    data = bytearray(header[:-4] + struct.pack(">i", count) + body)
    struct.pack_into(">i", data, 23, max(count - 1, 0))
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, CRC_FROM - 4, google_crc32c.value(bytes(data[CRC_FROM:])))

    entries = read(bytes(data))

    assert [type(entry) for entry in entries] == [Batch]
    assert_covered(entries, len(data))


def _zigzag(value: int) -> bytes:
    left = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes(out) + bytes([left])


@pytest.mark.parametrize(
    ("delta_ms", "offset_delta"), [(0, 1 << 66), (0, -(1 << 66)), (0, -5), (0, 1), (1 << 66, 0), ((1 << 63) - 1, 0)]
)
def test_a_record_that_says_it_is_elsewhere_or_at_no_time_is_kept_undecoded_in_its_place(
    batch: Make, delta_ms: int, offset_delta: int
) -> None:
    body = b"\0" + _zigzag(delta_ms) + _zigzag(offset_delta) + b"\1" + _zigzag(len(NO_OP)) + NO_OP + b"\0"
    sound = batch([NO_OP], 7)
    data = bytearray(sound[:HEADER_BYTES] + _zigzag(len(body)) + body)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, CRC_FROM - 4, google_crc32c.value(bytes(data[CRC_FROM:])))

    (entry,) = read(bytes(data))

    assert isinstance(entry, Batch)
    (record,) = entry.records
    assert isinstance(record, UndecodedRecord)
    assert (record.offset, record.timestamp_ms) == (7, entry.max_timestamp_ms)
    assert f"offset delta {offset_delta}" in record.error


def test_a_batch_whose_offsets_do_not_fit_64_bits_is_none(batch: Make) -> None:
    data = bytearray(batch([NO_OP] * 2))
    struct.pack_into(">q", data, 0, (1 << 63) - 2)

    (damage,) = damages(read(bytes(data)))

    assert damage.status == "bad_header"


def test_every_torn_end_is_named_and_the_rest_before_it_is_read(segment: bytes) -> None:
    whole = read(segment)
    for size in range(len(segment)):
        entries = read(segment[:size])
        assert_covered(entries, size)
        complete = [entry for entry in whole if entry.position + entry.size_bytes <= size]
        assert entries[: len(complete)] == complete
        assert [entry.status for entry in damages(entries)] == (["torn"] if offset_after(complete) < size else [])


def offset_after(entries: list[Batch | Damage]) -> int:
    return entries[-1].position + entries[-1].size_bytes if entries else 0


def test_space_that_was_not_written_yet_is_a_torn_end(segment: bytes) -> None:
    entries = read(segment + bytes(4096))

    assert offsets(entries) == list(range(8))
    assert [(entry.status, entry.size_bytes) for entry in damages(entries)] == [("torn", 4096)]


def test_rot_in_the_middle_names_the_offsets_that_are_lost(segment: bytes) -> None:
    second = read(segment)[1]
    damaged = bytearray(segment)
    damaged[second.position + HEADER_BYTES + 3] ^= 1

    (damage,) = damages(read(bytes(damaged)))

    assert (damage.position, damage.size_bytes, damage.status) == (second.position, second.size_bytes, "bad_crc")
    assert "offsets 1 to 3" in damage.error


def test_a_compressed_batch_is_refused_by_its_codec_and_the_next_is_read(batch: Make) -> None:
    entries = read(batch([NO_OP], codec=4) + batch([NO_OP], 1))

    assert [(entry.status, "zstd" in entry.error) for entry in damages(entries)] == [("compressed", True)]
    assert offsets(entries) == [1]


def test_an_unknown_record_is_kept_with_its_bytes_among_the_others(batch: Make) -> None:
    unknown = b"\x01\x63\x05hello"

    (entry,) = read(batch([NO_OP, unknown, topic("x")], 40))

    assert isinstance(entry, Batch)
    assert [type(record) for record in entry.records] == [Record, UndecodedRecord, Record]
    kept = entry.records[1]
    assert isinstance(kept, UndecodedRecord)
    assert (kept.offset, kept.type_number, kept.version, kept.raw) == (41, 99, 5, unknown)
    assert "unknown record type 99" in kept.error


def test_unknown_control_records_and_versions_are_kept(batch: Make) -> None:
    entries = read(batch([b"\0\0\0"], control=1) + batch([b"\0\x09\0"], 1, control=4) + batch([SNAPSHOT_FOOTER], 2, control=4))

    kept = [entry.undecoded() for entry in entries if isinstance(entry, Batch)]
    assert [[record.error.split(",")[0] for record in records] for records in kept] == [
        ["unknown control record type 1"],
        ["unknown version 9 of SnapshotFooter; version 0 is known"],
        [],
    ]


@pytest.mark.parametrize("missing", range(-2, HEADER_BYTES + 2, 3))
def test_the_next_batch_is_found_wherever_a_long_damage_ends(batch: Make, missing: int) -> None:
    garbage = b"\xff" * ((1 << 20) - missing)

    entries = read(garbage + batch([NO_OP], 9))

    assert [(entry.position, entry.size_bytes) for entry in damages(entries)] == [(0, len(garbage))]
    assert offsets(entries) == [9]
