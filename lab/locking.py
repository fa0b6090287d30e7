"""The locks of a cluster's directory. One is held by the process that runs the cluster, and keeps a second one out. The other is
held by the nodes, which outlive a killed parent by some seconds.

A process that only looks keeps no other out, as with ports (`ports.py`).
"""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import IO

from kraftlab.config.private_files import PRIVATE_DIRECTORY

from .cluster_plan import ClusterError
from .ports import is_locked

_FILE_NAME = "cluster.lock"
_NODES_FILE_NAME = "nodes.lock"
LEFT_WITHIN_S = 30.0
"""The fork server of a killed cluster gives brokers 10 seconds to stop, and then controllers 10 more."""
_POLL_S = 0.05


def lock(directory: Path) -> IO[bytes]:
    """Take the lock, held until it is closed; the directory is made if necessary. ClusterError."""
    if directory.exists() and not directory.is_dir():
        raise ClusterError(f"{directory} is not a directory; choose another one")
    try:
        directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        file = open(directory / _FILE_NAME, "ab")  # noqa: SIM115 (held as long as the cluster)
        while not is_locked(file, fcntl.LOCK_EX):
            if not is_locked(file, fcntl.LOCK_SH):
                file.close()
                raise ClusterError(f"a cluster runs on {directory} already; stop it first, or use another directory")
    except OSError as error:
        raise ClusterError(f"cannot use {directory}: {error.strerror}; choose a directory that can be written") from error
    return file


def lock_of_nodes(directory: Path) -> IO[bytes]:
    """Take the lock of the nodes, held by this process and by those that inherit it until all have closed it or ended. Waits for
    the nodes of a killed cluster. ClusterError.
    """
    try:
        file = open(directory / _NODES_FILE_NAME, "ab")  # noqa: SIM115 (held as long as any node lives)
        if not _locked_in_time(file, fcntl.LOCK_EX):
            file.close()
            raise ClusterError(
                f"nodes of a killed cluster still use {directory} after {LEFT_WITHIN_S:g} s; end them, or use another directory"
            )
    except OSError as error:
        raise ClusterError(f"cannot use {directory}: {error.strerror}; choose a directory that can be written") from error
    return file


def is_left(directory: Path) -> bool:
    """Return True if no node of a cluster lives there; wait for nodes that are ending."""
    try:
        with open(directory / _NODES_FILE_NAME, "rb") as file:
            return _locked_in_time(file, fcntl.LOCK_SH)
    except OSError:
        return True


def _locked_in_time(file: IO[bytes], kind: int) -> bool:
    deadline = time.monotonic() + LEFT_WITHIN_S
    while not is_locked(file, kind):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def is_in_use(directory: Path) -> bool:
    """Return True if a process runs a cluster there."""
    try:
        with open(directory / _FILE_NAME, "rb") as file:
            return not is_locked(file, fcntl.LOCK_SH)
    except OSError:
        return False
