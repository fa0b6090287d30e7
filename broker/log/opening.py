"""Opening log directories: all of them at the start, and one that comes back while the others are in use.

`open_dirs` and `open_again` lock, read and recover. `start` and `take_back` plan what becomes of each replica's directory
(`startup.py`) and carry the plan out: each directory that was found goes into one of the maps, or is deleted or set aside later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from kraftlab.common.uuids import Uuid
from kraftlab.config.meta_properties import Owner
from kraftlab.records.errors import LogError

from .creating import ReplicaId
from .descriptions import describe_missing
from .destinations import Destinations
from .dir_names import DirKind
from .errors import LogDirFailed, LogDirUnusable, StartupRefused, TooManyOpenFiles, disk_errors
from .loading import LoadedDir, ReturningDir, as_loaded, load_log_dir, load_together, open_again, open_dirs, open_stray
from .log_config import LogConfig
from .log_dir import LogDir
from .log_maps import LogMaps
from .partition_log import PartitionLog
from .startup import IS_MISSING, Action, AssignedReplica, FoundDir, Running, Verb, plan_return, plan_startup

logger = logging.getLogger(__name__)

EndMove = Callable[[ReplicaId, PartitionLog | None, PartitionLog, int], None]


class Opening:
    """Fills the maps. `start` and `take_back` need the log manager's lock. `end_move` makes a future log the current one."""

    def __init__(self, maps: LogMaps, owner: Owner, config: LogConfig, end_move: EndMove) -> None:
        self._maps = maps
        self._owner = owner
        """Node id and cluster id that the directories have to name."""
        self._config = config
        self._end_move = end_move

    # At the start

    def open_dirs(self, threads: int) -> None:
        self._maps.online, self._maps.offline = open_dirs(self._maps.log_dirs, self._owner)
        self._maps.known_ids = {path: log_dir.directory_id for path, log_dir in self._maps.online.items()}
        # Every check that may refuse the start comes before the first change.
        for path, outcome in load_together(self._maps.online.values(), partial(self._load, threads)).items():
            if isinstance(outcome, TooManyOpenFiles):
                raise StartupRefused(str(outcome)) from outcome
            if isinstance(outcome, Exception):
                self._maps.mark_offline(path, outcome)
            else:
                self._maps.loaded += outcome
        if not self._maps.online:
            raise StartupRefused(f"none of the log directories works: {'; '.join(self._maps.offline.values())}")

    def _load(self, threads: int, log_dir: LogDir) -> list[LoadedDir]:
        log_dir.begin_use()
        return load_log_dir(log_dir, self._config, partial(self._maps.write_before_truncation, log_dir), threads)

    def start(self, assigned: Iterable[AssignedReplica], now_ms: int, destinations: Destinations) -> list[Action]:
        """Apply the start-up plan for the replicas that the metadata assigns to this broker; return the plan.

        StartupRefused: directories contradict each other and nothing was changed; or too many files are open. A directory that
        fails meanwhile goes offline; its replicas are then missing here.
        """
        loaded = {(item.found.log_dir, item.found.name): item for item in self._maps.loaded}
        found = [item.found for item in self._maps.loaded]
        assigned = [self._with_evidence(replica) for replica in assigned]
        plan = plan_startup(
            found, assigned, good_dirs=tuple(self._maps.directory_ids().values()), has_bad_dirs=bool(self._maps.offline)
        )
        if refusals := [action.reason for action in plan if action.verb is Verb.REFUSE]:
            raise StartupRefused("; ".join(refusals))
        self._note_missing(plan, assigned)
        self._follow(plan, loaded, now_ms, destinations)
        return plan

    def _with_evidence(self, replica: AssignedReplica) -> AssignedReplica:
        """Note if the checkpoints of the assigned directory know the replica. Those of a new partition are of an older topic."""
        there = next((each for each in self._maps.online.values() if each.directory_id == replica.directory), None)
        had_records = replica.has_changed and there is not None and there.had_records((replica.topic, replica.partition))
        return msgspec.structs.replace(replica, had_records=True) if had_records else replica

    def _note_missing(self, plan: Iterable[Action], assigned: Iterable[AssignedReplica]) -> None:
        """Note replicas without a directory, and keep their offsets in the checkpoints for the next start."""
        missing = {(action.topic, action.partition) for action in plan if action.reason == IS_MISSING}
        by_id = {log_dir.directory_id: log_dir for log_dir in self._maps.online.values()}
        for replica in assigned:
            if (name := (replica.topic, replica.partition)) in missing:
                logger.error("%s-%d is offline here: %s", *name, IS_MISSING)
                log_dir, key = by_id[replica.directory], (replica.topic_id, replica.partition)
                self._maps.missing[key] = describe_missing(log_dir.path, *name, IS_MISSING)
                log_dir.missing.add(name)

    def _follow(
        self, plan: Iterable[Action], loaded: Mapping[tuple[Uuid, str], LoadedDir], now_ms: int, destinations: Destinations
    ) -> None:
        """Carry a plan out. A directory that fails meanwhile goes offline; StartupRefused: too many files are open."""
        for action in plan:
            if action.verb not in (Verb.SERVE, Verb.CREATE):
                logger.info("start: %r", action)
            try:
                self._carry_out(action, loaded, now_ms)
            except LogDirFailed as error:
                self._maps.mark_offline(error.log_dir, error)
            except TooManyOpenFiles as error:
                raise StartupRefused(str(error)) from error
        self._maps.loaded = []
        self._maps.count_again()
        for log in self._maps.currents.values():
            destinations.forget(log.topic, log.partition)
        for log_dir in list(self._maps.online.values()):
            try:
                log_dir.write_checkpoints(partial(self._maps.logs_in, log_dir.path))
            except LogDirFailed as error:
                self._maps.mark_offline(error.log_dir, error)
            except LogError as error:
                logger.warning("%s: checkpoints were not written: %s", log_dir, error)

    def _carry_out(self, action: Action, loaded: Mapping[tuple[Uuid, str], LoadedDir], now_ms: int) -> None:
        def item_of(found: FoundDir | None) -> LoadedDir | None:
            return loaded.get((found.log_dir, found.name)) if found is not None else None

        subject, other = item_of(action.subject), item_of(action.other)
        if subject is None or subject.log_dir.path not in self._maps.online:
            return
        # The directory of the other log may have failed since the plan was made.
        log, other_log = subject.log, other.log if other is not None and other.log_dir.path in self._maps.online else None
        key = (subject.found.topic_id or b"", action.partition)
        for found in filter(None, (log, other_log)):
            # The name on the disk may be truncated; the metadata have the whole one.
            found.topic = action.topic
        match action.verb, log:
            case Verb.SERVE, PartitionLog():
                self._maps.currents[key] = log
            case Verb.RESUME_MOVE, PartitionLog():
                self._maps.currents[key] = log
                if other_log is not None:
                    self._maps.futures[key] = other_log
            case Verb.PROMOTE, PartitionLog() if other is not None and other_log is None:
                self._maps.unserved.kept.append(log)
            case Verb.PROMOTE, PartitionLog():
                self._end_move(key, other_log, log, now_ms)
            case Verb.DELETE, PartitionLog():
                self._maps.unserved.retire(log, now_ms)
            case Verb.DELETE, None:
                self._maps.unserved.delete_later(subject.path, now_ms)
            case Verb.SET_ASIDE, PartitionLog():
                is_current = subject.found.kind is DirKind.CURRENT and not subject.found.fault
                if is_current and key not in self._maps.currents:
                    self._maps.unserved.leave_unclaimed(key, log, now_ms)
                else:
                    self._maps.unserved.set_aside(log)
            case Verb.KEEP, None:
                self._maps.unserved.note_stray(subject.path, action.topic, action.partition)
            case Verb.KEEP, PartitionLog() if action.doubted is not None:
                self._maps.unserved.keep_doubtful(log, (action.doubted, action.partition), action.reason)
            case Verb.KEEP, PartitionLog():
                self._maps.unserved.kept.append(log)
            case _:
                raise AssertionError(f"no way to apply {action!r}")

    # A directory that comes back

    def open_again(self, path: Path, threads: int) -> ReturningDir:
        """Lock, read and recover a directory that is offline; nothing of it is used before `take_back`. A new disk that was
        formatted and holds nothing may take its place.

        LogDirUnusable: it cannot come back as it is; LogDirInUse, TooManyOpenFiles.
        """
        if path not in self._maps.offline:
            raise LogDirUnusable(f"{path} is not offline")
        return open_again(path, self._owner, self._maps.known_ids, partial(self._load, threads))

    def take_back(
        self, returning: ReturningDir, assigned: Iterable[AssignedReplica], now_ms: int, destinations: Destinations
    ) -> list[Action]:
        """Use a directory that was opened again; return the plan that was applied (`plan_return`).

        LogDirUnusable: it stays offline, since it contradicts another directory or has failed again.
        """
        maps, path = self._maps, returning.log_dir.path
        kept, maps.unserved.kept = maps.unserved.kept, []
        copies = [as_loaded(log, maps.online[log.log_dir]) for log in kept]
        known = {(item.found.log_dir, item.found.name): item for item in (*returning.loaded, *copies)}
        running: dict[ReplicaId, Running] = {}
        for item in list(known.values()):
            key = (item.found.topic_id or b"", item.found.partition)
            current = maps.currents.get(key)
            if current is not None and key not in running:
                beside = as_loaded(current, maps.online[current.log_dir])
                known[beside.found.log_dir, beside.found.name] = beside
                running[key] = Running(beside.found, key in maps.futures)
        maps.online[path], reason = returning.log_dir, maps.offline.pop(path, "")
        maps.loaded = [*returning.loaded, *copies]
        found = [item.found for item in maps.loaded]
        waiting = [self._with_evidence(each) for each in assigned if (each.topic_id, each.partition) not in maps.currents]
        good_dirs = tuple(maps.directory_ids().values())
        plan = plan_return(found, running, waiting, good_dirs=good_dirs, has_bad_dirs=bool(maps.offline))
        if refusals := [action.reason for action in plan if action.verb is Verb.REFUSE]:
            del maps.online[path]
            maps.offline[path], maps.loaded, maps.unserved.kept = reason, [], kept
            raise LogDirUnusable("; ".join(refusals))
        maps.known_ids[path] = returning.log_dir.directory_id
        maps.online_since_s[path] = time.monotonic()
        logger.info("log directory %s is back", path)
        self._note_missing(plan, waiting)
        try:
            self._follow(plan, known, now_ms, destinations)
        except StartupRefused as error:
            maps.mark_offline(path, error)
        if path not in maps.online:
            used = [id(log) for log in maps.logs()]
            can_stay = [each for each in kept if each.is_open or maps.unserved.is_unread(each)]
            maps.unserved.kept += [each for each in can_stay if id(each) not in used]
            raise LogDirUnusable(f"{path} has failed again: {maps.offline[path]}")
        return plan

    def open_stray(self, path: Path, replica: AssignedReplica) -> PartitionLog:
        """Open the log in a directory of the replica that was set aside."""
        log_dir = self._maps.online[path.parent]
        before_truncation = partial(self._maps.write_before_truncation, log_dir)
        with disk_errors(log_dir.path):
            return open_stray(log_dir, path, replica.topic, replica.partition, self._config, before_truncation)
