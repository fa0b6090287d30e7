"""Cuts the files of a log into tasks of about equal size.

A task costs some 30 ms before it reads a byte, so small segments are packed together. A segment larger than a task's share is cut
at the beginnings of batches, which are found by following the headers without reading the batches. The pieces of a file cover it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..framing import Fault, Format, Frame, ReadAt, Window, frame_at, next_frame
from .formats import LogFormat
from .survey import SNAPSHOT, LogFile, reader_of

TASK_BYTES_MIN = 4 << 20
TASKS_PER_CORE = 4


class Piece(NamedTuple):
    """Bytes [start, end) of a file. The first piece of a file begins at 0; the last has no end, since the file can have grown."""

    file: LogFile
    start: int
    end: int | None


def piece_bytes(files: Iterable[LogFile], tasks: int) -> int:
    """Return a task's share."""
    return max(TASK_BYTES_MIN, -(-sum(file.size_bytes for file in files) // max(1, tasks)))


def cut(file: LogFile, form: LogFormat, share_bytes: int) -> list[Piece]:
    """Return the pieces of a file, each of about a task's share. FileNotFoundError."""
    if file.size_bytes <= share_bytes * 3 // 2:
        return [Piece(file, 0, None)]
    read, size_bytes = reader_of(file.uri)
    start = form.start(read, size_bytes, file.kind == SNAPSHOT).batches_at
    starts = [0, *split_points(read, size_bytes, form.form, start, share_bytes)]
    return [Piece(file, begin, end) for begin, end in zip(starts, [*starts[1:], None], strict=True)]


def split_points(read: ReadAt, size_bytes: int, form: Format, start: int, share_bytes: int) -> list[int]:
    """Return beginnings of whole batches, at least `share_bytes` apart."""
    window = Window(read, size_bytes)
    position, wanted = start, start + share_bytes
    found: list[int] = []
    while position < window.end:
        at = window.at(position, form.header_bytes)
        size = form.size_bytes(window.data, at, window.end - position)
        if isinstance(size, Fault):
            position = next_frame(window, form, position + 1)
            continue
        if position >= wanted and isinstance(frame_at(window, form, position), Frame):
            found.append(position)
            wanted = position + share_bytes
        position += size
    return found


def packed(pieces: Sequence[Piece], share_bytes: int) -> list[list[Piece]]:
    """Return tasks of neighbouring pieces. A piece without an end counts up to the known size of its file."""
    tasks: list[list[Piece]] = []
    filled = share_bytes
    for piece in pieces:
        size = (piece.file.size_bytes if piece.end is None else piece.end) - piece.start
        if filled + size > share_bytes and filled:
            tasks.append([])
            filled = 0
        tasks[-1].append(piece)
        filled += size
    return tasks
