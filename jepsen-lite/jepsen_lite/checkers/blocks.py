"""Blocks of numbers: no number is allocated twice."""

from __future__ import annotations

from ..history import OK, Op
from ..verdicts import Verdict
from ..workload import Run
from .findings import Findings


class Blocks:
    """Checks the results of `allocate`, blocks [start, length]: blocks do not overlap, and a block whose request was sent after
    another block was returned is higher. All sendings of a request are one allocation: it begins with the first sending and ends
    with the first answer.
    """

    name = "blocks"

    def check(self, run: Run) -> Verdict:
        findings = Findings()
        blocks: list[tuple[int, int, Op]] = []
        by_request: dict[str, tuple[int, int, Op]] = {}
        asked_ns: dict[str, int] = {}
        ops = run.history.of("allocate")
        for op in ops:
            if op.request_id:
                asked_ns[op.request_id] = min(op.invoked_ns, asked_ns.get(op.request_id, op.invoked_ns))
        for op in sorted(ops.where(lambda op: op.outcome == OK), key=lambda op: op.ended_ns):
            start, length = op.result
            if length <= 0:
                findings.add("empty", f"operation {op.index} got a block of {length} numbers", [op.index])
            first = by_request.setdefault(op.request_id, (start, length, op)) if op.request_id else (start, length, op)
            if first[2] is op:
                blocks.append(first)
            elif first[:2] != (start, length):
                text = f"request {op.request_id} got {list(first[:2])}, and {[start, length]} when it was sent again"
                findings.add("another answer", text, [first[2].index, op.index])
        self._overlaps(blocks, findings)
        begun = [(asked_ns.get(op.request_id, op.invoked_ns), op) for _, _, op in blocks]
        self._order(begun, {op.index: start for start, _, op in blocks}, findings)
        numbers = sum(length for _, length, _ in blocks)
        return findings.verdict(
            self.name, checked=len(blocks), nothing="no allocate succeeded", details={"numbers_given": numbers}
        )

    def _overlaps(self, blocks: list[tuple[int, int, Op]], findings: Findings) -> None:
        reach, holder = None, None
        for start, length, op in sorted(blocks, key=lambda block: (block[0], block[2].index)):
            if reach is not None and holder is not None and start < reach:
                text = f"the blocks of operations {holder.index} and {op.index} overlap: [… {reach}) and [{start} …)"
                findings.add("overlap", text, [holder.index, op.index])
            if reach is None or start + length > reach:
                reach, holder = start + length, op

    def _order(self, begun: list[tuple[int, Op]], starts: dict[int, int], findings: Findings) -> None:
        """`begun`: when each block's request was first sent, with the operation that was given it first."""
        returned = sorted((op for _, op in begun), key=lambda op: op.ended_ns)
        place, highest = 0, None
        for begun_ns, op in sorted(begun, key=lambda item: item[0]):
            while place < len(returned) and returned[place].ended_ns < begun_ns:
                if highest is None or starts[returned[place].index] > starts[highest.index]:
                    highest = returned[place]
                place += 1
            if highest is not None and starts[op.index] < starts[highest.index]:
                text = (
                    f"operation {op.index} got {starts[op.index]} although operation {highest.index} had got"
                    f" {starts[highest.index]} before it began"
                )
                findings.add("order", text, [highest.index, op.index])
