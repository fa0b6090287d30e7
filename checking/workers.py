"""Worker processes for independent work. None outlives the process that asked for it.

SIGTERM (`timeout`, a service's stop) ends this process by that signal, so that its parent sees why. Before that its workers end,
and what their pool has named on this machine is removed: otherwise Python's resource tracker warns of a leak.
"""

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
from multiprocessing import util
from typing import ParamSpec, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Words = ParamSpec("Words")

AHEAD = 64
"""So many items for each worker are handed to the pool before their turn: one that takes long makes nobody idle."""
LAST_WORDS_S = 5.0
"""A worker whose parent is gone has so long to end by SIGTERM."""
_OF_POOLS = 0
"""The priority from which on Python's finalizers are about locks and the like; those below wait for threads."""


@contextmanager
def ends_with_its_workers() -> Iterator[None]:
    """Around what uses a pool of processes. Who has plans of its own for SIGTERM keeps them."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


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
    with ends_with_its_workers():
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


def _end(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends two
    try:
        for worker in multiprocessing.active_children():
            worker.terminate()
        util._run_finalizers(_OF_POOLS)  # type: ignore[attr-defined]  # what the interpreter does at its end
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
