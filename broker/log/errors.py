"""Errors of a broker's logs.

`LogDirFailed` takes a whole log directory offline; its disk is not used again before a person brings it back. `NoSpace` and
`TooManyOpenFiles` do not: the append was rolled back and may be tried again. Every other error concerns one log and one call.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kraftlab.records.errors import InvalidRecords, LogError


class InvalidTimestamps(InvalidRecords):
    """Records with timestamps that the topic does not accept."""


class UnknownCodec(LogError):
    """A batch with an unknown compression in its attributes."""


class NoTransactions(LogError):
    """A transactional batch; transactions are not coordinated."""


class OutOfOrderSequence(LogError):
    """A batch that neither follows nor equals one of the newest of its producer."""


class StaleProducerEpoch(LogError):
    """A batch of an older epoch of its producer id."""


class ProducerIdInUse(LogError):
    """A new batch with the producer id and the sequence of a stored batch of another producer."""


class CorruptLog(LogError):
    """A segment is not valid. The other records of the log can be read."""


class DoubtfulLog(LogError):
    """A log that cannot be opened as it is, since it holds what the broker never leaves there. Nothing was changed."""


class CorruptFile(LogError):
    """A checkpoint or metadata file cannot be read; the text names the file and the fault."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")


class OffsetOutOfRange(LogError):
    """The requested offset is not in [start, end] of the log."""

    def __init__(self, name: str, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is not in {name}, which spans {start} to {end}")


class UnexpectedOffset(LogError):
    """Batches that carry offsets do not continue the log."""


class LogClosed(LogError):
    """The log object was closed, deleted or replaced by a move. Get the current one from the log manager and try again."""


class LogDirFailed(LogError):
    """An I/O error in a log directory, which is offline until a person brings it back, or the broker restarts.

    `raised_at_s` (monotonic clock): a failure from before the directory came back says nothing about it now.
    """

    def __init__(self, log_dir: Path, cause: OSError) -> None:
        super().__init__(
            f"log directory {log_dir} failed: {cause}; it stays offline until its disk is repaired and "
            "`kraftlab log-dirs --online` has brought it back, or the broker restarts"
        )
        self.log_dir = log_dir
        self.raised_at_s = time.monotonic()


class NoSpace(LogError):
    """The disk is full. Nothing was lost: the append was rolled back."""

    def __init__(self, log_dir: Path, free_bytes: int) -> None:
        super().__init__(
            f"no space left in {log_dir} ({free_bytes} bytes free); the append was rolled back. Free space or move replicas away"
        )
        self.log_dir = log_dir


class TooManyOpenFiles(LogError):
    """The process has reached its limit of open files; the disk is not at fault."""


class LogDirUnusable(LogError):
    """A log directory that cannot be used as it is, though its disk may work: not formatted, or of another node."""


class LogDirInUse(LogError):
    """Another process holds the directory's lock."""


class StartupRefused(LogError):
    """The directories contradict each other in a way that only a person can resolve; nothing was changed."""


class ReplicaOffline(LogError):
    """The replica may exist in an offline log directory, so it is not created again."""


class ReplicaConflict(LogError):
    """The request contradicts the present state: a missing log, an existing move, a name in use."""


class TopicNameTooLong(LogError):
    """The topic's directory name does not fit into a file name."""


_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_FILES = {errno.EMFILE, errno.ENFILE}


def free_bytes(log_dir: Path) -> int:
    """Bytes that an unprivileged process may still write in `log_dir`; -1 if unknown."""
    try:
        status = os.statvfs(log_dir)
    except OSError:
        return -1
    return status.f_bavail * status.f_frsize


def translate(log_dir: Path, error: OSError) -> LogError:
    """Return the error that an OSError in `log_dir` means for the broker."""
    if error.errno in _NO_SPACE:
        return NoSpace(log_dir, free_bytes(log_dir))
    if error.errno in _NO_FILES:
        return TooManyOpenFiles(f"{error}; raise the limit of open files (ulimit -n) and restart the broker")
    return LogDirFailed(log_dir, error)


@contextmanager
def disk_errors(log_dir: Path) -> Iterator[None]:
    """Translate an OSError inside the block into the error that it means for `log_dir`."""
    try:
        yield
    except OSError as error:
        raise translate(log_dir, error) from error
