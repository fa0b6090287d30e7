"""The state machine of one process and what it is fed: batches from the log up to the high watermark, as late as the options
say, and notices of leadership in between, as in the driver. Who waits for it (proposals, linearizable reads) hears when it has
come so far. It is loaded from snapshots in snapshot_work.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import TYPE_CHECKING

from kraftlab.quorum.core import batch
from kraftlab.quorum.core.effects import BecameLeader, LeaderChanged, Resigned
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.quorum.storage import DiskFailed, LogCorrupt

from .state_machine import run_at_once

if TYPE_CHECKING:
    from .process import SimulatedProcess

ReadDone = Callable[[bool], None]

APPLY_BYTES = 64 * 1024


@lru_cache(maxsize=128)
def committed_batches(data: bytes) -> tuple[CommittedBatch, ...]:
    """What the state machine is given of whole batches, whose crcs hold. All nodes apply the same ones, mostly."""
    batches: list[CommittedBatch] = []
    position = 0
    for header in batch.check_all(data):
        end, base_offset = position + header.size_bytes, header.base_offset
        body = b"" if header.attributes & batch.CONTROL else data[position + batch.HEADER_BYTES : end]
        end_offset = base_offset + header.record_count
        batches.append(CommittedBatch(base_offset, end_offset, header.epoch, header.append_time_ms, body))
        position = end
    return tuple(batches)


class Applying:
    """One process's. `offset` is where the next batch begins that it applies, `commit_offset` the high watermark it goes by."""

    __slots__ = (
        "_is_late",
        "_notices",
        "_process",
        "_proposals",
        "_reads",
        "_state_machine",
        "commit_offset",
        "offset",
    )

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._state_machine = process.state_machine
        self.offset = 0
        self.commit_offset = 0
        self._is_late = False
        """It goes on some time later."""
        self._notices: deque[tuple[int, Callable[[], None]]] = deque()
        """What the state machine is told of leadership, and what it must have applied before."""
        self._proposals: deque[tuple[int, int, int]] = deque()
        """Base offset, end offset and crc of what is acknowledged when it is applied."""
        self._reads: list[tuple[int, ReadDone]] = []
        """Linearizable reads that may be answered once it has come so far."""

    # Who waits

    def acknowledge(self, base_offset: int, end_offset: int, crc: int) -> None:
        """A batch of this process's, as soon as it is applied, unless the process resigns before."""
        if end_offset <= self.offset:
            self._process.world.checkers.on_acknowledged(self._process, base_offset, end_offset, crc)
        else:
            self._proposals.append((base_offset, end_offset, crc))

    def show(self, offset: int, then: ReadDone) -> None:
        """`then` is called with True when the state machine has applied all below `offset`."""
        if self.offset >= offset:
            then(True)
        else:
            self._reads.append((offset, then))

    # What it is told

    def committed(self, high_watermark: int) -> None:
        self.commit_offset = high_watermark
        self._wake()

    def leader_changed(self, effect: LeaderChanged) -> None:
        self._notify(lambda: self._state_machine.leader_changed(effect.epoch, effect.leader_id, effect.endpoints))

    def became_leader(self, effect: BecameLeader) -> None:
        self._notify(lambda: self._state_machine.became_leader(effect.epoch))

    def resigned(self, effect: Resigned) -> None:
        """Nothing is acknowledged any more that was proposed before."""
        self._proposals.clear()
        self._notify(lambda: self._state_machine.resigned(effect.epoch, effect.reason))

    def loaded(self, snapshot: OffsetAndEpoch) -> None:
        """The state machine has everything below the end of `snapshot`."""
        self._applied(snapshot.offset)
        self.go_on()

    def _notify(self, notice: Callable[[], Coroutine[object, None, None]]) -> None:
        self._notices.append((self.commit_offset, lambda: run_at_once(notice())))
        self._wake()

    # Applying

    def _wake(self) -> None:
        process, delay_us = self._process, self._process.world.options.apply_delay_us
        if delay_us == 0:
            self._apply()
        elif not self._is_late:
            self._is_late = True
            process.world.after(int(process.machine.disk_random.random() * 2 * delay_us), self._apply_late)

    def _apply_late(self) -> None:
        if self._process.is_still(self._apply_late):
            return
        self._is_late = False
        self.go_on()

    def go_on(self) -> None:
        """Outside a step."""
        try:
            self._apply()
        except (DiskFailed, LogCorrupt) as error:
            self._process.end_of(error)

    def _apply(self) -> None:
        while self._apply_some():
            pass
        while self._proposals and self._proposals[0][1] <= self.offset:
            self._process.world.checkers.on_acknowledged(self._process, *self._proposals.popleft())
        if self._reads:
            ready = [then for offset, then in self._reads if offset <= self.offset]
            self._reads = [(offset, then) for offset, then in self._reads if offset > self.offset]
            for then in ready:
                then(True)

    def _apply_some(self) -> bool:
        """One step: a notice or some batches. False if there is nothing to do now, or a snapshot must be loaded first."""
        process = self._process
        if process.snapshots.is_loading:
            return False
        if process.log.start_offset > self.offset:
            process.snapshots.load_newest()
            return False
        end_offset, notices = self.commit_offset, self._notices
        if notices:
            if notices[0][0] <= self.offset:
                notices.popleft()[1]()
                return True
            end_offset = min(end_offset, notices[0][0])
        if self.offset >= end_offset:
            return False
        data = process.log.read(self.offset, APPLY_BYTES, end_offset=end_offset)
        batches = list(committed_batches(data))
        run_at_once(self._state_machine.apply(batches, self.commit_offset))
        newest = batches[-1]
        process.snapshots.applied(newest.append_time_ms)
        self._applied(newest.end_offset)
        return True

    def _applied(self, end_offset: int) -> None:
        self.offset = end_offset
        self._process.world.checkers.on_applied(self._process, end_offset, self._state_machine.digest())
