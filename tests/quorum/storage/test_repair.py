"""Damage below a committed offset: the node starts without it, remembers its acknowledgements, and destroys nothing meanwhile."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core import OffsetAndEpoch, Voter, VoterSet
from kraftlab.quorum.core.batch import CONTROL, KRaftVersion, KRaftVoters, encode_control
from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.storage import DiskFailed, LogCorrupt, MetadataStore, RealFileSystem, SnapshotInvalid, StorageFull
from kraftlab.quorum.storage.bootstrap import write_bootstrap
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.simulation.consensus.simulated_file_system import PowerCut, SimulatedFileSystem

DIRECTORY = partition_directory("/data")


def fill(disk, open_store, builder, count=12, **options):
    store = open_store(disk, **options)
    written = builder.log(count, stamp_behind=1)
    builder.append(store.log, written)
    store.log.flush()
    return store, written


def flip(disk, path, position):
    file = disk.open(path)
    byte = file.pread(1, position)
    file.pwrite(bytes([byte[0] ^ 1]), position)
    file.fdatasync()


def place_of(disk, data):
    """Path and position of a batch."""
    for path, content in disk.snapshot().items():
        if path.endswith(".log") and data in content:
            return path, content.index(data)
    raise AssertionError("not there")


def everything(disk):
    return b"".join(disk.snapshot().values())


def leftovers(disk):
    return [name for name in disk.names(DIRECTORY) if not name.endswith((".log", ".checkpoint"))]


def test_damage_in_a_batch_keeps_the_log_before_it_and_remembers_the_old_end(disk, open_store, builder):
    _, written = fill(disk, open_store, builder)
    path, position = place_of(disk, written[4].data)
    flip(disk, path, position + 50)
    store = open_store(disk)
    assert (store.log.end_offset, store.boot.repair_until) == (4, 12)
    assert store.damage is not None
    assert f"{path} position {position}" in store.damage
    assert "damaged at offset 4" in store.damage
    assert "below offset 10 which was committed" in store.damage
    for made in written[:4] + written[5:]:
        assert made.data in everything(disk)
    assert store.log.read(0, 1 << 20) == b"".join(made.data for made in written[:4])


def test_the_damaged_part_is_removed_only_when_the_repair_ends(disk, open_store, builder):
    _, written = fill(disk, open_store, builder)
    flip(disk, *place_of(disk, written[4].data))
    store = open_store(disk)
    builder.append(store.log, written[4:])
    store.log.flush()
    assert [name for name in leftovers(disk) if name.endswith(".damaged")]
    store.end_repair()
    assert (leftovers(disk), store.damage) == ([], None)
    again = open_store(disk)
    assert (again.log.end_offset, again.boot.repair_until, again.notes) == (12, 0, [])


def test_a_repair_survives_restarts_and_ends_at_a_start_that_finds_everything(disk, open_store, builder):
    _, written = fill(disk, open_store, builder)
    flip(disk, *place_of(disk, written[4].data))
    store = open_store(disk)
    builder.append(store.log, written[4:9])
    store.log.flush()
    store = open_store(disk)
    assert (store.log.end_offset, store.boot.repair_until, store.notes) == (9, 12, [])
    builder.append(store.log, written[9:])
    store.log.flush()
    store = open_store(disk)
    assert (store.log.end_offset, store.boot.repair_until, leftovers(disk)) == (12, 0, [])
    assert store.notes == ["repaired: everything below offset 12 is here again"]


def test_damage_that_cannot_be_set_aside_is_refused_and_not_tried_for_ever(disk, open_store, builder, monkeypatch):
    _, written = fill(disk, open_store, builder)
    flip(disk, *place_of(disk, written[0].data))
    monkeypatch.setattr(SimulatedFileSystem, "rename", lambda self, source, target: self.open(target, create=True).close())
    with pytest.raises(LogCorrupt, match="set aside, and is still there"):
        open_store(disk)


def test_more_damage_during_a_repair_never_lowers_its_end(disk, open_store, builder):
    _, written = fill(disk, open_store, builder)
    flip(disk, *place_of(disk, written[8].data))
    store = open_store(disk)
    assert (store.log.end_offset, store.boot.repair_until) == (8, 12)
    flip(disk, *place_of(disk, written[2].data))
    store = open_store(disk)
    assert (store.log.end_offset, store.boot.repair_until) == (2, 12)
    builder.append(store.log, written[2:])
    store.log.flush()
    store.end_repair()
    assert leftovers(disk) == []


@pytest.mark.parametrize("lost", ["rotten header page", "missing segment", "missing first segment"])
def test_whole_segments_are_repaired_too(disk, open_store, builder, lost):
    _, written = fill(disk, open_store, builder, 30)
    paths = [f"{DIRECTORY}/{name}" for name in disk.names(DIRECTORY) if name.endswith(".log")]
    if lost == "rotten header page":
        flip(disk, paths[1], 20)
    else:
        disk.remove(paths[1 if lost == "missing segment" else 0])
    store = open_store(disk)
    kept = 0 if lost == "missing first segment" else int(paths[1][-24:-4])
    assert (store.log.end_offset, store.boot.repair_until) == (kept, 30)
    builder.append(store.log, written[kept:])
    store.log.flush()
    assert open_store(disk).boot.repair_until == 0


def cleaned(disk, open_store, builder, *snapshots):
    """A log of 30 batches that starts at the first of these snapshots."""
    store, written = fill(disk, open_store, builder, 30)
    for offset in snapshots:
        builder.snapshot(store, written[offset - 1])
    store.log.clean(written[snapshots[0] - 1].end)
    store.log.flush()
    return written


def checkpoint(offset):
    return f"{DIRECTORY}/{offset:020d}-0000000001.checkpoint"


def test_without_a_sound_snapshot_at_its_start_the_whole_log_comes_again(disk, open_store, builder):
    written = cleaned(disk, open_store, builder, 20)
    flip(disk, checkpoint(20), 100)
    store = open_store(disk)
    assert (store.log.start_offset, store.log.end_offset, store.boot.repair_until) == (0, 0, 30)
    assert store.boot.snapshots == ()
    assert checkpoint(20) + ".damaged" in disk.snapshot()
    assert all(made.data in everything(disk) for made in written[20:])
    store.log.install(written[24].end, builder.copy(store, written[24]))
    builder.append(store.log, written[25:])
    store.log.flush()
    store = open_store(disk)
    assert (store.log.start_offset, store.log.end_offset, store.boot.repair_until) == (25, 30, 0)
    assert leftovers(disk) == []


def test_a_damaged_snapshot_is_not_needed_while_an_older_one_leads_through(disk, open_store, builder):
    cleaned(disk, open_store, builder, 10, 20)
    flip(disk, checkpoint(20), 100)
    store = open_store(disk)
    assert (store.log.start_offset, store.log.end_offset, store.boot.repair_until) == (10, 30, 0)
    assert store.boot.snapshots == (OffsetAndEpoch(10, 1),)
    assert len(store.notes) == 1
    assert "is no valid snapshot" in store.notes[0]
    assert open_store(disk).notes == []


def test_a_damaged_oldest_snapshot_makes_the_log_start_at_the_next(disk, open_store, builder):
    cleaned(disk, open_store, builder, 10, 20)
    flip(disk, checkpoint(10), 100)
    store = open_store(disk)
    assert (store.log.start_offset, store.log.end_offset, store.boot.repair_until) == (20, 30, 0)
    again = open_store(disk)
    assert (again.log.start_offset, again.log.end_offset, again.notes) == (20, 30, [])


def test_damage_below_a_newer_snapshot_costs_only_the_older_one(disk, open_store, builder):
    written = cleaned(disk, open_store, builder, 10, 20)
    flip(disk, *place_of(disk, written[15].data))
    store = open_store(disk)
    assert (store.log.start_offset, store.log.end_offset, store.boot.repair_until) == (20, 30, 0)
    assert store.log.read(20, 1 << 20) == b"".join(made.data for made in written[20:])


def test_damage_after_the_newest_snapshot_is_repaired_from_there(disk, open_store, builder):
    written = cleaned(disk, open_store, builder, 10, 20)
    flip(disk, *place_of(disk, written[20].data))
    store = open_store(disk)
    assert (store.log.start_offset, store.log.end_offset, store.boot.repair_until) == (10, 20, 30)


def damage_everywhere(disk, open_store, builder, seed):
    random = Random(seed)
    written = cleaned(disk, open_store, builder, 10, 20)
    for _ in range(random.randint(1, 3)):
        path = f"{DIRECTORY}/{random.choice(disk.names(DIRECTORY))}"
        flip(disk, path, random.randrange(len(disk.snapshot()[path].rstrip(bytes(1))) or 1))
    return written


def test_a_power_cut_at_any_operation_of_setting_aside_destroys_nothing_and_forgets_nothing(open_store, builder):
    for seed in range(12):
        whole = SimulatedFileSystem(Random(seed))
        written = damage_everywhere(whole, open_store, builder, seed)
        expected = open_store(whole).boot.repair_until
        for cut in range(60):
            disk = SimulatedFileSystem(Random(f"{seed}/{cut}"))
            damage_everywhere(disk, open_store, builder, seed)
            before = everything(disk)
            disk.operations_left = cut
            done = False
            try:
                open_store(disk)
                done = True
            except PowerCut:
                pass
            disk.crash(power_cut=True)
            disk.operations_left = cut // 2
            with suppress(PowerCut):
                open_store(disk)
            disk.crash(power_cut=True)
            store = open_store(disk)
            assert store.boot.repair_until == expected
            assert expected == 0 or expected == 30
            if expected:
                for made in written[store.log.end_offset :]:
                    assert made.data not in before or made.data in everything(disk)
            builder.append(store.log, written[store.log.end_offset :])
            store.log.flush()
            assert (open_store(disk).boot.repair_until, leftovers(disk)) == (0, [])
            if done:
                break


def test_a_power_cut_at_any_operation_of_the_end_leaves_a_repair_or_none(open_store, builder):
    for cut in range(8):
        for seed in range(10):
            disk = SimulatedFileSystem(Random(seed))
            _, written = fill(disk, open_store, builder)
            flip(disk, *place_of(disk, written[4].data))
            store = open_store(disk)
            builder.append(store.log, written[4:])
            store.log.flush()
            disk.operations_left = cut
            with suppress(PowerCut):
                store.end_repair()
            disk.crash(power_cut=True)
            again = open_store(disk)
            assert (again.log.end_offset, again.boot.repair_until, leftovers(disk)) == (12, 0, [])


def test_a_full_disk_refuses_the_repair_with_a_next_step_and_loses_nothing(disk, open_store, builder):
    _, written = fill(disk, open_store, builder, segment_bytes=100_000)
    flip(disk, *place_of(disk, written[4].data))
    before = disk.snapshot()
    disk.full = True
    for _ in range(2):
        with pytest.raises(StorageFull, match=r"damaged at offset 4.*no room.*start the node again"):
            open_store(disk)
    assert {path: data for path, data in disk.snapshot().items() if path in before} == before
    disk.full = False
    store = open_store(disk)
    assert (store.log.end_offset, store.boot.repair_until) == (4, 12)


def test_a_disk_that_fills_up_half_way_through_setting_aside_loses_nothing(open_store, builder):
    for room in range(12):
        disk = DiskThatFillsUp(Random(1))
        _, written = fill(disk, open_store, builder, 30)
        flip(disk, *place_of(disk, written[4].data))
        intact = written[:4] + written[5:]
        disk.room = room
        with suppress(StorageFull):
            open_store(disk)
        assert all(made.data in everything(disk) for made in intact)
        disk.room = None
        store = open_store(disk)
        assert (store.log.end_offset, store.boot.repair_until) == (4, 30)
        assert all(made.data in everything(disk) for made in intact)


class DiskThatFillsUp(SimulatedFileSystem):
    """Has room for so many more operations that need some; None: enough."""

    room: int | None = None

    def operation(self, path: str, needs_space: bool = False) -> None:
        if needs_space and self.room is not None:
            self.full = self.room <= 0
            self.room -= 1
        elif self.room is None:
            self.full = False
        super().operation(path, needs_space)


def test_every_flipped_bit_of_the_repair_file_is_refused(disk, open_store, builder):
    _, written = fill(disk, open_store, builder)
    flip(disk, *place_of(disk, written[4].data))
    open_store(disk)
    path = f"{DIRECTORY}/repair"
    original = disk.snapshot()[path]
    for position in range(len(original)):
        for bit in (0, 5):
            disk.open(path).pwrite(bytes([original[position] ^ (1 << bit)]), position)
            with pytest.raises(LogCorrupt, match=r"repair cannot be trusted.*format"):
                open_store(disk)
        disk.open(path).pwrite(original, 0)


def voter(directory_id, node_id=1):
    return Voter(ReplicaKey(node_id, directory_id), {"CONTROLLER": Endpoint("localhost", 9093)})


@pytest.mark.parametrize("where", ["the log", "behind the damage", "the bootstrap checkpoint"])
def test_the_only_voter_of_a_dynamic_quorum_is_known_from_the_log(disk, open_store, builder, identity, where):
    voters = VoterSet.of([voter(identity.directory_id)])
    if where == "the bootstrap checkpoint":
        write_bootstrap(disk, "/data", "test-cluster", voters)
    written = builder.log(12, stamp_behind=1)
    if where != "the bootstrap checkpoint":
        at = 2 if where == "the log" else 8
        body = encode_control([KRaftVersion(0, 1), KRaftVoters(0, voters)])
        del written[at:]
        written.append(builder.next(written, body=body, records=2, attributes=CONTROL, stamp=at - 1))
        while len(written) < 12:
            written.append(builder.next(written, stamp=written[-1].base_offset))
    store = open_store(disk)
    builder.append(store.log, written)
    store.log.flush()
    flip(disk, *place_of(disk, written[4].data))
    with pytest.raises(LogCorrupt, match="only voter"):
        open_store(disk)


def test_a_voter_among_others_repairs_though_its_configuration_names_it_alone(disk, open_store, builder, identity):
    voters = VoterSet.of([voter(identity.directory_id), voter(bytes(16), 2)])
    body = encode_control([KRaftVersion(0, 1), KRaftVoters(0, voters)])
    written = [builder.next([], body=body, records=2, attributes=CONTROL)]
    for _ in range(11):
        written.append(builder.next(written, stamp=written[-1].base_offset))
    store = open_store(disk)
    builder.append(store.log, written)
    store.log.flush()
    flip(disk, *place_of(disk, written[4].data))
    assert open_store(disk, sole_voter=True).boot.repair_until == 13


@pytest.mark.parametrize("how", ["formatted as the only voter", "others were removed"])
def test_a_former_sole_voter_repairs_and_continues_after_every_start(disk, open_store, builder, identity, how):
    alone = VoterSet.of([voter(identity.directory_id)])
    both = VoterSet.of([voter(identity.directory_id), voter(bytes(16), 2)])
    is_formatted_alone = how == "formatted as the only voter"
    write_bootstrap(disk, "/data", "test-cluster", alone if is_formatted_alone else both)
    sets = {8: both} if is_formatted_alone else {2: alone, 8: both}
    written = []
    for offset in range(12):
        told = {"body": encode_control([KRaftVoters(0, sets[offset])]), "attributes": CONTROL} if offset in sets else {}
        written.append(builder.next(written, stamp=max(0, offset - 1), **told))
    store = open_store(disk)
    builder.append(store.log, written)
    store.log.flush()
    flip(disk, *place_of(disk, written[4].data))
    for _ in range(3):
        store = open_store(disk)
        assert (store.boot.repair_until, store.log.end_offset) == (12, 4)
    builder.append(store.log, written[4:])
    store.log.flush()
    store.end_repair()
    assert open_store(disk).boot.repair_until == 0


def test_every_flipped_bit_of_a_directory_is_fixed_repaired_or_refused(disk, open_store, builder):
    written = cleaned(disk, open_store, builder, 10, 20)
    open_store(disk).election_store.store(ElectionState(1, 2, None))
    original = disk.snapshot()
    random = Random(7)
    outcomes = {"whole": 0, "shorter": 0, "repairs": 0, "refused": 0}
    for path, content in original.items():
        for position in sorted(random.sample(range(len(content.rstrip(b"\0"))), 60)):
            trial = SimulatedFileSystem(Random(1))
            trial.make_directory(DIRECTORY)
            for other, data in original.items():
                trial.open(other, create=True).pwrite(data, 0)
            flip(trial, path, position)
            try:
                store = open_store(trial)
            except LogCorrupt:
                outcomes["refused"] += 1
                assert trial.snapshot()[path] != original[path]
                continue
            start, end = store.log.start_offset, store.log.end_offset
            assert store.log.read(start, 1 << 20) == b"".join(made.data for made in written[start:end])
            for position in store.boot.snapshots:
                assert len(list(store.snapshots.reader(position).bodies())) == 3
            assert end >= 28 or store.boot.repair_until == 30
            outcomes["repairs" if store.boot.repair_until else "whole" if end == 30 else "shorter"] += 1
    assert all(outcomes.values()), outcomes


def test_real_files_are_repaired(tmp_path, builder, identity):
    def open_real():
        return MetadataStore.open(RealFileSystem(), str(tmp_path), *identity[:2], segment_bytes=5000, preallocate_bytes=8192)

    store = open_real()
    written = builder.log(30, stamp_behind=1)
    builder.append(store.log, written)
    store.log.flush()
    store.close()
    segment = sorted((tmp_path / "__cluster_metadata-0").glob("*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[4096 + 60] ^= 1
    segment.write_bytes(data)
    store = open_real()
    assert (store.log.end_offset, store.boot.repair_until) == (int(segment.stem), 30)
    builder.append(store.log, written[store.log.end_offset :])
    store.log.flush()
    store.end_repair()
    store.close()
    store = open_real()
    assert (store.log.end_offset, store.boot.repair_until, store.notes) == (30, 0, [])
    store.close()


class BadSectors:
    """A file that gives an error where it is read."""

    def __init__(self, file) -> None:
        self._file = file

    def pread(self, size_bytes, position):
        raise DiskFailed(f"cannot read {self._file.path}: Input/output error. Check the disk.")

    def __getattr__(self, name):
        return getattr(self._file, name)


class DiskWithBadSectors(SimulatedFileSystem):
    bad = ""

    def open(self, path, *, create=False):
        file = super().open(path, create=create)
        return BadSectors(file) if self.bad and path.endswith(self.bad) else file


def test_a_segment_that_can_not_be_read_might_have_held_any_promise_and_nothing_is_changed(open_store, builder):
    disk = DiskWithBadSectors(Random(1))
    store, _ = fill(disk, open_store, builder)
    store.close()
    disk.bad, before = ".log", disk.snapshot()
    with pytest.raises(DiskFailed, match="Check the disk"):
        open_store(disk)
    assert disk.snapshot() == before


@pytest.mark.parametrize("which", ["0004-0000000001.checkpoint", "0008-0000000001.checkpoint"])
def test_a_snapshot_that_can_not_be_read_is_like_one_that_does_not_hold(open_store, builder, which):
    disk = DiskWithBadSectors(Random(1))
    store, written = fill(disk, open_store, builder)
    for made in (written[3], written[7]):
        builder.snapshot(store, made)
    store.close()
    disk.bad = which
    again = open_store(disk)
    assert again.log.end_offset == 12
    assert again.boot.repair_until == 0
    assert any(which in note for note in again.notes)
    assert not [name for name in disk.names(DIRECTORY) if name.endswith(which)]


def test_a_bootstrap_checkpoint_that_can_not_be_read_is_not_missed_once_the_log_has_voters(open_store, builder, identity):
    disk = DiskWithBadSectors(Random(1))
    voters = VoterSet.of([voter(identity.directory_id), voter(bytes(16), 2)])
    write_bootstrap(disk, "/data", "test-cluster", voters)
    store = open_store(disk)
    disk.bad = "0000-0000000000.checkpoint"
    with pytest.raises(LogCorrupt, match=r"Input/output error.*does not know the voters"):
        open_store(disk)
    builder.append(
        store.log,
        [builder.next([], body=encode_control([KRaftVersion(0, 1), KRaftVoters(0, voters)]), records=2, attributes=CONTROL)],
    )
    store.log.flush()
    assert open_store(disk).boot.control == ((0, KRaftVersion(0, 1)), (1, KRaftVoters(0, voters)))


@pytest.mark.parametrize("is_checked", [False, True])
def test_a_snapshot_that_can_not_be_read_is_not_served_and_does_not_end_the_node(open_store, builder, is_checked):
    disk = DiskWithBadSectors(Random(1))
    store, written = fill(disk, open_store, builder)
    builder.snapshot(store, written[3])
    disk.bad = ".checkpoint"
    if is_checked:
        with pytest.raises(SnapshotInvalid, match="Input/output error"):
            store.snapshots.check(written[3].end)
    assert store.snapshots.read(written[3].end, 10, 100) is None
    disk.bad = ""
    assert store.snapshots.read(written[3].end, 10, 100) is None, "what was lost once is not trusted"
