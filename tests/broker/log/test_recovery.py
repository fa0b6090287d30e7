"""Starting again: after a clean stop, after a crash, on torn or damaged files; and the log against a naive twin."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.records.record_batch import Record, build_batch, validate

from .conftest import batch


def log_files(log: PartitionLog) -> list[Path]:
    return sorted(log.directory.glob("*.log"))


def fill(log: PartitionLog, count: int = 40) -> None:
    for epoch in range(count):
        log.append_as_leader(batch(2, value_bytes=100), epoch // 4)


@pytest.mark.parametrize("clean", [True, False])
def test_everything_is_there_after_a_restart(open_log, clean: bool) -> None:
    log = open_log(segment_bytes=3000)
    fill(log)
    log.flush()
    before = (log.digest(), log.epochs, log.log_end_offset, log.size_bytes, len(log_files(log)))
    log.close()
    log = open_log(segment_bytes=3000, clean=clean, recovery_point=30)
    assert (log.digest(), log.epochs, log.log_end_offset, log.size_bytes, len(log_files(log))) == before
    assert log.recovery.reason is None
    assert bool(log.recovery.scanned_bytes) is not clean
    assert log.append_as_leader(batch(), 50)[0] == 80


@pytest.mark.parametrize("name", ["5.log", "\N{SUPERSCRIPT TWO}.log", "20261123.log", "notes.log", "\N{SUPERSCRIPT TWO}.cleaned"])
def test_a_file_that_has_no_segments_name_is_none(open_log, name: str) -> None:
    log = open_log(segment_bytes=3000)
    fill(log)
    log.close()
    (log.directory / name).write_text("somebody has left this here")
    for clean in (True, False):
        log = open_log(segment_bytes=3000, clean=clean)
        assert (log.log_end_offset, log.recovery.reason) == (80, None)
        log.close()
    assert (log.directory / name).exists() == name.endswith(".log")


@pytest.mark.parametrize(
    ("clean", "content"), [(True, "nothing"), (False, "nothing"), (False, "text"), (False, "a part of the log")]
)
def test_a_segment_within_the_offsets_of_another_costs_no_records(open_log, clean: bool, content: str) -> None:
    log = open_log(segment_bytes=3000)
    fill(log)
    log.flush()
    before, files = log.digest(), log_files(log)
    log.close()
    odd = log.directory / "00000000000000000004.log"
    part = batch(2, value_bytes=100, base_offset=4)
    odd.write_bytes({"nothing": b"", "text": b"of another program" * 9, "a part of the log": part}[content])
    log = open_log(segment_bytes=3000, clean=clean)
    assert (log.digest(), log.log_end_offset, log.recovery.reason, log_files(log)) == (before, 80, None, files)
    assert validate(log.read(5, 1))[0][1].base_offset == 4
    assert odd.with_name(odd.name + ".deleted").exists() == (content != "nothing")


@pytest.mark.parametrize("chopped", [1, 50, 61, 300, 301])
def test_a_torn_tail_is_cut_to_the_last_whole_batch(open_log, chopped: int) -> None:
    log = open_log()
    fill(log, 10)
    whole = log.read(0, 1 << 20)
    log.close()
    path = log_files(log)[-1]
    os.truncate(path, path.stat().st_size - chopped)
    log = open_log()
    lost = -(-chopped // len(batch(2, value_bytes=100)))
    assert log.log_end_offset == 20 - 2 * lost
    assert whole.startswith(log.read(0, 1 << 20))
    assert "cut short" in log.recovery.reason or "too few" in log.recovery.reason or not chopped % len(batch(2, value_bytes=100))
    assert path.stat().st_size == log.size_bytes


def test_a_bad_batch_ends_the_log_and_later_segments_go(open_log) -> None:
    log = open_log(segment_bytes=3000)
    fill(log)
    log.close()
    paths = log_files(log)
    with open(paths[1], "r+b") as file:
        file.seek(700)
        byte = file.read(1)
        file.seek(700)
        file.write(bytes([byte[0] ^ 4]))
    log = open_log(segment_bytes=3000)
    base = int(paths[1].stem)
    assert log.log_end_offset == base + 2 * (700 // len(batch(2, value_bytes=100)))
    assert log.recovery.deleted_segments == tuple(path.name for path in paths[2:])
    assert log_files(log) == paths[:2]
    assert log.latest_epoch == (log.log_end_offset - 1) // 8


def test_below_the_recovery_point_nothing_is_scanned(open_log) -> None:
    log = open_log(segment_bytes=3000)
    fill(log)
    log.close()
    last_base = int(log_files(log)[-1].stem)
    log = open_log(segment_bytes=3000, recovery_point=last_base)
    assert log.recovery.scanned_bytes == log_files(log)[-1].stat().st_size


@pytest.mark.parametrize("damage", ["missing", "short", "garbage", "zeros"])
def test_a_damaged_index_is_rebuilt(open_log, damage: str) -> None:
    log = open_log()
    fill(log, 200)
    log.flush(with_index=True)
    log.close()
    index = log.directory / "00000000000000000000.index"
    good = index.read_bytes()
    assert len(good) > 40
    match damage:
        case "missing":
            index.unlink()
        case "short":
            index.write_bytes(good[:-3])
        case "garbage":
            index.write_bytes(os.urandom(len(good)))
        case "zeros":
            index.write_bytes(good + bytes(80))
    log = open_log(clean=True)
    assert index.read_bytes() == good
    assert [validate(log.read(offset, 1))[0][1].base_offset for offset in (0, 151, 399)] == [0, 150, 398]


@pytest.mark.parametrize("content", [None, "", "0\n5\n1 0\n", "0\n2\n3 0\n2 5\n", "nonsense"])
def test_lost_or_corrupt_leader_epochs_are_rebuilt_from_the_batches(open_log, content: str | None) -> None:
    log = open_log(segment_bytes=3000)
    fill(log)
    log.flush()
    epochs = log.epochs
    log.close()
    path = log.directory / "leader-epoch-checkpoint"
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    for options in ({"clean": True}, {"recovery_point": 45}, {}):
        log = open_log(segment_bytes=3000, **options)
        assert log.epochs == epochs
        log.close()


def test_half_done_work_is_finished_or_undone(open_log) -> None:
    log = open_log()
    fill(log, 3)
    log.close()
    for name in ("00000000000000000000.log.deleted", "00000000000000000900.index", "x.tmp", "00000000000000000500.log.cleaned"):
        (log.directory / name).write_bytes(b"junk")
    (log.directory / "00000000000000000500.log.swap").write_bytes(b"junk")
    shutil.copy(log_files(log)[0], log.directory / "00000000000000000000.log.swap")
    log = open_log()
    assert log.log_end_offset == 6
    assert sorted(os.listdir(log.directory)) == ["00000000000000000000.log"]


def test_a_log_that_ends_below_its_checkpointed_start_is_emptied(open_log) -> None:
    log = open_log()
    fill(log, 3)
    log.close()
    log = open_log(log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, log.epochs) == (100, 100, 0, ())


def test_the_recovery_point_is_lowered_on_disk_before_a_truncation(open_log) -> None:
    seen = []
    log = open_log(before_truncation=lambda: seen.append((log.recovery_point, log.size_bytes)))
    fill(log, 10)
    log.flush()
    full = log.size_bytes
    log.truncate_to(10)
    assert seen == [(10, full)]
    fill(log, 1) if log.latest_epoch == 0 else log.append_as_leader(batch(2), 5)
    log.truncate_to(10)
    assert len(seen) == 1


def test_recorded_logs_have_equal_digests_however_they_are_segmented(
    open_log, manifest, segment_bytes_of, tmp_path: Path
) -> None:
    for partition in manifest[::4] + manifest[-1:]:
        whole = b"".join(segment_bytes_of(partition, file) for file in partition["files"])
        digests = []
        for segment_bytes, epoch in ((1 << 30, 1), (100_000, 2), (1000, 3)):
            log = open_log(segment_bytes=segment_bytes)
            log.truncate_fully_and_start_at(0)
            log.append_as_leader(whole, epoch, keep_offsets=True)
            digests.append(log.digest())
            log.close()
            assert open_log(segment_bytes=segment_bytes).digest() == digests[-1]
        assert digests[0] == digests[1] == digests[2]
        files = partition["files"]
        assert digests[0].size_bytes == len(whole) == sum(file["bytes"] for file in files)
        assert digests[0].batches == sum(file["batches"] for file in files)
        assert digests[0].records == sum(file["records"] for file in files)
        assert digests[0].control_records == sum(file["control_records"] for file in files)


def test_a_digest_tells_a_changed_byte_and_compares_prefixes(open_log) -> None:
    log = open_log(segment_bytes=2000)
    fill(log, 20)
    whole, prefix = log.digest(), log.digest(end_offset=20)
    assert prefix.end_offset == 20
    log.truncate_to(20)
    assert log.digest() == prefix != whole
    log.append_as_leader(batch(1, value_bytes=101), 50)
    assert log.digest() != whole


appends = st.tuples(st.just("append"), st.integers(1, 4), st.integers(1, 400))
steps = st.lists(
    st.one_of(
        appends,
        appends,
        appends,
        st.tuples(st.just("gap"), st.integers(1, 50), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 1000), st.just(0)),
        st.tuples(st.just("advance"), st.integers(0, 1000), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
        st.tuples(st.just("crash"), st.integers(0, 1200), st.just(0)),
    ),
    max_size=30,
)


class Twin:
    """A log as a list of (base, end, epoch, bytes)."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int, bytes]] = []
        self.start = 0
        self.empty_at = 0

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.empty_at

    def truncate(self, offset: int) -> None:
        if offset >= self.end:
            return
        if offset < self.start:
            self.batches, self.start, self.empty_at = [], offset, offset
            return
        self.batches = [b for b in self.batches if b[1] <= offset]
        if not self.batches or self.end < self.start:
            self.batches, self.empty_at = [], self.start

    def readable(self) -> bytes:
        return b"".join(b[3] for b in self.batches if b[1] > self.start)


