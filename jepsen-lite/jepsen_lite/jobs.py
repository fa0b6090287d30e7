"""Work that has nothing to do with each other, done by this process or by several, which end with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from kraftlab.cli.ending import ends_with_its_workers
from kraftlab.quorum.simulation import workers as simulation

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes, which end with this one, by SIGTERM too."""
    with ends_with_its_workers(), simulation.worker_pool(jobs) as executor:
        yield executor


def done_by(jobs: int, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results in the order of the items."""
    with ends_with_its_workers() if jobs > 1 else nullcontext():
        yield from simulation.done_by(jobs, work, items)
