"""Size and free bytes of the log directories' volumes, asked from time to time: a disk that hangs keeps no reader waiting."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import trio

from ..log.disks import Disks, look_after_each, one_turn
from ..log.log_manager import LogManager

INTERVAL_MS = 10_000


class Space(NamedTuple):
    total_bytes: int
    usable_bytes: int


class DiskSpace:
    """`known` has the last answer of each directory. `run` asks until cancelled."""

    def __init__(self, logs: LogManager, disks: Disks) -> None:
        self.known: dict[Path, Space] = {}
        self._logs = logs
        self._disks = disks

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for log_dir in self._logs.directory_ids():
                nursery.start_soon(one_turn, self._ask, log_dir)
            await look_after_each(self._logs.directory_ids, INTERVAL_MS, self._ask)

    async def _ask(self, log_dir: Path) -> None:
        try:
            status = await self._disks.run(log_dir, os.statvfs, log_dir)
        except OSError:  # The directory's own work finds that out, too.
            return
        self.known[log_dir] = Space(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)
