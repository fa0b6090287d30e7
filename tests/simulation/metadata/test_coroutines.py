"""Coroutines in virtual time: the order in which they go on, and their ends."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import pytest

from kraftlab.simulation.metadata.coroutines import Error, Outcome, Signal, Task, Value, first_of, sleep


class Heap:
    def __init__(self) -> None:
        self.now_us = 0
        self._number = 0
        self._due: list[tuple[int, int, Callable[..., object], tuple[object, ...]]] = []

    def after(self, delay_us: int, action: Callable[..., object], *arguments: object) -> None:
        self._number += 1
        heappush(self._due, (self.now_us + delay_us, self._number, action, arguments))

    def run(self) -> None:
        while self._due:
            self.now_us, _, action, arguments = heappop(self._due)
            action(*arguments)


def test_a_signal_resumes_waiting_tasks_at_the_same_time_in_the_order_of_their_waits():
    heap, signal, seen = Heap(), Signal(), list[tuple[str, int]]()

    async def waits(name: str) -> None:
        await signal.wait()
        seen.append((name, heap.now_us))

    async def rings() -> None:
        await sleep(70)
        signal.set()
        seen.append(("rang", heap.now_us))
        await signal.wait()

    for name in ("first", "second"):
        Task(heap, waits(name)).start()
    Task(heap, rings()).start()
    heap.run()
    assert seen == [("rang", 70), ("first", 70), ("second", 70)]
    assert signal.is_set()


@pytest.mark.parametrize(("delay_us", "expected"), [(99, "done"), (101, None)])
def test_a_wait_that_takes_too_long_is_cancelled_and_cleans_up(delay_us: int, expected: str | None):
    heap, ended, results = Heap(), list[int](), list[Outcome[str | None]]()

    async def works() -> str:
        try:
            await sleep(delay_us)
            return "done"
        finally:
            ended.append(heap.now_us)

    Task(heap, first_of(heap, works, 100), results.append).start()
    heap.run()
    assert results == [Value(expected)]
    assert ended == [min(delay_us, 100)]


def test_an_error_goes_to_the_given_callback_and_otherwise_ends_the_run():
    heap, results = Heap(), list[Outcome[Any]]()

    async def fails() -> None:
        await sleep(5)
        raise KeyError("nobody expects this")

    Task(heap, fails(), results.append).start()
    heap.run()
    assert isinstance(results[0], Error)
    Task(heap, fails()).start()
    with pytest.raises(KeyError, match="nobody expects this"):
        heap.run()


def test_a_coroutine_of_a_process_pauses_and_ends_with_it():
    heap, seen = Heap(), list[int]()
    until_us = {"still": 0, "dead": 1 << 40}

    def postponed(action: Callable[..., object], *arguments: object) -> bool:
        if heap.now_us >= until_us["dead"]:
            return True
        wait_us = until_us["still"] - heap.now_us
        if wait_us > 0:
            heap.after(wait_us, action, *arguments)
        return wait_us > 0

    async def works() -> None:
        for _ in range(3):
            await sleep(10)
            seen.append(heap.now_us)

    Task(heap, works(), None, postponed).start()
    heap.after(15, until_us.update, {"still": 50})
    heap.after(55, until_us.update, {"dead": 55})
    heap.run()
    assert seen == [10, 50]


def test_a_cancelled_coroutine_goes_on_no_further():
    heap, seen = Heap(), list[str]()

    async def works() -> None:
        try:
            await sleep(10)
            seen.append("worked")
        finally:
            seen.append("left")

    task = Task(heap, works()).start()
    heap.after(5, task.cancel)
    heap.run()
    assert seen == ["left"]
    assert task.is_over
