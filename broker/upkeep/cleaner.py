"""Compacts the logs of compacted topics (cleanup.policy=compact), the most urgent one first.

Theory of operation. When a cleaner is free, the logs are searched for those that are due (`log/compaction.py`). At most
log.cleaner.threads are compacted at a time, each piece by piece on the threads of its directory. Between two pieces the cleaner
waits as long as log.cleaner.io.max.bytes.per.second demands of all cleaners together. If no log is due, the search is repeated
after log.cleaner.backoff.ms. Each replica compacts its own log, as leader and as follower.

A replica that is being moved between directories is not compacted: nobody could say to which offset a copy is compacted that
began before and ended after. Segments are exchanged only if no move has begun meanwhile. The end of the compacted part is written
to `cleaner-offset-checkpoint` after each compaction; a move takes it along.

A log that cannot be compacted, because of a damaged batch for instance, is left as it is, with a warning, until the broker
restarts or the log is replaced; the others go on. A full disk is only a reason to try again later.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import trio

from kraftlab.common.clock import wall_clock_ms
from kraftlab.records.errors import LogError

from ..control.dynamic_configs import DynamicConfigs
from ..log.compacting import Compaction, CompactionSuperseded
from ..log.ending import LogEnded, ending
from ..log.errors import LogClosed, LogDirFailed, NoSpace, TooManyOpenFiles
from ..log.partition_log import PartitionLog
from ..replica_manager import ReplicaManager
from ..replication.byte_gate import ByteGate
from ..replication.partition import Partition, ReplicaId

logger = logging.getLogger("kraftlab.broker.upkeep.cleaner")

CHUNK_BYTES_MIN = 64 * 1024


class _Due(NamedTuple):
    urgency: tuple[bool, float]
    partition: Partition
    log: PartitionLog


class Cleaner:
    """Runs on the broker's event loop; the work itself goes to the disks' threads."""

    def __init__(self, replicas: ReplicaManager, configs: DynamicConfigs) -> None:
        self.uncleanable: dict[ReplicaId, PartitionLog] = {}
        """Logs that cannot be compacted as they are."""
        self._replicas = replicas
        self._configs = configs
        self._gate = ByteGate()
        self._busy: set[ReplicaId] = set()
        self._freed = trio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        if self._configs.broker("log.cleaner.enable") == "false":
            logger.warning("log.cleaner.enable is false: compacted topics are not compacted on this broker")
            return
        async with trio.open_nursery() as nursery:
            while True:
                self._freed = trio.Event()
                if len(self._busy) < int(self._setting("log.cleaner.threads")):
                    due = await self._most_urgent()
                    if due is not None:
                        self._busy.add(due.partition.id)
                        nursery.start_soon(self._clean, due)
                        continue
                with trio.move_on_after(int(self._setting("log.cleaner.backoff.ms")) / 1000):
                    await self._freed.wait()

    async def clean_all(self) -> int:
        """Compact each log that is due, one after the other; return their number."""
        count = 0
        while due := await self._most_urgent():
            await self._clean(due)
            count += 1
        return count

    def _setting(self, key: str) -> str:
        value = self._configs.broker(key)
        assert value is not None, f"{key} has no default"
        return value

    # --- which log -----------------------------------------------------------------------------------------------------------

    async def _most_urgent(self) -> _Due | None:
        found: list[_Due] = []
        for log_dir in self._replicas.logs.directory_ids():
            candidates = [
                (partition, log)
                for partition in self._replicas.partitions.values()
                if partition.log_dir == log_dir and (log := partition.log) is not None and self._may_clean(partition, log)
            ]
            if candidates:
                try:
                    found += await self._replicas.disks.run(log_dir, _due_among, candidates, wall_clock_ms())
                except LogError as error:
                    logger.warning("%s: not searched for logs to compact: %s", log_dir, error)
        return max(found, key=lambda due: due.urgency, default=None)

    def _may_clean(self, partition: Partition, log: PartitionLog) -> bool:
        """Return False for logs that need not be looked at, most of them at no cost."""
        return (
            log.config.is_compacted
            and log.has_dirty_segments
            and partition.id not in self._busy
            and self.uncleanable.get(partition.id) is not log
            and self._is_in_place(partition.id, log)
        )

    def _is_in_place(self, replica: ReplicaId, log: PartitionLog) -> bool:
        """Return True if the log is served and does not move. Called from any thread."""
        logs = self._replicas.logs
        return logs.get(*replica) is log and logs.future(*replica) is None

    # --- one log -------------------------------------------------------------------------------------------------------------

    async def _clean(self, due: _Due) -> None:
        replica, log = due.partition.id, due.log
        try:
            with self._replicas.disks.ending(log):
                compaction = await self._compact(replica, log)
            _report(due.partition, compaction)
        except (CompactionSuperseded, LogClosed) as error:
            logger.debug("%s: %s", due.partition, error)
        except (NoSpace, TooManyOpenFiles) as error:
            logger.warning("%s: not compacted now: %s", due.partition, error)
            await trio.sleep(int(self._setting("log.cleaner.backoff.ms")) / 1000)
        except LogDirFailed as error:
            self.uncleanable[replica] = log  # It is replaced when the directory comes back.
            logger.warning("%s: not compacted: %s", due.partition, error)
        except LogError as error:
            self.uncleanable[replica] = log
            logger.warning("%s: cannot be compacted, and is left as it is until the broker restarts: %s", due.partition, error)
        finally:
            self._busy.discard(replica)
            self._freed.set()

    async def _compact(self, replica: ReplicaId, log: PartitionLog) -> Compaction:
        threads = max(int(self._setting("log.cleaner.threads")), 1)
        map_bytes = int(self._setting("log.cleaner.dedupe.buffer.size")) // threads
        chunk_bytes = max(int(self._setting("log.cleaner.io.buffer.size")) // threads, CHUNK_BYTES_MIN)
        compaction = Compaction(
            log,
            now_ms=wall_clock_ms(),
            map_bytes=int(map_bytes * float(self._setting("log.cleaner.io.buffer.load.factor"))),
            chunk_bytes=chunk_bytes,
            may_replace=lambda: self._is_in_place(replica, log),
        )
        disks, log_dir, steps = self._replicas.disks, log.log_dir, compaction.steps()
        try:
            with self._gate.claim(replica) as claim:
                used: int | None = 0
                while used is not None:
                    rate = float(self._setting("log.cleaner.io.max.bytes.per.second"))
                    self._gate.set_rate(rate if rate < 2**63 else None)
                    granted = await claim.take(chunk_bytes)
                    used = await disks.run(log_dir, next, steps, None)
                    claim.settle(granted, used or 0)
        finally:
            with trio.CancelScope(shield=True):
                await disks.in_thread(None, steps.close)
        await disks.run(log_dir, self._replicas.logs.write_cleaned_ends, log_dir)
        return compaction


def _due_among(candidates: Sequence[tuple[Partition, PartitionLog]], now_ms: int) -> list[_Due]:
    """Return the logs of one directory that are due. Blocks; LogDirFailed, LogEnded."""
    found = []
    for partition, log in candidates:
        try:
            with ending(log):
                part = log.cleanable(now_ms)
        except (LogDirFailed, LogEnded):
            raise
        except LogError as error:
            logger.debug("%s: %s", partition, error)
            continue
        if part.is_due(log.config):
            found.append(_Due(part.urgency, partition, log))
    return found


def _report(partition: Partition, compaction: Compaction) -> None:
    done = compaction.filter
    assert done is not None
    logger.info(
        "%s: compacted to offset %d, %d of %d records kept, %d bytes of %d in the segments that were written again",
        *(partition, compaction.latest.end_offset, done.records_kept, done.records_read),
        *(compaction.bytes_after, compaction.bytes_before),
    )
    if compaction.latest.records_without_key:
        logger.warning(
            "%s: %d records had no key and were removed; every record of a compacted topic needs one",
            *(partition, compaction.latest.records_without_key),
        )
