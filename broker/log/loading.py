"""Reading log directories, at the start and when one comes back: every current and future log is opened and recovered; the
other directories are only noted. Log directories are read beside each other.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from kraftlab.common.uuids import ZERO, Uuid, to_text
from kraftlab.config.errors import ConfigError
from kraftlab.config.meta_properties import Owner
from kraftlab.records.errors import LogError

from . import checkpoints
from .checkpoints import TopicPartition
from .dir_names import DirKind, DirName, keeps_name_inside, parse
from .errors import CorruptFile, DoubtfulLog, LogClosed, LogDirFailed, LogDirUnusable, StartupRefused, TooManyOpenFiles
from .files import forget_cached
from .leader_epochs import LeaderEpochs
from .log_config import LogConfig
from .log_dir import UNKNOWN_EPOCH, LogDir
from .partition_log import PartitionLog
from .producer_state import ProducerState
from .recovery import OpenedLog, RecoveryReport
from .segment import Segment
from .startup import FoundDir

NAMED_MAX = 5
"""Number of replicas that a log line names."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")

Item = TypeVar("Item")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class LoadedDir(msgspec.Struct, frozen=True):
    """A replica's directory that was found. `log`: None for -delete and -stray directories."""

    found: FoundDir
    path: Path
    log_dir: LogDir
    log: PartitionLog | None


class ReturningDir(NamedTuple):
    """A log directory that was opened again, with its contents."""

    log_dir: LogDir
    loaded: list[LoadedDir]

    def release(self) -> None:
        """Give it up, as a crash would."""
        for item in self.loaded:
            if item.log is not None:
                item.log.abandon(LogClosed(f"{item.log.name} in {self.log_dir} was not taken back"))
        self.log_dir.release()


def open_dirs(paths: Iterable[Path], owner: Owner) -> tuple[dict[Path, LogDir], dict[Path, str]]:
    """Lock the directories that can be used; return them, and the reasons why the others are offline.

    LogDirInUse; StartupRefused if one is a copy of another.
    """
    online: dict[Path, LogDir] = {}
    offline: dict[Path, str] = {}
    try:
        for path in paths:
            try:
                log_dir = LogDir.open(path, owner)
            except (OSError, ConfigError) as error:
                offline[path] = str(error)
                logger.error("log directory %s is offline: %s", path, error)
                continue
            others = {each.directory_id: other for other, each in online.items()}
            online[path] = log_dir
            check_no_twin(log_dir, others)
    except BaseException:
        for log_dir in online.values():
            log_dir.release()
        raise
    return online, offline


def check_no_twin(log_dir: LogDir, others: Mapping[Uuid, Path]) -> None:
    """StartupRefused if another directory has the same id."""
    twin = others.get(log_dir.directory_id)
    if twin is not None:
        raise StartupRefused(f"{log_dir.path} and {twin} have the same directory.id; one is a copy: format one of them again")


def load_together(
    log_dirs: Collection[LogDir], load: Callable[[LogDir], list[LoadedDir]]
) -> dict[Path, list[LoadedDir] | OSError | LogError]:
    """Load directories beside each other; return the contents, or the error, of each."""

    def attempt(log_dir: LogDir) -> list[LoadedDir] | OSError | LogError:
        try:
            return load(log_dir)
        except (OSError, LogError) as error:
            return error

    with ThreadPoolExecutor(max(len(log_dirs), 1), "load") as threads:
        return dict(zip((log_dir.path for log_dir in log_dirs), threads.map(attempt, log_dirs), strict=True))


