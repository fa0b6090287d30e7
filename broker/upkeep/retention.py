"""Retention: old segments are deleted once retention.ms or retention.bytes no longer cover them (every
log.retention.check.interval.ms).

Each replica looks after its own log, as leader and as follower. Records above the high watermark and the active segment always
stay. A topic with only compaction keeps the last record of each key (`cleaner.py`).
"""

from __future__ import annotations

import logging
from pathlib import Path

from kraftlab.records.errors import LogError

from ..control.dynamic_configs import DynamicConfigs
from ..log.disks import look_after_each
from ..replica_manager import ReplicaManager
from ..replication.replica_errors import ReplicaError

logger = logging.getLogger("kraftlab.broker.upkeep.retention")


class Retention:
    """Runs on the broker's event loop; the work itself goes to the disks' threads."""

    def __init__(self, replicas: ReplicaManager, configs: DynamicConfigs, check_interval_ms: int) -> None:
        self._replicas = replicas
        self._configs = configs
        self._check_interval_ms = check_interval_ms

    async def run(self) -> None:
        """Run until cancelled."""
        await look_after_each(self._replicas.logs.directory_ids, self._check_interval_ms, self.check)

    async def check(self, log_dir: Path) -> int:
        """Check every replica in a directory once; return the number of deleted segments."""
        deleted = 0
        for partition in list(self._replicas.partitions.values()):
            if partition.log_dir != log_dir or not self._configs.deletes(partition.topic):
                continue
            try:
                with partition.ending_log():
                    count = await partition.delete_old_segments()
            except ReplicaError:
                continue
            except LogError as error:
                logger.warning("%s: old segments could not be deleted: %s", partition, error)
                continue
            if count:
                logger.info("%s: %d segments deleted by retention", partition, count)
            deleted += count
        return deleted
