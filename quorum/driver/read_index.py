"""Linearizable reads on their way through the driver: whoever asks in the same scheduling pass asks the core together.

A question may be put to the core only after it was asked here, never before: so those that come while one is under way form
the next. What the answer means is told in the core's read_index.py.
"""

from __future__ import annotations

import trio

from ..core.effects import ReadIndexReady, ReadIndexRefused
from ..core.messages import LeaderView
from .errors import NotLeader, Overloaded


class ReadIndexAnswer:
    """Waited for by any number of tasks."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self._answer: ReadIndexReady | ReadIndexRefused | None = None

    def put(self, answer: ReadIndexReady | ReadIndexRefused) -> None:
        self._answer = answer
        self._done.set()

    async def wait(self) -> int:
        """The offset. NotLeader or Overloaded."""
        await self._done.wait()
        answer = self._answer
        assert answer is not None
        if isinstance(answer, ReadIndexReady):
            return answer.offset
        if answer.overloaded:
            raise Overloaded("too many reads wait for a majority of the voters; try again later")
        raise NotLeader(answer.leader_id, answer.epoch)


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
        self._asked.pop(effect.token).put(effect)

    def close(self, leader: LeaderView) -> None:
        """The node ends: nobody waits any longer."""
        waiting = [*self._asked.values(), *([self._forming] if self._forming is not None else [])]
        self._asked.clear()
        self._forming = None
        for answer in waiting:
            answer.put(ReadIndexRefused(0, leader.leader_id, leader.epoch))
