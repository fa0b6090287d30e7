"""The rules that must hold after every event: one small checker for each rule, whose cost depends on what has changed.

The simulator calls a checker only after a change that concerns its rule: an append, a truncation, a message that leaves, a stored
election state, a risen high watermark, a new state. A broken rule raises Violation. Facts about disks come from the machines
(`durable`, `stored`), and facts about voters from the batches (voter_trail.py), never from a node's own view. Rules of voters,
snapshots and repair are in membership_invariants.py and snapshot_invariants.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import NamedTuple

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.batch import BatchHeader, ControlRecord, check_all
from kraftlab.quorum.core.effects import Append, ElectionState, InstallSnapshot, Reply, Send, Truncate
from kraftlab.quorum.core.local_log import control_of
from kraftlab.quorum.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from kraftlab.quorum.core.snapshots import SnapshotContext
from kraftlab.quorum.core.types import OffsetAndEpoch, VoterSet
from kraftlab.quorum.storage import MetadataStore, SnapshotStore

from .durable_log import DurableLog
from .observed import ObservedMachine, ObservedProcess, ObservedRequest, ObservedWorld
from .voter_trail import VoterTrail


class Violation(Exception):
    """A broken rule of consensus. The text starts with the name of the rule."""


AppendedBatch = tuple[int, int, int]
"""The identity of a batch: base offset, epoch, crc."""


class AppendedBatches(NamedTuple):
    """The batches in the bytes of an append, whose crcs are valid."""

    headers: list[BatchHeader]
    batches: list[AppendedBatch]
    has_control: bool


@lru_cache(maxsize=128)
def appended(data: bytes) -> AppendedBatches:
    """Check the bytes of an append. Cached, since most nodes append the same bytes."""
    headers = check_all(data)
    batches = [(header.base_offset, header.epoch, header.crc) for header in headers]
    return AppendedBatches(headers, batches, any(header.is_control for header in headers))


class Checker:
    """A rule. Subclasses override the hooks that concern the rule; only overridden hooks are called.

    Hooks that run at every message compare types by identity, since a failing isinstance of a Struct is slow.
    """

    def __init__(self, world: ObservedWorld) -> None:
        self.world = world

    def on_boot(self, machine: ObservedMachine, log: DurableLog, store: MetadataStore) -> None: ...

    def on_state(self, process: ObservedProcess) -> None: ...

    def on_append(self, process: ObservedProcess, batches: list[AppendedBatch]) -> None: ...

    def on_truncate(self, process: ObservedProcess, to_offset: int) -> None: ...

    def on_voters(self, process: ObservedProcess, offset: int, voters: VoterSet, epoch: int) -> None:
        """Called before a record of voters is appended; `process.voter_trail` does not have the record yet."""

    def on_frozen(self, process: ObservedProcess, context: SnapshotContext) -> None:
        """Called before a snapshot of the applied state is written."""

    def on_snapshot(self, process: ObservedProcess, store: SnapshotStore, snapshot: OffsetAndEpoch) -> None:
        """Called when an own snapshot is finished and the node knows it."""

    def on_refused(self, process: ObservedProcess, snapshot: OffsetAndEpoch, reason: str) -> None:
        """Called when the copy of a leader's snapshot is invalid."""

    def on_install(self, process: ObservedProcess, effect: InstallSnapshot) -> None:
        """Called before a leader's snapshot replaces the log."""

    def on_sent(self, process: ObservedProcess, request: Request) -> None: ...

    def on_replied(self, process: ObservedProcess, response: Response) -> None: ...

    def on_vote(self, process: ObservedProcess, epoch: int, candidate: ReplicaKey) -> None:
        """Called after `on_sent` or `on_replied`, if the message carries a standard vote: a granted one, or a candidate's own."""

    def on_stored(self, machine: ObservedMachine, state: ElectionState) -> None: ...

    def on_flushed(self, process: ObservedProcess) -> None:
        """Called when a flush has ended and the node knows it."""

    def on_apply(self, process: ObservedProcess, high_watermark: int, leading: bool) -> None: ...

    def on_applied(self, process: ObservedProcess, end_offset: int, digest: int) -> None: ...

    def on_acknowledged(self, process: ObservedProcess, base_offset: int, end_offset: int, crc: int) -> None: ...

    def on_read(self, process: ObservedProcess, asked_at_offset: int, offset: int) -> None:
        """Called when a linearizable read is answered. When it arrived, everything below `asked_at_offset` was committed."""


