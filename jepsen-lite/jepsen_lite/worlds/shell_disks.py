"""Disks of nodes in the shell's world: files that forget at a loss of power what was not synced, and faults on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from kraftlab.quorum.simulation.simulated_file_system import SimulatedFileSystem

from .inline_disk import InlineDisk

FilesOf = Callable[[int], SimulatedFileSystem]


class MemoryPower:
    """`nemeses.scene.Powered`, of one node."""

    def __init__(self, node: int, files: FilesOf) -> None:
        self._node, self._files = node, files

    def sync(self) -> None:
        """What a node was laid out with is durable as it is."""

    def lose_power(self) -> None:
        self._files(self._node).crash(power_cut=True)

    def restore_power(self) -> None:
        """A node that starts finds what there is."""


class MemoryTampering:
    """`nemeses.tampering.Tampering`. `disk` gives what works for a node's newest life. Holds end with the life whose disk it is:
    a node that starts again has a disk that works, unless it is full.
    """

    def __init__(self, files: FilesOf, disk: Callable[[int], InlineDisk]) -> None:
        self._files, self._disk = files, disk
        self._full: Counter[SimulatedFileSystem] = Counter()
        self._failing: Counter[SimulatedFileSystem] = Counter()

    @asynccontextmanager
    async def failing(self, node: int) -> AsyncIterator[None]:
        files = self._files(node)
        self._failing[files] += 1
        files.fsync_fails = True
        try:
            await trio.lowlevel.checkpoint()
            yield
        finally:
            self._failing[files] -= 1
            files.fsync_fails = files.fsync_fails and self._failing[files] > 0

    @asynccontextmanager
    async def slow(self, node: int, delay_ms: int) -> AsyncIterator[None]:
        disk = self._disk(node)
        disk.slower_ms += delay_ms
        try:
            await trio.lowlevel.checkpoint()
            yield
        finally:
            disk.slower_ms -= delay_ms

    @asynccontextmanager
    async def full(self, node: int) -> AsyncIterator[None]:
        files = self._files(node)
        self._full[files] += 1
        files.full = True
        try:
            await trio.lowlevel.checkpoint()
            yield
        finally:
            self._full[files] -= 1
            files.full = self._full[files] > 0
