"""Linearizable reads without a write: a majority confirms that this leader still led after the read began (Ongaro, thesis, 6.4).

Theory of operation. The leader of a read notes its high watermark R. Every write that was acknowledged before, by any leader,
lies below R, provided that no newer leader has committed anything yet. The *round* proves that. The read gets a round that no
answer has named so far. The leader answers the parked fetches of the voters at once, so that they learn the round, and every
voter names the newest round that it knows in its next fetch. A fetch of this epoch that echoes the round was sent after the read
began, by a voter that still followed this leader then. If a majority did (the leader counts if it votes), no majority can have
elected another leader before the read began. The mere arrival of a fetch does not prove this: its sender can have voted for
another candidate since.

A new leader does not know what its predecessors have committed until it has committed a record of its own epoch. A read that
begins before that waits for the first high watermark of the epoch, which becomes its R.

Reads share a round until an answer has named it. Reads that still wait when the leadership ends are refused, and each epoch
counts rounds from 0 again. The shell, not this module, waits until the state machine has applied R.
"""

from __future__ import annotations

from collections import deque

import msgspec

UNKNOWN_OFFSET = -1


class WaitingRead(msgspec.Struct, frozen=True, gc=False):
    """`offset` is the high watermark when the read began; -1: this leader knew none yet."""

    round: int
    token: int
    offset: int


class ReadIndex:
    """The rounds of one leadership and the reads that wait for theirs, oldest first."""

    __slots__ = ("is_named", "round", "waiting")

    def __init__(self) -> None:
        self.round = 0
        """The newest round; a fetch response names it."""
        self.is_named = True
        """True if an answer that names the round has left: later reads need another one."""
        self.waiting: deque[WaitingRead] = deque()

    def ask(self, token: int, high_watermark: int) -> None:
        """Add a read."""
        if self.is_named:
            self.round += 1
            self.is_named = False
        self.waiting.append(WaitingRead(self.round, token, high_watermark))

    def take_confirmed(self, echoed_round: int, high_watermark: int) -> list[tuple[int, int]]:
        """Remove and return (token, offset) of the confirmed reads.

        A majority has echoed `echoed_round`. Nothing is confirmed before this epoch has committed.
        """
        done: list[tuple[int, int]] = []
        while high_watermark > UNKNOWN_OFFSET and self.waiting and self.waiting[0].round <= echoed_round:
            read = self.waiting.popleft()
            done.append((read.token, high_watermark if read.offset == UNKNOWN_OFFSET else read.offset))
        return done

    def take_all(self) -> list[int]:
        """Remove all waiting reads; return their tokens."""
        tokens = [read.token for read in self.waiting]
        self.waiting.clear()
        return tokens

    def __repr__(self) -> str:
        return f"round {self.round}, {len(self.waiting)} reads wait"
