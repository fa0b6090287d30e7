"""Snapshot files: written ones are read, damaged ones are refused, unfinished ones are never seen."""

from __future__ import annotations

import os
import tracemalloc
from contextlib import suppress
from random import Random

import pytest

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import InvariantViolation
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core import OffsetAndEpoch, Voter, VoterSet
from kraftlab.quorum.core.batch import HEADER_BYTES, KRaftVersion, KRaftVoters, SnapshotHeader
from kraftlab.quorum.storage import (
    LogCorrupt,
    LogIdentity,
    MetadataStore,
    RealFileSystem,
    SnapshotInvalid,
    SnapshotStore,
    StorageFull,
    WrongIdentity,
)
from kraftlab.quorum.storage.bootstrap import read_bootstrap, write_bootstrap
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.quorum.storage.snapshot_store import SnapshotReader, list_snapshots, verify_file
from kraftlab.simulation.consensus.simulated_file_system import PowerCut, SimulatedFileSystem

DIRECTORY = partition_directory("/data")
ID = OffsetAndEpoch(7, 3)
NAME = "00000000000000000007-0000000003.checkpoint"
PATH = f"{DIRECTORY}/{NAME}"
BOOTSTRAP = f"{DIRECTORY}/00000000000000000000-0000000000.checkpoint"
VOTERS = VoterSet.of([Voter(ReplicaKey(1, bytes(16)), {"CONTROLLER": Endpoint("localhost", 9093)})])
CONTROL = [SnapshotHeader(0, "test-cluster", 0, 0xABCD, 5000), KRaftVersion(0, 1), KRaftVoters(0, VOTERS)]
BODIES = [b"one" * 10, b"two" * 20, b"three" * 30]


@pytest.fixture
def store(disk, identity):
    disk.make_directory(DIRECTORY)
    return SnapshotStore(disk, DIRECTORY, identity)


def write(store, position=ID, bodies=BODIES, control=CONTROL):
    writer = store.writer(position, control)
    for number, body in enumerate(bodies):
        writer.append(body, number + 1)
    return writer.finish()


def copy(source, target, position=ID, chunk_bytes=64):
    """Copies a snapshot from one store to another's unfinished one."""
    have = target.open_part(position)
    while True:
        size, data = source.read(position, have, chunk_bytes)
        if not data:
            return size
        have = target.store_part(position, have, data)


def test_a_snapshot_is_read_with_its_position_time_and_voters(store):
    assert write(store)
    assert store.ids() == (ID,)
    reader = store.reader(ID)
    assert (reader.position, reader.append_time_ms, reader.last_crc) == (ID, 5000, 0xABCD)
    assert reader.control == (KRaftVersion(0, 1), KRaftVoters(0, VOTERS))
    assert list(reader.bodies()) == BODIES


def test_equal_states_give_equal_files(store, disk, identity):
    write(store)
    other = SimulatedFileSystem(Random(2))
    other.make_directory(DIRECTORY)
    write(SnapshotStore(other, DIRECTORY, identity))
    assert disk.snapshot() == other.snapshot()


def test_a_snapshot_without_data_is_a_snapshot(store):
    assert write(store, bodies=[])
    assert list(store.reader(ID).bodies()) == []


def test_a_whole_file_is_summed_up_and_listed(store, disk):
    write(store)
    summary = verify_file(disk, PATH)
    assert (summary.id, summary.record_count, summary.cluster_id, summary.generation) == (ID, 6, "test-cluster", 0)
    assert summary.size_bytes == len(disk.snapshot()[PATH]) == store.infos()[0].size_bytes
    assert list_snapshots(disk, DIRECTORY) == [ID]


def test_every_flipped_bit_is_noticed(store, disk):
    write(store)
    original = disk.snapshot()[PATH]
    for position in range(len(original)):
        for bit in range(8):
            disk.open(PATH).pwrite(bytes([original[position] ^ (1 << bit)]), position)
            with pytest.raises(SnapshotInvalid, match="is no valid snapshot: at position"):
                verify_file(disk, PATH)
        disk.open(PATH).pwrite(original[position : position + 1], position)


