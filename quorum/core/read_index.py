"""Linearizable reads without a write: a majority shows that this leader still led after the read was asked (Raft §6.4).

Theory of operation. A read is asked of the leader, which notes its high watermark R: everything acknowledged before, by whichever
leader, lies below R, provided that no newer leader has committed anything yet. That is what the *round* proves. The read gets a
round that no answer has named so far; the parked fetches of the voters are answered at once, so that they hear of it; every voter
names the newest round it has heard of in its next fetch. A fetch of this epoch that echoes the round was sent after the read was
asked, by a voter that then still followed this leader; if a majority did (the leader, if it votes, is one of them), no majority
can have elected another leader before the read was asked. The arrival of a fetch proves nothing of the kind: it may have been on
its way since before its sender voted for somebody else.

A new leader does not know what its predecessors have committed until it has committed a record of its own epoch. A read asked
before that waits for the first high watermark of the epoch, and that is its R.

Reads share a round as long as no answer has named it. Whatever is still waiting when the leadership ends is refused: the rounds
start anew in every epoch. What is *not* done here: waiting until the state machine has applied R, which is the shell's part.
"""

from __future__ import annotations

from collections import deque

import msgspec

UNKNOWN_OFFSET = -1


class WaitingRead(msgspec.Struct, frozen=True, gc=False):
    """`offset` is the high watermark when the read was asked; -1: this leader knew none yet."""

    round: int
    token: int
    offset: int


class ReadIndex:
    """The rounds of one leadership, and the reads that wait for theirs, oldest first."""

    __slots__ = ("is_named", "round", "waiting")

    def __init__(self) -> None:
        self.round = 0
        """The newest; a fetch response names it."""
        self.is_named = True
        """Whether an answer has left that names it: later reads need another one."""
        self.waiting: deque[WaitingRead] = deque()

    def ask(self, token: int, high_watermark: int) -> None:
        """A read begins."""
        if self.is_named:
            self.round += 1
            self.is_named = False
        self.waiting.append(WaitingRead(self.round, token, high_watermark))

    def take_confirmed(self, echoed_round: int, high_watermark: int) -> list[tuple[int, int]]:
        """(token, offset) of the reads that are done: a majority has echoed `echoed_round`, and this epoch has committed."""
        done: list[tuple[int, int]] = []
        while high_watermark > UNKNOWN_OFFSET and self.waiting and self.waiting[0].round <= echoed_round:
            read = self.waiting.popleft()
            done.append((read.token, high_watermark if read.offset == UNKNOWN_OFFSET else read.offset))
        return done

    def take_all(self) -> list[int]:
        """The tokens of all that wait; nothing waits afterwards."""
        tokens = [read.token for read in self.waiting]
        self.waiting.clear()
        return tokens

    def __repr__(self) -> str:
        return f"round {self.round}, {len(self.waiting)} reads wait"
