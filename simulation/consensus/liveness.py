"""Liveness after the fault phase: the heal, the conditions L1 to L6, and the excuses.

Theory of operation. When the fault phase ends, either everything heals, or only a *core*: a random set of nodes with a majority
of the voters (as in TigerBeetle's simulator). The nodes outside the core stay broken forever, each in its own way: down, cut
off, deaf, mute, without a link to the leader, paused, or with a full disk. The core has to get along without them.

Then the conditions are checked at intervals, in the order of the table, until all are met. A condition that is not met in time
is a violation, unless an excuse shows that it cannot be met. An excuse is computed from the disks, the links and the membership,
never assumed, and the result names it. A core that has come together is watched for a while longer: nothing may disturb it (L5).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from kraftlab.quorum.core.leader import Leader
from kraftlab.quorum.core.types import VoterSet

from .cluster import Cluster
from .fault_atlas import is_whole, rot_newest_snapshot, sets_in_force
from .invariants import Violation
from .machine import Machine
from .process import SimulatedProcess

ELECTION_TIMEOUTS = 20
CATCH_UP_MS = 10_000
POLL_US = 50_000
STABLE_MS = 3_000
CORES_TRIED = 20
LOOKS_BEFORE_ROT = 20
"""Number of checks within which the leader must have a snapshot of its whole log, or nothing rots."""
FOR_EVER_US = 1 << 50


class Liveness:
    """The second phase of a run. `core` are the machines that must come together."""

    def __init__(self, world: Cluster) -> None:
        self.world = world
        self._random = world.options.random("heal")
        self.core: list[Machine] = list(world.machines)
        self.outside: list[Machine] = []
        self.healed_at_us: int | None = None
        self.final_offset: int | None = None
        """End of the leader's log, with one batch that was proposed after the heal; None before that."""
        self.excuse: str | None = None
        self._prospective_since_us: dict[int, int] = {}
        self.to_miss_the_leader: list[Machine] = []
        self._together_at_us: int | None = None
        """Time at which all conditions were met first."""
        self._epoch = 0
        self._led_by: SimulatedProcess | None = None
        """The newest known leader."""
        self._raises = 0
        self._waits_from_us = 0
        self._looks_before_rot = LOOKS_BEFORE_ROT if world.options.rots_in_the_end else 0

    @property
    def waited_ms(self) -> int:
        """Time since the heal, or since the newest epoch began after the core had come together (L5 allows a few)."""
        return (self.world.now_us - self._waits_from_us) // 1000

    @property
    def leader_limit_ms(self) -> int:
        return ELECTION_TIMEOUTS * max(300, self.world.options.tuning.election_timeout_ms)

    # The heal

    def heal(self) -> None:
        world = self.world
        self.healed_at_us = self._waits_from_us = world.now_us
        if not world.options.heals_everything:
            self.choose_core()
        if self.outside:
            world.note(f"a core heals for good: {', '.join(f'n{machine.node_id}' for machine in self.core)}")
        else:
            world.note("everything heals")
        world.network.calm()
        world.disk_slowness.clear()
        for machine in world.machines:
            machine.heal()
        for machine in self.outside:
            break_for_good(self, machine, self._random)
        world.after(POLL_US, self._look)

    def choose_core(self) -> None:
        world, random = self.world, self._random
        everybody = [machine.node_id for machine in world.machines]
        for _ in range(CORES_TRIED):
            ids = set(random.sample(everybody, random.randint(1, len(everybody))))
            if random.random() < 0.7:
                self._shrink(ids)
            if self._has_majorities(ids):
                break
        else:
            ids = set(everybody)
        self.core = [machine for machine in world.machines if machine.node_id in ids]
        self.outside = [machine for machine in world.machines if machine.node_id not in ids]

    def _shrink(self, ids: set[int]) -> None:
        """Remove nodes until no voter can be spared."""
        for node_id in sorted(ids):
            if self._has_majorities(ids - {node_id}):
                ids.discard(node_id)

    def _has_majorities(self, ids: set[int]) -> bool:
        """Return True if these nodes have a majority of every voter set in force, on disks that are whole."""
        world = self.world
        for voters in sets_in_force(world):
            there = [v for v in voters.voters if v.key.node_id in ids and is_whole(world.machine_of(v.key))]
            if len(there) < voters.majority():
                return False
        return True

    # The conditions

    def _look(self) -> None:
        # A node that was about to stop at the heal can find its rot only now.
        self.core = [machine for machine in self.core if not machine.is_gone]
        self._note_prospective()
        leader = self.leader()
        if leader is None:
            self.final_offset = None
        elif self.final_offset is None:
            self.world.work(leader)
            self.final_offset = leader.raft.log_end_offset
        self._watch_epochs()
        if self._first_unmet() is None:
            if self._together_at_us is None:
                self._together_at_us = self.world.now_us
                self._cut_links_to_leader()
            if self._looks_before_rot:
                self._let_rot()
            elif not self.outside or self.world.now_us - self._together_at_us >= STABLE_MS * 1000:
                self.world.converged()
                return
        self.world.after(POLL_US, self._look)

    def _let_rot(self) -> None:
        """Let the leader take a snapshot of its whole log, let it rot, and let a node need it. No newer snapshot comes: the
        leader has to write this one again before all can come together once more.
        """
        leader = self.leader()
        self._looks_before_rot -= 1
        if leader is None or leader.snapshots.take() or leader.raft.snapshots[-1:] == ():
            return
        if leader.raft.snapshots[-1].offset == leader.applying.applied_offset:
            self._looks_before_rot = 0
            self._waits_from_us = self.world.now_us
            rot_newest_snapshot(self.world, leader, self._random)

    def _first_unmet(self) -> str | None:
        """Return the first condition that is not met; None if all are. Raises Violation if its time is over without an excuse."""
        for condition in CONDITIONS:
            missing = condition.missing(self)
            if missing is None:
                continue
            limit_ms = condition.limit_ms(self)
            if self.waited_ms > limit_ms:
                self.excuse = find_excuse(self)
                if self.excuse is None and self._is_held_up(limit_ms):
                    return missing
                if self.excuse is None:
                    raise Violation(f"{condition.name} {missing}, {limit_ms} ms after the heal: {self.summary()}")
                self.world.finish()
            return missing
        return None

    def _is_held_up(self, limit_ms: int) -> bool:
        """Return True if a disk that was slow before the heal can be the reason: its operations still take their time."""
        return self.world.now_us <= self.world.slow_until_us + limit_ms * 1000

    def _cut_links_to_leader(self) -> None:
        """Cut the links between the leader and some nodes that all others still hear: the chain that broke etcd at Cloudflare."""
        leader = self.leader()
        if not self._has_majorities({machine.node_id for machine in self.core}):
            return  # Meanwhile nodes outside have become voters.
        for machine in self.to_miss_the_leader:
            if leader is not None and leader.machine is not machine:
                self.world.note(f"n{machine.node_id} and the leader n{leader.node_id} do not hear each other from now on")
                self.world.network.cut_for_good(leader.node_id, machine.node_id)
                self.world.network.cut_for_good(machine.node_id, leader.node_id)

    def _watch_epochs(self) -> None:
        """Count new epochs after the core has come together. Each node that was cut off may bring one newer epoch. The core needs
        no other, unless a leader outside it has died, for instance of its rot.
        """
        epoch, before = self._epoch_of_core(), self._led_by
        self._led_by = self.leader() or before
        if epoch <= self._epoch:
            return
        self._epoch = epoch
        if self._together_at_us is None:
            return
        self._waits_from_us = self.world.now_us
        if before is not None and before.machine in self.outside and before.machine.process is not before:
            return
        self._raises += 1
        if self._raises > len(self.outside) - len(self.to_miss_the_leader):
            raise Violation(
                f"L5 {self._raises} new epochs {(self.world.now_us - self._together_at_us) // 1000} ms after the core has come "
                f"together, although it is healthy: {self.summary()}"
            )

    def _note_prospective(self) -> None:
        since_us, now_us = self._prospective_since_us, self.world.now_us
        asking = [machine.node_id for machine in self.core if machine.state_name == "prospective"]
        self._prospective_since_us = {node_id: since_us.get(node_id, now_us) for node_id in asking}

    def leader(self) -> SimulatedProcess | None:
        """Return the leader of the highest epoch that is known in the core. A node outside can lead, as one whose disk is full
        and that has not noticed. A leader that is paused for good does not count.
        """
        epoch = self._epoch_of_core()
        for process in self.world.leaders:
            if process.quorum.epoch == epoch and process.machine.paused_until_us <= self.world.now_us:
                return process
        return None

    def _epoch_of_core(self) -> int:
        """Return the highest epoch that is known in the core."""
        return max([machine.process.quorum.epoch for machine in self.core if machine.process is not None], default=0)

    def stuck_prospective(self) -> str | None:
        limit_us = ELECTION_TIMEOUTS * 1000 * max(300, self.world.options.tuning.election_timeout_ms)
        for node_id, since_us in self._prospective_since_us.items():
            if self.world.now_us - since_us > limit_us // 2:
                return f"n{node_id} asks for pre-votes since {(self.world.now_us - since_us) // 1000} ms"
        return None

    def summary(self) -> str:
        return "; ".join(
            ("" if machine in self.core else "outside: ")
            + (repr(machine.process.raft) if machine.process is not None else f"n{machine.node_id} down")
            for machine in self.world.machines
        )


