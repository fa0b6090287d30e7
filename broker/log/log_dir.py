"""One log directory: its lock, its identity, its checkpoints, and the mark of a clean shutdown.

`.lock` is held as long as the process uses the directory. `meta.properties` names its owner. Each time the checkpoints are
written, the path must still lead to that lock: a mount that has vanished leaves an empty directory, in which writes succeed.
`.kafka_cleanshutdown` is written last, when everything is flushed, and removed before anything is opened: if it is there, the
files can be trusted.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock, RLock

from kraftlab.common.uuids import Uuid
from kraftlab.config import meta_properties
from kraftlab.config.errors import ConfigError
from kraftlab.config.meta_properties import Owner
from kraftlab.config.regular_files import OddFile, open_regular, remove_file

from . import checkpoints
from .checkpoints import TopicPartition
from .dir_names import CREATING_PREFIX, DirName, parse
from .errors import CorruptFile, LogDirFailed, LogDirInUse, NoSpace, disk_errors, free_bytes, translate
from .files import fsync_directory, read_small, write_durably
from .partition_log import PartitionLog

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
METADATA_LOG_DIR = "__cluster_metadata-0"
UNKNOWN_EPOCH = -1
CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.CLEANED_ENDS,
)

Logs = Callable[[], Iterable[PartitionLog]]
"""Returns the logs in a directory now."""

logger = logging.getLogger(__name__)


class LogDir:
    """An open, locked log directory. Methods that write raise LogDirFailed; TooManyOpenFiles may pass."""

    def __init__(self, path: Path, lock: int, directory_id: Uuid) -> None:
        self.path = path
        self.directory_id = directory_id
        self.was_clean = False
        self.previous_broker_epoch = UNKNOWN_EPOCH
        """The broker's epoch at its last clean shutdown; -1 after a crash, or if records went missing."""
        self._at_start: dict[str, dict[TopicPartition, int]] = {name: {} for name in CHECKPOINTS}
        """Offsets of each checkpoint when the directory was opened."""
        self.recovery_points, self.high_watermarks, self.log_start_offsets, self.cleaned_ends = self._at_start.values()
        self.missing: set[TopicPartition] = set()
        """Replicas without a directory whose offsets the checkpoints keep: they show that there were records."""
        self._written: dict[str, frozenset[TopicPartition]] = {}
        """Replicas with offsets in each checkpoint on the disk."""
        self._volume = os.fstat(lock).st_dev
        self._lock_descriptor = lock
        self._checkpoint_lock = RLock()
        self._all_lock = Lock()
        self._tickets = itertools.count(1)
        self._served = 0
        """Ticket of the newest full checkpoint write. Calls with a lower ticket need no write of their own."""

    @classmethod
    def open(cls, path: Path, owner: Owner) -> LogDir:
        """Lock the directory and read its files; nothing is changed before `begin_use`.

        LogDirInUse ends the broker. OSError and ConfigError (a missing, unreadable or foreign meta.properties) mean that this
        directory is offline. An empty directory is not formatted here: it may be the place where a disk was mounted, and
        replicas that the metadata counts on would be created on the wrong disk.
        """
        meta_properties.check_formatted(path, owner)
        lock = _lock(path)
        try:
            if meta_properties.add_missing_directory_id(path):
                logger.info("%s had no directory.id and has got one", path)
            meta = meta_properties.read_own(path, owner)
            log_dir = cls(path, lock, meta.directory_id)
            for name, offsets in log_dir._at_start.items():
                offsets.update(checkpoints.read_offsets(path / name))
                log_dir._written[name] = frozenset(offsets)
        except BaseException:
            os.close(lock)
            raise
        return log_dir

    def begin_use(self) -> None:
        """Begin to change the directory, after every check that may refuse the start: from now on it is clean only after another
        clean shutdown. OSError: this directory is offline.
        """
        self.take_clean_mark()

    def take_clean_mark(self) -> None:
        mark = self.path / CLEAN_SHUTDOWN
        try:
            content = read_small(mark)
        except FileNotFoundError:
            return
        except CorruptFile as error:
            logger.warning("the stop counts as a crash: %s", error)
            remove_file(mark)
            return
        self.was_clean = True
        try:
            self.previous_broker_epoch = int(json.loads(content)["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            logger.warning("%s marks a clean shutdown but holds no broker epoch", mark)
        mark.unlink()
        fsync_directory(self.path)

    def check_in_place(self) -> None:
        """LogDirFailed if the path no longer leads to this directory: its disk was unmounted, or another one mounted."""
        with disk_errors(self.path):
            locked = os.fstat(self._lock_descriptor)
            try:
                found = os.stat(self.path / LOCK)
                os.stat(self.path / meta_properties.FILE_NAME)
            except FileNotFoundError as error:
                raise OSError(error.errno, f"{error.filename} has vanished, as if the disk was unmounted") from error
            if (found.st_dev, found.st_ino) != (locked.st_dev, locked.st_ino):
                raise OSError(errno.ESTALE, "another directory is in its place, as if another disk was mounted")

    def scan(self) -> list[tuple[Path, DirName]]:
        """Return replicas' directories, by name. Half created ones are removed; unknown directories stay, with a warning."""
        found: list[tuple[Path, DirName]] = []
        for path in sorted(self.path.iterdir()):
            if not path.is_dir() or path.name == METADATA_LOG_DIR:
                continue
            name = parse(path.name)
            if path.name.startswith(CREATING_PREFIX):
                shutil.rmtree(path)
            elif name is None:
                logger.warning("%s does not have the name of a replica's directory (TOPIC-PARTITION) and is ignored", path)
            else:
                found.append((path, name))
        return found

    def write_recovery_points(self, logs: Logs) -> None:
        """Write the recovery points, after the log starts on which they may rest."""
        with self._checkpoint_lock:
            points = [(log, log.recovery_point) for log in logs()]
            self.write_log_start_offsets(logs)
            self._write(checkpoints.RECOVERY_POINTS, lambda: points)

    def write_checkpoints(self, logs: Logs) -> None:
        """Write all offsets of `logs`, which lie in this directory. Threads that wait for each other share one write."""
        ticket = next(self._tickets)
        with self._all_lock:
            if self._served > ticket:
                return
            served = next(self._tickets)
            self.check_in_place()
            self.write_recovery_points(logs)
            self._write(checkpoints.HIGH_WATERMARKS, lambda: ((log, log.high_watermark) for log in logs()))
            self.write_cleaned_ends(logs)
            self._served = served

    def write_cleaned_ends(self, logs: Logs) -> None:
        """Write the ends of the compacted parts, if there are any or were any."""
        if self._written.get(checkpoints.CLEANED_ENDS) or any(log.cleaned_to for log in logs()):
            self._write(checkpoints.CLEANED_ENDS, lambda: ((log, log.cleaned_to) for log in logs() if log.cleaned_to))

    def write_log_start_offsets(self, logs: Logs) -> None:
        self._write(
            checkpoints.LOG_START_OFFSETS, lambda: ((log, log.log_start_offset) for log in logs() if log.log_start_offset)
        )

    def _write(self, name: str, offsets: Callable[[], Iterable[tuple[PartitionLog, int]]]) -> None:
        """Replace a checkpoint. On a full disk it is removed instead, since a missing checkpoint is safe where an old one may not
        be.

        The offsets are read under the lock: an offset that was lowered and written must not rise again.

        LogDirFailed, or TooManyOpenFiles: nothing was written.
        """
        with self._checkpoint_lock, disk_errors(self.path):
            by_partition = {key: offset for key, offset in self._at_start[name].items() if key in self.missing}
            by_partition |= {(log.topic, log.partition): offset for log, offset in offsets()}
            try:
                checkpoints.write_offsets(self.path / name, by_partition)
            except OSError as error:
                if not isinstance(translate(self.path, error), NoSpace):
                    raise
                logger.warning("%s is full: its checkpoint %s is removed until it can be written again", self, name)
                for path in (self.path / f"{name}.tmp", self.path / name):
                    path.unlink(missing_ok=True)
                fsync_directory(self.path)
                by_partition = {}
            self._written[name] = frozenset(by_partition)

    def had_records(self, replica: TopicPartition) -> bool:
        """Return True if a checkpoint had an offset of the replica when the directory was opened."""
        return max(self.recovery_points.get(replica, 0), self.high_watermarks.get(replica, 0)) > 0

    def forget_checkpoints(self, replica: TopicPartition, logs: Logs) -> None:
        """Remove the offsets of a deleted replica before one of its name is created, which would inherit them."""
        self.missing.discard(replica)
        with self._checkpoint_lock:
            is_written = any(replica in written for written in self._written.values())
        if is_written:
            self.write_checkpoints(logs)

    def write_clean_mark(self, broker_epoch: int) -> None:
        """Write the mark of a clean shutdown, after everything else."""
        try:
            write_durably(self.path / CLEAN_SHUTDOWN, json.dumps({"version": 0, "brokerEpoch": broker_epoch}))
        except OSError as error:
            raise LogDirFailed(self.path, error) from error

    @property
    def total_bytes(self) -> int:
        """Size of the volume, -1 if unknown. Log directories on one volume report the same."""
        try:
            status = os.statvfs(self.path)
        except OSError:
            return -1
        return status.f_blocks * status.f_frsize

    @property
    def volume(self) -> int:
        """Identity of the file system that holds the directory."""
        return self._volume

    @property
    def usable_bytes(self) -> int:
        """Bytes that may still be written to the volume, -1 if unknown."""
        return free_bytes(self.path)

    def release(self) -> None:
        """Release the lock."""
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1

    def __repr__(self) -> str:
        return f"log directory {self.path}"


def _lock(path: Path) -> int:
    try:
        descriptor = open_regular(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OddFile as error:
        raise ConfigError(f"{path / LOCK} is {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        by_whom = f"process {holder}" if holder else "another process"
        raise LogDirInUse(
            f"log directory {path} is in use by {by_whom}; stop that process, or give this broker directories of its own"
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
