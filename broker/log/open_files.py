"""Open files of the segments of all logs of the process: at most `capacity` at a time, the least recently used closed first.

A `LogFile` is the log file of one segment. `OpenFiles.pinned` yields its descriptor, opened if need be; while it is pinned the
descriptor stays valid. Beyond the capacity, files that nobody uses are closed and opened again on demand.
The capacity is well below the process's limit of open files, since sockets need the rest. The limit is soft: pinned files stay
open beyond it, and there are never more of them than threads and transfers. If the process reaches its limit
all the same, unused files are closed and the call is tried again.

Durability. Linux reports a failed write-back of a file's pages once to each open file description, and only to those that were
open when it failed; pages that failed are clean afterwards, and an inode without dirty pages may leave the memory with its
error. A descriptor that is closed over unsynced writes, and opened again for the fsync, could report success for lost data.
Therefore a file that was written to (`is_dirty`) is synced before it is closed, by the same descriptor: **a dirty file is always
open**. If that sync fails, the file keeps the error and every later use raises it, so that the owner takes the directory offline
as for its own sync. Files without unsynced writes are closed first. A thread that needs room never waits for the sync of
another volume's file, whose disk may hang: then the capacity is exceeded instead, by one for each such thread.

An owner that closes a file does so without a sync: it has synced the file, or gives the data up. A pinned file is closed when the
last pin is released. Names: a file is opened again by its path, which the owner changes when it renames the directory. Nothing
uses the file at that time, so no path is used between the rename and the change.

Threads: any.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kraftlab.metrics.histogram import Histogram, doubling
from kraftlab.metrics.recent import RecentValues

from .errors import LogClosed

CAPACITY_MAX = 4000
"""Enough for the files in use at a time; a broker stays below 5,000 descriptors."""
CAPACITY_MIN = 8
SHARE_OF_LIMIT = 4
"""A fourth of the limit of open files at most."""
CLOSED_AT_ONCE = 64
"""Files that are closed when the process has reached its limit."""

_NO_FILES = (errno.EMFILE, errno.ENFILE)
_REOPEN = os.O_RDWR | os.O_CLOEXEC


class LogFile:
    """A file that is opened on demand. The owner sets `path` and `is_dirty`, the rest belongs to `OpenFiles`.

    `volume` names what a sync of the file may have to wait for: the log directory.
    """

    __slots__ = ("descriptor", "failure", "is_closed", "is_dirty", "is_syncing", "path", "pins", "volume")

    def __init__(self, path: str, volume: str) -> None:
        self.path = path
        self.volume = volume
        self.descriptor = -1
        self.pins = 0
        self.is_dirty = False
        """The file has writes that were not synced. Set by the owner after each write, under a pin."""
        self.is_syncing = False
        """A sync is under way: writes may not be durable yet although the file is not dirty."""
        self.is_closed = False
        self.failure: OSError | None = None
        """The error of a failed sync: the content of the disk is unknown since."""

    def __repr__(self) -> str:
        state = "closed" if self.descriptor < 0 else f"descriptor {self.descriptor}, {self.pins} pins"
        return f"{self.path} ({state}{', dirty' if self.is_dirty else ''})"


class OpenFiles:
    """Table of open files. `capacity` None: a share of the process's limit of open files at the first use."""

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._sync_ended = threading.Condition(self._lock)
        self._open = 0
        self._clean: OrderedDict[LogFile, None] = OrderedDict()
        """Open files that nobody uses, least recently used first."""
        self._dirty: dict[str, OrderedDict[LogFile, None]] = {}
        """As `_clean`, for files with unsynced writes, by volume."""
        self.sync_durations, self.recent_syncs = Histogram(doubling(0.0001, 17)), RecentValues()
        """Seconds that syncs took."""

    @property
    def capacity(self) -> int:
        if self._capacity is None:
            self._capacity = default_capacity(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        return self._capacity

    @property
    def open_count(self) -> int:
        """Number of open files, pinned ones included."""
        return self._open

    @contextmanager
    def pinned(self, file: LogFile) -> Iterator[int]:
        """Yield a descriptor of the file, valid inside the block. OSError if the file cannot be opened; LogClosed."""
        descriptor = self._pin(file)
        try:
            yield descriptor
        finally:
            self._unpin(file)

    def create(self, file: LogFile) -> None:
        """Create the file, empty. OSError if it exists."""
        descriptor = self.open(file.path, _REOPEN | os.O_CREAT | os.O_EXCL, 0o644)
        with self._lock:
            file.descriptor = descriptor
            self._open += 1
            self._rest(file)
        self._make_room(file.volume)

    def sync(self, file: LogFile) -> None:
        """Make all writes that were made before the call durable. An OSError is final: the content of the disk is unknown."""
        if file.is_dirty or file.is_syncing or file.failure is not None:
            with self.pinned(file) as descriptor:
                self._sync(file, descriptor)

    def close(self, file: LogFile) -> None:
        """Close the file for good, without a sync: now, or when it is no longer pinned."""
        with self._lock:
            file.is_closed = True
            if file.pins or file.descriptor < 0:
                return
            descriptor = self._take_out(file)
        os.close(descriptor)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """Return a descriptor that the caller closes. If the process has too many files open, unused ones are closed first.

        Opening a FIFO in a file's place does not wait for its other end.
        """
        while True:
            try:
                return os.open(path, flags | os.O_NONBLOCK, mode)
            except OSError as error:
                if error.errno not in _NO_FILES or not self._close_some():
                    raise

    # Pins

    def _pin(self, file: LogFile) -> int:
        with self._lock:
            if file.descriptor >= 0 and file.failure is None and not file.is_closed:
                if not file.pins:
                    self._wake(file)
                file.pins += 1
                return file.descriptor
        return self._pin_opened(file)

    def _pin_opened(self, file: LogFile) -> int:
        _check(file)
        descriptor = self.open(file.path, _REOPEN)
        with self._lock:
            is_late = file.descriptor >= 0 or file.is_closed
            if not is_late:
                file.descriptor = descriptor
                file.pins = 1
                self._open += 1
        if is_late:  # Another thread has opened it meanwhile, or the owner has closed it.
            os.close(descriptor)
            return self._pin(file)
        self._make_room(file.volume)
        return descriptor

    def _unpin(self, file: LogFile) -> None:
        with self._lock:
            file.pins -= 1
            if file.pins:
                return
            if not (file.is_closed or file.failure is not None):
                self._rest(file)
                return
            descriptor, file.descriptor = file.descriptor, -1
            self._open -= 1
        os.close(descriptor)

    # Files that nobody uses. The lock is held.

    def _rest(self, file: LogFile) -> None:
        """Put an open file among the unused ones, as the last to be closed."""
        if file.is_dirty:
            self._dirty.setdefault(file.volume, OrderedDict())[file] = None
        else:
            self._clean[file] = None

    def _wake(self, file: LogFile) -> None:
        if self._clean.pop(file, file) is file:
            del self._dirty[file.volume][file]

    def _take_out(self, file: LogFile) -> int:
        """Return the descriptor of an unused file, which the caller closes."""
        self._wake(file)
        descriptor, file.descriptor = file.descriptor, -1
        self._open -= 1
        return descriptor

    # Closing unused files

    def _make_room(self, volume: str) -> None:
        """Close unused files beyond the capacity: clean ones first, then those of `volume`, after a sync."""
        while True:
            with self._lock:
                if self._open <= self.capacity:
                    return
                if self._clean:
                    file, descriptor = next(iter(self._clean)), -1
                    descriptor = self._take_out(file)
                elif self._dirty.get(volume):
                    file, descriptor = next(iter(self._dirty[volume])), -1
                    self._wake(file)
                    file.pins = 1
                else:
                    return
            if descriptor >= 0:
                os.close(descriptor)
            else:
                self._sync_unused(file)

    def _sync_unused(self, file: LogFile) -> None:
        """Sync a file that was pinned for that, and let it be closed. It keeps the error if that fails."""
        try:
            with suppress(OSError, LogClosed):
                self._sync(file, file.descriptor)
        finally:
            with self._lock:
                is_unused = file.pins == 1 and not file.is_dirty
                if is_unused:
                    file.pins, descriptor, file.descriptor = 0, file.descriptor, -1
                    self._open -= 1
            if is_unused:
                os.close(descriptor)
            else:
                self._unpin(file)

    def _sync(self, file: LogFile, descriptor: int) -> None:
        """Sync a pinned file, unless another thread's sync leaves nothing to do. What is written meanwhile makes it dirty again.

        Only one sync of a file runs at a time: Linux reports a failed write-back to one of two.
        """
        with self._sync_ended:
            while file.is_syncing:
                self._sync_ended.wait()
            _check(file)
            if not file.is_dirty:
                return
            file.is_dirty, file.is_syncing = False, True
        begun_s = time.perf_counter()
        try:
            os.fdatasync(descriptor)
        except OSError as error:
            file.failure = error
            raise
        finally:
            ended_s = time.perf_counter()
            with self._sync_ended:
                self.sync_durations.observe(ended_s - begun_s)
                self.recent_syncs.observe(ended_s - begun_s, ended_s)
                file.is_syncing = False
                self._sync_ended.notify_all()

    def _close_some(self) -> bool:
        """Close unused files because the process has too many open; return False if there is none."""
        with self._lock:
            chosen = [file for file, _ in zip(self._clean, range(CLOSED_AT_ONCE), strict=False)]
            descriptors = [self._take_out(file) for file in chosen]
        for descriptor in descriptors:
            os.close(descriptor)
        return bool(descriptors)


def _check(file: LogFile) -> None:
    if file.is_closed:
        raise LogClosed(f"{file.path} is closed")
    if file.failure is not None:
        raise OSError(errno.EIO, f"writing it back failed before ({file.failure})", file.path)


def default_capacity(limit: int) -> int:
    """Return the capacity for a process with that limit of open files; RLIM_INFINITY is negative."""
    return CAPACITY_MAX if limit < 0 else max(CAPACITY_MIN, min(CAPACITY_MAX, limit // SHARE_OF_LIMIT))


OPEN_FILES = OpenFiles()
"""The table of this process."""
