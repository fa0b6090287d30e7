"""Processes that play seeds beside each other, and none that outlives who asked."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

LAST_WORDS_S = 5.0
"""A worker whose parent is gone has so long to end by SIGTERM."""


@contextmanager
def worker_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """So many fresh interpreters. They leave Ctrl-C to their parent, and end when it has ended, however it did.

    Whoever leaves early, by Ctrl-C or an error, waits for nothing: what is being played then is of no use.
    """
    executor = ProcessPoolExecutor(
        max_workers=processes, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_work
    )
    try:
        yield executor
    except BaseException:
        for worker in multiprocessing.active_children():
            worker.terminate()
        executor.shutdown(wait=False, cancel_futures=True)
        raise
    executor.shutdown()


def _begin_work() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(LAST_WORDS_S)
        os._exit(1)
