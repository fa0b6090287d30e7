"""The disk model: the operations that a power cut keeps."""

from __future__ import annotations

from random import Random

from kraftlab.checking.disk_model import (
    ALL,
    LOST,
    SECTOR_BYTES,
    TORN,
    ZEROS,
    Create,
    DiskModel,
    FileModel,
    Rename,
    SyncDirectory,
    SyncFile,
    Write,
)

FILE = 7


def disk_with_a_file() -> DiskModel:
    model = DiskModel(["d"])
    for operation in (Create(0, "a", FILE, False), Write(FILE, 0, b"old."), SyncFile(FILE), SyncDirectory(0)):
        model.apply(operation)
    return model


def test_a_write_that_is_not_synced_is_kept_or_lost_or_torn_or_zeros() -> None:
    model = disk_with_a_file()
    model.apply(Write(FILE, 4, b"new!"))
    contents = {dict(tree)["d/a"] for tree in model.in_order()}
    assert contents == {b"old.", b"old.new!", b"old.ne", b"old.\0\0\0\0"}
    assert dict(model.as_seen())["d/a"] == b"old.new!"
    model.apply(SyncFile(FILE))
    assert {dict(tree)["d/a"] for tree in model.in_any_order()} == {b"old.new!"}


def test_names_persist_in_order_or_in_any_order_and_a_rename_is_one_change() -> None:
    model = disk_with_a_file()
    model.apply(Rename(0, "a", "b", FILE))
    model.apply(Create(0, "c", 8, False))

    def names(trees: object) -> set[str]:
        return {"".join(path[2:] for path, _ in tree) for tree in trees}

    assert names(model.in_order()) == {"a", "b", "bc"}
    assert names(model.in_any_order()) == {"a", "b", "ac", "bc"}
    model.apply(SyncDirectory(0))
    assert names(model.in_any_order()) == {"bc"}


class TwoFiles:
    """The naive twin of a file: two copies, the content that programs see and the synced one. `torn`: the last
    write half done.
    """

    def __init__(self) -> None:
        self.seen = self.synced = self.torn = b""

    def write(self, data: bytes, position: int) -> None:
        self.torn = self._with(data[: len(data) // 2], position)
        self.seen = self._with(data, position)

    def _with(self, data: bytes, position: int) -> bytes:
        before = self.seen.ljust(position, b"\0")
        return before[:position] + data + before[position + len(data) :]

    def resize(self, size_bytes: int) -> None:
        self.torn, self.seen = self.seen, self.seen[:size_bytes].ljust(size_bytes, b"\0")

    def sync(self) -> None:
        self.torn = self.synced = self.seen


def test_a_file_forgets_exactly_unsynced_changes() -> None:
    for seed in range(300):
        random = Random(seed)
        file, twin = FileModel(), TwoFiles()
        for _ in range(random.randrange(1, 12)):
            position, size = random.randrange(40), random.randrange(1, 20)
            data = random.randbytes(size)
            for each in (file, twin):
                match position % 5:
                    case 0:
                        each.sync()
                    case 1:
                        each.resize(size)
                    case _:
                        each.write(data, position)
            zeros = twin.synced[: len(twin.seen)].ljust(len(twin.seen), b"\0")
            expected = [twin.synced, twin.seen, twin.torn, zeros] if not file.is_certain else [twin.seen] * 4
            assert [file.content(policy) for policy in (LOST, ALL, TORN, ZEROS)] == expected, seed
            assert bytes(file.durable()) == twin.synced, seed


def test_sectors_survive_one_by_one_and_pages_as_a_whole_unless_they_are_torn() -> None:
    for tears_pages in (False, True):
        file, left = FileModel(), set[bytes]()
        file.write(b"a" * 2 * 4096, 0)
        file.sync()
        file.write(b"b" * 2 * 4096, 0)
        for seed in range(40):
            survivor = bytes(file.survivor(Random(seed), 0.5, tears_pages=tears_pages))
            assert {len(set(survivor[at : at + SECTOR_BYTES])) for at in range(0, len(survivor), SECTOR_BYTES)} == {1}
            left.add(survivor[::4096] if not tears_pages else survivor[::SECTOR_BYTES])
            assert tears_pages or all(len(set(survivor[at : at + 4096])) == 1 for at in (0, 4096))
        assert len(left) == 4 if not tears_pages else len(left) > 10


def test_a_cut_that_is_lost_takes_all_later_changes_with_it() -> None:
    before, left = b"synced" * 300, set[bytes]()
    for seed in range(200):
        file, random = FileModel(), Random(seed)
        file.write(before, 0)
        file.sync()
        file.resize(SECTOR_BYTES)
        file.write(b"new", SECTOR_BYTES)
        left.add(bytes(file.survivor(random, random.random())))
    cut = before[:SECTOR_BYTES]
    assert left == {before, cut, cut + b"new", cut + bytes(3)}