@pytest.mark.parametrize("change", ["cut", "longer", "a batch missing", "a batch twice"])
def test_a_file_that_is_cut_or_mixed_up_is_refused(store, disk, change):
    write(store)
    original = disk.snapshot()[PATH]
    second = original.index(BODIES[1]) - HEADER_BYTES
    third = original.index(BODIES[2]) - HEADER_BYTES
    changed = {
        "longer": original + b"\0",
        "a batch missing": original[:second] + original[third:],
        "a batch twice": original[:third] + original[second:third] + original[third:],
    }
    for data in [changed[change]] if change in changed else [original[:size] for size in range(0, len(original), 5)]:
        disk.remove(PATH)
        disk.open(PATH, create=True).pwrite(data, 0)
        with pytest.raises(SnapshotInvalid):
            verify_file(disk, PATH)


def test_a_renamed_snapshot_is_refused(store, disk):
    write(store)
    for name in ("00000000000000000008-0000000003.checkpoint", "00000000000000000007-0000000004.checkpoint"):
        disk.open(f"{DIRECTORY}/{name}", create=True).pwrite(disk.snapshot()[PATH], 0)
        with pytest.raises(SnapshotInvalid, match="renamed or mixed up"):
            verify_file(disk, f"{DIRECTORY}/{name}")
    with pytest.raises(SnapshotInvalid, match="not named like a snapshot"):
        verify_file(disk, f"{DIRECTORY}/quorum-state")


def test_damage_under_a_running_node_is_noticed_before_the_reader_is_exhausted(store, disk):
    write(store)
    position = disk.snapshot()[PATH].index(BODIES[2])
    disk.open(PATH).pwrite(b"X", position)
    with pytest.raises(LogCorrupt, match="Start the node again"):
        list(store.reader(ID).bodies())


def test_chunks_of_any_size_make_the_same_file(store, disk, identity):
    write(store)
    for chunk_bytes in (1, 7, 64, 1 << 20):
        other = SimulatedFileSystem(Random(2))
        other.make_directory(DIRECTORY)
        target = SnapshotStore(other, DIRECTORY, identity)
        assert copy(store, target, chunk_bytes=chunk_bytes) == len(disk.snapshot()[PATH])
        verified = target.verify_part(ID)
        assert (verified.last_crc, verified.append_time_ms, verified.control) == (0xABCD, 5000, tuple(CONTROL[1:]))
        assert target.ids() == ()
        target.adopt(ID)
        assert target.ids() == (ID,)
        assert other.snapshot()[PATH] == disk.snapshot()[PATH]


def test_a_copy_goes_on_where_it_was_and_a_gap_or_an_old_chunk_changes_nothing(store, disk, identity):
    write(store)
    whole = disk.snapshot()[PATH]
    part = SnapshotStore(disk, DIRECTORY, identity)
    assert part.store_part(ID, 0, whole[:50]) == 50
    assert part.store_part(ID, 80, whole[80:90]) == 50
    assert part.store_part(ID, 20, whole[20:50]) == 50
    assert part.open_part(ID) == 50
    assert part.store_part(ID, 50, whole[50:]) == len(whole)
    part.verify_part(ID)


def test_a_copy_begins_again_at_position_0(store, disk, identity):
    write(store)
    whole = disk.snapshot()[PATH]
    part = SnapshotStore(disk, DIRECTORY, identity)
    part.store_part(ID, 0, b"another leader's file, longer" * 100)
    assert part.store_part(ID, 0, whole) == len(whole)
    part.verify_part(ID)


def test_a_copy_of_another_snapshot_displaces_an_unfinished_one_but_not_one_that_is_being_installed(store, disk):
    store.store_part(OffsetAndEpoch(3, 1), 0, b"x")
    store.promise(OffsetAndEpoch(3, 1))
    store.store_part(OffsetAndEpoch(5, 1), 0, b"x")
    assert store.open_part(ID) == 0
    parts = [name for name in disk.names(DIRECTORY) if name.endswith(".part")]
    assert parts == ["00000000000000000003-0000000001.checkpoint.part", NAME + ".part"]


