"""The rules of snapshots: S13 and D3. S14 judges the state after a snapshot was loaded."""

from __future__ import annotations

import zlib

import msgspec

from kraftlab.quorum.core.batch import KRaftVersion, KRaftVoters
from kraftlab.quorum.core.effects import InstallSnapshot
from kraftlab.quorum.core.snapshots import SnapshotContext
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.storage import SnapshotReader, SnapshotStore

from .invariants import Checker, Violation
from .observed import ObservedProcess, ObservedWorld


class SnapshotsAreCommitted(Checker):
    """S13: a snapshot ends at a position that its node knows to be committed. Its content is the state at that position, the crc
    of the chain and the voters there. The log starts at the oldest snapshot that is kept.
    """

    def __init__(self, world: ObservedWorld) -> None:
        super().__init__(world)
        self._contents: dict[int, int] = {}

    def on_frozen(self, process: ObservedProcess, context: SnapshotContext) -> None:
        self._check_position(process, context.id)

    def on_snapshot(self, process: ObservedProcess, store: SnapshotStore, snapshot: OffsetAndEpoch) -> None:
        if snapshot in store.ids():
            self._check_position(process, snapshot)
            self._check_content(process, store.reader(snapshot))
        self._check_start(process)

    def on_install(self, process: ObservedProcess, effect: InstallSnapshot) -> None:
        """Check that the verified snapshot is the committed one."""
        crc = self.world.history.crc_at(effect.id.offset)
        if not self.world.history.is_position(effect.id) or crc != effect.last_crc:
            raise Violation(f"S13 n{process.node_id} installs {effect.id} with crc {effect.last_crc:08x}, the chain's is {crc}")
        committed = self.world.voters.committed.at(effect.id.offset)
        if self.world.options.dynamic_voters and process.raft.voters != committed:
            raise Violation(f"S13 n{process.node_id} installs {effect.id}: its voters are {process.raft.voters}, not {committed}")

    def on_refused(self, process: ObservedProcess, snapshot: OffsetAndEpoch, reason: str) -> None:
        """Check that a copy is only refused if a snapshot has rotted; rot in logs does not matter."""
        if self.world.has_equal_snapshots and not self.world.has_rotten_snapshots:
            raise Violation(f"D3 n{process.node_id} refuses its copy of {snapshot}, and no snapshot has rotted: {reason}")

    def on_flushed(self, process: ObservedProcess) -> None:
        if process.local_log.view.start_offset:
            self._check_start(process)

    def _check_position(self, process: ObservedProcess, snapshot: OffsetAndEpoch) -> None:
        if snapshot.offset > process.applying.high_watermark or not self.world.history.is_position(snapshot):
            raise Violation(
                f"S13 n{process.node_id} has snapshot {snapshot}; it knows {process.applying.high_watermark} to be committed, "
                f"and {self.world.history.end_offset} is"
            )

    def _check_start(self, process: ObservedProcess) -> None:
        start, ids = process.local_log.view.start, process.raft.snapshots
        if start.offset > process.applying.high_watermark:
            raise Violation(
                f"S13 the log of n{process.node_id} starts at {start}, above its high watermark {process.applying.high_watermark}"
            )
        if start.offset and (not ids or ids[0] != start):
            raise Violation(f"S13 the log of n{process.node_id} starts at {start}, its snapshots are {ids}")

    def _check_content(self, process: ObservedProcess, reader: SnapshotReader) -> None:
        snapshot, history = reader.position, self.world.history
        if reader.last_crc != history.crc_at(snapshot.offset):
            raise Violation(f"S13 snapshot {snapshot} of n{process.node_id} names another crc than the chain")
        voters = next((record.voters for record in reader.control if isinstance(record, KRaftVoters)), None)
        is_dynamic = any(isinstance(record, KRaftVersion) for record in reader.control)
        committed = self.world.voters.committed.at(snapshot.offset) if self.world.options.dynamic_voters else None
        if voters != committed or is_dynamic != self.world.options.dynamic_voters:
            raise Violation(f"S13 snapshot {snapshot} of n{process.node_id} names the voters {voters}, they were {committed}")
        first, *others = reader.bodies()
        [(digest, end_offset)] = msgspec.msgpack.decode(first, type=list[tuple[int, int]])
        if end_offset != snapshot.offset or history.digests.get(end_offset) not in (None, digest):
            raise Violation(f"S13 snapshot {snapshot} of n{process.node_id} is not the state at that offset")
        if self.world.has_equal_snapshots:
            content = zlib.crc32(b"".join(others))
            if self._contents.setdefault(end_offset, content) != content:
                raise Violation(f"S13 snapshot {snapshot} of n{process.node_id} holds something else than another node's")


SNAPSHOT_CHECKERS: tuple[type[Checker], ...] = (SnapshotsAreCommitted,)