def open_again(
    path: Path, owner: Owner, known_ids: Mapping[Path, Uuid], load: Callable[[LogDir], list[LoadedDir]]
) -> ReturningDir:
    """Lock, read and recover a directory that was offline. A new disk that was formatted and holds nothing may take its place.
    `known_ids`: ids of the broker's directories, also of that one if it was ever read.

    LogDirUnusable, LogDirInUse, TooManyOpenFiles.
    """
    try:
        log_dir = LogDir.open(path, owner)
    except ConfigError as error:
        raise LogDirUnusable(str(error)) from error
    except OSError as error:
        raise LogDirUnusable(str(LogDirFailed(path, error))) from error
    try:
        known = known_ids.get(path)
        if known not in (None, log_dir.directory_id) and log_dir.scan():
            raise LogDirUnusable(
                f"{path} is another disk with replicas: its directory.id is {to_text(log_dir.directory_id)}, not "
                f"{to_text(known)}; mount the disk that was there, or restart the broker to begin with this one"
            )
        check_no_twin(log_dir, {directory_id: other for other, directory_id in known_ids.items() if other != path})
        forget_cached(path.glob("*/*.log"))
        return ReturningDir(log_dir, load(log_dir))
    except (OSError, LogError) as error:
        log_dir.release()
        raise error if isinstance(error, LogDirUnusable | TooManyOpenFiles) else LogDirUnusable(str(error)) from error


def as_loaded(log: PartitionLog, log_dir: LogDir) -> LoadedDir:
    """An open log as a directory that was found."""
    topic_id = None if log.topic_id == ZERO else log.topic_id
    fault = "" if topic_id is not None else _topic_id(log.directory)[1]
    if not log.is_open:
        fault = log.recovery.reason or fault
    return LoadedDir(found_dir(log, log.directory.name, topic_id, fault), log.directory, log_dir, log)


def found_dir(log: PartitionLog, name: str, topic_id: Uuid | None, fault: str = "") -> FoundDir:
    """An open log as the start-up plan sees it, in a directory of that name."""
    parsed = parse(name)
    assert parsed is not None, f"{name} is the name of a replica's directory"
    return FoundDir(
        log.directory_id,
        name,
        parsed.kind,
        log.topic,
        log.partition,
        topic_id,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        epochs=log.epochs,
        fault=fault,
    )


def load_log_dir(log_dir: LogDir, config: LogConfig, before_truncation: Callable[[], None], threads: int = 1) -> list[LoadedDir]:
    """Open the logs in `log_dir`, some at a time after a crash. After a clean stop there is nothing to wait for but the
    interpreter, and several threads take longer than one.

    OSError, LogError: the whole directory is offline. TooManyOpenFiles: it is not at fault.
    """

    def load(item: tuple[Path, DirName]) -> LoadedDir:
        path, name = item
        topic = _topic(path, name)
        topic_id, fault = _topic_id(path)
        log = None
        if name.kind in (DirKind.CURRENT, DirKind.FUTURE):
            try:
                log = _open(log_dir, path, name._replace(topic=topic), topic_id, config, before_truncation)
            except DoubtfulLog as error:
                fault = str(error)
                log = _unread(log_dir, path, name._replace(topic=topic), topic_id, config, fault)
        if log is not None:
            found = found_dir(log, path.name, topic_id, fault)
        else:
            found = FoundDir(log_dir.directory_id, path.name, name.kind, topic, name.partition, topic_id)
        return LoadedDir(found, path, log_dir, log)

    loaded = work_in_threads(1 if log_dir.was_clean else threads, load, log_dir.scan())
    if log_dir.was_clean:
        _compare_with_the_stop(log_dir, loaded)
    return loaded


def _compare_with_the_stop(log_dir: LogDir, loaded: list[LoadedDir]) -> None:
    """Take the mark of a clean shutdown back if records are missing that were durable then: the broker must not lead before
    replicas that have them (KIP-966).
    """
    ends: dict[TopicPartition, int] = {}
    for item in loaded:
        key = (item.found.topic, item.found.partition)
        ends[key] = max(item.found.log_end_offset, ends.get(key, 0))
    lost = {(item.found.topic, item.found.partition) for item in loaded if item.log is not None and item.log.recovery.reason}
    lost |= {replica for replica, end in log_dir.recovery_points.items() if ends.get(replica, 0) < end}
    if lost:
        log_dir.previous_broker_epoch = UNKNOWN_EPOCH
        first = ", ".join(f"{topic}-{number}" for topic, number in sorted(lost)[:NAMED_MAX])
        logger.warning(
            "%s was shut down cleanly, but records of %d replicas are missing now (%s): treated as a crash; check the disk",
            *(log_dir, len(lost), first),
        )


