"""Offsets for timestamps: against a list of records, with several segments, compressed batches and a late log start."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.segment import Segment
from kraftlab.broker.log.time_lookup import FoundOffset, find_offset
from kraftlab.records.codecs import compress
from kraftlab.records.record_batch import APPEND_TIME, CODECS, HEADER_BYTES, Record, build_batch, encode_batch, read_header, stamp

from .conftest import DIRECTORY_ID, TOPIC_ID

BATCHES = st.lists(
    st.tuples(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(0, len(CODECS) - 1), st.booleans()), max_size=15
)


def encoded(times: list[int], codec: int, is_append_time: bool) -> bytes:
    """A batch with records of these times, compressed; or with the time of the leader."""
    plain = build_batch([Record(b"k", b"v" * 20, time_ms) for time_ms in times])
    header = read_header(plain)
    header = header._replace(attributes=codec | (APPEND_TIME if is_append_time else 0))
    return encode_batch(header, compress(CODECS[codec], plain[HEADER_BYTES:]))


@settings(max_examples=20, deadline=None)
@given(batches=BATCHES, start=st.integers(0, 12), is_reopened=st.booleans())
def test_the_first_record_of_a_time_is_found_as_in_a_list(batches, start: int, is_reopened: bool) -> None:
    with tempfile.TemporaryDirectory() as root:
        config = LogConfig(segment_bytes=300, index_interval_bytes=100)
        arguments = {"topic": "t", "partition": 0, "topic_id": TOPIC_ID, "directory_id": DIRECTORY_ID, "config": config}
        log = PartitionLog.open(Path(root), **arguments)
        times: list[int] = []
        for epoch, (records, codec, is_append_time) in enumerate(batches):
            stored = bytearray(encoded(records, codec, is_append_time))
            stamp(stored, 0, base_offset=len(times), leader_epoch=epoch // 3)
            log.append_as_follower(stored)
            times += [max(records)] * len(records) if is_append_time else records
        start = min(start, len(times))
        log.advance_log_start(start)
        if is_reopened:
            log.flush(with_index=True)
            log.close()
            log = PartitionLog.open(Path(root), **arguments, clean=True, log_start_offset=start)
        for wanted in range(0, 32, 3):
            expected = next((offset for offset in range(start, len(times)) if times[offset] >= wanted), None)
            found = find_offset(log, wanted)
            assert found == (None if expected is None else FoundOffset(times[expected], expected, log.epoch_at(expected)))
        latest = max(times[start:], default=-1)
        offset = times.index(latest, start) if latest >= 0 else -1
        if not start:  # Records below the log start count as long as their batch does.
            assert find_offset(log, -3) == FoundOffset(latest, offset, log.epoch_at(offset) if latest >= 0 else -1)
        assert find_offset(log, -1) == FoundOffset(-1, len(times), log.latest_epoch)
        assert find_offset(log, -2) == find_offset(log, -4) == FoundOffset(-1, start, log.epoch_at(start))
        assert find_offset(log, -5) == find_offset(log, -6) == FoundOffset(-1, -1, -1)
        log.close()


def test_other_negative_timestamps_are_refused(open_log) -> None:
    with pytest.raises(ValueError, match="neither a time nor one of -1, -2, -3, -4, -5, -6"):
        find_offset(open_log(), -7)


def test_a_lookup_reads_little_of_a_large_segment(open_log, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log()
    for number in range(400):
        log.append_as_leader(build_batch([Record(None, b"v" * 500, 10 * number)]), 1)
    [first] = itertools.islice(log.directory.glob("*.log"), 1)
    read: list[int] = []
    real = Segment.read
    monkeypatch.setattr(Segment, "read", lambda self, at, size: (read.append(size), real(self, at, size))[1])
    assert find_offset(log, 2995) == FoundOffset(3000, 300, 1)
    assert sum(read) < first.stat().st_size / 4