@settings(max_examples=120, deadline=None)
@given(steps, st.sampled_from([300, 1000, 1 << 20]))
@example([("gap", 12, 0), ("flush", 0, 0), ("truncate", 139, 0), ("append", 1, 163), ("gap", 1, 0), ("crash", 0, 0)], 300)
@example([("append", 4, 1), ("flush", 0, 0), ("truncate", 500, 0), ("append", 1, 1), ("crash", 0, 0)], 1000)
def test_the_log_does_what_a_list_of_batches_would(actions: list[tuple[str, int, int]], segment_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, twin, epoch = Path(name), Twin(), 0

        def opened(**options) -> PartitionLog:
            return PartitionLog.open(
                directory,
                topic="t",
                partition=0,
                topic_id=bytes(16),
                directory_id=bytes(16),
                config=LogConfig(segment_bytes),
                **options,
            )

        log, durable = opened(), 0
        for action, first, second in actions:
            match action:
                case "append" | "gap":
                    base = log.log_end_offset + (first if action == "gap" else 0)
                    epoch += second % 3 == 0
                    count = first if action == "append" else 1
                    data = build_batch([Record(None, b"v" * second, 1)] * count, base_offset=base, leader_epoch=epoch)
                    log.append_as_follower(data)
                    twin.batches.append((base, base + count, epoch, data))
                case "truncate":
                    offset = first * max(twin.end, 1) // 900
                    log.truncate_to(offset)
                    twin.truncate(offset)
                    durable = min(durable, len(twin.batches))
                case "advance":
                    offset = min(first * max(twin.end, 1) // 900, twin.end)
                    log.advance_log_start(offset)
                    twin.start = max(twin.start, offset)
                case "flush":
                    log.flush()
                    durable = len(twin.batches)
                case "restart":
                    log.flush()
                    durable = len(twin.batches)
                    log.close()
                    log = opened(clean=True, log_start_offset=twin.start, recovery_point=log.recovery_point)
                case "crash":
                    log.close()
                    newest = sorted(directory.glob("*.log"))[-1]
                    kept = {b[0] for b in twin.batches[:durable]}
                    undurable = sum(len(b[3]) for b in twin.batches if b[0] not in kept)
                    chopped = min(first, undurable, newest.stat().st_size)
                    os.truncate(newest, newest.stat().st_size - chopped)
                    while chopped > 0:
                        chopped -= len(twin.batches.pop()[3])
                    log = opened(clean=False, log_start_offset=twin.start, recovery_point=log.recovery_point)
                    if twin.end < twin.start or not twin.batches:
                        twin.batches, twin.empty_at = [], max(twin.start, log.log_end_offset if not twin.batches else 0)
            assert (log.log_start_offset, log.log_end_offset) == (twin.start, twin.end), action
            assert log.recovery_point <= log.log_end_offset, action
            assert log.read(twin.start, 1 << 30) == twin.readable(), action
            expected = {}
            for base, _, batch_epoch, _ in twin.batches:
                expected.setdefault(batch_epoch, base)
            for base, end, batch_epoch, _ in twin.batches:
                if base >= twin.start and end <= twin.end:
                    assert log.epoch_at(base) == batch_epoch
        log.close()


def test_segments_above_one_that_lost_its_end_go_too(open_log) -> None:
    """A loss of power keeps what was written later and not what was written before: the hole must not look like a log."""
    log = open_log(segment_bytes=100)
    for _ in range(4):
        log.append_as_leader(batch(), 1)
    assert len(log_files(log)) == 4
    log.close()
    os.truncate(log.directory / "00000000000000000001.log", 0)
    assert open_log().log_end_offset == 1


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_offsets_that_were_never_given_are_no_hole(open_log, has_checkpoint: bool) -> None:
    """A checkpoint that the crash has lost costs a scan, not data."""
    log = open_log(segment_bytes=100)
    for offset in (3, 10, 5_000_000_000, 5_000_000_001):
        log.append_as_leader(batch(base_offset=offset), 1, keep_offsets=True)
    assert log.recovery_point == 5_000_000_000
    log.close()
    again = open_log(recovery_point=log.recovery_point if has_checkpoint else 0)
    assert [header.base_offset for _, header in validate(again.read(0, 1 << 20))] == [3, 10, 5_000_000_000, 5_000_000_001]


@pytest.mark.parametrize("recovery_point", [0, 4])
def test_a_segment_that_was_truncated_away_does_not_come_back_behind_what_was_appended_in_its_place(
    open_log, recovery_point: int
) -> None:
    """A loss of power may keep a younger append and not the removal of the segment."""
    log = open_log(segment_bytes=900)
    for epoch in (1, 2, 2, 2):
        log.append_as_leader(batch(2, value_bytes=100), epoch)
    removed = log_files(log)[1]
    given_up = removed.read_bytes()
    log.truncate_to(4)
    log.append_as_leader(batch(2, value_bytes=100), 3)
    whole = log.read(0, 1 << 20)
    log.close()
    removed.write_bytes(given_up)
    log = open_log(segment_bytes=900, recovery_point=recovery_point)
    assert log.read(0, 1 << 20) == whole
    assert (log.log_end_offset, log.latest_epoch) == (6, 3)
    assert "a batch of epoch 2 at offset 6, after epoch 3 has begun" in log.recovery.reason


@pytest.mark.parametrize("clean", [True, False])
def test_a_batch_at_an_offset_that_its_segment_cannot_reach_is_cut(open_log, clean: bool) -> None:
    """Base offsets lie outside of what a batch's CRC covers."""
    log = open_log()
    for _ in range(4):
        log.append_as_leader(batch(2, value_bytes=3000), 1)
    whole = log.read(0, 1 << 20)
    log.close()
    path = log_files(log)[0]
    rotten = bytearray(path.read_bytes())
    rotten[len(rotten) // 4 * 3 + 1] ^= 0x40
    path.write_bytes(rotten)
    log = open_log(clean=clean)
    assert (log.log_end_offset, log.read(0, 1 << 20)) == (6, whole[: len(whole) // 4 * 3])
