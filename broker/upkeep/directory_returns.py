"""A log directory that failed comes back while the broker runs, after its disk was repaired.

Theory of operation. As at a start, the directory is locked, its identity is checked, its logs are recovered, and a plan is made
for its contents beside the running logs (`log/startup.py`). Its replicas become followers: whatever their leaders wrote
meanwhile is fetched, and what they have beyond that is truncated by leader epochs.

Two things must not happen. A log that has lost records must not count as complete: so nothing comes back before the metadata
shows that the controller has taken the directory's replicas out of the leaderships and ISRs (`ReplicaManager.counted_on`). And
the controller must not believe that a directory works whose logs are not loaded: so the registration that names it is sent last.
An old heartbeat that reports the directory offline may still overtake that registration; the broker then finds the directory
missing in its own registration and repeats it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from ..control.lifecycle import Lifecycle
from ..control.metadata_publisher import MetadataPublisher
from ..log.disks import InThread
from ..log.errors import LogDirUnusable
from ..log.loading import ReturningDir
from ..log.log_manager import LogManager
from ..log.startup import Action
from ..replica_manager import ReplicaManager

logger = logging.getLogger("kraftlab.broker.directories")

SETTLED_WITHIN_S = 15.0
"""The controller must know at that time that the directory failed, or that it is back."""


class DirectoryReturns:
    """`given_up` waits until the failure of a directory is handled; `returned` ends it."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        lifecycle: Lifecycle,
        publisher: MetadataPublisher,
        in_thread: InThread,
        given_up: Callable[[Path], Awaitable[None]],
        returned: Callable[[Path], None],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._lifecycle = lifecycle
        self._publisher = publisher
        self._in_thread = in_thread
        self._given_up = given_up
        self._returned = returned
        self._one_at_a_time = trio.Lock()

    async def bring_online(self, path: Path) -> list[Action]:
        """Bring a directory back; return what has become of its contents, nothing if it was not offline.

        LogDirUnusable: it stays offline, with the reason; LogDirInUse, TooManyOpenFiles.
        """
        await self._publisher.wait_for(1)
        async with self._one_at_a_time:
            if path not in self._logs.offline_dirs:
                return []
            await self._given_up(path)
            returning = await self._in_thread(None, self._logs.open_again, path)
            try:
                await self._wait_until_settled(path)
                with trio.CancelScope(shield=True):
                    plan = await self._take_back(path, returning)
            except BaseException:
                with trio.CancelScope(shield=True):
                    await self._in_thread(None, returning.release)
                raise
            await self._wait_until_registered(returning)
            return plan

    async def _take_back(self, path: Path, returning: ReturningDir) -> list[Action]:
        plan = await self._replicas.take_back(returning)
        self._returned(path)
        self._lifecycle.directory_returned(returning.log_dir.directory_id)
        return plan

    async def _wait_until_settled(self, path: Path) -> None:
        """Wait until the metadata counts on nothing in the directory. LogDirUnusable if that takes too long."""
        known = self._logs.directory_id_of(path)
        with trio.move_on_after(SETTLED_WITHIN_S):
            while self._replicas.counted_on() or (known is not None and not self._lifecycle.is_reported(known)):
                await self._publisher.wait_for(self._publisher.offset + 1)
            return
        waiting = ", ".join(self._replicas.counted_on()[:3]) or "the directory itself"
        raise LogDirUnusable(
            f"{path} was read, but the controller still counts on what was lost with it ({waiting}); make sure that the "
            "controllers run, then try again"
        )

    async def _wait_until_registered(self, returning: ReturningDir) -> None:
        """Wait until the metadata names the directory; it will do so sooner or later."""
        with trio.move_on_after(SETTLED_WITHIN_S):
            while not self._is_registered(returning):
                await self._publisher.wait_for(self._publisher.offset + 1)

    def _is_registered(self, returning: ReturningDir) -> bool:
        me = self._publisher.image.cluster.brokers.get(self._replicas.broker_id)
        return me is not None and returning.log_dir.directory_id in me.log_dirs
