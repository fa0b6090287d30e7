"""Record batches: what is read, refused, stamped and built."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.records.errors import CorruptBatch
from kraftlab.records.record_batch import Record, StoredRecord, build_batch, decode_records, iterate, read_header, stamp, validate

from .conftest import batch

optional_bytes = st.none() | st.binary(max_size=300)
records = st.builds(
    Record,
    optional_bytes,
    optional_bytes,
    st.integers(0, 2**50),
    st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=3).map(tuple),
)


@given(st.lists(records, min_size=1, max_size=20), st.integers(0, 2**62))
def test_records_come_back_as_they_were_built(given_records: list[Record], base_offset: int) -> None:
    data = build_batch(given_records, base_offset=base_offset)
    assert list(decode_records(data)) == [
        StoredRecord(base_offset + i, r.key, r.value, r.timestamp_ms, r.headers) for i, r in enumerate(given_records)
    ]


def test_every_recorded_batch_is_valid_and_counts_as_the_manifest_says(manifest, segment_bytes_of) -> None:
    for partition in manifest:
        for file in partition["files"]:
            headers = [header for _, header in validate(segment_bytes_of(partition, file))]
            counted = {
                "batches": len(headers),
                "records": sum(h.record_count for h in headers),
                "control_records": sum(h.record_count for h in headers if h.is_control),
                "first_offset": headers[0].base_offset if headers else -1,
                "last_offset": headers[-1].last_offset if headers else -1,
            }
            assert counted == {name: file[name] for name in counted}, (
                f"{partition['topic']}-{partition['partition']} {file['file']}"
            )


def test_recorded_records_of_uncompressed_topics_decode(manifest, segment_bytes_of) -> None:
    for partition in (p for p in manifest if p["topic"] in ("orders", "single")):
        for file in partition["files"]:
            decoded = list(decode_records(segment_bytes_of(partition, file)))
            assert len(decoded) == file["records"]
            assert sum(len(r.value or b"") for r in decoded) == file["value_bytes"]


def test_compressed_records_are_refused_by_name(manifest, segment_bytes_of) -> None:
    partition = next(p for p in manifest if p["topic"] == "clicks")
    with pytest.raises(ValueError, match="lz4"):
        list(decode_records(segment_bytes_of(partition, partition["files"][0])))


def test_stamping_changes_offset_and_epoch_only_and_keeps_the_crc() -> None:
    data = bytearray(batch(3))
    before = read_header(data)
    stamp(data, 0, base_offset=77, leader_epoch=9)
    [(_, after)] = validate(data)
    assert after == before._replace(base_offset=77, leader_epoch=9)
    assert after.end_offset == 80


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_any_flipped_bit_is_found_or_lies_in_the_leaders_fields(byte: int, bit: int) -> None:
    data = bytearray(build_batch([Record(b"k", b"v" * 50, 1)] * 2) + build_batch([Record(b"k", b"w" * 50, 1)], base_offset=2))
    byte %= len(data)
    data[byte] ^= 1 << bit
    starts = [0, read_header(build_batch([Record(b"k", b"v" * 50, 1)] * 2)).size_bytes]
    outside_crc = any(start <= byte < start + 8 or start + 12 <= byte < start + 16 for start in starts)
    try:
        validate(bytes(data))
    except CorruptBatch as error:
        assert error.position in starts
    else:
        assert outside_crc


@pytest.mark.parametrize("cut", [1, 60, 61, 80])
def test_a_batch_cut_short_is_refused_with_its_position(cut: int) -> None:
    first, second = batch(), batch(base_offset=1)
    with pytest.raises(CorruptBatch) as raised:
        list(iterate(first + second[:cut]))
    assert raised.value.position == len(first)


def test_old_magic_is_refused() -> None:
    data = bytearray(batch())
    data[16] = 1
    with pytest.raises(CorruptBatch, match="magic is 1"):
        read_header(data)


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    if data:
        with pytest.raises(CorruptBatch):
            validate(data)


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])
