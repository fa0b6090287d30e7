"""One run of a seed: trio on a mock clock, with everything that a run takes from this machine the same in every run of the seed.

The order of tasks is drawn from the seed, as trio does for property tests. Controllers get everything else through one interface
(`kraftlab.quorum.driver.environment`). Brokers take the names of deleted logs, the time of day, some pauses, threads that load
logs, and the free space of their disks from this process and its system, so these are replaced here; `WALL_S` gives the time of
day of each task. Log directories are in memory if the system has a file system for that, and their path differs in each run: log
lines show `SHOWN`.
"""

from __future__ import annotations

import gc
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from unittest import mock

import trio
import trio.testing

from kraftlab.broker.log import loading, log_dir
from kraftlab.checking.scratch_directory import own_directory

from .held_tasks import HeldTasks

T = TypeVar("T")

SHOWN = "/shell"
STARTED_S = 1_700_000_000.0
"""The wall clock's time when the mock clock's is 0."""
STEPS_MAX = 20_000_000
"""Number of steps of tasks after which a run counts as endless."""
FREE_BYTES = 1 << 40
WALL_S: ContextVar[Callable[[], float]] = ContextVar("wall_s")
"""The time of day on the machine of the task's node. It is not set for tasks outside nodes."""


class StepLimit(trio.abc.Instrument):
    """Counts the steps of all tasks, and cancels `scope` after too many."""

    def __init__(self) -> None:
        self.count = 0
        self.scope = trio.CancelScope()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1
        if self.count == STEPS_MAX:
            self.scope.cancel()


class Machine(NamedTuple):
    """The parts of one run: tasks that can be held, a limit of steps, and a directory of its own."""

    held: HeldTasks
    steps: StepLimit
    directory: Path


class Ran(NamedTuple, Generic[T]):
    """A run's result. `steps` of tasks, and the lines of all nodes' `log`, are the same for the same seed."""

    result: T
    steps: int
    log: tuple[str, ...]


def run_seed(seed: str, main: Callable[[Machine], Awaitable[T]]) -> Ran[T]:
    """Run `main` under trio, the same in every run of the seed."""
    steps, held = StepLimit(), HeldTasks()
    with own_directory() as directory, _deterministic(seed), _logged(directory) as lines:
        clock = trio.testing.MockClock(autojump_threshold=0)
        result = trio.run(main, Machine(held, steps, Path(directory)), clock=clock, instruments=[steps, held])
    return Ran(result, steps.count, tuple(lines))


@contextmanager
def _deterministic(seed: str) -> Iterator[None]:
    """Make trio, uuids, pauses and times depend on the seed alone, while the context lasts. Afterwards, objects that nodes have
    frozen (`kraftlab.quorum.driver.garbage_collection`) can be collected.
    """
    loop: Any = trio._core._run
    before, chance, clock = loop._ALLOW_DETERMINISTIC_SCHEDULING, random.getstate(), time.time
    names = random.Random(f"{seed}/shell/names")

    def now() -> float:
        if not trio.lowlevel.in_trio_run():
            return clock()
        return WALL_S.get(lambda: STARTED_S + trio.current_time())()

    loop._ALLOW_DETERMINISTIC_SCHEDULING = True
    loop._r.seed(f"{seed}/tasks")
    random.seed(f"{seed}/shell/pauses")
    with (
        mock.patch.object(uuid, "uuid4", lambda: uuid.UUID(bytes=names.randbytes(16), version=4)),
        mock.patch.object(time, "time", now),
        mock.patch.object(log_dir, "free_bytes", lambda path: FREE_BYTES),
        mock.patch.object(loading, "ThreadPoolExecutor", _InTurn),
    ):
        try:
            yield
        finally:
            loop._ALLOW_DETERMINISTIC_SCHEDULING = before
            random.setstate(chance)
            gc.unfreeze()


@contextmanager
def _logged(directory: str) -> Iterator[list[str]]:
    """Collect the log lines of all nodes, with the mock clock's time."""
    handler = _Lines(directory)
    logger = logging.getLogger("kraftlab")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class _InTurn:
    """Works in place of threads that load log directories: threads would come in an order of their own."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> _InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, work: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
        return map(work, items)

    def submit(self, work: Callable[[], object]) -> None:
        work()


class _Lines(logging.Handler):
    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = directory
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record).replace(self._directory, SHOWN)
        self.lines.append(f"{trio.current_time():9.4f} {record.levelname:<7} {text}")
