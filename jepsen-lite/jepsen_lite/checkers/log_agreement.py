"""Observations of nodes, compared with each other and with the committed log (the guarantees of Raft).

- No two nodes lead in one epoch, whichever node reports it.
- A node's epoch never decreases while it runs. After a restart a node may report a lower epoch: it may not have stored the last
  one, which nobody acted on. Epochs of 0 and less mean that the node does not know the epoch yet.
- A node's high watermark never decreases while it runs; a restarted node learns it again from 0. It is never beyond the end of
  the node's log.
- The committed log reaches at least the highest high watermark that any node reported while clients ran. Its offsets increase and
  its epochs never decrease.

Nodes are sampled: a change between two samples is not seen. The contents of logs are compared where the log is read, not here.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from kraftlab.checking.facts import Observation

from ..committed_log import CommittedLog
from ..verdicts import Verdict
from ..workload import Run
from .findings import Findings

RUNS_ON = frozenset(
    {"pause", "partition", "one-way", "isolate-leader", "late", "slow", "loss", "duplicate", "reorder", "clock", "move-dirs"}
)
"""Kinds of strikes that leave the process of a node running. After any other strike its high watermark may start from 0 again."""


class LogAgreement:
    """`details`: the leaders by epoch, each with the time of its first observation."""

    name = "log-agreement"

    def check(self, run: Run) -> Verdict:
        findings = Findings()
        observations = sorted((seen for seen in run.observations if seen.is_up), key=lambda seen: seen.at_ns)
        leaders = _one_leader_per_epoch(observations, findings)
        downs = _downs(run)
        nodes: dict[int, list[Observation]] = {}
        for seen in observations:
            nodes.setdefault(seen.node, []).append(seen)
        for node, series in nodes.items():
            _never_back(series, downs.get(node, []), findings)
        if run.log is not None:
            asked_until_ns = max((op.ended_ns for op in run.history), default=0)
            _covers(run.log, [seen for seen in observations if seen.at_ns <= asked_until_ns], findings)
        return findings.verdict(
            self.name,
            checked=len(observations) + (len(run.log.entries) if run.log else 0),
            nothing="no node reported its state, and the committed log was not kept",
            details={"leaders": leaders, "observations": len(observations)},
        )


def _one_leader_per_epoch(observations: list[Observation], findings: Findings) -> list[dict[str, int]]:
    first: dict[int, Observation] = {}
    reported: set[tuple[int, int]] = set()
    for seen in observations:
        if seen.leader < 0 or seen.epoch < 0:
            continue
        other = first.setdefault(seen.epoch, seen)
        if other.leader != seen.leader and (seen.epoch, seen.leader) not in reported:
            reported.add((seen.epoch, seen.leader))
            text = f"epoch {seen.epoch} has two leaders: {other.leader} (node {other.node}) and {seen.leader} (node {seen.node})"
            findings.add("two leaders", text)
    return [{"epoch": epoch, "leader": seen.leader, "at_ns": seen.at_ns} for epoch, seen in sorted(first.items())]


def _downs(run: Run) -> dict[int, list[int]]:
    """Return, for each node, the times after which it has a new process."""
    downs: dict[int, list[int]] = {}
    for strike in run.strikes:
        if strike.kind in RUNS_ON:
            continue
        for node in strike.nodes:
            downs.setdefault(node, []).extend(moment for moment in (strike.begin_ns, strike.end_ns) if moment is not None)
    for seen in run.observations:
        if not seen.is_up:
            downs.setdefault(seen.node, []).append(seen.at_ns)
    return downs


def _never_back(series: list[Observation], downs: list[int], findings: Findings) -> None:
    downs = sorted(downs)
    for before, after in pairwise(series):
        node = after.node
        next_down = bisect_left(downs, before.at_ns)
        same_process = next_down == len(downs) or downs[next_down] > after.at_ns
        if same_process and 0 < after.epoch < before.epoch:
            findings.add("epoch back", f"node {node} went back from epoch {before.epoch} to {after.epoch} while it ran")
        if same_process and 0 <= after.high_watermark < before.high_watermark:
            text = (
                f"the high watermark of node {node} went back from {before.high_watermark} to {after.high_watermark} while it ran"
            )
            findings.add("high watermark back", text)
    for seen in series:
        if 0 <= seen.log_end < seen.high_watermark:
            text = f"node {seen.node} has high watermark {seen.high_watermark} and a log that ends at {seen.log_end}"
            findings.add("beyond its log", text)


def _covers(log: CommittedLog, observations: list[Observation], findings: Findings) -> None:
    highest = max(observations, key=lambda seen: seen.high_watermark, default=None)
    if highest is not None and highest.high_watermark > log.end:
        text = f"node {highest.node} had high watermark {highest.high_watermark}, but the committed log ends at {log.end}"
        findings.add("committed and gone", text)
    for before, after in pairwise(log.entries):
        if after.offset <= before.offset:
            findings.add("order", f"offset {after.offset} follows {before.offset} in the committed log")
        if after.epoch < before.epoch:
            findings.add("log epoch back", f"epoch {after.epoch} at offset {after.offset} follows epoch {before.epoch}")
