"""File names of Kafka's metadata logs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from .errors import NoSuchLog

PARTITION_DIRECTORY = "__cluster_metadata-0"
_NAME = re.compile(r"[0-9]{20}(\.log|-[0-9]{10}\.checkpoint)|bootstrap\.checkpoint")


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files among `paths`, whatever their names, and the segments and checkpoints in the directories, sorted by name:
    in the directory itself, and in the metadata partition's directory within it. NoSuchLog if a path yields nothing.
    """
    found = []
    for path in paths:
        if path.is_dir():
            found += _in_directory(path)
        elif path.exists():
            found.append(path)
        else:
            raise NoSuchLog(f"{path} does not exist; give a segment, a checkpoint, or a directory of a KRaft controller")
    return found


def is_checkpoint(path: Path) -> bool:
    """Return whether the file is a snapshot by its name. Snapshots appear whole, so one that ends early is damaged."""
    return path.suffix == ".checkpoint"


def has_footer(path: Path) -> bool:
    """Return whether the file, if whole, ends with a footer: every checkpoint does, except those of older formatting."""
    return is_checkpoint(path) and path.name != "bootstrap.checkpoint"


def _in_directory(directory: Path) -> list[Path]:
    files = [
        child
        for parent in (directory, directory / PARTITION_DIRECTORY)
        if parent.is_dir()
        for child in sorted(parent.iterdir())
        if _NAME.fullmatch(child.name) and child.is_file()
    ]
    if not files:
        raise NoSuchLog(
            f"{directory} holds no metadata log (OFFSET.log or OFFSET-EPOCH.checkpoint); "
            f"give {PARTITION_DIRECTORY} or the metadata.log.dir of a KRaft controller"
        )
    return files
