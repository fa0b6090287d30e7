"""The snapshot files of a scripted machine: finished snapshots, and the unfinished copy of a leader's snapshot.

A file is a checksum, the control records of the snapshot, and a block of bytes in place of the state, whose size a script
chooses. Finished files are durable at once, and so are the written chunks of a copy.
"""

from __future__ import annotations

import zlib

import msgspec

from kraftlab.quorum.core import OffsetAndEpoch, SnapshotContext
from kraftlab.quorum.core.batch import ControlRecord, SnapshotHeader, decode_control, encode_control
from kraftlab.quorum.core.effects import OpenSnapshot, ReadSnapshot, StoreSnapshotChunk, VerifySnapshot
from kraftlab.quorum.core.events import SnapshotChunkStored, SnapshotRead, SnapshotRefused, SnapshotVerified

Work = OpenSnapshot | StoreSnapshotChunk | VerifySnapshot
Answer = SnapshotChunkStored | SnapshotVerified | SnapshotRefused


class SnapshotFiles:
    """Files of snapshots: `finished` ones by id, and `copy`, the beginning of the snapshot `copy_of`."""

    def __init__(self) -> None:
        self.finished: dict[OffsetAndEpoch, bytes] = {}
        self.copy_of = OffsetAndEpoch(0, 0)
        self.copy = b""

    def make(self, context: SnapshotContext, size_bytes: int) -> None:
        """Add a finished snapshot whose state takes about `size_bytes`."""
        body = msgspec.msgpack.encode((encode_control(list(context.control)), bytes(size_bytes)))
        self.finished[context.id] = zlib.crc32(body).to_bytes(4, "big") + body

    def control(self, snapshot: OffsetAndEpoch) -> tuple[SnapshotHeader, list[ControlRecord]]:
        """Return the header of a finished snapshot and the control records after it."""
        header, *others = _control_of(self.finished[snapshot])
        if not isinstance(header, SnapshotHeader):
            raise ValueError(f"snapshot {snapshot} begins with {header!r}")
        return header, others

    def damage(self) -> None:
        """Change the last byte of every file."""
        self.finished = {snapshot: _damaged(data) for snapshot, data in self.finished.items()}
        self.copy = _damaged(self.copy)

    def install(self, snapshot: OffsetAndEpoch) -> None:
        """Make the copy the only finished snapshot."""
        self.finished, self.copy = {snapshot: self.copy}, b""

    def remove_below(self, start: OffsetAndEpoch) -> None:
        self.finished = {snapshot: data for snapshot, data in self.finished.items() if snapshot.offset >= start.offset}

    def read(self, effect: ReadSnapshot) -> SnapshotRead:
        data = self.finished.get(effect.id)
        if data is None:
            return SnapshotRead(effect.read_id, -1, b"")
        return SnapshotRead(effect.read_id, len(data), data[effect.position : effect.position + effect.max_bytes])

    def work(self, effect: Work) -> Answer:
        """Carry out an operation of a download, and return its completion."""
        if self.copy_of != effect.id:
            self.copy_of, self.copy = effect.id, b""
        if isinstance(effect, VerifySnapshot):
            return self._verify(effect.id)
        if isinstance(effect, StoreSnapshotChunk):
            self.copy = self.copy[: effect.position] + effect.data
        return SnapshotChunkStored(effect.id, len(self.copy))

    def _verify(self, snapshot: OffsetAndEpoch) -> Answer:
        if zlib.crc32(self.copy[4:]) == int.from_bytes(self.copy[:4], "big"):
            header, *others = _control_of(self.copy)
            if isinstance(header, SnapshotHeader):
                return SnapshotVerified(snapshot, header.last_crc, tuple(others))
        self.copy = b""
        return SnapshotRefused(snapshot, "its checksum does not hold")


def _control_of(data: bytes) -> list[ControlRecord]:
    control, _ = msgspec.msgpack.decode(data[4:], type=tuple[bytes, bytes])
    return decode_control(control)


def _damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1]) if data else data
