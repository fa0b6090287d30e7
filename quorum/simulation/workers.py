"""Processes that play seeds beside each other, and none that outlives who asked."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import ParamSpec, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Words = ParamSpec("Words")

AHEAD = 64
"""So many items for each worker are handed to the pool before their turn: one that takes long makes nobody idle."""
LAST_WORDS_S = 5.0
"""A worker whose parent is gone has so long to end by SIGTERM."""


class _Pool(ProcessPoolExecutor):
    """Its processes begin when there is something to do, deaf to Ctrl-C, which whole process groups get: an interpreter that is
    starting would have a traceback to say to it.
    """

    def submit(self, work: Callable[Words, Result], /, *args: Words.args, **kwargs: Words.kwargs) -> Future[Result]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(work, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def worker_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """So many fresh interpreters. They leave Ctrl-C to their parent, and end when it has ended, however it did.

    Whoever leaves early, by Ctrl-C or an error, waits for nothing: what is being played then is of no use.
    """
    executor = _Pool(max_workers=processes, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_work)
    try:
        yield executor
    except BaseException:
        for worker in multiprocessing.active_children():
            worker.terminate()
        executor.shutdown(wait=False, cancel_futures=True)
        raise
    executor.shutdown()


def done_by(processes: int, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results in the order of the items, worked out by this process or by several.

    `Executor.map` is not used: whoever leaves it early has it cancel what is still to be done, and a pool whose workers are ended
    then fails with a traceback at the first of those, in a thread of its own.
    """
    if processes <= 1:
        yield from map(work, items)
        return
    with worker_pool(processes) as executor:
        waiting = iter(items)
        futures = deque(executor.submit(work, item) for item in islice(waiting, AHEAD * processes))
        while futures:
            result = futures.popleft().result()
            futures.extend(executor.submit(work, item) for item in islice(waiting, 1))
            yield result


def _begin_work() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(LAST_WORDS_S)
        os._exit(1)
