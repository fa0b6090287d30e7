"""A power cut at any moment leaves a lake that the next writer makes right: no committed row is lost or doubled.

The library writes by system calls of its own. So the disk model learns of changes by looking at the directory at each sync, which
only the lake does; what happened between two syncs can have any order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from kraftlab.checking.disk_model import (
    Create,
    DiskModel,
    Operation,
    Remove,
    Rename,
    SyncDirectory,
    SyncFile,
    Tree,
    Write,
)
from kraftlab.pipeline.errors import CorruptInput
from kraftlab.pipeline.lake import compaction, delta
from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.lake.lock import LOCK_NAME
from kraftlab.pipeline.storage.schemas import arrow_schema

TABLE = "silver.configs"
Rows = list[tuple[int, str]]


class Disk:
    """A directory of this machine as a disk whose power can be cut. `images` are those after a cut, by the last step of the
    run in which it can happen.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.step, self.images = root, 0, dict[Tree, int]()
        self._model, self._inodes = DiskModel([root.name]), 1000

    @contextmanager
    def watching(self) -> Iterator[None]:
        with mock.patch.object(os, "fsync", self._sync):
            yield

    def look(self) -> None:
        """Take what changed since the last look into the model, and note the possible images."""
        seen = dict(self._model.as_seen())
        real: dict[str, bytes | None] = {self.root.name: None}
        for path in self.root.rglob("*"):
            if path.name != LOCK_NAME:
                real[f"{self.root.name}/{path.relative_to(self.root)}"] = None if path.is_dir() else path.read_bytes()
        for path in sorted(seen.keys() - real.keys(), reverse=True):
            parent, _, name = path.rpartition("/")
            self._note(Remove(self._inode(parent), name))
        for path in sorted(path for path in real if real[path] != seen.get(path, 0)):
            parent, _, name = path.rpartition("/")
            content, is_new, self._inodes = real[path], path not in seen, self._inodes + 1
            self._note(Create(self._inode(parent), name if is_new else f"{name}.new", self._inodes, content is None))
            if content:
                self._note(Write(self._inodes, 0, content))
            if not is_new:
                self._note(Rename(self._inode(parent), f"{name}.new", name, self._inodes))
        for tree in self._model.in_any_order():
            self.images[tree] = self.step

    def _sync(self, descriptor: int) -> None:
        self.look()
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        inode = self._inode(str(path.relative_to(self.root.parent)))
        self._note(SyncDirectory(inode) if path.is_dir() else SyncFile(inode))

    def _note(self, operation: Operation) -> None:
        self._model.apply(operation)

    def _inode(self, path: str) -> int:
        root, *names = path.split("/")
        inode = self._model.roots[root]
        for name in names:
            inode = self._model.names[inode][name]
        return inode


def _commit(lo: int, hi: int, value: str) -> Callable[[Lake], None]:
    def commit(lake: Lake) -> None:
        rows = [{"offset": offset, "value": value} for offset in range(lo, hi)]
        with lake.writing():
            lake.commit_arrow(pa.Table.from_pylist(rows, schema=arrow_schema(TABLE)), TABLE, lo, hi)

    return commit


def _compact(lake: Lake) -> None:
    with lake.writing():
        compaction.compact(lake, [TABLE])


STEPS = [
    _commit(0, 5, "first"),
    _commit(5, 8, "second"),
    _commit(0, 5, "third"),
    _commit(8, 9, "fourth"),
    _compact,
    lambda lake: lake.vacuum(),
    _commit(9, 10, "fifth"),
    lambda lake: lake.vacuum(keep=2),
]
"""A merge of three ranges, and two vacuums, of which one makes a checkpoint and removes commits."""


def _rows(lake: Lake) -> Rows:
    found = lake.arrow(TABLE, ["offset", "value"]).to_pylist()
    return sorted((row["offset"], row["value"]) for row in found)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "FAN_IN", 3)
    monkeypatch.setattr(delta, "COMMITS_PER_CHECKPOINT", 3)


@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.nightly)])
def test_after_each_power_cut_the_next_writer_finds_all_that_was_committed(every: int, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    disk, lake, states = Disk(tmp_path / "lake"), Lake(str(tmp_path / "lake")), list[Rows]([[]])
    with disk.watching():
        for step in STEPS:
            step(lake)
            disk.step += 1
            disk.look()
            states.append(_rows(lake))
    assert len(list((tmp_path / "lake").glob("silver/configs/_delta_log/*.checkpoint.parquet"))) == 1
    assert len(disk.images) > 200
    with mock.patch.object(os, "fsync", lambda descriptor: None):
        for number, (tree, step) in enumerate([*disk.images.items()][::every]):
            _judge(tree, tmp_path / str(number), states[step : step + 2], STEPS[step:], states[-1])


def _judge(tree: Tree, place: Path, allowed: list[Rows], steps: list[Callable[[Lake], None]], last: Rows) -> None:
    """Fail unless a lake from an image has allowed rows, and the rest of the run gives the last rows."""
    place.mkdir()
    for path, content in tree:
        if content is None:
            (place / path).mkdir()
        else:
            (place / path).write_bytes(content)
    try:
        assert _rows(Lake(str(place / "lake"))) in allowed
    except CorruptInput as error:
        assert "vacuum removes an incomplete commit" in str(error)
    lake = Lake(str(place / "lake"))
    lake.vacuum()
    assert _rows(lake) in allowed
    for step in steps:
        step(lake)
    assert _rows(lake) == last