def crc_in_log(process: ObservedProcess, offset: int) -> int | None:
    """Return the crc of the batch that ends at `offset` in the node's view of its log; None if no batch does."""
    try:
        return process.local_log.view.crc_at(offset)
    except KeyError:
        return None


class CommitsAreOneHistory(Checker):
    """S0, state machine safety: everything that nodes have ever reported committed is one sequence (etcd's LogInv).

    Only a leader may extend the sequence.
    """

    def on_apply(self, process: ObservedProcess, high_watermark: int, leading: bool) -> None:
        history = self.world.history
        end_offset = history.end_offset
        if high_watermark <= end_offset:
            expected, offset = history.crc_at(high_watermark), high_watermark
        else:
            expected, offset = history.crcs[-1], end_offset
        found = crc_in_log(process, offset)
        if expected is None or found != expected:
            raise Violation(f"S0 n{process.node_id} commits another batch below {offset}: crc {found} instead of {expected}")
        if high_watermark > end_offset:
            if crc_in_log(process, high_watermark) is None:
                raise Violation(f"S0 n{process.node_id} commits up to {high_watermark}, which is inside a batch")
            self._extend(process, high_watermark)

    def _extend(self, process: ObservedProcess, high_watermark: int) -> None:
        history, commit_epoch = self.world.history, process.quorum.epoch
        for header in process.log.batches(history.end_offset):
            if header.end_offset > high_watermark:
                break
            history.extend(header.end_offset, header.crc, header.epoch, commit_epoch)
            if header.is_control:
                self.world.voters.commit(header.crc)


class OneLeaderPerEpoch(Checker):
    """S1: every epoch has at most one leader, and no node follows another leader in that epoch."""

    def __init__(self, world: ObservedWorld) -> None:
        super().__init__(world)
        self._leaders: dict[int, int] = {}

    def on_state(self, process: ObservedProcess) -> None:
        epoch, leader_id = process.quorum.epoch, process.quorum.state.leader_id
        if leader_id >= 0 and self._leaders.setdefault(epoch, leader_id) != leader_id:
            raise Violation(f"S1 epoch {epoch} is led by n{self._leaders[epoch]} and, says n{process.node_id}, by n{leader_id}")


class DurableEpochIsMonotone(Checker):
    """S2: a node's stored epoch never falls, not even over a crash. Its epoch in memory is at least the last epoch of its log."""

    def on_stored(self, machine: ObservedMachine, state: ElectionState) -> None:
        if machine.stored is not None and state.epoch < machine.stored.epoch:
            raise Violation(f"S2 n{machine.node_id} stores {state} after {machine.stored}")

    def on_boot(self, machine: ObservedMachine, log: DurableLog, store: MetadataStore) -> None:
        allowed = [machine.stored] if machine.possibly_stored is None else [machine.stored, machine.possibly_stored]
        if store.election not in allowed:
            raise Violation(f"S2 n{machine.node_id} had stored {allowed} and finds {store.election}")

    def on_append(self, process: ObservedProcess, batches: list[AppendedBatch]) -> None:
        base_offset, epoch, _ = batches[-1]
        if epoch > process.quorum.epoch:
            raise Violation(f"S2 n{process.node_id} of epoch {process.quorum.epoch} appends {base_offset}@{epoch}")


class OneVotePerEpoch(Checker):
    """S3: a replica gives at most one standard vote per epoch, over all its incarnations. A candidacy is a vote for itself."""

    def __init__(self, world: ObservedWorld) -> None:
        super().__init__(world)
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}

    def on_vote(self, process: ObservedProcess, epoch: int, candidate: ReplicaKey) -> None:
        first = self._votes.setdefault((process.key, epoch), candidate)
        if first != candidate:
            raise Violation(f"S3 n{process.node_id} votes in epoch {epoch} for {first} and for {candidate}")


