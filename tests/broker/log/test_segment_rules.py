"""When a segment ends, and which segments retention deletes: the rules against naive twins, and on real logs."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftlab.broker.log import log_segments as log_segments_module
from kraftlab.broker.log.expiry import has_expired, remove_deleted
from kraftlab.broker.log.log_config import NO_LIMIT, LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.segment_rules import RetentionCandidate, expired_count, room_in, segment_time_ms

from .conftest import Broker, batch

TINY = st.integers(0, 40)


@given(
    base=TINY,
    size=TINY,
    first_ms=st.integers(-1, 40),
    waited_ms=TINY,
    is_full=st.booleans(),
    limits=st.tuples(TINY, TINY),
    incoming=st.tuples(st.integers(1, 9), TINY, TINY),
    is_far=st.booleans(),
)
def test_a_segment_ends_as_kafkas_does(base, size, first_ms, waited_ms, is_full, limits, incoming, is_far) -> None:
    config = LogConfig(segment_bytes=limits[0], segment_ms=limits[1])
    batch_bytes, timestamp_ms, delta = incoming
    last_offset = base + delta + (2**31 if is_far else 0)
    waited = timestamp_ms - first_ms if first_ms >= 0 else waited_ms
    rolls = last_offset - base > 2**31 - 1 or (
        size > 0 and (is_full or size + batch_bytes > config.segment_bytes or waited > config.segment_ms)
    )
    room = room_in(base, first_ms, waited_ms, is_full, config, "t-0")
    assert room.fits(size, batch_bytes, last_offset, timestamp_ms) is not rolls


@given(
    segments=st.lists(st.tuples(TINY, TINY), min_size=1, max_size=8),
    high_watermark=st.integers(0, 9),
    retention=st.tuples(st.integers(-1, 200), st.integers(-1, 50)),
)
@example(segments=[(10, 0)], high_watermark=1, retention=(-1, 5))
@example(segments=[(10, 0)], high_watermark=0, retention=(-1, 5))
def test_retention_deletes_the_longest_run_of_old_or_superfluous_segments(segments, high_watermark, retention) -> None:
    config, now_ms = LogConfig(retention_bytes=retention[0], retention_ms=retention[1]), 45
    aging = [RetentionCandidate(size, end, timestamp) for end, (size, timestamp) in enumerate(segments, 1)]
    total = sum(size for size, _ in segments)

    def may_go(count: int) -> bool:
        """Each of the first `count` segments is old, or the log without it has retention.bytes; the last of them has records."""
        left = total
        for segment in aging[:count]:
            left -= segment.size_bytes
            is_old = retention[1] >= 0 and now_ms - segment.timestamp_ms > retention[1]
            is_excess = retention[0] >= 0 and left >= retention[0]
            if segment.end_offset > high_watermark or (segment.size_bytes and not (is_old or is_excess)):
                return False
        return count == 0 or aging[count - 1].size_bytes > 0

    longest = max(count for count in range(len(aging) + 1) if may_go(count))
    assert expired_count(aging, total, high_watermark, config, now_ms) == longest


@given(jitter_ms=st.integers(0, 10**7), segment_ms=st.integers(1, 10**7))
def test_jitter_shortens_the_time_of_a_segment_by_a_part_that_depends_on_its_name(jitter_ms: int, segment_ms: int) -> None:
    config = LogConfig(segment_ms=segment_ms, segment_jitter_ms=jitter_ms)
    times = {segment_time_ms(config, f"t-{number}/0") for number in range(50)}
    assert times == {segment_time_ms(config, f"t-{number}/0") for number in range(50)}
    assert all(max(segment_ms - jitter_ms, 0) <= time_ms <= segment_ms for time_ms in times)
    assert len(times) > 25 or min(jitter_ms, segment_ms) < 1000


def test_a_compacted_topics_segment_ends_in_time_for_its_compaction() -> None:
    lag = {"max_compaction_lag_ms": 50, "segment_ms": 100}
    assert segment_time_ms(LogConfig(**lag), "t-0/0") == 100
    assert segment_time_ms(LogConfig(**lag, is_compacted=True), "t-0/0") == 50


def bases(log: PartitionLog) -> list[int]:
    return sorted(int(path.stem) for path in log.directory.glob("*.log"))


def test_a_segment_ends_when_a_batch_comes_segment_ms_after_its_first(open_log) -> None:
    log = open_log(config=LogConfig(segment_ms=1000))
    for timestamp_ms in (5000, 6000, 5500, 6001, 7001, 7002):
        log.append_as_leader(batch(timestamp_ms=timestamp_ms), 1)
    assert bases(log) == [0, 3, 5]


def test_the_age_of_a_segment_survives_a_restart(open_log) -> None:
    config = LogConfig(segment_ms=1000)
    log = open_log(config=config)
    log.append_as_leader(batch(timestamp_ms=5000), 1)
    log.flush(with_index=True)
    log.close()
    log = open_log(config=config, clean=True)
    log.append_as_leader(batch(timestamp_ms=6001), 1)
    assert bases(log) == [0, 1]


def test_a_segment_without_timestamps_ends_by_the_clock(open_log, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(config=LogConfig(segment_ms=1000))
    log.append_as_leader(batch(timestamp_ms=-1), 1)
    log.append_as_leader(batch(timestamp_ms=-1), 1)
    now_ms = log_segments_module.wall_clock_ms()
    monkeypatch.setattr(log_segments_module, "wall_clock_ms", lambda: now_ms + 1001)
    log.append_as_leader(batch(timestamp_ms=-1), 1)
    assert bases(log) == [0, 2]


@pytest.mark.parametrize(("index_bytes", "batches"), [(8 * 5, 3), (12 * 9, 9), (1, 1)])
def test_a_segment_ends_when_an_index_is_full(open_log, index_bytes: int, batches: int) -> None:
    """The time index has room for three, nine or no entries, the last of which is for the roll. The first batch needs none."""
    log = open_log(config=LogConfig(segment_index_bytes=index_bytes, index_interval_bytes=1))
    for number in range(20):
        log.append_as_leader(batch(timestamp_ms=1000 + number), 1)
    assert bases(log)[:2] == [0, batches]
    for path in log.directory.glob("*index"):
        assert path.stat().st_size <= max(index_bytes, 12)


def test_an_idle_topic_expires(open_log) -> None:
    log = open_log(config=LogConfig(retention_ms=100))
    log.append_as_leader(batch(3, timestamp_ms=1000), 4)
    assert not has_expired(log, now_ms=10**6), "above the high watermark"
    log.high_watermark = 3
    assert not has_expired(log, now_ms=1102)
    assert has_expired(log, now_ms=1103)
    assert log.delete_old_segments(now_ms=1103) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, bases(log)) == (3, 3, 0, [3])
    assert (log.delete_old_segments(now_ms=10**7), log.latest_epoch) == (0, 4)
    assert log.append_as_leader(batch(), 4)[:2] == (3, 4)


def test_a_segment_without_timestamps_expires_by_the_time_of_its_last_change(open_log) -> None:
    log = open_log(config=LogConfig(retention_ms=1000))
    log.append_as_leader(batch(timestamp_ms=-1), 1)
    log.high_watermark = 1
    os.utime(log.directory / f"{0:020d}.log", (5, 5))
    assert (has_expired(log, now_ms=6000), has_expired(log, now_ms=6001)) == (False, True)


def test_deleted_segments_are_removed_after_the_topics_delay(open_log) -> None:
    log = open_log(config=LogConfig(segment_bytes=100, retention_ms=100, file_delete_delay_ms=5000))
    for number in range(3):
        log.append_as_leader(batch(timestamp_ms=1000 + number), 1)
    log.high_watermark = 3
    before = log_segments_module.wall_clock_ms()
    assert log.delete_old_segments(now_ms=1102) == 2
    deadline_ms = log.removals[0].deadline_ms
    assert 5000 <= deadline_ms - before < 60_000
    set_aside = sorted(path.name for path in log.directory.glob("*.deleted"))
    assert set_aside == [f"{base:020d}.{kind}.deleted" for base in (0, 1) for kind in ("log", "timeindex")]
    log.rename(log.log_dir / "orders-0.x-future")
    assert (remove_deleted(log, deadline_ms - 1), remove_deleted(log, deadline_ms + 1000), log.removals) == (0, 6, ())
    assert list(log.directory.glob("*.deleted")) == []


def test_deleted_segments_are_removed_at_the_next_start_and_records_come_from_the_others(open_log) -> None:
    config = LogConfig(segment_bytes=100)
    log = open_log(config=config)
    for _ in range(3):
        log.append_as_leader(batch(), 1)
    log.advance_log_start(2)
    log.truncate_to(2)
    log.append_as_leader(batch(value_bytes=20), 1)
    assert len(list(log.directory.glob("*.log.deleted"))) == 2
    whole = log.read(2, 1000)
    log.close()
    log = open_log(config=config, log_start_offset=2)
    assert (list(log.directory.glob("*.deleted")), log.read(2, 1000)) == ([], whole)


def test_the_manager_removes_deleted_segments_and_knows_when(broker: Broker) -> None:
    manager, log = broker.with_log(*(batch(20, value_bytes=100) for _ in range(3)))
    log.config = LogConfig(file_delete_delay_ms=NO_LIMIT // 10**6)
    log.advance_log_start(log.log_end_offset)
    deadline_ms = log.removals[0].deadline_ms
    assert manager.next_expiry_ms() == deadline_ms
    manager.remove_expired(deadline_ms - 1)
    assert list(log.directory.glob("*.deleted"))
    manager.remove_expired(log.removals[-1].deadline_ms)
    assert (list(log.directory.glob("*.deleted")), manager.next_expiry_ms()) == ([], None)


@pytest.mark.parametrize("step", range(10))
def test_a_crash_while_segments_are_deleted_leaves_a_log_without_a_hole(open_log, step: int) -> None:
    """A deletion renames three files of each segment: one that is missing, then the others, the log last."""
    config = LogConfig(segment_bytes=100)
    log = open_log(config=config)
    for number in range(4):
        log.append_as_leader(batch(timestamp_ms=1000 + number), 1)
    log.flush()
    real, left = os.rename, [step]

    class Crash(BaseException):
        pass

    def rename(source: str, target: str) -> None:
        if not left[0]:
            raise Crash
        left[0] -= 1
        real(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with suppress(Crash):
            log.advance_log_start(3)
    log = open_log(config=config, recovery_point=4)
    assert log.log_end_offset == 4
    first = log.log_start_offset
    assert log.recovery.reason is None
    assert first == min(step // 3, 3)
    assert [path.name for path in log.directory.iterdir() if path.name.endswith(".deleted")] == []
