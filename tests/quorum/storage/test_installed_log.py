"""A log that starts at a snapshot: cleaned below it, or replaced by a leader's."""

from __future__ import annotations

import glob
import os
import threading
from contextlib import suppress
from random import Random

import pytest

from kraftlab.common.errors import InvariantViolation
from kraftlab.quorum.core import OffsetAndEpoch
from kraftlab.quorum.core.batch import KRaftVersion, SnapshotHeader, encode_control
from kraftlab.quorum.storage import MetadataStore, RealFileSystem, StorageFull
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.quorum.storage.survey import FoundBatch, read_chain
from kraftlab.simulation.consensus.simulated_file_system import PowerCut, SimulatedFileSystem

DIRECTORY = partition_directory("/data")


def filled(disk, open_store, builder, count=30):
    """A store whose log holds `count` batches of one record, all but the last committed."""
    store = open_store(disk)
    written = builder.log(count, stamp_behind=1)
    builder.append(store.log, written)
    store.log.flush()
    return store, written


def segments(disk):
    return [name for name in disk.names(DIRECTORY) if name.endswith(".log")]


def test_cleaning_moves_the_start_at_once_and_removes_files_with_the_next_flush(disk, open_store, builder):
    store, written = filled(disk, open_store, builder)
    builder.snapshot(store, written[19])
    before = segments(disk)
    store.log.clean(written[19].end)
    assert (store.log.start, store.log.start_crc) == (OffsetAndEpoch(20, 1), written[19].crc)
    assert store.log.read(19, 1 << 20) == b""
    assert store.log.read(20, 1 << 20) == b"".join(made.data for made in written[20:])
    assert [header.base_offset for header in store.log.batches()] == list(range(20, 30))
    assert segments(disk) == before
    store.log.flush()
    assert len(segments(disk)) < len(before)
    assert store.log.read(20, 1 << 20) == b"".join(made.data for made in written[20:])
    again = open_store(disk)
    assert (again.log.start, again.log.end_offset, again.notes) == (OffsetAndEpoch(20, 1), 30, [])
    assert again.log.read(20, 1 << 20) == b"".join(made.data for made in written[20:])


def test_older_snapshots_go_before_the_segments_behind_them(disk, open_store, builder):
    store, written = filled(disk, open_store, builder)
    builder.snapshot(store, written[9])
    builder.snapshot(store, written[19])
    store.log.clean(written[19].end)
    store.log.flush()
    assert store.snapshots.ids() == (OffsetAndEpoch(20, 1),)
    assert open_store(disk).boot.snapshots == (OffsetAndEpoch(20, 1),)


def test_cleaning_where_no_batch_ends_or_in_another_epoch_is_refused(disk, open_store, builder):
    store = open_store(disk)
    made = builder.next([], records=4)
    builder.append(store.log, [made])
    for wrong in (OffsetAndEpoch(2, 1), OffsetAndEpoch(4, 2), OffsetAndEpoch(9, 1)):
        with pytest.raises(InvariantViolation):
            store.log.clean(wrong)
    store.log.clean(OffsetAndEpoch(0, 0))
    assert store.log.start_offset == 0


def test_a_log_may_be_cleaned_to_its_end_even_before_that_is_flushed(disk, open_store, builder):
    store, written = filled(disk, open_store, builder, 5)
    more = [*written, builder.next(written, epoch=2)]
    builder.append(store.log, more[5:])
    builder.snapshot(store, more[5])
    store.log.clean(more[5].end)
    assert list(store.log.batches()) == []
    more.append(builder.next(more, epoch=2))
    builder.append(store.log, more[6:])
    store.log.flush()
    again = open_store(disk)
    assert (again.log.start, again.log.end_offset) == (OffsetAndEpoch(6, 2), 7)
    assert again.log.read(6, 1 << 20) == more[6].data


