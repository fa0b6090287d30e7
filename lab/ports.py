"""Claims of the clusters of one user on their ports, also while no process listens there.

Theory of operation. The process that runs a cluster holds a lock (flock) on one file for each port of its plan, from before a
node listens until the cluster is closed. So no other cluster takes the port of a node that is down. The kernel frees the locks
however the process ends. The files stay, since removing one would let two processes lock two files of one name; they hold the
last owner of the port. A process that only looks takes a shared lock for a moment: other lookers see past it, and a process that
wants the port itself waits until the look is over, so that no claim is refused for a port that is free.

A claim keeps out clusters of the same user on this machine, nothing else: ports are taken from a range that systems do not
assign, and any process that binds one by number gets it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO


def claims_directory() -> Path:
    """The directory of this user's claims, the same for every process and environment."""
    return Path(f"/tmp/kraftlab-{os.getuid()}/ports")


class PortClaims:
    """Claims of one cluster, which runs on the directory `owner`. OSError where locks are not available."""

    def __init__(self, owner: Path) -> None:
        self._owner = owner
        self._held: dict[int, IO[bytes]] = {}

    def take(self, ports: Iterable[int]) -> int | None:
        """Claim all ports, or none: then return the first port that another cluster has. Its own ports count as free."""
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
        """Release all ports."""
        _release(self._held.values())
        self._held.clear()


def is_claimed(port: int) -> bool:
    """Return True if a running cluster has the port."""
    with _opened(port) as file:
        return not is_locked(file, fcntl.LOCK_SH)


def owner_of(port: int) -> str:
    """The directory of the cluster that claimed the port last."""
    return os.fsdecode((claims_directory() / str(port)).read_bytes())


def _opened(port: int) -> IO[bytes]:
    """Open the file of a port; its lock ends when it is closed."""
    directory = claims_directory()
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, f"{directory} belongs to another user")
    return open(directory / str(port), "ab")


def is_locked(file: IO[bytes], kind: int) -> bool:
    """Return True if the lock was free; then this file has it instead of its former lock."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _release(files: Iterable[IO[bytes]]) -> None:
    for file in files:
        file.close()
