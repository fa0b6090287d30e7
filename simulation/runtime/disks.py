"""Disks of nodes in the shell's world: files that forget at a loss of power what was not synced, and faults on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from .inline_disk import InlineDisk


class Medium(Protocol):
    """What a node keeps its files on: a `SimulatedFileSystem`, or a `LogDirDisk`."""

    full: bool
    fsync_fails: bool
    operations_left: int | None

    def crash(self, *, power_cut: bool) -> None: ...


MediaOf = Callable[[int], Sequence[Medium]]


class MemoryPower:
    """A disk of one node whose power can be taken (`jepsen_lite.faults.cluster_under_faults.Powered`). `media` gives what the
    node has now.
    """

    def __init__(self, node: int, media: MediaOf) -> None:
        self._node, self._media = node, media

    def sync(self) -> None:
        """What a node was laid out with is durable as it is."""

    def lose_power(self) -> None:
        for medium in self._media(self._node):
            medium.crash(power_cut=True)

    def restore_power(self) -> None:
        """A node that starts finds what there is."""


class MemoryTampering:
    """Makes disks of nodes fail. `disks` gives what works for a node's newest life, on `media`. Holds end with the life whose
    disks these are: a node that starts again has disks that work, unless they are full. `mend` starts a node again that goes on
    without a disk.
    """

    def __init__(self, media: MediaOf, disks: Callable[[int], Sequence[InlineDisk]], mend: Callable[[int], None]) -> None:
        self._media, self._disks, self._mend = media, disks, mend
        self._full: Counter[Medium] = Counter()
        self._failing: Counter[Medium] = Counter()

    @asynccontextmanager
    async def failing(self, node: int) -> AsyncIterator[None]:
        media = self._media(node)
        for medium in media:
            self._failing[medium] += 1
            medium.fsync_fails = True
        try:
            await trio.lowlevel.checkpoint()
            yield
        finally:
            for medium in media:
                self._failing[medium] -= 1
                medium.fsync_fails = medium.fsync_fails and self._failing[medium] > 0
            self._mend(node)

    @asynccontextmanager
    async def slow(self, node: int, delay_ms: int) -> AsyncIterator[None]:
        disks = self._disks(node)
        for disk in disks:
            disk.slower_ms += delay_ms
        try:
            await trio.lowlevel.checkpoint()
            yield
        finally:
            for disk in disks:
                disk.slower_ms -= delay_ms

    @asynccontextmanager
    async def full(self, node: int) -> AsyncIterator[None]:
        media = self._media(node)
        for medium in media:
            self._full[medium] += 1
            medium.full = True
        try:
            await trio.lowlevel.checkpoint()
            yield
        finally:
            for medium in media:
                self._full[medium] -= 1
                medium.full = self._full[medium] > 0
