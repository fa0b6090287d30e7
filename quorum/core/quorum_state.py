"""The only way between the six states of a node.

Theory of operation. A node is in exactly one state, and every state belongs to one epoch. All changes go through `QuorumState`,
which takes the same five steps for each, in this order:

1. look the change up in `TRANSITIONS` and refuse it if it is missing (InvariantViolation: a bug of ours, never a peer's fault);
2. check the rules that concern no single row: the epoch never falls, a vote once cast in an epoch stays, an epoch has at most one
   leader;
3. request storage of the durable part (epoch, leader, vote) under the next version number if it has changed. The node acts on the
   new state at once, but every message that it sends from now on waits for that version (`barrier`), so no peer can learn of an
   epoch, a vote or a leadership that a crash could make this node forget;
4. if a leadership ended, notify the shell (`Resigned`) and answer everything that waits for the leader: fetches, reads, a change
   of voters;
5. notify the shell of a new leader.

Timers belong to state objects and die with them, with one exception. A voter that is unattached (or requests pre-votes and has
not been refused) and sees a higher epoch keeps the *remaining* election time, so that a stream of new epochs cannot put off its
own election forever.

Not checked here: if a vote may be granted (each state's `grants`) and if a peer tells the truth (the handlers first filter claims
that contradict known facts).
"""

from __future__ import annotations

import random
from typing import NamedTuple

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode, InvariantViolation
from kraftlab.common.replica_key import ReplicaKey

from .effects import (
    ANYBODY,
    Barrier,
    Effects,
    ElectionState,
    LeaderChanged,
    Move,
    ReadIndexRefused,
    Reply,
    StoreElectionState,
    Trace,
)
from .effects import Resigned as ResignedEffect
from .leader import Leader
from .log_view import LogView
from .membership import Membership
from .messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderView,
    Records,
    VoterChangeResponse,
)
from .raft_config import BootState, RaftConfig
from .repair import Repair
from .states import Candidate, EpochState, Follower, Prospective, Resigned, Unattached
from .types import EPOCH_JUMP_MAX, EPOCH_LAST, NEVER_MS, NO_LEADER
from .vote_tally import VoteTally

State = Unattached | Prospective | Candidate | Leader | Follower | Resigned

SAME, NEXT, HIGHER, SAME_OR_HIGHER = "same", "next", "higher", "same or higher"


class Transition(NamedTuple):
    """One legal change. `epoch` relates the epoch of the new state to that of the old one."""

    source: type[EpochState]
    target: type[EpochState]
    epoch: str
    when: str


TRANSITIONS = (
    Transition(Unattached, Unattached, SAME_OR_HIGHER, "grants a vote, or sees a higher epoch without a leader"),
    Transition(Unattached, Prospective, SAME, "voter's election timeout"),
    Transition(Unattached, Follower, SAME_OR_HIGHER, "learns who leads"),
    Transition(Prospective, Unattached, SAME_OR_HIGHER, "grants a vote, is refused and knows no leader, or sees a higher epoch"),
    Transition(Prospective, Follower, SAME_OR_HIGHER, "is refused and knows a leader, or learns who leads"),
    Transition(Prospective, Candidate, NEXT, "majority of pre-votes"),
    Transition(Candidate, Unattached, HIGHER, "sees a higher epoch without a leader"),
    Transition(Candidate, Follower, SAME_OR_HIGHER, "learns who leads"),
    Transition(Candidate, Prospective, SAME, "election timeout"),
    Transition(Candidate, Leader, SAME, "majority of votes"),
    Transition(Leader, Unattached, HIGHER, "sees a higher epoch without a leader"),
    Transition(Leader, Follower, HIGHER, "learns who leads a higher epoch"),
    Transition(Leader, Resigned, SAME, "asked to, hands over, shutting down, storage fails, no majority fetches, or removed"),
    Transition(
        Follower, Unattached, SAME_OR_HIGHER, "fetch timeout of who may not stand, or sees a higher epoch without a leader"
    ),
    Transition(Follower, Prospective, SAME, "voter's fetch timeout, perhaps shortened by EndQuorumEpoch or a refused connection"),
    Transition(Follower, Follower, HIGHER, "learns who leads a higher epoch"),
    Transition(Resigned, Unattached, HIGHER, "election timeout opens the next epoch, or sees a higher epoch without a leader"),
    Transition(Resigned, Follower, HIGHER, "learns who leads a higher epoch"),
)
_LEGAL = {(row.source, row.target): row for row in TRANSITIONS}
_RELATIONS = {
    SAME: lambda old, new: new == old,
    NEXT: lambda old, new: new == old + 1,
    HIGHER: lambda old, new: new > old,
    SAME_OR_HIGHER: lambda old, new: new >= old,
}

