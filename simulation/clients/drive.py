"""Tasks of clients in the simulated world, which run concurrently and wake each other."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence

from ..metadata.coroutines import Error, Outcome, Resume, Task, Value, waiting
from .world import ClientWorld


class SimulatedBell:
    """Wakes each waiting task once."""

    def __init__(self, world: ClientWorld) -> None:
        self._world = world
        self._waiting: list[Resume[None]] = []

    async def wait(self, until_ns: int | None) -> None:
        """Wait for the next ring, or until that time."""

        def begin(resume: Resume[None]) -> None:
            def wake(result: Outcome[None]) -> None:
                if wake in self._waiting:
                    self._waiting.remove(wake)
                    resume(result)

            self._waiting.append(wake)
            if until_ns is not None:
                self._world.after(max(0, -(-until_ns // 1_000) - self._world.now_us), wake, Value(None))

        await waiting(begin)

    def ring(self) -> None:
        for wake in tuple(self._waiting):
            wake(Value(None))


class Together:
    """Tasks that run concurrently."""

    def __init__(self, world: ClientWorld) -> None:
        self._world = world
        self._running: list[Task[None]] = []

    async def run(self, tasks: Sequence[Callable[[], Coroutine[object, object, None]]]) -> None:
        """Run the tasks until all have ended, or raise the first error and cancel the others."""

        def begin(resume: Resume[None]) -> None:
            left = len(tasks)
            is_over = False

            def ended(result: Outcome[None]) -> None:
                nonlocal left, is_over
                left -= 1
                if not is_over and (left == 0 or isinstance(result, Error)):
                    is_over = True
                    resume(result)

            for task in tasks:
                self._running.append(Task(self._world, task(), ended).start())
            if not tasks:
                resume(Value(None))

        try:
            await waiting(begin)
        finally:
            self.cancel()

    def cancel(self) -> None:
        running, self._running = self._running, []
        for task in running:
            task.cancel()
