"""What a disk tells a RaftNode at its start, besides the log's view and the election state."""

from __future__ import annotations

from typing import NamedTuple

from .batch import ControlRecord
from .types import OffsetAndEpoch


class BootState(NamedTuple):
    """Made by storage's recovery; empty on a fresh disk with static voters.

    `control` holds (offset, record) of every control record in the log, in order, behind those of the snapshot that the log
    starts at (offset -1). `bootstrap` are the control records of the 0-0 checkpoint that formatting wrote: the voter set until
    the log has one (KIP-853). `snapshots` are the finished snapshots, oldest first. `repair_until` > 0: rot has damaged the log
    somewhere below that offset; the node neither votes nor stands until it holds everything below again.
    """

    control: tuple[tuple[int, ControlRecord], ...] = ()
    bootstrap: tuple[ControlRecord, ...] = ()
    snapshots: tuple[OffsetAndEpoch, ...] = ()
    repair_until: int = 0
