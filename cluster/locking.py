"""The lock of a cluster's directory: it says that somebody runs the cluster, and keeps a second one out."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from .layout import ClusterError

_FILE_NAME = "cluster.lock"


def lock(directory: Path) -> IO[bytes]:
    """Held until it is closed; the directory is made if it is not there. ClusterError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = open(directory / _FILE_NAME, "ab")  # noqa: SIM115 (held as long as the cluster)
    except OSError as error:
        raise ClusterError(f"cannot use {directory}: {error.strerror}; choose a directory that can be written") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ClusterError(f"a cluster runs on {directory} already; stop it first, or use another directory") from None
    return file


def is_in_use(directory: Path) -> bool:
    """Whether somebody runs a cluster there."""
    try:
        with open(directory / _FILE_NAME, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
