"""The log's interface: results of read, guarantees of flush, and refusals."""

from __future__ import annotations

from random import Random

import pytest

from kraftlab.common.errors import InvariantViolation
from kraftlab.quorum.storage import FsyncFailed, LogCorrupt, MetadataStore, RealFileSystem, StorageFull
from kraftlab.simulation.consensus.simulated_file_system import SimulatedFile, SimulatedFileSystem


def test_append_is_visible_before_it_is_durable(disk, open_log, builder):
    log = open_log(disk)
    written = builder.log(3)
    builder.append(log, written)
    assert log.read(0, 1 << 20) == b"".join(made.data for made in written)
    assert log.durable_end_offset == 0
    log.flush()
    assert log.durable_end_offset == 3


def test_read_gives_whole_batches_at_least_one_and_none_across_the_end(disk, open_log, builder):
    log = open_log(disk, cache_bytes=0)
    written = builder.log(5)
    builder.append(log, written)
    for _ in range(2):
        assert log.read(1, 1) == written[1].data
        assert log.read(1, 2 * len(written[1].data)) == written[1].data + written[2].data
        assert log.read(1, 1 << 20, end_offset=3) == written[1].data + written[2].data
        assert log.read(3, 1 << 20, end_offset=3) == b""
        log.flush()


def test_steady_appends_cost_one_fdatasync_and_catching_up_two(disk, open_log, builder):
    log = open_log(disk, segment_bytes=100_000)
    steady = builder.log(2, stamp_behind=1)
    builder.append(log, steady[:1])
    log.flush()
    before = disk.operations
    builder.append(log, steady[1:])
    log.flush()
    assert disk.operations - before == 2
    behind = [*steady]
    for _ in range(3):
        behind.append(builder.next(behind, stamp=behind[-1].end_offset))
    before = disk.operations
    builder.append(log, behind[2:])
    log.flush()
    assert disk.operations - before == 4


def test_headers_come_back_from_memory_in_order(disk, open_log, builder):
    log = open_log(disk)
    written = builder.log(10, stamp_behind=1)
    builder.append(log, written)
    log.flush()
    reopened = open_log(disk)
    assert [(h.base_offset, h.crc, h.size_bytes) for h in reopened.batches()] == [
        (made.base_offset, made.crc, len(made.data)) for made in written
    ]
    assert list(reopened.batches()) == list(log.batches())
    assert reopened.high_watermark_stamp == 8


def test_append_that_does_not_chain_is_refused(disk, open_log, builder):
    log = open_log(disk)
    written = builder.log(3)
    builder.append(log, written[:1])
    with pytest.raises(InvariantViolation):
        log.append(2, 3, written[2].data)
    with pytest.raises(InvariantViolation):
        log.append(1, 3, written[1].data)


def test_truncation_below_a_stamp_or_inside_a_batch_is_refused(disk, open_log, builder):
    log = open_log(disk)
    first = builder.next([], records=4)
    second = builder.next([first], stamp=4)
    builder.append(log, [first, second])
    with pytest.raises(InvariantViolation):
        log.truncate(0)
    log.truncate(4)
    assert log.end_offset == 4


def test_full_disk_loses_nothing_and_the_same_flush_works_later(disk, open_log, builder):
    log = open_log(disk)
    written = builder.log(40, stamp_behind=1)
    builder.append(log, written[:2])
    disk.full = True
    with pytest.raises(StorageFull):
        log.flush()
    builder.append(log, written[2:])
    with pytest.raises(StorageFull):
        log.flush()
    disk.full = False
    log.flush()
    assert open_log(disk).read(0, 1 << 20) == b"".join(made.data for made in written)


class DiskThatKeepsNames(SimulatedFileSystem):
    """Refuses to remove files while `keeps_names`, as one that was remounted read-only does."""

    keeps_names = False

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        """A full disk still has room for a name."""
        full, self.full = self.full, False
        try:
            return super().open(path, create=create)
        finally:
            self.full = full

    def remove(self, path: str) -> None:
        if self.keeps_names and path in self.snapshot():
            raise StorageFull(f"cannot remove {path}: the simulated disk is read-only")
        super().remove(path)


