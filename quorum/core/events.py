"""The events of a RaftNode. A shell (trio driver or simulator) makes them; `RaftNode.step` takes one at a time."""

from __future__ import annotations

import msgspec

from kraftlab.common.replica_key import ReplicaKey

from .batch import ControlRecord
from .messages import Request, Response
from .types import OffsetAndEpoch, Standing


class RequestReceived(msgspec.Struct, frozen=True, gc=False):
    """A peer's request. `correlation` is the shell's own token for the reply; `sender` is the identity claimed in the frame.

    The shell passes on no request that speaks for another node than its sender.
    """

    correlation: int
    sender: ReplicaKey
    request: Request
    standing: Standing = Standing.CONTROLLER

    def __repr__(self) -> str:
        standing = "" if self.standing is Standing.CONTROLLER else f" {self.standing.value}"
        return f"Request(#{self.correlation} {self.sender}{standing} {self.request})"


class ResponseReceived(msgspec.Struct, frozen=True, gc=False):
    """A peer's answer to the request sent as `Send` number `correlation`."""

    correlation: int
    source: int
    response: Response

    def __repr__(self) -> str:
        return f"Response(#{self.correlation} n{self.source} {self.response})"


class RequestFailed(msgspec.Struct, frozen=True, gc=False):
    """No answer to `correlation`: timed out, connection lost, or `refused` (nothing listens there: the process is gone)."""

    correlation: int
    destination: int
    refused: bool = False

    def __repr__(self) -> str:
        return f"Failed(#{self.correlation} n{self.destination}{' refused' if self.refused else ''})"


class RequestAbandoned(msgspec.Struct, frozen=True, gc=False):
    """The peer that sent request `correlation` has closed its connection: a parked reply is pointless."""

    correlation: int

    def __repr__(self) -> str:
        return f"Abandoned(#{self.correlation})"


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """The time `next_deadline_ms()` has passed."""

    def __repr__(self) -> str:
        return "Timer"


class Propose(msgspec.Struct, frozen=True, gc=False):
    """Append one data batch as leader of `epoch`. `body` is one MessagePack array of `record_count` records.

    Refused (`Rejected`) unless this node leads exactly that epoch. All or nothing.
    """

    epoch: int
    body: bytes
    record_count: int

    def __repr__(self) -> str:
        return f"Propose(e{self.epoch} {self.record_count} records {len(self.body)}B)"


class StorageCompleted(msgspec.Struct, frozen=True, gc=False):
    """Every operation of the storage stream (Append, Truncate, InstallSnapshot) up to and including `append_id` is durable."""

    append_id: int

    def __repr__(self) -> str:
        return f"Durable(a{self.append_id})"


class ElectionStateStored(msgspec.Struct, frozen=True, gc=False):
    """The election state with this version, and all before it, are durable."""

    version: int

    def __repr__(self) -> str:
        return f"Stored(es{self.version})"


class RecordsRead(msgspec.Struct, frozen=True, gc=False):
    """Answer to ReadLog: whole batches from `start_offset` on; empty if that range is gone."""

    read_id: int
    data: bytes

    def __repr__(self) -> str:
        return f"Read(r{self.read_id} {len(self.data)}B)"


class StorageFailed(msgspec.Struct, frozen=True, gc=False):
    """The disk refuses writes that may succeed later (no space). A leader resigns; nothing is lost."""

    reason: str

    def __repr__(self) -> str:
        return f"StorageFailed({self.reason})"


class ResignAsked(msgspec.Struct, frozen=True, gc=False):
    """The state machine gives up the leadership of `epoch`; ignored in any other epoch."""

    epoch: int
    reason: str

    def __repr__(self) -> str:
        return f"ResignAsked(e{self.epoch}: {self.reason})"


class ReadIndexAsked(msgspec.Struct, frozen=True, gc=False):
    """A read begins and needs the offset that it must reflect. One ReadIndexReady or ReadIndexRefused with this token answers."""

    token: int

    def __repr__(self) -> str:
        return f"ReadIndexAsked(t{self.token})"


class ShutdownAsked(msgspec.Struct, frozen=True, gc=False):
    """Graceful stop: a leader sends EndQuorumEpoch and resigns. Requests are then answered BROKER_NOT_AVAILABLE."""

    def __repr__(self) -> str:
        return "ShutdownAsked"


class SnapshotTaken(msgspec.Struct, frozen=True, gc=False):
    """The shell has durably written a snapshot of the state machine, as `RaftNode.snapshot_context` described it.

    It may have replaced one of the same id that could not be read (RewriteSnapshot).
    """

    id: OffsetAndEpoch

    def __repr__(self) -> str:
        return f"SnapshotTaken({self.id})"


class SnapshotRead(msgspec.Struct, frozen=True, gc=False):
    """Answer to ReadSnapshot: bytes from the requested position.

    `size_bytes` -1: the snapshot is gone, or it is damaged and must not be served.
    """

    read_id: int
    size_bytes: int
    data: bytes

    def __repr__(self) -> str:
        return f"SnapshotRead(r{self.read_id} {len(self.data)}B of {self.size_bytes})"


class SnapshotChunkStored(msgspec.Struct, frozen=True, gc=False):
    """Answer to OpenSnapshot and StoreSnapshotChunk: the unfinished copy of `id` holds `position` bytes (0: nothing usable)."""

    id: OffsetAndEpoch
    position: int

    def __repr__(self) -> str:
        return f"ChunkStored({self.id} through {self.position})"


class SnapshotVerified(msgspec.Struct, frozen=True, gc=False):
    """Answer to VerifySnapshot: the copy of `id` is whole and durable. `last_crc` and `control` are its contents."""

    id: OffsetAndEpoch
    last_crc: int
    control: tuple[ControlRecord, ...]

    def __repr__(self) -> str:
        return f"SnapshotVerified({self.id} crc={self.last_crc:08x})"


class SnapshotRefused(msgspec.Struct, frozen=True, gc=False):
    """Answer to VerifySnapshot: the copy of `id` is damaged. Or to OpenSnapshot or StoreSnapshotChunk: it cannot be written.

    The copy was discarded. The next Fetch finds out which snapshot is needed.
    """

    id: OffsetAndEpoch
    reason: str

    def __repr__(self) -> str:
        return f"SnapshotRefused({self.id}: {self.reason})"


Event = (
    RequestReceived
    | ResponseReceived
    | RequestFailed
    | RequestAbandoned
    | TimerFired
    | Propose
    | StorageCompleted
    | ElectionStateStored
    | RecordsRead
    | StorageFailed
    | ResignAsked
    | ShutdownAsked
    | ReadIndexAsked
    | SnapshotTaken
    | SnapshotRead
    | SnapshotChunkStored
    | SnapshotVerified
    | SnapshotRefused
)
