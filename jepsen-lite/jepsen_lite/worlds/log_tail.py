"""The committed log of a cluster of processes, followed while a run goes on.

Theory of operation. Nodes take snapshots and clean their logs, so the history is read as it is made: as an observer, by Fetch
from whoever leads (KIP-595), again and again and with little patience. Leaders keep the log for observers that they know, but one
that has just been elected may have cleaned more: who reads must never be behind by as much as lies between two snapshots. What
lies below the high watermark never changes: each batch must follow the one before, by offset, by epoch and by the chain of
checksums, which cover all that came before; and every later leader must hold it. What does not is a violation, and is kept as
such. If the log was cleaned before it could be read, what was read before is given up: the log begins later then, and checkers
know it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kraftlab.client.data import PeerConnection
from kraftlab.client.metadata_log import observer_named
from kraftlab.quorum.core.batch import Batch, decode_all
from kraftlab.quorum.core.errors import ErrorCode
from kraftlab.quorum.core.messages import API_OF, Diverging, FetchRequest, FetchResponse, Records, SnapshotRequired
from kraftlab.quorum.core.types import Endpoint, OffsetAndEpoch

from ..committed_log import CommittedLog, LogBatch, decoded

TIMEOUT_S = 0.3
_FETCH_BYTES = 4 << 20
_BEGINNING = OffsetAndEpoch(0, 0)
_OBSERVER = observer_named("kraftlab chaos")
_decode = msgspec.msgpack.Decoder(FetchResponse).decode


class LogTail:
    """Of a cluster whose controllers listen for their peers at these endpoints. Not thread-safe; `violations` are sentences."""

    def __init__(self, controllers: Mapping[int, Endpoint], cluster_id: str) -> None:
        self._connections = {node_id: PeerConnection(at, cluster_id) for node_id, at in controllers.items()}
        self._batches: list[LogBatch] = []
        self._position = _BEGINNING
        self._start = 0
        self._crc: int | None = 0
        self.violations: list[str] = []

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    @property
    def end(self) -> int:
        """One past the last record that was read."""
        return self._position.offset

    def advance(self, leader: int, epoch: int) -> bool:
        """Reads what that leader has committed by now, or a part of it; whether there was anything. ApiError, OSError,
        CorruptBatch."""
        position = self._position
        request = FetchRequest(epoch, _OBSERVER, position.offset, position.epoch, -1, 0, _FETCH_BYTES)
        body = self._connections[leader].request(API_OF[FetchRequest], msgspec.msgpack.encode(request), TIMEOUT_S)
        answer = _decode(body)
        if answer.error is not ErrorCode.NONE:
            return False
        match answer.outcome:
            case SnapshotRequired() as cleaned:
                self._begin_at(cleaned.id)
            case Diverging() if epoch >= position.epoch:
                self._violated(
                    f"what was committed up to {position!r} is not in the log of node {leader}, the leader of epoch {epoch}, "
                    f"which agrees up to {answer.outcome.end_offset} at most"
                )
            case Records(data):
                for batch in decode_all(data):
                    if batch.header.end_offset > answer.high_watermark:
                        break
                    self._take(batch)
        return self._position != position

    def log(self) -> CommittedLog:
        """What was read, decoded. UnreadableRecords, CorruptBatch."""
        return decoded(self._batches, self._start)

    def _take(self, batch: Batch) -> None:
        header = batch.header
        follows = header.base_offset == self.end and header.epoch >= self._position.epoch
        if not follows or self._crc not in (None, header.previous_crc):
            self._violated(f"batch {header!r} does not follow what was committed before it, up to {self._position!r}")
            return
        self._batches.append(
            LogBatch(header.base_offset, header.end_offset, header.epoch, header.append_time_ms, header.is_control, batch.body)
        )
        self._position, self._crc = OffsetAndEpoch(header.end_offset, header.epoch), header.crc

    def _violated(self, text: str) -> None:
        self.violations.append(text)
        self._begin_at(_BEGINNING)
        self._crc = 0

    def _begin_at(self, position: OffsetAndEpoch) -> None:
        self._batches.clear()
        self._position, self._start, self._crc = position, position.offset, None
