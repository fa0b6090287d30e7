"""What can go wrong with a broker's logs, and whose fault it is.

`LogDirFailed` condemns a whole log directory; the disk is not asked again. `NoSpace` and `TooManyOpenFiles` do not: the append
was rolled back and may be tried again. Everything else concerns one log and one call.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LogError(Exception):
    """Base of this package's errors."""


class CorruptBatch(LogError):
    """Bytes that should be a record batch are not. `position` is where the batch begins, in the buffer or file that was read."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"corrupt record batch at position {position}: {reason}")
        self.position = position
        self.reason = reason


class CorruptLog(LogError):
    """A segment that was good when it was opened is no longer. Stop the broker; on the next start the log is scanned and cut."""


class CorruptFile(LogError):
    """A checkpoint or metadata file cannot be understood; names the file and what is wrong in it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class OffsetOutOfRange(LogError):
    """The offset asked for is not in [start, end] of the log."""

    def __init__(self, name: str, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is not in {name}, which spans {start} to {end}")
        self.offset = offset
        self.start = start
        self.end = end


class UnexpectedOffset(LogError):
    """Batches that carry offsets do not continue the log."""


class LogClosed(LogError):
    """The log object was closed, deleted or replaced by a move. Ask the log manager for the current one and try again."""


class LogDirFailed(LogError):
    """An I/O error in a log directory: it is offline until the broker restarts."""

    def __init__(self, log_dir: Path, cause: OSError) -> None:
        super().__init__(
            f"log directory {log_dir} failed: {cause}; it is offline until its disk is repaired and the broker restarts"
        )
        self.log_dir = log_dir
        self.cause = cause


class NoSpace(LogError):
    """The disk is full. Nothing was lost: the append was taken back."""

    def __init__(self, log_dir: Path, free_bytes: int) -> None:
        super().__init__(
            f"no space left in {log_dir} ({free_bytes} bytes free); the append was taken back. Free space or move replicas away"
        )
        self.log_dir = log_dir
        self.free_bytes = free_bytes


class TooManyOpenFiles(LogError):
    """The process may not open more files; the disk is not to blame."""


class LogDirInUse(LogError):
    """Another process holds the directory's lock."""


class StartupRefused(LogError):
    """The directories contradict each other in a way that only a person can settle; nothing was changed."""


class ReplicaOffline(LogError):
    """The replica may exist in a log directory that is offline, so it is not created anew."""


class ReplicaConflict(LogError):
    """The request contradicts what is there: a log that is absent, a move that exists, a name that is taken."""


class TopicNameTooLong(LogError):
    """The topic's directory name does not fit into a file name."""


_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_FILES = {errno.EMFILE, errno.ENFILE}


def free_bytes(log_dir: Path) -> int:
    """Bytes an unprivileged process may still write in `log_dir`; -1 if it cannot be told."""
    try:
        status = os.statvfs(log_dir)
    except OSError:
        return -1
    return status.f_bavail * status.f_frsize


def translate(log_dir: Path, error: OSError) -> LogError:
    """What an OSError met in `log_dir` means for the broker."""
    if error.errno in _NO_SPACE:
        return NoSpace(log_dir, free_bytes(log_dir))
    if error.errno in _NO_FILES:
        return TooManyOpenFiles(f"{error}; raise the limit of open files (ulimit -n) and restart the broker")
    return LogDirFailed(log_dir, error)


@contextmanager
def disk_errors(log_dir: Path) -> Iterator[None]:
    """Turn an OSError inside the block into the error that says what it means for `log_dir`."""
    try:
        yield
    except OSError as error:
        raise translate(log_dir, error) from error
