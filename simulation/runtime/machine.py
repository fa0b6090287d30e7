"""What a run in the shell's world still takes from this machine, and how that is the same in every run of a seed.

The order of tasks is drawn from the seed, as trio does for property tests. Controllers reach everything else through one seam
(`kraftlab.quorum.driver.environment`). Brokers take the names of deleted logs, the time of day, some pauses and the free space of
their disks from this process and its system, so these are replaced here; `WALL_S` gives the time of day of each task. Log
directories are in memory, where the system has such a place, under a name that differs in each run: logs show it as `SHOWN`.
"""

from __future__ import annotations

import gc
import logging
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from unittest import mock

import trio

from kraftlab.broker.log import log_dir

SHOWN = "/shell"
STARTED_S = 1_700_000_000.0
"""The wall clock's time when the mock clock's is 0."""
FREE_BYTES = 1 << 40
WALL_S: ContextVar[Callable[[], float]] = ContextVar("wall_s")
"""The time of day on the machine of the task's node; not set for tasks that are none of a node."""


@contextmanager
def deterministic(seed: str) -> Iterator[None]:
    """What nodes have frozen of the collector's (`kraftlab.quorum.driver.garbage_collection`) is garbage afterwards."""
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
    ):
        try:
            yield
        finally:
            loop._ALLOW_DETERMINISTIC_SCHEDULING = before
            random.setstate(chance)
            gc.unfreeze()


@contextmanager
def logged(directory: str) -> Iterator[list[str]]:
    """What all nodes log, with the mock clock's time."""
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


class _Lines(logging.Handler):
    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = directory
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record).replace(self._directory, SHOWN)
        self.lines.append(f"{trio.current_time():9.4f} {record.levelname:<7} {text}")
