"""What a link does to messages that it does not hold: delay, jitter, loss, duplicates, reordering; how it is cut. Pure.

Theory of operation. A link draws the same numbers for every message, whatever its shape does with them, from a generator of its
own: what happens to the n-th message of a link depends on the seed, the link and n alone. Messages of one connection keep their
order unless `reorder` picks one: it is held back, and those behind it overtake. A duplicate follows its original.
"""

from __future__ import annotations

import enum
import random

import msgspec

OVERTAKEN_MS = 50.0
"""A message that is reordered, or doubled, comes later by up to this."""


class Cut(enum.Enum):
    """How a link carries nothing."""

    HOLD = "hold"
    """Bytes wait, and connections seem to live: what a lost network looks like from its ends."""
    RESET = "reset"
    """Connections break: what a firewall looks like that rejects."""


class LinkShape(msgspec.Struct, frozen=True, kw_only=True):
    """Times in milliseconds, chances from 0 to 1. `jitter_ms` is added to the delay in a random part."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0

    def __post_init__(self) -> None:
        for name in ("delay_ms", "jitter_ms"):
            if not 0 <= getattr(self, name) <= 600_000:
                raise ValueError(f"{name}={getattr(self, name):g}: give milliseconds from 0 to 600000")
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name):g}: give a chance from 0 to 1")

    @property
    def is_plain(self) -> bool:
        """Whether it does nothing to a message."""
        return self == PLAIN

    def deliveries(self, chance: random.Random, now_s: float, not_before_s: float) -> tuple[list[float], float]:
        """(when copies of a message that comes now are delivered, the time before which later ones are not)."""
        lost, doubled, overtaken, jitter, late, later = (chance.random() for _ in range(6))
        if lost < self.loss:
            return [], not_before_s
        due = now_s + (self.delay_ms + jitter * self.jitter_ms) / 1000
        if overtaken < self.reorder:
            due += late * OVERTAKEN_MS / 1000
        else:
            not_before_s = due = max(due, not_before_s)
        copies = [due]
        if doubled < self.duplicate:
            copies.append(due + later * OVERTAKEN_MS / 1000)
        return copies, not_before_s


PLAIN = LinkShape()
