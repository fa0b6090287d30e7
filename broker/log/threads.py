"""Blocking work on many logs of one directory, in a few threads that take one log after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def work_in_threads(threads: int, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the results of `work`, in the order of `items`. After an error no more items are begun; the first error is raised.

    The threads take items from one iterator: a submission for each of tens of thousands of small logs would cost more than the
    work.
    """
    if threads == 1 or len(items) < 2:
        return [work(item) for item in items]
    results: dict[int, Result] = {}
    waiting = iter(enumerate(items))
    errors: list[Exception] = []

    def take_some() -> None:
        try:
            for number, item in waiting:
                if errors:
                    return
                results[number] = work(item)
        except Exception as error:
            errors.append(error)

    with ThreadPoolExecutor(threads, "logs") as pool:
        for _ in range(min(threads, len(items))):
            pool.submit(take_some)
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(items))]
