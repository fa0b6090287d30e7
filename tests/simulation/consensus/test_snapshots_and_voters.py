"""Snapshots, changes of voters, lost disks and rot happen in the seeds, and are judged by the batches."""

from __future__ import annotations

import random
from contextlib import ExitStack, nullcontext
from itertools import pairwise

import msgspec
import pytest

from kraftlab.checking.mutant import planted
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.batch import KRaftVersion, KRaftVoters
from kraftlab.quorum.core.events import ResignAsked
from kraftlab.quorum.core.snapshots import Snapshots
from kraftlab.quorum.core.types import Voter, VoterSet
from kraftlab.quorum.storage import LogCorrupt
from kraftlab.quorum.storage.recovery import scan_positions
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES
from kraftlab.simulation.consensus.fault_atlas import damage, is_whole, may_be_lost, targets
from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.invariants import Violation
from kraftlab.simulation.consensus.machine import Machine
from kraftlab.simulation.consensus.membership_invariants import VotersChangeOneByOne
from kraftlab.simulation.consensus.mutants import MUTANTS
from kraftlab.simulation.consensus.observed import Rot
from kraftlab.simulation.consensus.options import CALM, draw_options
from kraftlab.simulation.consensus.state_machine import FrozenHash
from kraftlab.simulation.consensus.transcript import Transcript
from kraftlab.simulation.consensus.voter_trail import VoterTrail, differ_by_one
from kraftlab.simulation.consensus.world import World

CHURN = ("add-voter", "remove-voter", "transfer-leadership", "replace-disk", "move-node", "take-snapshot", "kill")


def churning(seed: int, faults: tuple[str, ...] = CHURN, **changes: object) -> World:
    """Return a world with voters in the log, a quiet network, and these faults."""
    options = draw_options(f"churn/{seed}", FAULTS)
    drawn: dict[str, object] = {
        "voters": 3,
        "observers": 2,
        "network": CALM,
        "disk_latency_us": 200,
        "clock_drift": False,
        "propose_interval_us": 40_000,
        "faults": faults,
        "fault_pace": 100,
        "dynamic_voters": True,
        "auto_join": False,
        "snapshot_interval_us": 200_000,
        "snapshots_kept": 1,
        "snapshot_chunk_bytes": 100,
        "heals_everything": True,
        **changes,
    }
    return World(msgspec.structs.replace(options, **drawn), Transcript())


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(Voter(ReplicaKey(node_id, bytes([node_id + 1]) * 16), {}) for node_id in ids)


def test_voters_come_and_go_one_by_one_and_snapshots_are_taken_and_loaded() -> None:
    done = taken = loaded = 0
    for seed in range(2):
        world = churning(seed)
        world.run()
        sets = [entry[1] for entry in world.voters.committed.entries]
        assert all(differ_by_one(before, after) for before, after in pairwise(sets))
        done, taken, loaded = done + world.operators.done, taken + world.snapshots_taken, loaded + world.snapshots_loaded
    assert done > 10, "hardly any change was made"
    assert taken > 50, "hardly any snapshot was taken"
    assert loaded > 10, "hardly any snapshot was loaded"


