"""One writer per lake at a time.

In a directory of this machine the lock is an `flock` of the file `_lock`. The system releases it when its holder ends, for
whatever reason, so a lock is never stale. The file names the holder. Other stores have no such lock; there the second commit of
one version is refused.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator

from ..errors import WrongUse
from ..storage import uris

LOCK_NAME = "_lock"


class LakeLocked(WrongUse):
    """Another process writes this lake."""


@contextlib.contextmanager
def writing(uri: str) -> Iterator[None]:
    """Hold the lake's lock, if the lake is on this machine. LakeLocked names the holder."""
    import fcntl

    if not uris.is_of_this_machine(uri):
        yield
        return
    directory = uris.local_path(uri)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK_NAME).open("ab+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(4096).decode(errors="replace") or "another process"
            raise LakeLocked(f"{directory} is being written by {holder}; wait until it ends, or stop it") from None
        except OSError as error:
            raise WrongUse(
                f"{directory} cannot be locked ({error.strerror}), so two writers could interfere; use a file system with locks"
            ) from None
        file.truncate(0)
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}: {' '.join(sys.argv)[:200]}".encode())
        file.flush()
        yield
