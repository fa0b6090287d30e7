"""The effects of a RaftNode. `step` returns a list of them; the shell carries them out in that order.

**Durability is data.** Two counters describe a disk: the version of the newest stored election state, and the id of the newest
completed operation of the storage stream. Append, Truncate and InstallSnapshot share one FIFO and one numbering that is never
reused, so a late completion cannot pass for a newer write. A message carries a `Barrier` of these two counters and may leave only
when both are reached. `Outbox` (outbox.py) is the one place that holds messages back. Nothing else in the shell decides about
order.

The copy of a leader's snapshot grows outside that stream, because nothing depends on it before it is installed. OpenSnapshot,
StoreSnapshotChunk and VerifySnapshot are requested one at a time. Each is answered by exactly one event: SnapshotRefused if it
cannot be done (no space).
"""

from __future__ import annotations

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey

from .messages import Request, Response
from .types import OffsetAndEpoch, VoterSet


class Barrier(msgspec.Struct, frozen=True, gc=False):
    """Counters that must be durable before a message may leave. Zeros: none."""

    election_version: int = 0
    append_id: int = 0

    def __repr__(self) -> str:
        return f"after(es{self.election_version},a{self.append_id})"


NOTHING = Barrier()
ANYBODY = -1
"""Destination of a request that any member of the quorum may answer."""


class ElectionState(msgspec.Struct, frozen=True, gc=False):
    """The durable part of an election (KIP-595): one atomic record. `leader_id` -1: no leader; `voted_key` None: no vote."""

    epoch: int
    leader_id: int
    voted_key: ReplicaKey | None

    def __repr__(self) -> str:
        vote = self.voted_key.node_id if self.voted_key else "-"
        return f"e{self.epoch} L{self.leader_id if self.leader_id >= 0 else '-'} V{vote}"


class StoreElectionState(msgspec.Struct, frozen=True, gc=False):
    """Replace the stored election state. Report `ElectionStateStored(version)` when it is durable. Versions rise by one."""

    version: int
    state: ElectionState

    def __repr__(self) -> str:
        return f"Store(es{self.version} {self.state})"


class Append(msgspec.Struct, frozen=True, gc=False):
    """Write whole batches `[base_offset, end_offset)` at the end of the log.

    Report `StorageCompleted(append_id)` once they are durable. ReadLog and Apply see them at once, durable or not.
    """

    append_id: int
    base_offset: int
    end_offset: int
    data: bytes

    def __repr__(self) -> str:
        return f"Append(a{self.append_id} {self.base_offset}..{self.end_offset} {len(self.data)}B)"


class Truncate(msgspec.Struct, frozen=True, gc=False):
    """Remove everything at or above `to_offset` (a batch boundary), durably, in order with the appends."""

    append_id: int
    to_offset: int

    def __repr__(self) -> str:
        return f"Truncate(a{self.append_id} to {self.to_offset})"


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a request to a node. `destination` ANYBODY: the shell picks a bootstrap endpoint or voter with its own randomness.

    The shell reports either ResponseReceived or RequestFailed with the same `correlation`, at the latest after `timeout_ms`.
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
    """Answer RequestReceived number `correlation`."""

    correlation: int
    response: Response
    after: Barrier

    def __repr__(self) -> str:
        return f"Reply(#{self.correlation} {self.response} {self.after})"


class ReadLog(msgspec.Struct, frozen=True, gc=False):
    """Read whole batches from `start_offset` (a batch boundary) on, up to `max_bytes` but at least one. Report RecordsRead.

    The answer can come from memory at once or from disk later. Unflushed batches count.
    """

    read_id: int
    start_offset: int
    max_bytes: int

    def __repr__(self) -> str:
        return f"ReadLog(r{self.read_id} from {self.start_offset})"


class Apply(msgspec.Struct, frozen=True, gc=False):
    """Note that `high_watermark` has risen: everything below it is committed. The shell feeds the state machine in order."""

    high_watermark: int

    def __repr__(self) -> str:
        return f"Apply(hw={self.high_watermark})"


class LeaderChanged(msgspec.Struct, frozen=True, gc=False):
    """Announce the leader as this node knows it (-1: unknown). BecameLeader announces its own leadership."""

    epoch: int
    leader_id: int
    endpoints: dict[str, Endpoint]

    def __repr__(self) -> str:
        return f"LeaderChanged(e{self.epoch} L{self.leader_id if self.leader_id >= 0 else '-'})"


class BecameLeader(msgspec.Struct, frozen=True, gc=False):
    """Announce that this node leads `epoch`, and that everything below `epoch_start_offset + 1` is committed.

    Once the state machine has applied that much, it becomes active and may propose.
    """

    epoch: int
    epoch_start_offset: int

    def __repr__(self) -> str:
        return f"BecameLeader(e{self.epoch} start={self.epoch_start_offset})"


class Resigned(msgspec.Struct, frozen=True, gc=False):
    """Announce that this node no longer leads `epoch`. Proposals that were not seen as committed have an unknown outcome."""

    epoch: int
    reason: str

    def __repr__(self) -> str:
        return f"Resigned(e{self.epoch}: {self.reason})"