class LogMatching(Checker):
    """S4: in all logs, the same (offset, epoch) is the same batch with the same prefix. The crc chain covers the prefix."""

    def __init__(self, world: ObservedWorld) -> None:
        super().__init__(world)
        self._batches: dict[tuple[int, int], int] = {}

    def on_append(self, process: ObservedProcess, batches: list[AppendedBatch]) -> None:
        for base_offset, epoch, crc in batches:
            first = self._batches.setdefault((base_offset, epoch), crc)
            if first != crc:
                raise Violation(
                    f"S4 n{process.node_id} appends {base_offset}@{epoch} with crc {crc:08x}, elsewhere it is {first:08x}"
                )


class LeaderIsAppendOnly(Checker):
    """S5: a leader never truncates its log."""

    def on_truncate(self, process: ObservedProcess, to_offset: int) -> None:
        if process.raft.is_leader:
            raise Violation(f"S5 n{process.node_id} leads epoch {process.quorum.epoch} and truncates to {to_offset}")


class LeaderCompleteness(Checker):
    """S6: a leader's log contains everything that leaders of earlier epochs have reported committed."""

    def on_state(self, process: ObservedProcess) -> None:
        if process.raft.is_leader:
            self._check(process)

    def on_apply(self, process: ObservedProcess, high_watermark: int, leading: bool) -> None:
        for other in self.world.leaders:
            if other is not process and other.quorum.epoch > process.quorum.epoch:
                self._check(other)

    def _check(self, process: ObservedProcess) -> None:
        history = self.world.history
        offset = history.end_before_epoch(process.quorum.epoch)
        if offset >= process.local_log.view.start_offset and crc_in_log(process, offset) != history.crc_at(offset):
            raise Violation(f"S6 n{process.node_id} leads epoch {process.quorum.epoch} without the committed log up to {offset}")


class HighWatermarkIsMonotone(Checker):
    """S7: a high watermark never falls, neither in one process nor from a leader to the leader of a newer epoch."""

    def __init__(self, world: ObservedWorld) -> None:
        super().__init__(world)
        self._epoch = 0
        self._high_watermark = 0

    def on_apply(self, process: ObservedProcess, high_watermark: int, leading: bool) -> None:
        if high_watermark <= process.applying.high_watermark:
            raise Violation(f"S7 n{process.node_id} goes from {process.applying.high_watermark} back to {high_watermark}")
        if leading and process.quorum.epoch >= self._epoch:
            if high_watermark < self._high_watermark:
                raise Violation(f"S7 leader n{process.node_id} reports {high_watermark}, it was {self._high_watermark} before")
            self._epoch, self._high_watermark = process.quorum.epoch, high_watermark


class CommittedIsDurable(Checker):
    """S8: everything that a leader reports committed is on the disks of a majority of the current voters, byte for byte. A lost
    disk counts with its last content, since its acknowledgements can still be on their way; S6 judges the consequences.
    """

    def on_apply(self, process: ObservedProcess, high_watermark: int, leading: bool) -> None:
        if not leading:
            return
        crc = crc_in_log(process, high_watermark)
        voters = process.voter_trail.latest
        holders = [v.key.node_id for v in voters.voters if self.world.has_held(v.key, high_watermark, crc)]
        if len(holders) < voters.majority():
            raise Violation(
                f"S8 n{process.node_id} commits up to {high_watermark}, but of {voters} only {holders} hold it durably"
            )


class CommittedSurvivesAnyElection(Checker):
    """S6, looking ahead: if all machines restarted now, no node without the committed data could win an election.

    This is the purpose of the rule against committing older epochs by counting replicas (Raft §5.4.2, figure 8; KAFKA-12619).
    """

    def on_apply(self, process: ObservedProcess, high_watermark: int, leading: bool) -> None:
        if not leading:
            return
        crc = crc_in_log(process, high_watermark)
        for candidate in self.world.machines:
            if candidate.rot is not None or candidate.durable.holds(high_watermark, crc):
                continue
            trail = self.world.voters.trail_of(candidate.durable)
            voters, position = trail.latest, candidate.durable.last_position
            if not voters.has(candidate.key) and not trail.previous_has(candidate.key):
                continue
            electors = [
                voter.key.node_id
                for voter in voters.voters
                if (elector := self.world.machine_of(voter.key)) is not None
                and elector.durable.last_position <= position
                and elector.rot is None
            ]
            if len(electors) >= voters.majority():
                raise Violation(
                    f"S6 n{process.node_id} commits up to {high_watermark}, yet "
                    f"n{candidate.node_id}, which lacks it, could be elected by {electors} of {voters}"
                )


