"""Elements that were added to a set: which of them readers kept seeing.

Theory of operation. An element is *known* from the moment that its addition was acknowledged, or that a read which saw it has
returned. A read that begins later and does not show it was stale, if some other read shows it that had not returned by then; if
none does, the element is *lost*. The time from when it was known until the last read that missed it began is its *stable
latency*: 0 for all if reads are linearizable. Elements that no read could show are *never read*: nothing is known of them. An
element that was taken out is not expected by a read that returns after that was asked. If it was known before that was asked, it
must not be seen by a read that begins after that was answered either; else it may have been added later. What is missed and then
taken out was stale, not lost.

One sweep over the history with set arithmetic: O(sum of the reads' sizes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from ..history import FAIL, INFO, OK, Op
from ..verdicts import Verdict
from ..workload import Run
from .calls import all_frozen, frozen
from .findings import Findings
from .quantiles import quantiles

Element = Hashable


class Additions(NamedTuple):
    """Of one element: the first time that it was asked for, and when it was acknowledged (None: never)."""

    invoked_ns: int
    acknowledged_ns: int | None
    op: int
    failed: bool


class SetFull:
    """`added` gives the element that an `add` adds or a `remove` takes out; the result of a read lists the elements. An
    element is added once in a run.
    """

    name = "set-full"

    def __init__(
        self,
        add: str = "add",
        read: str = "get",
        *,
        remove: str = "",
        added: Callable[[Op], object] = lambda op: op.value,
    ) -> None:
        self._add, self._read, self._remove, self._added = add, read, remove, added

    def check(self, run: Run) -> Verdict:
        sweep = _Sweep(run.history, self)
        sweep.run()
        lost, latencies = sweep.missed()
        findings = sweep.findings
        known = sweep.known
        stable = [0] * (len(known) - len(latencies) - len(lost) - len(sweep.never_read)) + latencies
        unsure = f"none of the {len(sweep.never_read)} elements was read after it was added" if not sweep.confirmed else ""
        return findings.verdict(
            self.name,
            checked=len(known) if sweep.reads else 0,
            nothing=f"no {self._read} succeeded" if not sweep.reads else "nothing was acknowledged",
            unsure=unsure,
            details={
                "attempts": len(sweep.additions),
                "acknowledged": sum(1 for addition in sweep.additions.values() if addition.acknowledged_ns is not None),
                "reads": len(sweep.reads),
                "lost": len(lost),
                "stale": len(latencies),
                "never_read": len(sweep.never_read),
                "recovered": sweep.recovered,
                "stable_latency_ms": {name: value / 1e6 for name, value in quantiles(stable).items()},
            },
            lost=len(lost),
        )

    def split(self, history: Sequence[Op]) -> tuple[list[Op], list[Op], list[Op]]:
        """Additions, reads that succeeded, removals."""
        adds = [op for op in history if op.f == self._add]
        reads = [op for op in history if op.f == self._read and op.outcome == OK]
        removes = [op for op in history if op.f == self._remove and op.outcome != FAIL]
        return adds, reads, removes

    def element(self, op: Op) -> Element:
        return frozen(self._added(op))

    def elements(self, op: Op) -> list[Element]:
        return all_frozen(op.result)


class _Sweep:
    def __init__(self, history: Sequence[Op], checker: SetFull) -> None:
        self.findings = Findings()
        adds, self.reads, self.removes = checker.split(history)
        self.checker = checker
        self.additions: dict[Element, Additions] = {}
        for op in adds:
            self._add(checker.element(op), op)
        self.known: dict[Element, int] = {}
        """When it was known, in ns."""
        self.seen: set[Element] = set()
        self.confirmed: set[Element] = set()
        """Elements that some read showed or should have shown: those that were put to the test."""
        self.absent: dict[Element, list[Op]] = {}
        """Reads that missed it."""
        self.leaving: set[Element] = set()
        """Elements that somebody has asked to take out."""
        self._missing: dict[int, set[Element]] = {}
        """Of reads under way, what they should show and do not, unless it is leaving before they return."""
        self.recovered = 0

    @property
    def never_read(self) -> set[Element]:
        return self.known.keys() - self.confirmed

    def _add(self, element: Element, op: Op) -> None:
        before = self.additions.get(element)
        acknowledged = op.ended_ns if op.outcome == OK else None
        if before is None:
            self.additions[element] = Additions(op.invoked_ns, acknowledged, op.index, op.outcome == FAIL)
            return
        moments = [moment for moment in (before.acknowledged_ns, acknowledged) if moment is not None]
        failed = before.failed and op.outcome == FAIL
        self.additions[element] = before._replace(acknowledged_ns=min(moments, default=None), failed=failed)

    def run(self) -> None:
        """Acknowledgements, removals and reads in the order of time. At equal times what is expected comes last. No two events
        have one time, kind and operation, so that what stands behind is not compared.
        """
        events: list[tuple[int, int, int, Any]] = []
        for element, addition in self.additions.items():
            if addition.acknowledged_ns is not None:
                events.append((addition.acknowledged_ns, 3, addition.op, element))
        for op in self.removes:
            events.append((op.invoked_ns, 0, op.index, op))
            if op.outcome != INFO:
                events.append((op.ended_ns, 4, op.index, op))
        shown: dict[int, list[Element]] = {}
        for op in self.reads:
            shown[op.index] = self.checker.elements(op)
            events.append((op.invoked_ns, 1, op.index, op))
            events.append((op.ended_ns, 2, op.index, op))
        expected: set[Element] = set()
        gone: set[Element] = set()
        had_it: set[int] = set()
        """Removals that found their element, if they did anything."""
        for at_ns, kind, index, what in sorted(events):
            if kind == 0:
                element = self.checker.element(what)
                self.leaving.add(element)
                if element in self.known:
                    had_it.add(index)
                expected.discard(element)
            elif kind == 1:
                self._read_began(what, shown[what.index], expected, gone)
            elif kind == 2:
                self._read_returned(what, shown[what.index], expected)
            elif kind == 3:
                self.known.setdefault(what, at_ns)
                if what not in self.leaving:
                    expected.add(what)
            elif index in had_it:
                gone.add(self.checker.element(what))

    def _read_began(self, op: Op, elements: list[Element], expected: set[Element], gone: set[Element]) -> None:
        visible = set(elements)
        missing = self._missing[op.index] = expected - visible
        self.confirmed |= expected - missing
        for element in gone & visible:
            text = f"operation {op.index} ({op.f}) shows {element!r}, which had been taken out before it began"
            self.findings.add("resurrected", text, [op.index])
        if len(visible) < len(elements):
            twice = Counter(elements).most_common(1)[0][0]
            self.findings.add("shown twice", f"operation {op.index} ({op.f}) shows {twice!r} twice", [op.index])

    def _read_returned(self, op: Op, elements: list[Element], expected: set[Element]) -> None:
        for element in self._missing.pop(op.index) - self.leaving:
            self.absent.setdefault(element, []).append(op)
            self.confirmed.add(element)
        new = set(elements) - self.seen
        if not new:
            return
        self.seen |= new
        self.confirmed |= new
        for element in new:
            addition = self.additions.get(element)
            if addition is None or addition.failed:
                why = "which nobody added" if addition is None else f"whose addition (operation {addition.op}) failed"
                self.findings.add("unexpected", f"operation {op.index} ({op.f}) shows {element!r}, {why}", [op.index])
                continue
            if op.ended_ns < addition.invoked_ns:
                text = f"operation {op.index} ({op.f}) shows {element!r} before operation {addition.op} asked for it"
                self.findings.add("from the future", text, [op.index, addition.op])
            self.recovered += addition.acknowledged_ns is None
            self.known.setdefault(element, op.ended_ns)
            if element not in self.leaving:
                expected.add(element)

    def missed(self) -> tuple[list[Element], list[int]]:
        """The elements that are lost, and the stable latencies (ns) of those that were only missed for a time."""
        last_shown: dict[Element, int] = {}
        if self.absent:
            missed = self.absent.keys()
            for op in self.reads:
                for element in missed & set(self.checker.elements(op)):
                    last_shown[element] = max(last_shown.get(element, -1), op.ended_ns)
        lost, latencies = [], []
        for element, reads in self.absent.items():
            last = max(reads, key=lambda op: (op.invoked_ns, op.index))
            addition = self.additions[element]
            if last_shown.get(element, -1) < last.invoked_ns and element not in self.leaving:
                lost.append(element)
                when = "was acknowledged" if addition.acknowledged_ns is not None else "had been seen"
                text = (
                    f"{element!r} {when} and is lost: operation {last.index} ({last.f}) does not show it, nor does any later one"
                )
                self.findings.add("lost", text, [addition.op, last.index])
                continue
            latencies.append(last.invoked_ns - self.known[element])
            text = f"operation {last.index} ({last.f}) does not show {element!r}, which was known before it began"
            self.findings.add("stale", text, [addition.op, last.index])
        return lost, latencies
