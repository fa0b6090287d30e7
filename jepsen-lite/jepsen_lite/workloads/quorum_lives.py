"""Epochs, leaders and voters, from the committed log and all reports of them.

- An epoch has one leader forever: in its leader-change record, in the answers of all nodes, in the observations of all nodes.
- Epochs never decrease. The first record of an epoch is its leader change: nothing is written before it.
- A leader has the votes of a majority of the voters in force, and is one of them or was in the previous set: a node with its own
  removal in its log does not know whether it is committed, and may have to be elected to find out.
- Consecutive voter sets differ by at most one voter, so any two majorities overlap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..checkers.findings import Findings
from ..committed_log import CommittedLog
from ..history import OK
from ..verdicts import UNKNOWN, Verdict
from ..workload import Run

NOBODY = -1
Key = tuple[int, str]


class QuorumLives:
    """`asked` are the names of operations whose result is [leader, epoch, …]. `changes`: if voters can change, they must have
    changed at least once, otherwise that was not tested ("unknown"). `details`: the numbers of epochs and of changes of the
    voters.
    """

    name = "lives of the quorum"

    def __init__(self, *asked: str, changes: bool = False) -> None:
        self._asked = frozenset(asked)
        self._changes = changes

    def check(self, run: Run) -> Verdict:
        if run.log is None or run.log.start:
            return Verdict(checker=self.name, valid=UNKNOWN, reason="the committed log was not kept from its beginning")
        findings = Findings()
        leaders: dict[int, tuple[int, str]] = {}
        changes = _read(run.log, leaders, findings)
        _agree(leaders, self._known_leaders(run), findings)
        details = {"epochs": len(leaders), "changes": changes}
        is_untested = self._changes and not changes and any(entry.kind == "KRaftVoters" for entry in run.log.entries)
        unsure = "the voters never changed" if is_untested else ""
        return findings.verdict(self.name, checked=len(leaders), nothing="there was no leader", unsure=unsure, details=details)

    def _known_leaders(self, run: Run) -> Iterable[tuple[int, int, str]]:
        """Yield (epoch, leader, source of the report)."""
        for op in run.history:
            if op.f in self._asked and op.outcome == OK:
                yield op.result[1], op.result[0], f"operation {op.index} at node {op.node}"
        for seen in run.observations:
            yield seen.epoch, seen.leader, f"the state of node {seen.node}"


def _read(log: CommittedLog, leaders: dict[int, tuple[int, str]], findings: Findings) -> int:
    """Collect the leaders by epoch from the log; return the number of changes of the voters."""
    epoch, changes = 0, 0
    voters: dict[Key, Any] | None = None
    before: set[int] = set()
    known: list[int] | None = None
    for entry in log.entries:
        if entry.epoch < epoch:
            findings.add("epoch back", f"epoch {entry.epoch} at offset {entry.offset} follows epoch {epoch}")
        if entry.epoch > epoch and entry.kind != "LeaderChange":
            findings.add(
                "first record", f"epoch {entry.epoch} begins with {entry.kind} at offset {entry.offset}, not with its leader"
            )
        if entry.kind == "LeaderChange":
            leader = entry.record["leader_id"]
            if entry.epoch in leaders:
                findings.add(
                    "two leaders", f"epoch {entry.epoch} has two leader changes, to {leaders[entry.epoch][0]} and {leader}"
                )
            leaders[entry.epoch] = (leader, f"the log, at offset {entry.offset}")
            in_force = known if voters is None else sorted(node for node, _ in voters)
            _check_votes(entry.offset, entry.record, in_force, before, findings)
            known = entry.record["voters"]
        elif entry.kind == "KRaftVoters":
            now = {_key(voter): voter["endpoints"] for voter in entry.record["voters"]["voters"]}
            if voters is not None and now != voters:
                changes += 1
                come, gone = sorted(now.keys() - voters.keys()), sorted(voters.keys() - now.keys())
                if len(come) + len(gone) > 1:
                    text = (
                        f"at offset {entry.offset} the voters change by {come} and {gone}: old and new majorities can be disjoint"
                    )
                    findings.add("more than one", text)
                before = {node for node, _ in voters}
            voters = now
        epoch = max(epoch, entry.epoch)
    return changes


def _key(voter: dict[str, Any]) -> Key:
    return voter["key"]["node_id"], voter["key"]["directory_id"]


def _check_votes(offset: int, record: dict[str, Any], in_force: list[int] | None, before: set[int], findings: Findings) -> None:
    leader, voters, granting = record["leader_id"], record["voters"], record["granting_voters"]
    if in_force is not None and sorted(voters) != in_force:
        findings.add("voters", f"at offset {offset}, {leader} is elected by the voters {voters}, but {in_force} were in force")
    if leader not in voters and leader not in before:
        findings.add("leader", f"at offset {offset}, {leader} leads but is not one of the voters {voters}")
    if not set(granting) <= set(voters) or 2 * len(set(granting)) <= len(voters):
        findings.add("votes", f"at offset {offset}, {leader} leads by the votes of {granting} of {voters}")


def _agree(leaders: dict[int, tuple[int, str]], known: Iterable[tuple[int, int, str]], findings: Findings) -> None:
    reported = set()
    for epoch, leader, who in known:
        if leader == NOBODY or epoch < 0:
            continue
        first, where = leaders.setdefault(epoch, (leader, who))
        if first != leader and (epoch, leader) not in reported:
            reported.add((epoch, leader))
            findings.add("two leaders", f"epoch {epoch} is led by {first} ({where}), and by {leader} ({who})")