class Condition(NamedTuple):
    """A condition of liveness. `missing` describes why it is not met, None if it is; it must be met `limit_ms` after the heal."""

    name: str
    about: str
    missing: Callable[[Liveness], str | None]
    limit_ms: Callable[[Liveness], int]


def _to_catch_up(liveness: Liveness) -> int:
    return liveness.leader_limit_ms + CATCH_UP_MS


def _no_leader(liveness: Liveness) -> str | None:
    return "no leader" if liveness.leader() is None else None


def _not_caught_up(liveness: Liveness) -> str | None:
    offset = liveness.final_offset
    leader = liveness.leader()
    if offset is None or leader is None:
        return "no leader"
    if leader.is_stopping:
        return f"the leader n{leader.node_id} is about to stop"
    return None if liveness.world.has_converged(leader.raft.log_end_offset) else "the nodes have not caught up"


def _change_under_way(liveness: Liveness) -> str | None:
    """Describe a pending change of voters, or an uncommitted voter set; None if there is neither."""
    leader = liveness.leader()
    state = leader.quorum.state if leader is not None else None
    if leader is None or not isinstance(state, Leader):
        return "no leader"
    if state.change is not None:
        return f"n{leader.node_id} still pursues {state.change.request!r}"
    trail = leader.voter_trail
    return None if trail.latest_offset < leader.applying.high_watermark else f"the voters {trail.latest} are not committed"


