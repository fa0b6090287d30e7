"""Strict serializability of transactions that append to lists and read lists.

Theory of operation (Kingsbury and Alvaro, Elle, VLDB 2020). Every appended value is unique, so a read shows who wrote the list
and in which order: the longest read of a key is the order of its versions, and every other read must be a prefix of it. This
gives dependencies between committed transactions (those that succeeded, or whose appends were read):

- `ww`: one appended directly after the other;
- `wr`: one read a list that ends with a value that the other appended;
- `rw`: one read a list without the value that the other appended next (an anti-dependency);
- `realtime`: one had returned before the other began.

A cycle of dependencies cannot be serialized. A committed append that is in no read of its key follows all appends that are: lists
only grow. Violations without a cycle: a read of an append of a failed transaction (G1a), a read of an intermediate state of
another transaction (G1b), a read of a value that was never appended, reads of one key that are not prefixes of each other, and
reads that contradict the transaction's own appends. A transaction of unknown outcome may or may not be seen; it counts only if it
was seen, and then with all its appends. A transaction that was sent several times is one.

Operations: `value` is a list of ["append", key, v] and ["r", key, None]; the `result` of a success is the same with the lists
that were read. O(operations + length of the lists that were read).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from .. import evidence
from ..history import FAIL, OK, Op
from ..verdicts import Verdict
from ..workload import Run
from .calls import all_frozen, frozen
from .dependencies import KIND_NAMES, REALTIME, RELAY, RW, WR, WW, Cycle, Edge, Graph
from .findings import Findings
from .resolution import one_per_request

Steps = Sequence[Sequence[Any]]
APPEND, READ = "append", "r"


class ListAppend:
    """`transactions` are the names of the operations."""

    name = "list-append"

    def __init__(self, *transactions: str) -> None:
        self._transactions = frozenset(transactions or ("txn",))

    def check(self, run: Run) -> Verdict:
        ops = [op for op in one_per_request(run.history) if op.f in self._transactions]
        lists = _Lists(ops)
        lists.find_orders()
        lists.check_reads()
        graph = lists.dependencies()
        cycles = graph.cycles()
        shown = [lists.evidence_of(cycle) for cycle in cycles]
        for cycle in shown:
            members = list(dict.fromkeys(edge.source for edge in cycle.edges))
            lists.findings.add(cycle.name, f"{cycle.name}: " + ", ".join(edge.why for edge in cycle.edges), members)
        reads = sum(1 for steps in lists.done.values() for step in steps if step[0] == READ)
        return lists.findings.verdict(
            self.name,
            checked=reads,
            nothing="no transaction that reads has succeeded",
            details={
                "transactions": len(lists.committed),
                "edges": graph.edge_count,
                "keys": len(lists.orders),
            }
            | evidence.shown(cycles=shown),
        )


class _Tail(NamedTuple):
    """Transactions whose appends to a key were never read, and the relay to them."""

    graph: Graph
    relay: int
    members: set[int]

    def comes_after(self, number: int, kind: int) -> None:
        """Let all of them follow that transaction, unless it is one of them."""
        if number not in self.members:
            self.graph.add(number, self.relay, kind)
            return
        for member in self.members:
            self.graph.add(number, member, kind)


Step = tuple[str, str, Any]
"""("append", key, value) or ("r", key, [values]), with hashable values."""


def _appends(op: Op) -> list[Step]:
    """Return the appends that an operation requested."""
    return [(name, key, frozen(value)) for name, key, value in op.value if name == APPEND]


def _frozen_steps(steps: Steps) -> list[Step]:
    return [(name, key, frozen(value) if name == APPEND else all_frozen(value or ())) for name, key, value in steps]


class _Lists:
    """The effects of transactions on lists. Transactions that count are numbered; `committed` holds them by number."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.findings = Findings()
        self.ops = ops
        self.done: dict[int, list[Step]] = {op.index: _frozen_steps(op.result) for op in ops if op.outcome == OK}
        """Index → the steps of a successful transaction with their results."""
        self.writers: dict[tuple[str, Hashable], Op] = {}
        """(key, value) → the operation that appends it."""
        self.not_last: set[tuple[str, Hashable]] = set()
        """Values after which their own writer appended more."""
        for op in ops:
            last: dict[str, Hashable] = {}
            for name, key, value in self.done.get(op.index) or _appends(op):
                if name == APPEND:
                    self._append(op, key, value, last)
        self.orders: dict[str, list[Hashable]] = {}
        self.shown: dict[str, set[Hashable]] = {}
        self.longest: dict[str, Op] = {}
        self.committed: list[Op] = []
        self.numbers: dict[int, int] = {}

    def _append(self, op: Op, key: str, value: Hashable, last: dict[str, Hashable]) -> None:
        other = self.writers.setdefault((key, value), op)
        if other is not op:
            text = f"operations {other.index} and {op.index} both append {value!r} to {key}: values must be unique"
            self.findings.add("not unique", text, [other.index, op.index])
        if key in last:
            self.not_last.add((key, last[key]))
        last[key] = value

    # -- what was read ---------------------------------------------------------------------------------------------------

    def find_orders(self) -> None:
        """Find the longest read of each key, and the committed transactions."""
        for op in self.ops:
            if op.outcome != OK:
                continue
            for name, key, value in self.done[op.index]:
                if name == READ and len(value) > len(self.orders.get(key, ())):
                    self.orders[key] = value
                    self.longest[key] = op
        self.shown = {key: set(order) for key, order in self.orders.items()}
        self.committed = [op for op in self.ops if op.outcome == OK or (op.outcome != FAIL and self._was_seen(op))]
        self.numbers = {op.index: number for number, op in enumerate(self.committed)}

    def _was_seen(self, op: Op) -> bool:
        return any(value in self.shown.get(key, ()) for _, key, value in _appends(op))

    def check_reads(self) -> None:
        for key, order in self.orders.items():
            self._check_order(key, order)
        for op in self.committed:
            if op.outcome != OK:
                continue
            steps = self.done[op.index]
            for name, key, read in steps:
                if name == READ:
                    self._check_start(op, key, read)
            if len({key for _, key, _ in steps}) < len(steps):
                self._check_own(op, steps)

    def _check_order(self, key: str, order: list[Hashable]) -> None:
        op = self.longest[key]
        if len(set(order)) < len(order):
            twice = next(value for value in order if order.count(value) > 1)
            self.findings.add("appended twice", f"operation {op.index} read {twice!r} twice in {key}", [op.index])
        for value in order:
            writer = self.writers.get((key, value))
            if writer is None:
                self.findings.add(
                    "unexpected", f"operation {op.index} read {value!r} in {key}, which no operation appended", [op.index]
                )
            elif writer.outcome == FAIL:
                text = f"operation {op.index} read {value!r} in {key}, which the failed operation {writer.index} appended"
                self.findings.add("G1a", text, [writer.index, op.index])

    def _check_start(self, op: Op, key: str, read: list[Hashable]) -> None:
        """Check that a read is a prefix of the key's order and not an intermediate state of another transaction."""
        order = self.orders.get(key, [])
        if read != order[: len(read)]:
            other = self.longest[key]
            text = f"operation {op.index} read {read!r} of {key}, which is not a prefix of {order!r} (operation {other.index})"
            self.findings.add("incompatible order", text, [op.index, other.index])
        if self.not_last and read and (key, read[-1]) in self.not_last:
            writer = self.writers[key, read[-1]]
            if writer is not op:
                text = f"operation {op.index} read {key} up to {read[-1]!r}, in the middle of operation {writer.index}"
                self.findings.add("G1b", text, [writer.index, op.index])

    def _check_own(self, op: Op, steps: list[Step]) -> None:
        """Check that each read fits the transaction's own appends and earlier reads."""
        appended: dict[str, list[Hashable]] = {}
        before: dict[str, tuple[list[Hashable], int]] = {}
        for name, key, read in steps:
            own = appended.setdefault(key, [])
            if name == APPEND:
                own.append(read)
                continue
            read_before, own_before = before.get(key, (read[: len(read) - len(own)], 0))
            if read != read_before + own[own_before:]:
                text = f"operation {op.index} read {read!r} of {key}, which contradicts its earlier appends or reads"
                self.findings.add("internal", text, [op.index])
            before[key] = (read, len(own))

    # -- dependencies --------------------------------------------------------------------------------------------------

    def number_of(self, key: str, value: Hashable) -> int | None:
        """Return the number of the transaction that appended the value, if it counts."""
        writer = self.writers.get((key, value))
        return None if writer is None else self.numbers.get(writer.index)

    def dependencies(self) -> Graph:
        graph = Graph(len(self.committed))
        authors: dict[str, list[int | None]] = {}
        for key, order in self.orders.items():
            authors[key] = [self.number_of(key, value) for value in order]
            for first, second in zip(authors[key], authors[key][1:], strict=False):
                if first is not None and second is not None:
                    graph.add(first, second, WW)
        tails = self._tails(graph, authors)
        for number, op in enumerate(self.committed):
            if op.outcome == OK:
                self._reader(graph, number, op, authors, tails)
        self._real_time(graph)
        return graph

    def _tails(self, graph: Graph, authors: dict[str, list[int | None]]) -> dict[str, _Tail]:
        """Return, for each key, the transactions whose appends to it are in no read. A transaction that was seen in any list has
        appended to all of its lists.
        """
        tails: dict[str, _Tail] = {}
        for number, op in enumerate(self.committed):
            for name, key, value in self.done.get(op.index) or _appends(op):
                if name != APPEND or value in self.shown.get(key, ()):
                    continue
                tail = tails.get(key)
                if tail is None:
                    tail = tails[key] = _Tail(graph, graph.relay(), set())
                if number not in tail.members:
                    tail.members.add(number)
                    graph.add(tail.relay, number, RELAY)
        for key, tail in tails.items():
            written = [author for author in authors.get(key, ()) if author is not None]
            if written:
                tail.comes_after(written[-1], WW)
        return tails

    def _reader(self, graph: Graph, number: int, op: Op, authors: dict[str, list[int | None]], tails: dict[str, _Tail]) -> None:
        own: set[str] = set()
        for name, key, value in self.done[op.index]:
            if name == APPEND:
                own.add(key)
                continue
            length, known = len(value), authors.get(key, [])
            if 0 < length <= len(known):
                writer = known[length - 1]
                if writer is not None:
                    graph.add(writer, number, WR)
            if key in own:
                continue
            if length < len(known):
                following = known[length]
                if following is not None:
                    graph.add(number, following, RW)
            elif key in tails:
                tails[key].comes_after(number, RW)

    def _real_time(self, graph: Graph) -> None:
        """Add a chain of relays, one for each return after which a transaction begins."""
        returned = sorted((op.ended_ns, number) for number, op in enumerate(self.committed) if op.outcome == OK)
        relay, place = -1, 0
        for began_ns, number in sorted((op.invoked_ns, number) for number, op in enumerate(self.committed)):
            if place < len(returned) and returned[place][0] < began_ns:
                following = graph.relay()
                if relay >= 0:
                    graph.add(relay, following, RELAY)
                relay = following
                while place < len(returned) and returned[place][0] < began_ns:
                    graph.add(returned[place][1], relay, REALTIME)
                    place += 1
            if relay >= 0:
                graph.add(relay, number, RELAY)

    # -- explanations --------------------------------------------------------------------------------------------------

    def evidence_of(self, cycle: Cycle) -> evidence.Cycle:
        """Return a cycle with the reason for each edge."""
        edges = [
            evidence.Edge(
                self.committed[edge.source].index, self.committed[edge.target].index, KIND_NAMES[edge.kind], self._why(edge)
            )
            for edge in cycle.edges
        ]
        return evidence.Cycle(cycle.name, tuple(edges))

    def _why(self, edge: Edge) -> str:
        source, target = self.committed[edge.source], self.committed[edge.target]
        if edge.kind == REALTIME:
            return f"{source.index} had returned before {target.index} began"
        for key in dict.fromkeys(step[1] for step in source.value):
            order = self.orders.get(key, [])
            if edge.kind == WW:
                ends = [value for name, at, value in source.value if name == APPEND and at == key]
                starts = [value for name, at, value in target.value if name == APPEND and at == key]
                for end in ends:
                    for start in starts:
                        if edge.by_relay or [frozen(end), frozen(start)] in [order[at : at + 2] for at in range(len(order))]:
                            return f"{target.index} appended {start!r} to {key} after {end!r} of {source.index}"
            elif edge.kind == WR:
                read = self._read_ending(target, key, source)
                if read:
                    return f"{target.index} read {key} up to {read[-1]!r}, which {source.index} appended"
            else:
                missed = self._missed(source, target, key, order)
                if missed is not None:
                    return f"{source.index} read {key} without {missed!r}, which {target.index} appended"
        return f"{source.index} comes before {target.index} ({KIND_NAMES[edge.kind]})"

    def _read_ending(self, reader: Op, key: str, writer: Op) -> Sequence[Any]:
        for name, at, value in self.done[reader.index]:
            if name == READ and at == key and value and self.writers.get((key, value[-1])) is writer:
                return list(value)
        return ()

    def _missed(self, reader: Op, writer: Op, key: str, order: list[Hashable]) -> Any:
        appended = [frozen(value) for name, at, value in writer.value if name == APPEND and at == key]
        for name, at, read in self.done[reader.index]:
            if name == READ and at == key:
                following = order[len(read)] if len(read) < len(order) else None
                for candidate in appended:
                    if candidate not in read and following in (None, candidate):
                        return candidate
        return None
