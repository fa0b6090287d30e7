"""Lines and records of the consoles, their batches and offsets."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.cli.console.client import Consumer, Lines, Producer
from kraftlab.cli.console.lines import (
    BadLine,
    FormatterProperties,
    ReaderProperties,
    format_record,
    parse_line,
    partition_of_key,
    properties_from,
    record_document,
)
from kraftlab.cli.output import BadInput
from kraftlab.cli.stored_batches import stored_records
from kraftlab.client.kafka_data import whole_batches
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.peer_rpc import FetchedPartition, ProduceResponse
from kraftlab.records.record_batch import (
    HEADER_BYTES,
    Record,
    StoredRecord,
    build_batch,
    crc_of,
    decode_records,
    encode_batch,
    validate,
)

TOPIC_ID = bytes(16)


@pytest.mark.parametrize(
    ("line", "properties", "expected"),
    [
        (b"a\tb", ReaderProperties(), (None, b"a\tb", ())),
        (b"a\tb\tc", ReaderProperties(parse_key=True), (b"a", b"b\tc", ())),
        (b"a::b", ReaderProperties(parse_key=True, key_separator="::"), (b"a", b"b", ())),
        (b"ab", ReaderProperties(parse_key=True, ignore_error=True), (None, b"ab", ())),
        (b"-:-", ReaderProperties(parse_key=True, key_separator=":", null_marker="-"), (None, None, ())),
        (b"h:1,g:-\tv", ReaderProperties(parse_headers=True, null_marker="-"), (None, b"v", (("h", b"1"), ("g", None)))),
        (b"h:1\tk\tv", ReaderProperties(parse_headers=True, parse_key=True), (b"k", b"v", (("h", b"1"),))),
        (b"\tv", ReaderProperties(parse_headers=True), (None, b"v", ())),
        (b"\xff", ReaderProperties(), (None, b"\xff", ())),
    ],
)
def test_a_line_is_a_record(line: bytes, properties: ReaderProperties, expected: tuple[object, ...]) -> None:
    record = parse_line(line, 1, properties)
    assert (record.key, record.value, record.headers) == expected


@pytest.mark.parametrize(
    ("line", "properties", "said"),
    [
        (b"ab", ReaderProperties(parse_key=True), "No key separator found on line number 4: 'ab'; it should be '\\t'"),
        (b"ab", ReaderProperties(parse_headers=True), "No headers delimiter found on line number 4: 'ab'"),
        (b"h\tab", ReaderProperties(parse_headers=True), "No header key separator found on line number 4: 'h'"),
        (b"\xff:1\tab", ReaderProperties(parse_headers=True), "line number 4 is not UTF-8"),
    ],
)
def test_a_line_that_lacks_something_is_named(line: bytes, properties: ReaderProperties, said: str) -> None:
    with pytest.raises(BadLine) as raised:
        parse_line(line, 4, properties)
    assert said in str(raised.value)


def test_properties_select_the_printed_parts_of_a_record() -> None:
    everything = properties_from(
        FormatterProperties, [f"print.{name}=true" for name in ("key", "value", "headers", "offset", "partition", "timestamp")]
    )
    record = StoredRecord(7, b"k", None, 99, (("h", b"1"), ("g", None)))
    assert format_record(record, 3, everything) == b"CreateTime:99\tPartition:3\tOffset:7\th:1,g:null\tk\tnull\n"
    assert format_record(StoredRecord(7, None, b"\xff", 99), 3, everything).endswith(b"NO_HEADERS\tnull\t\xff\n")
    assert format_record(record, 3, properties_from(FormatterProperties, ["null.literal=-", "line.separator=;"])) == b"-;"


@given(
    st.binary().filter(lambda text: b"\t" not in text and b"\n" not in text), st.binary().filter(lambda text: b"\n" not in text)
)
def test_a_record_printed_with_its_key_can_be_read_again(key: bytes, value: bytes) -> None:
    printed = format_record(StoredRecord(0, key, value, 0), 0, FormatterProperties(print_key=True))
    record = parse_line(printed.removesuffix(b"\n"), 1, ReaderProperties(parse_key=True))
    assert (record.key, record.value) == (key, value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print.offset", "given as KEY=VALUE"),
        ("print.ofset=true", "there is no property 'print.ofset'; known are print.timestamp,"),
        ("print.offset=yes", "give true or false"),
    ],
)
def test_an_invalid_property_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        properties_from(FormatterProperties, [text])
    assert said in str(raised.value)


def test_bytes_that_are_no_text_stand_as_base64_in_json() -> None:
    document = record_document(StoredRecord(7, b"\xff", b"v", 99, (("h", b"\xfe"),)), "t", 3)
    assert document == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": 99,
        "key_base64": b"\xff",
        "value": "v",
        "headers": [{"name": "h", "value_base64": b"\xfe"}],
    }


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"abc", 479470107),
    ],
)
def test_keys_lie_where_kafkas_producers_put_them(key: bytes, hashed: int) -> None:
    assert partition_of_key(key, 1 << 31) == hashed & 0x7FFFFFFF
    assert partition_of_key(key, 7) == (hashed & 0x7FFFFFFF) % 7


@pytest.fixture
def pipe() -> Iterator[tuple[Lines, int]]:
    reading, writing = os.pipe()
    yield Lines(reading), writing
    os.close(reading)


def test_lines_come_as_they_arrive_whole_and_without_their_ends(pipe: tuple[Lines, int]) -> None:
    lines, writing = pipe
    assert lines.take(0) == []
    os.write(writing, b"one\r\ntw")
    assert lines.take(0) == [b"one"]
    os.write(writing, b"o\n\nlast")
    assert lines.take(None) == [b"two", b""]
    os.close(writing)
    assert not lines.ended
    assert lines.take(None) == [b"last"]
    assert lines.ended


def test_lines_are_waited_for_however_long_that_may_be(pipe: tuple[Lines, int]) -> None:
    lines, writing = pipe
    os.write(writing, b"one\n")
    assert lines.take(1e17) == [b"one"]
    os.close(writing)


class Leaders:
    """Logs in memory, with the calls of a DataClient that the consoles make."""

    def __init__(self, **first: int) -> None:
        self.first = first.get("first", 0)
        self.logs: dict[int, list[Record]] = {}
        self.batches: list[tuple[int, int]] = []

    def produce(self, topic: str, partition: int, records: bytes, *, acks: int, timeout_ms: int) -> ProduceResponse:
        log = self.logs.setdefault(partition, [])
        base = len(log)
        log += [Record(each.key, each.value, each.timestamp_ms) for each in decode_records(records)]
        self.batches.append((partition, len(log) - base))
        return ProduceResponse(0, None, base, len(log))

    def fetch(self, topic: str, partition: int, offset: int, *, max_wait_ms: int, timeout_ms: int) -> FetchedPartition:
        log = self.logs.get(partition, [])
        if not self.first <= offset <= len(log):
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "out of range")
        start = offset - offset % 2
        part = log[start : start + 2]
        return FetchedPartition(TOPIC_ID, partition, 0, records=build_batch(part, base_offset=start) if part else b"")

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return self.first, len(self.logs.get(partition, []))


def record(value: bytes, key: bytes | None = None) -> Record:
    return Record(key, value, 7)


def producer(leaders: Any, **options: int) -> Producer:
    return Producer(leaders, "t", [0, 1, 2], **{"acks": -1, "batch_bytes": 60, "timeout_ms": 1, **options})


def test_records_without_key_go_on_to_the_next_partition_with_each_batch() -> None:
    leaders = Leaders()
    writing = producer(leaders)
    for number in range(7):
        writing.add(record(b"%d" % number))
    assert (leaders.batches, writing.is_waiting) == ([(0, 3), (1, 3)], True)
    writing.flush()
    assert (leaders.batches[2:], writing.is_waiting) == ([(2, 1)], False)
    assert [(each.partition, each.records, each.base_offset, each.end_offset) for each in writing.written.values()] == [
        (0, 3, 0, 3),
        (1, 3, 0, 3),
        (2, 1, 0, 1),
    ]


def test_records_of_a_key_stay_together_in_order() -> None:
    leaders = Leaders()
    writing = producer(leaders)
    for number in range(20):
        writing.add(record(b"%d" % number, b"%d" % (number % 4)))
    writing.flush()
    for partition, log in leaders.logs.items():
        assert {partition_of_key(each.key or b"", 3) for each in log} == {partition}
    for key in range(4):
        ours = [int(each.value or b"") for log in leaders.logs.values() for each in log if each.key == b"%d" % key]
        assert ours == sorted(ours)
        assert len(ours) == 5


def consumed(leaders: Any, positions: dict[int, int]) -> tuple[list[tuple[int, int]], list[str]]:
    warnings: list[str] = []
    found = Consumer(leaders, "t", positions, warnings.append).records(timeout_ms=200)
    return [(each.partition, each.record.offset) for some in found for each in some], warnings


def test_everything_is_read_once_also_from_within_a_batch() -> None:
    leaders = Leaders()
    leaders.logs = {0: [record(b"x")] * 5, 1: [record(b"y")] * 3}
    found, warnings = consumed(leaders, {0: 1, 1: 0})
    assert sorted(found) == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1), (1, 2)]
    assert warnings == []


@pytest.mark.parametrize(("wanted", "goes_on"), [(1, 2), (99, 5)])
def test_a_missing_offset_is_reported_and_replaced_by_the_nearest(wanted: int, goes_on: int) -> None:
    leaders = Leaders(first=2)
    leaders.logs = {0: [record(b"x")] * 5}
    found, warnings = consumed(leaders, {0: wanted})
    assert [offset for _, offset in found] == list(range(goes_on, 5))
    assert warnings == [f"t-0 has offsets 2 to 4, not {wanted}; continuing at {goes_on}"]


def test_an_unreadable_batch_is_reported_and_skipped() -> None:
    class Compressed(Leaders):
        def fetch(self, topic: str, partition: int, offset: int, *, max_wait_ms: int, timeout_ms: int) -> FetchedPartition:
            rotten = build_batch([record(b"x")], base_offset=0, attributes=4)
            unknown = build_batch([record(b"x")], base_offset=1, attributes=7)
            plain = build_batch([record(b"y")], base_offset=2)
            return FetchedPartition(TOPIC_ID, partition, 0, records=rotten + unknown + plain if offset == 0 else b"")

    found, warnings = consumed(Compressed(), {0: 0})
    assert found == [(0, 2)]
    assert warnings == [
        "t-0 from offset 0 to 0: its records cannot be decompressed (zstd): Unknown frame descriptor",
        "t-0 from offset 1 to 1: compressed with an unknown codec (codec-7)",
    ]


class WithoutLeader(Leaders):
    """A partition without a leader, as a DataClient reports it after `timeout_ms`."""

    def fetch(self, topic: str, partition: int, offset: int, *, max_wait_ms: int, timeout_ms: int) -> FetchedPartition:
        self.timeout_ms = timeout_ms
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader that is up.")


@pytest.mark.parametrize(("timeout_ms", "waited_ms"), [(8_000, 8_000), (50, 2_000), (10**9, 30_000), (None, 30_000)])
def test_a_partition_without_a_leader_ends_the_consumer_in_time_with_the_next_step(
    timeout_ms: int | None, waited_ms: int
) -> None:
    leaders: Any = WithoutLeader()
    shown = "^orders-0 has no leader; kraftlab topics --describe and kraftlab log-dirs --describe show why$"
    with pytest.raises(BadInput, match=shown):
        next(Consumer(leaders, "orders", {0: 0}, pytest.fail).records(timeout_ms))
    assert leaders.timeout_ms == waited_ms


class Serving(Leaders):
    """Serves these batches, from the one with the wanted offset on."""

    def __init__(self, *batches: tuple[int, bytes]) -> None:
        super().__init__()
        self.stored = batches

    def fetch(self, topic: str, partition: int, offset: int, *, max_wait_ms: int, timeout_ms: int) -> FetchedPartition:
        records = b"".join(batch for last, batch in self.stored if last >= offset)
        return FetchedPartition(TOPIC_ID, partition, 0, records=memoryview(records))


def _changed(batch: bytes, at: int, value: bytes) -> bytes:
    return batch[:at] + value + batch[at + len(value) :]


GOOD = build_batch([record(b"a"), record(b"b")], base_offset=0)
NEXT = build_batch([record(b"c"), record(b"d")], base_offset=2)


@pytest.mark.parametrize(
    ("damaged", "reason", "behind"),
    [
        (_changed(NEXT, len(NEXT) - 2, b"!"), "crc is ", 4),
        (_changed(NEXT, 16, b"\x01"), "magic is 1, only record format 2 is known", 3),
        (_changed(NEXT, 16, b"\x00"), "magic is 0, only record format 2 is known", 3),
        (NEXT[:-1], "cut short: ", 3),
        (NEXT[:20], "20 bytes are too few for a header", 3),
        (_changed(NEXT, 8, b"\x7f\xff\xff\xff"), "length 2147483647 is not between", 3),
        (_changed(NEXT, 8, b"\xff\xff\xff\xff"), "length -1 is not between", 3),
    ],
)
def test_a_damaged_batch_ends_the_consumer_after_the_records_before_it(damaged: bytes, reason: str, behind: int) -> None:
    found = Consumer(Serving((1, GOOD), (3, damaged)), "t", {0: 0}, pytest.fail).records(timeout_ms=1)  # type: ignore[arg-type]
    assert [each.record.value for each in next(found)] == [b"a", b"b"]
    with pytest.raises(BadInput) as failed:
        next(found)
    assert str(failed.value).startswith(f"t-0: the batch at offset 2 is damaged ({reason}")
    assert f"--partition 0 --offset {behind}, " in str(failed.value)


def test_the_readable_records_of_a_batch_come_before_its_warning() -> None:
    [(_, header)] = validate(NEXT)
    rotten = encode_batch(header, NEXT[HEADER_BYTES:-3])
    leaders: Any = Serving((3, rotten))
    warnings: list[str] = []
    consumer = Consumer(leaders, "t", {0: 2}, warnings.append)
    assert [each.record.value for some in consumer.records(timeout_ms=1) for each in some] == [b"c"]
    assert consumer.has_skipped
    assert len(warnings) == 1 and warnings[0].startswith("t-0 from offset 2 to 3: its records cannot be read: ")


@given(st.integers(0, len(NEXT) - 1), st.binary(min_size=1, max_size=9))
def test_no_byte_of_a_batch_ends_a_consumer_with_another_error(at: int, value: bytes) -> None:
    """The CRC is right, so that the records are read."""
    changed = bytearray(_changed(NEXT, at, value)[: len(NEXT)])
    changed[17:21] = crc_of(changed, 21, len(changed)).to_bytes(4, "big")
    consumer = Consumer(Serving((3, bytes(changed))), "t", {0: 2}, lambda line: None)  # type: ignore[arg-type]
    try:
        for some in consumer.records(timeout_ms=1):
            for each in some:
                format_record(each.record, 0, FormatterProperties(print_headers=True))
                msgspec.json.encode(record_document(each.record, "t", 0))
    except BadInput as error:
        assert "is damaged" in str(error)


def test_names_of_headers_that_are_not_utf_8_are_shown_with_replacement_characters() -> None:
    [(_, header)] = validate(batch := build_batch([Record(b"k", b"\xfe", 7, (("ab", b"\xff"),))]))
    body = batch[HEADER_BYTES:].replace(b"ab", b"\xffb")
    [found] = stored_records(header, encode_batch(header, body))
    assert found.headers == (("\ufffdb", b"\xff"),)
    assert record_document(found, "t", 0)["headers"] == [{"name": "\ufffdb", "value_base64": b"\xff"}]


def test_a_first_batch_that_is_larger_than_the_answer_of_a_kafka_broker_is_kept_to_be_reported() -> None:
    assert bytes(whole_batches(memoryview(GOOD + NEXT[:-1]))) == GOOD
    huge = _changed(GOOD, 8, b"\x00\xff\xff\xff")
    assert bytes(whole_batches(memoryview(huge))) == huge
    assert bytes(whole_batches(memoryview(b""))) == b""


def _xerial(body: bytes) -> bytes:
    """Snappy as Java's clients write it: blocks, each after its length."""
    blocks = [bytes(cramjam.snappy.compress_raw(body[at : at + 20])) for at in range(0, len(body), 20)]
    head = b"\x82SNAPPY\0" + struct.pack(">II", 1, 1)
    return head + b"".join(struct.pack(">I", len(block)) + block for block in blocks)


@pytest.mark.parametrize(
    ("number", "compress"),
    [
        (1, gzip.compress),
        (2, cramjam.snappy.compress_raw),
        (2, _xerial),
        (3, cramjam.lz4.compress),
        (4, cramjam.zstd.compress),
    ],
)
def test_records_are_read_whatever_the_codec(number: int, compress: Callable[[bytes], Any]) -> None:
    values = [b"one", b"two", b"three" * 50]
    plain = build_batch([record(value) for value in values], base_offset=7)
    [(_, header)] = validate(plain)
    header = header._replace(attributes=number)
    batch = plain[:HEADER_BYTES] + bytes(compress(plain[HEADER_BYTES:]))
    assert [each.value for each in stored_records(header, batch)] == values
