"""Rules for a producer's batches that the recorded cases do not cover."""

from __future__ import annotations

import struct
from collections.abc import Callable

import google_crc32c
import pytest

from kraftlab.broker.log.codecs import compress
from kraftlab.broker.log.errors import BatchTooLarge, InvalidRecords, InvalidTimestamps, LogError
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.record_batch import CODECS, HEADER_BYTES, Record, build_batch, decode_records, validate
from kraftlab.broker.log.record_checks import check_produced

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


def test_records_that_could_not_be_read_are_not_stored() -> None:
    batch = build_batch(records(b"k", b"l"))
    for body in (batch[HEADER_BYTES:-1], batch[HEADER_BYTES:] + b"\0", b"\xff" * 40, b"\1" * 20):
        data = bytearray(batch[:HEADER_BYTES] + body)
        struct.pack_into(">i", data, 8, len(data) - 12)
        assert refusal(with_crc(data), LogConfig()) is InvalidRecords
        assert refusal(with_crc(data), COMPACTED) is InvalidRecords
    assert refusal(compressed(batch, "none", claims=4), COMPACTED) is InvalidRecords, "not zstd"


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
    assert log.append_as_leader(batch, 0, keep_offsets=True) == (10, 11, -1)
    assert log.read(10, 1000) == batch[:12] + b"\0\0\0\0" + batch[16:]
    with pytest.raises(InvalidRecords, match="without key"):
        log.append_as_leader(build_batch(records(None), base_offset=20), 1, keep_offsets=True)
