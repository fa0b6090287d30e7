"""Batches whose numbers lie about their records: each reader says so at once, and no answer breaks."""

from __future__ import annotations

import gzip
import time

import pytest

from kraftlab.broker.log.errors import CorruptLog
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.record_checks import check_produced
from kraftlab.broker.log.time_lookup import find_offset
from kraftlab.records.codecs import CodecError, decompress
from kraftlab.records.errors import CorruptBatch, InvalidRecords
from kraftlab.records.record_batch import (
    HEADER_BYTES,
    INT64_MAX,
    Record,
    build_batch,
    encode_batch,
    get_varint,
    put_varint,
    read_header,
    records_of,
)

INT32_MAX = 2**31 - 1


def record(length: int | None = None, timestamp_delta: int = 0, offset_delta: int = 0, headers: int = 0) -> bytes:
    """Encode a record whose numbers are these. `length` None: the right one."""
    body = bytearray(b"\0")
    for number in (timestamp_delta, offset_delta, -1, -1, headers):
        put_varint(body, number)
    start = bytearray()
    put_varint(start, len(body) if length is None else length)
    return bytes(start + body)


def holding(body: bytes, count: int = 1, *, base_timestamp_ms: int = 1000) -> bytes:
    """Return a batch whose header counts so many records."""
    header = read_header(build_batch([Record(None, None, 1000)]))
    changed = header._replace(record_count=count, last_offset_delta=count - 1, base_timestamp_ms=base_timestamp_ms)
    return encode_batch(changed, body)


LIES = {
    "negative length": (record(length=-7), INT32_MAX),
    "length 0": (record(length=0), INT32_MAX),
    "length beyond the end": (record(length=INT32_MAX), 1),
    "count beyond the end": (record(), INT32_MAX),
    "headers beyond the end": (record(headers=INT32_MAX), 1),
    "offset outside the batch": (record(offset_delta=1), 1),
    "negative offset": (record(offset_delta=-1), 1),
}


@pytest.mark.parametrize("name", LIES)
def test_records_that_lie_are_a_corrupt_batch_at_once(name: str) -> None:
    body, count = LIES[name]
    begun = time.process_time()
    with pytest.raises(CorruptBatch):
        list(records_of(read_header(holding(body, count)), body))
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("name", [name for name in LIES if "headers" not in name])
def test_records_that_lie_are_refused_where_a_topic_has_its_records_read(name: str) -> None:
    body, count = LIES[name]
    config = LogConfig(message_timestamp_before_max_ms=1_000_000)
    with pytest.raises(InvalidRecords, match="cannot be read"):
        check_produced(holding(body, count), config, 1000)


def test_a_time_beyond_int64_wraps_around_as_in_kafka(open_log) -> None:
    body = record(timestamp_delta=INT64_MAX)
    assert [each.timestamp_ms for each in records_of(read_header(holding(body)), body)] == [999 - 2**63]
    log = open_log()
    log.append_as_leader(holding(body), 0)
    assert find_offset(log, 0) is None


def test_a_lookup_by_time_says_that_a_record_lies(open_log) -> None:
    log = open_log()
    log.append_as_leader(holding(record(offset_delta=7)), 0)
    with pytest.raises(CorruptLog, match="no record of its batch has"):
        find_offset(log, 0)


@pytest.mark.parametrize("data", [b"\xff" * 9 + b"\x02", b"\xff" * 10, b"\xff" * 12], ids=bytes.hex)
def test_a_number_of_more_than_64_bits_is_none(data: bytes) -> None:
    with pytest.raises(IndexError):
        get_varint(data, 0)
    assert get_varint(b"\xfe" + b"\xff" * 8 + b"\x01", 0)[0] == INT64_MAX


def test_a_gzip_stream_of_many_members_takes_no_longer_than_one_of_its_size() -> None:
    members = gzip.compress(b"") * 100_000
    begun = time.process_time()
    assert decompress("gzip", members + gzip.compress(b"end")) == b"end"
    assert time.process_time() - begun < 5
    with pytest.raises(CodecError, match="cut short"):
        decompress("gzip", members[:-1])


def test_a_batch_that_is_whole_stays_readable() -> None:
    batch = build_batch([Record(b"k", b"v", 1), Record(None, None, INT64_MAX)])
    assert [each.offset for each in records_of(read_header(batch), batch[HEADER_BYTES:])] == [0, 1]