class CommittedIsNeverTruncated(Checker):
    """S9: no node truncates below its own high watermark, or anything that leaders up to its own epoch have committed. Records
    that a newer leader has committed without this node may go: the node follows a deposed leader that does not know of the newer
    one.
    """

    def on_truncate(self, process: ObservedProcess, to_offset: int) -> None:
        committed = process.applying.high_watermark
        if to_offset < committed:
            raise Violation(f"S9 n{process.node_id} truncates to {to_offset}, its high watermark is {committed}")
        history = self.world.history
        position = bisect_left(history.ends, to_offset + 1)
        if (
            to_offset < history.end_before_epoch(process.quorum.epoch + 1)
            and process.machine.durable.crc_at(history.ends[position]) == history.crcs[position]
        ):
            raise Violation(
                f"S9 n{process.node_id} truncates to {to_offset} and loses committed data up to {history.ends[position]}"
            )


class WrittenOnce(Checker):
    """S10: leaders write each (offset, epoch) at most once in the life of the cluster (KAFKA-10527)."""

    def __init__(self, world: ObservedWorld) -> None:
        super().__init__(world)
        self._written: set[tuple[int, int]] = set()

    def on_append(self, process: ObservedProcess, batches: list[AppendedBatch]) -> None:
        if not process.raft.is_leader or batches[0][1] != process.quorum.epoch:
            return
        for base_offset, epoch, _ in batches:
            if (base_offset, epoch) in self._written:
                raise Violation(f"S10 n{process.node_id} writes {base_offset}@{epoch} a second time")
            self._written.add((base_offset, epoch))


class FollowersCommitAfterLeaders(Checker):
    """S11: only leaders are the first to report an offset committed."""

    def on_apply(self, process: ObservedProcess, high_watermark: int, leading: bool) -> None:
        if not leading and high_watermark > self.world.history.end_offset:
            raise Violation(f"S11 n{process.node_id} reports {high_watermark}, leaders only {self.world.history.end_offset}")


class EqualOffsetsEqualState(Checker):
    """S14: nodes that have applied up to the same offset have the same state."""

    def on_applied(self, process: ObservedProcess, end_offset: int, digest: int) -> None:
        if self.world.history.digests.setdefault(end_offset, digest) != digest:
            raise Violation(f"S14 n{process.node_id} has another state at offset {end_offset}")


class AcknowledgedIsCommitted(Checker):
    """S15: a batch that was acknowledged to its proposer is in the committed history, at its place."""

    def on_acknowledged(self, process: ObservedProcess, base_offset: int, end_offset: int, crc: int) -> None:
        if self.world.history.crc_at(end_offset) != crc:
            raise Violation(f"S15 n{process.node_id} acknowledges [{base_offset}, {end_offset}), which is not committed")


class ReadsAreLinearizable(Checker):
    """S16: a linearizable read reflects every write that can have been acknowledged before the read, and nothing uncommitted.

    Everything that leaders have reported committed counts as acknowledged. So the log is one register whose value is its
    committed end, and a read is linearizable if its offset is between the ends at its arrival and at its answer.
    """

    def on_read(self, process: ObservedProcess, asked_at_offset: int, offset: int) -> None:
        committed = self.world.history.end_offset
        if not asked_at_offset <= offset <= committed:
            raise Violation(
                f"S16 n{process.node_id} answers a read with {offset}; committed was {asked_at_offset} at its arrival, "
                f"and is {committed} now"
            )


