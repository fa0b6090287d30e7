"""This node's own log, as consensus writes it: the view, what of it is durable, and what of it is known to be committed.

Four offsets, always `start <= high watermark <= end` and `durable end <= end`; the high watermark may be ahead of the
durable end (a majority without this node has committed) and it never falls while the process lives. Truncation below the
high watermark would take back committed data and raises InvariantViolation; `Fetching` refuses a leader that asks for it
before. What a boot knows to be committed is whatever the batches found say (their stamps) and whatever lies below the start;
a stamp beyond the end is possible while the log is being repaired, and then the whole of it is committed.

Voters live in the log (KIP-853), so whoever writes the log changes them: control batches are read here on their way in, and the
voter set follows every append, truncation and installed snapshot in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence

from .batch import CONTROL, HEADER_BYTES, BatchHeader, ControlRecord, decode_control
from .effects import Append, Apply, CleanLog, Effects, InstallSnapshot, Truncate, VotersChanged
from .errors import CorruptBatch, InvariantViolation
from .flush_tracker import FlushTracker
from .log_view import LogView
from .membership import Membership
from .types import OffsetAndEpoch


class LocalLog:
    """The view, its durability and its commit point; every change to the log becomes an effect here."""

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
        """Whole batches at the end; `data` is all of them. True if they have changed the voters.

        CorruptBatch, and nothing has changed, if control records among them can not be read or can not follow this log.
        """
        control = control_of(headers, data)
        is_news = self._membership.append(control) if control else False
        base_offset = self.view.end_offset
        self.view.extend(headers)
        end_offset = self.view.end_offset
        self._out.append(Append(self.flushes.appended(end_offset), base_offset, end_offset, data))
        if is_news:
            self._tell_voters()
        return is_news

    def truncate(self, to_offset: int) -> None:
        if to_offset < self.high_watermark:
            raise InvariantViolation(
                f"truncation of {self.view!r} to {to_offset}, below the high watermark {self.high_watermark}"
            )
        self.view.truncate(to_offset)
        self._out.append(Truncate(self.flushes.truncated(to_offset), to_offset))
        if self._membership.truncate(to_offset):
            self._tell_voters()

    def clean(self, start: OffsetAndEpoch) -> None:
        """The log starts at `start`, the end of a snapshot, from now on."""
        if start.offset > self.high_watermark:
            raise InvariantViolation(f"cleaning of {self.view!r} up to {start}, above the high watermark {self.high_watermark}")
        self.view.clean(start)
        self._out.append(CleanLog(start))

    def install(self, snapshot: OffsetAndEpoch, last_crc: int, control: Sequence[ControlRecord]) -> None:
        """A snapshot from elsewhere replaces the whole log. Everything below its end is committed."""
        committed_offset = max(0, self.high_watermark)
        if snapshot.offset < committed_offset:
            raise InvariantViolation(f"snapshot {snapshot} ends below the high watermark {committed_offset} of {self.view!r}")
        self.view.reset(snapshot, last_crc)
        append_id = self.flushes.installed(snapshot.offset, committed_offset)
        self._out.append(InstallSnapshot(append_id, snapshot, last_crc))
        if self._membership.reset(control):
            self._tell_voters()
        self.commit(snapshot.offset)

    def _tell_voters(self) -> None:
        self._out.append(VotersChanged(self._membership.voters))

    def commit(self, high_watermark: int) -> bool:
        """Everything below `high_watermark` is committed. False if that is no news."""
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
        """What the next batch's header says of the high watermark."""
        return max(0, self.high_watermark)

    def __repr__(self) -> str:
        return f"hw={self.high_watermark} {self.view!r} {self.flushes!r}"


def control_of(headers: Sequence[BatchHeader], data: bytes) -> list[tuple[int, ControlRecord]]:
    """(offset, record) of every control record in `data`, whose batches have these headers. CorruptBatch: cannot be read."""
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
