"""This node's own log, as consensus writes it: the view, what of it is durable, and what of it is known to be committed.

Three offsets, always `high watermark <= end offset` and `durable end <= end offset`; the high watermark may be ahead of the
durable end (a majority without this node has committed) and it never falls while the process lives. Truncation below the high
watermark would take back committed data and raises InvariantViolation; `Fetching` refuses a leader that asks for it before.

Voters live in the log (KIP-853), so whoever writes the log changes them: control batches are read here on their way in, and the
voter set follows every append and truncation in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence

from .batch import HEADER_BYTES, BatchHeader, ControlRecord, decode_control
from .effects import Append, Apply, Effects, Truncate, VotersChanged
from .errors import CorruptBatch, InvariantViolation
from .flush_tracker import FlushTracker
from .log_view import LogView
from .membership import Membership


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
        stamp = min(view.high_watermark_stamp, view.end_offset)
        if stamp > view.start_offset:
            self.commit(stamp)

    def append(self, headers: list[BatchHeader], data: bytes) -> bool:
        """Whole batches at the end; `data` is all of them. True if they have changed the voters.

        CorruptBatch, and nothing has changed, if control records among them can not be read or can not follow this log.
        """
        control = control_of(headers, data)
        is_news = self._membership.append(control) if control else False
        base_offset = self.view.end_offset
        for header in headers:
            self.view.append(header)
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

    def replace_voters(self, control: Sequence[ControlRecord]) -> None:
        """The log was replaced by a snapshot that holds these control records."""
        if self._membership.reset(control):
            self._tell_voters()

    def _tell_voters(self) -> None:
        self._out.append(VotersChanged(self._membership.voters))

    def commit(self, high_watermark: int) -> bool:
        """Everything below `high_watermark` is committed. False if that is no news."""
        if high_watermark <= self.high_watermark:
            return False
        if high_watermark > self.view.end_offset:
            raise InvariantViolation(f"high watermark {high_watermark} lies beyond {self.view!r}")
        self.high_watermark = high_watermark
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
        if header.is_control:
            records = decode_control(data[position + HEADER_BYTES : end])
            if len(records) != header.record_count:
                raise CorruptBatch(f"{header!r} says it has {header.record_count} records, but has {len(records)}")
            entries.extend(enumerate(records, header.base_offset))
        position = end
    return entries
