"""The lock of a cluster's directory: it says that somebody runs the cluster, and keeps a second one out.

Who only looks does not keep anybody out, as with ports (`ports.py`).
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from .layout import ClusterError
from .ports import is_locked

_FILE_NAME = "cluster.lock"


def lock(directory: Path) -> IO[bytes]:
    """Held until it is closed; the directory is made if it is not there. ClusterError."""
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


def is_in_use(directory: Path) -> bool:
    """Whether somebody runs a cluster there."""
    try:
        with open(directory / _FILE_NAME, "rb") as file:
            return not is_locked(file, fcntl.LOCK_SH)
    except OSError:
        return False
