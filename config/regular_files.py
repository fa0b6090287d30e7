"""Opening and reading files that a node finds in its directories: only regular ones, up to a size. A reader or writer would wait
forever for a FIFO in a file's place, and a huge file would take all memory.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from pathlib import Path

_IS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link to nothing",
}
_NO_PATH = {errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR}
"""Errors of what is in the file's place: a loop of symbolic links, a file as parent, a socket, a directory. The disk works."""

logger = logging.getLogger(__name__)


class OddFile(ValueError):
    """Something else than a regular file of the expected size. The text completes "The file is …"."""


def odd_thing_at(path: str | os.PathLike[str]) -> str:
    """Return what is in a file's place and not a regular file, as the text of `OddFile`; "" if the file is regular or missing."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = os.lstat(path).st_mode if os.path.islink(path) else stat.S_IFREG
    except OSError as error:
        if error.errno not in _NO_PATH:
            raise
        return f"not a regular file: {error.strerror}; remove what is in its place"
    if stat.S_ISREG(mode):
        return ""
    return f"{_IS.get(stat.S_IFMT(mode), 'something else')}, not a regular file; remove what is in its place"


def open_regular(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Return a descriptor of a regular file. OddFile; OSError if it is missing or the disk fails."""
    try:
        # Without O_NONBLOCK, opening a named pipe waits for the other end.
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno in _NO_PATH:
            raise OddFile(odd_thing_at(path) or f"not a regular file: {error.strerror}; remove what is in its place") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OddFile(odd_thing_at(path) or "not a regular file; remove what is in its place")
    return descriptor


def read_regular(path: str | os.PathLike[str], bytes_max: int) -> bytes:
    """Return the content of a regular file of at most `bytes_max` bytes. OddFile; OSError if it is missing or the disk fails."""
    descriptor = open_regular(path, os.O_RDONLY)
    try:
        status = os.fstat(descriptor)
        if status.st_size > bytes_max:
            raise OddFile(f"{status.st_size} bytes long, more than {bytes_max}; restore or remove it")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(bytes_max)
    finally:
        os.close(descriptor)


def remove_file(path: Path) -> None:
    """Remove what is in a file's place, if anything. A directory is only renamed. OSError. Not durable."""
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        aside = path.with_name(f"set-aside.{time.time_ns()}.{path.name.partition('.')[0]}")
        os.rename(path, aside)
        logger.warning("%s was a directory, which is now %s", path, aside.name)


def clear_place(path: Path) -> None:
    """Make room for a new file where there may be something else than a regular file. OSError. Not durable."""
    odd = odd_thing_at(path)
    if odd:
        logger.warning("%s was %s; it is removed or set aside", path, odd.partition(";")[0])
        remove_file(path)
