"""Helpers for the broker's storage: batches to append, logs to open, and the recorded segments of a real cluster."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kraftlab.broker.log import files
from kraftlab.broker.log import log_segments as log_segments_module
from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.startup import AssignedReplica
from kraftlab.common.uuids import random_uuid
from kraftlab.config import meta_properties
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.records.record_batch import Record, build_batch

CAPTURE = Path(__file__).resolve().parents[3] / "examples" / "capture"
TOPIC_ID = b"topic-id-16bytes"
DIRECTORY_ID = b"directory-id-16b"


def batch(count: int = 1, base_offset: int = 0, leader_epoch: int = 0, value_bytes: int = 10, timestamp_ms: int = 1000) -> bytes:
    records = [Record(b"key", bytes([65 + i % 26]) * value_bytes, timestamp_ms + i) for i in range(count)]
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)


@pytest.fixture
def open_log(tmp_path: Path) -> Callable[..., PartitionLog]:
    """Opens (again) the log of partition `orders-0` in one directory."""
    directory = tmp_path / "dir" / "orders-0"

    def open_one(**options: Any) -> PartitionLog:
        directory.mkdir(parents=True, exist_ok=True)
        options.setdefault("config", LogConfig(segment_bytes=options.pop("segment_bytes", 1 << 30)))
        return PartitionLog.open(directory, topic="orders", partition=0, topic_id=TOPIC_ID, directory_id=DIRECTORY_ID, **options)

    return open_one


@pytest.fixture(scope="session")
def manifest() -> list[dict[str, Any]]:
    """One entry per partition of the recording."""
    partitions: list[dict[str, Any]] = json.loads((CAPTURE / "manifest.json").read_text())["partitions"]
    return partitions


@pytest.fixture(scope="session")
def segment_bytes_of() -> Callable[[dict[str, Any], dict[str, Any]], bytes]:
    """The recorded bytes of one file of one partition of the manifest."""

    def read(partition: dict[str, Any], file: dict[str, Any]) -> bytes:
        return (CAPTURE / "segments" / f"{partition['topic']}-{partition['partition']}" / file["file"]).read_bytes()

    return read


TOPIC, OTHER = random_uuid(), random_uuid()
STRAY = "s-0.00000000000000000000000000000000-stray"


class Broker:
    """A broker's log directories, formatted, and managers opened on them one after another."""

    def __init__(self, root: Path, count: int = 2) -> None:
        self.dirs = [root / f"d{i}" for i in range(count)]
        self.ids = [random_uuid() for _ in self.dirs]
        for path, directory_id in zip(self.dirs, self.ids, strict=True):
            meta_properties.write(path, MetaProperties("cluster", 1, directory_id))
        self.manager: LogManager | None = None

    def open(self, **options: Any) -> LogManager:
        """A new manager; the one before, if it was not closed, loses its locks as in a crash."""
        if self.manager is not None:
            self.manager.abandon()
        self.manager = LogManager.open(
            self.dirs,
            node_id=1,
            cluster_id="cluster",
            config=LogConfig(segment_bytes=2000, max_message_bytes=12 << 20),
            **options,
        )
        return self.manager

    def start(self, *replicas: AssignedReplica) -> LogManager:
        manager = self.open()
        manager.start(replicas, now_ms=0)
        return manager

    def with_log(self, *batches: bytes) -> tuple[LogManager, PartitionLog]:
        """A started manager, and the log of t-0 in the first directory, led in epoch 1."""
        manager = self.start()
        log = manager.get_or_create("t", TOPIC, 0, self.ids[0])
        for batch in batches:
            log.append_as_leader(batch, 1)
        return manager, log

    def moving(self, *batches: bytes) -> tuple[LogManager, PartitionLog, PartitionLog]:
        """As `with_log`, and a copy of that log in the second directory, which has caught up."""
        manager, log = self.with_log(*batches)
        future = manager.create_future(TOPIC, 0, self.dirs[1])
        copy_all(log, future)
        return manager, log, future

    def names(self, index: int) -> list[str]:
        """Replicas' directories in a log directory, the unique part left out."""
        found = sorted(path.name for path in self.dirs[index].iterdir() if path.is_dir())
        return [f"{name.split('.')[0]}{name[name.rindex('-') :]}" if name.count(".") else name for name in found]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    if broker.manager is not None:
        broker.manager.abandon()


def replica(broker: Broker, directory: int | bytes, topic: str = "t", topic_id: bytes = TOPIC) -> AssignedReplica:
    return AssignedReplica(topic, topic_id, 0, directory if isinstance(directory, bytes) else broker.ids[directory])


def copy_all(source: PartitionLog, target: PartitionLog) -> None:
    while target.log_end_offset < source.log_end_offset:
        target.append_as_follower(source.read(target.log_end_offset, 1000))


def failing(number: int) -> Callable[..., NoReturn]:
    """An operation that fails with an errno."""

    def fails(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fails


@contextlib.contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, directory: Path) -> Iterator[None]:
    """Nothing more can be written below `directory`, as the kernel says it: files can be made, bytes not."""
    real_fsync, real_pwrite, real_copy = os.fsync, os.pwrite, os.copy_file_range

    def is_inside(descriptor: int) -> bool:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        return directory in path.parents and not path.is_dir()

    def fsync(descriptor: int) -> None:
        if is_inside(descriptor):
            raise OSError(errno.ENOSPC, "No space left on device")
        real_fsync(descriptor)

    def pwrite(descriptor: int, data: bytes, position: int) -> int:
        if is_inside(descriptor):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_pwrite(descriptor, data, position)

    def copy_file_range(source: int, target: int, count: int, from_position: int, to_position: int) -> int:
        if is_inside(target):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_copy(source, target, count, from_position, to_position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "copy_file_range", copy_file_range)
        patch.setattr(os, "fsync", fsync)
        patch.setattr(os, "pwrite", pwrite)
        yield


class SimulatedCrash(BaseException):
    """Not an Exception: nothing in the product handles it."""


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int) -> list[int]:
    """Crash before the `step`-th rename, fsync of a directory or durable write from now on; returns the count of steps seen."""
    seen = [0]

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            seen[0] += 1
            if seen[0] == step:
                raise SimulatedCrash(step)
            return real(*arguments)

        return call

    monkeypatch.setattr(files.os, "rename", counted(os.rename))
    monkeypatch.setattr(files.os, "replace", counted(os.replace))
    monkeypatch.setattr(files, "fsync_directory", counted(files.fsync_directory))
    monkeypatch.setattr(log_segments_module, "fsync_directory", counted(log_segments_module.fsync_directory))
    return seen


def crashed(step: int, work: Callable[[], object]) -> bool:
    """Crash in the `step`-th step of `work`; True if it has fewer."""
    with pytest.MonkeyPatch.context() as patch:
        seen = crash_at(patch, step)
        with contextlib.suppress(SimulatedCrash):
            work()
    return seen[0] < step