CONDITIONS: tuple[Condition, ...] = (
    Condition("L4", "nobody asks for pre-votes forever", Liveness.stuck_prospective, lambda liveness: 0),
    Condition("L1", "somebody leads the core", _no_leader, lambda liveness: liveness.leader_limit_ms),
    Condition("L2", "every node of the core has committed and applied all, and has the same state", _not_caught_up, _to_catch_up),
    Condition("L3", "no change of the voters is under way", _change_under_way, _to_catch_up),
    Condition("L6", "every call of a client has returned", lambda liveness: liveness.world.unanswered(), _to_catch_up),
)
"""The conditions in the order of the checks. `_watch_epochs` checks L5, the calm afterwards."""


# Excuses


def _can_vote(machine: Machine) -> bool:
    """Return True if the machine's disk is whole, or a process runs that does not repair it. Rot keeps a process from voting only
    after a restart, which finds the rot.
    """
    return is_whole(machine) or (machine.process is not None and not machine.process.raft.is_repairing)


def _electors(liveness: Liveness, machine: Machine) -> tuple[VoterSet, list[int]]:
    """Return the voters in that node's log, and the nodes of the core that could vote for it: they can vote, their log is not
    longer, and they are at the endpoint that the log names.
    """
    world = liveness.world
    process = machine.process
    voters = process.voter_trail.latest if process is not None else world.voters.trail_of(machine.durable).latest
    there = []
    for voter in voters.voters:
        elector = world.machine_of(voter.key)
        if elector not in liveness.core or elector is None or not _can_vote(elector):
            continue
        is_found = elector is machine or not voter.endpoints or voter.endpoints == elector.endpoints
        if is_found and elector.durable.last_position <= machine.durable.last_position:
            there.append(elector.node_id)
    return voters, there


def _nobody_can_be_elected(liveness: Liveness) -> str | None:
    """Excuse a core that cannot elect a leader. A leader outside that no node of the core hears does not count."""
    leader, network = liveness.leader(), liveness.world.network
    if leader is not None and any(
        machine is leader.machine or not network.is_cut(leader.node_id, machine.node_id) for machine in liveness.core
    ):
        return None
    found: list[str] = []
    for machine in liveness.core:
        voters, electors = _electors(liveness, machine)
        if _can_vote(machine) and voters.has(machine.key) and len(electors) >= voters.majority():
            return None
        found.append(f"n{machine.node_id} by {electors} of {voters}")
    return f"votes could be had: {'; '.join(found)}"


