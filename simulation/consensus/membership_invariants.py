"""The rules of voters and of nodes under repair: S12 and S18. Facts about voter sets come from voter_trail.py."""

from __future__ import annotations

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.states import Candidate, Prospective
from kraftlab.quorum.core.types import VoterSet

from .invariants import Checker, Violation
from .observed import ObservedProcess
from .voter_trail import differ_by_one


class VotersChangeOneByOne(Checker):
    """S12: consecutive voter sets differ by one voter. At most one change is uncommitted, and a leader makes none before it has
    committed in its own epoch (Ongaro, raft-dev 2015). The first leader of a quorum copies the set into the log without a change.
    """

    def on_voters(self, process: ObservedProcess, offset: int, voters: VoterSet, epoch: int) -> None:
        trail = process.voter_trail
        if not differ_by_one(trail.latest, voters):
            raise Violation(f"S12 n{process.node_id} appends {voters} at {offset} after {trail.latest}: more than one change")
        if not process.raft.is_leader or process.quorum.epoch != epoch or voters == trail.latest:
            return
        if trail.latest_offset >= process.applying.high_watermark:
            raise Violation(f"S12 n{process.node_id} appends {voters} at {offset} after {trail.latest}, which is not committed")
        if process.applying.high_watermark <= process.raft.epoch_start_offset:
            raise Violation(f"S12 n{process.node_id} appends {voters} at {offset} and has not committed in its epoch {epoch}")

    def on_state(self, process: ObservedProcess) -> None:
        """Check that a node outside its own voter set only stands if that set may be uncommitted."""
        if type(process.quorum.state) not in (Candidate, Prospective):
            return
        trail = process.voter_trail
        if trail.latest.has(process.key):
            return
        if not trail.previous_has(process.key) or trail.latest_offset < process.applying.high_watermark:
            raise Violation(f"S12 n{process.node_id} stands for election, and its log's voters are {trail.latest}")


class RepairersDoNotVote(Checker):
    """S18: a node that repairs a damaged log does not vote or lead before its disk holds the whole log again. The repair ends
    then for good, since a later leader can truncate records that were never committed.
    """

    def _is_repairing(self, process: ObservedProcess) -> bool:
        return process.machine.durable.end_offset < process.repair_until

    def on_flushed(self, process: ObservedProcess) -> None:
        if process.repair_until and not self._is_repairing(process):
            process.repair_until = 0

    def on_vote(self, process: ObservedProcess, epoch: int, candidate: ReplicaKey) -> None:
        if self._is_repairing(process):
            raise Violation(f"S18 n{process.node_id} repairs up to {process.repair_until} and votes for {candidate} in {epoch}")

    def on_state(self, process: ObservedProcess) -> None:
        if process.repair_until and process.raft.is_leader and self._is_repairing(process):
            raise Violation(f"S18 n{process.node_id} repairs up to {process.repair_until} and leads epoch {process.quorum.epoch}")


MEMBERSHIP_CHECKERS: tuple[type[Checker], ...] = (VotersChangeOneByOne, RepairersDoNotVote)