class Proposed(msgspec.Struct, frozen=True, gc=False):
    """Answer Propose, in the same step: the batch is at `[base_offset, end_offset)`, not yet committed."""

    epoch: int
    base_offset: int
    end_offset: int

    def __repr__(self) -> str:
        return f"Proposed({self.base_offset}..{self.end_offset}@{self.epoch})"


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """Answer Propose, in the same step: this node does not lead that epoch, or its queue is full (`overloaded`)."""

    leader_id: int
    epoch: int
    overloaded: bool = False

    def __repr__(self) -> str:
        leader = f"L{self.leader_id if self.leader_id >= 0 else '-'}"
        return f"Rejected(e{self.epoch}/{leader}{' overloaded' if self.overloaded else ''})"


class ReadIndexReady(msgspec.Struct, frozen=True, gc=False):
    """Answer ReadIndexAsked, perhaps steps later.

    State with everything below `offset` applied reflects every write that was acknowledged before the read began. `Apply` has
    announced that offset before.
    """

    token: int
    offset: int

    def __repr__(self) -> str:
        return f"ReadIndexReady(t{self.token} {self.offset})"


class ReadIndexRefused(msgspec.Struct, frozen=True, gc=False):
    """Answer ReadIndexAsked: this node does not lead, or lost the leadership before a majority confirmed it.

    `overloaded`: too many reads wait.
    """

    token: int
    leader_id: int
    epoch: int
    overloaded: bool = False

    def __repr__(self) -> str:
        leader = f"L{self.leader_id if self.leader_id >= 0 else '-'}"
        return f"ReadIndexRefused(t{self.token} e{self.epoch}/{leader}{' overloaded' if self.overloaded else ''})"


class ReadSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Read up to `max_bytes` of the finished snapshot `id` from `position` on. Report SnapshotRead.

    `max_bytes` 0: only the size. A `position` beyond the end: no bytes, and the size.
    """

    read_id: int
    id: OffsetAndEpoch
    position: int
    max_bytes: int

    def __repr__(self) -> str:
        return f"ReadSnapshot(r{self.read_id} {self.id} from {self.position})"


class RewriteSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Write another snapshot in place of `id`, this node's newest, which cannot be read. Report SnapshotTaken.

    It is written as soon as possible: at the same position, over the rest of the file, or at a later one if more is applied. The
    request is not repeated until then, so the shell must remember it even if there is no space now.
    """

    id: OffsetAndEpoch

    def __repr__(self) -> str:
        return f"RewriteSnapshot({self.id})"


class OpenSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Begin or continue a copy of the leader's snapshot `id`; remove unfinished copies of others.

    Report SnapshotChunkStored with the number of bytes from an earlier attempt, perhaps of an earlier process.
    """

    id: OffsetAndEpoch

    def __repr__(self) -> str:
        return f"OpenSnapshot({self.id})"


class StoreSnapshotChunk(msgspec.Struct, frozen=True, gc=False):
    """Write `data` at `position` of the unfinished copy of `id`, not durably, and drop its old bytes from there on.

    Report SnapshotChunkStored.
    """

    id: OffsetAndEpoch
    position: int
    data: bytes

    def __repr__(self) -> str:
        return f"StoreChunk({self.id} {self.position}+{len(self.data)})"


class VerifySnapshot(msgspec.Struct, frozen=True, gc=False):
    """Make the complete copy of `id` durable and check its header, chain and digest.

    Report SnapshotVerified or SnapshotRefused.
    """

    id: OffsetAndEpoch

    def __repr__(self) -> str:
        return f"VerifySnapshot({self.id})"


class InstallSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Replace the whole log by the verified copy of `id`. The log is empty and starts at `id` from now on.

    In order with Append and Truncate and numbered with them. Report StorageCompleted(append_id) when the copy durably has its
    name and the old log is gone. A crash before that leaves either one whole. `last_crc` is the `previous_crc` of the next batch.
    This node's other snapshots are no longer used. The state machine loads the snapshot before it applies what follows; an Apply
    in the same step allows that.
    """

    append_id: int
    id: OffsetAndEpoch
    last_crc: int

    def __repr__(self) -> str:
        return f"InstallSnapshot(a{self.append_id} {self.id})"


class CleanLog(msgspec.Struct, frozen=True, gc=False):
    """Start the log at the end of snapshot `start`. Everything below, older snapshots included, may be removed.

    Nothing waits for the removal, and a crash during it is harmless.
    """

    start: OffsetAndEpoch

    def __repr__(self) -> str:
        return f"CleanLog(to {self.start})"


class RepairEnded(msgspec.Struct, frozen=True, gc=False):
    """Forget the repair: all damaged records were fetched again and are durable."""

    def __repr__(self) -> str:
        return "RepairEnded"


class VotersChanged(msgspec.Struct, frozen=True, gc=False):
    """Announce the voter set that this node acts on: appended, installed or truncated, committed or not."""

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
    """One line for people and checkers: a state transition (described by `move`) or a decision of interest."""

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
"""A step of the copy of a leader's snapshot. One event answers it, and one step runs at a time."""
