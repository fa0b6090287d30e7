"""Requests that may be sent several times take effect once, and all their answers are equal.

Operations with one `request_id` are one request. The log contains it at most once; exactly once if any sending was acknowledged;
never if all sendings failed. All acknowledgements have the same offset and the same result.
"""

from __future__ import annotations

from ..history import FAIL, OK, Op
from ..verdicts import UNKNOWN, Verdict
from ..workload import Run
from .calls import frozen
from .findings import Findings
from .fold import Change, changes


class ExactlyOnce:
    """`functions` are the operations that are requests."""

    name = "exactly-once"

    def __init__(self, *functions: str) -> None:
        self._functions = frozenset(functions)

    def check(self, run: Run) -> Verdict:
        if run.log is None:
            return Verdict(checker=self.name, valid=UNKNOWN, reason="the committed log was not kept")
        effects: dict[str, list[Change]] = {}
        for change in changes(run.log):
            if change.request_id:
                effects.setdefault(change.request_id, []).append(change)
        requests: dict[str, list[Op]] = {}
        for op in run.history:
            if op.f in self._functions and op.request_id:
                requests.setdefault(op.request_id, []).append(op)
        findings = Findings()
        for name, sendings in requests.items():
            _check_effects(name, sendings, effects.get(name, []), run.log.start, findings)
            _check_answers(name, sendings, findings)
        acknowledged = sum(1 for sendings in requests.values() if any(op.outcome == OK for op in sendings))
        return findings.verdict(
            self.name,
            checked=acknowledged,
            nothing="no request was acknowledged",
            details={
                "requests": len(requests),
                "sent_again": sum(1 for sendings in requests.values() if len(sendings) > 1),
                "answered_again": sum(1 for sendings in requests.values() if sum(op.outcome == OK for op in sendings) > 1),
                "effects": sum(1 for name in requests if name in effects),
            },
            lost=findings.counts["lost"],
        )


def _check_effects(name: str, sendings: list[Op], found: list[Change], log_start: int, findings: Findings) -> None:
    ops = [op.index for op in sendings]
    if len(found) > 1:
        places = ", ".join(str(change.begin) for change in found)
        findings.add("duplicate", f"request {name} took effect {len(found)} times, at {places}", ops)
    if not all(change.is_answer_alone for change in found) and all(op.outcome == FAIL for op in sendings):
        findings.add("failed but written", f"request {name} failed every time but is in the log at {found[0].begin}", ops)
    answered = [op for op in sendings if op.outcome == OK]
    if answered and not found and not 0 <= answered[0].offset <= log_start:
        findings.add("lost", f"request {name} was acknowledged (operation {answered[0].index}) but is not in the log", ops)


def _check_answers(name: str, sendings: list[Op], findings: Findings) -> None:
    answered = [op for op in sendings if op.outcome == OK]
    for op in answered[1:]:
        first = answered[0]
        if (op.offset, frozen(op.result)) != (first.offset, frozen(first.result)):
            text = (
                f"request {name} was answered {first.result!r} at {first.offset} (operation {first.index}), and"
                f" {op.result!r} at {op.offset} (operation {op.index})"
            )
            findings.add("two answers", text, [first.index, op.index])
