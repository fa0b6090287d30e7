"""Index files: lookups against a naive twin, and segments whose indexes are missing or wrong."""

from __future__ import annotations

import itertools
import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.broker.log import indexes, open_files
from kraftlab.broker.log import segment as segment_module
from kraftlab.broker.log.expiry import has_expired
from kraftlab.broker.log.indexes import OFFSETS, TIMES, IndexFile, IndexKind
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.open_files import LogFile
from kraftlab.broker.log.partition_log import PartitionLog

from .conftest import batch

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9), st.integers(1, 9)),
        st.tuples(st.just("write"), st.just(0), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("open again"), st.just(0), st.just(0)),
        st.tuples(st.just("clear"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("kind", [OFFSETS, TIMES])
@settings(max_examples=60, deadline=None)
@given(steps=STEPS, page_entries=st.integers(1, 4))
def test_an_index_answers_like_a_list(kind: IndexKind, steps: list[tuple[str, int, int]], page_entries: int) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes, "PAGE_ENTRIES", page_entries)
        log = LogFile(f"{root}/0.log", root)
        index, twin = IndexFile(kind, log, 0), list[tuple[int, int]]()
        for step, first, second in steps:
            match step:
                case "append":
                    last = twin[-1] if twin else (0, 0)
                    twin.append((last[0] + first, last[1] + second))
                    index.append(*twin[-1])
                    index.write_pages()
                case "write":
                    index.write(durably=first % 2 == 0)
                case "truncate":
                    count = len(twin) * first // 100
                    del twin[count:]
                    index.truncate(count)
                case "open again":
                    index.write()
                    index = IndexFile(kind, log, -1)
                case "clear":
                    twin.clear()
                    index.clear()
            assert (len(index), index.last()) == (len(twin), twin[-1] if twin else None)
        for column, wanted in itertools.product((0, 1), range(0, (twin[-1][0] if twin else 0) + 9, 2)):
            assert index.count_upto(column, wanted) == bisect_right([entry[column] for entry in twin], wanted)
        assert [index.entry(number) for number in range(-1, len(twin) + 1)] == [None, *twin, None]


def filled(open_log: Callable[..., PartitionLog], **options: object) -> PartitionLog:
    """A log of two segments, the first one full and with some entries in its indexes."""
    log = open_log(config=LogConfig(segment_bytes=60_000), **options)
    while len(list(log.directory.glob("*.log"))) < 2:
        log.append_as_leader(batch(2, value_bytes=200, timestamp_ms=1000 + 10 * log.log_end_offset), 1)
    return log


def entries(log: PartitionLog, kind: IndexKind) -> list[tuple[int, int]]:
    return list(kind.entry.iter_unpack((log.directory / f"{0:020d}{kind.suffix}").read_bytes()))


def test_a_full_segment_has_both_indexes_and_the_largest_timestamp_last(open_log) -> None:
    log = filled(open_log)
    offsets, times = entries(log, OFFSETS), entries(log, TIMES)
    second = int(sorted(path.stem for path in log.directory.glob("*.log"))[1])
    assert times[-1] == (1000 + 10 * (second - 2) + 1, second - 1)
    assert [relative for relative, _ in offsets] == [relative for _, relative in times[:-1]]
    assert all(after - before >= 4096 for (_, before), (_, after) in itertools.pairwise(offsets))


def test_the_interval_of_entries_is_the_topics(open_log) -> None:
    log = filled(open_log)
    few = len(entries(log, OFFSETS))
    log.truncate_fully_and_start_at(0)
    log.config = LogConfig(segment_bytes=60_000, index_interval_bytes=1000)
    for _ in range(130):
        log.append_as_leader(batch(2, value_bytes=200), 1)
    assert len(entries(log, OFFSETS)) > 3 * few


@pytest.mark.parametrize("damage", ["missing", "short", "garbage", "of another log"])
@pytest.mark.parametrize("suffix", [OFFSETS.suffix, TIMES.suffix])
def test_a_wrong_index_of_an_older_segment_costs_time_until_retention_rebuilds_it(open_log, damage: str, suffix: str) -> None:
    log = filled(open_log)
    log.flush(with_index=True)
    log.close()
    good = {kind.suffix: (log.directory / f"{0:020d}{kind.suffix}").read_bytes() for kind in (OFFSETS, TIMES)}
    path = log.directory / f"{0:020d}{suffix}"
    match damage:
        case "missing":
            path.unlink()
        case "short":
            path.write_bytes(good[suffix][:-3])
        case "garbage":
            path.write_bytes(os.urandom(len(good[suffix])))
        case "of another log":
            path.write_bytes(bytes(byte ^ (number % 4 == 3) for number, byte in enumerate(good[suffix])))
    log = open_log(clean=True)
    whole = log.read(0, 1 << 20)
    for offset in range(0, log.log_end_offset, 7):
        assert whole.endswith(log.read(offset, 1 << 20))
    log.config = LogConfig(retention_ms=10**12)
    assert not has_expired(log, now_ms=10**12)
    assert {name: (log.directory / f"{0:020d}{name}").read_bytes() for name in good} == good


def test_rebuilding_an_index_lets_appends_go_on_and_ends_at_a_truncation(open_log, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(open_log)
    log.flush(with_index=True)
    log.close()
    (log.directory / f"{0:020d}{TIMES.suffix}").unlink()
    log = open_log(clean=True, config=LogConfig(segment_bytes=60_000))
    monkeypatch.setattr(segment_module, "BUILD_STEP_BYTES", 10_000)
    pauses: list[int] = []
    pins: list[PartitionLog] = []
    build, pinned = segment_module.Segment.build_indexes, PartitionLog.pinned

    def with_appends(segment: segment_module.Segment):
        for _ in build(segment):
            pauses.append(log.append_as_leader(batch(), 1)[0])
            yield

    def truncated_meanwhile(self: PartitionLog):
        pins.append(self)
        if len(pins) == 4:
            self.truncate_to(self.log_end_offset - 1)
        return pinned(self)

    monkeypatch.setattr(segment_module.Segment, "build_indexes", with_appends)
    monkeypatch.setattr(PartitionLog, "pinned", truncated_meanwhile)
    log.config = LogConfig(retention_ms=10**12)
    assert not has_expired(log, now_ms=10**12)
    assert len(pauses) == 2 + 5, "it began again after the truncation"
    assert entries(log, TIMES)


def test_a_clean_start_reads_only_the_ends_of_older_segments(open_log, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(open_log)
    end_offset = log.log_end_offset
    log.flush(with_index=True)
    log.close()
    opened: list[str] = []
    sizes: list[int] = []
    real, real_pread = os.open, os.pread
    monkeypatch.setattr(os, "open", lambda path, *rest, **more: (opened.append(Path(path).name), real(path, *rest, **more))[1])
    monkeypatch.setattr(os, "pread", lambda descriptor, size, at: (sizes.append(size), real_pread(descriptor, size, at))[1])
    descriptors = len(os.listdir("/proc/self/fd"))
    log = open_log(clean=True)
    assert log.log_end_offset == end_offset
    assert sorted(name for name in opened if name.startswith(f"{0:020d}")) == [f"{0:020d}.index", f"{0:020d}.log"]
    assert max(sizes) <= segment_module.WINDOW_BYTES
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1, "only the active segment stays open"


def test_memory_of_an_index_is_bounded(open_log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "PAGE_ENTRIES", 4)
    log = open_log(config=LogConfig(index_interval_bytes=0))
    for _ in range(50):
        log.append_as_leader(batch(), 1)
    assert (log.directory / f"{0:020d}.index").stat().st_size == 48 * OFFSETS.entry.size


def test_lookups_in_indexes_need_no_kept_descriptor(open_log) -> None:
    log = filled(open_log)
    before = len(os.listdir("/proc/self/fd"))
    for offset in range(0, log.log_end_offset, 5):
        log.read(offset, 1)
    assert len(os.listdir("/proc/self/fd")) <= before + open_files.OPEN_FILES.open_count
