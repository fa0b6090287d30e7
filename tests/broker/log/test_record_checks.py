"""Rules for a producer's batches that the recorded cases do not cover."""

from __future__ import annotations

import struct
from collections.abc import Callable

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.broker.log import record_checks
from kraftlab.broker.log.errors import InvalidTimestamps
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.record_checks import check_produced
from kraftlab.records.codecs import compress
from kraftlab.records.errors import BatchTooLarge, CorruptBatch, InvalidRecords, LogError
from kraftlab.records.record_batch import (
    CODECS,
    HEADER_BYTES,
    Record,
    build_batch,
    decode_records,
    read_header,
    records_of,
    validate,
)
from kraftlab.records.record_walk import READ_WHOLE, check_records

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
COMPACTED = LogConfig(is_compacted=True)
BOUNDED = LogConfig(message_timestamp_before_max_ms=HOUR_MS, message_timestamp_after_max_ms=HOUR_MS)


def records(*keys: bytes | None, timestamp_ms: int = NOW_MS) -> list[Record]:
    return [Record(key, b"value", timestamp_ms) for key in keys]


def compressed(batch: bytes, codec: str, *, claims: int | None = None) -> bytes:
    """The batch with its records compressed; `claims`: attributes that name another codec."""
    body = compress(codec, batch[HEADER_BYTES:])
    data = bytearray(batch[:HEADER_BYTES]) + body
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, CODECS.index(codec) if claims is None else claims)
    return with_crc(data)


def with_crc(data: bytearray) -> bytes:
    struct.pack_into(">I", data, 17, google_crc32c.value(bytes(data[21:])))
    return bytes(data)


def refusal(batch: bytes, config: LogConfig) -> type[LogError] | None:
    try:
        check_produced(batch, config, NOW_MS)
    except LogError as error:
        return type(error)
    return None


def test_a_batch_may_be_as_large_as_the_topic_takes() -> None:
    batch = build_batch(records(b"k"))
    assert refusal(batch, LogConfig(max_message_bytes=len(batch))) is None
    assert refusal(batch, LogConfig(max_message_bytes=len(batch) - 1)) is BatchTooLarge


@pytest.mark.parametrize("codec", CODECS)
def test_keys_and_timestamps_are_read_whatever_the_codec(codec: str) -> None:
    assert refusal(compressed(build_batch(records(b"k", b"l")), codec), COMPACTED) is None
    with pytest.raises(InvalidRecords) as raised:
        check_produced(compressed(build_batch(records(b"k", None)), codec), COMPACTED, NOW_MS)
    assert [index for index, _ in raised.value.records] == [1]
    early = compressed(build_batch(records(b"k", timestamp_ms=NOW_MS - HOUR_MS - 1)), codec)
    assert (refusal(early, BOUNDED), refusal(early, LogConfig())) == (InvalidTimestamps, None)
    late = compressed(build_batch(records(b"k", timestamp_ms=NOW_MS + HOUR_MS + 1)), codec)
    assert (refusal(late, BOUNDED), refusal(late, LogConfig())) == (InvalidTimestamps, InvalidTimestamps), "an hour by default"
    assert refusal(late, LogConfig(uses_append_time=True)) is None


def replaced(batch: bytes, body: bytes, count: int = 2) -> bytes:
    """The batch with other records, of which its header says that they are `count`."""
    data = bytearray(batch[:HEADER_BYTES] + body)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    return with_crc(data)


@pytest.mark.parametrize("config", [LogConfig(), COMPACTED], ids=["deleted", "compacted"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_that_could_not_be_read_are_not_stored(codec: str, config: LogConfig) -> None:
    batch = build_batch(records(b"k", b"l"))
    whole = batch[HEADER_BYTES:]
    assert refusal(compressed(batch, codec), config) is None
    for body in (b"", whole[:-1], whole + b"\0", b"\xff" * 40, b"\1" * 20, bytes(40)):
        assert refusal(compressed(replaced(batch, body), codec), config) is InvalidRecords
    for count in (1, 3, 2**31 - 1):
        assert refusal(compressed(replaced(batch, whole, count), codec), config) is InvalidRecords


@pytest.mark.parametrize("codec", CODECS[1:])
def test_records_that_cannot_be_decompressed_are_not_stored(codec: str) -> None:
    noise = bytes(range(1, 200)) * 3
    claimed = compressed(replaced(build_batch(records(b"k")), noise, 1), "none", claims=CODECS.index(codec))
    assert refusal(claimed, LogConfig()) is InvalidRecords
    whole = compressed(build_batch(records(b"k")), codec)
    assert refusal(replaced(whole, whole[HEADER_BYTES:-3], 1), LogConfig()) is InvalidRecords, "cut short"


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_batch_that_becomes_too_large_to_be_read_is_not_stored(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_checks, "BESIDE_OTHERS_BYTES_MAX", 100_000)
    monkeypatch.setattr(record_checks, "DECOMPRESSED_BYTES_MAX", 200_000)
    for value_bytes, expected in ((50_000, None), (150_000, None), (250_000, InvalidRecords)):
        large = compressed(build_batch([Record(b"k", bytes(value_bytes), NOW_MS)]), codec)
        assert len(large) < 50_000
        assert refusal(large, LogConfig()) is expected


texts = st.sampled_from(["", "name", "n" * 200])
contents = st.sampled_from([None, b"", b"v", b"v" * 63, b"v" * 64, b"v" * 5000, b"v" * 20_000])
written = st.lists(
    st.builds(Record, contents, contents, st.integers(0, 2**40), st.lists(st.tuples(texts, contents), max_size=2).map(tuple)),
    min_size=1,
    max_size=5,
)


@given(written)
def test_all_records_that_a_client_can_write_are_accepted(batch: list[Record]) -> None:
    check_records(build_batch(batch)[HEADER_BYTES:], len(batch))


@given(written, st.data())
def test_changed_records_are_refused_or_can_be_read(batch: list[Record], draw: st.DataObject) -> None:
    whole = build_batch(batch)
    header, body = read_header(whole), bytearray(whole[HEADER_BYTES:])
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, min(len(body) - 1, 60)))
        body[at] = draw.draw(st.sampled_from([0, 1, 2, 3, 127, 128, 255]) | st.integers(0, 255))
    count = draw.draw(st.sampled_from([header.record_count, header.record_count + 1, max(header.record_count - 1, 1)]))
    try:
        check_records(bytes(body), count)
    except IndexError:
        return
    try:
        assert len(list(records_of(header._replace(record_count=count), bytes(body)))) == count
    except CorruptBatch as error:
        assert "has offset delta" in str(error), "a leader does not look at them; other clients read on at the end of the batch"


