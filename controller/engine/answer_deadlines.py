"""Deadlines of answers that wait for a commit.

A request can time out in two ways. While it waits in the queue, nothing has been done: it fails with REQUEST_TIMED_OUT. After
it has run, its records are in the leader's log and may be committed at any later time: it fails with the same code as
`CommitUnknown`, which names the offset to look at.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Any

from kraftlab.common.errors import ApiError, ErrorCode

from .purgatory import Answer
from .queue import NEVER_MS


class CommitUnknown(ApiError):
    """The change was written up to `offset` and may or may not be committed."""

    def __init__(self, code: ErrorCode, message: str, offset: int) -> None:
        super().__init__(code, message)
        self.offset = offset


def not_committed_in_time(offset: int) -> CommitUnknown:
    return CommitUnknown(
        ErrorCode.REQUEST_TIMED_OUT,
        f"The outcome is unknown: the change was written up to metadata offset {offset} and not committed within the timeout. It "
        f"may still be. Describe with min_offset {offset} to find out, or repeat the request, which does no harm.",
        offset,
    )


class AnswerDeadlines:
    """Answers that wait for a commit, ordered by deadline."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, int, Answer[Any]]] = []
        self._number = itertools.count()

    def add(self, deadline_ms: int, offset: int, answer: Answer[Any]) -> None:
        heapq.heappush(self._waiting, (deadline_ms, next(self._number), offset, answer))

    def next_ms(self) -> int:
        """Time of the next deadline; NEVER_MS if nothing waits."""
        while self._waiting and self._waiting[0][3].done:
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else NEVER_MS

    def expire(self, now_ms: int) -> None:
        """Fail the answers whose deadline has passed: their outcome is unknown."""
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, _, offset, answer = heapq.heappop(self._waiting)
            answer.fail(not_committed_in_time(offset))
