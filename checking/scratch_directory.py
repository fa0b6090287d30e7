"""A directory of its own for a run: in memory if the machine has a file system for that, and removed with the process.

The process holds a lock on its directory. A directory that a kill -9 has left has no lock: the next run removes it, and so does
`kraftlab chaos clean`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

IN_MEMORY = "/dev/shm"
MARK = f"kraftlab-run-{os.getuid()}-"
"""Prefix of the names of all such directories of this user."""
BEING_MADE_S = 60.0
"""Age up to which a directory without a lock stays, since its process can be about to lock it."""


def place() -> Path:
    """Return the directory in which runs make their directories."""
    return Path(IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else tempfile.gettempdir())


@contextmanager
def own_directory() -> Iterator[str]:
    """Make a directory, and remove it afterwards, also after SIGTERM. OSError if it cannot be made."""
    remove_abandoned()
    path = tempfile.mkdtemp(prefix=MARK, dir=place())
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _removed_at_sigterm(path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_abandoned() -> list[Path]:
    """Remove the directories of runs that were killed; return their paths."""
    removed = []
    for path in place().glob(f"{MARK}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime < BEING_MADE_S:
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
                removed.append(path)
            finally:
                os.close(lock)
    return removed


@contextmanager
def _removed_at_sigterm(path: str) -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield
        return

    def terminate(number: int, frame: object) -> None:
        shutil.rmtree(path, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
