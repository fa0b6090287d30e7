"""Bytes of one file that are appended to another one by the kernel, without a copy of them in this process.

`copy_file_range` copies within the page cache, or shares the blocks where the file system can (reflink). File systems that
cannot, or two that cannot do it together (EXDEV, EOPNOTSUPP and others), get a read and a write of each piece instead. So does
any other error of the call, except a full disk: the error of the read or of the write then says whose disk is at fault. A call
may copy fewer bytes than asked; it is repeated for the rest.

After each range the kernel is asked to write the new bytes to the disk, without waiting. The disk works while the next range
is copied, and the fsync at the end has little left to do.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from kraftlab.records.errors import CorruptBatch

from .errors import disk_errors
from .files import start_write_back, write_all

PIECE_BYTES = 1024 * 1024
"""Size of the reads and writes of the slow way."""
ALIGNED_BYTES = 64 * 1024
"""The kernel copies in pieces of this size. If they begin at its multiples, it takes a quarter less of the processor."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FileRange:
    """`size_bytes` bytes of the open file `descriptor`, from `position`. `log_dir` is the log directory that holds the file."""

    __slots__ = ("_descriptor", "_log_dir", "_position", "_size_bytes")

    def __init__(self, log_dir: Path, descriptor: int, position: int, size_bytes: int) -> None:
        self._log_dir = log_dir
        self._descriptor = descriptor
        self._position = position
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def part(self, start: int, size_bytes: int) -> FileRange:
        """The range of `size_bytes` bytes that begins `start` bytes into this one."""
        assert 0 <= start <= start + size_bytes <= self._size_bytes
        return FileRange(self._log_dir, self._descriptor, self._position + start, size_bytes)

    def write_to(self, descriptor: int, position: int) -> None:
        """Copy the bytes into another file. OSError: the target is at fault; LogError: this file is."""
        done = 0
        while done < self._size_bytes:
            to_border = ALIGNED_BYTES - (position + done) % ALIGNED_BYTES
            count = min(to_border, self._size_bytes - done) if to_border < ALIGNED_BYTES else self._size_bytes - done
            copied = self._copy_some(descriptor, position + done, done, count)
            if not copied:
                copied = self._read_and_write(descriptor, position + done, done)
            done += copied
        start_write_back(descriptor, position, self._size_bytes)

    def _copy_some(self, descriptor: int, position: int, done: int, count: int) -> int:
        """Return the number of bytes that the kernel copied, 0 if it cannot. OSError: the target is full."""
        if not hasattr(os, "copy_file_range"):
            return 0
        try:
            return os.copy_file_range(self._descriptor, descriptor, count, self._position + done, position)
        except OSError as error:
            if error.errno in _FULL:
                raise
            return 0

    def _read_and_write(self, descriptor: int, position: int, done: int) -> int:
        with disk_errors(self._log_dir):
            data = os.pread(self._descriptor, min(PIECE_BYTES, self._size_bytes - done), self._position + done)
        if not data:
            raise CorruptBatch(self._position + done, f"the file ends {self._size_bytes - done} bytes before its last batch")
        write_all(descriptor, data, position)
        return len(data)
