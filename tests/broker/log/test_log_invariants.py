"""Any order of appends, rolls, retention, deletions, truncations, compactions, flushes and restarts: the log's marks keep their
order, on the disk too, and the log holds what a list of records holds.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kraftlab.broker.log import checkpoints
from kraftlab.broker.log.expiry import has_expired, remove_deleted
from kraftlab.broker.log.leader_epochs import LeaderEpochs
from kraftlab.broker.log.log_config import DAY_MS, NO_LIMIT, LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.time_lookup import find_offset
from kraftlab.common.clock import wall_clock_ms
from kraftlab.records.record_batch import (
    HEADER_BYTES,
    Record,
    StoredRecord,
    build_batch,
    decode_records,
    encode_batch,
    iterate,
    read_header,
)

from .conftest import DIRECTORY_ID, TOPIC, TOPIC_ID, Broker, batch, replica
from .test_compacting import compact

MUCH = 1 << 30
LATEST_MS = 2**63 - 1
TIMES = (LATEST_MS, -1, 0, 1, wall_clock_ms() - 8 * DAY_MS, wall_clock_ms())
CONFIG = LogConfig(
    segment_bytes=400,
    index_interval_bytes=100,
    retention_ms=7 * DAY_MS,
    is_compacted=True,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=NO_LIMIT,
    message_timestamp_after_max_ms=NO_LIMIT,
)


def stored(log: PartitionLog) -> list[StoredRecord]:
    data = log.read(log.log_start_offset, MUCH)
    return [record for record in decode_records(data) if record.offset >= log.log_start_offset]


class Logs(RuleBasedStateMachine):
    """One log under a manager. The model: its records, and the epoch of each."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.broker = Broker(Path(self.directory), 1)
        self.records: list[StoredRecord] = []
        self.epochs: dict[int, int] = {}
        self.start_offset = self.written_start = 0
        self.epoch = 0
        self._open()

    def teardown(self) -> None:
        assert self.broker.manager is not None
        self.broker.manager.abandon()
        shutil.rmtree(self.directory)

    def _open(self) -> None:
        self.manager = self.broker.start(replica(self.broker, 0))
        self.log = self.manager.get_or_create("t", TOPIC, 0)
        self.log.config = CONFIG
        # A start writes the checkpoints.
        self.written_start = self.log.log_start_offset

    def _adopt(self) -> None:
        """Take the log's records as they are, after a change that may keep fewer."""
        self.records, self.start_offset = stored(self.log), self.log.log_start_offset

    @property
    def _end_offset(self) -> int:
        return self.log.log_end_offset

    # Changes

    @rule(count=st.integers(1, 3), timestamp_ms=st.sampled_from(TIMES), size=st.sampled_from((1, 150, 500)))
    def append(self, count: int, timestamp_ms: int, size: int) -> None:
        records = [Record(b"%d" % (size + i), b"v" * size, timestamp_ms) for i in range(count)]
        base, end, *_ = self.log.append_as_leader(build_batch(records), self.epoch)
        assert end - base == count
        self._note(records, base)

    @rule(behind=st.integers(0, 3), timestamp_ms=st.sampled_from(TIMES))
    def append_copied(self, behind: int, timestamp_ms: int) -> None:
        """A gap, and a producer's batch, as a leader has them. In an empty log the batch may begin below the log start."""
        begins_below = not self.records and self.start_offset == self._end_offset >= behind > 0
        base = self._end_offset - behind if begins_below and not self.log.size_bytes else self._end_offset + behind
        records = [Record(b"k%d" % i, b"v", timestamp_ms) for i in range(behind + 1)]
        copied = build_batch(
            records, base_offset=base, leader_epoch=self.epoch, producer_id=7, producer_epoch=0, base_sequence=base
        )
        assert self.log.append_as_follower(copied, self.epoch) == base + len(records)
        self._note(records, base)

    def _note(self, records: list[Record], base: int) -> None:
        for offset, record in enumerate(records, base):
            if offset >= self.start_offset:
                self.records.append(StoredRecord(offset, record.key, record.value, record.timestamp_ms))
            self.epochs[offset] = self.epoch

    @rule()
    def begin_epoch(self) -> None:
        self.epoch += 1
        self.log.start_epoch(self.epoch)

    @rule(share=st.sampled_from((0.0, 0.5, 1.0)))
    def commit(self, share: float) -> None:
        self.log.high_watermark = max(self.log.high_watermark, int(self._end_offset * share))

    @rule(limit_bytes=st.sampled_from((-1, 0, 1000)))
    def retain(self, limit_bytes: int) -> None:
        self.log.config = msgspec.structs.replace(CONFIG, retention_bytes=limit_bytes)
        before, high_watermark = self.start_offset, self.log.high_watermark
        is_due = has_expired(self.log)
        assert bool(self.log.delete_old_segments()) == is_due
        assert not has_expired(self.log), "one pass deletes all that retention may delete"
        assert before <= self.log.log_start_offset <= max(high_watermark, before)
        self.log.config = CONFIG
        self._delete_below(self.log.log_start_offset)
        bases = self._bases()
        assert len(bases) == 1 or bases[1] > self.start_offset

    @rule(share=st.sampled_from((0.3, 1.0)))
    def delete_records(self, share: float) -> None:
        offset = int(self.log.high_watermark * share)
        self.log.advance_log_start(offset)
        self._delete_below(offset)

    def _delete_below(self, offset: int) -> None:
        self.start_offset = max(self.start_offset, offset)
        self.records = [record for record in self.records if record.offset >= self.start_offset]

    @rule(behind=st.integers(0, 6))
    def truncate(self, behind: int) -> None:
        offset = max(self._end_offset - behind, 0)
        before = self.start_offset
        reached = self.log.truncate_to(offset)
        assert reached <= max(offset, before)
        self.records = [record for record in self.records if record.offset < reached]
        self.start_offset = min(before, reached)
        assert self.log.log_start_offset == self.start_offset
        self.written_start = min(self.written_start, self.start_offset)

    @rule(shift=st.integers(-5, 5))
    def start_over(self, shift: int) -> None:
        offset = max(self._end_offset + shift, 0)
        self.log.truncate_fully_and_start_at(offset)
        assert (self.log.log_start_offset, self._end_offset, self.log.high_watermark) == (offset, offset, offset)
        self.records, self.start_offset = [], offset
        self.written_start = min(self.written_start, offset)

    @rule()
    def compact(self) -> None:
        before, last = stored(self.log), {}
        for record in before:
            last[record.key] = record
        compact(self.log, now_ms=wall_clock_ms())
        self._adopt()
        assert [record for record in self.records if record in before] == self.records
        assert set(last.values()) <= set(self.records)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self._end_offset

    @rule()
    def checkpoint(self) -> None:
        """Flush what is rolled, and write all checkpoints."""
        self.manager.write_checkpoints()
        assert self.log.recovery_point >= self._bases()[-1]
        self.written_start = self.start_offset

    @rule()
    def remove_files(self) -> None:
        remove_deleted(self.log, LATEST_MS)

    @rule()
    def stop_and_start(self) -> None:
        self.manager.close()
        self._open()
        assert self.log.recovery.reason is None
        assert self.log.recovery_point == self._end_offset
        assert self.log.log_start_offset == self.start_offset

    @rule(lost_bytes=st.integers(0, 200))
    def crash(self, lost_bytes: int) -> None:
        """The process ends. `lost_bytes`: at most so much of the last segment that was not flushed is lost, too."""
        recovery_point = self._written(checkpoints.RECOVERY_POINTS)
        assert self._written(checkpoints.LOG_START_OFFSETS) <= self.start_offset
        path = self.log.directory / f"{self._bases()[-1]:020d}.log"
        self.manager.abandon()
        data = path.read_bytes()
        durable = [at + header.size_bytes for at, header in iterate(data) if header.end_offset <= recovery_point]
        path.write_bytes(data[: max(len(data) - lost_bytes, max(durable, default=0))])
        self._open()
        assert self.written_start <= self.start_offset or not lost_bytes
        found = stored(self.log)
        expected = [record for record in self.records if record.offset < self._end_offset]
        assert [record for record in found if record.offset >= self.start_offset] == expected
        self._adopt()

    # What holds at any time

    def _bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self.log.directory.glob("*.log"))

    def _written(self, name: str) -> int:
        return checkpoints.read_offsets(self.broker.dirs[0] / name).get(("t", 0), 0)

    @invariant()
    def marks_are_in_order(self) -> None:
        log = self.log
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.log_start_offset <= log.recovery_point <= log.log_end_offset
        assert log.cleaned_to <= log.log_end_offset
        assert self._bases()[0] <= log.log_start_offset

    @invariant()
    def marks_on_the_disk_rest_on_each_other(self) -> None:
        """A written recovery point needs no record below the written log start, and none that may still be lost."""
        assert self._written(checkpoints.RECOVERY_POINTS) <= self._end_offset
        assert self._written(checkpoints.LOG_START_OFFSETS) <= max(self.start_offset, self._bases()[0])

    @invariant()
    def the_log_holds_the_records(self) -> None:
        assert stored(self.log) == self.records
        assert self.log.log_start_offset == self.start_offset

    @invariant()
    def epochs_and_producers_lie_within_the_log(self) -> None:
        starts = [entry.start_offset for entry in self.log.epochs]
        assert all(self.start_offset <= start <= self._end_offset for start in starts)
        for record in self.records:
            assert self.log.epoch_at(record.offset) == self.epochs[record.offset]
        for known in self.log.producers.producers.values():
            assert all(stored_batch.last_offset < self._end_offset for stored_batch in known.batches)

    @invariant()
    def times_are_found(self) -> None:
        for timestamp_ms in (0, 1, wall_clock_ms(), LATEST_MS):
            found = find_offset(self.log, timestamp_ms)
            expected = next((record.offset for record in self.records if record.timestamp_ms >= timestamp_ms), None)
            assert (None if found is None else found.offset) == expected


