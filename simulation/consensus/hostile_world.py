"""A world with a hostile peer: it knows the cluster id, is not a node, and goes on after the heal.

Every few milliseconds it sends a random node a random request: votes, fetches, announcements, of epochs near and far, in its own
name or anonymously, and in a voter's name with an epoch that no node can believe. Sometimes it answers in place of another node.
None of that may change an epoch, a vote or a leader (H1), and a leader is elected and commits all the same (the world's rules).
"""

from __future__ import annotations

from random import Random

from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.events import RequestReceived, TimerFired
from kraftlab.quorum.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    LeaderView,
    Records,
    Request,
    VoteRequest,
)
from kraftlab.quorum.core.types import EPOCH_JUMP_MAX, EPOCH_LAST, EPOCH_MAX, OffsetAndEpoch, Standing

from .invariants import Violation
from .options import SimulationOptions
from .process import SimulatedProcess
from .transcript import Transcript
from .world import World

STRANGER = ReplicaKey(77, b"hostile stranger")
ANONYMOUS = ReplicaKey(-1)
INTERVAL_US = 4_000
ANSWER_RATE = 0.02
FIRST_TOKEN = 1 << 40
"""Correlations of its requests: no node's."""


class HostileWorld(World):
    """A world whose nodes hear from a hostile peer. `attacks` counts its requests, `answers` its answers."""

    def __init__(self, options: SimulationOptions, transcript: Transcript) -> None:
        super().__init__(options, transcript)
        self._hostile = options.random("hostile peer")
        self.attacks = self.answers = 0

    def begin(self) -> None:
        super().begin()
        self.after(INTERVAL_US, self._attack)

    def _attack(self) -> None:
        random = self._hostile
        running = [m.process for m in self.machines if m.process is not None and m.paused_until_us <= self.now_us]
        if running:
            process = random.choice(running)
            # Timers that are due must not be mistaken for effects of the attack.
            process.step(TimerFired())
            if not process.dead and random.random() < ANSWER_RATE:
                self._answer(process)
            elif not process.dead:
                self._ask(process, random)
        self.after(1 + int(random.random() * 2 * INTERVAL_US), self._attack)

    def _ask(self, process: SimulatedProcess, random: Random) -> None:
        self.attacks += 1
        sender, request, standing = hostile_request(process, random)
        before = process.quorum.election
        process.step(RequestReceived(FIRST_TOKEN + self.attacks, sender, request, standing))
        self._check(process, before, f"{request!r} of {sender!r}")

    def _answer(self, process: SimulatedProcess) -> None:
        """Answer the newest request of a node as another node than the one that was asked."""
        correlation = process.newest_request()
        if correlation is None:
            return
        self.answers += 1
        view = LeaderView(process.quorum.epoch + 5, STRANGER.node_id)
        answer = FetchResponse(ErrorCode.NONE, view, 10**6, 0, 0, Records(b""))
        process.answered(correlation, STRANGER.node_id, answer)
        if process.quorum.election.epoch == view.epoch:
            raise Violation(f"H1 {process.raft!r} believes {answer!r} of a node that it did not ask")

    def _check(self, process: SimulatedProcess, before: object, what: str) -> None:
        if not process.dead and process.quorum.election != before:
            raise Violation(f"H1 {what} changed {before!r} of n{process.node_id} to {process.quorum.election!r}")


def hostile_request(process: SimulatedProcess, random: Random) -> tuple[ReplicaKey, Request, Standing]:
    """Return a request that must change nothing, with its sender."""
    own = process.quorum.epoch
    near, far = own + random.choice((0, 1, 2, EPOCH_JUMP_MAX)), random.choice((own + EPOCH_JUMP_MAX + 1, EPOCH_LAST, EPOCH_MAX))
    sender, standing = STRANGER, random.choice((Standing.OBSERVER, Standing.STRANGER))
    epoch = random.choice((near, far))
    voters = [voter.key for voter in process.raft.voters.voters if voter.key.node_id != process.node_id]
    if voters and random.random() < 0.3:
        sender, standing, epoch = random.choice(voters), Standing.CONTROLLER, far
    end_offset = random.choice((0, process.raft.log_end_offset, 10**9))
    replica = random.choice((sender, ANONYMOUS))
    requests: tuple[Request, ...] = (
        VoteRequest(epoch, sender, process.key, max(0, epoch - 1), end_offset, random.random() < 0.5),
        BeginQuorumEpochRequest(epoch, sender.node_id, process.key, {}),
        EndQuorumEpochRequest(epoch, sender.node_id, (process.key,)),
        FetchRequest(epoch, replica, end_offset, min(epoch, own), -1, 0, 1_000),
        FetchSnapshotRequest(epoch, replica, OffsetAndEpoch(end_offset, own), 0, 1_000),
    )
    return sender, random.choice(requests), standing
