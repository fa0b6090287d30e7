"""Failing disks of running nodes: by strace, and by a limit of the kernel on file sizes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import trio

from kraftlab.lab.faults import full_disk
from kraftlab.lab.faults.holds import FULL, Fault, Hold, Holds

from .errors import CannotStrike
from .ledger import Ledger
from .strace import SYNCS, kept_injected


class DiskFaults(Protocol):
    """Each fault lasts as long as its `async with`. CannotStrike."""

    def failing(self, node: int) -> AbstractAsyncContextManager[None]:
        """Let every fsync fail with EIO."""

    def slow(self, node: int, delay_ms: int) -> AbstractAsyncContextManager[None]:
        """Delay every fsync."""

    def full(self, node: int) -> AbstractAsyncContextManager[None]:
        """Let every write to a file fail."""


class ProcessTampering:
    """Failing disks of a LocalCluster. `ledger` returns the ledger to note processes in."""

    def __init__(self, cluster: Any, ledger: Callable[[], Ledger]) -> None:
        self._cluster, self._ledger = cluster, ledger
        self._filled: Holds[Hold] = Holds()
        """By process id."""

    def failing(self, node: int) -> AbstractAsyncContextManager[None]:
        return self._injected(node, [f"{SYNCS}:error=EIO"])

    def slow(self, node: int, delay_ms: int) -> AbstractAsyncContextManager[None]:
        return self._injected(node, [f"{SYNCS}:delay_enter={delay_ms * 1000}"])

    @asynccontextmanager
    async def _injected(self, node: int, injections: Sequence[str]) -> AsyncIterator[None]:
        async with kept_injected(self._pid(node), injections, self._ledger()):
            yield

    @asynccontextmanager
    async def full(self, node: int) -> AsyncIterator[None]:
        pid = self._pid(node)
        hold, fault = Hold(), Fault(FULL, pid)
        self._filled.add(hold, [fault])
        try:
            await trio.to_thread.run_sync(full_disk.fill, pid)
            yield
        finally:
            if self._filled.drop(hold, [fault]) and self._cluster.pid(node) == pid:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(full_disk.free, pid)

    def _pid(self, node: int) -> int:
        pid: int | None = self._cluster.pid(node)
        if pid is None:
            raise CannotStrike(f"node {node} is no longer running")
        return pid