def test_an_installed_snapshot_replaces_the_log_at_once_and_on_disk_with_the_next_flush(disk, open_store, builder):
    store, _ = filled(disk, open_store, builder, 10)
    leader = builder.log(50)
    store.log.install(leader[39].end, builder.copy(store, leader[39]))
    assert (store.log.start, store.log.end_offset, list(store.log.batches())) == (OffsetAndEpoch(40, 1), 40, [])
    assert store.snapshots.ids() == ()
    builder.append(store.log, leader[40:45])
    assert store.log.read(40, 1 << 20) == b"".join(made.data for made in leader[40:45])
    store.log.flush()
    assert store.log.durable_end_offset == 45
    assert store.snapshots.ids() == (OffsetAndEpoch(40, 1),)
    assert segments(disk)[0] == "00000000000000000040.log"
    again = open_store(disk)
    assert (again.log.start, again.log.end_offset, again.notes) == (OffsetAndEpoch(40, 1), 45, [])
    assert again.log_view().crc_at(40) == leader[39].crc


def test_an_install_drops_earlier_staged_changes_and_keeps_later_ones(disk, open_store, builder):
    store, written = filled(disk, open_store, builder, 10)
    store.log.truncate(9)
    ours = [*written[:9], builder.next(written[:9], epoch=3)]
    builder.append(store.log, ours[9:])
    leader = builder.log(30)
    store.log.install(leader[19].end, builder.copy(store, leader[19]))
    builder.append(store.log, leader[20:25])
    store.log.truncate(22)
    store.log.flush()
    again = open_store(disk)
    assert (again.log.start_offset, again.log.end_offset) == (20, 22)


def test_an_install_below_the_committed_offset_is_refused(disk, open_store, builder):
    store, _ = filled(disk, open_store, builder, 10)
    with pytest.raises(InvariantViolation, match="below the committed offset 8"):
        store.log.install(OffsetAndEpoch(7, 1), 0)


def test_a_full_disk_delays_an_install_and_loses_nothing(disk, open_store, builder):
    store, _ = filled(disk, open_store, builder, 10)
    leader = builder.log(50)
    store.log.install(leader[39].end, builder.copy(store, leader[39]))
    builder.append(store.log, leader[40:45])
    disk.full = True
    for _ in range(2):
        with pytest.raises(StorageFull):
            store.log.flush()
    disk.full = False
    builder.append(store.log, leader[45:])
    store.log.flush()
    again = open_store(disk)
    assert (again.log.start_offset, again.log.end_offset) == (40, 50)


def test_a_power_cut_at_any_operation_of_an_install_leaves_the_old_log_or_the_snapshot(open_store, builder):
    outcomes = set()
    for cut in range(40):
        for seed in range(6):
            disk = SimulatedFileSystem(Random(seed))
            store, _ = filled(disk, open_store, builder, 10)
            leader = builder.log(50)
            store.log.install(leader[39].end, builder.copy(store, leader[39]))
            builder.append(store.log, leader[40:42])
            disk.operations_left = cut
            try:
                store.log.flush()
            except PowerCut:
                pass
            else:
                cut = 99
            disk.crash(power_cut=True)
            again = open_store(disk)
            log = again.log
            outcomes.add((log.start_offset, log.end_offset))
            assert again.boot.repair_until == 0
            assert [n for n in disk.names(DIRECTORY) if not n.endswith((".log", ".checkpoint"))] == []
            if log.start_offset:
                assert again.boot.snapshots == (OffsetAndEpoch(40, 1),)
            end = log.end_offset
            log.append(end, end + 1, next_batch(builder, again))
            log.flush()
            assert open_store(disk).log.end_offset == end + 1
        if cut == 99:
            break
    assert {(0, 10), (40, 40), (40, 42)} <= outcomes <= {(0, 10), (40, 40), (40, 41), (40, 42)}


def next_batch(builder, store):
    view = store.log_view()
    made = builder.next([], epoch=9)._replace(base_offset=view.end_offset, end_offset=view.end_offset, crc=view.last_crc)
    return builder.next([made], epoch=9).data


