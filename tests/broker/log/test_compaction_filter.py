"""Records that a compaction keeps, against a naive map, and the batches that it writes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.broker.log.compaction_filter import BatchFilter, LatestOffsets, without_records
from kraftlab.records.codecs import compress, decompress
from kraftlab.records.errors import CorruptBatch
from kraftlab.records.record_batch import (
    APPEND_TIME,
    CODECS,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    BatchHeader,
    Record,
    StoredRecord,
    build_batch,
    encode_batch,
    read_header,
    records_of,
    validate,
)
from kraftlab.records.record_walk import boundaries, keys_of, offset_deltas, time_and_value, timestamp_delta

NOW_MS = 1_700_000_000_000
RETENTION_MS = 1000
MUCH = 1 << 30

Log = list[bytes]


def stored(batch: bytes) -> list[StoredRecord]:
    header = read_header(batch)
    return list(records_of(header, decompress(header.codec, batch[HEADER_BYTES:])))


def batch_of(records: Sequence[Record], base_offset: int, codec: str = "none", **options: int) -> bytes:
    plain = build_batch(records, base_offset=base_offset, **options)
    header = read_header(plain)
    number = CODECS.index(codec)
    return encode_batch(header._replace(attributes=header.attributes | number), compress(codec, plain[HEADER_BYTES:]))


def latest_in(log: Log, start: int, limit_bytes: int = MUCH) -> LatestOffsets:
    latest = LatestOffsets(start, limit_bytes)
    for batch in log:
        header = read_header(batch)
        if header.end_offset > start and not latest.is_full:
            latest.take(header, batch)
    return latest


def compacted(
    log: Log, start: int = 0, now_ms: int = NOW_MS, limit_bytes: int = MUCH, producers: dict[int, int] | None = None
) -> tuple[Log, int]:
    """Compact a log; return what stays and the offset to which it is clean."""
    latest = latest_in(log, start, limit_bytes)
    passes = BatchFilter(latest, now_ms=now_ms, delete_retention_ms=RETENTION_MS, last_of_producers=producers or {})
    kept = []
    for batch in log:
        # Batches lie somewhere in a buffer.
        stays = passes(read_header(batch), b"before" + batch + b"after", len(b"before"))
        if stays == b"" and batch is log[-1]:
            stays = without_records(read_header(batch))
        kept.append(batch if stays is None else stays)
    return [batch for batch in kept if batch], latest.end_offset


# --- against a naive twin ------------------------------------------------------------------------------------------------------

keys = st.none() | st.sampled_from([b"", b"a", b"b", b"c", b"k" * 64, b"l" * 9000])
values = st.none() | st.binary(max_size=3) | st.sampled_from([b"v" * 60, b"w" * 9000, b"\x01"])
records = st.builds(Record, keys, values, st.integers(NOW_MS - 10_000, NOW_MS), st.sampled_from([(), (("h", b"1"), ("g", None))]))


class Part(NamedTuple):
    records: list[Record]
    codec: str
    is_new_epoch: bool
    gap: int
    is_control: bool


parts = st.lists(
    st.builds(
        Part,
        st.lists(records, min_size=1, max_size=5),
        st.sampled_from(CODECS),
        st.booleans(),
        st.integers(0, 3),
        st.integers(0, 9).map(lambda n: not n),
    ),
    min_size=1,
    max_size=8,
)


def log_of(found: Sequence[Part]) -> Log:
    log: Log = []
    offset = epoch = 0
    for part in found:
        offset, epoch = offset + part.gap, epoch + part.is_new_epoch
        attributes = CONTROL if part.is_control else 0
        log.append(batch_of(part.records, offset, part.codec, leader_epoch=epoch, attributes=attributes))
        offset += len(part.records)
    return log


def naive(log: Log, end: int, now_ms: int) -> list[StoredRecord]:
    """The records that a compaction of all batches below `end` keeps."""
    decoded = [(read_header(batch), record) for batch in log for record in stored(batch)]
    last = {record.key: record.offset for header, record in decoded if not header.is_control and header.end_offset <= end}
    return [
        record
        for header, record in decoded
        if header.is_control
        or header.end_offset > end
        or (
            record.key is not None
            and last[record.key] == record.offset
            and (record.value is not None or header.delete_horizon_ms is None or now_ms < header.delete_horizon_ms)
        )
    ]


def epochs_of(log: Log) -> list[tuple[int, int]]:
    headers = [read_header(batch) for batch in log]
    return [
        (epoch, next(group).base_offset) for epoch, group in itertools.groupby(headers, key=lambda header: header.leader_epoch)
    ]


@given(parts, st.integers(0, 40), st.sampled_from([1, 300, MUCH]))
def test_the_last_record_of_each_key_stays_as_a_naive_map_says(found: list[Part], start: int, limit_bytes: int) -> None:
    log = log_of(found)
    log, start = compacted(log[: start % len(log) + 1])[0] + log[start % len(log) + 1 :], 0
    for now_ms in (NOW_MS, NOW_MS + RETENTION_MS - 1, NOW_MS + RETENTION_MS):
        before = log
        log, start = compacted(log, start, now_ms, limit_bytes)
        assert [record for batch in log for record in stored(batch)] == naive(before, start, now_ms)
        assert epochs_of(log) == epochs_of(before)
        assert read_header(log[-1]).end_offset == read_header(before[-1]).end_offset
        validate(b"".join(log))
        originals = {read_header(batch).base_offset: read_header(batch) for batch in before}
        for header in map(read_header, log):
            assert fixed_part(header) == fixed_part(originals[header.base_offset])


def fixed_part(header: BatchHeader) -> tuple[int, ...]:
    return (
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


@given(st.lists(records, min_size=1, max_size=300), st.integers(0, 2**40))
def test_walks_find_what_decoding_finds(found: list[Record], later_ms: int) -> None:
    found[-1] = found[-1]._replace(timestamp_ms=found[0].timestamp_ms + later_ms)
    data = build_batch(found)
    header, body = read_header(data), data[HEADER_BYTES:]
    decoded = stored(data)
    starts = boundaries(body, header.record_count, 0, len(body))
    assert keys_of(body, header.record_count, 0, len(body)) == [record.key for record in decoded]
    assert offset_deltas(body, starts[:-1]) == [record.offset for record in decoded]
    times = [timestamp_delta(body, start)[0] for start in starts[:-1]]
    assert [header.base_timestamp_ms + time for time in times] == [record.timestamp_ms for record in decoded]
    has_value = [record.value is not None for record in decoded]
    assert [time_and_value(body, start) for start in starts[:-1]] == list(zip(times, has_value, strict=True))


# --- rules, one by one ---------------------------------------------------------------------------------------------------------


def record(key: bytes | None, value: bytes | None = b"v", timestamp_ms: int = NOW_MS) -> Record:
    return Record(key, value, timestamp_ms)


def test_a_batch_that_stays_whole_is_not_written_again() -> None:
    batch = batch_of([record(b"a"), record(b"b")], 0)
    latest = latest_in([batch], 0)
    passes = BatchFilter(latest, now_ms=NOW_MS, delete_retention_ms=RETENTION_MS, last_of_producers={})
    assert passes(read_header(batch), batch) is None


def test_a_tombstone_goes_after_its_delete_horizon() -> None:
    log = [batch_of([record(b"a"), record(b"b")], 0), batch_of([record(b"a", None, NOW_MS - 5)], 2)]
    log, start = compacted(log)
    horizon = read_header(log[1])
    assert horizon.delete_horizon_ms == NOW_MS + RETENTION_MS and horizon.attributes & DELETE_HORIZON
    assert stored(log[1]) == [StoredRecord(2, b"a", None, NOW_MS - 5)]
    log, start = compacted(log, start, NOW_MS + RETENTION_MS - 1)
    assert read_header(log[1]) == horizon, "the horizon is set once"
    log, start = compacted([*log, batch_of([record(b"c")], 3)], start, NOW_MS + RETENTION_MS)
    assert [item.key for batch in log for item in stored(batch)] == [b"b", b"c"]


def test_the_last_batch_of_a_known_producer_leaves_its_header() -> None:
    first = batch_of([record(b"a")], 0, producer_id=7, producer_epoch=2, base_sequence=5)
    second = batch_of([record(b"a"), record(b"b")], 1, producer_id=8, producer_epoch=0, base_sequence=0)
    last = batch_of([record(b"a"), record(b"b")], 3)
    log, _ = compacted([batch_of([record(b"x")], 0), *(_at(batch, 1) for batch in (first, second, last))], producers={7: 2, 8: 9})
    [_, header, _] = map(read_header, log)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (7, 2, 5, 0)
    assert header.max_timestamp_ms == NOW_MS and header.base_timestamp_ms == -1


def _at(batch: bytes, shift: int) -> bytes:
    header = read_header(batch)
    return encode_batch(header._replace(base_offset=header.base_offset + shift), batch[HEADER_BYTES:])


def test_records_without_a_key_go_and_are_counted() -> None:
    log = [batch_of([record(None), record(b"a"), record(None, None)], 0)]
    assert latest_in(log, 0).records_without_key == 2
    assert [item.offset for item in stored(compacted(log)[0][0])] == [1]


def test_the_time_that_the_leader_has_set_stays() -> None:
    first = batch_of([record(b"a"), record(b"b")], 0)
    header = read_header(first)._replace(attributes=APPEND_TIME, max_timestamp_ms=NOW_MS + 77)
    log, _ = compacted([encode_batch(header, first[HEADER_BYTES:]), batch_of([record(b"b")], 2)])
    assert read_header(log[0]).max_timestamp_ms == NOW_MS + 77


def test_a_full_map_ends_a_compaction_early_and_the_next_one_goes_on() -> None:
    log = [batch_of([record(b"%d" % (offset % 3))], offset) for offset in range(9)]
    ends, start = [], 0
    while start < 9:
        log, start = compacted(log, start, limit_bytes=450)
        ends.append(start)
    assert ends == [3, 6, 9]
    assert [item.offset for batch in log for item in stored(batch)] == [6, 7, 8]


@pytest.mark.parametrize("body", [b"", b"\x10", b"\x02\x00", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"])
def test_records_that_cannot_be_read_are_named(body: bytes) -> None:
    header = read_header(batch_of([record(b"a")], 0))
    broken = encode_batch(header, body)
    with pytest.raises(CorruptBatch, match=r"position 99.*cannot be read"):
        LatestOffsets(0, MUCH).take(header, broken, 99)
