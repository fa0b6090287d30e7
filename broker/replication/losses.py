"""Records that a replica has lost (KIP-966), by truncation to its leader's log, recovery after a crash, or an unclean election.

A truncation removes records that the leader does not have. Most had not been replicated; those below the high watermark had been
acknowledged, and are lost if no other replica has them. Each such event is logged as a warning and counted here, since this
broker started, for `kraftlab log-dirs --describe`. The number of records is that of offsets: compaction may have removed some
before.
"""

from __future__ import annotations

import logging

from kraftlab.common.clock import wall_clock_ms

logger = logging.getLogger("kraftlab.broker.losses")


class Losses:
    """Counts of one replica. `acknowledged`: records below the high watermark, of `records`."""

    def __init__(self) -> None:
        self.truncations = 0
        self.records = 0
        self.acknowledged = 0
        self.size_bytes = 0
        self.unclean_elections = 0
        self.last_ms = -1

    def __bool__(self) -> bool:
        return self.last_ms >= 0

    def truncated(self, replica: object, start: int, end: int, high_watermark: int, size_bytes: int) -> None:
        """Note that the records from `start` to `end` are gone."""
        acknowledged = max(min(high_watermark, end) - start, 0)
        self.truncations += 1
        self.records += end - start
        self.acknowledged += acknowledged
        self.size_bytes += size_bytes
        self.last_ms = wall_clock_ms()
        logger.warning(
            "%s lost offsets %d to %d in a truncation: %d records, %d of them below the high watermark %d, %d bytes",
            *(replica, start, end - 1, end - start, acknowledged, high_watermark, size_bytes),
        )

    def recovered(self, size_bytes: int) -> None:
        """Note that the start after a crash has truncated the log, which has logged the place."""
        self.truncations += 1
        self.size_bytes += size_bytes
        self.last_ms = wall_clock_ms()

    def elected_uncleanly(self, replica: object, end: int) -> None:
        """Note that this replica leads although it was not in sync: it may lack acknowledged records from its end on."""
        self.unclean_elections += 1
        self.last_ms = wall_clock_ms()
        logger.warning(
            "%s leads after an unclean election: records from offset %d on that earlier leaders acknowledged may be lost",
            replica,
            end,
        )