def test_a_power_cut_at_any_operation_of_a_cleaning_loses_nothing_above_the_new_start(open_store, builder):
    starts = set()
    for cut in range(20):
        for seed in range(10):
            disk = SimulatedFileSystem(Random(seed))
            store, written = filled(disk, open_store, builder)
            for at in (5, 12, 24):
                builder.snapshot(store, written[at])
            store.log.clean(written[24].end)
            disk.operations_left = cut
            with suppress(PowerCut):
                store.log.flush()
            disk.crash(power_cut=True)
            again = open_store(disk)
            starts.add(again.log.start_offset)
            assert (again.log.end_offset, again.boot.repair_until) == (30, 0)
            assert again.boot.snapshots[0] == again.log.start
            assert again.boot.snapshots[-1] == written[24].end
            data = b"".join(made.data for made in written[again.log.start_offset :])
            assert again.log.read(again.log.start_offset, 1 << 20) == data
    assert starts == {6, 13, 25}


def test_the_control_records_in_force_are_in_the_boot_state(disk, open_store, builder):
    store, written = filled(disk, open_store, builder, 5)
    writer = store.snapshots.writer(written[2].end, [SnapshotHeader(0, "test-cluster", 0, written[2].crc, 0), KRaftVersion(0, 1)])
    assert writer.finish()
    body = encode_control([KRaftVersion(0, 1), KRaftVersion(0, 0)])
    written.append(builder.next(written, records=2, body=body, attributes=1 << 5))
    builder.append(store.log, written[5:])
    store.log.flush()
    assert open_store(disk).boot.control == ((-1, KRaftVersion(0, 1)), (5, KRaftVersion(0, 1)), (6, KRaftVersion(0, 0)))


def test_readers_in_other_threads_get_whole_batches_or_nothing_while_the_log_is_cleaned_and_replaced(tmp_path, builder, identity):
    options = {"segment_bytes": 4096 + 500, "preallocate_bytes": 8192, "cache_bytes": 0}
    store = MetadataStore.open(RealFileSystem(), str(tmp_path), *identity[:2], **options)
    leader = builder.log(400)
    wrong: list[object] = []
    is_over = threading.Event()

    def read():
        random = Random(1)
        while not is_over.is_set():
            start = random.randrange(400)
            try:
                data = store.log.read(start, 500)
                if data and not b"".join(made.data for made in leader[start:]).startswith(data):
                    wrong.append((start, data))
            except Exception as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for end in range(20, 400, 20):
            if end % 100 == 0:
                store.log.install(leader[end - 1].end, builder.copy(store, leader[end - 1]))
            else:
                builder.append(store.log, leader[store.log.end_offset : end])
                builder.snapshot(store, leader[end - 5])
                store.log.clean(leader[end - 5].end)
            store.log.flush()
    finally:
        is_over.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    open_files = [os.readlink(path) for path in glob.glob("/proc/self/fd/*") if os.path.exists(path) or os.path.islink(path)]
    assert not [name for name in open_files if name.startswith(str(tmp_path)) and name.endswith("(deleted)")]
    store.close()


def test_real_files_go_through_all_of_it(tmp_path, builder, identity):
    file_system, directory = RealFileSystem(), str(tmp_path / "meta")
    options = {"segment_bytes": 4096 + 500, "preallocate_bytes": 8192, "cache_bytes": 0}
    store = MetadataStore.open(file_system, directory, *identity[:2], **options)
    leader = builder.log(80)
    builder.append(store.log, leader[:10])
    store.log.flush()
    store.log.install(leader[39].end, builder.copy(store, leader[39]))
    builder.append(store.log, leader[40:])
    store.log.flush()
    builder.snapshot(store, leader[69])
    store.log.clean(leader[69].end)
    store.log.flush()
    store.close()
    again = MetadataStore.open(file_system, directory, *identity[:2], **options)
    assert (again.log.start, again.log.end_offset, again.notes) == (OffsetAndEpoch(70, 1), 80, [])
    assert again.log.read(70, 1 << 20) == b"".join(made.data for made in leader[70:])
    chain = read_chain(partition_directory(directory), 70, again.log.start_crc)
    again.close()
    assert [found.header.base_offset for found in chain if isinstance(found, FoundBatch)] == list(range(70, 80))