@pytest.mark.parametrize("dynamic_voters", [True, False])
def test_a_snapshot_names_the_voters_if_they_live_in_the_log_and_none_else(
    dynamic_voters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The violation is found when the snapshot is written, before any node installs it."""
    control = () if dynamic_voters else (KRaftVersion(0, 1), KRaftVoters(0, voters(0, 1, 2)))
    monkeypatch.setattr(Snapshots, "voters_at", lambda self, offset: control)
    world = churning(0, (), observers=0, dynamic_voters=dynamic_voters)
    with pytest.raises(Violation, match=r"^S13 snapshot .* names the voters"):
        world.run()


def test_a_quorum_grows_from_one_voter() -> None:
    world = churning(1, ("add-voter",), voters=1, observers=3)
    world.run()
    assert world.newest_voters().ids() == (0, 1, 2, 3)


def test_nodes_with_auto_join_join_by_themselves() -> None:
    world = churning(1, ("replace-disk",), voters=3, observers=1, auto_join=True)
    world.run()
    assert world.lost_disks, "no disk was replaced"
    assert all(machine.disks == 0 or world.voters.committed.latest.get(machine.node_id) for machine in world.machines[:3])


def test_rot_is_repaired() -> None:
    repairs = 0
    for seed in range(2):
        world = churning(seed, ("rot", "kill", "take-snapshot"))
        world.run()
        repairs += world.repairs
    assert repairs > 0


def run_until(world: World, time_us: int) -> World:
    world.until_us = time_us
    world.run()
    return world


def test_disks_are_lost_or_damaged_only_where_a_majority_stays_whole() -> None:
    world = run_until(churning(1, ()), 2_000_000)
    assert all(may_be_lost(world, machine) for machine in world.machines)
    damage(world.machines[0], targets(world, world.machines[0])[0], random.Random(1))
    assert not is_whole(world.machines[0])
    assert [may_be_lost(world, machine) for machine in world.machines] == [True, False, False, True, True]


def test_rot_goes_where_it_must_be_distinguished_from_a_torn_tail() -> None:
    world = run_until(churning(1, (), snapshot_interval_us=0), 2_000_000)
    machine, committed = world.machines[0], world.history.end_offset
    found = targets(world, machine)
    assert found
    for target in found:
        assert target.until <= committed
        assert target.until > 0 or target.is_fatal
        assert target.end <= len(machine.file_system.durable_bytes(target.path))


def test_what_a_disk_held_before_it_rotted_counts_when_it_is_lost_in_the_middle_of_its_repair() -> None:
    """The leader counts the disk's acknowledgement, which is on its way all the time."""
    world = churning(1, (), voters=3, observers=0, snapshot_interval_us=0)

    def rot(machine: Machine) -> None:
        target = next(target for target in targets(world, machine) if not target.is_fatal)
        damage(machine, target, random.Random(1))
        machine.crash(power_cut=False, reason="and starts on what has rotted", down_us=20_000)

    def hold_an_acknowledgement() -> None:
        leader, (other, lagging) = world.leaders[0].machine, [m for m in world.machines if not m.process.is_leading]
        for machine in (leader, other):
            world.network.cut(machine.node_id, lagging.node_id)
            world.network.cut(lagging.node_id, machine.node_id)
        world.network.clog(other.node_id, leader.node_id, world.now_us + 800_000)
        world.after(200_000, rot, other)
        world.after(300_000, lambda: held.append((other.durable.end_offset, other.before_rot.end_offset)))
        world.after(300_001, other.wipe, "in the middle of its repair")
        world.after(900_000, lambda: committed.append(world.history.end_offset))

    held: list[tuple[int, int]] = []
    committed: list[int] = []
    world.after(1_504_000, hold_an_acknowledgement)
    run_until(world, 3_000_000)
    [(repaired, before)] = held
    assert repaired < before == committed[0]


def test_records_lost_in_the_middle_of_a_repair_are_missed() -> None:
    """A log in repair is as durable as any other: rot excuses only the records that it has damaged."""
    world = churning(1, (), voters=3, observers=0, snapshot_interval_us=0, fetch_max_bytes=1)

    def rot() -> None:
        machine = next(machine for machine in world.machines if not machine.process.is_leading)
        damage(machine, next(target for target in targets(world, machine) if not target.is_fatal), random.Random(1))
        machine.crash(power_cut=False, reason="and starts on what has rotted", down_us=20_000)
        world.after(20_001, look, machine)

    def look(machine: Machine) -> None:
        if machine.durable.end_offset < 20:
            world.after(100, look, machine)
            return
        assert machine.process.raft.is_repairing
        machine.crash(power_cut=False, reason="and forgets a batch", down_us=20_000)
        [path] = [path for path in machine.file_system.snapshot() if path.endswith(".log")]
        *_, (position, batch) = scan_positions(machine.file_system.read(path), HEADER_PAGE_BYTES)
        machine.file_system.open(path).pwrite(bytes(batch.size_bytes), position)

    world.after(1_500_000, rot)
    with pytest.raises(Violation, match="D1"):
        run_until(world, 3_000_000)


def test_a_snapshot_is_checked_whatever_else_has_rotted_on_its_disk() -> None:
    world = churning(1, (), voters=3, observers=0, snapshot_interval_us=0)

    def take() -> None:
        machine = world.machines[0]
        damage(machine, targets(world, machine)[0], random.Random(1))
        machine.process.state_machine.freeze = lambda: FrozenHash(1, machine.process.applying.applied_offset)
        assert machine.process.snapshots.take()

    world.after(1_500_000, take)
    with pytest.raises(Violation, match=r"S13 .* is not the state at that offset"):
        run_until(world, 2_000_000)


@pytest.mark.parametrize("suffix", [".log", ".checkpoint", "quorum-state"])
def test_only_a_rotten_snapshot_excuses_a_refused_copy(suffix: str) -> None:
    world = run_until(churning(1, (), voters=3, observers=0), 2_000_000)
    machine = world.machines[0]
    damage(machine, next(target for target in targets(world, machine) if target.path.endswith(suffix)), random.Random(1))
    with nullcontext() if suffix == ".checkpoint" else pytest.raises(Violation, match="D3"):
        world.checkers.on_refused(machine.process, machine.process.raft.snapshots[-1], "it does not hold")


def world_with_a_rotten_election_state() -> tuple[World, Machine]:
    """Return a world with a rotten election state; the state was written again since then."""
    world = run_until(churning(1, (), voters=3, observers=0, snapshot_interval_us=0), 2_000_000)
    machine = next(machine for machine in world.machines if not machine.process.is_leading)
    machine.rot = Rot("/data/__cluster_metadata-0/quorum-state", 0, range(0), is_fatal=True)
    return world, machine


def test_a_rotten_election_state_does_not_excuse_a_repair_of_the_log() -> None:
    world, machine = world_with_a_rotten_election_state()
    damaged = next(target for target in targets(world, machine) if target.path.endswith(".log"))
    machine.crash(power_cut=False, reason="for a test")
    machine.file_system.flip(damaged.path, damaged.start + 20, 1)
    with pytest.raises(Violation, match="D2"):
        machine.boot()


def test_a_rotten_election_state_does_not_excuse_an_invalid_batch() -> None:
    world, machine = world_with_a_rotten_election_state()
    error = LogCorrupt("a segment: the batch at offset 5 has changed since it was written")
    with pytest.raises(LogCorrupt):
        machine.process.end_of(error)
    with pytest.raises(LogCorrupt):
        world.refused_to_start(machine.node_id, error)


def test_a_leader_that_has_committed_nothing_changes_no_voters_whatever_newer_ones_have_committed() -> None:
    world = churning(1, (), voters=3, observers=0)
    world.after(1_000_000, lambda: world.leaders[0].step(ResignAsked(world.leaders[0].quorum.epoch, "asked to")))
    [leader] = run_until(world, 2_000_000).leaders
    assert leader.quorum.epoch > 1
    fewer = leader.voter_trail.latest.without(next(v.key.node_id for v in leader.voter_trail.latest.voters))
    [checker] = [checker for checker in world.checkers.all if isinstance(checker, VotersChangeOneByOne)]
    checker.on_voters(leader, leader.raft.log_end_offset, fewer, leader.quorum.epoch)
    leader.applying.high_watermark = leader.raft.epoch_start_offset
    with pytest.raises(Violation, match=r"S12 .* has not committed in its epoch"):
        checker.on_voters(leader, leader.raft.log_end_offset, fewer, leader.quorum.epoch)


def test_the_voters_before_a_change_was_asked_for_do_not_show_that_it_was_made() -> None:
    """The quorum began without the voter that is removed."""
    world = churning(1, (), voters=3, observers=1, snapshot_interval_us=0)
    machine = world.machines[3]
    with ExitStack() as bugs:

        def remove() -> None:
            assert world.newest_voters().has(machine.key)
            bugs.enter_context(planted(MUTANTS["change-answered-at-once"]))
            world.operators.remove(machine.key, 2_000)

        world.after(500_000, world.operators.add, machine, 2_000)
        world.after(1_500_000, remove)
        with pytest.raises(Violation, match=r"S12 .* as done, and it is not committed"):
            run_until(world, 2_000_000)


@pytest.mark.parametrize(
    ("after", "is_one"), [((0, 1, 2), True), ((0, 1, 2, 3), True), ((0, 1), True), ((0, 1, 3), False), ((0,), False)]
)
def test_two_sets_differ_by_one_or_they_do_not(after: tuple[int, ...], is_one: bool) -> None:
    assert differ_by_one(voters(0, 1, 2), voters(*after)) is is_one


def test_a_trail_knows_the_voters_at_every_offset() -> None:
    trail = VoterTrail(voters(0))
    trail.append(5, voters(0, 1))
    trail.append(9, voters(0, 1, 2))
    assert [trail.at(offset).ids() for offset in (0, 5, 6, 9, 10)] == [(0,), (0,), (0, 1), (0, 1), (0, 1, 2)]
    trail.truncate(9)
    assert (trail.latest.ids(), trail.latest_offset) == ((0, 1), 5)
    trail.truncate(0)
    assert (trail.latest.ids(), trail.latest_offset) == ((0,), -1)
