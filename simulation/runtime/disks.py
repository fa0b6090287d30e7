"""Faults of disks: power cuts, failing, slow and full disks."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

import trio

from .inline_disk import InlineDisk, Medium

MediaOf = Callable[[int], Sequence[Medium]]


class MemoryPower:
    """The power of one node's disks. `media` returns the disks that the node has now."""

    def __init__(self, node: int, media: MediaOf) -> None:
        self._node, self._media = node, media

    def sync(self) -> None:
        """Do nothing: the first files of a node are durable."""

    def lose_power(self) -> None:
        for medium in self._media(self._node):
            medium.crash(power_cut=True)

    def restore_power(self) -> None:
        """Do nothing."""


class MemoryTampering:
    """Disks that fail while a context lasts. `disks` returns the workers of a node's newest life on its `media`. A failing or
    slow disk works again after a restart of the node, a full one does not. `restart` starts a node again that lacks a disk.
    """

    def __init__(self, media: MediaOf, disks: Callable[[int], Sequence[InlineDisk]], restart: Callable[[int], None]) -> None:
        self._media, self._disks, self._restart = media, disks, restart
        self._held: Counter[tuple[Medium, str]] = Counter()

    @asynccontextmanager
    async def failing(self, node: int) -> AsyncIterator[None]:
        try:
            async with self._kept(node, "fsync_fails"):
                yield
        finally:
            self._restart(node)

    def full(self, node: int) -> AbstractAsyncContextManager[None]:
        return self._kept(node, "full")

    @asynccontextmanager
    async def _kept(self, node: int, state: Literal["full", "fsync_fails"]) -> AsyncIterator[None]:
        """Keep the disks of a node in that state until the last context of that state ends."""
        media = self._media(node)
        for medium in media:
            self._held[medium, state] += 1
            setattr(medium, state, True)
        try:
            await trio.lowlevel.checkpoint()
            yield
        finally:
            for medium in media:
                self._held[medium, state] -= 1
                setattr(medium, state, getattr(medium, state) and self._held[medium, state] > 0)

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
