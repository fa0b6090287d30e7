"""One snapshot on its way from the leader's disk to this node's (KIP-630). What happens to it: snapshot_fetching.py."""

from __future__ import annotations

import enum

from .types import OffsetAndEpoch


class Step(enum.Enum):
    """What the download waits for: the disk, or the leader."""

    WAITING = "waits for the disk to finish with another"
    OPENING = "asks the disk what it holds"
    FETCHING = "fetches"
    STORING = "writes"
    VERIFYING = "verifies"


class Download:
    """`position` bytes of `size_bytes` (-1: not known yet) are on this node's disk."""

    __slots__ = ("id", "position", "size_bytes", "step")

    def __init__(self, snapshot: OffsetAndEpoch) -> None:
        self.id = snapshot
        self.position = 0
        self.size_bytes = -1
        self.step = Step.WAITING

    @property
    def is_fetching(self) -> bool:
        """False: the disk is busy with it."""
        return self.step is Step.FETCHING

    def __repr__(self) -> str:
        return f"download({self.id} {self.position}/{self.size_bytes} {self.step.name.lower()})"
