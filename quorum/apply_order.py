"""The sequence of committed batches and leadership notices for a state machine.

Theory of operation. The high watermark only rises; everything below it is final. A notice carries the offset through which the
state machine must have applied before it gets the notice: the high watermark of that moment, which for "you lead" is the end of
the epoch's first batch. Notices and batches form one sequence, so a state machine never sees a batch of a later leader before it
knows that its own leadership has ended. The shell reads the batches and waits for them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial

from kraftlab.common.errors import InvariantViolation

from .core.batch import HEADER_BYTES, BatchHeader
from .core.effects import Apply, BecameLeader, LeaderChanged, Resigned
from .state_machine import CommittedBatch, StateMachine

Notice = Callable[[], Coroutine[object, object, None]]


class ApplyOrder:
    """Everything below `applied_offset` was given to the state machine; everything below `high_watermark` is committed."""

    def __init__(self, state_machine: StateMachine) -> None:
        self.applied_offset = 0
        self.high_watermark = 0
        self._state_machine = state_machine
        self._notices: deque[tuple[int, Notice]] = deque()

    @abstractmethod
    def wake(self) -> None:
        """Look for batches to apply and for a snapshot that is due."""

    def advance(self, effect: Apply) -> None:
        high_watermark = effect.high_watermark
        if high_watermark < self.high_watermark:
            raise InvariantViolation(f"high watermark falls from {self.high_watermark} to {high_watermark}")
        self.high_watermark = high_watermark
        self.wake()

    def leader_changed(self, effect: LeaderChanged) -> None:
        self._notify(partial(self._state_machine.leader_changed, effect.epoch, effect.leader_id, effect.endpoints))

    def became_leader(self, effect: BecameLeader) -> None:
        self._notify(partial(self._state_machine.became_leader, effect.epoch))

    def resigned(self, effect: Resigned) -> None:
        self._notify(partial(self._state_machine.resigned, effect.epoch, effect.reason))

    def _notify(self, notice: Notice) -> None:
        self._notices.append((self.high_watermark, notice))
        self.wake()

    def due_notice(self) -> Notice | None:
        """Remove and return the next notice if its turn has come."""
        if self._notices and self._notices[0][0] <= self.applied_offset:
            return self._notices.popleft()[1]
        return None

    @property
    def end_offset(self) -> int:
        """Batches may be applied up to here before the next notice or commit."""
        return min(self._notices[0][0], self.high_watermark) if self._notices else self.high_watermark


def committed_batches(data: bytes, headers: Iterable[BatchHeader]) -> list[CommittedBatch]:
    """Return the batches of `data`, which has these `headers`, as a state machine gets them."""
    batches: list[CommittedBatch] = []
    position = 0
    for header in headers:
        end = position + header.size_bytes
        body = b"" if header.is_control else data[position + HEADER_BYTES : end]
        batches.append(CommittedBatch(header.base_offset, header.end_offset, header.epoch, header.append_time_ms, body))
        position = end
    return batches