class ClaimsAreDurable(Checker):
    """S17: no message leaves before the disk holds everything that the message claims.

    Fetch(o) claims the log through o, and so does a leader that counts its own log. A granted vote, or a request for votes,
    claims that vote. BeginQuorumEpoch claims the leadership. Every message claims that the stored epoch is at least the
    message's.
    """

    def on_sent(self, process: ObservedProcess, request: Request) -> None:
        stored = process.machine.stored
        if request.epoch > (stored.epoch if stored is not None else 0):
            raise Violation(f"S17 n{process.node_id} sends {request} but has stored {stored}")
        if type(request) is FetchRequest:
            self._check_fetch(process, request)
        elif (type(request) is BeginQuorumEpochRequest or type(request) is EndQuorumEpochRequest) and (
            stored is None or (stored.epoch == request.epoch and stored.leader_id != process.node_id)
        ):
            raise Violation(f"S17 n{process.node_id} sends {request} but has stored {stored}")

    def on_replied(self, process: ObservedProcess, response: Response) -> None:
        stored = process.machine.stored
        if response.leader.epoch > (stored.epoch if stored is not None else 0):
            raise Violation(f"S17 n{process.node_id} sends {response} but has stored {stored}")

    def on_vote(self, process: ObservedProcess, epoch: int, candidate: ReplicaKey) -> None:
        stored = process.machine.stored
        if stored is None or stored.epoch < epoch or (stored.epoch == epoch and stored.voted_key != candidate):
            raise Violation(f"S17 n{process.node_id} votes for {candidate} in epoch {epoch} but has stored {stored}")

    def on_flushed(self, process: ObservedProcess) -> None:
        believed, durable = process.local_log.flushes.durable_end_offset, process.machine.durable.end_offset
        if believed > durable:
            raise Violation(f"S17 n{process.node_id} takes its log for durable up to {believed}, but its disk ends at {durable}")

    def _check_fetch(self, process: ObservedProcess, request: FetchRequest) -> None:
        """Check a fetch of the current epoch. After an earlier epoch the node can have truncated its log."""
        offset, durable = request.fetch_offset, process.machine.durable
        if offset > 0 and durable.epoch_at_end(offset) != request.last_fetched_epoch and request.epoch == process.quorum.epoch:
            raise Violation(f"S17 n{process.node_id} sends {request} but its disk ends at {durable.end_offset}")


class DurableSurvives(Checker):
    """D1, D2: a restart finds exactly the durable log; after a crash during a flush, at least the durable log. It finds less only
    when it sets a damaged log aside to be repaired.
    """

    def on_boot(self, machine: ObservedMachine, log: DurableLog, store: MetadataStore) -> None:
        expected = machine.durable
        history = self.world.history
        if log.start.offset and (not history.is_position(log.start) or history.crc_at(log.start.offset) != log.start_crc):
            raise Violation(f"S13 the log of n{machine.node_id} starts at {log.start}, where nothing committed ends")
        if machine.has_rotten_log:
            self._check_rotten(machine, log, store)
            if store.boot.repair_until and machine.before_rot is None:
                return
        elif store.boot.repair_until:
            raise Violation(f"D2 n{machine.node_id} repairs up to {store.boot.repair_until}, but nothing rotted: {store.damage}")
        if log.start == machine.possible_install != expected.start:
            return
        had, has = expected.crcs_after(log.start.offset), log.crcs_after(expected.start.offset)
        is_there = has[: len(had)] == had and log.end_offset >= expected.end_offset
        if not is_there or (machine.is_durable_exact and len(has) != len(had)):
            raise Violation(
                f"D1 n{machine.node_id} had batches on disk from {expected.start} up to {expected.end_offset}, "
                f"finds those from {log.start} up to {log.end_offset}"
            )

    def _check_rotten(self, machine: ObservedMachine, log: DurableLog, store: MetadataStore) -> None:
        """Check that a damaged log is not taken for a short one."""
        assert machine.rot is not None
        if store.boot.repair_until < machine.rot.until and log.end_offset < min(machine.rot.until, machine.durable.end_offset):
            raise Violation(
                f"D2 n{machine.node_id} had committed batches up to {machine.rot.until} before {machine.rot.file} rotted, "
                f"finds those up to {log.end_offset}, and repairs up to {store.boot.repair_until}"
            )


