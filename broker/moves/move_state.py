"""The life of one move between two log directories of a broker (KIP-113, KIP-858), as a table.

A move copies the current log into a future log in the target directory. When it first catches up the broker does not swap: it
reports the target directory to the controller (AssignReplicasToDirs) and waits until the metadata log names it. Only then may the
future log replace the current one. So at every crash, the metadata names a directory that holds a log, and a restart knows which
of the two was decided. A move that is dropped after its report may have reached the controller reports that the replica stays.

KIP-858's state `None` is called COPYING here.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class MoveState(enum.Enum):
    COPYING = "copying"
    QUEUED = "queued"
    ACCEPTED = "accepted"
    EFFECTIVE = "effective"
    DROPPED = "dropped"


class MoveEvent(enum.Enum):
    CAUGHT_UP = "the future log's end reached the current log's"
    TARGET_COMMITTED = "the metadata names the target directory"
    SWAPPED = "the future log has become the current one"
    DROP = "the move is cancelled, a directory failed, or the replica leaves the broker"


class MoveAction(enum.Enum):
    NOTHING = "nothing"
    ASSIGN_TARGET = "ask the controller to name the target directory"
    SWAP = "swap under the locks if the ends are still equal"
    ASSIGN_SOURCE = "ask the controller to name the directory where the replica stays"


class MoveStep(NamedTuple):
    state: MoveState
    action: MoveAction = MoveAction.NOTHING


_S, _E, _A = MoveState, MoveEvent, MoveAction

MOVE_TABLE: dict[tuple[MoveState, MoveEvent], MoveStep] = {
    (_S.COPYING, _E.CAUGHT_UP): MoveStep(_S.QUEUED, _A.ASSIGN_TARGET),
    (_S.COPYING, _E.TARGET_COMMITTED): MoveStep(_S.ACCEPTED),
    (_S.COPYING, _E.DROP): MoveStep(_S.DROPPED),
    (_S.QUEUED, _E.CAUGHT_UP): MoveStep(_S.QUEUED),
    (_S.QUEUED, _E.TARGET_COMMITTED): MoveStep(_S.ACCEPTED),
    (_S.QUEUED, _E.DROP): MoveStep(_S.DROPPED, _A.ASSIGN_SOURCE),
    (_S.ACCEPTED, _E.CAUGHT_UP): MoveStep(_S.ACCEPTED, _A.SWAP),
    (_S.ACCEPTED, _E.TARGET_COMMITTED): MoveStep(_S.ACCEPTED),
    (_S.ACCEPTED, _E.SWAPPED): MoveStep(_S.EFFECTIVE),
    (_S.ACCEPTED, _E.DROP): MoveStep(_S.DROPPED, _A.ASSIGN_SOURCE),
    (_S.EFFECTIVE, _E.TARGET_COMMITTED): MoveStep(_S.EFFECTIVE),
    (_S.EFFECTIVE, _E.DROP): MoveStep(_S.EFFECTIVE),
    (_S.DROPPED, _E.CAUGHT_UP): MoveStep(_S.DROPPED),
    (_S.DROPPED, _E.TARGET_COMMITTED): MoveStep(_S.DROPPED, _A.ASSIGN_SOURCE),
    (_S.DROPPED, _E.DROP): MoveStep(_S.DROPPED),
}


def next_step(state: MoveState, event: MoveEvent) -> MoveStep:
    """Return the row for an event. ValueError for an event that cannot happen in that state."""
    try:
        return MOVE_TABLE[state, event]
    except KeyError:
        raise ValueError(f"a move that is {state.value} cannot see: {event.value}") from None