def test_a_bad_copy_is_refused_with_a_reason_and_forgotten(store, disk, identity):
    write(store)
    whole = bytearray(disk.snapshot()[PATH])
    whole[200] ^= 1
    part = SnapshotStore(disk, DIRECTORY, identity)
    part.store_part(ID, 0, bytes(whole))
    with pytest.raises(SnapshotInvalid, match="crc"):
        part.verify_part(ID)
    assert part.open_part(ID) == 0


@pytest.mark.parametrize("foreign", [{"cluster_id": "other"}, {"generation": 1}])
def test_a_copy_from_another_cluster_or_a_later_generation_is_refused(store, disk, identity, foreign):
    header = {"cluster_id": "test-cluster", "generation": 0} | foreign
    write(store, control=[SnapshotHeader(0, header["cluster_id"], header["generation"], 1, 1)])
    part = SnapshotStore(disk, DIRECTORY, identity)
    part.store_part(ID, 0, disk.snapshot()[PATH])
    with pytest.raises(SnapshotInvalid, match=r"belongs to cluster|has generation 1"):
        part.verify_part(ID)


def test_an_unverified_copy_is_never_installed(store):
    store.store_part(ID, 0, b"anything")
    with pytest.raises(InvariantViolation, match="never verified"):
        store.adopt(ID)


def test_reading_a_snapshot_that_is_gone_or_a_position_behind_its_end(store, disk):
    assert store.read(ID, 0, 10) is None
    with pytest.raises(KeyError):
        store.reader(ID)
    write(store)
    size = len(disk.snapshot()[PATH])
    assert store.read(ID, size, 10) == (size, b"")
    assert store.read(ID, size + 5, 10) == (size, b"")
    assert store.read(ID, size - 2, 10) == (size, disk.snapshot()[PATH][-2:])
    store.remove_below(OffsetAndEpoch(8, 3))
    assert store.read(ID, 0, 10) is None


def test_a_snapshot_that_was_overtaken_while_it_was_written_leaves_nothing(store, disk):
    writer = store.writer(ID, CONTROL)
    store.remove_below(OffsetAndEpoch(8, 3))
    assert not writer.finish()
    assert store.ids() == ()
    assert disk.names(DIRECTORY) == []


@pytest.mark.parametrize("replaces", [False, True])
def test_a_full_disk_leaves_nothing_new_and_the_next_attempt_works(store, disk, replaces):
    if replaces:
        write(store)
        rot(store, disk)
    before = disk.snapshot()
    writer = store.writer(ID, CONTROL)
    disk.full = True
    with pytest.raises(StorageFull):
        writer.append(b"x" * (1 << 20), 1)
        writer.finish()
    writer.abandon()
    assert disk.snapshot() == before
    assert store.read(ID, 0, 10) is None
    disk.full = False
    assert write(store)
    store.check(ID)


@pytest.mark.parametrize("replaces", [False, True])
def test_a_snapshot_whose_name_cannot_be_made_durable_is_not_left_behind(store, disk, monkeypatch, replaces):
    """Without a free descriptor the directory cannot be opened for that. What had rotted stays replaced."""
    if replaces:
        write(store)
        rot(store, disk)

    def no_descriptor(path: str) -> None:
        raise StorageFull(f"cannot open directory {path}: Too many open files")

    writer = store.writer(ID, CONTROL)
    with monkeypatch.context() as process:
        process.setattr(disk, "sync_directory", no_descriptor)
        with pytest.raises(StorageFull, match="open files"):
            writer.finish()
        writer.abandon()
    assert disk.names(DIRECTORY) == ([NAME] if replaces else [])
    assert not store.is_sound(ID)
    later = OffsetAndEpoch(9, 3)
    assert write(store, later)
    store.remove_below(later)
    assert disk.names(DIRECTORY) == ["00000000000000000009-0000000003.checkpoint"]


