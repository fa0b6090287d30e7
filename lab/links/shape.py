"""Shapes of links: delay, jitter, loss, duplicates, reordering; kinds of cuts. Pure.

Theory of operation. A link draws the same numbers for every message, whatever its shape, from a generator of its own: the fate of
the n-th message of a link depends on the seed, the link and n alone. Messages of one connection keep their order unless `reorder`
picks one: it is held back, and later ones overtake it. A duplicate follows its original.
"""

from __future__ import annotations

import enum
import random

import msgspec

OVERTAKEN_MS = 50.0
"""Largest additional delay of a message that is reordered, or doubled."""


class Cut(enum.Enum):
    """Kinds of cuts."""

    HOLD = "hold"
    """Bytes wait, and connections seem to live: a lost network as its ends see it."""
    RESET = "reset"
    """Connections break: a firewall that rejects."""


class LinkShape(msgspec.Struct, frozen=True, kw_only=True):
    """Times in milliseconds, chances from 0 to 1. A random part of `jitter_ms` is added to the delay."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0

    def __post_init__(self) -> None:
        for name in ("delay_ms", "jitter_ms"):
            if not 0 <= getattr(self, name) <= 600_000:
                raise ValueError(f"{name}={getattr(self, name):g}: expected milliseconds from 0 to 600000")
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name):g}: expected a chance from 0 to 1")

    @property
    def is_plain(self) -> bool:
        """True if messages pass unchanged."""
        return self == PLAIN

    def deliveries(self, chance: random.Random, now_s: float, not_before_s: float) -> tuple[list[float], float]:
        """Return (due times of the copies of a message that comes now, earliest delivery of later messages)."""
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
