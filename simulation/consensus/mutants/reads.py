"""Bugs of linearizable reads. Two are rare: a fetch has to outlive an election, and to come before its leader notices."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kraftlab.checking.mutant import Table
from kraftlab.quorum.core.leader import Leader
from kraftlab.quorum.core.leadership import Leadership
from kraftlab.quorum.core.messages import FetchRequest
from kraftlab.quorum.core.read_index import UNKNOWN_OFFSET, ReadIndex, WaitingRead

from .seeds import Seeds

MUTANTS: Table[Seeds] = Table()


@MUTANTS.row(Leadership, "_note_echo", Seeds("S16", most=300, faults=("clog",)))
def arrival_is_an_echo(hear: Callable[..., bool], self: Leadership, leader: Leader, request: FetchRequest) -> bool:
    """Any fetch confirms a linearizable read."""
    return hear(self, leader, msgspec.structs.replace(request, read_round=leader.read_index.round))


@MUTANTS.row(Leadership, "_confirm_reads", Seeds("S16", most=300))
def read_before_own_commit(confirm: Callable[..., None], self: Leadership, leader: Leader) -> None:
    """A new leader answers a linearizable read before it has committed in its epoch."""
    known = leader.high_watermark
    leader.high_watermark = max(known, self._log.high_watermark)
    confirm(self, leader)
    leader.high_watermark = known


@MUTANTS.row(ReadIndex, "ask", Seeds("S16", most=300, faults=("clog",)))
def round_shared_too_long(_: object, self: ReadIndex, token: int, high_watermark: int) -> None:
    """A read joins a round that was named before it was asked."""
    if not self.waiting:
        self.round += 1
    self.waiting.append(WaitingRead(self.round, token, high_watermark))


@MUTANTS.row(ReadIndex, "take_confirmed", Seeds("S16", most=300))
def read_without_a_round(_: object, self: ReadIndex, echoed_round: int, high_watermark: int) -> list[tuple[int, int]]:
    """A leader answers reads without asking anybody."""
    done = [(read.token, max(read.offset, high_watermark)) for read in self.waiting if high_watermark > UNKNOWN_OFFSET]
    if done:
        self.waiting.clear()
    return done


@MUTANTS.row(ReadIndex, "take_all", Seeds("L2", "L6", most=300))
def reads_forgotten(_: object, self: ReadIndex) -> list[int]:
    """Reads get no answer when the leadership ends."""
    self.waiting.clear()
    return []
