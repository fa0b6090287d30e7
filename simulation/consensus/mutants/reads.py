"""Bugs of linearizable reads. Two are rare: a fetch has to outlive an election, and to come before its leader notices."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kraftlab.checking.mutant import Mutant
from kraftlab.quorum.core.leader import Leader
from kraftlab.quorum.core.leadership import Leadership
from kraftlab.quorum.core.messages import FetchRequest
from kraftlab.quorum.core.read_index import UNKNOWN_OFFSET, ReadIndex, WaitingRead


def _arrival_is_an_echo(hear: Callable[..., bool]) -> Callable[[Leadership, Leader, FetchRequest], bool]:
    def mutated(self: Leadership, leader: Leader, request: FetchRequest) -> bool:
        return hear(self, leader, msgspec.structs.replace(request, read_round=leader.read_index.round))

    return mutated


def _read_before_own_commit(confirm: Callable[..., None]) -> Callable[[Leadership, Leader], None]:
    def mutated(self: Leadership, leader: Leader) -> None:
        known = leader.high_watermark
        leader.high_watermark = max(known, self._log.high_watermark)
        confirm(self, leader)
        leader.high_watermark = known

    return mutated


def _round_shared_too_long(_original: object) -> Callable[[ReadIndex, int, int], None]:
    def mutated(self: ReadIndex, token: int, high_watermark: int) -> None:
        if not self.waiting:
            self.round += 1
        self.waiting.append(WaitingRead(self.round, token, high_watermark))

    return mutated


def _read_without_a_round(_original: object) -> Callable[[ReadIndex, int, int], list[tuple[int, int]]]:
    def mutated(self: ReadIndex, echoed_round: int, high_watermark: int) -> list[tuple[int, int]]:
        done = [(read.token, max(read.offset, high_watermark)) for read in self.waiting if high_watermark > UNKNOWN_OFFSET]
        if done:
            self.waiting.clear()
        return done

    return mutated


def _reads_forgotten(_original: object) -> Callable[[ReadIndex], list[int]]:
    def mutated(self: ReadIndex) -> list[int]:
        self.waiting.clear()
        return []

    return mutated


MUTANTS = (
    Mutant(
        "arrival-is-an-echo",
        "any fetch confirms a linearizable read",
        Leadership,
        "_hear_echo",
        _arrival_is_an_echo,
        rules=("S16",),
        seeds_max=300,
        faults=("clog",),
    ),
    Mutant(
        "read-before-own-commit",
        "a new leader answers a linearizable read before it has committed in its epoch",
        Leadership,
        "_confirm_reads",
        _read_before_own_commit,
        rules=("S16",),
        seeds_max=300,
    ),
    Mutant(
        "round-shared-too-long",
        "a read joins a round that was named before it was asked",
        ReadIndex,
        "ask",
        _round_shared_too_long,
        rules=("S16",),
        seeds_max=300,
        faults=("clog",),
    ),
    Mutant(
        "read-without-a-round",
        "a leader answers reads without asking anybody",
        ReadIndex,
        "take_confirmed",
        _read_without_a_round,
        rules=("S16",),
        seeds_max=300,
    ),
    Mutant(
        "reads-forgotten",
        "reads get no answer when the leadership ends",
        ReadIndex,
        "take_all",
        _reads_forgotten,
        rules=("L2", "L6"),
        seeds_max=300,
    ),
)