@pytest.mark.parametrize(
    "record",
    [
        "0e 00 80808080808080808001 00 01 01 00",  # eleven bytes of a timestamp
        "14 00 00 808080808000 01 01 00",  # six bytes of an offset
        "0c 00 00 00 03 01 00",  # longer than its parts
        "0c 00 00 00 7e 01 00",  # a key beyond the record
        "0c 00 00 00 01 7e 00",  # a value beyond the record
        "0c 00 00 00 01 01 02",  # a header without bytes
        "10 00 00 00 01 01 02 01 01",  # a header whose name is null
        "0c 00 00 00 01 01 01",  # -1 headers
        "0d 00 00 00 01 01 00",  # a negative size
        "ffffffff0f 00 00 00 01 01 00",
        "8e8080808000 00 00 00 01 01 00",  # six bytes of a size
    ],
)
def test_a_record_with_an_impossible_part_is_refused(record: str) -> None:
    valid = bytes.fromhex("0c 00 00 00 01 01 00")
    check_records(valid + valid, 2)
    with pytest.raises(IndexError):
        check_records(valid + bytes.fromhex(record) + valid, 3)


@pytest.mark.parametrize("later", ["0d 00 00 00 01 01 00", "feffffff0f", "80", "0c 00", "0c 00 00 00 01 01 00 00"])
def test_the_lengths_of_all_records_are_checked(later: str) -> None:
    valid = bytes.fromhex("0c 00 00 00 01 01 00")
    body = valid * READ_WHOLE + build_batch([Record(None, b"x" * 20_000, 0)])[HEADER_BYTES:]
    check_records(body + valid, READ_WHOLE + 2)
    with pytest.raises(IndexError):
        check_records(body + bytes.fromhex(later), READ_WHOLE + 2)


def test_later_records_that_are_too_small_are_refused() -> None:
    """A large record follows, so that the bytes are enough for the count."""
    valid = bytes.fromhex("0c 00 00 00 01 01 00")
    large = build_batch([Record(None, b"x" * 20_000, 0)])[HEADER_BYTES:]
    for small in ("00", "02 00", "0a 00 00 00 01 01"):
        with pytest.raises(IndexError, match="a record has a size below 6"):
            check_records(valid * READ_WHOLE + bytes.fromhex(small) + large, READ_WHOLE + 2)


def test_more_records_than_the_bytes_can_hold_are_refused_before_they_are_walked() -> None:
    valid = bytes.fromhex("0c 00 00 00 01 01 00")
    check_records(valid * (READ_WHOLE + 1), READ_WHOLE + 1)
    with pytest.raises(IndexError, match="each takes at least 7"):
        check_records(valid * READ_WHOLE + bytes(1_000_000), READ_WHOLE + 1_000_000)


def test_a_producer_may_not_claim_the_leaders_time() -> None:
    batch = build_batch(records(b"k"), attributes=1 << 3)
    assert (refusal(batch, LogConfig()), refusal(batch, LogConfig(uses_append_time=True))) == (InvalidTimestamps, None)


def test_the_leader_sets_its_time_on_stored_batches(open_log: Callable[..., PartitionLog]) -> None:
    log = open_log(config=LogConfig(uses_append_time=True))
    appended = log.append_as_leader(build_batch(records(b"k", timestamp_ms=5)), 1)
    stored = log.read(0, 1000)
    ((_, header),) = validate(stored)
    assert header.max_timestamp_ms == appended.log_append_time_ms > NOW_MS
    assert (header.attributes, header.base_timestamp_ms) == (8, 5)
    assert [(record.value, record.timestamp_ms) for record in decode_records(stored)] == [(b"value", header.max_timestamp_ms)]


def test_an_import_keeps_sizes_and_times_and_needs_keys(open_log: Callable[..., PartitionLog]) -> None:
    log = open_log(config=LogConfig(is_compacted=True, uses_append_time=True, max_message_bytes=1))
    batch = build_batch(records(b"k", timestamp_ms=5), base_offset=10)
    assert log.append_as_leader(batch, 0, keep_offsets=True)[:3] == (10, 11, -1)
    assert log.read(10, 1000) == batch[:12] + b"\0\0\0\0" + batch[16:]
    with pytest.raises(InvalidRecords, match="without key"):
        log.append_as_leader(build_batch(records(None), base_offset=20), 1, keep_offsets=True)
