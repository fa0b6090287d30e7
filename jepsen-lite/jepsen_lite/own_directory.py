"""A directory of a run that needs nothing but one process: in memory where there is such a place, and gone with the process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .nemeses.ledger import Ledger

IN_MEMORY = "/dev/shm"


@contextmanager
def own_directory() -> Iterator[str]:
    """Gone afterwards, also after a SIGTERM; what a kill -9 leaves of it stands in a ledger. ClusterError if nothing can."""
    with Ledger() as ledger, _terminates(ledger):
        yield str(ledger.new_directory(within=IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None))


@contextmanager
def _terminates(ledger: Ledger) -> Iterator[None]:
    """A SIGTERM does what it would have done, behind what stands in the ledger: nothing in a run gets to hear of it."""
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield
        return

    def terminate(number: int, frame: object) -> None:
        try:
            ledger.close()
        finally:
            signal.signal(signal.SIGTERM, before)
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
