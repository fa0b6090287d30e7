"""The operators of the simulated cluster: they add, remove and replace voters, transfer the leadership, and wait for answers.

A change is asked of the leader, and sometimes of another node. It must be answered within its timeout as long as that process
lives (L6), and a change that was answered as done must be committed (S12). After a disk was replaced, operators ask for changes
until the new replica has the place of the old one among the voters, unless the nodes do that by themselves (auto-join).
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    VoterChangeRequest,
    VoterChangeResponse,
)

from .cluster import Cluster
from .invariants import Checker, Violation
from .machine import Machine
from .observed import ObservedProcess
from .process import SimulatedProcess

TIMEOUTS_MS = (100, 600, 2_000, 2_000)
GRACE_MS = 3_000
"""Additional time for an answer that waits for the disk."""
LEADERLESS_US = 100_000
PATIENCE = 20
"""Number of times that a change is postponed because there is no leader."""
FOLLOW_UP_US = 300_000
FOLLOW_UPS_MAX = 30


class ChangeRequest(NamedTuple):
    """A change that a process was asked for, with a deadline on its machine's clock. `sets`: number of voter sets that were
    committed before.
    """

    process: SimulatedProcess
    request: VoterChangeRequest
    due_ms: int
    sets: int


class Operators(Checker):
    """The operators of one world."""

    def __init__(self, world: Cluster) -> None:
        super().__init__(world)
        self._world = world
        self._random = world.options.random("operators")
        self._waiting: dict[int, ChangeRequest] = {}
        self._next = 0
        self._hasty = 0
        self.done = 0
        """Number of changes that were answered as done."""

    def timeout_ms(self, random: Random) -> int:
        return random.choice(TIMEOUTS_MS)

    def ask(
        self, request: VoterChangeRequest, timeout_ms: int, process: SimulatedProcess | None = None, left: int = PATIENCE
    ) -> None:
        """Ask that process; without one, the newest leader or, one time in ten, any process. Without a leader the request is
        mostly postponed.
        """
        if self._world.is_healed:
            return
        if process is None:
            if left and not self._world.leaders and self._random.random() < 0.95:
                self._world.after(LEADERLESS_US, self.ask, request, timeout_ms, None, left - 1)
                return
            everybody = [machine.process for machine in self._world.machines if machine.process is not None]
            if self._world.leaders and self._random.random() < 0.9:
                process = max(self._world.leaders, key=lambda leading: leading.quorum.epoch)
            elif everybody:
                process = everybody[int(self._random.random() * len(everybody))]
        if process is None or process.dead:
            return
        if process.machine.paused_until_us > self._world.now_us:
            return
        number, self._next = self._next, self._next + 1
        due_ms, sets = process.machine.now_ms() + timeout_ms + GRACE_MS, len(self._world.voters.committed.entries)
        self._waiting[number] = ChangeRequest(process, request, due_ms, sets)
        process.ask(request, lambda response: self._answered(number, response))

    def add(self, machine: Machine, timeout_ms: int) -> None:
        self.ask(AddVoterRequest(-1, machine.voter, timeout_ms), timeout_ms)

    def remove(self, key: ReplicaKey, timeout_ms: int, process: SimulatedProcess | None = None) -> None:
        self.ask(RemoveVoterRequest(-1, key, timeout_ms), timeout_ms, process)

    def transfer(self, key: ReplicaKey, timeout_ms: int) -> None:
        self.ask(TransferLeadershipRequest(-1, key, timeout_ms), timeout_ms)

    def _answered(self, number: int, response: VoterChangeResponse) -> None:
        asked = self._waiting.pop(number)
        if response.error is not ErrorCode.NONE:
            return
        self.done += 1
        committed = [voters for _, voters in self._world.voters.committed.entries[asked.sets - 1 :]]
        request = asked.request
        if isinstance(request, AddVoterRequest):
            is_done = any(voters.has(request.voter.key) for voters in committed)
        elif isinstance(request, RemoveVoterRequest):
            is_done = any(not voters.has(request.voter) for voters in committed)
        else:
            return
        if not is_done:
            raise Violation(f"S12 n{asked.process.node_id} answers {request} as done, and it is not committed")

    def unanswered(self) -> str | None:
        """Describe a change that should have its answer; None if there is none. Nodes that stay broken for good owe no answer."""
        for number, (process, request, due_ms, _) in list(self._waiting.items()):
            if process.dead:
                del self._waiting[number]
            elif self._world.is_given_up(process.machine):
                continue
            elif process.machine.paused_until_us <= self._world.now_us and process.machine.now_ms() > due_ms:
                return f"n{process.node_id} has not answered {request!r} in time"
        return None

    # Early changes

    def be_hasty(self) -> None:
        """Ask the next leader for a change before it can have committed anything."""
        self._hasty += 1

    def on_state(self, process: ObservedProcess) -> None:
        if self._hasty and process.raft.is_leader:
            self._hasty -= 1
            self._world.after(1, self._ask_at_once, self._world.machines[process.node_id].process)

    def _ask_at_once(self, process: SimulatedProcess | None) -> None:
        if process is None or process.dead or not process.raft.is_leader or self._world.is_healed:
            return
        others = [voter.key for voter in process.raft.voters.voters if voter.key != process.key]
        if others:
            self.remove(others[int(self._random.random() * len(others))], 600, process)

    # Replaced disks

    def follow_up(self, machine: Machine, former: ReplicaKey, left: int = FOLLOW_UPS_MAX) -> None:
        """Ask for changes until `machine` votes again, under its new key."""
        if not left or self._world.is_healed or self._world.options.auto_join or machine.key == former:
            return
        voters = self._world.newest_voters()
        if voters.has(machine.key):
            return
        if voters.has(former):
            self.remove(former, 600)
        elif machine.process is not None:
            self.add(machine, 2_000)
        self._world.after(FOLLOW_UP_US, self.follow_up, machine, former, left - 1)
