"""A partition's log: appending, reading, cutting, restarting, failing."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from pathlib import Path

import pytest

from kraftlab.broker.log import digest as digest_module
from kraftlab.broker.log import segment as segment_module
from kraftlab.broker.log.errors import LogClosed, LogDirFailed, NoSpace, OffsetOutOfRange, UnexpectedOffset
from kraftlab.broker.log.indexes import OFFSETS
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.records.errors import CorruptBatch
from kraftlab.records.record_batch import decode_records, validate

from .conftest import batch


def offsets(data: bytes) -> list[int]:
    return [record.offset for record in decode_records(data)]


def segments(log: PartitionLog) -> int:
    return len(list(log.directory.glob("*.log")))


def test_the_leader_stamps_offsets_and_epoch(open_log) -> None:
    log = open_log()
    assert log.append_as_leader(batch(3), 4)[:2] == (0, 3)
    assert log.append_as_leader(batch(2) + batch(1), 5)[:2] == (3, 6)
    headers = [header for _, header in validate(log.read(0, 10_000))]
    assert [(h.base_offset, h.end_offset, h.leader_epoch) for h in headers] == [(0, 3, 4), (3, 5, 5), (5, 6, 5)]
    assert log.epochs == ((4, 0), (5, 3))


def test_import_keeps_offsets_and_gaps(open_log) -> None:
    log = open_log()
    assert log.append_as_leader(batch(2, base_offset=10) + batch(1, base_offset=20), 1, keep_offsets=True)[:2] == (10, 21)
    with pytest.raises(UnexpectedOffset):
        log.append_as_leader(batch(1, base_offset=20), 1, keep_offsets=True)
    assert offsets(log.read(0, 10_000)) == [10, 11, 20]
    assert offsets(log.read(15, 10_000)) == [20]
    assert log.append_as_leader(batch(1), 1)[:2] == (21, 22)


FAR = 2**32
"""Beyond what an offset relative to a segment that begins at 0 can say."""


def test_what_precedes_a_gap_is_durable_before_the_recovery_point_passes_it(open_log, monkeypatch) -> None:
    log = open_log()
    log.append_as_leader(batch(10), 1)
    log.flush()
    durable, sync = {0: 10}, segment_module.Segment.sync
    monkeypatch.setattr(
        segment_module.Segment, "sync", lambda one: (durable.update({one.base_offset: one.end_offset}), sync(one))[1]
    )
    log.append_as_leader(batch(10, base_offset=10) + batch(5, base_offset=FAR), 1, keep_offsets=True)
    assert (log.recovery_point, durable) == (FAR, {0: 20})


def test_an_append_over_a_gap_that_fails_leaves_no_trace(open_log, monkeypatch) -> None:
    written: list[int] = []
    log = open_log(before_truncation=lambda: written.append(log.recovery_point))
    log.append_as_leader(batch(10), 1)
    append = segment_module.Segment.append

    def fill_the_disk(segment, *arguments) -> None:
        if segment.base_offset == FAR:
            raise OSError(errno.ENOSPC, "full")
        append(segment, *arguments)

    monkeypatch.setattr(segment_module.Segment, "append", fill_the_disk)
    with pytest.raises(NoSpace):
        log.append_as_leader(batch(10, base_offset=10) + batch(5, base_offset=FAR), 2, keep_offsets=True)
    assert (log.log_end_offset, log.recovery_point, log.epochs, written) == (10, 10, ((1, 0),), [])
    monkeypatch.undo()
    log.append_as_leader(batch(10), 1)
    log.flush()
    log.close()
    assert open_log(clean=True).epochs == ((1, 0),)


def test_an_append_over_a_gap_does_not_let_others_cut_the_log_meanwhile(open_log, monkeypatch) -> None:
    """While one thread reads, a cut waits for the reader and an append does not; nor does the cut slip in between."""
    log = open_log()
    log.append_as_leader(batch(10), 1)
    cutter = threading.Thread(target=log.truncate_to, args=(5,))
    ends: list[int] = []
    read = segment_module.Segment.read

    def read_slowly(segment, position: int, size_bytes: int) -> bytes:
        monkeypatch.undo()
        cutter.start()
        cutter.join(0.05)
        writer = threading.Thread(target=log.append_as_leader, args=(batch(5, base_offset=FAR), 1), kwargs={"keep_offsets": True})
        writer.start()
        writer.join(5)
        ends.append(log.log_end_offset)
        return read(segment, position, size_bytes)

    monkeypatch.setattr(segment_module.Segment, "read", read_slowly)
    log.read(0, 1000)
    cutter.join()
    assert (ends, log.log_end_offset, log.recovery_point) == ([FAR + 5], 0, 0)


def test_retention_goes_on_in_a_log_that_began_with_a_gap(open_log) -> None:
    log = open_log(config=LogConfig(segment_bytes=100, retention_ms=100))
    for offset in (FAR, FAR + 1, FAR + 2):
        log.append_as_follower(batch(base_offset=offset))
    log.high_watermark = log.log_end_offset
    log.delete_old_segments(now_ms=10**6)
    assert (log.log_start_offset, segments(log)) == (FAR + 3, 1)


def test_an_import_cannot_use_up_all_offsets(open_log) -> None:
    log = open_log()
    with pytest.raises(UnexpectedOffset, match="9223372036854775807, the largest"):
        log.append_as_leader(batch(2, base_offset=2**63 - 2), 1, keep_offsets=True)
    assert log.append_as_leader(batch(3), 1)[:2] == (0, 3)


def test_a_follower_takes_the_leaders_batches_as_they_are(open_log) -> None:
    log = open_log()
    data = batch(2, base_offset=0, leader_epoch=3) + batch(2, base_offset=2, leader_epoch=4)
    assert log.append_as_follower(data) == 4
    assert log.read(0, 10_000) == data
    with pytest.raises(UnexpectedOffset):
        log.append_as_follower(data)


def test_a_new_follower_begins_within_a_batch_whose_first_records_were_deleted(open_log) -> None:
    log = open_log()
    log.truncate_fully_and_start_at(3)
    data = batch(5, base_offset=0, leader_epoch=2) + batch(2, base_offset=5, leader_epoch=2)
    with pytest.raises(UnexpectedOffset):
        log.append_as_follower(batch(3, base_offset=0, leader_epoch=2))
    assert log.append_as_follower(data) == 7
    assert (log.log_start_offset, log.log_end_offset, log.epochs) == (3, 7, ((2, 3),))
    assert log.read(3, 10_000) == data
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 10_000)
    log.close()
    again = open_log(log_start_offset=3)
    assert (again.log_start_offset, again.log_end_offset) == (3, 7)
    assert again.read(3, 10_000) == data


def test_bad_batches_are_refused_and_nothing_is_appended(open_log) -> None:
    log = open_log()
    bad = bytearray(batch(1) + batch(1))
    bad[-1] ^= 1
    for data in (bytes(bad), b"", b"x" * 100):
        with pytest.raises(CorruptBatch):
            log.append_as_leader(data, 1)
    assert (log.log_end_offset, log.size_bytes, log.epochs) == (0, 0, ())


def test_a_leader_of_an_older_epoch_may_not_append(open_log) -> None:
    log = open_log()
    log.append_as_leader(batch(), 5)
    with pytest.raises(UnexpectedOffset, match="epoch 4"):
        log.append_as_leader(batch(), 4)


def test_reads_give_whole_batches_within_limit_and_bound(open_log) -> None:
    log = open_log(segment_bytes=1000)
    one = len(batch(2, value_bytes=100))
    for _ in range(20):
        log.append_as_leader(batch(2, value_bytes=100), 1)
    assert segments(log) > 3
    assert offsets(log.read(5, one)) == [4, 5]
    assert offsets(log.read(5, 0)) == [4, 5]
    assert log.read(5, one - 1, min_one_batch=False) == b""
    assert offsets(log.read(5, 3 * one, upto=8)) == [4, 5, 6, 7]
    assert offsets(log.read(5, 10_000, upto=7)) == [4, 5]
    assert log.read(6, 10_000, upto=7) == b""
    assert offsets(log.read(0, 1 << 20)) == list(range(40))
    assert log.read(40, 100) == b""
    with pytest.raises(OffsetOutOfRange):
        log.read(41, 100)
    assert log.bytes_from(0) == log.size_bytes
    assert log.bytes_from(36) == 2 * one
    assert log.bytes_from(40) == 0


def test_slices_are_the_places_of_the_batches_that_a_read_returns(open_log) -> None:
    log = open_log(segment_bytes=300)
    for count in (1, 2, 3, 1, 4, 2):
        log.append_as_leader(batch(count), leader_epoch=0)
    for offset, max_bytes, upto, min_one_batch in itertools.product(
        range(14), (0, 90, 250, 500, 5000), (None, 5, 9), (True, False)
    ):
        wanted = log.read(offset, max_bytes, upto=upto, min_one_batch=min_one_batch)
        with log.slices(offset, max_bytes, upto=upto, min_one_batch=min_one_batch) as found:
            files = [each.segment.log_path.read_bytes()[each.position :][: each.size_bytes] for each in found]
        assert b"".join(files) == wanted


def test_a_truncation_waits_until_slices_are_no_longer_used(open_log) -> None:
    log = open_log()
    log.append_as_leader(batch(), leader_epoch=0)
    truncating = threading.Thread(target=log.truncate_to, args=(0,))
    with log.slices(0, 1000) as [only]:
        truncating.start()
        assert only.size_bytes == only.segment.size_bytes > 0
    truncating.join()
    assert log.log_end_offset == 0


@pytest.mark.parametrize("segment_bytes", [500, 5000, 1 << 30])
@pytest.mark.parametrize("offset", [0, 1, 2, 17, 39, 40])
def test_truncation_removes_every_batch_that_reaches_over_the_offset(open_log, segment_bytes: int, offset: int) -> None:
    log = open_log(segment_bytes=segment_bytes)
    for epoch in range(20):
        log.append_as_leader(batch(2, value_bytes=100), epoch)
    log.high_watermark = 40
    assert log.truncate_to(offset) == offset // 2 * 2
    assert (log.log_end_offset, log.high_watermark) == (offset // 2 * 2, offset // 2 * 2)
    assert offsets(log.read(0, 1 << 20)) == list(range(offset // 2 * 2))
    assert log.latest_epoch == offset // 2 - 1
    assert log.append_as_leader(batch(1), 30)[0] == offset // 2 * 2
    assert offsets(log.read(0, 1 << 20)) == list(range(offset // 2 * 2 + 1))


def test_truncating_below_the_start_empties_the_log(open_log) -> None:
    log = open_log()
    log.truncate_fully_and_start_at(100)
    log.append_as_leader(batch(5), 1)
    log.truncate_to(50)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.epochs) == (50, 50, 50, ())
    log.close()
    assert open_log(log_start_offset=50).log_end_offset == 50


def test_the_start_advances_and_drops_whole_segments(open_log) -> None:
    log = open_log(segment_bytes=500)
    for epoch in range(10):
        log.append_as_leader(batch(2, value_bytes=100), epoch)
    count = segments(log)
    log.advance_log_start(9)
    assert segments(log) < count
    assert (log.log_start_offset, log.high_watermark) == (9, 9)
    assert log.epochs[0] == (4, 9)
    with pytest.raises(OffsetOutOfRange):
        log.read(8, 100)
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(21)


def test_retention_by_size_and_by_time_spares_what_is_above_the_high_watermark(open_log) -> None:
    for config in (
        LogConfig(segment_bytes=500, retention_bytes=600, retention_ms=-1),
        LogConfig(segment_bytes=500, retention_ms=100),
    ):
        log = open_log(config=config)
        log.truncate_fully_and_start_at(0)
        for i in range(10):
            log.append_as_leader(batch(2, value_bytes=100, timestamp_ms=1000 + i), 1)
        assert log.delete_old_segments(now_ms=10**6) == 0
        log.high_watermark = 10
        assert log.delete_old_segments(now_ms=10**6) > 0
        assert 0 < log.log_start_offset <= 10
        log.high_watermark = 20
        log.delete_old_segments(now_ms=10**6)
        assert log.log_end_offset == 20
        assert log.log_start_offset > 10
        log.close()


def test_epochs_answer_where_they_end(open_log) -> None:
    log = open_log()
    log.append_as_leader(batch(5), 2)
    log.append_as_leader(batch(5), 4)
    assert [log.end_offset_for(epoch) for epoch in (1, 2, 3, 4, 9)] == [(-1, 0), (2, 5), (2, 5), (4, 10), (4, 10)]
    log.start_epoch(7)
    assert log.end_offset_for(4) == (4, 10)
    assert log.end_offset_for(7) == (7, 10)
    assert [log.epoch_at(offset) for offset in (0, 5, 9)] == [2, 4, 4]


def test_a_full_disk_takes_the_append_back(open_log, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(segment_bytes=1000)
    log.append_as_leader(batch(2, value_bytes=100), 1)
    before = (log.read(0, 1 << 20), log.log_end_offset, log.size_bytes, log.epochs, sorted(log.directory.glob("*.log")))
    real, room = os.pwrite, [1500]

    def short_of_room(descriptor: int, data: bytes, position: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, memoryview(data)[: room[0]], position)
        room[0] -= written
        return written

    monkeypatch.setattr(os, "pwrite", short_of_room)
    with pytest.raises(NoSpace, match="bytes free"):
        log.append_as_leader(b"".join(batch(2, value_bytes=100) for _ in range(30)), 2)
    monkeypatch.undo()
    assert (log.read(0, 1 << 20), log.log_end_offset, log.size_bytes, log.epochs, sorted(log.directory.glob("*.log"))) == before
    assert log.append_as_leader(batch(1), 2)[:2] == (2, 3)
    log.close()
    assert open_log().log_end_offset == 3


def test_a_failed_write_or_fsync_condemns_the_directory(open_log, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    for name, operation in (("pwrite", lambda log: log.append_as_leader(batch(), 1)), ("fdatasync", lambda log: log.flush())):
        log = open_log()
        log.append_as_leader(batch(), 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, name, broken)
            with pytest.raises(LogDirFailed) as raised:
                operation(log)
        assert raised.value.log_dir == log.log_dir
        with pytest.raises(LogDirFailed):
            log.read(0, 100)


def test_a_closed_log_says_so(open_log) -> None:
    log = open_log()
    log.close()
    for operation in (lambda: log.read(0, 1), lambda: log.append_as_leader(batch(), 1), lambda: log.truncate_to(0), log.flush):
        with pytest.raises(LogClosed):
            operation()


def test_files_are_kafkas(open_log) -> None:
    log = open_log(segment_bytes=10_000)
    for _ in range(200):
        log.append_as_leader(batch(1, value_bytes=100), 7)
    log.flush()
    names = sorted(os.listdir(log.directory))
    assert names[:3] == [f"00000000000000000000.{suffix}" for suffix in ("index", "log", "timeindex")]
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n7 0\n"
    index = (log.directory / names[0]).read_bytes()
    relative, position = OFFSETS.entry.unpack(index[:8])
    data = (log.directory / names[1]).read_bytes()
    [(_, header)] = validate(data[position : position + len(batch(1, value_bytes=100))])
    assert header.last_offset == relative
    assert 4096 < position <= 4096 + header.size_bytes


def test_readers_and_appenders_and_a_truncating_thread_see_whole_batches(open_log) -> None:
    log = open_log(segment_bytes=20_000)
    stop, faults = threading.Event(), []

    def read_all() -> None:
        offset = 0
        while not stop.is_set():
            try:
                data = log.read(min(offset, log.log_end_offset), 30_000)
                for _, header in validate(data):
                    offset = header.end_offset
                if not data:
                    offset = 0
            except OffsetOutOfRange:
                offset = 0
            except Exception as error:
                faults.append(error)
                return

    threads = [threading.Thread(target=read_all) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(300):
        log.append_as_leader(batch(5, value_bytes=200), i)
        if i % 10 == 9:
            log.truncate_to(log.log_end_offset - 17)
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults


@pytest.mark.parametrize("cut", ["its end", "its beginning", "what was read"])
def test_a_truncation_does_not_wait_for_a_digest_which_is_of_the_log_at_one_time(open_log, monkeypatch, cut: str) -> None:
    log = open_log(segment_bytes=2000)
    for epoch in range(40):
        log.append_as_leader(batch(2, value_bytes=100), epoch)
    log.high_watermark = 80
    before, mask, pieces, held_up = log.digest(), digest_module.mask_epochs, list[object](), list[bool]()

    def cuts() -> None:
        if cut == "its end":
            log.truncate_to(60)
        else:
            log.advance_log_start(50 if cut == "its beginning" else 15)

    def masked(data, batches) -> None:
        mask(data, batches)
        pieces.append(data)
        if len(pieces) == (15 if cut == "what was read" else 5):
            thread = threading.Thread(target=cuts)
            thread.start()
            thread.join(3)
            held_up.append(thread.is_alive())

    monkeypatch.setattr(segment_module, "CHUNK_BYTES", 700)
    monkeypatch.setattr(digest_module, "mask_epochs", masked)
    found = log.digest()
    assert held_up == [False]
    monkeypatch.undo()
    assert found == (before if cut == "what was read" else log.digest())
    assert found != (log.digest() if cut == "what was read" else before)


def test_a_rename_keeps_the_log_open(open_log, tmp_path: Path) -> None:
    log = open_log()
    log.append_as_leader(batch(), 1)
    log.rename(log.log_dir / "orders-0.x-delete")
    log.append_as_leader(batch(), 1)
    assert offsets(log.read(0, 1000)) == [0, 1]
    assert log.directory.name == "orders-0.x-delete"
    with pytest.raises(LogDirFailed):
        log.rename(tmp_path)
