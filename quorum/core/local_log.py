"""This node's own log, as consensus writes it: the view, what of it is durable, and what of it is known to be committed.

Three offsets, always `high watermark <= end offset` and `durable end <= end offset`; the high watermark may be ahead of the
durable end (a majority without this node has committed) and it never falls while the process lives. Truncation below the high
watermark would take back committed data and raises InvariantViolation; `Fetching` refuses a leader that asks for it before.
"""

from __future__ import annotations

from .batch import BatchHeader
from .effects import Append, Apply, Effects, Truncate
from .errors import InvariantViolation
from .flush_tracker import FlushTracker
from .log_view import LogView


class LocalLog:
    """The view, its durability and its commit point; every change to the log becomes an effect here."""

    __slots__ = ("_out", "flushes", "high_watermark", "view")

    def __init__(self, view: LogView, out: Effects) -> None:
        self.view = view
        self.flushes = FlushTracker(view.end_offset)
        self.high_watermark = -1
        """Everything below is committed, as far as this node knows. -1: unknown."""
        self._out = out
        stamp = min(view.high_watermark_stamp, view.end_offset)
        if stamp > view.start_offset:
            self.commit(stamp)

    def append(self, headers: list[BatchHeader], data: bytes) -> None:
        """Whole batches at the end; `data` is all of them."""
        base_offset = self.view.end_offset
        for header in headers:
            self.view.append(header)
        end_offset = self.view.end_offset
        self._out.append(Append(self.flushes.appended(end_offset), base_offset, end_offset, data))

    def truncate(self, to_offset: int) -> None:
        if to_offset < self.high_watermark:
            raise InvariantViolation(
                f"truncation of {self.view!r} to {to_offset}, below the high watermark {self.high_watermark}"
            )
        self.view.truncate(to_offset)
        self._out.append(Truncate(self.flushes.truncated(to_offset), to_offset))

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
