"""The votes of one election round. Prospective counts pre-votes with it, Candidate votes.

A voter counts once, however often it answers, and a grant is final for the round. A refused pre-vote can change (the leader of
the refuser may die a moment later), so pre-votes are requested again. A refused vote is final for its epoch.
"""

from __future__ import annotations

from .types import NEVER_MS


class VoteTally:
    """One round among `voter_ids`. If `own_id` is one of them, its grant is counted from the start."""

    __slots__ = ("_ask_at_ms", "_granted", "_refused", "_voter_count", "next_ask_ms")

    def __init__(self, voter_ids: tuple[int, ...], own_id: int, now_ms: int) -> None:
        self._voter_count = len(voter_ids)
        self._granted: dict[int, None] = {own_id: None} if own_id in voter_ids else {}
        self._refused: dict[int, None] = {}
        self._ask_at_ms = {voter_id: now_ms for voter_id in voter_ids if voter_id != own_id}
        self.next_ask_ms = now_ms if self._ask_at_ms else NEVER_MS
        """Time of the next request to a voter."""

    def due(self, now_ms: int) -> list[int]:
        """Return the voters to ask now. Each is returned once, until `ask_again`."""
        if now_ms < self.next_ask_ms:
            return []
        ids = [voter_id for voter_id, ask_at_ms in self._ask_at_ms.items() if ask_at_ms <= now_ms]
        for voter_id in ids:
            self._ask_at_ms[voter_id] = NEVER_MS
        self.next_ask_ms = min(self._ask_at_ms.values(), default=NEVER_MS)
        return ids

    def ask_again(self, voter_id: int, at_ms: int) -> None:
        if voter_id in self._ask_at_ms and voter_id not in self._granted:
            self._ask_at_ms[voter_id] = at_ms
            self.next_ask_ms = min(self._ask_at_ms.values())

    def grant(self, voter_id: int) -> None:
        if voter_id in self._ask_at_ms:
            self._granted[voter_id] = None
            self._refused.pop(voter_id, None)

    def refuse(self, voter_id: int) -> None:
        if voter_id in self._ask_at_ms and voter_id not in self._granted:
            self._refused[voter_id] = None

    @property
    def is_won(self) -> bool:
        return len(self._granted) > self._voter_count // 2

    @property
    def is_lost(self) -> bool:
        """True if a majority can no longer grant, given the answers so far."""
        return self._voter_count - len(self._refused) <= self._voter_count // 2

    def granting_voters(self) -> tuple[int, ...]:
        return tuple(sorted(self._granted))

    def __repr__(self) -> str:
        return f"+{len(self._granted)}-{len(self._refused)}/{self._voter_count}"
