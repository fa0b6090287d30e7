"""Small durable file operations. A name is durable once the directory that holds it has been fsynced."""

from __future__ import annotations

import os
from pathlib import Path


def fsync_directory(path: Path) -> None:
    """Make the names in `path` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, text: str) -> None:
    """Replace `path` by `text`, atomically: write beside it, fsync, rename, fsync the directory."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    fsync_directory(path.parent)


def write_first(path: Path, text: str) -> None:
    """Write a file into a new directory that nobody reads before it gets its name: no need to be atomic, only to be durable.
    A journal that has taken in the file has taken in its name as well, so that the second fsync costs little.
    """
    with open(path, "x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fsync_directory(path.parent)


def rename_new(source: Path, target: Path) -> None:
    """Rename a directory; the names are not durable yet. OSError if `target` exists."""
    if target.exists():
        raise FileExistsError(f"{target} exists already; {source} is not renamed over it")
    os.rename(source, target)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a directory and make both parents' names durable. OSError if `target` exists."""
    rename_new(source, target)
    fsync_directory(target.parent)
    if source.parent != target.parent:
        fsync_directory(source.parent)


def write_all(descriptor: int, data: bytes | memoryview, position: int) -> None:
    """Write the whole of `data` at `position`; a short write is continued."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view = view[written:]
        position += written
