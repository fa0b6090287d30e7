"""Ranges of a file are copied by the kernel where it can, and byte by byte the same where it cannot."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftlab.broker.log import file_ranges
from kraftlab.broker.log.errors import LogDirFailed
from kraftlab.broker.log.file_ranges import FileRange
from kraftlab.records.errors import CorruptBatch

from .conftest import failing

CONTENT = bytes(range(256)) * 40


class Files:
    def __init__(self, tmp_path: Path) -> None:
        self.source_dir, self.target = tmp_path / "source-dir", tmp_path / "target"
        self.source_dir.mkdir()
        (self.source_dir / "log").write_bytes(CONTENT)
        self.target.write_bytes(b"before")
        self.descriptors = [os.open(path, os.O_RDWR) for path in (self.source_dir / "log", self.target)]

    def range(self, position: int, size_bytes: int) -> FileRange:
        return FileRange(self.source_dir, self.descriptors[0], position, size_bytes)

    def copy(self, source: FileRange) -> bytes:
        source.write_to(self.descriptors[1], 6)
        return self.target.read_bytes()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path)
    yield made
    for descriptor in made.descriptors:
        os.close(descriptor)


def at_most(count_max: int) -> Callable[..., int]:
    real = os.copy_file_range

    def short(source: int, target: int, count: int, *positions: int) -> int:
        return real(source, target, min(count, count_max), *positions)

    return short


@pytest.mark.parametrize(
    "call",
    [
        os.copy_file_range,
        at_most(7),
        at_most(0),
        *(failing(number) for number in (errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EIO)),
    ],
)
def test_a_range_arrives_whole_whatever_the_file_systems_can_do(
    files: Files, monkeypatch: pytest.MonkeyPatch, call: Callable[..., int]
) -> None:
    monkeypatch.setattr(file_ranges, "PIECE_BYTES", 1000)
    monkeypatch.setattr(os, "copy_file_range", call)
    assert files.copy(files.range(3, 5000)) == b"before" + CONTENT[3:5003]
    assert files.copy(files.range(0, 9000).part(100, 20))[6:26] == CONTENT[100:120]


SHARED_MEMORY = Path("/dev/shm")


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="this machine has no second file system")
def test_a_range_goes_from_one_file_system_to_another(files: Files) -> None:
    with tempfile.TemporaryFile(dir=SHARED_MEMORY) as target:
        files.range(3, 5000).write_to(target.fileno(), 6)
        assert os.pread(target.fileno(), 9000, 6) == CONTENT[3:5003]


def test_a_full_target_is_not_written_by_the_slow_way_either(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "copy_file_range", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        files.copy(files.range(0, 10))


def test_the_disk_that_fails_is_named(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "copy_file_range", failing(errno.EIO))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            files.copy(files.range(0, 10))
    monkeypatch.setattr(os, "pread", failing(errno.EIO))
    with pytest.raises(LogDirFailed) as caught:
        files.copy(files.range(0, 10))
    assert caught.value.log_dir == files.source_dir


def test_a_source_that_ends_early_is_an_error(files: Files) -> None:
    with pytest.raises(CorruptBatch, match="the file ends 5 bytes before"):
        files.copy(files.range(len(CONTENT) - 5, 10))
