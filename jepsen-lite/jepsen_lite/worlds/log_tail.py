"""The committed log of a cluster of processes, followed during a run.

Theory of operation. Nodes take snapshots and clean their logs, so the log is read while it is written: as an observer, by Fetch
from the leader (KIP-595), in short intervals and with short timeouts. Leaders keep the log for observers that they know, but a
new leader may have cleaned more: the reader must never be behind by as much as lies between two snapshots. So the leader is found
here, from the refusals of other controllers, without waiting for a description of the quorum: where leaders change several times
a second, that would always be out of date. A controller that is not believed to lead is asked in epoch 0, which every controller
refuses with its view of the leader; in an epoch later than its own it would give way.

Records below the high watermark never change. Each batch must follow the previous one by offset, by epoch and by the chain of
checksums, which cover everything before; and every later leader must have it. Anything else is a violation.

A leader may have less than this reader has read, because of its own snapshots or one that it received. The missing part up to its
newest snapshot is then read from the disks of the nodes: batches that follow the known ones in one chain, and end at the
snapshot's offset and epoch, are the committed ones. If no disk has all of them, the batches read so far are dropped: the log then
begins later, and checkers know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from kraftlab.client.data import PeerConnection
from kraftlab.client.metadata_log import observer_named
from kraftlab.client.security import NO_SECURITY, ClientSecurity
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.quorum.core.batch import Batch, decode, decode_all
from kraftlab.quorum.core.messages import API_OF, Diverging, FetchRequest, FetchResponse, Records, SnapshotRequired
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.wire.frames import FrameError

from ..committed_log import CommittedLog, LogBatch, decoded
from ..faults.cluster_under_faults import Leads
from ..faults.damage import batches, segments

TIMEOUT_S = 0.3
_FETCH_BYTES = 4 << 20
_NO_EPOCH = 0
_BEGINNING = OffsetAndEpoch(0, 0)
_OBSERVER = observer_named("kraftlab chaos")
_decode = msgspec.msgpack.Decoder(FetchResponse).decode


class LogTail:
    """The log of a cluster whose controllers listen for peers at these endpoints; `disks` are the metadata directories of all
    nodes. Not thread-safe; `violations` are sentences.
    """

    def __init__(
        self,
        controllers: Mapping[int, Endpoint],
        cluster_id: str,
        disks: Sequence[Path] = (),
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        self.connections = {node_id: PeerConnection(at, cluster_id, _OBSERVER, security) for node_id, at in controllers.items()}
        self.disks = disks
        self._batches: list[LogBatch] = []
        self._position = _BEGINNING
        self._start = 0
        self._crc: int | None = 0
        self._leads = Leads(-1, _NO_EPOCH)
        self.ends_at = -1
        """The end of the committed log when its leader last had no more of it; -1: never so far."""
        self.violations: list[str] = []

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()

    @property
    def end(self) -> int:
        """One past the last record that was read."""
        return self._position.offset

    def advance(self, leader: int = -1, epoch: int = -1) -> bool:
        """Read what is committed by now, or a part of it; return True if there was anything. `leader` is the reported leader of
        that epoch, -1 if there is none. CorruptBatch.
        """
        self._adopt(leader, epoch)
        asked: set[Leads] = set()
        while self._leads.node in self.connections and self._leads not in asked:
            asked.add(self._leads)
            answer = self._fetch(*self._leads)
            if answer is None:
                break
            if answer.error is ErrorCode.NONE:
                return self._accept(answer, self._leads)
            self._learn(answer)
        self._find_leader()
        return False

    def _find_leader(self) -> None:
        """Ask all controllers for the leader."""
        for node in self.connections:
            if node != self._leads.node:
                answer = self._fetch(node, _NO_EPOCH)
                if answer is not None:
                    self._learn(answer)

    def _learn(self, refusal: FetchResponse) -> None:
        self._adopt(refusal.leader.leader_id, refusal.leader.epoch)

    def _adopt(self, node: int, epoch: int) -> None:
        """Keep the leader of the later epoch."""
        if node in self.connections and epoch > self._leads.epoch:
            self._leads = Leads(node, epoch)

    def _fetch(self, node: int, epoch: int) -> FetchResponse | None:
        """Fetch from a node; None if it does not answer."""
        position = self._position if epoch != _NO_EPOCH else _BEGINNING
        request = FetchRequest(epoch, _OBSERVER, position.offset, position.epoch, -1, 0, _FETCH_BYTES)
        try:
            return _decode(self.connections[node].request(API_OF[FetchRequest], msgspec.msgpack.encode(request), TIMEOUT_S))
        except (ApiError, FrameError, OSError):
            return None

    def _accept(self, answer: FetchResponse, leads: Leads) -> bool:
        position = self._position
        match answer.outcome:
            case SnapshotRequired() as cleaned:
                missing = self._from_disks(cleaned.id)
                for batch in missing:
                    self._take(batch)
                if not missing:
                    self._begin_at(cleaned.id)
            case Diverging():
                self._violated(
                    f"the log committed up to {position!r} is not in the log of node {leads.node}, the leader of epoch "
                    f"{leads.epoch}, which agrees only up to {answer.outcome.end_offset}"
                )
            case Records(data):
                for batch in decode_all(data):
                    if batch.header.end_offset > answer.high_watermark:
                        break
                    self._take(batch)
                if answer.high_watermark == self.end:
                    self.ends_at = self.end
        return self._position != position

    def _from_disks(self, until: OffsetAndEpoch) -> list[Batch]:
        """Return all batches from here to that position, if a disk has them; otherwise an empty list."""
        for disk in self.disks:
            try:
                found = self._chain(segments(disk).values())
            except OSError:
                continue  # the disk has no power, or was just removed
            ends = [number for number, batch in enumerate(found, 1) if batch.header.end_offset == until.offset]
            if ends and found[ends[0] - 1].header.epoch == until.epoch:
                return found[: ends[0]]
        return []

    def _chain(self, logs: Iterable[bytes]) -> list[Batch]:
        """Return the batches that follow the known ones."""
        end, crc, found = self.end, self._crc, list[Batch]()
        for segment in logs:
            for placed in batches(segment):
                if placed.header.base_offset == end and crc in (None, placed.header.previous_crc):
                    found.append(decode(segment, placed.position))
                    end, crc = placed.header.end_offset, placed.header.crc
        return found

    def log(self) -> CommittedLog:
        """Return the log that was read, decoded. UnreadableRecords, CorruptBatch."""
        return decoded(self._batches, self._start)

    def _take(self, batch: Batch) -> None:
        header = batch.header
        follows = header.base_offset == self.end and header.epoch >= self._position.epoch
        if not follows or self._crc not in (None, header.previous_crc):
            self._violated(f"batch {header!r} does not follow the log committed before it, up to {self._position!r}")
            return
        self._batches.append(LogBatch.of(batch))
        self._position, self._crc = OffsetAndEpoch(header.end_offset, header.epoch), header.crc

    def _violated(self, text: str) -> None:
        self.violations.append(text)
        self._begin_at(_BEGINNING)
        self._crc = 0

    def _begin_at(self, position: OffsetAndEpoch) -> None:
        self._batches.clear()
        self._position, self._start, self._crc = position, position.offset, None
