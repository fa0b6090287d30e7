"""What a RaftNode wants done. `step` returns a list of these, in order; the shell carries them out in that order.

**Durability is data.** Two counters describe what a disk holds: the version of the newest stored election state, and the id
of the newest completed operation of the storage stream (Append, Truncate and InstallSnapshot share one FIFO and one
numbering that is never reused, so a late completion can not be taken for a newer write). A message carries a `Barrier` of
those two counters and may leave only when both are reached; `Outbox` (outbox.py) is the one place that holds messages back.
Nothing else in the shell decides about order.

The copy of a leader's snapshot grows outside that stream, since nothing is claimed about it before it is installed: OpenSnapshot,
StoreSnapshotChunk and VerifySnapshot are asked for one at a time, and each must be answered by exactly one event, which may be
SnapshotRefused if it can not be done (no space).
"""

from __future__ import annotations

import msgspec

from .messages import Request, Response
from .types import Endpoint, OffsetAndEpoch, ReplicaKey, VoterSet


class Barrier(msgspec.Struct, frozen=True, gc=False):
    """What must be durable before a message may leave. Zeros: nothing."""

    election_version: int = 0
    append_id: int = 0

    def __repr__(self) -> str:
        return f"after(es{self.election_version},a{self.append_id})"


NOTHING = Barrier()
ANYBODY = -1
"""Where a request goes that any member of the quorum may answer."""


class ElectionState(msgspec.Struct, frozen=True, gc=False):
    """The durable part of an election (KIP-595): one atomic record. `leader_id` -1: none; `voted_key` None: no vote."""

    epoch: int
    leader_id: int
    voted_key: ReplicaKey | None

    def __repr__(self) -> str:
        vote = self.voted_key.node_id if self.voted_key else "-"
        return f"e{self.epoch} L{self.leader_id if self.leader_id >= 0 else '-'} V{vote}"


class StoreElectionState(msgspec.Struct, frozen=True, gc=False):
    """Replace the stored election state; report `ElectionStateStored(version)` when it is durable. Versions rise by one."""

    version: int
    state: ElectionState

    def __repr__(self) -> str:
        return f"Store(es{self.version} {self.state})"


class Append(msgspec.Struct, frozen=True, gc=False):
    """Write whole batches `[base_offset, end_offset)` at the log's end. Report `StorageCompleted(append_id)` once durable.

    Visible to ReadLog and Apply at once, durable or not.
    """

    append_id: int
    base_offset: int
    end_offset: int
    data: bytes

    def __repr__(self) -> str:
        return f"Append(a{self.append_id} {self.base_offset}..{self.end_offset} {len(self.data)}B)"


class Truncate(msgspec.Struct, frozen=True, gc=False):
    """Drop everything at or above `to_offset` (a batch boundary), durably, in order with the appends."""

    append_id: int
    to_offset: int

    def __repr__(self) -> str:
        return f"Truncate(a{self.append_id} to {self.to_offset})"


