"""Feeds the state machine of one process: with batches from the log up to the high watermark, as late as the options say, and
with notices of leadership between them (quorum/apply_order.py). Proposals and linearizable reads complete when the state machine
has applied enough. snapshot_work.py loads snapshots into it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache

from kraftlab.quorum.apply_order import ApplyOrder, committed_batches
from kraftlab.quorum.core.batch import check_all
from kraftlab.quorum.core.effects import Apply, Resigned
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.quorum.storage import DiskFailed, LogCorrupt

from .stage import Process
from .state_machine import run_at_once

ReadDone = Callable[[bool], None]

APPLY_BYTES = 64 * 1024


@lru_cache(maxsize=128)
def batches_in(data: bytes) -> tuple[CommittedBatch, ...]:
    """Return the batches of `data`, after a check of their crcs. Cached, since most nodes apply the same data."""
    return tuple(committed_batches(data, check_all(data)))


class ApplyLoop(ApplyOrder):
    """The part of a process that feeds its state machine."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.state_machine)
        self._process = process
        self._is_late = False
        """True if a delayed application is scheduled."""
        self._proposals: deque[tuple[int, int, int]] = deque()
        """Batches to acknowledge when they are applied: (base offset, end offset, crc)."""
        self._reads: list[tuple[int, ReadDone]] = []
        """Linearizable reads, each with the offset that the state machine has to reach first."""

    # Waiting proposals and reads

    def acknowledge(self, base_offset: int, end_offset: int, crc: int) -> None:
        """Acknowledge a proposed batch as soon as it is applied, unless the process resigns before."""
        if end_offset <= self.applied_offset:
            self._acknowledged(base_offset, end_offset, crc)
        else:
            self._proposals.append((base_offset, end_offset, crc))

    def _acknowledged(self, base_offset: int, end_offset: int, crc: int) -> None:
        self._process.world.acknowledged += 1
        self._process.world.checkers.on_acknowledged(self._process, base_offset, end_offset, crc)

    def show(self, offset: int, then: ReadDone) -> None:
        """Call `then` with True when the state machine has applied everything below `offset`."""
        if self.applied_offset >= offset:
            then(True)
        else:
            self._reads.append((offset, then))

    # Effects of the core

    def advance(self, effect: Apply) -> None:
        self._process.world.checkers.apply(self._process, effect.high_watermark)
        super().advance(effect)

    def resigned(self, effect: Resigned) -> None:
        """Drop proposals that wait to be acknowledged."""
        self._proposals.clear()
        super().resigned(effect)

    def loaded(self, snapshot: OffsetAndEpoch) -> None:
        """Go on after the end of `snapshot`, which the state machine has loaded."""
        self._applied(snapshot.offset)
        self.go_on()

    # Applying

    def wake(self) -> None:
        process, delay_us = self._process, self._process.world.options.apply_delay_us
        if delay_us == 0:
            self._apply()
        elif not self._is_late:
            self._is_late = True
            process.world.after(int(process.machine.disk_random.random() * 2 * delay_us), self._apply_late)

    def _apply_late(self) -> None:
        if self._process.postponed(self._apply_late):
            return
        self._is_late = False
        self.go_on()

    def go_on(self) -> None:
        """Apply outside a step, where an error of the disk has to be handled."""
        try:
            self._apply()
        except (DiskFailed, LogCorrupt) as error:
            self._process.end_of(error)

    def _apply(self) -> None:
        while self._apply_some():
            pass
        while self._proposals and self._proposals[0][1] <= self.applied_offset:
            self._acknowledged(*self._proposals.popleft())
        if self._reads:
            ready = [then for offset, then in self._reads if offset <= self.applied_offset]
            self._reads = [(offset, then) for offset, then in self._reads if offset > self.applied_offset]
            for then in ready:
                then(True)

    def _apply_some(self) -> bool:
        """Apply a notice or some batches. Return False if there is nothing to do, or a snapshot must be loaded first."""
        process = self._process
        if process.snapshots.is_loading:
            return False
        if process.log.start_offset > self.applied_offset:
            process.snapshots.load_newest()
            return False
        notice = self.due_notice()
        if notice is not None:
            run_at_once(notice())
            return True
        end_offset = self.end_offset
        if self.applied_offset >= end_offset:
            return False
        data = process.log.read(self.applied_offset, APPLY_BYTES, end_offset=end_offset)
        batches = list(batches_in(data))
        run_at_once(self._state_machine.apply(batches, self.high_watermark))
        newest = batches[-1]
        process.snapshots.applied(newest.append_time_ms)
        self._applied(newest.end_offset)
        return True

    def _applied(self, end_offset: int) -> None:
        self.applied_offset = end_offset
        self._process.world.checkers.on_applied(self._process, end_offset, self._process.state_machine.digest())