def test_a_power_cut_at_any_operation_leaves_no_half_snapshot(identity):
    for cut in range(8):
        for seed in range(20):
            disk = SimulatedFileSystem(Random(seed))
            store = MetadataStore.open(disk, "/data", identity.cluster_id, identity.directory_id).snapshots
            disk.operations_left = cut
            done = False
            with suppress(PowerCut):
                done = write(store)
            disk.crash(power_cut=True)
            again = MetadataStore.open(disk, "/data", identity.cluster_id, identity.directory_id)
            assert again.snapshots.ids() in ([(ID,)] if done else [(), (ID,)])
            assert [n for n in disk.names(DIRECTORY) if n != NAME] == []
            for position in again.snapshots.ids():
                assert list(again.snapshots.reader(position).bodies()) == BODIES


def test_writing_and_checking_need_little_memory_whatever_the_size(tmp_path, identity):
    file_system = RealFileSystem()
    file_system.make_directory(str(tmp_path))
    store = SnapshotStore(file_system, str(tmp_path), identity)
    tracemalloc.start()
    writer = store.writer(ID, CONTROL)
    for _ in range(400):
        writer.append(b"x" * 100_000, 1000)
    writer.finish()
    assert sum(len(body) for body in store.reader(ID).bodies()) == 40_000_000
    assert tracemalloc.get_traced_memory()[1] < 12_000_000
    tracemalloc.stop()


def test_a_bootstrap_checkpoint_is_no_snapshot(disk, identity):
    write_bootstrap(disk, "/data", "test-cluster", VOTERS)
    store = MetadataStore.open(disk, "/data", identity.cluster_id, identity.directory_id)
    assert store.boot.bootstrap == (KRaftVersion(0, 1), KRaftVoters(0, VOTERS))
    assert (store.boot.snapshots, store.log.start_offset, list_snapshots(disk, DIRECTORY)) == ((), 0, [])
    store.snapshots.remove_below(OffsetAndEpoch(100, 1))
    assert BOOTSTRAP in disk.snapshot()


def test_every_flipped_bit_of_the_bootstrap_checkpoint_is_noticed(disk, identity):
    write_bootstrap(disk, "/data", "test-cluster", VOTERS)
    original = disk.snapshot()[BOOTSTRAP]
    for position in range(len(original)):
        disk.open(BOOTSTRAP).pwrite(bytes([original[position] ^ 4]), position)
        with pytest.raises(SnapshotInvalid):
            read_bootstrap(disk, "/data", "test-cluster")
        disk.open(BOOTSTRAP).pwrite(original, 0)
    disk.open(BOOTSTRAP).pwrite(b"X", 100)
    with pytest.raises(LogCorrupt, match=r"does not know the voters.*format"):
        MetadataStore.open(disk, "/data", identity.cluster_id, identity.directory_id)


def test_the_checkpoint_of_another_cluster_is_refused(disk, identity, store):
    write_bootstrap(disk, "/other", "other", VOTERS)
    with pytest.raises(LogCorrupt, match="belongs to cluster 'other'"):
        MetadataStore.open(disk, "/other", identity.cluster_id, identity.directory_id)
    write(store, control=[SnapshotHeader(0, "other", 0, 1, 1)])
    with pytest.raises(WrongIdentity, match="belongs to cluster 'other'"):
        MetadataStore.open(disk, "/data", *LogIdentity("test-cluster", bytes(16))[:2])


