"""All logs of a broker: their places, and how they are created, moved and deleted.

`open` locks the log directories and recovers their contents; a directory that cannot be read is offline and the others go on.
Once the broker knows the metadata, `start` carries out the start-up plan (`startup.py`). From then on the maps here hold the
current log of each replica, and the log that a move is building.

A replica's directory appears whole: it is made under a temporary name, with its topic id in it, made durable, and renamed; then
the new name is made durable. Of replicas that are created together, all directories are made, then all are made durable at once,
then all are renamed, then their parent is fsynced. Whatever the moment of a crash, the next start finds one of these states, for
each replica by itself:

- before the directories are durable: no directory, or one under the temporary name with any content, which is removed;
- before the renames: the same;
- between two renames, or before the parent's fsync: the temporary name or the final one, and under the final name everything that
  was made durable before. A replica without its directory is created again, empty: it was new, records that were appended to it
  meanwhile were not fsynced either, and its leader, or the other replicas, have them.

`swap`, the end of a move, renames the old directory to -delete and then the future one to the plain name. Each rename is fsynced,
with both logs locked: at every moment the next start finds at least one of the two, and the plan there says which one is served
(KIP-113's order). Directories to delete are renamed first and removed later by `remove_expired`.

Any I/O error takes its log directory offline: the call raises LogDirFailed, and the broker calls `mark_offline` with it, once,
and then reports it to the controller. When its disk has been repaired it comes back: `open_again` reads it as at a start, and
`take_back` carries out the plan for its contents beside the running logs.

Threads: the maps are read without a lock; every change of them, or of directories' names, is made under the manager's lock. It is
taken before logs' locks. Of a creation, only the renaming needs it. Calls block on disks: make them from worker threads.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from kraftlab.common.uuids import UNASSIGNED, ZERO, Uuid, to_text
from kraftlab.config.meta_properties import Owner
from kraftlab.records.errors import LogError

from .checkpoints import replace_partition_metadata
from .creating import NewReplica, ReplicaId, collecting, prepare_together, remove_new, removing_on_error
from .descriptions import DirDescription, KeptDescription, describe_missing, describe_replicas
from .destinations import Destinations
from .dir_names import DirKind, current_name, transient_name
from .ending import LogEnded, ending
from .errors import (
    LogClosed,
    LogDirFailed,
    LogDirUnusable,
    NoSpace,
    ReplicaConflict,
    ReplicaOffline,
    StartupRefused,
    TooManyOpenFiles,
    disk_errors,
)
from .expiry import remove_deleted
from .files import fsync_directory, sync_new_directories
from .loading import LoadedDir, ReturningDir, as_loaded, load_log_dir, load_together, open_again, open_dirs, open_stray
from .log_config import LogConfig
from .log_dir import UNKNOWN_EPOCH, LogDir
from .partition_log import PartitionLog
from .placement import Candidate, FreeBytes, rank
from .recovery import new_segments
from .startup import (
    IS_MISSING,
    MAY_BE_OFFLINE,
    Action,
    AssignedReplica,
    FoundDir,
    Running,
    Verb,
    plan_replica,
    plan_return,
    plan_startup,
)
from .threads import work_in_threads
from .unserved import Unserved, remove_tree

DELETE_DELAY_MS_DEFAULT = 60_000
STRAY_GRACE_MS_DEFAULT = 30_000

logger = logging.getLogger(__name__)


class LogManager:
    """Made by `open`; `start` comes before anything but `directory_ids` and `offline_dirs`."""

    def __init__(self, config: LogConfig, *, delete_delay_ms: int, stray_grace_ms: int) -> None:
        self.config = config
        self.delete_delay_ms = delete_delay_ms
        self.stray_grace_ms = stray_grace_ms
        self.log_dirs: tuple[Path, ...] = ()
        self._owner = Owner(-1, "")
        """Node id and cluster id that the directories have to name."""
        self._online: dict[Path, LogDir] = {}
        self._offline: dict[Path, str] = {}
        self._known_ids: dict[Path, Uuid] = {}
        self._online_since_s: dict[Path, float] = {}
        """Times (monotonic clock) at which directories came back."""
        self._loaded: list[LoadedDir] = []
        self._currents: dict[ReplicaId, PartitionLog] = {}
        self._futures: dict[ReplicaId, PartitionLog] = {}
        self._ended: list[PartitionLog] = []
        """Logs that an unexpected error has ended; the checkpoints keep their offsets until the next start."""
        self._unserved = Unserved(delete_delay_ms, stray_grace_ms, self._count_again)
        self._missing: dict[ReplicaId, KeptDescription] = {}
        """Replicas that had records and whose directory is missing."""
        self.destinations = Destinations()
        self._free = FreeBytes()
        self._cordoned: frozenset[Path] = frozenset()
        self._counted: Counter[Path] | None = None
        """Number of open logs in each directory, None if they have to be counted again."""
        self.recovery_threads = 1
        """Logs of one directory that are opened, or flushed at the end, at a time."""
        self._lock = threading.RLock()

    # Starting

    @classmethod
    def open(
        cls,
        log_dirs: Sequence[Path],
        *,
        node_id: int,
        cluster_id: str,
        config: LogConfig | None = None,
        delete_delay_ms: int = DELETE_DELAY_MS_DEFAULT,
        stray_grace_ms: int = STRAY_GRACE_MS_DEFAULT,
        metadata_dir: Path | None = None,
        recovery_threads: int = 1,
        config_file: str = "FILE",
    ) -> LogManager:
        """Lock, read and recover the log directories, each with a number of threads. `metadata_dir` keeps the remembered
        destinations (default: the first one).

        A directory that is missing, not formatted, of another node, or unreadable is offline. LogDirInUse; StartupRefused if
        none works, two are copies of one, or too many files are open.
        """
        manager = cls(config or LogConfig(), delete_delay_ms=delete_delay_ms, stray_grace_ms=stray_grace_ms)
        manager.log_dirs = tuple(path.absolute() for path in log_dirs)
        manager._owner = Owner(node_id, cluster_id, config_file)
        manager.recovery_threads = recovery_threads
        try:
            manager._open_dirs()
            manager.destinations = Destinations.open(metadata_dir or manager.log_dirs[0])
        except BaseException:
            manager.abandon()
            raise
        return manager

    def _open_dirs(self) -> None:
        self._online, self._offline = open_dirs(self.log_dirs, self._owner)
        self._known_ids = {path: log_dir.directory_id for path, log_dir in self._online.items()}
        # Every check that may refuse the start comes before the first change.
        for path, outcome in load_together(self._online.values(), self._load).items():
            if isinstance(outcome, TooManyOpenFiles):
                raise StartupRefused(str(outcome)) from outcome
            if isinstance(outcome, Exception):
                self.mark_offline(path, outcome)
            else:
                self._loaded += outcome
        if not self._online:
            raise StartupRefused(f"none of the log directories works: {'; '.join(self._offline.values())}")

    def _load(self, log_dir: LogDir) -> list[LoadedDir]:
        log_dir.begin_use()
        return load_log_dir(log_dir, self.config, partial(self._write_before_truncation, log_dir), self.recovery_threads)

    def start(self, assigned: Iterable[AssignedReplica], now_ms: int) -> list[Action]:
        """Carry out the start-up plan for the replicas that the metadata assigns to this broker; return the plan.

        StartupRefused: directories contradict each other and nothing was changed; or too many files are open. A directory that
        fails meanwhile goes offline; its replicas are then missing here.
        """
        with self._lock:
            loaded = {(item.found.log_dir, item.found.name): item for item in self._loaded}
            found = [item.found for item in self._loaded]
            assigned = [self._with_evidence(replica) for replica in assigned]
            plan = plan_startup(found, assigned, good_dirs=tuple(self.directory_ids().values()), has_bad_dirs=bool(self._offline))
            if refusals := [action.reason for action in plan if action.verb is Verb.REFUSE]:
                raise StartupRefused("; ".join(refusals))
            self._note_missing(plan, assigned)
            self._follow(plan, loaded, now_ms)
            return plan

    def _with_evidence(self, replica: AssignedReplica) -> AssignedReplica:
        """Note if the checkpoints of the assigned directory know the replica. Those of a new partition are of an older topic."""
        there = next((each for each in self._online.values() if each.directory_id == replica.directory), None)
        had_records = replica.has_changed and there is not None and there.had_records((replica.topic, replica.partition))
        return msgspec.structs.replace(replica, had_records=True) if had_records else replica

    def _note_missing(self, plan: Iterable[Action], assigned: Iterable[AssignedReplica]) -> None:
        """Note replicas whose directory is missing, and keep their offsets in the checkpoints for the next start."""
        missing = {(action.topic, action.partition) for action in plan if action.reason == IS_MISSING}
        by_id = {log_dir.directory_id: log_dir for log_dir in self._online.values()}
        for replica in assigned:
            if (name := (replica.topic, replica.partition)) in missing:
                logger.error("%s-%d is offline here: %s", *name, IS_MISSING)
                log_dir, key = by_id[replica.directory], (replica.topic_id, replica.partition)
                self._missing[key] = describe_missing(log_dir.path, *name, IS_MISSING)
                log_dir.missing.add(name)

    def _follow(self, plan: Iterable[Action], loaded: Mapping[tuple[Uuid, str], LoadedDir], now_ms: int) -> None:
        """Carry a plan out. A directory that fails meanwhile goes offline; StartupRefused: too many files are open."""
        for action in plan:
            if action.verb not in (Verb.SERVE, Verb.CREATE):
                logger.info("start: %r", action)
            try:
                self._carry_out(action, loaded, now_ms)
            except LogDirFailed as error:
                self.mark_offline(error.log_dir, error)
            except TooManyOpenFiles as error:
                raise StartupRefused(str(error)) from error
        self._loaded = []
        self._counted = None
        for log in self._currents.values():
            self.destinations.forget(log.topic, log.partition)
        for log_dir in list(self._online.values()):
            try:
                log_dir.write_checkpoints(partial(self._logs_in, log_dir.path))
            except LogDirFailed as error:
                self.mark_offline(error.log_dir, error)
            except LogError as error:
                logger.warning("%s: checkpoints were not written: %s", log_dir, error)

    def _carry_out(self, action: Action, loaded: Mapping[tuple[Uuid, str], LoadedDir], now_ms: int) -> None:
        def item_of(found: FoundDir | None) -> LoadedDir | None:
            return loaded.get((found.log_dir, found.name)) if found is not None else None

        subject, other = item_of(action.subject), item_of(action.other)
        if subject is None or subject.log_dir.path not in self._online:
            return
        # The directory of the other log may have failed since the plan was made.
        log, other_log = subject.log, other.log if other is not None and other.log_dir.path in self._online else None
        key = (subject.found.topic_id or b"", action.partition)
        for found in filter(None, (log, other_log)):
            # The name on the disk may be truncated; the metadata have the whole one.
            found.topic = action.topic
        match action.verb, log:
            case Verb.SERVE, PartitionLog():
                self._currents[key] = log
            case Verb.RESUME_MOVE, PartitionLog():
                self._currents[key] = log
                if other_log is not None:
                    self._futures[key] = other_log
            case Verb.PROMOTE, PartitionLog() if other is not None and other_log is None:
                self._unserved.kept.append(log)
            case Verb.PROMOTE, PartitionLog():
                self._end_move(key, other_log, log, now_ms)
            case Verb.DELETE, PartitionLog():
                self._unserved.retire(log, now_ms)
            case Verb.DELETE, None:
                self._unserved.delete_later(subject.path, now_ms)
            case Verb.SET_ASIDE, PartitionLog():
                is_current = subject.found.kind is DirKind.CURRENT and not subject.found.fault
                if is_current and key not in self._currents:
                    self._unserved.leave_unclaimed(key, log, now_ms)
                else:
                    self._unserved.set_aside(log)
            case Verb.KEEP, None:
                self._unserved.note_stray(subject.path, action.topic, action.partition)
            case Verb.KEEP, PartitionLog() if action.doubted is not None:
                self._unserved.keep_doubtful(log, (action.doubted, action.partition), action.reason)
            case Verb.KEEP, PartitionLog():
                self._unserved.kept.append(log)
            case _:
                raise AssertionError(f"no way to carry out {action!r}")

    def _end_move(self, key: ReplicaId, current: PartitionLog | None, future: PartitionLog, now_ms: int) -> None:
        """End a move as planned. If the target fails, the current log stays; if it is full, the move goes on later."""
        if current is None:
            self._promote(None, future, now_ms)
        else:
            self._currents[key] = current
            try:
                self._inherit(current, future)
                self._promote(current, future, now_ms)
            except LogDirFailed:
                raise
            except LogError as error:
                logger.warning("%s: the move to %s cannot end now, and goes on: %s", current.name, future.log_dir, error)
                self._futures[key] = future
                return
        self._currents[key] = future

    # A directory that comes back

    def open_again(self, path: Path) -> ReturningDir:
        """Lock, read and recover a directory that is offline; nothing of it is used before `take_back`. A new disk that was
        formatted and holds nothing may take its place.

        LogDirUnusable: it cannot come back as it is; LogDirInUse, TooManyOpenFiles.
        """
        if path not in self._offline:
            raise LogDirUnusable(f"{path} is not offline")
        return open_again(path, self._owner, self._known_ids, self._load)

    def take_back(self, returning: ReturningDir, assigned: Iterable[AssignedReplica], now_ms: int) -> list[Action]:
        """Use a directory that was opened again; return the plan that was carried out (`plan_return`).

        LogDirUnusable: it stays offline, since it contradicts another directory or has failed again.
        """
        path = returning.log_dir.path
        with self._lock:
            kept, self._unserved.kept = self._unserved.kept, []
            copies = [as_loaded(log, self._online[log.log_dir]) for log in kept]
            known = {(item.found.log_dir, item.found.name): item for item in (*returning.loaded, *copies)}
            running: dict[ReplicaId, Running] = {}
            for item in list(known.values()):
                key = (item.found.topic_id or b"", item.found.partition)
                current = self._currents.get(key)
                if current is not None and key not in running:
                    beside = as_loaded(current, self._online[current.log_dir])
                    known[beside.found.log_dir, beside.found.name] = beside
                    running[key] = Running(beside.found, key in self._futures)
            self._online[path], reason = returning.log_dir, self._offline.pop(path, "")
            self._loaded = [*returning.loaded, *copies]
            found = [item.found for item in self._loaded]
            waiting = [self._with_evidence(each) for each in assigned if (each.topic_id, each.partition) not in self._currents]
            good_dirs = tuple(self.directory_ids().values())
            plan = plan_return(found, running, waiting, good_dirs=good_dirs, has_bad_dirs=bool(self._offline))
            if refusals := [action.reason for action in plan if action.verb is Verb.REFUSE]:
                del self._online[path]
                self._offline[path], self._loaded, self._unserved.kept = reason, [], kept
                raise LogDirUnusable("; ".join(refusals))
            self._known_ids[path] = returning.log_dir.directory_id
            self._online_since_s[path] = time.monotonic()
            logger.info("log directory %s is back", path)
            self._note_missing(plan, waiting)
            try:
                self._follow(plan, known, now_ms)
            except StartupRefused as error:
                self.mark_offline(path, error)
            if path not in self._online:
                used = [id(log) for log in self._logs()]
                can_stay = [each for each in kept if each.is_open or self._unserved.is_unread(each)]
                self._unserved.kept += [each for each in can_stay if id(each) not in used]
                raise LogDirUnusable(f"{path} has failed again: {self._offline[path]}")
            return plan

    def is_over(self, failure: LogDirFailed) -> bool:
        """Return True if the directory has come back since that failure."""
        return failure.raised_at_s < self._online_since_s.get(failure.log_dir, 0.0)

    # Stopping

    def close(self, broker_epoch: int = UNKNOWN_EPOCH) -> None:
        """Flush everything, write the checkpoints and the mark of a clean shutdown, and release the directories."""
        with self._lock:
            self.destinations.save()
            for log_dir in list(self._online.values()):
                # A log that was never opened is as the last shutdown left it.
                logs = [log for log in self._logs_in(log_dir.path) if not (log_dir.was_clean and self._unserved.is_unread(log))]
                try:
                    # An ended log is not flushed: its directory was not shut down cleanly.
                    work_in_threads(self.recovery_threads, _flush_at_the_end, logs)
                    with disk_errors(log_dir.path):
                        sync_new_directories([log.directory for log in logs if log.write_producers()])
                    log_dir.write_checkpoints(partial(self._logs_in, log_dir.path))
                    for log in logs:
                        log.close()
                    log_dir.write_clean_mark(broker_epoch)
                except LogError as error:
                    logger.error("%s was not shut down cleanly: %s", log_dir, error)
            self.abandon()

    def abandon(self) -> None:
        """Release the directories as they are, as a crash would."""
        with self._lock:
            for log_dir in self._online.values():
                for log in self._logs_in(log_dir.path):
                    log.abandon(LogClosed(f"{log.name}: the broker has stopped"))
                log_dir.release()
            self._online.clear()

    # Directories

    @property
    def offline_dirs(self) -> dict[Path, str]:
        """Directories that failed, and the reasons."""
        return dict(self._offline)

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch of this broker at its last clean shutdown, -1 if that was not clean in all its directories."""
        epochs = {log_dir.previous_broker_epoch for log_dir in self._online.values()}
        return epochs.pop() if len(epochs) == 1 and not self._offline else UNKNOWN_EPOCH

    def directory_ids(self) -> dict[Path, Uuid]:
        """Ids of the working directories, in the configured order, as the broker registers them."""
        found = ((path, self._online.get(path)) for path in self.log_dirs)
        return {path: log_dir.directory_id for path, log_dir in found if log_dir is not None}

    def directory_id_of(self, path: Path) -> Uuid | None:
        """The id of a configured directory, even if it has failed; None if it was never read."""
        return self._known_ids.get(path)

    def mark_offline(self, path: Path, error: Exception) -> None:
        """Take a failed directory out: its logs answer with the error from now on. A second call changes nothing."""
        with self._lock:
            log_dir = self._online.pop(path, None)
            if log_dir is None:
                return
            logger.error("log directory %s is offline: %s", path, error)
            self._offline[path] = str(error)
            self._counted = None
            failure = error if isinstance(error, LogDirFailed) else LogDirFailed(path, OSError(str(error)))
            for log in self._logs_in(path):
                log.abandon(failure)
            self._currents = {key: log for key, log in self._currents.items() if log.log_dir != path}
            self._futures = {key: log for key, log in self._futures.items() if log.log_dir != path}
            self._ended = [log for log in self._ended if log.log_dir != path]
            self._unserved.forget(path)
            self._loaded = [item for item in self._loaded if item.log_dir is not log_dir]
            log_dir.release()

    # Replicas

    def take_out(self, log: PartitionLog) -> bool:
        """Serve a log no more that has ended; its directory stays. False if the log is not served."""
        with self._lock:
            served = len(self._currents) + len(self._futures)
            self._currents = {key: each for key, each in self._currents.items() if each is not log}
            self._futures = {key: each for key, each in self._futures.items() if each is not log}
            was_served = served > len(self._currents) + len(self._futures)
            if was_served:
                self._ended.append(log)
            return was_served

    def get(self, topic_id: Uuid, partition: int) -> PartitionLog | None:
        """The replica's current log, None if there is none or it is offline."""
        return self._currents.get((topic_id, partition))

    def future(self, topic_id: Uuid, partition: int) -> PartitionLog | None:
        """The log that a move is building."""
        return self._futures.get((topic_id, partition))

    def currents(self) -> list[PartitionLog]:
        return list(self._currents.values())

    def futures(self) -> list[PartitionLog]:
        """Logs of running moves, including those resumed at start."""
        return list(self._futures.values())

    @property
    def cordoned_dirs(self) -> frozenset[Path]:
        """Directories that get no new replicas, working or not."""
        return self._cordoned

    def cordon(self, log_dirs: frozenset[Path]) -> None:
        """Set the directories that get no new replicas as long as there are others (KIP-1066). Does not block."""
        self._cordoned = log_dirs

    def get_or_create(
        self,
        topic: str,
        topic_id: Uuid,
        partition: int,
        directory_id: Uuid | None = None,
        *,
        is_new: bool = False,
        is_counted_on: bool = False,
        can_be_filled: bool = False,
        config: LogConfig | None = None,
    ) -> PartitionLog:
        """Return the replica's current log, created if there is none.

        It is created in the remembered destination, otherwise in the assigned directory, otherwise where `placement` puts it.

        `is_new`: the broker certainly never had the replica; `is_counted_on`, `can_be_filled`: see `NewReplica`.
        ReplicaOffline: it may exist in a directory that is offline, doubtful or missing. LogDirFailed, NoSpace: the chosen
        directory could not take it; after `mark_offline` another one is chosen. ReplicaConflict: the name is in use there.
        """
        key = (topic_id, partition)
        known = self._claim(key)
        if known is not None:
            return known
        wanted = NewReplica(
            *(topic, topic_id, partition, directory_id or UNASSIGNED, is_new, config or self.config, is_counted_on, can_be_filled)
        )
        refused = self.create_together([wanted])
        if refused:
            raise refused[0]
        return self._currents[key]

    def create_together(self, wanted: Sequence[NewReplica]) -> list[LogError]:
        """Create missing logs as `get_or_create` does. Return the errors of replicas that could not be created, and of
        directories whose new names may not be durable.
        """
        refused: list[LogError] = []
        placed: list[tuple[NewReplica, LogDir]] = []
        with self._lock:
            self._counts()
            for replica in wanted:
                if self._claim(replica.key) is None:
                    with collecting(refused):
                        placed.append((replica, self._place(replica)))
        prepared: list[tuple[NewReplica, LogDir, Path]] = []
        for log_dir in {id(log_dir): log_dir for _, log_dir in placed}.values():
            with collecting(refused):
                prepared += prepare_together(log_dir, [replica for replica, there in placed if there is log_dir], refused)
        with self._lock:
            for replica, log_dir, directory in prepared:
                if self._claim(replica.key) is not None:
                    shutil.rmtree(directory, ignore_errors=True)
                    continue
                name = current_name(replica.topic, replica.partition)
                with collecting(refused):
                    self._unserved.free_name(log_dir.path / name)
                    self._currents[replica.key] = self._open_new(log_dir, directory, name, replica, start_offset=0)
                    self._missing.pop(replica.key, None)
                    self.destinations.forget(replica.topic, replica.partition)
        for path in {log_dir.path for _, log_dir, _ in prepared}:
            with collecting(refused), disk_errors(path):
                fsync_directory(path)
        return refused

    def _claim(self, key: ReplicaId) -> PartitionLog | None:
        """Return the replica's current log, None if there is none; an unclaimed log becomes the current one."""
        with self._lock:
            if key not in self._currents and (log := self._unserved.claim(key)) is not None:
                self._currents[key] = log
            return self._currents.get(key)

    def _place(self, replica: NewReplica) -> LogDir:
        """Choose the directory of a new log, and count the log there."""
        log_dir = self._choose(replica)
        self._count(log_dir, replica.config.segment_bytes)
        return log_dir

    def _choose(self, replica: NewReplica) -> LogDir:
        topic, partition, directory_id = replica.topic, replica.partition, replica.directory_id
        for log in [] if replica.is_new else self._unserved.kept_of(replica.key):
            doubt = self._unserved.doubt(log)
            if not doubt or not replica.can_be_filled:
                raise ReplicaOffline(f"{topic}-{partition} is not created: {doubt or MAY_BE_OFFLINE}")
            self._unserved.set_aside(log)
        if replica.key in self._missing and not replica.is_new and not replica.can_be_filled:
            raise ReplicaOffline(f"{topic}-{partition} is not created: {IS_MISSING}")
        if not self._online:
            raise ReplicaOffline(f"{topic}-{partition} cannot be created: no log directory works")
        ids = {log_dir.directory_id: log_dir for log_dir in self._online.values()}
        destination = ids.get(self.destinations.of(topic, partition, replica.topic_id) or UNASSIGNED)
        if destination is not None:
            return destination
        wanted = UNASSIGNED if replica.is_new and directory_id not in ids else directory_id
        assigned = AssignedReplica(topic, replica.topic_id, partition, wanted, replica.is_counted_on and not replica.is_new)
        [action] = plan_replica([], assigned, good_dirs=tuple(ids), has_bad_dirs=bool(self._offline))
        if action.verb is not Verb.CREATE:
            raise ReplicaOffline(f"{topic}-{partition} is not created: {action.reason}")
        if directory_id in ids:
            return ids[directory_id]
        counted, online = self._counts(), list(self._online.values())
        ranks = [
            rank(Candidate(log_dir.path in self._cordoned, free_bytes, counted[log_dir.path]))
            for log_dir, free_bytes in zip(online, self._free.of(online), strict=True)
        ]
        return online[ranks.index(min(ranks))]

    def _count_again(self) -> None:
        self._counted = None

    def _counts(self) -> Counter[Path]:
        if self._counted is None:
            self._counted = Counter(log.log_dir for log in self._logs())
        return self._counted

    def _count(self, log_dir: LogDir, size_bytes: int) -> None:
        """Count a log that is about to be created and will soon have that size."""
        self._free.charge(log_dir, size_bytes)
        if self._counted is not None:
            self._counted[log_dir.path] += 1

    def create_future(self, topic_id: Uuid, partition: int, log_dir: Path) -> PartitionLog:
        """Begin a move of the replica to `log_dir`: make an empty log that starts where the current one does.

        ReplicaConflict if there is no current log, the replica is there already, or another move is under way. Other directories
        may be offline.
        """
        with self._lock:
            current = self._current(topic_id, partition)
            target = self._online.get(log_dir)
            if target is None:
                raise ReplicaConflict(f"{log_dir} is not a working log directory; {current.name} cannot move there")
            if current.log_dir == log_dir or (topic_id, partition) in self._futures:
                raise ReplicaConflict(f"{current.name} is in {log_dir} already or is being moved; cancel the move first")
            replica = NewReplica(current.topic, topic_id, partition, target.directory_id, False, current.config)
            name = transient_name(current.topic, partition, DirKind.FUTURE)
            self._count(target, current.size_bytes)
            # In checkpoints, both would have the same name.
            self._unserved.free_name(log_dir / current_name(current.topic, partition))
            refused: list[LogError] = []
            made = prepare_together(target, [replica], refused)
            if refused:
                raise refused[0]
            [(_, _, prepared)] = made
            log = self._open_new(target, prepared, name, replica, start_offset=current.log_start_offset)
            try:
                with disk_errors(log_dir):
                    fsync_directory(log_dir)
            except LogError:
                remove_new(log, prepared)
                raise
            self._futures[topic_id, partition] = log
            return log

    def swap(self, topic_id: Uuid, partition: int, now_ms: int) -> PartitionLog:
        """End a move: the future log becomes the current one, the old one is deleted later. Return the new current log.

        Appends to the old log raise LogClosed from then on. ReplicaConflict, nothing changed: the logs do not end alike yet, the
        name is in use, or there is no move. LogDirFailed: if the target failed, the old log is still the current one.
        """
        with self._lock:
            current, future = self._current(topic_id, partition), self._futures.get((topic_id, partition))
        if future is None:
            raise ReplicaConflict(f"{current.name} is not being moved")
        self._inherit(current, future)  # This takes long; other callers need not wait for it.
        with self._lock:
            if self._currents.get((topic_id, partition)) is not current or self._futures.get((topic_id, partition)) is not future:
                raise ReplicaConflict(f"the move of {current.name} has been dropped")
            with current.exclusive(), future.exclusive():
                if future.log_start_offset != current.log_start_offset or (current.log_end_offset, current.latest_epoch) != (
                    future.log_end_offset,
                    future.latest_epoch,
                ):
                    raise ReplicaConflict(
                        f"{current.name} has not caught up: {future!r} in {future.log_dir}, {current!r} in {current.log_dir}"
                    )
                plain = future.log_dir / current_name(future.topic, future.partition)
                self._unserved.free_name(plain)
                if os.path.exists(plain):
                    raise ReplicaConflict(f"{plain} exists already and was not made by this broker; move it away")
                future.high_watermark = current.high_watermark
                self._promote(current, future, now_ms)
                self._currents[topic_id, partition] = future
                del self._futures[topic_id, partition]
            return future

    def _inherit(self, current: PartitionLog, future: PartitionLog) -> None:
        """Copy the log start, the high watermark and the end of the compacted part, which are not in the records, and make them
        durable. No log is compacted while it moves.
        """
        future.advance_log_start(current.log_start_offset)
        future.set_cleaned_to(current.cleaned_to)
        future.high_watermark = current.high_watermark
        future.adopt_producers(current)
        future.flush()
        target = self._online.get(future.log_dir)
        if target is None:
            raise LogDirFailed(future.log_dir, OSError(self._offline.get(future.log_dir, "it was released")))
        target.write_checkpoints(partial(self._logs_in, target.path))

    def _promote(self, old: PartitionLog | None, future: PartitionLog, now_ms: int) -> None:
        """Make the two renames at the end of a move, in KIP-113's order."""
        plain = future.log_dir / current_name(future.topic, future.partition)
        self._unserved.free_name(plain)
        if old is None:
            future.rename(plain)
            return
        before = old.directory
        old.rename(old.log_dir / transient_name(old.topic, old.partition, DirKind.DELETE), may_wait=True)
        try:
            future.rename(plain, may_wait=True)
        except LogError:
            old.rename(before)
            raise
        old.close(LogClosed(f"{old.name} has moved from {old.log_dir} to {future.log_dir}"))
        self._counted = None
        self._unserved.delete_later(old.directory, now_ms)

    def drop_future(self, topic_id: Uuid, partition: int, now_ms: int) -> bool:
        """Cancel a move; False if there was none."""
        with self._lock:
            future = self._futures.pop((topic_id, partition), None)
            if future is not None:
                self._unserved.retire(future, now_ms)
            return future is not None

    def delete(self, topic_id: Uuid, partition: int, now_ms: int) -> bool:
        """Give the replica up: its logs are deleted later. False if there was none."""
        with self._lock:
            current = self._currents.pop((topic_id, partition), None)
            ended = [log for log in self._ended if (log.topic_id, log.partition) == (topic_id, partition)]
            self._ended = [log for log in self._ended if log not in ended]
            try:
                self.drop_future(topic_id, partition, now_ms)
                self._missing.pop((topic_id, partition), None)
                for log in ended:
                    self._unserved.retire(log, now_ms)
                for log in self._unserved.kept_of((topic_id, partition)):
                    if (log.topic_id, log.partition) != (topic_id, partition):
                        self._leave(log, now_ms)
                    else:
                        self._unserved.drop_copy(log.directory, now_ms)
            finally:
                if current is not None:
                    self._unserved.retire(current, now_ms)
            return current is not None

    def _leave(self, log: PartitionLog, now_ms: int) -> None:
        """Give a doubtful directory up, whose replica has left this broker. It may belong to a topic that is not known yet."""
        self._unserved.taken(log.directory)
        if log.topic_id == ZERO:
            self._unserved.set_aside(log)
        else:
            self._unserved.leave_unclaimed((log.topic_id, log.partition), log, now_ms)

    # Kept copies

    def has_kept(self, topic_id: Uuid, partition: int) -> bool:
        """Return True if a copy of the replica is kept."""
        return bool(self._unserved.kept_of((topic_id, partition)))

    def keep_future(self, topic_id: Uuid, partition: int) -> None:
        """Keep the log that a move was building, since the current one was in a directory that failed."""
        with self._lock:
            future = self._futures.pop((topic_id, partition), None)
            if future is not None:
                self._unserved.kept.append(future)

    def in_doubt(self) -> set[ReplicaId]:
        """Replicas that are offline because their directory is doubtful or missing."""
        return {*self._missing, *self._unserved.doubted()}

    def replica_of_copy(self, path: Path) -> tuple[str, int]:
        """Topic and partition of a kept copy, or of one that was set aside. ReplicaConflict if there is none."""
        copy = self._unserved.copy_at(path)
        return copy.topic, copy.partition

    def promote_copy(self, path: Path, replica: AssignedReplica, leader_epoch: int) -> PartitionLog:
        """Make a kept copy, or one that was set aside, the current log of a replica that has none. A damaged `partition.metadata`
        is written again. `leader_epoch`: that of the partition.

        ReplicaConflict if there is no such copy, the replica has a log, or the copy is of another topic.
        """
        key = (replica.topic_id, replica.partition)
        with self._lock:
            current = self._currents.get(key)
            if current is not None:
                raise ReplicaConflict(
                    f"{current.name} has a working log in {current.log_dir}; move the replica instead. To serve the copy in its "
                    f"place: stop the other brokers that have {current.name}, because a leader without these records would "
                    f"remove them from the copy; stop this broker, move {current.directory} away, copy its partition.metadata "
                    f"into the copy, rename the copy to {current.name} and start this broker; if {current.name} then has no "
                    "leader, run kraftlab leader-election --election-type unclean; then start the other brokers"
                )
            copy = self._unserved.copy_to_serve(path)
            log = copy if isinstance(copy, PartitionLog) else self._open_stray(path, replica)
            try:
                self._identify(log, replica, leader_epoch)
            except LogError:
                if log is not copy:
                    log.close()
                raise
            if log.directory != log.log_dir / current_name(log.topic, log.partition):
                self._promote(None, log, 0)
            self._unserved.taken(path)
            self._unserved.taken(log.directory)
            self._currents[key] = log
            self._missing.pop(key, None)
            self._counted = None
        logger.warning("%s: the copy %s was promoted, with offsets up to %d", log.name, path, log.log_end_offset)
        return log

    def _identify(self, log: PartitionLog, replica: AssignedReplica, leader_epoch: int) -> None:
        """Give a copy without a valid topic id that of its replica. ReplicaConflict if it is of another topic."""
        key = (replica.topic_id, replica.partition)
        if (log.topic_id, log.partition) == key:
            return
        if log.topic_id != ZERO and not self._unserved.doubt(log):
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

    def _open_stray(self, path: Path, replica: AssignedReplica) -> PartitionLog:
        log_dir = self._online[path.parent]
        before_truncation = partial(self._write_before_truncation, log_dir)
        with disk_errors(log_dir.path):
            return open_stray(log_dir, path, replica.topic, replica.partition, self.config, before_truncation)

    def drop_copy(self, path: Path, now_ms: int) -> None:
        """Delete a kept copy, or one that was set aside, after the usual delay. ReplicaConflict if there is none."""
        with self._lock:
            self._unserved.drop_copy(path, now_ms)

    def _current(self, topic_id: Uuid, partition: int) -> PartitionLog:
        current = self._currents.get((topic_id, partition))
        if current is None:
            raise ReplicaConflict(f"partition {partition} of topic {to_text(topic_id)} has no working log on this broker")
        return current

    def _open_new(self, log_dir: LogDir, prepared: Path, name: str, replica: NewReplica, *, start_offset: int) -> PartitionLog:
        """Open the log in a prepared directory and give the directory its name, which the caller makes durable."""
        if self._online.get(log_dir.path) is not log_dir:
            raise LogDirFailed(log_dir.path, OSError(self._offline.get(log_dir.path, "it was released")))
        with removing_on_error([prepared]):
            log_dir.forget_checkpoints((replica.topic, replica.partition), partial(self._logs_in, log_dir.path))
            with disk_errors(log_dir.path):
                opened = new_segments(prepared, start_offset)
            log = PartitionLog(
                prepared,
                opened,
                topic=replica.topic,
                partition=replica.partition,
                topic_id=replica.topic_id,
                directory_id=log_dir.directory_id,
                config=replica.config,
                log_start_offset=start_offset,
                before_truncation=partial(self._write_before_truncation, log_dir),
            )
            try:
                log.name_new(log_dir.path / name)
            except LogError:
                log.close()
                raise
        return log

    # Upkeep

    def remove_expired(self, now_ms: int) -> int:
        """Remove directories and segments whose delay is over; set aside replicas that were not claimed. Return the number of
        directories and of replicas.
        """
        with self._lock:
            count = self._unserved.set_aside_overdue(now_ms)
            expired = self._unserved.expired(now_ms)
        for path in expired:
            with disk_errors(path.parent):
                remove_tree(path)
            with self._lock:
                self._unserved.removed(path)
        for log in self._with_removals():
            with suppress(LogClosed), ending(log):
                remove_deleted(log, now_ms)
        return count + len(expired)

    def next_expiry_ms(self) -> int | None:
        """Time at which `remove_expired` has something to do, None if nothing waits."""
        with self._lock:
            deadlines = self._unserved.deadlines_ms()
        deadlines += [log.removals[0].deadline_ms for log in self._with_removals()]
        return min(deadlines, default=None)

    def _with_removals(self) -> list[PartitionLog]:
        return [log for log in (*self.currents(), *self.futures()) if log.removals and log.is_open]

    def write_checkpoints(self, path: Path | None = None) -> None:
        """Flush full segments and write the offset checkpoints of one directory (None: of every one).

        Raises the first LogDirFailed or LogEnded, after the rest. Checkpoints that a full disk refuses are written the next time.
        """
        failure: LogDirFailed | LogEnded | None = None
        self.destinations.save()
        for log_dir in [log_dir for log_dir in list(self._online.values()) if path in (None, log_dir.path)]:
            logs = self._logs_in(log_dir.path)
            try:
                for log in [log for log in logs if log not in self._ended]:
                    try:
                        _flush_rolled(log)
                    except LogEnded as error:
                        failure = failure or error
                log_dir.write_checkpoints(partial(self._logs_in, log_dir.path))
            except LogDirFailed as error:
                failure = failure if isinstance(failure, LogDirFailed) else error
            except LogError as error:
                logger.warning("%s: not everything could be flushed: %s", log_dir, error)
        if failure is not None:
            raise failure

    def write_log_start_offsets(self, path: Path) -> None:
        """Make the log start offsets of one directory durable, unless it is offline. LogDirFailed, TooManyOpenFiles."""
        log_dir = self._online.get(path)
        if log_dir is not None:
            log_dir.write_log_start_offsets(partial(self._logs_in, path))

    def write_cleaned_ends(self, path: Path) -> None:
        """Make the ends of the compacted parts in one directory durable, unless it is offline. LogDirFailed, TooManyOpenFiles."""
        log_dir = self._online.get(path)
        if log_dir is not None:
            log_dir.write_cleaned_ends(partial(self._logs_in, path))

    def _write_before_truncation(self, log_dir: LogDir) -> None:
        log_dir.write_recovery_points(partial(self._logs_in, log_dir.path))
        log_dir.write_cleaned_ends(partial(self._logs_in, log_dir.path))

    def _logs_in(self, path: Path) -> list[PartitionLog]:
        """Every log that is open in a directory, served or not."""
        return [log for log in self._logs() if log.log_dir == path]

    def _logs(self) -> Iterable[PartitionLog]:
        """Every open log, current ones last: of two logs of one name, checkpoints hold the offsets of the current one."""
        logs = [item.log for item in self._loaded if item.log is not None]
        logs += [*self._ended, *self._unserved.logs(), *self._futures.values(), *self._currents.values()]
        return {id(log): log for log in logs}.values()

    # Descriptions

    def describe(self, is_wanted: Callable[[PartitionLog], bool] = lambda log: True) -> list[DirDescription]:
        """Every configured directory, in order, with its wanted logs by name (KIP-113's DescribeLogDirs)."""
        logs: dict[Path, list[tuple[PartitionLog, PartitionLog | None]]] = {path: [] for path in self.log_dirs}
        for log in filter(is_wanted, self.currents()):
            logs.setdefault(log.log_dir, []).append((log, log))
        for log in filter(is_wanted, self.futures()):
            logs.setdefault(log.log_dir, []).append((log, self.get(log.topic_id, log.partition)))
        return [self._describe(path, logs[path]) for path in self.log_dirs]

    def _describe(self, path: Path, logs: Iterable[tuple[PartitionLog, PartitionLog | None]]) -> DirDescription:
        log_dir = self._online.get(path)
        if log_dir is None:
            return DirDescription(path, self._known_ids.get(path), self._offline.get(path, "closed"))
        return DirDescription(
            path,
            log_dir.directory_id,
            None,
            log_dir.total_bytes,
            log_dir.usable_bytes,
            describe_replicas(logs),
            *self._unserved.describe(path, self._missing.values()),
        )


def _flush_rolled(log: PartitionLog) -> None:
    """Flush a log that may be closed meanwhile, or whose disk may be full: other logs must not wait for it. LogEnded."""
    with suppress(LogClosed, NoSpace), ending(log):
        log.flush_rolled()


def _flush_at_the_end(log: PartitionLog) -> None:
    with ending(log):
        log.flush(with_index=True)
