"""Reading files that a node finds in its directories: only regular ones, up to a size. A reader would wait for ever for a
FIFO in a file's place, and a huge file would take all memory.
"""

from __future__ import annotations

import errno
import os
import stat

_IS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NO_PATH = {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}
"""Errors of what is in the file's place: a loop of symbolic links, a file as parent, a socket. The disk works."""


class OddFile(ValueError):
    """Something else than a regular file of the expected size. The text completes "The file is …"."""


def read_regular(path: str | os.PathLike[str], bytes_max: int) -> bytes:
    """Return the content of a regular file of at most `bytes_max` bytes. OddFile; OSError if it is missing or the disk fails."""
    try:
        # Without O_NONBLOCK, opening a named pipe waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _NO_PATH:
            raise OddFile(f"not a regular file: {error.strerror}; remove what is in its place") from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = _IS.get(stat.S_IFMT(status.st_mode), "something else")
            raise OddFile(f"{kind}, not a regular file; remove what is in its place")
        if status.st_size > bytes_max:
            raise OddFile(f"{status.st_size} bytes long, more than {bytes_max}; restore or remove it")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(bytes_max)
    finally:
        os.close(descriptor)
