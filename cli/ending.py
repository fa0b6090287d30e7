"""How a command ends that has work done by processes of its own, when it is told to by SIGTERM (`timeout`, a service's stop).

It ends as it would have, by the signal, so that who waits for it sees why. Before that its workers end, and what a pool of them
has named on this machine is taken back: else Python's own watcher finds that after it, and warns of a leak.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import util

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


def _end(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends two
    try:
        for worker in multiprocessing.active_children():
            worker.terminate()
        util._run_finalizers(_OF_POOLS)  # type: ignore[attr-defined]  # what the interpreter does at its end
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
