"""Maps of a broker's log directories and of the logs in them. All changes are made under the log manager's lock.

Other threads read the maps without a lock. A map that loses several entries is replaced, so readers see it before or after.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from kraftlab.common.uuids import Uuid

from .creating import ReplicaId
from .descriptions import KeptDescription
from .errors import LogDirFailed
from .loading import LoadedDir
from .log_dir import LogDir
from .partition_log import PartitionLog
from .unserved import UnservedDirectories

logger = logging.getLogger(__name__)


class LogMaps:
    """The current log of each replica, the log that a move is building, and every log that is open without being served."""

    def __init__(self, log_dirs: Sequence[Path], delete_delay_ms: int, stray_grace_ms: int) -> None:
        self.log_dirs = tuple(path.absolute() for path in log_dirs)
        self.online: dict[Path, LogDir] = {}
        self.offline: dict[Path, str] = {}
        self.known_ids: dict[Path, Uuid] = {}
        self.online_since_s: dict[Path, float] = {}
        """Times (monotonic clock) at which directories came back."""
        self.loaded: list[LoadedDir] = []
        self.currents: dict[ReplicaId, PartitionLog] = {}
        self.futures: dict[ReplicaId, PartitionLog] = {}
        self.ended: list[PartitionLog] = []
        """Logs that an unexpected error has ended; the checkpoints keep their offsets until the next start."""
        self.unserved = UnservedDirectories(delete_delay_ms, stray_grace_ms, self.count_again)
        self.missing: dict[ReplicaId, KeptDescription] = {}
        """Replicas that had records and have no directory."""
        self._counted: Counter[Path] | None = None
        """Number of open logs in each directory, None if they have to be counted again."""

    def directory_ids(self) -> dict[Path, Uuid]:
        """Ids of the working directories, in the configured order."""
        found = ((path, self.online.get(path)) for path in self.log_dirs)
        return {path: log_dir.directory_id for path, log_dir in found if log_dir is not None}

    def logs_in(self, path: Path) -> list[PartitionLog]:
        """Every log that is open in a directory, served or not."""
        return [log for log in self.logs() if log.log_dir == path]

    def logs(self) -> Iterable[PartitionLog]:
        """Every open log, current ones last: of two logs of one name, checkpoints hold the offsets of the current one."""
        logs = [item.log for item in self.loaded if item.log is not None]
        logs += [*self.ended, *self.unserved.logs(), *self.futures.values(), *self.currents.values()]
        return {id(log): log for log in logs}.values()

    def write_before_truncation(self, log_dir: LogDir) -> None:
        log_dir.write_recovery_points(partial(self.logs_in, log_dir.path))
        log_dir.write_cleaned_ends(partial(self.logs_in, log_dir.path))

    def mark_offline(self, path: Path, error: Exception) -> None:
        """Take a failed directory out: its logs answer with the error from now on. A second call changes nothing."""
        log_dir = self.online.pop(path, None)
        if log_dir is None:
            return
        logger.error("log directory %s is offline: %s", path, error)
        self.offline[path] = str(error)
        self.count_again()
        failure = error if isinstance(error, LogDirFailed) else LogDirFailed(path, OSError(str(error)))
        for log in self.logs_in(path):
            log.abandon(failure)
        self.currents = {key: log for key, log in self.currents.items() if log.log_dir != path}
        self.futures = {key: log for key, log in self.futures.items() if log.log_dir != path}
        self.ended = [log for log in self.ended if log.log_dir != path]
        self.unserved.forget(path)
        self.loaded = [item for item in self.loaded if item.log_dir is not log_dir]
        log_dir.release()

    # Number of logs in each directory, for the placement of new ones

    def counts(self) -> Counter[Path]:
        if self._counted is None:
            self._counted = Counter(log.log_dir for log in self.logs())
        return self._counted

    def count(self, path: Path) -> None:
        """Count a log that is about to be created."""
        if self._counted is not None:
            self._counted[path] += 1

    def count_again(self) -> None:
        self._counted = None