CHECKERS: tuple[type[Checker], ...] = (
    OneLeaderPerEpoch,
    DurableEpochIsMonotone,
    OneVotePerEpoch,
    LogMatching,
    LeaderIsAppendOnly,
    HighWatermarkIsMonotone,
    CommittedIsDurable,
    CommittedSurvivesAnyElection,
    CommittedIsNeverTruncated,
    WrittenOnce,
    FollowersCommitAfterLeaders,
    CommitsAreOneHistory,
    LeaderCompleteness,
    EqualOffsetsEqualState,
    AcknowledgedIsCommitted,
    ReadsAreLinearizable,
    ClaimsAreDurable,
    DurableSurvives,
)
"""The checkers in their order: S11 and S8 look at the history before the event extends it."""


class Checkers(Checker):
    """All checkers of a world as one: a hook `on_…` calls each checker that overrides the hook. The methods below call hooks
    about what a process does, and keep its voter trail.
    """

    def __init__(self, world: ObservedWorld, more: Iterable[type[Checker]] = ()) -> None:
        super().__init__(world)
        self.all: list[Checker] = []
        self._hooks: dict[str, list[Callable[..., None]]] = {name: [] for name in vars(Checker) if name.startswith("on_")}
        for name, hooks in self._hooks.items():
            setattr(self, name, partial(_call_each, hooks))
        for checker in (*CHECKERS, *more):
            self.add(checker(world))

    def add(self, checker: Checker) -> None:
        """Add a checker."""
        self.all.append(checker)
        for name, hooks in self._hooks.items():
            if getattr(type(checker), name) is not getattr(Checker, name):
                hooks.append(getattr(checker, name))

    def keep(self, kinds: tuple[type[Checker], ...]) -> None:
        """Leave out all checkers but those of these kinds, for experiments on what a rule finds alone."""
        self.all = [checker for checker in self.all if isinstance(checker, kinds)]
        for hooks in self._hooks.values():
            hooks[:] = [hook for hook in hooks if isinstance(getattr(hook, "__self__", None), kinds)]

    def append(self, process: ObservedProcess, effect: Append) -> None:
        headers, batches, has_control = appended(effect.data)
        self.on_append(process, batches)
        if has_control:
            control = control_of(headers, effect.data)
            for header in headers:
                if header.is_control:
                    self._add_voters(process, header, control)

    def _add_voters(self, process: ObservedProcess, header: BatchHeader, control: list[tuple[int, ControlRecord]]) -> None:
        inside = [entry for entry in control if header.base_offset <= entry[0] < header.end_offset]
        for offset, voters in self.world.voters.record(header.crc, header.end_offset, inside):
            self.on_voters(process, offset, voters, header.epoch)
            process.voter_trail.append(offset, voters)

    def install(self, process: ObservedProcess, effect: InstallSnapshot) -> None:
        self.on_install(process, effect)
        process.voter_trail = VoterTrail(self.world.voters.committed.at(effect.id.offset))

    def truncate(self, process: ObservedProcess, effect: Truncate) -> None:
        self.on_truncate(process, effect.to_offset)
        process.voter_trail.truncate(effect.to_offset)

    def sent(self, process: ObservedProcess, send: Send) -> None:
        request = send.request
        self.on_sent(process, request)
        if type(request) is VoteRequest and not request.pre_vote:
            self.on_vote(process, request.epoch, process.key)

    def replied(self, process: ObservedProcess, inbound: ObservedRequest, reply: Reply) -> None:
        request, response = inbound.request, reply.response
        self.on_replied(process, response)
        if type(response) is VoteResponse and type(request) is VoteRequest and response.granted and not request.pre_vote:
            self.on_vote(process, request.epoch, request.candidate)

    def apply(self, process: ObservedProcess, high_watermark: int) -> None:
        self.on_apply(process, high_watermark, process.is_leading or process.raft.is_leader)


def _call_each(hooks: list[Callable[..., None]], *arguments: object) -> None:
    for hook in hooks:
        hook(*arguments)
