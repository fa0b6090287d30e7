"""Work that has nothing to do with each other, done by this process or by several.

`Executor.map` is not used: whoever leaves it early has it cancel what is still to be done, and a pool whose workers are ended
then fails with a traceback at the first of those, in a thread of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from kraftlab.cli.ending import ends_with_its_workers
from kraftlab.quorum.simulation.workers import worker_pool

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes, which end with this one, by SIGTERM too."""
    with ends_with_its_workers(), worker_pool(jobs) as executor:
        yield executor


def done_by(jobs: int, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results in the order of the items."""
    if jobs <= 1:
        yield from map(work, items)
        return
    with workers(jobs) as executor:
        futures = deque(executor.submit(work, item) for item in items)
        while futures:
            yield futures.popleft().result()
