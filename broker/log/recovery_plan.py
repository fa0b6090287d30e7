"""Verdicts on the segments of a log that is opened: one pure function over one table.

Theory of operation. Segments are judged in the order of their base offsets. Those below the recovery point, and all after a clean
stop, are trusted: they were synced, so they stay unread. The others are judged by the place where they begin, against the end of
the segments before. A segment that follows is scanned: its first bad batch ends the log. A hole above the recovery point ends the
log, too: the records in it were lost with the power. A gap of more offsets than a segment can have is not a hole.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from .segment_rules import MAX_RELATIVE_OFFSET

HOLE_MAX_OFFSETS = MAX_RELATIVE_OFFSET + 1
"""Largest number of offsets that a segment can have lost. A larger gap was never written: then the records before it are durable
(`PartitionLog`, rolling).
"""


class Place(enum.Enum):
    """Place of a segment after the end of the segments before it."""

    FOLLOWS = "follows"
    """Begins at the end, or after a gap that is not a fault."""
    WITHIN = "within"
    """Begins below the end, and no batch reaches above the end."""
    OVERLAPS = "overlaps"
    """Begins below the end and reaches above it."""
    HOLE = "hole"
    """Begins above the end, and the records between were lost."""


class Verdict(enum.Enum):
    KEEP = "keep"
    SCAN = "scan"
    PASS_OVER = "pass over"
    """Take the segment out of the log and go on with the next one."""
    END = "end"
    """End the log before the segment: delete it and all later ones."""


class RecoveryFacts(NamedTuple):
    """Facts of one segment. `end_before`: end of the segments before, `base_offset` for the first one. `reaches_above_end`: some
    batch ends above `end_before`.
    """

    base_offset: int
    end_before: int
    is_trusted: bool
    reaches_above_end: bool
    recovery_point: int

    @property
    def place(self) -> Place:
        missing = self.base_offset - self.end_before
        if missing < 0:
            return Place.OVERLAPS if self.reaches_above_end else Place.WITHIN
        is_hole = 0 < missing <= HOLE_MAX_OFFSETS and self.base_offset > self.recovery_point
        return Place.HOLE if is_hole else Place.FOLLOWS


VERDICTS: Mapping[tuple[bool, Place], Verdict] = {
    # is_trusted, place
    (True, Place.FOLLOWS): Verdict.KEEP,
    (True, Place.WITHIN): Verdict.KEEP,
    (True, Place.OVERLAPS): Verdict.KEEP,
    (True, Place.HOLE): Verdict.KEEP,
    (False, Place.FOLLOWS): Verdict.SCAN,
    (False, Place.WITHIN): Verdict.PASS_OVER,
    (False, Place.OVERLAPS): Verdict.END,
    (False, Place.HOLE): Verdict.END,
}


def judge(found: RecoveryFacts) -> Verdict:
    return VERDICTS[found.is_trusted, found.place]


def reason_to_end(found: RecoveryFacts) -> str:
    """Return the reason of a verdict END."""
    if found.place is Place.HOLE:
        return f"the records from offset {found.end_before} to {found.base_offset}, where the next segment begins, are missing"
    return f"segment {found.base_offset} begins below offset {found.end_before} where the one before ends"
