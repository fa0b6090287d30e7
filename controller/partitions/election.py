"""Who leads a partition: three modes, one table of candidates each (KIP-455 era rules; eligible leader replicas are off).

A replica is *valid* if it is in the in-sync set and acceptable; *acceptable* is the caller's word for an active broker whose
directory for this partition is online. Each mode is a list of candidates to try in order; the first that qualifies wins, and if
none does the partition has no leader. Only UNCLEAN may go outside the in-sync set, and only after everything inside it: the
winner then becomes the whole in-sync set and must recover, because records that others acknowledged may be missing from it.
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


class Elected(NamedTuple):
    """The winner (NO_LEADER: nobody qualifies) and whether it was taken from outside the in-sync set."""

    leader: int
    unclean: bool = False


def elect(
    mode: Election, replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, acceptable: Callable[[int], bool]
) -> Elected:
    """Chooses the leader among `replicas`, whose first member is the preferred one. `leader` is the current one."""
    candidates = (leader, *replicas)
    if mode is Election.PREFERRED:
        candidates = (replicas[0], leader, *replicas[1:])
    for candidate in candidates:
        if candidate in isr and acceptable(candidate):
            return Elected(candidate)
    if mode is Election.UNCLEAN:
        for candidate in replicas:
            if acceptable(candidate):
                return Elected(candidate, unclean=True)
    return Elected(NO_LEADER)
