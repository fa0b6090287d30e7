"""A network with this process as its switch: a TAP device in each namespace, and all frames read and written here.

`switch.py` decides what happens to the frames. It needs no kernel module but `tun`, and faults of links apply to each frame with
random numbers from the seed; but every frame costs some ten microseconds of processor time here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterable, Mapping

from kraftlab.lab import namespaces

from .addresses import LinkChange, Place, configure
from .switch import OutgoingFrame, Switch

DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_NAME_BYTES = 16
_REQUEST = struct.Struct(f"{_NAME_BYTES}sH22x")
_FRAME_BYTES_MAX = 65_535
_FRAMES_AT_ONCE = 64
"""Frames of one device before the others have their turn."""


class TapNetwork:
    """One device per participant; the devices end with this process."""

    def __init__(self, places: Mapping[int, Place], paths: Mapping[int, str], seed: int) -> None:
        self._switch = Switch(places, seed)
        self._taps: dict[int, int] = {}
        home = os.open(namespaces.OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for node, path in paths.items():
                namespaces.enter(path)
                self._taps[node] = _open_tap(places[node], places.values())
        finally:
            namespaces.enter(f"/proc/self/fd/{home}")
            os.close(home)
        self._nodes = {descriptor: node for node, descriptor in self._taps.items()}

    @property
    def descriptors(self) -> Iterable[int]:
        return self._nodes

    def ready(self, descriptor: int) -> None:
        node, now = self._nodes[descriptor], time.monotonic()
        for _ in range(_FRAMES_AT_ONCE):
            try:
                frame = os.read(descriptor, _FRAME_BYTES_MAX)
            except BlockingIOError:
                return
            self._send(self._switch.receive(node, frame, now))

    def pause_s(self) -> float | None:
        due = self._switch.next_due
        return None if due is None else max(due - time.monotonic(), 0.0)

    def deliver(self) -> None:
        self._send(self._switch.due(time.monotonic()))

    def change(self, change: LinkChange) -> None:
        now = time.monotonic()
        for state in change.states:
            self._switch.change(state, now, drop=change.drop)

    def _send(self, frames: Iterable[OutgoingFrame]) -> None:
        for node, frame in frames:
            with contextlib.suppress(OSError, KeyError):  # a full device loses frames; an observer can be absent
                os.write(self._taps[node], frame)

    def close(self) -> None:
        for descriptor in self._taps.values():
            os.close(descriptor)


def _open_tap(own: Place, others: Iterable[Place]) -> int:
    """Make a device in this namespace; return it as a non-blocking descriptor. OSError, CannotMake."""
    descriptor = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        name = f"kraftlab{os.getpid()}"
        fcntl.ioctl(descriptor, _TUNSETIFF, _REQUEST.pack(name.encode(), _IFF_TAP | _IFF_NO_PI))
        configure(name, own, others)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
