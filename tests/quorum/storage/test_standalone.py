"""Forcing a lost majority: the survivor's log is kept, and its new generation is all there or not there at all."""

from __future__ import annotations

from random import Random

import pytest

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core import OffsetAndEpoch, Voter, VoterSet
from kraftlab.quorum.core.batch import CONTROL, ForcedStandalone, KRaftVersion, KRaftVoters, LeaderChange, encode_control
from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.storage import ElectionStateStore, LogCorrupt, MetadataStore, RealFileSystem, WrongIdentity
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.quorum.storage.standalone import force_standalone, plan_standalone
from kraftlab.simulation.consensus.simulated_file_system import PowerCut, SimulatedFileSystem

DIRECTORY = partition_directory("/data")


def voter(node_id, directory_id):
    return Voter(ReplicaKey(node_id, directory_id), {"CONTROLLER": Endpoint("localhost", 9090 + node_id)})


@pytest.fixture
def survivor(identity):
    return voter(1, identity.directory_id)


@pytest.fixture
def voters(survivor):
    return VoterSet.of([survivor, voter(2, bytes(16)), voter(3, bytes([3]) * 16)])


def prepare(disk, open_store, builder, voters, count=8):
    """The survivor's disk: a dynamic quorum of three, epoch 4, `count` batches, the last two not known as committed."""
    store = open_store(disk)
    body = encode_control([KRaftVersion(0, 1), KRaftVoters(0, voters)])
    written = [builder.next([], body=body, records=2, attributes=CONTROL)]
    while len(written) < count:
        written.append(builder.next(written, epoch=3, stamp=written[-2].base_offset if len(written) > 2 else 0))
    builder.append(store.log, written)
    store.log.flush()
    store.election_store.store(ElectionState(4, 2, None))
    store.close()
    return written


def test_the_plan_lists_kept_and_lost_data_and_changes_nothing(disk, open_store, builder, identity, voters):
    prepare(disk, open_store, builder, voters)
    before = disk.snapshot()
    report = plan_standalone(disk, "/data", identity)
    assert (report.generation, report.epoch) == (1, 5)
    assert (report.start_offset, report.end_offset, report.high_watermark) == (0, 9, 6)
    assert (report.previous_voters, report.was_interrupted) == (voters, False)
    assert disk.snapshot() == before


def test_forcing_adds_one_batch_in_a_new_epoch_and_generation(disk, open_store, builder, identity, survivor, voters):
    written = prepare(disk, open_store, builder, voters)
    report = force_standalone(disk, "/data", identity, survivor, 12345)
    store = open_store(disk)
    assert (store.identity.generation, store.election) == (1, ElectionState(5, -1, None))
    assert store.log.read(0, 1 << 20).startswith(b"".join(made.data for made in written))
    (header,) = list(store.log.batches())[len(written) :]
    assert (header.base_offset, header.epoch, header.append_time_ms, header.is_control) == (9, 5, 12345, True)
    assert [record for offset, record in store.boot.control if offset >= 9] == [
        LeaderChange(0, 1, (1,), (1,)),
        KRaftVersion(0, 1),
        KRaftVoters(0, VoterSet((survivor,))),
        ForcedStandalone(0, 1, survivor.key, voters, report.high_watermark, 9, 12345),
    ]
    assert store.log_view().end == OffsetAndEpoch(13, 5)


def test_the_log_goes_on_in_the_new_generation_and_can_be_forced_again(disk, open_store, builder, identity, survivor, voters):
    prepare(disk, open_store, builder, voters)
    force_standalone(disk, "/data", identity, survivor, 1)
    store = open_store(disk)
    for _ in range(30):
        view = store.log_view()
        previous = builder.next([])._replace(base_offset=view.end_offset, end_offset=view.end_offset, crc=view.last_crc)
        made = builder.next([previous], epoch=6)
        store.log.append(made.base_offset, made.end_offset, made.data)
    store.log.flush()
    report = force_standalone(disk, "/data", identity, survivor, 2)
    assert (report.generation, report.epoch, report.end_offset) == (2, 7, 43)
    assert report.previous_voters == VoterSet((survivor,))
    store = open_store(disk)
    assert (store.identity.generation, store.log.end_offset) == (2, 47)


def test_static_voters_are_given_up_too(disk, open_store, builder, identity, survivor, voters):
    store = open_store(disk)
    builder.append(store.log, builder.log(4, stamp_behind=1))
    store.log.flush()
    report = force_standalone(disk, "/data", identity, survivor, 1, voters)
    assert report.previous_voters == voters
    assert plan_standalone(disk, "/data", identity).previous_voters == VoterSet((survivor,))


def test_a_log_that_starts_and_ends_at_a_snapshot_is_forced(disk, open_store, builder, identity, survivor, voters):
    store = open_store(disk)
    leader = builder.log(20)
    store.log.install(leader[9].end, builder.copy(store, leader[9]))
    store.log.flush()
    report = force_standalone(disk, "/data", identity, survivor, 1, voters)
    assert (report.start_offset, report.end_offset, report.high_watermark) == (10, 10, 10)
    store = open_store(disk)
    assert (store.log.start_offset, store.log.end_offset) == (10, 14)


