"""The drive of an interpreter under trio, on a real clock or a mock one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence

import trio

from ..workload import Port


class TrioDrive:
    """`new_port` makes the port of a process, once. A port, with its open connections, is dropped when its worker becomes another
    process; there are `workers` workers. `begin` marks time 0; before it, time is negative.
    """

    def __init__(self, new_port: Callable[[int], Port], workers: int) -> None:
        self._new_port, self._workers = new_port, workers
        self._ports: dict[int, Port] = {}
        self._origin = trio.current_time()

    def begin(self) -> None:
        self._origin = trio.current_time()

    def now_ns(self) -> int:
        return self.ns_at(trio.current_time())

    def ns_at(self, time_s: float) -> int:
        """Convert a time of trio's clock."""
        return int((time_s - self._origin) * 1e9)

    def port(self, process: int) -> Port:
        port = self._ports.get(process)
        if port is None:
            if process >= self._workers:
                self._ports.pop(process - self._workers, None)
            port = self._ports[process] = self._new_port(process)
        return port

    def bell(self) -> TrioBell:
        return TrioBell(self.now_ns)

    async def together(self, tasks: Sequence[Callable[[], Coroutine[object, object, None]]]) -> None:
        try:
            async with trio.open_nursery() as nursery:
                for task in tasks:
                    nursery.start_soon(task)
        except BaseExceptionGroup as group:
            raise first_of(group) from None


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception of a group that is not a cancellation."""
    kept = group.subgroup(lambda error: not isinstance(error, trio.Cancelled)) or group
    error = kept.exceptions[0]
    return first_of(error) if isinstance(error, BaseExceptionGroup) else error


class TrioBell:
    """A `Bell` of the scheduler."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._rung = trio.Event()

    async def wait(self, until_ns: int | None) -> None:
        rung = self._rung
        with trio.CancelScope() as scope:
            if until_ns is not None:
                scope.deadline = trio.current_time() + max(0.0, (until_ns - self._now_ns()) / 1e9)
            await rung.wait()

    def ring(self) -> None:
        self._rung.set()
        self._rung = trio.Event()
