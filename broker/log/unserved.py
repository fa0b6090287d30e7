"""Replicas' directories that are not served, and what becomes of them.

- Unclaimed: a current log that the metadata does not assign to this broker, or not yet. It is set aside after a grace time.
- Set aside (strays): renamed to -stray. A person may remove, promote or drop them.
- Kept: copies of replicas whose own log may be in an offline directory, and doubtful directories (`startup.py`), which keep their
  names. A person may promote or drop them.
- Given up: renamed to -delete, and removed after the delay.

All changes are made under the log manager's lock. Methods that touch files raise LogDirFailed.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kraftlab.common.uuids import ZERO, to_text

from .checkpoints import replace_partition_metadata
from .creating import ReplicaId
from .descriptions import KeptDescription, StrayDescription, describe_kept, log_bytes_in, log_end_in
from .dir_names import DirKind, transient_name
from .errors import LogClosed, ReplicaConflict, disk_errors
from .files import rename_durably
from .partition_log import PartitionLog
from .startup import AssignedReplica

logger = logging.getLogger(__name__)


class _Deletion(NamedTuple):
    deadline_ms: int
    path: Path


class Doubt(NamedTuple):
    """Reason why a directory is not served, and the replica that it may belong to."""

    replica: ReplicaId
    reason: str


class UnservedDirectories:
    """The directories that a broker does not serve. `on_change` is called when a log is closed."""

    def __init__(self, delete_delay_ms: int, stray_grace_ms: int, on_change: Callable[[], None]) -> None:
        self.kept: list[PartitionLog] = []
        self._doubts: dict[Path, Doubt] = {}
        """Doubtful directories among `kept`."""
        self._strays: list[StrayDescription] = []
        self._unclaimed: dict[ReplicaId, tuple[int, PartitionLog]] = {}
        self._deletions: list[_Deletion] = []
        self._delete_delay_ms = delete_delay_ms
        self._stray_grace_ms = stray_grace_ms
        self._on_change = on_change

    def logs(self) -> list[PartitionLog]:
        """Logs that are open."""
        return [*self.kept, *(log for _, log in list(self._unclaimed.values()))]

    def forget(self, log_dir: Path) -> None:
        """Forget the contents of a log directory that failed."""
        self._unclaimed = {key: item for key, item in self._unclaimed.items() if item[1].log_dir != log_dir}
        self.kept = [log for log in self.kept if log.log_dir != log_dir]
        self._doubts = {path: doubt for path, doubt in self._doubts.items() if path.parent != log_dir}
        self._strays = [stray for stray in self._strays if stray.path.parent != log_dir]
        self._deletions = [item for item in self._deletions if item.path.parent != log_dir]

    # Unclaimed and set aside

    def claim(self, key: ReplicaId) -> PartitionLog | None:
        """Return an unclaimed log, which is served from now on; None if there is none."""
        _, log = self._unclaimed.pop(key, (0, None))
        for kept in [] if log is not None else list(self.kept):
            if kept.is_open and kept.directory in self._doubts and (kept.topic_id, kept.partition) == key:
                # The metadata was older than the topic whose id it has.
                self.taken(kept.directory)
                return kept
        return log

    def leave_unclaimed(self, key: ReplicaId, log: PartitionLog, now_ms: int) -> None:
        """Wait for the metadata; a second log of the same replica is set aside at once."""
        if key in self._unclaimed:
            self.set_aside(log)
        else:
            self._unclaimed[key] = (now_ms + self._stray_grace_ms, log)

    def free_name(self, plain: Path) -> None:
        """Set a log aside that has the name and is not served, for instance of a deleted topic of the same name."""
        for other, (_, unclaimed) in list(self._unclaimed.items()):
            if unclaimed.directory == plain:
                self.set_aside(self._unclaimed.pop(other)[1])
        for log in list(self.kept):
            if log.directory == plain:
                self.set_aside(log)

    def set_aside(self, log: PartitionLog) -> None:
        self.taken(log.directory)
        log.rename(log.log_dir / transient_name(log.topic, log.partition, DirKind.STRAY))
        log.close(LogClosed(f"{log.name} in {log.log_dir} was set aside"))
        self._on_change()
        with disk_errors(log.log_dir):
            size_bytes = log.size_bytes or log_bytes_in(log.directory)
        self._strays.append(StrayDescription(log.directory, log.topic, log.partition, size_bytes, log.log_end_offset))
        logger.warning(
            "a directory of %s that is not served was set aside, with offsets up to %d; its files are kept in %s: compare it "
            "with the log that is served (kraftlab dump-log); kraftlab log-dirs --promote and --drop serve and delete it",
            *(log.name, log.log_end_offset, log.directory),
        )

    def note_stray(self, path: Path, topic: str, partition: int) -> None:
        """Note a directory that was set aside before."""
        with disk_errors(path.parent):
            stray = StrayDescription(path, topic, partition, log_bytes_in(path), log_end_in(path))
        self._strays.append(stray)
        logger.warning(
            "a directory of %s-%d with offsets up to %d was set aside before and is not served: %s",
            *(topic, partition, stray.log_end_offset, path),
        )

    # Given up

    def retire(self, log: PartitionLog, now_ms: int) -> None:
        """Close a log and delete it later."""
        log.rename(log.log_dir / transient_name(log.topic, log.partition, DirKind.DELETE))
        log.close(LogClosed(f"{log.name} in {log.log_dir} was deleted"))
        self._on_change()
        self.delete_later(log.directory, now_ms)

    def delete_later(self, path: Path, now_ms: int) -> None:
        """Remove a directory, which has its -delete name already, after the delay."""
        self._deletions.append(_Deletion(now_ms + self._delete_delay_ms, path))

    def set_aside_overdue(self, now_ms: int) -> int:
        """Set unclaimed logs aside after their grace time; return their number."""
        overdue = [key for key, (deadline_ms, _) in self._unclaimed.items() if deadline_ms <= now_ms]
        for key in overdue:
            self.set_aside(self._unclaimed.pop(key)[1])
        return len(overdue)

    def expired(self, now_ms: int) -> list[Path]:
        """Directories after their delay; call `removed` once each is gone."""
        return [item.path for item in self._deletions if item.deadline_ms <= now_ms]

    def removed(self, path: Path) -> None:
        self._deletions = [item for item in self._deletions if item.path != path]

    def deadlines_ms(self) -> list[int]:
        return [item.deadline_ms for item in self._deletions] + [deadline_ms for deadline_ms, _ in self._unclaimed.values()]

    # Copies for a person to decide on

    def kept_of(self, key: ReplicaId) -> list[PartitionLog]:
        """Kept copies of a replica."""
        return [log for log in list(self.kept) if key in ((log.topic_id, log.partition), self._doubted(log))]

    def keep_doubtful(self, log: PartitionLog, key: ReplicaId, reason: str) -> None:
        """Keep a directory that may be the replica's, as it is."""
        self.kept.append(log)
        self._doubts[log.directory] = Doubt(key, reason)
        to_serve = ": to serve it, run kraftlab log-dirs --promote" if log.is_open else ""
        logger.error("%s is offline here: %s; %s is kept as it is%s", log.name, reason, log.directory, to_serve)

    def doubt(self, log: PartitionLog) -> str:
        """Reason why a kept log is not served; "" if only its replica's own log may be out of reach."""
        found = self._doubts.get(log.directory)
        return found.reason if found is not None else ""

    def doubted(self) -> set[ReplicaId]:
        """Replicas that doubtful directories may belong to."""
        return {found.replica for found in list(self._doubts.values())}

    def _doubted(self, log: PartitionLog) -> ReplicaId | None:
        found = self._doubts.get(log.directory)
        return found.replica if found is not None else None

    def copy_at(self, path: Path) -> PartitionLog | StrayDescription:
        """Return the kept copy or the stray in that directory. ReplicaConflict if there is none."""
        for log in list(self.kept):
            if log.directory == path:
                return log
        for stray in list(self._strays):
            if stray.path == path:
                return stray
        raise ReplicaConflict(f"there is no kept copy {path}; kraftlab log-dirs --describe --json names the copies")

    def is_unread(self, log: PartitionLog) -> bool:
        """Return True for a kept log that could not be opened."""
        return not log.is_open and log.directory in self._doubts

    def copy_to_serve(self, path: Path) -> PartitionLog | StrayDescription:
        """Return the copy in that directory. ReplicaConflict if there is none, or if its log cannot be opened as it is."""
        copy = self.copy_at(path)
        if isinstance(copy, PartitionLog) and self.is_unread(copy):
            raise ReplicaConflict(f"{path} cannot be served: {self.doubt(copy)}")
        return copy

    def identify(self, log: PartitionLog, replica: AssignedReplica, leader_epoch: int) -> None:
        """Give a copy without a valid topic id that of its replica. ReplicaConflict if it is of another topic."""
        key = (replica.topic_id, replica.partition)
        if (log.topic_id, log.partition) == key:
            return
        if log.topic_id != ZERO and not self.doubt(log):
            raise ReplicaConflict(
                f"{log.directory} is not a copy of {replica.topic}-{replica.partition}, but of a topic with the id "
                f"{to_text(log.topic_id)}, by its partition.metadata; if that file is wrong, remove it and restart the broker"
            )
        if log.latest_epoch > leader_epoch:
            raise ReplicaConflict(
                f"the records in {log.directory} are of leader epochs up to {log.latest_epoch}, but {replica.topic}-"
                f"{replica.partition} is only in epoch {leader_epoch}: they are of another topic; drop the copy or move it away"
            )
        with disk_errors(log.log_dir):
            replace_partition_metadata(log.directory, replica.topic_id)
        log.topic_id = replica.topic_id

    def taken(self, path: Path) -> None:
        """Forget a copy that is served from now on."""
        self.kept = [log for log in self.kept if log.directory != path]
        self._doubts.pop(path, None)
        self._strays = [stray for stray in self._strays if stray.path != path]

    def drop_copy(self, path: Path, now_ms: int) -> None:
        """Delete a copy after the usual delay. ReplicaConflict if there is none."""
        copy = self.copy_at(path)
        self.taken(path)
        if isinstance(copy, PartitionLog):
            self.retire(copy, now_ms)
        else:
            target = path.with_name(transient_name(copy.topic, copy.partition, DirKind.DELETE))
            with disk_errors(path.parent):
                rename_durably(path, target)
            self.delete_later(target, now_ms)
        logger.warning("the copy %s was dropped", path)

    def describe(
        self, log_dir: Path, missing: Iterable[KeptDescription]
    ) -> tuple[tuple[StrayDescription, ...], tuple[KeptDescription, ...]]:
        """Strays and kept copies in a log directory, and those of the `missing` replicas that belong there."""
        strays = tuple(stray for stray in list(self._strays) if stray.path.parent == log_dir)
        kept = [describe_kept(log, self.doubt(log)) for log in list(self.kept) if log.log_dir == log_dir]
        return strays, (*kept, *(each for each in list(missing) if each.path.parent == log_dir))


def remove_tree(path: Path) -> None:
    """Remove a directory that may be gone already, or be removed meanwhile."""
    while path.exists():
        with suppress(FileNotFoundError):
            shutil.rmtree(path)
