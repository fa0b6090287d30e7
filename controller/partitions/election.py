"""Who leads a partition: three modes, one table of candidates each, with eligible leader replicas behind them (KIP-966).

A replica is *valid* if it is acceptable (the caller's word for an active broker whose directory for this partition is online)
and in the in-sync set, or, once that is empty, among the eligible leader replicas: those hold everything that was committed
too. Each mode is a list of candidates to try in order; the first that is valid wins.

If nobody is valid there are two ways left that may lose records. The last known leader leads again once the in-sync set and the
eligible leader replicas are empty: it knew everything that was committed, but its disk may have lost the end of it. And only
UNCLEAN takes any acceptable replica. Whoever is elected so becomes the whole in-sync set and must recover. If that gives nobody
either, the partition has no leader.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from kraftlab.metadata.records import NO_LEADER


class Election(enum.Enum):
    """How a leader is chosen."""

    ONLINE = "online"
    """Keep the leader if it is valid, else the first valid replica."""
    PREFERRED = "preferred"
    """The first replica if it is valid, else as ONLINE."""
    UNCLEAN = "unclean"
    """As ONLINE, and if nobody is valid the first acceptable replica, in sync or not."""


class Candidates(NamedTuple):
    """Who stands for election: the replicas, preferred one first, and which of them are known to hold what was committed."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()


class Elected(NamedTuple):
    """The winner (NO_LEADER: nobody qualifies), and whether it may lack records: it was not in sync nor eligible."""

    leader: int
    unclean: bool = False


def elect(mode: Election, candidates: Candidates, leader: int, acceptable: Callable[[int], bool]) -> Elected:
    """Chooses the leader. `leader` is the current one."""
    replicas, isr, elr, last_known = candidates
    valid = isr or elr
    first = first_in_sync(mode, replicas, valid, leader, acceptable)
    if first != NO_LEADER:
        return Elected(first)
    if not valid and len(last_known) == 1 and acceptable(last_known[0]):
        return Elected(last_known[0], unclean=True)
    if mode is Election.UNCLEAN:
        for broker_id in replicas:
            if acceptable(broker_id):
                return Elected(broker_id, unclean=True)
    return Elected(NO_LEADER)


def first_in_sync(
    mode: Election, replicas: tuple[int, ...], valid: tuple[int, ...], leader: int, acceptable: Callable[[int], bool]
) -> int:
    """The first candidate among `valid`, the in-sync set or who stands for it, that is acceptable; NO_LEADER if none is."""
    if mode is Election.PREFERRED and replicas[0] in valid and acceptable(replicas[0]):
        return replicas[0]
    if leader in valid and acceptable(leader):
        return leader
    for broker_id in replicas:
        if broker_id != leader and broker_id in valid and acceptable(broker_id):
            return broker_id
    return NO_LEADER
