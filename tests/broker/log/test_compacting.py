"""Compactions of logs on a disk: what readers, followers and the next start find."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.broker.log.compacting import Compaction, CompactionSuperseded
from kraftlab.broker.log.errors import CorruptLog, LogClosed, NoSpace, TooManyOpenFiles
from kraftlab.broker.log.expiry import remove_deleted
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.records.record_batch import CODECS, Record, StoredRecord, build_batch, read_header, validate

from .conftest import DIRECTORY_ID, TOPIC_ID, failing, full_disk
from .test_compaction_filter import batch_of, stored

NOW_MS = 1_700_000_000_000
MUCH = 1 << 30
CONFIG = LogConfig(segment_bytes=600, is_compacted=True, is_deleted=False, delete_retention_ms=1000)

Opener = Callable[..., PartitionLog]


def append(log: PartitionLog, *keys: str, value: bytes | None = b"v" * 40, epoch: int = 1, codec: str = "none") -> int:
    """Append one batch with a record for each key; return its base offset."""
    records = [Record(key.encode(), value, NOW_MS - 1000 + at) for at, key in enumerate(keys)]
    return log.append_as_leader(batch_of(records, 0, codec), epoch)[0]


def compact(log: PartitionLog, now_ms: int = NOW_MS, map_bytes: int = MUCH, **options: Any) -> Compaction:
    compaction = Compaction(log, now_ms=now_ms, map_bytes=map_bytes, **options)
    for _ in compaction.steps():
        pass
    remove_deleted(log, 2 * now_ms)
    return compaction


def records_of(log: PartitionLog) -> list[StoredRecord]:
    data = log.read(log.log_start_offset, MUCH)
    return [item for at, header in validate(data) for item in stored(data[at : at + header.size_bytes])]


def files(log: PartitionLog) -> list[str]:
    return sorted(
        path.name for path in log.directory.iterdir() if not path.name.startswith("leader-epoch") and path.suffix != ".snapshot"
    )


def commit(log: PartitionLog) -> PartitionLog:
    log.high_watermark = log.log_end_offset
    return log


@pytest.fixture
def filled(open_log: Opener) -> PartitionLog:
    """Forty records of five keys, one in a batch, five batches in a segment, all of them committed."""
    log = open_log(config=CONFIG)
    for number in range(40):
        append(log, f"k{number % 5}", epoch=1 + number // 15)
    return commit(log)


def test_the_last_record_of_each_key_stays_below_the_active_segment(filled: PartitionLog) -> None:
    active = filled.segments_below(MUCH)[1][-1].end_offset
    filled.config = msgspec.structs.replace(CONFIG, segment_bytes=MUCH)
    compaction = compact(filled)
    offsets = [record.offset for record in records_of(filled)]
    assert offsets == [*range(active - 5, 40)]
    assert filled.cleaned_to == active and filled.log_end_offset == 40
    assert compaction.bytes_after < compaction.bytes_before
    assert files(filled) == ["00000000000000000000.log", "00000000000000000000.timeindex", f"{active:020}.log"]


def test_offsets_between_the_records_that_stay_can_be_read(filled: PartitionLog) -> None:
    compact(filled)
    headers = [header for _, header in validate(filled.read(0, MUCH))]
    for offset in range(40):
        first = read_header(filled.read(offset, 1))
        assert first == next(header for header in headers if header.end_offset > offset)


def test_leader_epochs_and_ends_are_the_same_after_a_copy_and_after_the_loss_of_their_file(
    filled: PartitionLog, tmp_path: Path, open_log: Opener
) -> None:
    before = filled.epochs
    compact(filled)
    copy = tmp_path / "dir" / "copy-0"
    copy.mkdir()
    follower = PartitionLog.open(copy, topic="copy", partition=0, topic_id=TOPIC_ID, directory_id=DIRECTORY_ID, config=CONFIG)
    while follower.log_end_offset < filled.log_end_offset:
        follower.append_as_follower(filled.read(follower.log_end_offset, 300))
    assert follower.epochs == filled.epochs == before
    assert records_of(follower) == records_of(filled)
    follower.close()
    filled.close()
    (filled.directory / "leader-epoch-checkpoint").unlink(missing_ok=True)
    again = open_log(config=CONFIG)
    assert again.epochs == before and again.log_end_offset == 40
    again.close()


def test_a_batch_is_still_known_as_sent_twice_after_its_records_went(open_log: Opener) -> None:
    log = open_log(config=CONFIG)
    sent = [
        batch_of([Record(b"a", b"%d" % number, NOW_MS)], 0, producer_id=7, producer_epoch=0, base_sequence=number)
        for number in range(3)
    ]
    for batch in sent:
        log.append_as_leader(batch, 1)
    for number in range(20):
        append(log, f"{'ab'[number % 2]}")
    compact(commit(log))
    assert [record.offset for record in records_of(log) if record.offset < 5] == []
    end = log.log_end_offset
    log.close()
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    log = open_log(config=CONFIG)
    assert log.append_as_leader(sent[2], 1)[0] == 2
    assert log.log_end_offset == end


def test_the_end_stays_when_the_active_segment_is_empty_and_the_last_record_goes(open_log: Opener) -> None:
    log = open_log(config=CONFIG)
    for number in range(12):
        append(log, "a" if number != 11 else "b", value=None)
    [*_, last] = [segment.base_offset for segment in log.segments_below(MUCH)[1]]
    commit(log)
    log.truncate_to(log.segments_below(MUCH)[1][-1].end_offset)
    append(log, "x")
    compact(commit(log))
    compact(log, NOW_MS + 5000)
    end = log.log_end_offset
    log.close()
    assert open_log(config=CONFIG).log_end_offset == end and last < end


def test_nothing_above_the_high_watermark_or_within_the_lag_is_compacted(filled: PartitionLog) -> None:
    filled.high_watermark = 12
    assert filled.cleanable(NOW_MS).end_offset <= 12
    commit(filled)
    filled.config = LogConfig(segment_bytes=600, is_compacted=True, min_compaction_lag_ms=5000)
    assert filled.cleanable(NOW_MS).dirty_bytes == 0
    assert filled.cleanable(NOW_MS + 10_000).dirty_bytes > 0


def test_a_log_is_due_by_its_dirty_ratio_or_its_age(filled: PartitionLog) -> None:
    assert filled.cleanable(NOW_MS).dirty_ratio == 1.0 and filled.cleanable(NOW_MS).is_due(CONFIG)
    compact(filled)
    for number in range(5):
        append(commit(filled), f"n{number}", epoch=3)
    part = commit(filled).cleanable(NOW_MS)
    assert 0 < part.dirty_ratio < 1
    for ratio, is_due in ((part.dirty_ratio - 0.01, True), (part.dirty_ratio, False)):
        assert part.is_due(LogConfig(min_cleanable_dirty_ratio=ratio)) is is_due
    filled.config = LogConfig(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=500)
    assert filled.cleanable(NOW_MS).is_due(filled.config)
    assert not filled.cleanable(NOW_MS - 600).is_due(filled.config)


def test_a_full_map_cleans_a_part_and_the_next_compaction_the_rest(open_log: Opener) -> None:
    log = open_log(config=CONFIG)
    for number in range(60):
        append(log, f"k{number % 20}")
    commit(log)
    ends = []
    while log.cleanable(NOW_MS).dirty_bytes and len(ends) < 20:
        compact(log, map_bytes=8 * 202)
        ends.append(log.cleaned_to)
    assert len(ends) > 3 and ends == sorted(set(ends))
    active = log.segments_below(MUCH)[1][-1].end_offset
    kept = [record.key for record in records_of(log) if record.offset < active]
    assert len(kept) == len(set(kept)) == 20


def test_a_log_that_is_compacted_again_gives_the_same_records(filled: PartitionLog) -> None:
    compact(filled)
    before = records_of(filled)
    filled.set_cleaned_to(0)
    compact(filled)
    assert records_of(filled) == before


def test_a_truncation_lowers_the_compacted_part_on_the_disk_first(open_log: Opener) -> None:
    seen: list[int] = []
    log = open_log(config=CONFIG, before_truncation=lambda: seen.append(log.cleaned_to))
    for number in range(40):
        append(log, f"k{number % 5}")
    compact(commit(log))
    assert log.cleaned_to > 30
    log.truncate_to(23)
    assert seen == [log.cleaned_to] and log.cleaned_to <= log.log_end_offset <= 23


@pytest.mark.parametrize("change", ["truncate", "delete", "close", "rename", "refuse"])
def test_a_log_that_changes_meanwhile_is_left_as_it_is(filled: PartitionLog, change: str) -> None:
    compaction = Compaction(filled, now_ms=NOW_MS, map_bytes=MUCH, may_replace=lambda: change != "refuse")
    steps = compaction.steps()
    next(steps)
    next(steps)
    match change:
        case "truncate":
            filled.truncate_to(7)
        case "delete":
            filled.advance_log_start(9)
        case "close":
            filled.close()
        case "rename":
            filled.rename(filled.directory.with_name("orders-0.x-delete"))
    with pytest.raises((CompactionSuperseded, LogClosed)):
        for _ in steps:
            pass
    left = [name for name in files(filled) if name.endswith((".cleaned", ".swap"))]
    assert filled.cleaned_to == 0 and (not left or change == "rename")


def test_a_compaction_that_is_given_up_leaves_no_files(filled: PartitionLog) -> None:
    steps = Compaction(filled, now_ms=NOW_MS, map_bytes=MUCH).steps()
    next(steps)
    next(steps)
    assert any(name.endswith(".cleaned") for name in files(filled))
    steps.close()
    assert not any(name.endswith(".cleaned") for name in files(filled))


def test_a_damaged_batch_is_named_and_nothing_changes(filled: PartitionLog) -> None:
    before = files(filled)
    with open(filled.directory / "00000000000000000000.log", "r+b") as file:
        file.seek(70)
        file.write(b"\xff")
    with pytest.raises(CorruptLog, match=r"from offset 0 on .*crc is"):
        compact(filled)
    assert files(filled) == before


def test_a_full_disk_and_too_many_open_files_leave_the_log_as_it_was(
    filled: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = records_of(filled)
    with full_disk(monkeypatch, filled.directory), pytest.raises(NoSpace):
        compact(filled)
    with monkeypatch.context() as patch, pytest.raises(TooManyOpenFiles):
        patch.setattr("kraftlab.broker.log.segment.OPEN_FILES.create", failing(24))
        compact(filled)
    assert records_of(filled) == before and not any(name.endswith(".cleaned") for name in files(filled))
    compact(filled)
    assert len(records_of(filled)) < len(before)


def test_two_digests_of_one_log_differ_only_if_a_compaction_came_between(filled: PartitionLog) -> None:
    before = filled.digest()
    assert filled.digest() == before
    compact(filled)
    assert filled.digest() != before


# --- against a naive map, on a disk --------------------------------------------------------------------------------------------

changes = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), min_size=1, max_size=4),
        st.sampled_from(CODECS),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40)
@given(changes, st.integers(0, 2**16))
def test_a_log_that_is_compacted_truncated_and_reopened_holds_what_a_naive_map_says(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[list[tuple[str, bool]], str, int]], seed: int
) -> None:
    chance = random.Random(seed)
    root = tmp_path_factory.mktemp("logs")
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, root)
        log = _Twin(root / "dir" / "t-0", chance)
        ending.callback(log.close)
        for records, codec, what in found:
            log.append(records, codec)
            if what < 3:
                log.compact()
            elif what == 3:
                log.truncate()
            elif what == 4:
                log.reopen()
        log.compact()
        log.reopen()


class _Twin:
    """A log, and the records that were appended to it and neither truncated nor replaced before a compaction."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        directory.mkdir(parents=True)
        self._directory, self._chance = directory, chance
        self.all: dict[int, tuple[str, bytes | None]] = {}
        self.now_ms, self.epoch = NOW_MS, 1
        self.log = self._open(0, 0)

    def _open(self, cleaned_to: int, recovery_point: int) -> PartitionLog:
        return PartitionLog.open(
            self._directory,
            topic="t",
            partition=0,
            topic_id=TOPIC_ID,
            directory_id=DIRECTORY_ID,
            config=CONFIG,
            cleaned_to=cleaned_to,
            recovery_point=recovery_point,
        )

    def close(self) -> None:
        self.log.close()

    def append(self, records: list[tuple[str, bool]], codec: str) -> None:
        values = [b"v" * self._chance.randrange(90) if has_value else None for _, has_value in records]
        found = [Record(key.encode(), value, self.now_ms) for (key, _), value in zip(records, values, strict=True)]
        base = self.log.append_as_leader(batch_of(found, 0, codec), self.epoch).base_offset
        for at, record in enumerate(found):
            self.all[base + at] = ((record.key or b"").decode(), record.value)
        commit(self.log)

    def compact(self) -> None:
        self.now_ms += self._chance.choice((1, 2000))
        compact(self.log, self.now_ms, self._chance.choice((1, 450, MUCH)))
        self.all = self.check()

    def truncate(self) -> None:
        self.epoch += 1
        end = self.log.truncate_to(self._chance.randrange(self.log.log_end_offset + 1))
        self.all = {offset: record for offset, record in self.all.items() if offset < end}
        self.check()

    def reopen(self) -> None:
        start, end, epochs = self.log.log_start_offset, self.log.log_end_offset, self.log.epochs
        self.log.close()
        self.log = self._open(self.log.cleaned_to, self._chance.choice((0, self.log.recovery_point)))
        commit(self.log)
        assert (self.log.log_start_offset, self.log.log_end_offset, self.log.epochs) == (start, end, epochs)
        self.check()

    def check(self) -> dict[int, tuple[str, bytes | None]]:
        """Return the log's records: each was appended; the last of each key is there, unless it is a tombstone."""
        left = {record.offset: ((record.key or b"").decode(), record.value) for record in records_of(self.log)}
        assert left.items() <= self.all.items()
        last = {key: offset for offset, (key, _) in self.all.items()}
        for key, offset in last.items():
            if self.all[offset][1] is not None:
                assert offset in left
            elif offset not in left:
                assert not any(there == key for there, _ in left.values()), "a deleted key has come back"
        keys = [key for offset, (key, _) in left.items() if offset < self.log.cleaned_to]
        assert len(keys) == len(set(keys))
        return left


def test_the_last_batch_of_a_producer_stays_so_that_a_restart_knows_its_sequence(open_log: Callable[..., PartitionLog]) -> None:
    log = open_log(config=CONFIG)
    record = Record(b"k", b"v" * 40, 1)
    numbered = [build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in range(3)]
    for sent in numbered:
        log.append_as_leader(sent, 1)
    for _ in range(20):
        append(log, "k")
    compact(commit(log))
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    log.close()
    log = open_log(config=CONFIG)
    assert log.append_as_leader(numbered[2], 2)[:2] == (2, 3)
    log.close()
