"""Flush policy of topics: `flush.ms`. (`flush.messages` is part of an append.)

By default nothing is flushed before a segment is full: replication makes records safe. A topic with `flush.ms` is flushed once
that time has passed since its last flush. Logs are looked through every `log.flush.scheduler.interval.ms`; without that setting
Kafka never looks, and a broker here looks every second.
"""

from __future__ import annotations

import logging
from pathlib import Path

from kraftlab.common.clock import wall_clock_ms
from kraftlab.records.errors import LogError

from ..log.disks import Disks, look_after_each
from ..log.log_config import NO_LIMIT
from ..log.log_manager import LogManager

DEFAULT_INTERVAL_MS = 1000

logger = logging.getLogger("kraftlab.broker.upkeep.flushing")


class Flusher:
    """Runs on the broker's event loop; the work itself goes to the disks' threads."""

    def __init__(self, logs: LogManager, disks: Disks, interval_ms: int) -> None:
        self._logs = logs
        self._disks = disks
        self._interval_ms = DEFAULT_INTERVAL_MS if interval_ms >= NO_LIMIT else interval_ms

    async def run(self) -> None:
        """Run until cancelled."""
        await look_after_each(self._logs.directory_ids, self._interval_ms, self.check)

    async def check(self, log_dir: Path) -> int:
        """Flush the logs in a directory that are due; return their number."""
        now_ms = wall_clock_ms()
        due = [
            log
            for log in (*self._logs.currents(), *self._logs.futures())
            if log.config.flush_ms < NO_LIMIT
            and log.log_dir == log_dir
            and log.log_end_offset > log.recovery_point
            and now_ms - log.flushed_at_ms >= log.config.flush_ms
        ]
        for log in due:
            try:
                with self._disks.ending(log):
                    await self._disks.run(log_dir, log.flush)
            except LogError as error:
                logger.warning("%s could not be flushed: %s", log.name, error)
        return len(due)
