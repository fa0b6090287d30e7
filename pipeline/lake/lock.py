"""One writer per lake at a time.

In a directory of this machine the lock is an `flock` of the file `_lock`. The system releases it when its holder ends, for
whatever reason, so a lock is never stale. The file names the holder. Other stores have no such lock; there the second
commit of one version is refused.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator

import msgspec

from kraftlab.config.json_files import BadJson, decode_json

from ..errors import WrongUse
from . import uris

LOCK_NAME = "_lock"


class Holder(msgspec.Struct, frozen=True):
    """The process that writes a lake."""

    pid: int
    host: str
    since_ms: int
    command: str

    def __str__(self) -> str:
        seconds = max(0, time.time_ns() // 1_000_000 - self.since_ms) // 1000
        return f"process {self.pid} on {self.host}, for {seconds} s: {self.command}"


class LakeLocked(WrongUse):
    """Another process writes this lake."""


def _own_holder() -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return msgspec.json.encode(Holder(os.getpid(), socket.gethostname(), now_ms, " ".join(sys.argv)[:200]))


def _holder(data: bytes) -> str:
    try:
        return str(decode_json(data, Holder))
    except BadJson:
        return "an unknown process"


@contextlib.contextmanager
def writing(uri: str) -> Iterator[None]:
    """Hold the lake's lock, if the lake is on this machine. LakeLocked names the holder."""
    import fcntl

    if not uris.is_of_this_machine(uri):
        yield
        return

    directory = uris.local_path(uri)
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(os.pread(descriptor, 4096, 0))
            raise LakeLocked(f"{uris.shown(uri)} is being written by {holder}; wait until it ends, or stop it") from None
        except OSError as error:
            raise WrongUse(
                f"{uris.shown(uri)} cannot be locked ({error.strerror}), so two writers could interfere; "
                "use a file system with locks"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _own_holder(), 0)
        yield
    finally:
        os.close(descriptor)
