"""Worker processes for independent work. No worker outlives the process that started it.

SIGTERM (`timeout`, a service's stop) ends this process by that signal, so that its parent sees the reason. Before that, its
workers end and the named resources of their pool are removed: otherwise Python's resource tracker warns of a leak.
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
"""Number of items for each worker that the pool gets in advance, so that an item that takes long leaves no worker idle."""
MOST_PER_CORE = 8
"""Workers for each core. Each is an interpreter of tens of megabytes, and more of them do not help."""
LAST_WORDS_S = 5.0
"""Time that a worker has to end by SIGTERM after its parent has ended."""
_OF_POOLS = 0
"""The lowest priority of Python's finalizers of locks and the like. Finalizers below it wait for threads."""


@contextmanager
def ends_with_its_workers() -> Iterator[None]:
    """End the workers of this process at SIGTERM, while the context lasts. An existing handler of SIGTERM stays."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Pool(ProcessPoolExecutor):
    """A pool whose processes start with the first work and ignore Ctrl-C, which a whole process group gets: an interpreter that
    is starting would print a traceback.
    """

    def submit(self, work: Callable[Words, Result], /, *args: Words.args, **kwargs: Words.kwargs) -> Future[Result]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(work, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def worker_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of fresh interpreters. They leave Ctrl-C to their parent, and end when it has ended in any way.

    A caller that leaves early, by Ctrl-C or an error, does not wait for the work in progress.
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
    """Yield results in the order of the items, computed by this process or by several.

    `Executor.map` is not used: it cancels waiting items if its caller leaves early, and then a pool whose workers have ended
    fails at the first of these items, with a traceback in another thread.
    """
    processes = min(processes, MOST_PER_CORE * (os.cpu_count() or 1))
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
        os.kill(os.getpid(), signal.SIGKILL)


def _end(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends two
    try:
        for worker in multiprocessing.active_children():
            worker.terminate()
        util._run_finalizers(_OF_POOLS)  # type: ignore[attr-defined]  # what the interpreter does at its end
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
