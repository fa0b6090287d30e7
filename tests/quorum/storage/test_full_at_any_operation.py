"""A disk that is full for a moment, at any single operation: retries succeed, and nothing is lost or left over."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from kraftlab.quorum.storage import MetadataStore, StorageFull
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.simulation.consensus.simulated_file_system import SimulatedFileSystem

DIRECTORY = partition_directory("/data")


class Refusals:
    """Operations number `first` to `first + count - 1` are refused."""

    def __init__(self) -> None:
        self.first = self.count = 0
        self.seen = -1

    def arm(self, first: int, count: int) -> None:
        self.first, self.count, self.seen = first, count, 0

    def ask(self, what: str) -> None:
        if self.seen < 0:
            return
        self.seen += 1
        if self.first < self.seen <= self.first + self.count:
            raise StorageFull(f"{what}: no room")


class RefusingFile:
    def __init__(self, file, refusals) -> None:
        self._file = file
        self._refusals = refusals
        self.path = file.path

    def pwrite(self, data, position) -> None:
        try:
            self._refusals.ask(f"write {self.path}")
        except StorageFull:
            self._file.pwrite(data[: len(data) // 2], position)
            raise
        self._file.pwrite(data, position)

    def preallocate(self, size_bytes) -> None:
        self._refusals.ask(f"preallocate {self.path}")
        self._file.preallocate(size_bytes)

    def __getattr__(self, name):
        return getattr(self._file, name)


class RefusingDisk(SimulatedFileSystem):
    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.refusals = Refusals()

    def open(self, path, *, create=False):
        if create and path not in self.snapshot():
            self.refusals.ask(f"create {path}")
        return RefusingFile(super().open(path, create=create), self.refusals)

    def rename(self, source, target) -> None:
        self.refusals.ask(f"rename {source}")
        super().rename(source, target)

    def remove(self, path) -> None:
        if path in self.snapshot():
            self.refusals.ask(f"remove {path}")
        super().remove(path)

    def sync_directory(self, path) -> None:
        self.refusals.ask(f"open directory {path}")
        super().sync_directory(path)


def patiently(action: Callable[[], object]):
    """As the driver does it: the same again until there is room."""
    for _ in range(50):
        try:
            return action()
        except StorageFull:
            continue
    raise AssertionError("it never succeeds")


def take(store, builder, made) -> None:
    def attempt() -> None:
        writer = None
        try:
            writer = store.snapshots.writer(made.end, builder.control(made))
            for number in range(3):
                writer.append(b"%d" % made.end_offset * 20, number + 1)
            writer.finish()
        except StorageFull:
            if writer is not None:
                writer.abandon()
            raise

    patiently(attempt)


def copy(store, builder, made) -> int:
    leader = MetadataStore.open(SimulatedFileSystem(Random(0)), "/leader", "test-cluster", bytes(16))
    builder.snapshot(leader, made)
    position = patiently(lambda: store.snapshots.open_part(made.end))
    while True:
        size, data = leader.snapshots.read(made.end, position, 150) or (0, b"")
        if position == size:
            return patiently(lambda: store.snapshots.verify_part(made.end)).last_crc
        at = position
        position = patiently(lambda at=at, data=data: store.snapshots.store_part(made.end, at, data))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_snapshots_cleanings_copies_and_installs_go_on_after_any_refusal(open_store, builder, count) -> None:
    written = builder.log(40, stamp_behind=2)
    for first in range(200):
        disk = RefusingDisk(Random(first))
        store = open_store(disk)
        disk.refusals.arm(first, count)
        for number, made in enumerate(written[:30]):
            store.log.append(made.base_offset, made.end_offset, made.data)
            if number in (12, 20):
                patiently(store.log.flush)
                take(store, builder, made)
                store.log.clean(made.end)
        store.log.truncate(29)
        store.log.append(written[29].base_offset, written[29].end_offset, written[29].data)
        patiently(store.log.flush)
        assert store.log.read(21, 1 << 20) == b"".join(made.data for made in written[21:30])
        store.log.install(written[34].end, copy(store, builder, written[34]))
        builder.append(store.log, written[35:])
        patiently(store.log.flush)
        assert store.log.durable_end_offset == 40
        is_over = disk.refusals.seen < first
        disk.refusals.seen = -1
        store.log.flush()
        disk.crash(power_cut=True)
        names = disk.names(DIRECTORY)
        again = open_store(disk)
        assert (again.log.start, again.log.end_offset, again.notes) == (written[34].end, 40, []), (first, names)
        assert again.log.read(35, 1 << 20) == b"".join(made.data for made in written[35:])
        assert [name for name in disk.names(DIRECTORY) if "checkpoint" in name] == ["00000000000000000035-0000000001.checkpoint"]
        if is_over:
            break
    else:
        raise AssertionError("not every operation was refused once")
