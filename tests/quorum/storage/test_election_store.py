"""The election state survives any power cut whole, and only in its own directory."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.effects import ElectionState
from kraftlab.quorum.storage import ElectionStateStore, LogCorrupt, RealFileSystem, StorageFull, WrongIdentity
from kraftlab.simulation.consensus.simulated_file_system import PowerCut, SimulatedFileSystem

PATH = "/data/__cluster_metadata-0/quorum-state"
STATES = [ElectionState(1, -1, None), ElectionState(2, -1, ReplicaKey(3, bytes(range(16)))), ElectionState(2, 3, ReplicaKey(3))]


def test_a_new_directory_has_no_state(disk, identity):
    assert ElectionStateStore(disk, "/data", identity).load() is None


@pytest.mark.parametrize("state", STATES, ids=repr)
def test_a_stored_state_is_loaded(tmp_path, identity, state):
    ElectionStateStore(RealFileSystem(), str(tmp_path), identity).store(state)
    assert ElectionStateStore(RealFileSystem(), str(tmp_path), identity).load() == state


def test_a_power_cut_at_any_operation_leaves_the_old_state_or_the_new(identity):
    for cut in range(12):
        for seed in range(30):
            disk = SimulatedFileSystem(Random(seed))
            store = ElectionStateStore(disk, "/data", identity)
            store.store(STATES[0])
            disk.operations_left = cut
            done = False
            try:
                store.store(STATES[1])
                done = True
            except PowerCut:
                pass
            disk.crash(power_cut=True)
            found = ElectionStateStore(disk, "/data", identity).load()
            assert found == STATES[1] if done else found in STATES[:2]


def test_a_loaded_state_is_durable_even_if_the_process_was_killed_before_the_directory_was_synced(identity):
    for cut in range(8):
        for seed in range(30):
            disk = SimulatedFileSystem(Random(seed))
            store = ElectionStateStore(disk, "/data", identity)
            store.store(STATES[0])
            disk.operations_left = cut
            with suppress(PowerCut):
                store.store(STATES[1])
            disk.crash(power_cut=False)
            loaded = ElectionStateStore(disk, "/data", identity).load()
            disk.crash(power_cut=True)
            assert ElectionStateStore(disk, "/data", identity).load() == loaded


def test_every_flipped_bit_is_noticed(disk, identity):
    ElectionStateStore(disk, "/data", identity).store(STATES[1])
    original = disk.snapshot()[PATH]
    for position in range(len(original)):
        for bit in range(8):
            disk.open(PATH).pwrite(bytes([original[position] ^ (1 << bit)]), position)
            with pytest.raises(LogCorrupt, match="quorum-state cannot be trusted"):
                ElectionStateStore(disk, "/data", identity).load()
        disk.open(PATH).pwrite(original, 0)


def test_state_of_another_directory_is_refused(disk, identity):
    ElectionStateStore(disk, "/data", identity).store(STATES[0])
    with pytest.raises(WrongIdentity, match="copied from another node"):
        ElectionStateStore(disk, "/data", identity._replace(directory_id=bytes(16))).load()


def test_full_disk_keeps_the_old_state(disk, identity):
    store = ElectionStateStore(disk, "/data", identity)
    store.store(STATES[0])
    disk.full = True
    with pytest.raises(StorageFull):
        store.store(STATES[1])
    assert ElectionStateStore(disk, "/data", identity).load() == STATES[0]
    disk.full = False
    store.store(STATES[2])
    assert ElectionStateStore(disk, "/data", identity).load() == STATES[2]
