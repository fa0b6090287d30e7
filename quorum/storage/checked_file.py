"""Files that are replaced whole, and small records in them: one JSON line and its crc.

New contents go to `<name>.tmp`, are fsynced, renamed over the old file, and the directory is fsynced. After a power cut the file
holds the old contents or the new, never a mixture. A record is two lines: a JSON object and the crc32 of that line in hex. `cat`
shows it, and any flipped bit is noticed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager

from .file_system import File, FileSystem

MAX_BYTES = 1024 * 1024
TEMPORARY = ".tmp"


@contextmanager
def replacing(file_system: FileSystem, directory: str, name: str) -> Iterator[File]:
    """Give an empty file to write; it durably takes the name when the block ends. After an error the old file stays."""
    path = f"{directory}/{name}"
    temporary = path + TEMPORARY
    file_system.remove(temporary)
    with closing(file_system.open(temporary, create=True)) as file:
        yield file
        file.fdatasync()
    file_system.rename(temporary, path)
    file_system.sync_directory(directory)


def with_crc(line: bytes) -> bytes:
    """Return the whole file that holds `line`."""
    return line + b"\n" + f"{zlib.crc32(line):08x}\n".encode()


def read_checked(file_system: FileSystem, path: str) -> bytes | None:
    """Return the JSON line; None if the file is missing. ValueError if the crc is wrong."""
    try:
        with closing(file_system.open(path)) as file:
            data = file.pread(MAX_BYTES, 0)
    except FileNotFoundError:
        return None
    line = data.partition(b"\n")[0]
    if with_crc(line) != data:
        raise ValueError("the crc does not hold")
    return line


def replace_checked(file_system: FileSystem, directory: str, name: str, line: bytes) -> None:
    """Replace the file durably. StorageFull leaves the old one in place."""
    with replacing(file_system, directory, name) as file:
        file.pwrite(with_crc(line), 0)
