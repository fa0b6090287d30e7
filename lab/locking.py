"""The locks of a cluster's directory: one says that somebody runs the cluster, and keeps a second one out; the other that nodes
of it live, which outlive whoever ran it and was killed by some seconds.

Who only looks does not keep anybody out, as with ports (`ports.py`).
"""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import IO

from .layout import ClusterError
from .ports import is_locked

_FILE_NAME = "cluster.lock"
_NODES_FILE_NAME = "nodes.lock"
LEFT_WITHIN_S = 30.0
"""The fork server of a cluster that was killed gives brokers 10 seconds to stop, and then controllers as many."""
_POLL_S = 0.05


def lock(directory: Path) -> IO[bytes]:
    """Held until it is closed; the directory is made if it is not there. ClusterError."""
    if directory.exists() and not directory.is_dir():
        raise ClusterError(f"{directory} is not a directory; choose another one")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = open(directory / _FILE_NAME, "ab")  # noqa: SIM115 (held as long as the cluster)
        while not is_locked(file, fcntl.LOCK_EX):
            if not is_locked(file, fcntl.LOCK_SH):
                file.close()
                raise ClusterError(f"a cluster runs on {directory} already; stop it first, or use another directory")
    except OSError as error:
        raise ClusterError(f"cannot use {directory}: {error.strerror}; choose a directory that can be written") from error
    return file


def lock_of_nodes(directory: Path) -> IO[bytes]:
    """Held until all have closed it, or ended, who have it: this process and those that inherit it. Waits for the nodes of a
    cluster that was killed. ClusterError.
    """
    try:
        file = open(directory / _NODES_FILE_NAME, "ab")  # noqa: SIM115 (held as long as any node lives)
        if not _locked_in_time(file, fcntl.LOCK_EX):
            file.close()
            raise ClusterError(
                f"nodes of a cluster that was killed have not left {directory} within {LEFT_WITHIN_S:g} s; end them, or use "
                "another directory"
            )
    except OSError as error:
        raise ClusterError(f"cannot use {directory}: {error.strerror}; choose a directory that can be written") from error
    return file


def is_left(directory: Path) -> bool:
    """Whether no node of a cluster lives there; waits for those that are ending."""
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
    """Whether somebody runs a cluster there."""
    try:
        with open(directory / _FILE_NAME, "rb") as file:
            return not is_locked(file, fcntl.LOCK_SH)
    except OSError:
        return False