NO_RECORDS = Records(b"")
NO_EPOCH_LEFT = "no epoch left"
"""Kind of the trace that the operator has to see."""


class QuorumState:
    """The current state and the transitions to the next.

    `out` is the list of effects of the current step, shared with the node.
    """

    __slots__ = (
        "_announced",
        "_random",
        "barrier",
        "config",
        "durable_election_version",
        "election",
        "election_version",
        "elections_started",
        "epoch",
        "membership",
        "out",
        "repair",
        "resigned_epoch",
        "state",
        "view",
    )

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        election: ElectionState | None,
        random: random.Random,
        now_ms: int,
        out: Effects,
        boot: BootState = BootState(),
    ) -> None:
        self.config = config
        self.membership = Membership.boot(config, boot, log.committed_offset)
        self.repair = Repair(boot.repair_until)
        self.out = out
        self._random = random
        self.election = election or ElectionState(0, NO_LEADER, None)
        """The newest election state that storage was requested to keep."""
        self.election_version = 0
        self.durable_election_version = 0
        self.elections_started = 0
        self.barrier = Barrier()
        """The barrier of every outgoing message."""
        self.resigned_epoch = -1
        """The newest epoch whose leader has announced its resignation; other nodes' claims about that epoch are outdated."""
        self._announced: tuple[int, int] = (self.election.epoch, NO_LEADER)
        self.epoch = self.election.epoch
        self._enter(*self._boot(log, now_ms))

    # Queries of all handlers

    @property
    def leader_id(self) -> int:
        """The known leader of the epoch (-1: none)."""
        return self.view.leader_id

    def trace(self, kind: str, text: str) -> None:
        self.out.append(Trace(kind, text))

    def consistent(self, epoch: int, leader_id: int) -> bool:
        """Return True if "`leader_id` leads `epoch`" does not contradict the *current* epoch; True for any other epoch.

        Nodes that have not heard of a resignation may name the resigned leader: consistent, but useless.
        """
        known = self.state.leader_id
        return epoch != self.epoch or NO_LEADER in (leader_id, known) or leader_id == known

    def believes(self, epoch: int, *, is_answer: bool = False) -> bool:
        """Return True if a peer's epoch is this node's or a credible later one. In answers to its own requests, a node that was
        never in an epoch believes any: it may be new in an old cluster.
        """
        jump_max = EPOCH_LAST if is_answer and self.epoch == 0 else EPOCH_JUMP_MAX
        return self.epoch <= epoch <= min(EPOCH_LAST, self.epoch + jump_max)

    @property
    def is_last_epoch(self) -> bool:
        """True if no epoch follows this one: nobody can be elected again."""
        return self.epoch >= EPOCH_LAST

    def note_resigned(self, epoch: int) -> None:
        """Note that the leader of `epoch` has resigned by its own account."""
        self.resigned_epoch = max(self.resigned_epoch, epoch)

    def random_below_ms(self, bound_ms: int) -> int:
        return self._random.randrange(bound_ms)

    def pick_voter(self) -> int:
        """Return a random other voter to fetch from; occasionally ANYBODY, because other nodes may know more."""
        others = self.membership.others
        choice = self._random.randrange(len(others) + self.asks_anybody) if others else 0
        return others[choice].key.node_id if choice < len(others) else ANYBODY

    @property
    def asks_anybody(self) -> bool:
        """True if the known nodes may all be gone or have moved: the voters come from a log, which may be old, or none are known.

        Static voters are always where the configuration says.
        """
        return self.membership.kraft_version > 0 or not self.membership.others

    @property
    def may_stand(self) -> bool:
        """True if this node could lead: it votes, or did until a record that may never be committed, its log is whole, and an
        epoch is left.

        See membership.py and repair.py.
        """
        return self.membership.is_eligible and not self.repair.is_on and not self.is_last_epoch

    def election_deadline_ms(self, now_ms: int) -> int:
        """Return a new election deadline: now for a sole voter, never for a node that may not stand."""
        if not self.may_stand:
            return NEVER_MS
        return now_ms if self.membership.is_sole_voter else self.random_election_deadline_ms(now_ms)

    def random_election_deadline_ms(self, now_ms: int) -> int:
        """Return a new random election deadline of a voter, sole or not."""
        return now_ms + self.config.election_timeout_ms + self.random_below_ms(self.config.election_timeout_spread_ms + 1)

    # Boot

    def _boot(self, log: LogView, now_ms: int) -> tuple[State, str]:
        """Return the first state, from the stored election state, and the reason. The first row that fits applies.

        KRaft boots as candidate again if it had voted for itself. Here a winner acts while its leadership is still being stored,
        so an own vote may mean an election won: the vote is kept and the epoch is left to others.
        """
        stored, endpoints = self.election, self.membership.endpoints_of(self.election.leader_id)
        if stored.epoch < log.last_epoch:
            reason = f"boot: the log is of epoch {log.last_epoch}, the stored election state only of {stored.epoch}"
            return self._unattached(log.last_epoch, now_ms), reason
        if stored.leader_id == self.config.node_id:
            if self.may_stand and not self.membership.is_sole_voter:
                return self._resigned(stored, now_ms), "boot: led this epoch before"
            if stored.epoch >= EPOCH_LAST:  # No epoch follows, and this one has had its leader.
                return self._unattached(stored.epoch, now_ms, voted_key=self.config.key), "boot: led the last epoch before"
            return self._unattached(stored.epoch + 1, now_ms), f"boot: led epoch {stored.epoch} before"
        if stored.leader_id != NO_LEADER and self.membership.can_reach(stored.leader_id, endpoints):
            return self._follower(stored.epoch, stored.leader_id, endpoints, stored.voted_key, now_ms), "boot: knows the leader"
        return self._unattached(stored.epoch, now_ms, leader_id=stored.leader_id, voted_key=stored.voted_key), "boot"

    # The transitions

    def adopt_epoch(self, epoch: int, now_ms: int, reason: str) -> None:
        """Any → Unattached in a higher epoch without a known leader."""
        old = self.state
        inherits = isinstance(old, Unattached) or (isinstance(old, Prospective) and not old.tally.is_lost)
        unattached = self._unattached(epoch, now_ms)
        if inherits and isinstance(old, (Unattached, Prospective)):
            unattached.election_deadline_ms = old.election_deadline_ms
        self._move(unattached, reason)

    def vote_for(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Unattached or Prospective → Unattached with a vote, same epoch; the election timer restarts."""
        if self.state.voted_key != candidate:
            self._move(self._unattached(self.epoch, now_ms, voted_key=candidate), f"votes for {candidate!r}")

    def stand_down(self, now_ms: int, reason: str) -> None:
        """Prospective → Follower of the remembered leader, otherwise Unattached; same epoch, same vote."""
        old = self.state
        if old.leader_id != NO_LEADER and self.membership.can_reach(old.leader_id, old.leader_endpoints):
            self.follow(old.epoch, old.leader_id, old.leader_endpoints, now_ms, reason)
        else:
            self._move(self._unattached(old.epoch, now_ms, leader_id=old.leader_id, voted_key=old.voted_key), reason)

    def relocate_leader(self, leader_id: int, endpoints: dict[str, Endpoint], source: int) -> None:
        """Take over the leader's endpoints from node `source`, unless this node reaches the leader itself. Timers continue."""
        state = self.state
        is_sought = isinstance(state, Prospective) or (isinstance(state, Follower) and not state.has_fetched)
        if not is_sought or state.leader_id != leader_id or endpoints in ({}, state.leader_endpoints):
            return
        self.trace("peer", f"node {source} says that node {leader_id}, the leader, is reached at {_drawn(endpoints)}")
        state.leader_endpoints = endpoints
        if isinstance(state, Follower):
            state.is_leader_missed = False
        self.view = LeaderView(state.epoch, leader_id, endpoints)
        self.out.append(LeaderChanged(state.epoch, leader_id, endpoints))

    def lose_leader(self, now_ms: int, reason: str) -> None:
        """Follower → Unattached in the same epoch, remembering the leader; for a node that may not stand."""
        old = self.state
        self._move(
            self._unattached(
                old.epoch, now_ms, leader_id=old.leader_id, voted_key=old.voted_key, leader_endpoints=old.leader_endpoints
            ),
            reason,
        )

    def stand(self, now_ms: int, reason: str) -> None:
        """Voter: Unattached, Follower or Candidate → Prospective, same epoch, leader and vote."""
        old = self.state
        if not self.may_stand:
            raise InvariantViolation(
                f"{self.config.key!r} cannot stand: not a voter of {self.membership!r}, or its log is not whole ({self.repair!r})"
            )
        prospective = Prospective(
            old.epoch,
            tally=self._tally(now_ms),
            election_deadline_ms=self.random_election_deadline_ms(now_ms),
            leader_id=old.leader_id,
            voted_key=old.voted_key,
            leader_endpoints=old.leader_endpoints,
        )
        self._move(prospective, reason)

    def campaign(self, now_ms: int, reason: str) -> None:
        """Prospective → Candidate of the next epoch, with its own vote."""
        self.elections_started += 1
        self._move(self._candidate(self.epoch + 1, now_ms), reason)

    def lead(self, log_end_offset: int, now_ms: int) -> Leader:
        """Candidate → Leader. The epoch starts at the log's end."""
        leader = Leader(
            self.epoch,
            own_key=self.config.key,
            voted_key=self.state.voted_key,
            endpoints=self.config.endpoints or self.membership.endpoints_of(self.config.node_id),
            epoch_start_offset=log_end_offset,
            other_voters=self.membership.others,
            check_quorum_deadline_ms=NEVER_MS if self.membership.is_sole_voter else self.config.check_quorum_deadline_ms(now_ms),
            begin_at_ms=now_ms,
        )
        self._move(leader, "majority of votes")
        return leader

    def follow(self, epoch: int, leader_id: int, endpoints: dict[str, Endpoint], now_ms: int, reason: str) -> None:
        """Any state but the epoch's own leader → Follower."""
        voted_key = self.state.voted_key if epoch == self.epoch else None
        self._move(self._follower(epoch, leader_id, endpoints, voted_key, now_ms), reason)

    def repaired(self, now_ms: int) -> None:
        """Start the election timer of a voter without a leader: its log is whole again."""
        if isinstance(self.state, Unattached):
            self.state.election_deadline_ms = self.election_deadline_ms(now_ms)

    def resign(self, now_ms: int, reason: str) -> None:
        """Leader → Resigned, same epoch."""
        self._move(self._resigned(self.state.election(), now_ms), reason)

    # Checks and effects of every transition

    def _move(self, new: State, reason: str) -> None:
        old = self.state
        self.check(old, new)
        self._enter(new, reason, old)

    def check(self, old: EpochState, new: EpochState) -> None:
        row = _LEGAL.get((type(old), type(new)))
        if row is None or not _RELATIONS[row.epoch](old.epoch, new.epoch):
            raise InvariantViolation(f"illegal transition: {old!r} -> {new!r}")
        if old.epoch != new.epoch:
            return
        if old.voted_key is not None and new.voted_key != old.voted_key:
            raise InvariantViolation(f"a second vote in epoch {new.epoch}: {old!r} -> {new!r}")
        if old.leader_id != NO_LEADER and new.leader_id != old.leader_id:
            raise InvariantViolation(f"a second leader in epoch {new.epoch}: {old!r} -> {new!r}")

    def _enter(self, new: State, reason: str, old: EpochState | None = None) -> None:
        self.state = new
        self.epoch = new.epoch
        self.view = LeaderView(new.epoch, new.announced_leader_id(), new.leader_endpoints)
        election = new.election()
        if election != self.election:
            self.election = election
            self.election_version += 1
            self.barrier = Barrier(self.election_version)
            self.out.append(StoreElectionState(self.election_version, election))
        move = Move(
            source=old.name if old else "",
            target=new.name,
            epoch=new.epoch,
            leader_id=new.leader_id,
            voted_id=new.voted_key.node_id if new.voted_key else -1,
        )
        self.out.append(Trace("state", f"{old!r} -> {new!r}: {reason}" if old else f"{new!r}: {reason}", move))
        if self.is_last_epoch and (old is None or old.epoch < new.epoch):
            self.trace(NO_EPOCH_LEFT, f"epoch {new.epoch} is the last one: after its leader, no controller can be elected")
        if isinstance(old, Leader):
            self._end_leadership(old, reason)
        announced = (new.epoch, self.view.leader_id)
        if announced != self._announced and announced[1] != self.config.node_id:
            self.out.append(LeaderChanged(new.epoch, self.view.leader_id, new.leader_endpoints))
        self._announced = announced

    def _end_leadership(self, old: Leader, reason: str) -> None:
        self.out.append(ResignedEffect(old.epoch, reason))
        for owed in old.owed_replies():
            self.out.append(
                Reply(owed.correlation, self.refusal_of(owed.request, ErrorCode.NOT_LEADER_OR_FOLLOWER), self.barrier)
            )
        for token in old.read_index.take_all():
            self.out.append(ReadIndexRefused(token, self.view.leader_id, self.epoch))
        change, old.change = old.change, None
        if change is not None and change.correlation is not None:
            outcome = "it was not begun: ask the next leader"
            if change.end_offset >= 0:
                outcome = f"the voters at offset {change.end_offset - 1} may still be committed: describe the quorum"
            message = f"node {self.config.node_id} has lost the leadership of epoch {old.epoch} over this change; {outcome}"
            refusal = VoterChangeResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.view, message)
            self.out.append(Reply(change.correlation, refusal, self.barrier))

    def refusal_of(self, request: FetchRequest | FetchSnapshotRequest, error: ErrorCode) -> FetchResponse | FetchSnapshotResponse:
        if type(request) is FetchSnapshotRequest:
            return FetchSnapshotResponse(error, self.view, request.snapshot, -1, request.position, b"")
        return FetchResponse(error, self.view, -1, 0, 0, NO_RECORDS)

    # New state objects

    def _unattached(
        self,
        epoch: int,
        now_ms: int,
        *,
        leader_id: int = NO_LEADER,
        voted_key: ReplicaKey | None = None,
        leader_endpoints: dict[str, Endpoint] | None = None,
    ) -> Unattached:
        return Unattached(
            epoch,
            election_deadline_ms=self.election_deadline_ms(now_ms),
            fetch_at_ms=NEVER_MS if self.membership.is_sole_voter and self.may_stand else now_ms + self.config.retry_backoff_ms,
            leader_id=leader_id,
            voted_key=voted_key,
            leader_endpoints=leader_endpoints,
        )

    def _candidate(self, epoch: int, now_ms: int) -> Candidate:
        return Candidate(
            epoch,
            own_key=self.config.key,
            tally=self._tally(now_ms),
            election_version=self.election_version + 1,
        )

    def _follower(
        self, epoch: int, leader_id: int, endpoints: dict[str, Endpoint], voted_key: ReplicaKey | None, now_ms: int
    ) -> Follower:
        return Follower(
            epoch,
            leader_id,
            voted_key=voted_key,
            leader_endpoints=endpoints or self.membership.address_of(leader_id),
            fetch_timeout_ms=self.config.fetch_timeout_ms + self.random_below_ms(self.config.fetch_timeout_spread_ms + 1),
            now_ms=now_ms,
        )

    def _resigned(self, stored: ElectionState, now_ms: int) -> Resigned:
        return Resigned(
            stored.epoch,
            own_key=self.config.key,
            voted_key=stored.voted_key,
            election_deadline_ms=self.random_election_deadline_ms(now_ms),
        )

    def _tally(self, now_ms: int) -> VoteTally:
        return VoteTally(self.membership.voters.ids(), self.config.node_id, now_ms)

    def __repr__(self) -> str:
        return repr(self.state)


def _drawn(endpoints: dict[str, Endpoint]) -> str:
    return ", ".join(f"{listener} {endpoint}" for listener, endpoint in endpoints.items())