def _topic(path: Path, name: DirName) -> str:
    """Return the whole name: the one in the file inside, if it continues the truncated name of the directory."""
    if name.kind is DirKind.CURRENT and not keeps_name_inside(name.topic):
        return name.topic
    inside = checkpoints.read_topic_name(path)
    if inside is None or inside == name.topic:
        return name.topic
    if name.kind is not DirKind.CURRENT and inside.startswith(name.topic) and _LEGAL.fullmatch(inside):
        return inside
    logger.warning("%s names the topic %r, which does not match; the directory's own name is used", path, inside)
    return name.topic


def _topic_id(path: Path) -> tuple[Uuid | None, str]:
    """Return the topic id in a replica's directory, None if it cannot be read, and the reason."""
    try:
        topic_id = checkpoints.read_partition_metadata(path)
    except CorruptFile as error:
        fault = f"its topic id cannot be read ({error})"
    else:
        fault = "" if topic_id is not None else f"it has no {checkpoints.PARTITION_METADATA}"
    if fault:
        logger.warning("the topic of %s is unknown: %s", path, fault)
    return (None, fault) if fault else (topic_id, "")


def _open(
    log_dir: LogDir, path: Path, name: DirName, topic_id: Uuid | None, config: LogConfig, before_truncation: Callable[[], None]
) -> PartitionLog:
    key = (name.topic, name.partition)
    return PartitionLog.open(
        path,
        topic=name.topic,
        partition=name.partition,
        topic_id=topic_id or ZERO,
        directory_id=log_dir.directory_id,
        config=config,
        log_start_offset=log_dir.log_start_offsets.get(key, 0),
        high_watermark=log_dir.high_watermarks.get(key, 0),
        recovery_point=log_dir.recovery_points.get(key, 0),
        cleaned_to=log_dir.cleaned_ends.get(key, 0),
        clean=log_dir.was_clean,
        before_truncation=before_truncation,
    )


def _unread(log_dir: LogDir, path: Path, name: DirName, topic_id: Uuid | None, config: LogConfig, reason: str) -> PartitionLog:
    """Return a closed log in the place of one that cannot be opened. The checkpoints keep its offsets, which may be too low."""
    key = (name.topic, name.partition)
    start_offset, recovery_point = log_dir.log_start_offsets.get(key, 0), log_dir.recovery_points.get(key, 0)
    high_watermark = log_dir.high_watermarks.get(key, 0)
    segment = Segment.unread(path, start_offset, max(start_offset, recovery_point, high_watermark))
    log = PartitionLog(
        path,
        OpenedLog((segment,), LeaderEpochs(), RecoveryReport(reason=reason), ProducerState()),
        topic=name.topic,
        partition=name.partition,
        topic_id=topic_id or ZERO,
        directory_id=log_dir.directory_id,
        config=config,
        log_start_offset=start_offset,
        high_watermark=high_watermark,
        recovery_point=recovery_point,
        cleaned_to=log_dir.cleaned_ends.get(key, 0),
    )
    log.abandon(LogClosed(reason))
    return log


def open_stray(
    log_dir: LogDir, path: Path, topic: str, partition: int, config: LogConfig, before_truncation: Callable[[], None]
) -> PartitionLog:
    """Open and check the whole log in a directory that was set aside: the checkpoints are not about it. OSError, LogError."""
    return PartitionLog.open(
        path,
        topic=topic,
        partition=partition,
        topic_id=_topic_id(path)[0] or ZERO,
        directory_id=log_dir.directory_id,
        config=config,
        before_truncation=before_truncation,
    )


def work_in_threads(threads: int, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the results of `work`, in the order of `items`. After an error no more items are begun; the first error is raised.

    The threads take items from one iterator: a submission for each of tens of thousands of small logs would cost more than the
    work.
    """
    if threads == 1 or len(items) < 2:
        return [work(item) for item in items]
    results: dict[int, Result] = {}
    waiting = iter(enumerate(items))
    errors: list[Exception] = []

    def take_some() -> None:
        try:
            for number, item in waiting:
                if errors:
                    return
                results[number] = work(item)
        except Exception as error:
            errors.append(error)

    with ThreadPoolExecutor(threads, "logs") as pool:
        for _ in range(min(threads, len(items))):
            pool.submit(take_some)
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(items))]
