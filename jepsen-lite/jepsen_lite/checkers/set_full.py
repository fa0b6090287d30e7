"""Elements that were added to a set: each stays visible.

Theory of operation. An element is *known* once its addition was acknowledged or a read that shows it has returned. A read that
begins later and does not show the element is *stale* if another read that had not returned at its begin shows it. Otherwise the
element is *lost*. The *stable latency* of an element is the time from when it was known until the last read that missed it began:
0 for all elements if reads are linearizable. An element that no read could show is *never read*: nothing is known about it.

One sweep over the history with set arithmetic: O(sum of the reads' sizes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from ..history import FAIL, OK, Op
from ..verdicts import Verdict
from ..workload import Run
from .calls import all_frozen, frozen
from .findings import Findings
from .stats import quantiles

Element = Hashable


class Additions(NamedTuple):
    """The additions of one element: the first invocation, and the first acknowledgement (None: never)."""

    invoked_ns: int
    acknowledged_ns: int | None
    op: int
    failed: bool


class SetFull:
    """`added` returns the element that an `add` adds; the result of a read lists the elements. A run adds an element once."""

    name = "set-full"

    def __init__(self, add: str = "add", read: str = "get", *, added: Callable[[Op], object] = lambda op: op.value) -> None:
        self._add, self._read, self._added = add, read, added

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

    def split(self, history: Sequence[Op]) -> tuple[list[Op], list[Op]]:
        """Return the additions and the successful reads."""
        adds = [op for op in history if op.f == self._add]
        reads = [op for op in history if op.f == self._read and op.outcome == OK]
        return adds, reads

    def element(self, op: Op) -> Element:
        return frozen(self._added(op))

    def elements(self, op: Op) -> list[Element]:
        return all_frozen(op.result)


class _Sweep:
    def __init__(self, history: Sequence[Op], checker: SetFull) -> None:
        self.findings = Findings()
        adds, self.reads = checker.split(history)
        self.checker = checker
        self.additions: dict[Element, Additions] = {}
        for op in adds:
            self._add(checker.element(op), op)
        self.known: dict[Element, int] = {}
        """Element → the time from which it was known, in ns."""
        self.seen: set[Element] = set()
        self.confirmed: set[Element] = set()
        """Elements that a read showed or should have shown."""
        self.absent: dict[Element, list[Op]] = {}
        """Element → the reads that missed it."""
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
        """Take acknowledgements and reads in the order of time. At equal times acknowledgements come last: an element is expected
        only after its acknowledgement. Two events never share time, kind and operation, so the last field is not compared.
        """
        events: list[tuple[int, int, int, Any]] = []
        for element, addition in self.additions.items():
            if addition.acknowledged_ns is not None:
                events.append((addition.acknowledged_ns, 2, addition.op, element))
        shown: dict[int, list[Element]] = {}
        for op in self.reads:
            shown[op.index] = self.checker.elements(op)
            events.append((op.invoked_ns, 0, op.index, op))
            events.append((op.ended_ns, 1, op.index, op))
        for at_ns, kind, _, what in sorted(events):
            if kind == 0:
                self._read_began(what, shown[what.index])
            elif kind == 1:
                self._read_returned(what, shown[what.index])
            else:
                self.known.setdefault(what, at_ns)

    def _read_began(self, op: Op, elements: list[Element]) -> None:
        visible = set(elements)
        expected = self.known.keys()
        self.confirmed |= expected
        for element in expected - visible:
            self.absent.setdefault(element, []).append(op)
        if len(visible) < len(elements):
            twice = Counter(elements).most_common(1)[0][0]
            self.findings.add("shown twice", f"operation {op.index} ({op.f}) shows {twice!r} twice", [op.index])

    def _read_returned(self, op: Op, elements: list[Element]) -> None:
        new = set(elements) - self.seen
        if not new:
            return
        self.seen |= new
        self.confirmed |= new
        for element in new:
            addition = self.additions.get(element)
            if addition is None or addition.failed:
                why = "which no operation added" if addition is None else f"whose addition (operation {addition.op}) failed"
                self.findings.add("unexpected", f"operation {op.index} ({op.f}) shows {element!r}, {why}", [op.index])
                continue
            if op.ended_ns < addition.invoked_ns:
                text = f"operation {op.index} ({op.f}) shows {element!r} before operation {addition.op} asked for it"
                self.findings.add("from the future", text, [op.index, addition.op])
            self.recovered += addition.acknowledged_ns is None
            self.known.setdefault(element, op.ended_ns)

    def missed(self) -> tuple[list[Element], list[int]]:
        """Return the lost elements, and the stable latencies (ns) of those that were missed only for a time."""
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
            if last_shown.get(element, -1) < last.invoked_ns:
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
