"""Walks the frames of a log file of any format: sound batches, and the damages between them.

A *format* describes one batch. This module finds the next batch after damaged bytes. A frame is accepted if its header makes
sense and its CRC holds. Any other bytes are one `Damage`, and reading continues at the next place where a whole frame with a good
CRC begins. So frames and damages together cover the requested stretch without gap or overlap, whatever happened to the file. A
file that ends within a frame is *torn* there. Zeros at its end are *unwritten*: preallocated space.

The file is read through a window of some MiB, so that memory does not grow with the file. A file that became shorter during the
read ends at its new end.

Not checked: that the offsets and epochs of frames follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from .kraft_log.batches import Damage

WINDOW_BYTES = 4 << 20
TORN, UNWRITTEN = "torn", "unwritten"
NO_STAMP = -1

ReadAt = Callable[[int, int], bytes]
"""(position, size in bytes) → bytes, fewer only at the file's end."""


class Frame(NamedTuple):
    """A batch with a valid CRC. `data` is the whole batch, `append_ms` its latest time, `high_watermark` the leader's high
    watermark when it wrote the batch (NO_STAMP if the format has none).
    """

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    append_ms: int
    record_count: int
    crc: int
    codec: str
    is_control: bool
    high_watermark: int
    data: bytes


class Fault(NamedTuple):
    """The reason for a missing frame: a status of `Damage` and a sentence."""

    status: str
    reason: str


class Format(Protocol):
    """The layout of one batch. `magic` is `magic_at` bytes after its start."""

    header_bytes: int
    magic: bytes
    magic_at: int

    def size_bytes(self, data: bytes, at: int, left_bytes: int) -> int | Fault:
        """Return the size of the frame with its header at `data[at]`. `left_bytes` are left in the file; `data` ends earlier
        only if the file does.
        """

    def frame(self, data: bytes, at: int, size_bytes: int, position: int) -> Frame | Fault:
        """Return the whole frame, checked. `position` is its place in the file."""

    def is_plausible(self, data: bytes, at: int) -> bool:
        """Return the result of a cheap test that avoids most CRCs in the search for the next frame."""


class Window:
    """The part of a file that is in memory."""

    def __init__(self, read: ReadAt, size_bytes: int, window_bytes: int = WINDOW_BYTES) -> None:
        self._read = read
        self._window_bytes = window_bytes
        self._from = 0
        self.data = b""
        self.end = size_bytes

    def at(self, position: int, size_bytes: int) -> int:
        """Return the index of `position` in `data`, which holds `size_bytes` from there on if the file does."""
        at = position - self._from
        if at < 0 or at + size_bytes > len(self.data):
            wanted = min(max(size_bytes, self._window_bytes), self.end - position)
            self.data, self._from, at = self._read(position, wanted), position, 0
            if len(self.data) < wanted:
                self.end = position + len(self.data)
        return at


def walk(read: ReadAt, size_bytes: int, form: Format, *, start: int = 0, end: int | None = None) -> Iterator[Frame | Damage]:
    """Yield the frames and damages of `[start, end)` of a file of `size_bytes`. `end` is None or a place where a frame begins."""
    is_tail = end is None or end >= size_bytes
    window = Window(read, size_bytes if is_tail else end or 0)
    position = start
    while position < window.end:
        found = frame_at(window, form, position)
        if isinstance(found, Frame):
            yield found
            position += found.size_bytes
        elif position < window.end:
            following = next_frame(window, form, position + 1)
            yield _damage(window, position, following, is_tail, *found)
            position = following


def frame_at(window: Window, form: Format, position: int) -> Frame | Fault:
    """Return the frame that begins at a position, or the reason for none."""
    at = window.at(position, form.header_bytes)
    size = form.size_bytes(window.data, at, window.end - position)
    if isinstance(size, Fault):
        return size
    at = window.at(position, size)
    if at + size > len(window.data):
        return Fault(TORN, f"the file ended while a batch of {size} bytes was read")
    return form.frame(window.data, at, size, position)


def next_frame(window: Window, form: Format, position: int) -> int:
    """Return the start of the next whole frame with a good CRC, or the window's end."""
    magic, magic_at, header_bytes = form.magic, form.magic_at, form.header_bytes
    while position + header_bytes <= window.end:
        at = window.at(position, header_bytes)
        data = window.data
        found = data.find(magic, at + magic_at)
        while found >= 0 and found - magic_at + header_bytes <= len(data):
            candidate = found - magic_at
            start = position + candidate - at
            if form.is_plausible(data, candidate):
                if isinstance(frame_at(window, form, start), Frame):
                    return start
                if window.data is not data:
                    position = start + 1
                    break
            found = data.find(magic, found + 1)
        else:
            position += len(data) - at - header_bytes + 1
    return window.end


def _damage(window: Window, position: int, end: int, is_tail: bool, status: str, reason: str) -> Damage:
    size = end - position
    if end < window.end or not is_tail:
        status = "bad_length" if status == TORN else status
        return Damage(position, size, status, f"{reason}; {size} bytes are skipped, reading continues at {end}")
    if _only_zeros(window, position):
        return Damage(position, size, UNWRITTEN, f"the file ends with {size} zero bytes, space that was not written yet")
    if status == TORN:
        return Damage(position, size, status, f"the file ends within a batch: {reason}")
    return Damage(position, size, status, f"{reason}; no batch follows in the last {size} bytes")


def _only_zeros(window: Window, position: int) -> bool:
    while position < window.end:
        at = window.at(position, 1)
        rest = len(window.data) - at
        if window.data.count(0, at) != rest:
            return False
        position += rest
    return True
