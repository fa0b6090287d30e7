"""This node's own log as consensus writes it: the view, its durable part, and its known committed part.

Four offsets, always `start <= high watermark <= end` and `durable end <= end`. The high watermark can be ahead of the durable end
(a majority without this node has committed), and it never falls while the process lives. Truncation below the high watermark
would take back committed data and raises InvariantViolation; `Fetching` refuses such a leader before. At boot, everything below
the stamps of the batches and below the log's start is known as committed. A stamp beyond the end is possible while the log is
being repaired; then the whole log is committed.

The voters are in the log (KIP-853), so every writer of the log changes them. Control batches are read here before they are
appended, and the voter set follows every append, truncation and installed snapshot in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftlab.common.errors import InvariantViolation

from .batch import CONTROL, HEADER_BYTES, BatchHeader, ControlRecord, decode_control
from .effects import Append, Apply, CleanLog, Effects, InstallSnapshot, Truncate, VotersChanged
from .errors import CorruptBatch
from .flush_tracker import FlushTracker
from .log_view import LogView
from .membership import Membership
from .types import OffsetAndEpoch


class LocalLog:
    """The view, its durable part and its commit point. Every change of the log becomes an effect here."""

    __slots__ = ("_membership", "_out", "flushes", "high_watermark", "view")

    def __init__(self, view: LogView, out: Effects, membership: Membership) -> None:
        self.view = view
        self._membership = membership
        self.flushes = FlushTracker(view.end_offset)
        self.high_watermark = -1
        """Everything below is committed, as far as this node knows. -1: unknown."""
        self._out = out
        if view.committed_offset:
            self.commit(view.committed_offset)

    def append(self, headers: list[BatchHeader], data: bytes) -> bool:
        """Append whole batches; `data` holds all of them. Return True if they have changed the voters.

        CorruptBatch, and nothing has changed, if control records among them cannot be read or must not follow this log.
        """
        control = control_of(headers, data)
        is_news = self._membership.append(control) if control else False
        base_offset = self.view.end_offset
        self.view.extend(headers)
        end_offset = self.view.end_offset
        self._out.append(Append(self.flushes.appended(end_offset), base_offset, end_offset, data))
        if is_news:
            self._announce_voters()
        return is_news

    def truncate(self, to_offset: int) -> None:
        if to_offset < self.high_watermark:
            raise InvariantViolation(
                f"truncation of {self.view!r} to {to_offset}, below the high watermark {self.high_watermark}"
            )
        self.view.truncate(to_offset)
        self._out.append(Truncate(self.flushes.truncated(to_offset), to_offset))
        if self._membership.truncate(to_offset):
            self._announce_voters()

    def clean(self, start: OffsetAndEpoch) -> None:
        """Start the log at `start`, the end of a snapshot."""
        if start.offset > self.high_watermark:
            raise InvariantViolation(f"cleaning of {self.view!r} up to {start}, above the high watermark {self.high_watermark}")
        self.view.clean(start)
        self._out.append(CleanLog(start))

    def install(self, snapshot: OffsetAndEpoch, last_crc: int, control: Sequence[ControlRecord]) -> None:
        """Replace the whole log by a snapshot from another node. Everything below its end is committed."""
        committed_offset = max(0, self.high_watermark)
        if snapshot.offset < committed_offset:
            raise InvariantViolation(f"snapshot {snapshot} ends below the high watermark {committed_offset} of {self.view!r}")
        self.view.reset(snapshot, last_crc)
        append_id = self.flushes.installed(snapshot.offset, committed_offset)
        self._out.append(InstallSnapshot(append_id, snapshot, last_crc))
        if self._membership.reset(control):
            self._announce_voters()
        self.commit(snapshot.offset)

    def _announce_voters(self) -> None:
        self._out.append(VotersChanged(self._membership.voters))

    def commit(self, high_watermark: int) -> bool:
        """Note that everything below `high_watermark` is committed. Return False if it was known before."""
        if high_watermark <= self.high_watermark:
            return False
        if high_watermark > self.view.end_offset:
            raise InvariantViolation(f"high watermark {high_watermark} lies beyond {self.view!r}")
        self.high_watermark = high_watermark
        self._membership.committed(high_watermark)
        self._out.append(Apply(high_watermark))
        return True

    @property
    def commit_stamp(self) -> int:
        """The high watermark for the header of the next batch."""
        return max(0, self.high_watermark)

    def __repr__(self) -> str:
        return f"hw={self.high_watermark} {self.view!r} {self.flushes!r}"


def control_of(headers: Sequence[BatchHeader], data: bytes) -> list[tuple[int, ControlRecord]]:
    """Return (offset, record) of every control record in `data`, whose batches have these headers.

    CorruptBatch if one is unreadable.
    """
    entries: list[tuple[int, ControlRecord]] = []
    position = 0
    for header in headers:
        end = position + header.size_bytes
        if header.attributes & CONTROL:
            records = decode_control(data[position + HEADER_BYTES : end])
            if len(records) != header.record_count:
                raise CorruptBatch(f"{header!r} says it has {header.record_count} records, but has {len(records)}")
            entries.extend(enumerate(records, header.base_offset))
        position = end
    return entries
