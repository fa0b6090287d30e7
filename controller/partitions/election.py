"""Election of a partition's leader: three modes, one list of candidates each, with eligible leader replicas (KIP-966).

A replica is *valid* if it is acceptable and in the in-sync set, or, once that set is empty, among the eligible leader
replicas, which hold everything that was committed too. A replica is acceptable if its broker is active and its directory for
this partition is online. Each mode has a list of candidates, and the first valid one wins.

If no replica is valid, two ways are left, and both may lose records. First, the last known leader leads again once the in-sync
set and the eligible leader replicas are empty: it had everything that was committed, but its disk may have lost the end.
Second, only UNCLEAN takes any acceptable replica. A leader that is elected in one of these ways becomes the whole in-sync set
and must recover. Otherwise the partition has no leader.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from kraftlab.metadata.records import NO_LEADER


class Election(enum.Enum):
    """Modes of an election."""

    ONLINE = "online"
    """Keep the leader if it is valid, otherwise elect the first valid replica."""
    PREFERRED = "preferred"
    """Elect the first replica if it is valid, otherwise as ONLINE."""
    UNCLEAN = "unclean"
    """As ONLINE, and without a valid replica elect the first acceptable one, in sync or not."""


class Candidates(NamedTuple):
    """Replicas, preferred leader first, and those of them that are known to hold everything that was committed."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()


class ElectionResult(NamedTuple):
    """The elected leader, NO_LEADER if none qualifies. `unclean`: it may lack records, since it was neither in sync nor
    eligible.
    """

    leader: int
    unclean: bool = False


def elect(mode: Election, candidates: Candidates, leader: int, acceptable: Callable[[int], bool]) -> ElectionResult:
    """Elect a leader. `leader` is the current one."""
    replicas, isr, elr, last_known = candidates
    valid = isr or elr
    first = first_in_sync(mode, replicas, valid, leader, acceptable)
    if first != NO_LEADER:
        return ElectionResult(first)
    if not valid and len(last_known) == 1 and acceptable(last_known[0]):
        return ElectionResult(last_known[0], unclean=True)
    if mode is Election.UNCLEAN:
        for broker_id in replicas:
            if acceptable(broker_id):
                return ElectionResult(broker_id, unclean=True)
    return ElectionResult(NO_LEADER)


def first_in_sync(
    mode: Election, replicas: tuple[int, ...], valid: tuple[int, ...], leader: int, acceptable: Callable[[int], bool]
) -> int:
    """First acceptable candidate among `valid`, the in-sync set or its substitute; NO_LEADER without one."""
    if mode is Election.PREFERRED and replicas[0] in valid and acceptable(replicas[0]):
        return replicas[0]
    if leader in valid and acceptable(leader):
        return leader
    for broker_id in replicas:
        if broker_id != leader and broker_id in valid and acceptable(broker_id):
            return broker_id
    return NO_LEADER
