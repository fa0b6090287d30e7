"""Every batch header of the log in memory, as columns of machine integers (52 bytes a batch).

A batch's *position* is the place of its first byte in the log's continuous byte stream, as if all batches were in one file
without header pages. Segments and the tail cache are ranges of that stream. A batch's size is the distance to the next position.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from operator import sub

from ..core.batch import NO_PREVIOUS_CRC, BatchHeader


class BatchIndex:
    """Append-only except for `truncate` and `drop`. Not thread-safe: its owner locks.

    `last_epoch` and `last_crc` are those of the last batch, or of what precedes an empty index.
    """

    def __init__(
        self, start_offset: int = 0, start_epoch: int = 0, start_crc: int = NO_PREVIOUS_CRC, start_position: int = 0
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.end_position = start_position
        self.start_epoch = start_epoch
        self.start_crc = start_crc
        self.last_epoch = start_epoch
        self.last_crc = start_crc
        self.base_offsets = array("Q")
        self.positions = array("Q")
        self.high_watermarks = array("Q")
        self._epochs = array("Q")
        self._crcs = array("Q")
        self._append_times_ms = array("Q")
        self._attributes = array("H")
        self._counts = array("H")
        self._main_columns = (self.positions, self.base_offsets, self.high_watermarks, self._epochs, self._crcs)

    def __len__(self) -> int:
        return len(self.base_offsets)

    def extend(self, headers: list[BatchHeader]) -> None:
        """Add the batches that follow the last one; the caller has checked that they do."""
        positions, offsets, marks, epochs, crcs = self._main_columns
        times_ms, attributes, counts = self._append_times_ms, self._attributes, self._counts
        position = self.end_position
        for header in headers:
            positions.append(position)
            offsets.append(header.base_offset)
            marks.append(header.high_watermark)
            epochs.append(header.epoch)
            crcs.append(header.crc)
            times_ms.append(header.append_time_ms)
            attributes.append(header.attributes)
            counts.append(header.record_count)
            position += header.size_bytes
        if headers:
            self.end_position = position
            self.end_offset = offsets[-1] + counts[-1]
            self.last_epoch, self.last_crc = epochs[-1], crcs[-1]

    def truncate(self, count: int) -> None:
        """Keep the first `count` batches."""
        if count >= len(self.base_offsets):
            return
        self.end_offset = self.base_offsets[count]
        self.end_position = self.positions[count]
        for column in self._columns():
            del column[count:]
        self.last_epoch = self._epochs[-1] if self._epochs else self.start_epoch
        self.last_crc = self._crcs[-1] if self._crcs else self.start_crc

    def drop(self, count: int) -> None:
        """Forget the first `count` batches: the index starts after them."""
        if count <= 0:
            return
        self.start_epoch, self.start_crc = self._epochs[count - 1], self._crcs[count - 1]
        self.start_offset = self.base_offsets[count] if count < len(self.base_offsets) else self.end_offset
        for column in self._columns():
            del column[:count]

    def _columns(self) -> tuple[array[int], ...]:
        return (*self._main_columns, self._append_times_ms, self._attributes, self._counts)

    def header(self, number: int) -> BatchHeader:
        """Return the header of batch `number`, counted from the log's start."""
        return BatchHeader(
            size_bytes=self.end_of(number) - self.positions[number],
            crc=self._crcs[number],
            base_offset=self.base_offsets[number],
            epoch=self._epochs[number],
            attributes=self._attributes[number],
            record_count=self._counts[number],
            append_time_ms=self._append_times_ms[number],
            high_watermark=self.high_watermarks[number],
            previous_crc=self._crcs[number - 1] if number else self.start_crc,
        )

    def headers(self, first: int = 0) -> Iterator[BatchHeader]:
        """Return the headers from batch `first` on, as they are now. Later changes of the index do not affect them."""
        previous_crc = self._crcs[first - 1] if 0 < first <= len(self._crcs) else self.start_crc
        positions, crcs = self.positions[first:], self._crcs[first:]
        return map(
            BatchHeader,
            map(sub, chain(positions[1:], (self.end_position,)), positions),
            crcs,
            self.base_offsets[first:],
            self._epochs[first:],
            self._attributes[first:],
            self._counts[first:],
            self._append_times_ms[first:],
            self.high_watermarks[first:],
            chain((previous_crc,), crcs),
        )

    def columns_from(self, first: int, start_position: int) -> list[tuple[int, int, int, int, int]]:
        """Return the columns of batch `first` and all after it.

        They are (position counted from `start_position`, base offset, high watermark, epoch, crc).
        """
        positions, offsets, marks, epochs, crcs = self._main_columns
        return [
            (positions[number] - start_position, offsets[number], marks[number], epochs[number], crcs[number])
            for number in range(first, len(offsets))
        ]

    def crc(self, number: int) -> int:
        return self._crcs[number]

    def epoch(self, number: int) -> int:
        return self._epochs[number]

    def end_of(self, number: int) -> int:
        """Return the position just after batch `number`."""
        return self.positions[number + 1] if number + 1 < len(self.base_offsets) else self.end_position

    def number_at(self, offset: int) -> int:
        """Return the batch that holds `offset`; `len(self)` at or after the end."""
        if offset >= self.end_offset:
            return len(self.base_offsets)
        return bisect_right(self.base_offsets, offset) - 1

    def number_at_position(self, position: int) -> int:
        """Return the first batch at or after byte `position`."""
        if position >= self.end_position:
            return len(self.positions)
        return bisect_left(self.positions, position)

    def range(self, start_offset: int, max_bytes: int, end_offset: int | None) -> tuple[int, int]:
        """Return the batches `[first, last)` from `start_offset` on.

        They are whole, at most `max_bytes` but at least one, none beyond `end_offset`.
        """
        if start_offset < self.start_offset:
            return 0, 0
        first = self.number_at(start_offset)
        last = len(self.base_offsets)
        if end_offset is not None and end_offset < self.end_offset:
            last = self.number_at(end_offset)
        if first >= last:
            return first, first
        limit = self.positions[first] + max_bytes
        if self.end_of(last - 1) > limit:
            fitting = bisect_right(self.positions, limit, first, len(self.base_offsets)) - 1
            last = max(first + 1, min(last, fitting))
        return first, last