def test_a_cut_that_the_disk_refuses_half_way_is_finished_later(open_log, builder):
    disk = DiskThatKeepsNames(Random(1))
    log = open_log(disk)
    old = builder.log(40)
    builder.append(log, old)
    log.flush()
    log.truncate(3)
    written = old[:3]
    for _ in range(3):
        written.append(builder.next(written, epoch=2, body_bytes=30))
    builder.append(log, written[3:])
    disk.keeps_names = True
    with pytest.raises(StorageFull):
        log.flush()
    disk.keeps_names = False
    for _ in range(60):
        written.append(builder.next(written, epoch=2, body_bytes=30))
    builder.append(log, written[6:])
    log.flush()
    assert log.durable_end_offset == written[-1].end_offset
    reopened = open_log(disk)
    assert reopened.recovery_notes == []
    assert reopened.read(0, 1 << 20) == b"".join(made.data for made in written)


def test_a_segment_whose_creation_was_refused_and_not_undone_is_removed_later(open_log, builder):
    disk = DiskThatKeepsNames(Random(1))
    log = open_log(disk)
    old = builder.log(9)
    builder.append(log, old[:8])
    log.flush()
    room_for_one_segment = len(disk.snapshot())
    builder.append(log, old[8:])
    disk.full = disk.keeps_names = True
    with pytest.raises(StorageFull):
        log.flush()
    disk.full = disk.keeps_names = False
    log.truncate(5)
    written = old[:5]
    for _ in range(30):
        written.append(builder.next(written, epoch=2, body_bytes=60))
    builder.append(log, written[5:])
    log.flush()
    assert len(disk.snapshot()) > room_for_one_segment
    assert open_log(disk).read(0, 1 << 20) == b"".join(made.data for made in written)


def test_failed_fsync_is_final(disk, open_log, builder):
    log = open_log(disk)
    written = builder.log(2)
    builder.append(log, written[:1])
    disk.fsync_fails = True
    with pytest.raises(FsyncFailed):
        log.flush()
    disk.fsync_fails = False
    builder.append(log, written[1:])
    with pytest.raises(FsyncFailed):
        log.flush()


def test_tail_is_cached_and_older_batches_come_from_disk(disk, open_log, builder):
    log = open_log(disk, cache_bytes=300)
    written = builder.log(30)
    builder.append(log, written)
    assert log.cached(0)
    log.flush()
    assert not log.cached(0)
    assert log.cached(29)
    assert log.cached(30)
    assert log.read(0, 1 << 20) == b"".join(made.data for made in written)


def test_damage_under_a_running_node_is_noticed_by_read(disk, open_log, builder):
    log = open_log(disk, cache_bytes=0, segment_bytes=100_000)
    builder.append(log, builder.log(3))
    log.flush()
    path = "/data/__cluster_metadata-0/00000000000000000000.log"
    disk.open(path).pwrite(b"\xff", 4096 + 40)
    with pytest.raises(LogCorrupt, match="offset 0 has changed"):
        log.read(0, 1 << 20)


def test_real_files_survive_a_reopen_with_cuts_and_rolls(tmp_path, builder, identity):
    options = {"segment_bytes": 4096 + 500, "preallocate_bytes": 8192, "cache_bytes": 0}
    log = MetadataStore.open(RealFileSystem(), str(tmp_path / "meta"), *identity[:2], **options).log
    written = builder.log(40, stamp_behind=30)
    builder.append(log, written)
    log.flush()
    log.truncate(12)
    builder.append(log, written[12:20])
    log.flush()
    log.close()
    again = MetadataStore.open(RealFileSystem(), str(tmp_path / "meta"), *identity[:2], **options).log
    assert again.end_offset == 20
    assert again.recovery_notes == []
    assert again.read(0, 1 << 20) == b"".join(made.data for made in written[:20])
    again.close()


def test_default_segments_are_preallocated(tmp_path, builder, identity):
    log = MetadataStore.open(RealFileSystem(), str(tmp_path), *identity[:2]).log
    builder.append(log, builder.log(1))
    log.flush()
    (segment,) = (tmp_path / "__cluster_metadata-0").iterdir()
    assert segment.stat().st_size == 4 * 1024 * 1024
    log.close()
