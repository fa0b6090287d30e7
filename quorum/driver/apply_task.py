"""Feeds the state machine: committed batches in log order, and the leadership notices between them.

Theory of operation. The high watermark only rises; everything below it is final, so the task reads the log from where it
stopped, in chunks, and hands them on. A notice carries the offset through which the state machine must have applied before it
hears of it: the end of its own epoch's first batch for "you lead", what was committed at that moment for the others. Notices
and batches form one sequence, so a state machine never sees a batch of a later leader before it heard that it lost its own
leadership. Batches come from the log's memory where they are still there; older ones are read and checked in a worker thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from ..core.batch import HEADER_BYTES, decode_all, read_header
from ..core.errors import InvariantViolation
from ..state_machine import CommittedBatch, StateMachine
from ..storage.metadata_log import MetadataLog
from .signal import Signal

CHUNK_BYTES = 256 * 1024
"""What is applied between two looks at the rest of the world; a larger batch still goes in one piece."""

Notice = Callable[[], Awaitable[None]]


class ApplyTask:
    """Owns `applied_offset`: everything below it has been given to the state machine."""

    def __init__(self, log: MetadataLog, state_machine: StateMachine) -> None:
        self._log = log
        self._state_machine = state_machine
        self._wanted = Signal()
        self._notices: deque[tuple[int, Notice]] = deque()
        self.applied_offset = log.start_offset
        self.high_watermark = log.start_offset

    @property
    def busy(self) -> bool:
        """True if there are committed batches to apply."""
        return self.applied_offset < self.high_watermark

    def advance(self, high_watermark: int) -> None:
        """Everything below `high_watermark` is committed."""
        if high_watermark < self.high_watermark:
            raise InvariantViolation(f"high watermark falls from {self.high_watermark} to {high_watermark}")
        self.high_watermark = high_watermark
        self._wanted.set()

    def notify(self, notice: Notice, *, after_offset: int) -> None:
        """Calls `notice` once everything below `after_offset` is applied, and after all earlier notices."""
        self._notices.append((after_offset, notice))
        self._wanted.set()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            while True:
                notices = self._notices
                if notices and notices[0][0] <= self.applied_offset:
                    await notices.popleft()[1]()
                    continue
                end_offset = min(notices[0][0], self.high_watermark) if notices else self.high_watermark
                if self.applied_offset >= end_offset:
                    break
                batches = await self._read(end_offset)
                await self._state_machine.apply(batches, self.high_watermark)
                self.applied_offset = batches[-1].end_offset
                if self.applied_offset < self.high_watermark:
                    await trio.lowlevel.checkpoint()

    async def _read(self, end_offset: int) -> list[CommittedBatch]:
        start_offset = self.applied_offset
        if self._log.cached(start_offset):
            batches = _split(self._log.read(start_offset, CHUNK_BYTES, end_offset=end_offset))
        else:
            batches = await trio.to_thread.run_sync(self._read_from_disk, start_offset, end_offset)
        if not batches or batches[0].base_offset != start_offset or batches[-1].end_offset > end_offset:
            raise InvariantViolation(f"the log gave {batches!r} for the committed range {start_offset} to {end_offset}")
        return batches

    def _read_from_disk(self, start_offset: int, end_offset: int) -> list[CommittedBatch]:
        data = self._log.read(start_offset, CHUNK_BYTES, end_offset=end_offset)
        return [
            CommittedBatch(
                header.base_offset, header.end_offset, header.epoch, header.append_time_ms, b"" if header.is_control else body
            )
            for header, body, _ in decode_all(data)
        ]


def _split(data: bytes) -> list[CommittedBatch]:
    """Batches that never left memory and were checked when they came in."""
    batches: list[CommittedBatch] = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        end = position + header.size_bytes
        body = b"" if header.is_control else data[position + HEADER_BYTES : end]
        batches.append(CommittedBatch(header.base_offset, header.end_offset, header.epoch, header.append_time_ms, body))
        position = end
    return batches
