"""Leaders store batches in the codec of the topic (`compression.type`, `compression.*.level`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.config.topic_configs import TOPIC_KEYS
from kraftlab.records.codecs import compress, decompress
from kraftlab.records.errors import BatchTooLarge, InvalidRecords
from kraftlab.records.recompression import Compression, recompressed
from kraftlab.records.record_batch import (
    CODECS,
    HEADER_BYTES,
    BatchHeader,
    Record,
    build_batch,
    encode_batch,
    read_header,
    records_of,
    validate,
)

NOW_MS = 1_700_000_000_000
TEXT = b"to be or not to be, that is the question; " * 200


def batch(codec: str = "none", value: bytes = TEXT, **fields: int) -> bytes:
    plain = build_batch([Record(b"k", value, NOW_MS), Record(None, b"w", NOW_MS + 1)], **fields)
    header = read_header(plain)
    return encode_batch(header._replace(attributes=CODECS.index(codec)), compress(codec, plain[HEADER_BYTES:]))


def config_with(**values: str) -> LogConfig:
    """Settings of a topic with these configs; names have underscores in the place of dots."""
    named = {name.replace("_", "."): value for name, value in values.items()}
    return LogConfig.of(lambda name: named.get(name, TOPIC_KEYS[name].default or ""))


def stored(log: PartitionLog) -> list[tuple[BatchHeader, list[Any]]]:
    data = log.read(0, 1 << 24)
    return [
        (header, list(records_of(header, decompress(header.codec, bytes(data[at + HEADER_BYTES : at + header.size_bytes])))))
        for at, header in validate(data)
    ]


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", CODECS)
def test_a_leader_stores_the_topics_codec_whatever_the_producers(
    open_log: Callable[..., PartitionLog], sent: str, wanted: str
) -> None:
    log = open_log(config=config_with(compression_type=wanted))
    log.append_as_leader(batch() + batch(sent), 3)
    for header, records in stored(log):
        assert header.codec == ("none" if wanted == "uncompressed" else wanted)
        assert [(record.key, record.value) for record in records] == [(b"k", TEXT), (None, b"w")]
        assert (header.leader_epoch, header.max_timestamp_ms) == (3, NOW_MS + 1)
    assert log.log_end_offset == 4


def test_compression_type_producer_leaves_batches_as_they_are(open_log: Callable[..., PartitionLog]) -> None:
    log = open_log(config=config_with(compression_type="producer"))
    for codec in CODECS:
        log.append_as_leader(batch(codec), 0)
    assert [header.codec for header, _ in stored(log)] == list(CODECS)


def test_a_producers_sequences_stay_and_a_duplicate_is_found(open_log: Callable[..., PartitionLog]) -> None:
    log = open_log(config=config_with(compression_type="zstd"))
    sent = batch("gzip", producer_id=7, producer_epoch=1, base_sequence=0)
    first, again = log.append_as_leader(sent, 0), log.append_as_leader(sent, 0)
    assert (first.base_offset, again.base_offset, log.log_end_offset) == (0, 0, 2)
    [(header, _)] = stored(log)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.codec) == (7, 1, 0, "zstd")


@pytest.mark.parametrize(
    ("codec", "low", "high"),
    [("gzip", {"compression_gzip_level": "1"}, {"compression_gzip_level": "9"}),
     ("zstd", {"compression_zstd_level": "-5"}, {"compression_zstd_level": "19"})],
)  # fmt: skip
def test_a_higher_level_makes_smaller_batches(codec: str, low: dict[str, str], high: dict[str, str]) -> None:
    words = random.Random(1)
    sent = batch(value=b" ".join(b"%d" % words.randrange(500) for _ in range(10_000)))
    sizes = []
    for level in (low, high):
        wanted = config_with(compression_type=codec, **level).compression
        assert wanted is not None
        data, [header] = recompressed(sent, [read_header(sent)], wanted, 1 << 20)
        assert header.size_bytes == len(data)
        sizes.append(len(data))
    assert sizes[0] > sizes[1]


def test_a_batch_that_grows_beyond_the_topics_limit_is_refused() -> None:
    sent = batch("zstd")
    with pytest.raises(BatchTooLarge, match=r"compressed as the topic asks \(none\), the batch has \d+ bytes"):
        recompressed(sent, [read_header(sent)], Compression("none"), len(sent))


def test_records_that_cannot_be_decompressed_are_refused() -> None:
    header = read_header(batch())._replace(attributes=CODECS.index("gzip"))
    broken = encode_batch(header, b"not gzip")
    with pytest.raises(InvalidRecords, match="cannot be decompressed"):
        recompressed(broken, [read_header(broken)], Compression("zstd"), 1 << 20)