def _leader_lacks_a_majority(liveness: Liveness) -> str | None:
    leader, world = liveness.leader(), liveness.world
    if leader is None:
        return None
    voters = leader.voter_trail.latest
    there = [v.key.node_id for v in voters.voters if world.machine_of(v.key) in liveness.core]
    if len(there) < voters.majority():
        return f"n{leader.node_id} leads, and of its voters {voters} only {there} are there"
    return None


def _committed_data_is_gone(liveness: Liveness) -> str | None:
    history, world = liveness.world.history, liveness.world
    offset, crc = history.end_offset, history.crcs[-1]
    voters = [world.machine_of(voter.key) for voters in sets_in_force(world) for voter in voters.voters]
    if offset and not any(m is not None and m in liveness.core and m.durable.holds(offset, crc) for m in voters):
        return f"no voter of the core has everything below the committed offset {offset} on its disk"
    return None


def _led_from_outside(liveness: Liveness) -> str | None:
    """Excuse a core with a leader outside that reaches a majority of voters, and so leads forever, but not every node inside."""
    leader, network = liveness.leader(), liveness.world.network
    if leader is None or leader.machine in liveness.core:
        return None
    voters, own = leader.voter_trail.latest.ids(), leader.node_id
    reached = [v for v in voters if v == own or not (network.is_cut(own, v) or network.is_cut(v, own))]
    unreached = [m.node_id for m in liveness.core if network.is_cut(own, m.node_id) or network.is_cut(m.node_id, own)]
    if len(reached) > len(voters) // 2 and unreached:
        return f"n{own} leads from outside the core, reaches {reached} and can not reach {unreached}"
    return None


EXCUSES: tuple[tuple[str, Callable[[Liveness], str | None]], ...] = (
    ("nobody-can-be-elected", _nobody_can_be_elected),
    ("leader-lacks-a-majority", _leader_lacks_a_majority),
    ("committed-data-is-gone", _committed_data_is_gone),
    ("led-from-outside", _led_from_outside),
)
"""Excuses by name. Each function describes why the core cannot come together; None if the excuse does not apply."""


def find_excuse(liveness: Liveness) -> str | None:
    """Return the first excuse that applies, with its reason."""
    for name, holds in EXCUSES:
        reason = holds(liveness)
        if reason is not None:
            return f"{name}: {reason}"
    return None


# Nodes outside the core


def _is_down(liveness: Liveness, machine: Machine) -> None:
    machine.crash(power_cut=True, reason="for good")
    machine.is_gone = True


def _is_alone(liveness: Liveness, machine: Machine) -> None:
    _is_deaf(liveness, machine)
    _is_mute(liveness, machine)


def _is_deaf(liveness: Liveness, machine: Machine) -> None:
    for other in liveness.world.machines:
        liveness.world.network.cut_for_good(other.node_id, machine.node_id)


def _is_mute(liveness: Liveness, machine: Machine) -> None:
    for other in liveness.world.machines:
        liveness.world.network.cut_for_good(machine.node_id, other.node_id)


def _will_miss_the_leader(liveness: Liveness, machine: Machine) -> None:
    """Cut the node off from the leader later, when the core has come together: only then its log is as good as the others'."""
    liveness.to_miss_the_leader.append(machine)


def _stands_still(liveness: Liveness, machine: Machine) -> None:
    machine.paused_until_us = FOR_EVER_US


def _has_a_full_disk(liveness: Liveness, machine: Machine) -> None:
    machine.file_system.full = True


AFFLICTIONS: dict[str, Callable[[Liveness, Machine], None]] = {
    "is down": _is_down,
    "is alone": _is_alone,
    "hears nobody": _is_deaf,
    "is heard by nobody": _is_mute,
    "will miss the leader": _will_miss_the_leader,
    "stands still": _stands_still,
    "has a full disk": _has_a_full_disk,
}


def break_for_good(liveness: Liveness, machine: Machine, random: Random) -> None:
    """Break this machine for good, in a random way."""
    affliction = "will miss the leader" if random.random() < 0.3 else random.choice(tuple(AFFLICTIONS))
    liveness.world.note(f"n{machine.node_id} {affliction} from now on")
    AFFLICTIONS[affliction](liveness, machine)