def test_a_torn_tail_is_cut_first(disk, open_store, builder, identity, survivor, voters):
    written = prepare(disk, open_store, builder, voters)
    path = next(p for p, data in disk.snapshot().items() if written[-1].data in data)
    disk.open(path).pwrite(b"X", disk.snapshot()[path].index(written[-1].data) + 50)
    assert plan_standalone(disk, "/data", identity).end_offset == 8
    force_standalone(disk, "/data", identity, survivor, 1)
    store = open_store(disk)
    assert (store.log.end_offset, store.notes) == (12, [])


def test_an_interrupted_forcing_is_refused_at_the_start_and_finished_by_a_second_run(
    open_store, builder, identity, survivor, voters
):
    met = set()
    for cut in range(25):
        for seed in range(8):
            disk = SimulatedFileSystem(Random(seed))
            prepare(disk, open_store, builder, voters)
            disk.operations_left = cut
            done = False
            try:
                force_standalone(disk, "/data", identity, survivor, 1)
                done = True
            except PowerCut:
                pass
            disk.crash(power_cut=True)
            try:
                store = open_store(disk)
                met.add(store.identity.generation)
                assert store.log.end_offset == (13 if store.identity.generation else 9)
                assert not done or store.identity.generation == 1
                if done:
                    continue
            except WrongIdentity as error:
                met.add("interrupted")
                assert not done
                assert "forcing the quorum was interrupted" in str(error)
                assert "force-standalone' again" in str(error)
                assert plan_standalone(disk, "/data", identity).was_interrupted
                assert plan_standalone(disk, "/data", identity).previous_voters == voters
            generation = force_standalone(disk, "/data", identity, survivor, 2).generation
            store = open_store(disk)
            assert (store.identity.generation, store.election) == (generation, store.election)
            assert store.log.end_offset in (13, 17)
    assert met == {0, 1, "interrupted"}


def test_a_damaged_survivor_or_an_empty_directory_is_refused(disk, open_store, builder, identity, survivor, voters):
    with pytest.raises(LogCorrupt, match="holds no log"):
        plan_standalone(disk, "/data", identity)
    written = prepare(disk, open_store, builder, voters)
    path = next(p for p, data in disk.snapshot().items() if written[1].data in data)
    disk.open(path).pwrite(b"X", disk.snapshot()[path].index(written[1].data) + 50)
    before = disk.snapshot()
    with pytest.raises(LogCorrupt, match=r"damaged at offset 2.*cannot found a quorum.*another survivor"):
        force_standalone(disk, "/data", identity, survivor, 1)
    assert disk.snapshot() == before
    open_store(disk)
    with pytest.raises(LogCorrupt, match="cannot found a quorum"):
        plan_standalone(disk, "/data", identity)


def test_a_survivor_with_a_complete_but_unfinished_repair_is_forced(disk, open_store, builder, identity, survivor, voters):
    written = prepare(disk, open_store, builder, voters)
    path = next(p for p, data in disk.snapshot().items() if written[4].data in data)
    disk.open(path).pwrite(b"X", disk.snapshot()[path].index(written[4].data) + 50)
    store = open_store(disk)
    assert store.boot.repair_until
    builder.append(store.log, written[4:])
    store.log.flush()
    store.close()
    force_standalone(disk, "/data", identity, survivor, 1)
    again = open_store(disk)
    assert (again.boot.repair_until, again.identity.generation, again.log.end_offset) == (0, 1, written[-1].end_offset + 4)


def test_segments_of_a_later_generation_without_a_record_of_forcing_are_refused(disk, open_store, builder, identity, voters):
    prepare(disk, open_store, builder, voters)
    store = ElectionStateStore(disk, "/data", identity)
    store.load()
    store.begin_generation(3, ElectionState(4, -1, None))
    log = open_store(disk).log
    view = open_store(disk).log_view()
    previous = builder.next([])._replace(base_offset=view.end_offset, end_offset=view.end_offset, crc=view.last_crc)
    for _ in range(30):
        previous = builder.next([previous], epoch=6)
        log.append(previous.base_offset, previous.end_offset, previous.data)
    log.flush()
    store.begin_generation(0, ElectionState(4, -1, None))
    with pytest.raises(WrongIdentity, match=r"generation 3.*interrupted.*mixed up"):
        open_store(disk)
    with pytest.raises(LogCorrupt, match="no record of forcing"):
        plan_standalone(disk, "/data", identity)


def test_segments_of_earlier_generations_are_good(disk, open_store, builder, identity, voters):
    prepare(disk, open_store, builder, voters)
    store = ElectionStateStore(disk, "/data", identity)
    store.load()
    store.begin_generation(3, ElectionState(4, -1, None))
    assert (open_store(disk).identity.generation, open_store(disk).log.end_offset) == (3, 9)


def test_real_files_are_forced(tmp_path, builder, identity, survivor, voters):
    directory = str(tmp_path)

    def open_real(_disk):
        return MetadataStore.open(RealFileSystem(), directory, *identity[:2])

    prepare(None, open_real, builder, voters)
    force_standalone(RealFileSystem(), directory, identity, survivor, 1)
    store = open_real(None)
    assert (store.identity.generation, store.log.end_offset, store.notes) == (1, 13, [])
    store.close()