def test_giving_up_the_store_gives_up_the_file_of_an_unfinished_copy(tmp_path, identity):
    before = len(os.listdir("/proc/self/fd"))
    store = MetadataStore.open(RealFileSystem(), str(tmp_path), identity.cluster_id, identity.directory_id)
    store.snapshots.store_part(OffsetAndEpoch(5, 1), 0, b"a beginning")
    store.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_snapshot_that_a_check_finds_damaged_is_not_served(store, disk):
    write(store)
    store.check(ID)
    assert store.read(ID, 0, 10) is not None
    disk.open(PATH).pwrite(b"X", disk.snapshot()[PATH].index(BODIES[2]))
    with pytest.raises(SnapshotInvalid):
        store.check(ID)
    assert store.read(ID, 0, 10) is None
    store.remove_below(OffsetAndEpoch(ID.offset + 1, ID.epoch))
    with pytest.raises(KeyError):
        store.check(ID)


OTHER_BODIES = [b"another" * 9, b"file" * 12, b"of the same" * 5]


def rot(store, disk):
    """A bit flips, and that is found."""
    disk.flip(PATH, len(disk.snapshot()[PATH]) - 30, 3)
    with pytest.raises(SnapshotInvalid):
        store.check(ID)


def test_a_damaged_snapshot_is_written_over_and_served_again(store, disk):
    write(store)
    rot(store, disk)
    assert not store.is_sound(ID)
    assert write(store, bodies=OTHER_BODIES)
    assert store.is_sound(ID)
    assert store.ids() == (ID,)
    assert store.read(ID, 0, 1 << 20)[1] == disk.snapshot()[PATH]
    assert list(store.reader(ID).bodies()) == OTHER_BODIES
    assert disk.names(DIRECTORY) == [NAME]
    [info] = store.infos()
    assert info.size_bytes == len(disk.snapshot()[PATH])
    store.check(ID)
    rot(store, disk)
    assert store.read(ID, 0, 10) is None, "it can rot again"


def test_a_sound_snapshot_is_not_written_over(store, disk):
    write(store)
    before = disk.snapshot()
    assert write(store, bodies=OTHER_BODIES), "there is one, after all"
    assert disk.snapshot() == before


def test_a_snapshot_whose_file_is_gone_is_noticed_and_written_again(store, disk):
    write(store)
    disk.remove(PATH)
    assert store.read(ID, 5, 10) is None
    assert not store.is_sound(ID)
    assert write(store)
    disk.remove(PATH)
    with pytest.raises(SnapshotInvalid, match="is gone"):
        store.check(ID)
    assert not store.is_sound(ID)
    assert write(store)
    store.check(ID)


def test_a_check_of_the_old_file_does_not_condemn_the_one_that_has_taken_its_place(store, disk):
    write(store)
    rot(store, disk)
    over: list[bool] = []

    def meanwhile():
        if not over:
            over.append(write(store))

    with pytest.raises(KeyError):
        store.check(ID, meanwhile)
    assert over == [True]
    assert store.is_sound(ID)
    store.check(ID)


def test_a_power_cut_while_a_damaged_snapshot_is_written_over_leaves_the_old_file_or_the_new_one(identity):
    for cut in range(8):
        for seed in range(20):
            disk = SimulatedFileSystem(Random(seed))
            store = MetadataStore.open(disk, "/data", identity.cluster_id, identity.directory_id).snapshots
            write(store)
            rot(store, disk)
            rotten = disk.snapshot()[PATH]
            disk.operations_left = cut
            done = False
            with suppress(PowerCut):
                done = write(store)
            disk.crash(power_cut=True)
            found = disk.snapshot()[PATH]
            if found == rotten:
                assert not done
            else:
                again = SnapshotStore(disk, DIRECTORY, identity, [verify_file(disk, PATH)])
                assert list(again.reader(ID).bodies()) == BODIES


def test_reading_a_damaged_snapshot_beside_the_node_leaves_no_file_open(tmp_path, identity):
    store = MetadataStore.open(RealFileSystem(), str(tmp_path), identity.cluster_id, identity.directory_id)
    write(store.snapshots)
    store.close()
    path = tmp_path / "__cluster_metadata-0" / NAME
    path.write_bytes(b"X" + path.read_bytes()[1:])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(LogCorrupt):
            SnapshotReader(RealFileSystem().open(str(path)), ID)
    assert len(os.listdir("/proc/self/fd")) == before
