"""A switch of frames: hold, refuse, lose, duplicate, delay, reorder. Pure: frames in, frames out.

Theory of operation. A frame goes to the place that has its target's hardware address. There are no address requests, so broadcast
frames are noise and are dropped. Source and target of a frame identify its link. A link without faults passes frames on at once.
A cut link holds frames up to a limit, beyond which they are lost, or answers with a reset. A shaped link draws the due time of
each frame, as proxies do for messages (`links/shape.py`), from a generator of its own: the fate of the n-th frame of a link
depends on the seed, the link and n alone. A frame that becomes due while its link is cut is treated like a new frame.

Frames are not messages: TCP sends lost data again. So to the endpoints a loss is a delay, and frames that are dropped instead of
being released are sent again by TCP.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraftlab.lab.links.shape import PLAIN, Cut, LinkShape

from .addresses import LinkState, Place
from .tcp_reset import reset_for

HELD_BYTES_MAX = 4 * 1024 * 1024
"""Per link."""
_HARDWARE_BYTES = 6


class OutgoingFrame(NamedTuple):
    """A frame for the device at a place."""

    node: int
    frame: bytes


class _DelayedFrame(NamedTuple):
    due: float
    number: int
    link: tuple[int, int]
    frame: bytes


class _Lane:
    """The state of a link that has or had a fault."""

    def __init__(self, seed: int, source: int, target: int) -> None:
        self.cut: Cut | None = None
        self.shape: LinkShape = PLAIN
        self.chance = random.Random(f"frames {seed} {source} {target}")
        self.not_before = 0.0
        self.held: list[bytes] = []
        self.held_bytes = 0


class Switch:
    """Times are seconds of a monotonic clock."""

    def __init__(self, places: Mapping[int, Place], seed: int = 0) -> None:
        self._seed = seed
        self._by_hardware = {place.hardware: node for node, place in places.items()}
        self._lanes: dict[tuple[int, int], _Lane] = {}
        self._waiting: list[_DelayedFrame] = []
        self._numbers = 0

    @property
    def next_due(self) -> float | None:
        """The time at which `due` has frames; None if no frame waits."""
        return self._waiting[0].due if self._waiting else None

    def receive(self, node: int, frame: bytes, now: float) -> Iterable[OutgoingFrame]:
        """Take a frame from the node's device; return the frames to send at once."""
        target = self._by_hardware.get(frame[:_HARDWARE_BYTES])
        if target is None:
            return ()
        lane = self._lanes.get((node, target))
        if lane is None or (lane.cut is None and lane.shape is PLAIN):
            return (OutgoingFrame(target, frame),)
        if lane.cut is not None:
            return self._stopped(node, lane, frame)
        copies, lane.not_before = lane.shape.deliveries(lane.chance, now, lane.not_before)
        for due in copies:
            self._wait(due, (node, target), frame)
        return ()

    def _stopped(self, node: int, lane: _Lane, frame: bytes) -> Iterable[OutgoingFrame]:
        if lane.cut is Cut.RESET:
            answer = reset_for(frame)
            return () if answer is None else (OutgoingFrame(node, answer),)
        if lane.held_bytes + len(frame) <= HELD_BYTES_MAX:
            lane.held.append(frame)
            lane.held_bytes += len(frame)
        return ()

    def _wait(self, due: float, link: tuple[int, int], frame: bytes) -> None:
        heapq.heappush(self._waiting, _DelayedFrame(due, self._numbers, link, frame))
        self._numbers += 1

    def due(self, now: float) -> Iterable[OutgoingFrame]:
        """Return the frames that are due."""
        found: list[OutgoingFrame] = []
        while self._waiting and self._waiting[0].due <= now:
            _, _, (node, target), frame = heapq.heappop(self._waiting)
            lane = self._lanes[node, target]
            found += (OutgoingFrame(target, frame),) if lane.cut is None else self._stopped(node, lane, frame)
        return found

    def change(self, state: LinkState, now: float, *, drop: bool) -> None:
        """Put a link into a new state. Frames that it held are due now if it is no longer cut, or lost if `drop`."""
        lane = self._lanes.get(state.link)
        if lane is None:
            lane = self._lanes[state.link] = _Lane(self._seed, *state.link)
        lane.cut = None if state.cut is None else Cut(state.cut)
        lane.shape = PLAIN if state.shape.is_plain else state.shape
        if lane.cut is Cut.HOLD:
            return
        held, lane.held, lane.held_bytes = lane.held, [], 0
        if lane.cut is None and not drop:
            for frame in held:
                self._wait(now, state.link, frame)