class Send(msgspec.Struct, frozen=True, gc=False):
    """A request to a node. `destination` ANYBODY: any bootstrap endpoint or voter, the shell picks with its own randomness.

    The shell reports ResponseReceived or RequestFailed with the same `correlation`, never both, at latest after `timeout_ms`.
    """

    correlation: int
    destination: int
    request: Request
    after: Barrier
    timeout_ms: int

    def __repr__(self) -> str:
        destination = f"n{self.destination}" if self.destination >= 0 else "anybody"
        return f"Send(#{self.correlation} {destination} {self.request} {self.after})"


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The answer to RequestReceived number `correlation`."""

    correlation: int
    response: Response
    after: Barrier

    def __repr__(self) -> str:
        return f"Reply(#{self.correlation} {self.response} {self.after})"


class ReadLog(msgspec.Struct, frozen=True, gc=False):
    """Read whole batches from `start_offset` (a batch boundary) on, up to `max_bytes` but at least one; report RecordsRead.

    May be answered from memory at once or from disk later; unflushed batches count.
    """

    read_id: int
    start_offset: int
    max_bytes: int

    def __repr__(self) -> str:
        return f"ReadLog(r{self.read_id} from {self.start_offset})"


class Apply(msgspec.Struct, frozen=True, gc=False):
    """`high_watermark` has risen: everything below it is committed. The shell feeds the state machine in order."""

    high_watermark: int

    def __repr__(self) -> str:
        return f"Apply(hw={self.high_watermark})"


class LeaderChanged(msgspec.Struct, frozen=True, gc=False):
    """Who leads, as this node sees it (-1: nobody known). Own leadership is told by BecameLeader, not here."""

    epoch: int
    leader_id: int
    endpoints: dict[str, Endpoint]

    def __repr__(self) -> str:
        return f"LeaderChanged(e{self.epoch} L{self.leader_id if self.leader_id >= 0 else '-'})"


class BecameLeader(msgspec.Struct, frozen=True, gc=False):
    """This node leads `epoch` and everything before `epoch_start_offset + 1` is committed: once the state machine has applied it,
    it may be told that it is active and may propose."""

    epoch: int
    epoch_start_offset: int

    def __repr__(self) -> str:
        return f"BecameLeader(e{self.epoch} start={self.epoch_start_offset})"


class Resigned(msgspec.Struct, frozen=True, gc=False):
    """This node no longer leads `epoch`: proposals whose commit was not seen have an unknown outcome."""

    epoch: int
    reason: str

    def __repr__(self) -> str:
        return f"Resigned(e{self.epoch}: {self.reason})"


class Proposed(msgspec.Struct, frozen=True, gc=False):
    """Answer to Propose, in the same step: the batch stands at `[base_offset, end_offset)`, not yet committed."""

    epoch: int
    base_offset: int
    end_offset: int

    def __repr__(self) -> str:
        return f"Proposed({self.base_offset}..{self.end_offset}@{self.epoch})"


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """Answer to Propose, in the same step: this node does not lead that epoch, or its queue is full (`overloaded`)."""

    leader_id: int
    epoch: int
    overloaded: bool = False

    def __repr__(self) -> str:
        leader = f"L{self.leader_id if self.leader_id >= 0 else '-'}"
        return f"Rejected(e{self.epoch}/{leader}{' overloaded' if self.overloaded else ''})"


class ReadIndexReady(msgspec.Struct, frozen=True, gc=False):
    """Answer to ReadIndexAsked, perhaps steps later: state with everything below `offset` applied reflects whatever was
    acknowledged before the read was asked. `Apply` has told of that offset.
    """

    token: int
    offset: int

    def __repr__(self) -> str:
        return f"ReadIndexReady(t{self.token} {self.offset})"


class ReadIndexRefused(msgspec.Struct, frozen=True, gc=False):
    """Answer to ReadIndexAsked: this node does not lead, or lost the leadership before it was sure, or too many reads wait
    (`overloaded`).
    """

    token: int
    leader_id: int
    epoch: int
    overloaded: bool = False

    def __repr__(self) -> str:
        leader = f"L{self.leader_id if self.leader_id >= 0 else '-'}"
        return f"ReadIndexRefused(t{self.token} e{self.epoch}/{leader}{' overloaded' if self.overloaded else ''})"


class ReadSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Read up to `max_bytes` of the finished snapshot `id` from `position` on; report SnapshotRead.

    `max_bytes` 0: no bytes are wanted, only the size. A `position` beyond the end: no bytes, and the size.
    """

    read_id: int
    id: OffsetAndEpoch
    position: int
    max_bytes: int

    def __repr__(self) -> str:
        return f"ReadSnapshot(r{self.read_id} {self.id} from {self.position})"


class RewriteSnapshot(msgspec.Struct, frozen=True, gc=False):
    """The finished snapshot `id`, this node's newest, can not be read: another is to take its place as soon as there can be one,
    at the same position, over what is left of the file, or at a later one if more is applied. Report SnapshotTaken.

    Not asked for twice, as long as nothing has taken its place: what is in the way (no space) must not make the shell forget it.
    """

    id: OffsetAndEpoch

    def __repr__(self) -> str:
        return f"RewriteSnapshot({self.id})"


