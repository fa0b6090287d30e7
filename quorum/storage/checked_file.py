"""Small records on disk that are replaced whole: one JSON line and its crc.

The file is two lines: a JSON object and the crc32 of that line in hex, so that `cat` shows it and any flipped bit is
noticed. New contents go to `<name>.tmp`, are fsynced, renamed over the old file, and the directory is fsynced: after a power
cut the file holds the old record or the new one, never a mixture.
"""

from __future__ import annotations

import zlib

from .file_system import FileSystem

MAX_BYTES = 1024 * 1024
TEMPORARY = ".tmp"


def with_crc(line: bytes) -> bytes:
    """The whole file that holds `line`."""
    return line + b"\n" + f"{zlib.crc32(line):08x}\n".encode()


def read_checked(file_system: FileSystem, path: str) -> bytes | None:
    """The JSON line; None if there is no such file. ValueError if the crc does not hold."""
    try:
        file = file_system.open(path)
    except FileNotFoundError:
        return None
    try:
        data = file.pread(MAX_BYTES, 0)
    finally:
        file.close()
    line = data.partition(b"\n")[0]
    if with_crc(line) != data:
        raise ValueError("the crc does not hold")
    return line


def replace_checked(file_system: FileSystem, directory: str, name: str, line: bytes) -> None:
    """Replace the file durably. StorageFull leaves the old one in place."""
    path = f"{directory}/{name}"
    temporary = path + TEMPORARY
    file_system.remove(temporary)
    file = file_system.open(temporary, create=True)
    try:
        file.pwrite(with_crc(line), 0)
        file.fdatasync()
    finally:
        file.close()
    file_system.rename(temporary, path)
    file_system.sync_directory(directory)
