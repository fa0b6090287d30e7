"""Whose a port is while nothing listens there: claims of the clusters of one user.

Theory of operation. The process that runs a cluster holds a lock (flock) on one file for each port of its plan, from before
anything listens until the cluster is closed. So no other cluster takes the port of a node that is down. The kernel gives locks
free however the process ends. Files stay where they are, since removing one would let two processes lock two files of one name;
they say who had the port last. Who only looks takes a shared lock for a moment: others who look see past it, and who wants the
port itself waits until that is over, so that nobody is refused a port that no cluster has.

A claim keeps out clusters of the same user on this machine, nothing else: ports are taken from a range that systems do not hand
out, and whoever binds one of them by number gets it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO


def claims_directory() -> Path:
    """Of this user, wherever a process runs and whatever its environment says."""
    return Path(f"/tmp/kraftlab-{os.getuid()}/ports")


class PortClaims:
    """Of one cluster, which runs on the directory `owner`. OSError where locks cannot be had."""

    def __init__(self, owner: Path) -> None:
        self._owner = owner
        self._held: dict[int, IO[bytes]] = {}

    def take(self, ports: Iterable[int]) -> int | None:
        """Claim all of them, or none: then the first that another cluster has. What this one has already stays its own."""
        taken: dict[int, IO[bytes]] = {}
        for port in ports:
            if port in self._held or port in taken:
                continue
            file = _opened(port)
            while not is_locked(file, fcntl.LOCK_EX):
                if not is_locked(file, fcntl.LOCK_SH):
                    _release([file, *taken.values()])
                    return port
            taken[port] = file
            file.truncate(0)
            file.write(os.fsencode(self._owner))
            file.flush()
        self._held |= taken
        return None

    def close(self) -> None:
        """Give all of them free."""
        _release(self._held.values())
        self._held.clear()


def is_claimed(port: int) -> bool:
    """Whether a cluster that runs has it."""
    with _opened(port) as file:
        return not is_locked(file, fcntl.LOCK_SH)


def owner_of(port: int) -> str:
    """The directory of the cluster that claimed it last."""
    return os.fsdecode((claims_directory() / str(port)).read_bytes())


def _opened(port: int) -> IO[bytes]:
    """The file of a port; its lock ends when it is closed."""
    directory = claims_directory()
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, f"{directory} belongs to another user")
    return open(directory / str(port), "ab")


def is_locked(file: IO[bytes], kind: int) -> bool:
    """Whether the lock was free, and is this file's now instead of what it had."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _release(files: Iterable[IO[bytes]]) -> None:
    for file in files:
        file.close()
