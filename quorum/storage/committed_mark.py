"""The committed offset at a clean stop: the file `committed`, for people who read the directory of a stopped node.

Batches carry the high watermark of the time when they were appended, so the log alone never shows that its last batches are
committed. The node itself does not read the file. Committed data stays committed, so an old mark is low but never wrong.
"""

from __future__ import annotations

import msgspec

from .checked_file import replace_checked, with_crc
from .file_system import FileReader, FileSystem

FILE_NAME = "committed"


class _Record(msgspec.Struct, frozen=True):
    data_version: int
    offset: int


_decode = msgspec.json.Decoder(_Record).decode
_encode = msgspec.json.Encoder().encode


def store_committed(file_system: FileSystem, partition: str, offset: int) -> None:
    """Replace the mark. StorageError."""
    replace_checked(file_system, partition, FILE_NAME, _encode(_Record(0, offset)))


def read_committed(files: FileReader, partition: str) -> int:
    """Return the offset below which everything is committed; 0 without a valid mark."""
    try:
        data = files.read(f"{partition}/{FILE_NAME}")
        line = data.partition(b"\n")[0]
        return _decode(line).offset if with_crc(line) == data else 0
    except (FileNotFoundError, msgspec.MsgspecError):
        return 0
