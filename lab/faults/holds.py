"""The book of overlapping faults: the holders of each fault, and the state that they want together. Pure.

Theory of operation. Two orders of a person, or two faults drawn from a seed, may keep the same node down or cut the same link. A
fault is in force as long as it has a holder, so a short cut within a long one changes nothing, and the fault ends with its last
holder. A holder also has details: the shape of a link, the rate of a clock. Where several holders disagree the book either takes
the newest (people correct themselves) or adds all of them up (faults drawn from a seed are independent).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ..links.shape import PLAIN, LinkShape

CUT, SLOW, LOSSY, DARK, DOWN, PAUSED, FULL = "cut", "slow", "lossy", "dark", "down", "paused", "full"
FAILED, WRONG_CLOCK = "failed", "wrong clock"
NODE_FAULTS = (DARK, DOWN, PAUSED, FAILED, FULL, WRONG_CLOCK)
LINK_FAULTS = (CUT, SLOW, LOSSY)
OFF = (DARK, DOWN)
"""Nodes with one of these do not run."""

Link = tuple[int, int]
"""(source, target): messages from the source to the target."""


class Fault(NamedTuple):
    """`other` is the target of a link from `node`, None for a fault of the node itself. `directory` is the path of a log
    directory, "" for a fault of the whole node.
    """

    kind: str
    node: int
    other: int | None = None
    directory: str = ""

    @property
    def link(self) -> Link:
        assert self.other is not None, f"{self} is not a fault of a link"
        return self.node, self.other

    def concerns(self, nodes: Collection[int]) -> bool:
        return self.node in nodes or self.other in nodes


class Hold(msgspec.Struct, eq=False, kw_only=True):
    """A holder of faults. `shape` and `reset` are for links, `rate` for clocks."""

    shape: LinkShape = PLAIN
    reset: bool = False
    rate: float = 1.0


Holder = TypeVar("Holder", bound=Hold)


class Holds(Generic[Holder]):
    """Faults and their holders. `adds_up`: shapes and rates of several holders add up; otherwise the newest holder decides."""

    def __init__(self, *, adds_up: bool = False) -> None:
        self._adds_up = adds_up
        self._holders: dict[Fault, list[Holder]] = {}

    def __contains__(self, fault: Fault) -> bool:
        return fault in self._holders

    def __iter__(self) -> Iterator[Fault]:
        return iter(tuple(self._holders))

    def add(self, holder: Holder, faults: Iterable[Fault]) -> None:
        """Hold these faults. A holder that holds one of them already becomes its newest holder."""
        for fault in faults:
            self.drop(holder, [fault])
            self._holders.setdefault(fault, []).append(holder)

    def drop(self, holder: Holder, faults: Iterable[Fault]) -> list[Fault]:
        """Let go of these faults; return those that have no other holder."""
        freed = []
        for fault in faults:
            holders = self._holders.get(fault, [])
            if holder in holders:
                holders.remove(holder)
                if not holders:
                    del self._holders[fault]
                    freed.append(fault)
        return freed

    def held_by(self, holder: Holder) -> frozenset[Fault]:
        return frozenset(fault for fault, holders in self._holders.items() if holder in holders)

    def newest(self, fault: Fault) -> Holder | None:
        """The newest holder of a fault, None if it has none."""
        return self._holders[fault][-1] if fault in self._holders else None

    def is_off(self, node: int) -> bool:
        """Return True if a fault keeps the node off."""
        return any(Fault(kind, node) in self for kind in OFF)

    def rate(self, node: int) -> float:
        """The wanted rate of the node's clock."""
        return math.prod(holder.rate for holder in self._deciding(Fault(WRONG_CLOCK, node)))

    def shape(self, link: Link) -> LinkShape:
        """The wanted shape of the link. Slow and lossy faults are separate, and a link may have both."""
        deciding = [holder for kind in (SLOW, LOSSY) for holder in self._deciding(Fault(kind, *link))]
        return together(holder.shape for holder in dict.fromkeys(deciding))

    def _deciding(self, fault: Fault) -> tuple[Holder, ...]:
        holders = self._holders.get(fault, [])
        return tuple(holders if self._adds_up else holders[-1:])


def together(shapes: Iterable[LinkShape]) -> LinkShape:
    """Return the shape of a link that several shapes apply to: delays add up, and each chance is independent."""
    found = tuple(shape for shape in shapes if shape != PLAIN)
    if len(found) < 2:
        return found[0] if found else PLAIN

    def chance(name: str) -> float:
        chances = [float(getattr(shape, name)) for shape in found if getattr(shape, name)]
        return chances[0] if len(chances) == 1 else 1.0 - math.prod(1.0 - each for each in chances)

    return LinkShape(
        delay_ms=sum(shape.delay_ms for shape in found),
        jitter_ms=sum(shape.jitter_ms for shape in found),
        loss=chance("loss"),
        duplicate=chance("duplicate"),
        reorder=chance("reorder"),
    )