class OpenSnapshot(msgspec.Struct, frozen=True, gc=False):
    """A copy of the leader's snapshot `id` begins or goes on; unfinished copies of others are pointless. Report
    SnapshotChunkStored with how many bytes an earlier attempt has left, perhaps of an earlier process.
    """

    id: OffsetAndEpoch

    def __repr__(self) -> str:
        return f"OpenSnapshot({self.id})"


class StoreSnapshotChunk(msgspec.Struct, frozen=True, gc=False):
    """Write `data` at `position` of the unfinished copy of `id`, not durably, and drop what it held from there on; report
    SnapshotChunkStored.
    """

    id: OffsetAndEpoch
    position: int
    data: bytes

    def __repr__(self) -> str:
        return f"StoreChunk({self.id} {self.position}+{len(self.data)})"


class VerifySnapshot(msgspec.Struct, frozen=True, gc=False):
    """The copy of `id` has all its bytes: make it durable, check header, chain and digest; report SnapshotVerified or
    SnapshotRefused.
    """

    id: OffsetAndEpoch

    def __repr__(self) -> str:
        return f"VerifySnapshot({self.id})"


class InstallSnapshot(msgspec.Struct, frozen=True, gc=False):
    """The verified copy of `id` takes the place of the whole log, which is empty and starts at `id` from now on.

    In order with Append and Truncate and numbered with them: report StorageCompleted(append_id) when the copy has its name and
    the old log is gone, durably; after a crash before that, either is found whole. `last_crc` is what the next batch must name as
    `previous_crc`. This node's other snapshots are not used any more. The state machine loads the snapshot before it applies what
    follows; an Apply in the same step says that it may.
    """

    append_id: int
    id: OffsetAndEpoch
    last_crc: int

    def __repr__(self) -> str:
        return f"InstallSnapshot(a{self.append_id} {self.id})"


class CleanLog(msgspec.Struct, frozen=True, gc=False):
    """The log starts at the end of snapshot `start` from now on: what lies below, older snapshots included, may be removed.

    Nothing waits for it, and a crash in between is harmless.
    """

    start: OffsetAndEpoch

    def __repr__(self) -> str:
        return f"CleanLog(to {self.start})"


class RepairEnded(msgspec.Struct, frozen=True, gc=False):
    """Everything that rot had damaged was fetched again and is durable: what was set aside is no longer needed."""

    def __repr__(self) -> str:
        return "RepairEnded"


class VotersChanged(msgspec.Struct, frozen=True, gc=False):
    """The voter set this node acts on has changed: appended, installed or truncated, committed or not."""

    voters: VoterSet

    def __repr__(self) -> str:
        return f"VotersChanged({self.voters})"


class Move(msgspec.Struct, frozen=True, gc=False):
    """A state transition as data. `source` "": the boot. Leader and vote are -1 if there is none."""

    source: str
    target: str
    epoch: int
    leader_id: int
    voted_id: int


class Trace(msgspec.Struct, frozen=True, gc=False):
    """One line for people and checkers: a state transition (then `move` says which) or a decision worth seeing."""

    kind: str
    text: str
    move: Move | None = None

    def __repr__(self) -> str:
        return f"{self.kind}: {self.text}"


Effect = (
    StoreElectionState
    | Append
    | Truncate
    | Send
    | Reply
    | ReadLog
    | Apply
    | LeaderChanged
    | BecameLeader
    | Resigned
    | Proposed
    | Rejected
    | ReadIndexReady
    | ReadIndexRefused
    | ReadSnapshot
    | RewriteSnapshot
    | OpenSnapshot
    | StoreSnapshotChunk
    | VerifySnapshot
    | InstallSnapshot
    | CleanLog
    | RepairEnded
    | VotersChanged
    | Trace
)
Effects = list[Effect]
CopyStep = OpenSnapshot | StoreSnapshotChunk | VerifySnapshot
"""A step of the copy of a leader's snapshot: answered by one event, one step at a time."""