def run_logs(examples: int, steps: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Logs,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=[*HealthCheck], print_blob=True
        ),
    )


def test_whatever_happens_to_a_log_its_marks_keep_their_order() -> None:
    run_logs(examples=8, steps=20)


@pytest.mark.nightly
def test_whatever_happens_to_a_log_at_length() -> None:
    run_logs(examples=500, steps=40)


def test_a_batch_that_begins_below_the_log_start_and_is_not_committed_outlives_a_compaction() -> None:
    """As a follower copies it after it has started over within a batch of the leader."""
    logs = Logs()
    logs.append(count=1, timestamp_ms=LATEST_MS, size=1)
    logs.start_over(shift=0)
    logs.append_copied(behind=1, timestamp_ms=LATEST_MS)
    logs.append(count=1, timestamp_ms=LATEST_MS, size=500)
    before = logs.records
    logs.compact()
    assert [record.offset for record in before] == [1, 2] and logs.records == before
    logs.teardown()


OFFSETS = st.sampled_from((0, 1, 5, 6, 7, 8, 12, 13, 2**31, 2**63 - 2))


@settings(max_examples=15, deadline=None, suppress_health_check=[*HealthCheck])
@given(start=OFFSETS, recovery_point=OFFSETS, high_watermark=OFFSETS, cleaned_to=OFFSETS, clean=st.booleans())
def test_any_checkpoints_open_to_a_log_that_works(
    start: int, recovery_point: int, high_watermark: int, cleaned_to: int, clean: bool
) -> None:
    """Whichever of the four files is older than the others, or damaged."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "orders-0"
        directory.mkdir()

        def opened(**options: Any) -> PartitionLog:
            config = msgspec.structs.replace(CONFIG, segment_bytes=400)
            names = {"topic": "orders", "partition": 0, "topic_id": TOPIC_ID, "directory_id": DIRECTORY_ID}
            return PartitionLog.open(directory, config=config, **names, **options)

        log = opened()
        for base in range(0, 12, 2):
            log.append_as_follower(batch(2, base, value_bytes=100))
        log.close()
        marks = {"log_start_offset": start, "recovery_point": recovery_point, "high_watermark": high_watermark}
        log = opened(**marks, cleaned_to=cleaned_to, clean=clean)
        assert log.log_start_offset == start
        assert start <= log.high_watermark <= log.log_end_offset == max(start, 12)
        assert start <= log.recovery_point <= log.log_end_offset
        assert log.cleaned_to <= log.log_end_offset
        assert [record.offset for record in stored(log)] == [*range(min(start, 12), 12)]
        log.delete_old_segments()
        log.flush_rolled()
        if start < 2**63 - 2:
            log.append_as_follower(batch(1, log.log_end_offset))
        log.flush(with_index=True)
        log.close()


def filled(open_log: Callable[..., PartitionLog], **options: Any) -> PartitionLog:
    """Three segments of two batches, all committed, none flushed."""
    log: PartitionLog = open_log(segment_bytes=400, **options)
    for _ in range(6):
        log.append_as_leader(batch(2, value_bytes=100), 1)
    log.high_watermark = log.log_end_offset
    return log


def test_records_that_are_deleted_before_they_were_flushed_leave_a_log_that_can_be_flushed(open_log) -> None:
    log = filled(open_log)
    log.advance_log_start(log.log_end_offset)
    assert log.recovery_point == log.log_start_offset == 12
    log.flush_rolled()
    log.flush()


def test_old_records_that_retention_deletes_before_they_were_flushed_do_so_too(open_log) -> None:
    log = open_log()
    log.append_as_leader(batch(1, timestamp_ms=wall_clock_ms() - 8 * DAY_MS), 1)
    log.high_watermark = 1
    assert has_expired(log) and log.delete_old_segments() == 1
    assert (log.recovery_point, log.log_start_offset, log.log_end_offset) == (1, 1, 1)
    log.flush_rolled()


def test_indexes_of_deleted_segments_are_not_flushed_any_more(open_log) -> None:
    """Their files may be gone by then, which would take the directory offline."""
    log = filled(open_log, config=msgspec.structs.replace(CONFIG, file_delete_delay_ms=0))
    log.advance_log_start(log.log_end_offset)
    remove_deleted(log, LATEST_MS)
    log.flush()
    assert not list(log.directory.glob("*.deleted"))


def test_a_segment_that_was_active_when_its_records_were_deleted_goes_with_the_next_retention(open_log) -> None:
    log = open_log(segment_bytes=400)
    log.append_as_leader(batch(2, timestamp_ms=wall_clock_ms(), value_bytes=100), 1)
    log.high_watermark = 2
    log.advance_log_start(2)
    log.append_as_leader(batch(2, timestamp_ms=wall_clock_ms(), value_bytes=200), 1)
    assert has_expired(log) and log.delete_old_segments() == 1
    assert [path.name for path in log.directory.glob("*.log")] == ["00000000000000000002.log"]
    assert not has_expired(log) and log.delete_old_segments() == 0


def test_deleted_segments_that_a_crash_brings_back_damaged_do_not_cost_the_records_above(open_log) -> None:
    log = filled(open_log)
    first = log.directory / "00000000000000000000.log"
    log.close()
    first.write_bytes(b"\0" * 50)
    log = open_log(log_start_offset=8, recovery_point=8)
    assert [record.offset for record in stored(log)] == [8, 9, 10, 11]
    assert not first.exists()


def test_a_log_start_that_a_truncation_lowers_is_lowered_on_the_disk_first(broker: Broker) -> None:
    """Otherwise a crash would hide the records that were appended below the old start."""
    _, log = broker.with_log(*[batch(2)] * 4)
    log.high_watermark = 8
    log.advance_log_start(6)
    assert broker.manager is not None
    broker.manager.write_checkpoints()
    log.truncate_to(2)
    log.append_as_follower(batch(6, 2))
    log = broker.start(replica(broker, 0)).get_or_create("t", TOPIC, 0)
    assert (log.log_start_offset, len(stored(log))) == (2, 6)


def test_log_starts_are_on_the_disk_before_the_recovery_points_that_rest_on_them(broker: Broker, monkeypatch) -> None:
    manager, log = broker.with_log(*[batch(2)] * 4)
    log.high_watermark = 8
    log.advance_log_start(8)
    write, written = checkpoints.write_offsets, []

    def noted(path: Path, offsets: Any) -> None:
        written.append((path.name, dict(offsets).get(("t", 0))))
        write(path, offsets)

    monkeypatch.setattr(checkpoints, "write_offsets", noted)
    manager.write_checkpoints()
    assert written.index((checkpoints.LOG_START_OFFSETS, 8)) < written.index((checkpoints.RECOVERY_POINTS, 8))


def test_an_append_that_fails_by_a_bug_leaves_no_trace(open_log, monkeypatch) -> None:
    log = filled(open_log)
    before = stored(log), log.epochs, log.recovery_point
    with monkeypatch.context() as patch, pytest.raises(KeyError):
        patch.setattr(LeaderEpochs, "assign", lambda *_: {}["a bug"])
        log.append_as_leader(batch(2, value_bytes=300), 2)
    assert (stored(log), log.epochs, log.recovery_point) == before
    assert log.append_as_leader(batch(1), 2)[:2] == (12, 13)


def test_times_beyond_64_bits_wrap_around_and_stop_neither_lookups_nor_compaction(open_log) -> None:
    """A producer may write a timestamp that is the sum of a base and a delta over the largest number."""
    log = open_log(config=CONFIG)
    for _ in range(3):
        records = [Record(b"a", None, LATEST_MS - 1), Record(b"b", b"v" * 300, LATEST_MS - 1), Record(b"c", None, LATEST_MS + 5)]
        header = read_header(build_batch(records[:1]))
        body = build_batch([each._replace(timestamp_ms=each.timestamp_ms - LATEST_MS) for each in records])[HEADER_BYTES:]
        header = header._replace(base_timestamp_ms=LATEST_MS - 1, record_count=3, last_offset_delta=2, max_timestamp_ms=1)
        log.append_as_leader(encode_batch(header, body), 1)
    log.high_watermark = log.log_end_offset
    found = find_offset(log, 1)
    assert found is not None and -(2**63) <= found.timestamp_ms <= LATEST_MS
    compact(log, now_ms=wall_clock_ms())
    assert {record.key for record in stored(log)} == {b"a", b"b", b"c"}
