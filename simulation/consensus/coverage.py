"""The coverage of runs: the state transitions that happened, and the states of nodes in which each fault struck.

Counters are plain dicts, small and picklable; counters of many seeds are added up. A pair that is impossible is not a gap: a
fault that needs a process cannot strike a node that is down.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kraftlab.quorum.core.quorum_state import TRANSITIONS

from .faults import FAULTS

DOWN = "down"
STATES = ("unattached", "prospective", "candidate", "leader", "follower", "resigned", DOWN)
"""States of a node that is struck."""


def transition_name(source: str, target: str) -> str:
    return f"{source} -> {target}"


EPOCH_RELATIONS = {transition_name(row.source.name, row.target.name): row.epoch for row in TRANSITIONS}
"""Every legal transition, with the relation of the new epoch to the old one."""


def can_strike(fault: str, state: str) -> bool:
    """Return False if the fault needs a process and the node is down."""
    return state != DOWN or not FAULTS[fault].needs_process


POSSIBLE_PAIRS = tuple((fault, state) for fault in FAULTS for state in STATES if can_strike(fault, state))


class Coverage(msgspec.Struct):
    """Counts by transition, and by fault and state."""

    transitions: dict[str, int] = {}
    faults: dict[str, dict[str, int]] = {}

    def moved(self, source: str, target: str) -> None:
        name = transition_name(source, target)
        self.transitions[name] = self.transitions.get(name, 0) + 1

    def struck(self, fault: str, states: Iterable[str]) -> None:
        """Count a strike that hit nodes in these states."""
        counts = self.faults.setdefault(fault, {})
        for state in states:
            if can_strike(fault, state):
                counts[state] = counts.get(state, 0) + 1

    def add(self, other: Coverage) -> None:
        """Add the counts of another run."""
        for name, count in other.transitions.items():
            self.transitions[name] = self.transitions.get(name, 0) + count
        for fault, states in other.faults.items():
            counts = self.faults.setdefault(fault, {})
            for state, count in states.items():
                counts[state] = counts.get(state, 0) + count

    def missing_transitions(self) -> list[str]:
        return [name for name in EPOCH_RELATIONS if not self.transitions.get(name)]

    def missing_pairs(self) -> list[tuple[str, str]]:
        return [(fault, state) for fault, state in POSSIBLE_PAIRS if not self.faults.get(fault, {}).get(state)]

    def line(self) -> str:
        """Return the coverage of transitions and of pairs as one line."""
        moves, pairs = len(EPOCH_RELATIONS), len(POSSIBLE_PAIRS)
        return (
            f"transitions {moves - len(self.missing_transitions())}/{moves}, "
            f"fault x state {pairs - len(self.missing_pairs())}/{pairs}"
        )
