"""The committed log of a cluster, followed while a run goes on.

Theory of operation. Nodes take snapshots and clean their logs, so the history is read as it is made, as an observer does, whom
leaders keep the log for. What lies below the high watermark never changes: each batch must follow the one before, by offset, by
epoch and by the chain of checksums, which cover all that came before. One that does not is a violation, and is kept as such. If
the log was cleaned before it could be read, what was read before is given up: the log begins later then, and checkers know it.
"""

from __future__ import annotations

import time

from kraftlab.client import ClusterUnreachable
from kraftlab.client.metadata_log import HistoryChanged, MetadataLog, SnapshotInstead, observer_named
from kraftlab.metadata.errors import ApiError
from kraftlab.quorum.core.batch import Batch, decode_all
from kraftlab.quorum.core.errors import CorruptBatch
from kraftlab.quorum.core.types import OffsetAndEpoch

from ..committed_log import CommittedLog, LogBatch, decoded

_TIMEOUT_MS = 2_000
_PAUSE_S = 0.05
_BEGINNING = OffsetAndEpoch(0, 0)


class LogTail:
    """Of one cluster. Not thread-safe. `violations` are sentences; `cleaned_at` where the log had to begin anew, if it had to."""

    def __init__(self, bootstrap_servers: str, cluster_id: str) -> None:
        self._log = MetadataLog(
            bootstrap_servers, observer=observer_named("kraftlab chaos"), cluster_id=cluster_id, timeout_ms=_TIMEOUT_MS
        )
        self._batches: list[LogBatch] = []
        self._position = _BEGINNING
        self._start = 0
        self._crc: int | None = 0
        self.violations: list[str] = []

    def close(self) -> None:
        self._log.close()

    @property
    def end(self) -> int:
        """One past the last record that was read."""
        return self._position.offset

    def advance(self) -> bool:
        """Reads what is committed by now, or a part of it; whether there was anything. ApiError, ClusterUnreachable, OSError,
        CorruptBatch."""
        try:
            chunk = self._log.fetch(self._position)
            self._log.acknowledge(self._position)
        except SnapshotInstead as cleaned:
            self._begin_at(cleaned.snapshot)
            return True
        except HistoryChanged as changed:
            self._violated(f"what was committed up to offset {self.end} is not in the leader's log any more: {changed}")
            return True
        before = self.end
        for batch in decode_all(chunk.data):
            if batch.header.end_offset > chunk.state.high_watermark:
                break
            self._take(batch)
        return self.end > before

    def finish(self, patience_s: float) -> bool:
        """Reads everything that is committed when this is called; False if that was not to be had in time."""
        deadline = time.monotonic() + patience_s
        end: int | None = None
        while time.monotonic() < deadline:
            try:
                if end is None:
                    end = self._log.state().high_watermark
                if end is not None and 0 <= end <= self.end:
                    return True
                if not self.advance():
                    time.sleep(_PAUSE_S)
            except (ApiError, ClusterUnreachable, OSError, CorruptBatch):
                time.sleep(_PAUSE_S)
        return False

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
