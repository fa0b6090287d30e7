"""Linearizable reads on their way through the driver: whoever asks in the same scheduling pass asks the core together.

A question may be put to the core only after it was asked here, never before: so those that come while one is under way form
the next. What the answer means is told in the core's read_index.py.
"""

from __future__ import annotations

from ..core.effects import ReadIndexReady, ReadIndexRefused
from ..core.messages import LeaderView
from .errors import NotLeader, Overloaded
from .signal import Answer

ReadIndexAnswer = Answer[ReadIndexReady | ReadIndexRefused]


async def offset_of(answer: ReadIndexAnswer) -> int:
    """Wait for the answer: its offset. NotLeader, Overloaded."""
    given = await answer.wait()
    if isinstance(given, ReadIndexReady):
        return given.offset
    if given.overloaded:
        raise Overloaded("too many reads wait for a majority of the voters; try again later")
    raise NotLeader(given.leader_id, given.epoch)


class ReadIndexDesk:
    """Forms questions for the core and hands out its answers."""

    def __init__(self) -> None:
        self._forming: ReadIndexAnswer | None = None
        self._asked: dict[int, ReadIndexAnswer] = {}
        self._last_token = 0

    def join(self) -> ReadIndexAnswer:
        """The answer to the question that is asked next."""
        if self._forming is None:
            self._forming = ReadIndexAnswer()
        return self._forming

    def take_token(self) -> int | None:
        """The token under which to ask the core now; None if nobody asks."""
        if self._forming is None:
            return None
        self._last_token += 1
        self._asked[self._last_token], self._forming = self._forming, None
        return self._last_token

    def answer(self, effect: ReadIndexReady | ReadIndexRefused) -> None:
        self._asked.pop(effect.token).give(effect)

    def close(self, leader: LeaderView) -> None:
        """The node ends: nobody waits any longer."""
        waiting = [*self._asked.values(), *([self._forming] if self._forming is not None else [])]
        self._asked.clear()
        self._forming = None
        for answer in waiting:
            answer.give(ReadIndexRefused(0, leader.leader_id, leader.epoch))
