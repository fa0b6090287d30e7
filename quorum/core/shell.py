"""The table of effects and the parts of a shell that carry them out.

Every shell has the same parts. The trio driver writes real files and sends real frames; the simulator does both in virtual time.
A shell names its parts once and dispatches each effect of a step through `handlers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from .effects import (
    Append,
    Apply,
    BecameLeader,
    CleanLog,
    CopyStep,
    Effect,
    InstallSnapshot,
    LeaderChanged,
    OpenSnapshot,
    Proposed,
    ReadIndexReady,
    ReadIndexRefused,
    ReadLog,
    ReadSnapshot,
    Rejected,
    RepairEnded,
    Reply,
    Resigned,
    RewriteSnapshot,
    Send,
    StoreElectionState,
    StoreSnapshotChunk,
    Trace,
    Truncate,
    VerifySnapshot,
    VotersChanged,
)


class LogPart(Protocol):
    """The storage stream: operations on the log, in order."""

    def append(self, effect: Append) -> None: ...

    def truncate(self, effect: Truncate) -> None: ...

    def install(self, effect: InstallSnapshot) -> None: ...

    def clean(self, effect: CleanLog) -> None: ...


class ApplyPart(Protocol):
    """The side of the state machine: commits and leadership notices."""

    def advance(self, effect: Apply) -> None: ...

    def leader_changed(self, effect: LeaderChanged) -> None: ...

    def became_leader(self, effect: BecameLeader) -> None: ...

    def resigned(self, effect: Resigned) -> None: ...


class Shell(NamedTuple):
    """The parts of one shell. Proposed and Rejected need none: the caller of `step` finds them among the effects."""

    log: LogPart
    applier: ApplyPart
    store_election_state: Callable[[StoreElectionState], None]
    send: Callable[[Send], None]
    reply: Callable[[Reply], None]
    read_log: Callable[[ReadLog], None]
    answer_read: Callable[[ReadIndexReady | ReadIndexRefused], None]
    read_snapshot: Callable[[ReadSnapshot], None]
    rewrite_snapshot: Callable[[RewriteSnapshot], None]
    copy_snapshot: Callable[[CopyStep], None]
    repair_ended: Callable[[RepairEnded], None]
    voters_changed: Callable[[VotersChanged], None]
    trace: Callable[[Trace], None]

    def handlers(self) -> dict[type[Effect], Callable[[Any], None]]:
        """Return the handler of each type of effect."""
        return {
            StoreElectionState: self.store_election_state,
            Append: self.log.append,
            Truncate: self.log.truncate,
            InstallSnapshot: self.log.install,
            CleanLog: self.log.clean,
            Send: self.send,
            Reply: self.reply,
            ReadLog: self.read_log,
            Apply: self.applier.advance,
            LeaderChanged: self.applier.leader_changed,
            BecameLeader: self.applier.became_leader,
            Resigned: self.applier.resigned,
            Proposed: ignore,
            Rejected: ignore,
            ReadIndexReady: self.answer_read,
            ReadIndexRefused: self.answer_read,
            ReadSnapshot: self.read_snapshot,
            RewriteSnapshot: self.rewrite_snapshot,
            OpenSnapshot: self.copy_snapshot,
            StoreSnapshotChunk: self.copy_snapshot,
            VerifySnapshot: self.copy_snapshot,
            RepairEnded: self.repair_ended,
            VotersChanged: self.voters_changed,
            Trace: self.trace,
        }


def ignore(effect: Effect) -> None:
    """Do nothing: this shell does not need the effect."""
