"""Expiry of idempotent producers: each replica forgets those that have not appended for producer.id.expiration.ms.

A producer that comes back after that begins as an unknown one; a batch that it sends again then is stored again, as in Kafka. The
check takes no disk and waits for no log: a busy one is left to the next check.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import trio

from kraftlab.common.clock import wall_clock_ms

from ..control.dynamic_configs import DynamicConfigs
from ..log.disks import one_turn
from ..log.ending import LogEnded
from ..replica_manager import ReplicaManager

EXPIRATION = "producer.id.expiration.ms"
CHECK_INTERVAL_MS = 600_000
"""As in Kafka; more often if producers expire sooner."""
LOGS_PER_YIELD = 1000

logger = logging.getLogger("kraftlab.broker.producers")


class ProducerExpiry:
    def __init__(self, replicas: ReplicaManager, configs: DynamicConfigs) -> None:
        self._replicas = replicas
        self._configs = configs

    @property
    def _expiration_ms(self) -> int:
        return int(self._configs.broker(EXPIRATION) or 0)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await trio.sleep(min(CHECK_INTERVAL_MS, max(self._expiration_ms, 1000)) / 1000)
            await one_turn(self.check, wall_clock_ms())

    async def check(self, now_ms: int) -> int:
        """Check every log once; return the number of producers that expired."""
        before_ms, expired = now_ms - self._expiration_ms, 0
        logs = self._replicas.logs
        for count, log in enumerate((*logs.currents(), *logs.futures()), 1):
            with suppress(LogEnded), self._replicas.disks.ending(log):
                expired += log.expire_producers(before_ms)
            if not count % LOGS_PER_YIELD:
                await trio.lowlevel.checkpoint()
        if expired:
            logger.info("%d idempotent producers have expired (%s)", expired, EXPIRATION)
        return expired
