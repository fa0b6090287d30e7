"""All logs of a broker: their places, and how they are created, moved and deleted.

`open` locks the log directories and recovers their contents; a directory that cannot be read is offline and the others go on.
Once the broker knows the metadata, `start` applies the start-up plan (`opening.py`). From then on the maps (`log_maps.py`)
hold the current log of each replica, and the log that a move is building.

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
`take_back` applies the plan for its contents beside the running logs.

Threads: the maps are read without a lock; every change of them, or of directories' names, is made under the manager's lock. It is
taken before logs' locks. Of a creation, only the renaming needs it. Calls block on disks: make them from worker threads.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from kraftlab.common.uuids import UNASSIGNED, ZERO, Uuid, to_text
from kraftlab.config.meta_properties import Owner
from kraftlab.records.errors import LogError

from .creating import NewReplica, ReplicaId, collecting, prepare_together, remove_new, removing_on_error
from .descriptions import DirDescription, describe_replicas
from .destinations import Destinations
from .dir_names import DirKind, current_name, transient_name
from .ending import LogEnded, ending
from .errors import LogClosed, LogDirFailed, NoSpace, ReplicaConflict, ReplicaOffline, disk_errors
from .expiry import remove_deleted
from .files import fsync_directory, sync_new_directories
from .loading import ReturningDir, work_in_threads
from .log_config import LogConfig
from .log_dir import UNKNOWN_EPOCH, LogDir
from .log_maps import LogMaps
from .opening import Opening
from .partition_log import PartitionLog
from .placement import Candidate, FreeBytes, rank
from .recovery import new_segments
from .startup import IS_MISSING, MAY_BE_OFFLINE, Action, AssignedReplica, Verb, plan_replica
from .unserved import remove_tree

DELETE_DELAY_MS_DEFAULT = 60_000
STRAY_GRACE_MS_DEFAULT = 30_000

logger = logging.getLogger(__name__)


class LogManager:
    """Made by `open`; `start` comes before anything but `directory_ids` and `offline_dirs`."""

    def __init__(self, maps: LogMaps, owner: Owner, config: LogConfig, recovery_threads: int) -> None:
        self.config = config
        self._maps = maps
        self.log_dirs = maps.log_dirs
        self._opening = Opening(maps, owner, config, self._end_move)
        self.destinations = Destinations()
        self._free = FreeBytes()
        self._cordoned: frozenset[Path] = frozenset()
        self.recovery_threads = recovery_threads
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
        maps = LogMaps(log_dirs, delete_delay_ms, stray_grace_ms)
        manager = cls(maps, Owner(node_id, cluster_id, config_file), config or LogConfig(), recovery_threads)
        try:
            manager._opening.open_dirs(recovery_threads)
            manager.destinations = Destinations.open(metadata_dir or manager.log_dirs[0])
        except BaseException:
            manager.abandon()
            raise
        return manager

    def start(self, assigned: Iterable[AssignedReplica], now_ms: int) -> list[Action]:
        """Apply the start-up plan for the replicas that the metadata assigns to this broker; return the plan.

        StartupRefused: directories contradict each other and nothing was changed; or too many files are open. A directory that
        fails meanwhile goes offline; its replicas are then missing here.
        """
        with self._lock:
            return self._opening.start(assigned, now_ms, self.destinations)

    def open_again(self, path: Path) -> ReturningDir:
        """Lock, read and recover a directory that is offline; nothing of it is used before `take_back`. A new disk that was
        formatted and holds nothing may take its place.

        LogDirUnusable: it cannot come back as it is; LogDirInUse, TooManyOpenFiles.
        """
        return self._opening.open_again(path, self.recovery_threads)

    def take_back(self, returning: ReturningDir, assigned: Iterable[AssignedReplica], now_ms: int) -> list[Action]:
        """Use a directory that was opened again; return the plan that was applied (`plan_return`).

        LogDirUnusable: it stays offline, since it contradicts another directory or has failed again.
        """
        with self._lock:
            return self._opening.take_back(returning, assigned, now_ms, self.destinations)

    def is_over(self, failure: LogDirFailed) -> bool:
        """Return True if the directory has come back since that failure."""
        return failure.raised_at_s < self._maps.online_since_s.get(failure.log_dir, 0.0)

    # Stopping

    def close(self, broker_epoch: int = UNKNOWN_EPOCH) -> None:
        """Flush everything, write the checkpoints and the mark of a clean shutdown, and release the directories."""
        with self._lock:
            self.destinations.save()
            for log_dir in list(self._maps.online.values()):
                # A log that was never opened is as the last shutdown left it.
                unread = self._maps.unserved.is_unread
                logs = [log for log in self._maps.logs_in(log_dir.path) if not (log_dir.was_clean and unread(log))]
                try:
                    # An ended log is not flushed: its directory was not shut down cleanly.
                    work_in_threads(self.recovery_threads, _flush_at_the_end, logs)
                    with disk_errors(log_dir.path):
                        sync_new_directories([log.directory for log in logs if log.write_producers()])
                    log_dir.write_checkpoints(partial(self._maps.logs_in, log_dir.path))
                    for log in logs:
                        log.close()
                    log_dir.write_clean_mark(broker_epoch)
                except LogError as error:
                    logger.error("%s was not shut down cleanly: %s", log_dir, error)
            self.abandon()

    def abandon(self) -> None:
        """Release the directories as they are, as a crash would."""
        with self._lock:
            for log_dir in self._maps.online.values():
                for log in self._maps.logs_in(log_dir.path):
                    log.abandon(LogClosed(f"{log.name}: the broker has stopped"))
                log_dir.release()
            self._maps.online.clear()

    # Directories

    @property
    def offline_dirs(self) -> dict[Path, str]:
        """Directories that failed, and the reasons."""
        return dict(self._maps.offline)

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch of this broker at its last clean shutdown, -1 if that was not clean in all its directories."""
        epochs = {log_dir.previous_broker_epoch for log_dir in self._maps.online.values()}
        return epochs.pop() if len(epochs) == 1 and not self._maps.offline else UNKNOWN_EPOCH

    def directory_ids(self) -> dict[Path, Uuid]:
        """Ids of the working directories, in the configured order, as the broker registers them."""
        return self._maps.directory_ids()

    def directory_id_of(self, path: Path) -> Uuid | None:
        """The id of a configured directory, even if it has failed; None if it was never read."""
        return self._maps.known_ids.get(path)

    def mark_offline(self, path: Path, error: Exception) -> None:
        """Take a failed directory out: its logs answer with the error from now on. A second call changes nothing."""
        with self._lock:
            self._maps.mark_offline(path, error)

    # Replicas

    def take_out(self, log: PartitionLog) -> bool:
        """Serve a log no more that has ended; its directory stays. False if the log is not served."""
        with self._lock:
            served = len(self._maps.currents) + len(self._maps.futures)
            self._maps.currents = {key: each for key, each in self._maps.currents.items() if each is not log}
            self._maps.futures = {key: each for key, each in self._maps.futures.items() if each is not log}
            was_served = served > len(self._maps.currents) + len(self._maps.futures)
            if was_served:
                self._maps.ended.append(log)
            return was_served

    def get(self, topic_id: Uuid, partition: int) -> PartitionLog | None:
        """The replica's current log, None if there is none or it is offline."""
        return self._maps.currents.get((topic_id, partition))

    def future(self, topic_id: Uuid, partition: int) -> PartitionLog | None:
        """The log that a move is building."""
        return self._maps.futures.get((topic_id, partition))

    def currents(self) -> list[PartitionLog]:
        return list(self._maps.currents.values())

    def futures(self) -> list[PartitionLog]:
        """Logs of running moves, including those resumed at start."""
        return list(self._maps.futures.values())

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
        return self._maps.currents[key]

    def create_together(self, wanted: Sequence[NewReplica]) -> list[LogError]:
        """Create missing logs as `get_or_create` does. Return the errors of replicas that could not be created, and of
        directories whose new names may not be durable.
        """
        refused: list[LogError] = []
        placed: list[tuple[NewReplica, LogDir]] = []
        with self._lock:
            self._maps.counts()
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
                    self._maps.unserved.free_name(log_dir.path / name)
                    self._maps.currents[replica.key] = self._open_new(log_dir, directory, name, replica, start_offset=0)
                    self._maps.missing.pop(replica.key, None)
                    self.destinations.forget(replica.topic, replica.partition)
        for path in {log_dir.path for _, log_dir, _ in prepared}:
            with collecting(refused), disk_errors(path):
                fsync_directory(path)
        return refused

    def _claim(self, key: ReplicaId) -> PartitionLog | None:
        """Return the replica's current log, None if there is none; an unclaimed log becomes the current one."""
        with self._lock:
            if key not in self._maps.currents and (log := self._maps.unserved.claim(key)) is not None:
                self._maps.currents[key] = log
            return self._maps.currents.get(key)

    def _place(self, replica: NewReplica) -> LogDir:
        """Choose the directory of a new log, and count the log there."""
        log_dir = self._choose(replica)
        self._count(log_dir, replica.config.segment_bytes)
        return log_dir

    def _choose(self, replica: NewReplica) -> LogDir:
        topic, partition, directory_id = replica.topic, replica.partition, replica.directory_id
        for log in [] if replica.is_new else self._maps.unserved.kept_of(replica.key):
            doubt = self._maps.unserved.doubt(log)
            if not doubt or not replica.can_be_filled:
                raise ReplicaOffline(f"{topic}-{partition} is not created: {doubt or MAY_BE_OFFLINE}")
            self._maps.unserved.set_aside(log)
        if replica.key in self._maps.missing and not replica.is_new and not replica.can_be_filled:
            raise ReplicaOffline(f"{topic}-{partition} is not created: {IS_MISSING}")
        if not self._maps.online:
            raise ReplicaOffline(f"{topic}-{partition} cannot be created: no log directory works")
        ids = {log_dir.directory_id: log_dir for log_dir in self._maps.online.values()}
        destination = ids.get(self.destinations.of(topic, partition, replica.topic_id) or UNASSIGNED)
        if destination is not None:
            return destination
        wanted = UNASSIGNED if replica.is_new and directory_id not in ids else directory_id
        assigned = AssignedReplica(topic, replica.topic_id, partition, wanted, replica.is_counted_on and not replica.is_new)
        [action] = plan_replica([], assigned, good_dirs=tuple(ids), has_bad_dirs=bool(self._maps.offline))
        if action.verb is not Verb.CREATE:
            raise ReplicaOffline(f"{topic}-{partition} is not created: {action.reason}")
        if directory_id in ids:
            return ids[directory_id]
        counted, online = self._maps.counts(), list(self._maps.online.values())
        ranks = [
            rank(Candidate(log_dir.path in self._cordoned, free_bytes, counted[log_dir.path]))
            for log_dir, free_bytes in zip(online, self._free.of(online), strict=True)
        ]
        return online[ranks.index(min(ranks))]

    def _count(self, log_dir: LogDir, size_bytes: int) -> None:
        """Count a log that is about to be created and will soon have that size."""
        self._free.charge(log_dir, size_bytes)
        self._maps.count(log_dir.path)

    def create_future(self, topic_id: Uuid, partition: int, log_dir: Path) -> PartitionLog:
        """Begin a move of the replica to `log_dir`: make an empty log that starts where the current one does.

        ReplicaConflict if there is no current log, the replica is there already, or another move is under way. Other directories
        may be offline.
        """
        with self._lock:
            current = self._current(topic_id, partition)
            target = self._maps.online.get(log_dir)
            if target is None:
                raise ReplicaConflict(f"{log_dir} is not a working log directory; {current.name} cannot move there")
            if current.log_dir == log_dir or (topic_id, partition) in self._maps.futures:
                raise ReplicaConflict(f"{current.name} is in {log_dir} already or is being moved; cancel the move first")
            replica = NewReplica(current.topic, topic_id, partition, target.directory_id, False, current.config)
            name = transient_name(current.topic, partition, DirKind.FUTURE)
            self._count(target, current.size_bytes)
            # In checkpoints, both would have the same name.
            self._maps.unserved.free_name(log_dir / current_name(current.topic, partition))
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
            self._maps.futures[topic_id, partition] = log
            return log

    def swap(self, topic_id: Uuid, partition: int, now_ms: int) -> PartitionLog:
        """End a move: the future log becomes the current one, the old one is deleted later. Return the new current log.

        Appends to the old log raise LogClosed from then on. ReplicaConflict, nothing changed: the logs do not end alike yet, the
        name is in use, or there is no move. LogDirFailed: if the target failed, the old log is still the current one.
        """
        with self._lock:
            current, future = self._current(topic_id, partition), self._maps.futures.get((topic_id, partition))
        if future is None:
            raise ReplicaConflict(f"{current.name} is not being moved")
        self._inherit(current, future)  # This takes long; other callers need not wait for it.
        with self._lock:
            if (
                self._maps.currents.get((topic_id, partition)) is not current
                or self._maps.futures.get((topic_id, partition)) is not future
            ):
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
                self._maps.unserved.free_name(plain)
                if os.path.exists(plain):
                    raise ReplicaConflict(f"{plain} exists already and was not made by this broker; move it away")
                future.high_watermark = current.high_watermark
                self._promote(current, future, now_ms)
                self._maps.currents[topic_id, partition] = future
                del self._maps.futures[topic_id, partition]
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
        target = self._maps.online.get(future.log_dir)
        if target is None:
            raise LogDirFailed(future.log_dir, OSError(self._maps.offline.get(future.log_dir, "it was released")))
        target.write_checkpoints(partial(self._maps.logs_in, target.path))

    def _promote(self, old: PartitionLog | None, future: PartitionLog, now_ms: int) -> None:
        """Make the two renames at the end of a move, in KIP-113's order."""
        plain = future.log_dir / current_name(future.topic, future.partition)
        self._maps.unserved.free_name(plain)
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
        self._maps.count_again()
        self._maps.unserved.delete_later(old.directory, now_ms)

    def _end_move(self, key: ReplicaId, current: PartitionLog | None, future: PartitionLog, now_ms: int) -> None:
        """End a move as planned. If the target fails, the current log stays; if it is full, the move goes on later."""
        if current is None:
            self._promote(None, future, now_ms)
        else:
            self._maps.currents[key] = current
            try:
                self._inherit(current, future)
                self._promote(current, future, now_ms)
            except LogDirFailed:
                raise
            except LogError as error:
                logger.warning("%s: the move to %s cannot end now, and goes on: %s", current.name, future.log_dir, error)
                self._maps.futures[key] = future
                return
        self._maps.currents[key] = future

    def drop_future(self, topic_id: Uuid, partition: int, now_ms: int) -> bool:
        """Cancel a move; False if there was none."""
        with self._lock:
            future = self._maps.futures.pop((topic_id, partition), None)
            if future is not None:
                self._maps.unserved.retire(future, now_ms)
            return future is not None

    def delete(self, topic_id: Uuid, partition: int, now_ms: int) -> bool:
        """Give the replica up: its logs are deleted later. False if there was none."""
        with self._lock:
            current = self._maps.currents.pop((topic_id, partition), None)
            ended = [log for log in self._maps.ended if (log.topic_id, log.partition) == (topic_id, partition)]
            self._maps.ended = [log for log in self._maps.ended if log not in ended]
            try:
                self.drop_future(topic_id, partition, now_ms)
                self._maps.missing.pop((topic_id, partition), None)
                for log in ended:
                    self._maps.unserved.retire(log, now_ms)
                for log in self._maps.unserved.kept_of((topic_id, partition)):
                    if (log.topic_id, log.partition) != (topic_id, partition):
                        self._leave(log, now_ms)
                    else:
                        self._maps.unserved.drop_copy(log.directory, now_ms)
            finally:
                if current is not None:
                    self._maps.unserved.retire(current, now_ms)
            return current is not None

    def _leave(self, log: PartitionLog, now_ms: int) -> None:
        """Give a doubtful directory up, whose replica has left this broker. It may belong to a topic that is not known yet."""
        self._maps.unserved.taken(log.directory)
        if log.topic_id == ZERO:
            self._maps.unserved.set_aside(log)
        else:
            self._maps.unserved.leave_unclaimed((log.topic_id, log.partition), log, now_ms)

    # Kept copies

    def has_kept(self, topic_id: Uuid, partition: int) -> bool:
        """Return True if a copy of the replica is kept."""
        return bool(self._maps.unserved.kept_of((topic_id, partition)))

    def keep_future(self, topic_id: Uuid, partition: int) -> None:
        """Keep the log that a move was building, since the current one was in a directory that failed."""
        with self._lock:
            future = self._maps.futures.pop((topic_id, partition), None)
            if future is not None:
                self._maps.unserved.kept.append(future)

    def in_doubt(self) -> set[ReplicaId]:
        """Replicas that are offline because their directory is doubtful or missing."""
        return {*self._maps.missing, *self._maps.unserved.doubted()}

    def replica_of_copy(self, path: Path) -> tuple[str, int]:
        """Topic and partition of a kept copy, or of one that was set aside. ReplicaConflict if there is none."""
        copy = self._maps.unserved.copy_at(path)
        return copy.topic, copy.partition

    def promote_copy(self, path: Path, replica: AssignedReplica, leader_epoch: int) -> PartitionLog:
        """Make a kept copy, or one that was set aside, the current log of a replica that has none. A damaged `partition.metadata`
        is written again. `leader_epoch`: that of the partition.

        ReplicaConflict if there is no such copy, the replica has a log, or the copy is of another topic.
        """
        key = (replica.topic_id, replica.partition)
        with self._lock:
            current = self._maps.currents.get(key)
            if current is not None:
                raise ReplicaConflict(
                    f"{current.name} has a working log in {current.log_dir}; move the replica instead. To serve the copy in its "
                    f"place: stop the other brokers that have {current.name}, because a leader without these records would "
                    f"remove them from the copy; stop this broker, move {current.directory} away, copy its partition.metadata "
                    f"into the copy, rename the copy to {current.name} and start this broker; if {current.name} then has no "
                    "leader, run kraftlab leader-election --election-type unclean; then start the other brokers"
                )
            copy = self._maps.unserved.copy_to_serve(path)
            log = copy if isinstance(copy, PartitionLog) else self._opening.open_stray(path, replica)
            try:
                self._maps.unserved.identify(log, replica, leader_epoch)
            except LogError:
                if log is not copy:
                    log.close()
                raise
            if log.directory != log.log_dir / current_name(log.topic, log.partition):
                self._promote(None, log, 0)
            self._maps.unserved.taken(path)
            self._maps.unserved.taken(log.directory)
            self._maps.currents[key] = log
            self._maps.missing.pop(key, None)
            self._maps.count_again()
        logger.warning("%s: the copy %s was promoted, with offsets up to %d", log.name, path, log.log_end_offset)
        return log

    def drop_copy(self, path: Path, now_ms: int) -> None:
        """Delete a kept copy, or one that was set aside, after the usual delay. ReplicaConflict if there is none."""
        with self._lock:
            self._maps.unserved.drop_copy(path, now_ms)

    def _current(self, topic_id: Uuid, partition: int) -> PartitionLog:
        current = self._maps.currents.get((topic_id, partition))
        if current is None:
            raise ReplicaConflict(f"partition {partition} of topic {to_text(topic_id)} has no working log on this broker")
        return current

    def _open_new(self, log_dir: LogDir, prepared: Path, name: str, replica: NewReplica, *, start_offset: int) -> PartitionLog:
        """Open the log in a prepared directory and give the directory its name, which the caller makes durable."""
        if self._maps.online.get(log_dir.path) is not log_dir:
            raise LogDirFailed(log_dir.path, OSError(self._maps.offline.get(log_dir.path, "it was released")))
        with removing_on_error([prepared]):
            log_dir.forget_checkpoints((replica.topic, replica.partition), partial(self._maps.logs_in, log_dir.path))
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
                before_truncation=partial(self._maps.write_before_truncation, log_dir),
            )
            try:
                log.name_new(log_dir.path / name)
            except LogError:
                log.close()
                raise
        return log

    # Upkeep

    def remove_expired(self, now_ms: int) -> int:
        """Remove directories and segments after their delay; set aside replicas that were not claimed. Return the number of
        directories and of replicas.
        """
        with self._lock:
            count = self._maps.unserved.set_aside_overdue(now_ms)
            expired = self._maps.unserved.expired(now_ms)
        for path in expired:
            with disk_errors(path.parent):
                remove_tree(path)
            with self._lock:
                self._maps.unserved.removed(path)
        for log in self._with_removals():
            with suppress(LogClosed), ending(log):
                remove_deleted(log, now_ms)
        return count + len(expired)

    def next_expiry_ms(self) -> int | None:
        """Time at which `remove_expired` has something to do, None if nothing waits."""
        with self._lock:
            deadlines = self._maps.unserved.deadlines_ms()
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
        for log_dir in [log_dir for log_dir in list(self._maps.online.values()) if path in (None, log_dir.path)]:
            logs = self._maps.logs_in(log_dir.path)
            try:
                for log in [log for log in logs if log not in self._maps.ended]:
                    try:
                        _flush_rolled(log)
                    except LogEnded as error:
                        failure = failure or error
                log_dir.write_checkpoints(partial(self._maps.logs_in, log_dir.path))
            except LogDirFailed as error:
                failure = failure if isinstance(failure, LogDirFailed) else error
            except LogError as error:
                logger.warning("%s: not everything could be flushed: %s", log_dir, error)
        if failure is not None:
            raise failure

    def write_log_start_offsets(self, path: Path) -> None:
        """Make the log start offsets of one directory durable, unless it is offline. LogDirFailed, TooManyOpenFiles."""
        log_dir = self._maps.online.get(path)
        if log_dir is not None:
            log_dir.write_log_start_offsets(partial(self._maps.logs_in, path))

    def write_cleaned_ends(self, path: Path) -> None:
        """Make the ends of the compacted parts in one directory durable, unless it is offline. LogDirFailed, TooManyOpenFiles."""
        log_dir = self._maps.online.get(path)
        if log_dir is not None:
            log_dir.write_cleaned_ends(partial(self._maps.logs_in, path))

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
        log_dir = self._maps.online.get(path)
        if log_dir is None:
            return DirDescription(path, self._maps.known_ids.get(path), self._maps.offline.get(path, "closed"))
        return DirDescription(
            path,
            log_dir.directory_id,
            None,
            log_dir.total_bytes,
            log_dir.usable_bytes,
            describe_replicas(logs),
            *self._maps.unserved.describe(path, self._maps.missing.values()),
        )


def _flush_rolled(log: PartitionLog) -> None:
    """Flush a log that may be closed meanwhile, or whose disk may be full: other logs must not wait for it. LogEnded."""
    with suppress(LogClosed, NoSpace), ending(log):
        log.flush_rolled()


def _flush_at_the_end(log: PartitionLog) -> None:
    with ending(log):
        log.flush(with_index=True)
