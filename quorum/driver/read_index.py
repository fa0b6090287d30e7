"""Linearizable reads in the driver: reads of the same scheduling pass share one request to the core.

A request may go to the core only after the read began here, never before: reads that come while one is in progress form the next.
The core's read_index.py explains the answer.
"""

from __future__ import annotations

from kraftlab.common.signal import Answer

from ..core.effects import ReadIndexReady, ReadIndexRefused
from ..core.messages import LeaderView
from .errors import NotLeader, Overloaded

ReadIndexAnswer = Answer[ReadIndexReady | ReadIndexRefused]


async def offset_of(answer: ReadIndexAnswer) -> int:
    """Wait for the answer; return its offset. NotLeader, Overloaded."""
    given = await answer.wait()
    if isinstance(given, ReadIndexReady):
        return given.offset
    if given.overloaded:
        raise Overloaded("too many reads wait for a majority of the voters; try again later")
    raise NotLeader(given.leader_id, given.epoch)


class ReadIndexDesk:
    """Forms requests to the core and distributes its answers."""

    def __init__(self) -> None:
        self._forming: ReadIndexAnswer | None = None
        self._asked: dict[int, ReadIndexAnswer] = {}
        self._last_token = 0

    def join(self) -> ReadIndexAnswer:
        """Return the answer to the next request."""
        if self._forming is None:
            self._forming = ReadIndexAnswer()
        return self._forming

    def take_token(self) -> int | None:
        """Return the token of the request to send now; None if nothing waits."""
        if self._forming is None:
            return None
        self._last_token += 1
        self._asked[self._last_token], self._forming = self._forming, None
        return self._last_token

    def answer(self, effect: ReadIndexReady | ReadIndexRefused) -> None:
        self._asked.pop(effect.token).give(effect)

    def close(self, leader: LeaderView) -> None:
        """Refuse all waiting reads: the node ends."""
        waiting = [*self._asked.values(), *([self._forming] if self._forming is not None else [])]
        self._asked.clear()
        self._forming = None
        for answer in waiting:
            answer.give(ReadIndexRefused(0, leader.leader_id, leader.epoch))
