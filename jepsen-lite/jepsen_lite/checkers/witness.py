"""The offset witness: the committed log fixes the order of all operations, so one pass decides.

Theory of operation. Every acknowledged answer has the offset that it reflects, and every record the id of the request that wrote
it. So there is nothing to search: the order of the log is the order in which the writes took effect, and a read happened at its
offset. The checks:

- A write that was acknowledged with offset r is in the log once and ends at r. Its records match the request (`Fold.wrote`), the
  state before allowed it (`permits`), and its answer follows from the state after it (`answers`).
- A request that certainly failed is not in the log. A request of unknown outcome is there at most once, after everything that was
  acknowledged before it was first sent; if it is there, its records match the request and the state allowed it.
- Real time: an operation that was invoked after an answer with offset r had returned is at or after r. Reads reflect at least r;
  changes begin at r or later.
- A read returns the state at its offset. Reads that may be old (`local_reads`) need not keep up with other clients, but must
  return a past state.
- Sessions never go back: the offsets of one process do not decrease. (A retry gets the first answer again, and may.)
- A refusal that depends on the state is justified by some state in its window: from the last acknowledgement before it was first
  sent, to the first change that was requested after the refusal had returned.

The witness trusts offsets. A server that lies consistently about both value and offset is found by the black-box search
(`linearizable`), which ignores offsets. The witness does not compare the logs of nodes (`log_agreement`). Times are compared
strictly: operations that touch in the same nanosecond overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from ..committed_log import CommittedLog
from ..history import FAIL, INFO, OK, Op
from ..verdicts import UNKNOWN, Verdict
from ..workload import Run
from .findings import Findings
from .fold import Change, Fold, changes


class Witness:
    """`fold` makes the initial state. `local_reads` are the names of reads that may be older than other clients' reads.
    `sessions` False: processes may go back (they change nodes without a minimum offset).
    """

    name = "witness"

    def __init__(
        self,
        fold: Callable[[], Fold],
        *,
        local_reads: frozenset[str] = frozenset(),
        sessions: bool = True,
    ) -> None:
        self._fold = fold
        self._local_reads = local_reads
        self._sessions = sessions

    def check(self, run: Run) -> Verdict:
        if run.log is None:
            return Verdict(checker=self.name, valid=UNKNOWN, reason="the committed log was not kept")
        fold = self._fold()
        evidence = _Evidence(run.log, run.history, fold)
        evidence.check_requests(fold)
        floors = evidence.check_real_time(self._local_reads)
        if self._sessions:
            evidence.check_sessions()
        unsure = ""
        if run.log.start > 0:
            unsure = f"the log begins at {run.log.start}: values were not compared, since the earlier state is unknown"
        else:
            unsure = evidence.check_values(fold, floors)
        return evidence.findings.verdict(
            self.name,
            checked=evidence.writes + evidence.reads + evidence.refusals,
            nothing="no operation was acknowledged with an offset",
            unsure=unsure,
            details={
                "writes": evidence.writes,
                "reads": evidence.reads,
                "refusals": evidence.refusals,
                "resolved": evidence.resolved,
                "changes": len(evidence.changes),
            },
            lost=evidence.findings.counts["lost"],
        )


class _Evidence:
    """A history with its log."""

    def __init__(self, log: CommittedLog, history: Sequence[Op], fold: Fold) -> None:
        self.log = log
        self.findings = Findings()
        self.changes = changes(log)
        self.by_request: dict[str, list[Change]] = {}
        for change in self.changes:
            if change.request_id:
                self.by_request.setdefault(change.request_id, []).append(change)
        self.history = sorted(history, key=attrgetter("invoked_ns"))
        self.requests: dict[str, list[Op]] = {}
        """Request id → the operations that sent it, by time."""
        self.retries: set[int] = set()
        self._sort_out(fold)
        self.writes = sum(1 for sendings in self.requests.values() for op in sendings if op.outcome == OK)
        self.reads = len(self._reads)
        self.refusals = len(self._refusals)
        self.resolved = sum(
            1 for name, sendings in self.requests.items() if sendings[0].outcome == INFO and name in self.by_request
        )

    def _sort_out(self, fold: Fold) -> None:
        self._refusals: list[Op] = []
        self._reads: list[Op] = []
        writes, refusals = fold.writes, fold.refusals
        for op in self.history:
            if op.request_id and op.f in writes:
                sendings = self.requests.get(op.request_id)
                if sendings is None:
                    self.requests[op.request_id] = [op]
                else:
                    sendings.append(op)
                    self.retries.add(op.index)
            elif op.offset >= 0 and op.outcome == OK:
                self._reads.append(op)
            if op.outcome == FAIL and op.error in refusals:
                self._refusals.append(op)

    def check_requests(self, fold: Fold) -> None:
        """Check that each request is in the log as often as its outcome allows, with matching records."""
        add, by_request = self.findings.add, self.by_request
        for name, sendings in self.requests.items():
            found = by_request.get(name, ())
            if len(found) > 1:
                places = ", ".join(str(change.begin) for change in found)
                add("duplicate", f"request {name} took effect {len(found)} times, at {places}", [op.index for op in sendings])
            failed = sendings[0].outcome == FAIL and all(op.outcome == FAIL for op in sendings)
            if failed and found and not all(change.is_answer_alone for change in found):
                op = sendings[0]
                text = f"{_shown(op)} failed with {op.error} but is in the log at {found[0].begin}"
                add("failed but written", text, [op.index])
            for op in sendings:
                if op.outcome == OK:
                    self._check_acknowledged(op, found[0] if found else None, fold)
                elif op.outcome == INFO and found and not found[0].is_answer_alone:
                    self._check_records(op, found[0], fold)

    def _check_acknowledged(self, op: Op, change: Change | None, fold: Fold) -> None:
        add = self.findings.add
        if op.offset > self.log.end:
            text = f"{_shown(op)} was acknowledged with offset {op.offset}, but the log ends at {self.log.end}"
            add("lost", text, [op.index])
            return
        if change is None:
            if 0 <= op.offset <= self.log.start:
                return
            add("lost", f"{_shown(op)} was acknowledged but is not in the log", [op.index])
            return
        if op.offset >= 0 and op.offset != change.end:
            text = f"{_shown(op)} was acknowledged with offset {op.offset}, but its records end at {change.end}"
            add("misplaced", text, [op.index])
        self._check_records(op, change, fold)

    def _check_records(self, op: Op, change: Change, fold: Fold) -> None:
        wrong = fold.wrote(op, change)
        if wrong:
            text = f"{_shown(op)} is in the log at {change.begin} with other records: {wrong}"
            self.findings.add("wrong record", text, [op.index])

    def check_real_time(self, local_reads: frozenset[str]) -> dict[int, int]:
        """Check the real-time order. Return, for each refusal, the offset acknowledged before it was first sent: the answer to a
        retry is that of the first sending.
        """
        returned = sorted((op for op in self.history if op.outcome == OK and op.offset >= 0), key=attrgetter("ended_ns"))
        refusals = {op.index for op in self._refusals}
        floors: dict[int, int] = {}
        again = {sendings[0].request_id for sendings in self.requests.values() if len(sendings) > 1} if refusals else set()
        asked: dict[str, int] = {}
        """Request that was sent again → the floor of its first sending."""
        floor, floor_op, place, count = 0, -1, 0, len(returned)
        by_request, retries = self.by_request, self.retries
        for op in self.history:
            invoked_ns = op.invoked_ns
            while place < count and returned[place].ended_ns < invoked_ns:
                if returned[place].offset > floor:
                    floor, floor_op = returned[place].offset, returned[place].index
                place += 1
            if op.request_id in again:
                asked.setdefault(op.request_id, floor)
            if op.outcome == FAIL and op.index in refusals:
                floors[op.index] = asked.get(op.request_id, floor)
            if op.index in retries or op.f in local_reads:
                continue
            found = by_request.get(op.request_id) if op.request_id else None
            if found is not None:
                at = found[0].begin
            elif op.outcome == OK and op.offset >= 0:
                at = op.offset
            else:
                continue
            if at < floor:
                kind = "stale read" if found is None else "write order"
                text = f"{_shown(op)} is at {at}, although operation {floor_op} had returned with offset {floor} before it began"
                self.findings.add(kind, text, [floor_op, op.index])
        return floors

    def check_sessions(self) -> None:
        last: dict[int, tuple[int, int]] = {}
        for op in self.history:
            if op.outcome != OK or op.offset < 0 or op.index in self.retries:
                continue
            before = last.get(op.process)
            if before is not None and op.offset < before[0]:
                text = f"process {op.process} went back from offset {before[0]} to {op.offset} ({_shown(op)})"
                self.findings.add("session", text, [before[1], op.index])
            else:
                last[op.process] = (op.offset, op.index)

    def check_values(self, fold: Fold, floors: dict[int, int]) -> str:
        """Walk through the log once and compare each operation with the state at its offset. Return why the walk stopped early,
        "" if it did not: a change that the state before does not allow cannot be folded.
        """
        add, end = self.findings.add, self.log.end
        by_request = self.by_request
        silent = [
            op
            for name, sendings in self.requests.items()
            if name not in by_request
            for op in sendings
            if op.outcome == OK and op.offset >= 0
        ]
        looks = sorted([*self._reads, *silent], key=attrgetter("offset"))
        windows = _Windows(fold, self._refusals, floors, self._ceilings(), self.findings)
        place, count = 0, len(looks)
        for change in self.changes:
            while place < count and looks[place].offset < change.end:
                _check_answer(looks[place], fold, self.findings, end)
                place += 1
            windows.open_before(change)
            sendings = self.requests.get(change.request_id, ())
            asked = [op for op in sendings if op.outcome == OK]
            unknown = () if change.is_answer_alone else [op for op in sendings if op.outcome == INFO]
            for op in [*asked, *unknown][:1]:
                wrong = fold.permits(op)
                if wrong:
                    add("not allowed", f"{_shown(op)} at {change.begin} was not allowed there: {wrong}", [op.index])
            try:
                keys = fold.apply(change)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                return f"the change at {change.begin} cannot be folded ({why}); no later value was compared"
            windows.applied(change, keys)
            for op in asked:
                wrong = fold.answers(op)
                if wrong:
                    add("wrong answer", f"{_shown(op)} at {change.begin} answered {op.result!r}: {wrong}", [op.index])
        for op in looks[place:]:
            _check_answer(op, fold, self.findings, end)
        windows.close()
        return ""

    def _ceilings(self) -> dict[int, int]:
        """Return, for each refusal, the begin of the first change that was requested after the refusal had returned."""
        if not self._refusals:
            return {}
        asked = sorted(
            (
                (sent[0].invoked_ns, self.by_request[name][0].begin)
                for name, sent in self.requests.items()
                if name in self.by_request
            ),
            reverse=True,
        )
        ceilings: dict[int, int] = {}
        lowest, place = self.log.end, 0
        for op in sorted(self._refusals, key=lambda op: -op.ended_ns):
            while place < len(asked) and asked[place][0] > op.ended_ns:
                lowest = min(lowest, asked[place][1])
                place += 1
            ceilings[op.index] = lowest
        return ceilings


def _check_answer(op: Op, fold: Fold, findings: Findings, end: int) -> None:
    if op.offset > end:
        findings.add("beyond the log", f"{_shown(op)} reflects offset {op.offset}, but the log ends at {end}", [op.index])
        return
    wrong = fold.answers(op)
    if wrong:
        findings.add("wrong answer", f"{_shown(op)} at offset {op.offset} answered {op.result!r}: {wrong}", [op.index])


class _Windows:
    """Refusals whose window is open, by key. Each is checked once at the start of its window, and again when its key changes
    within the window, until a state justifies it.
    """

    def __init__(
        self, fold: Fold, refusals: Sequence[Op], floors: dict[int, int], ceilings: dict[int, int], findings: Findings
    ) -> None:
        self._fold = fold
        self._waiting = sorted(((floors[op.index], op.index, op) for op in refusals), key=lambda item: item[:2], reverse=True)
        self._ceilings = ceilings
        self._findings = findings
        self._open: dict[str, list[tuple[Op, str]]] = {}

    def open_before(self, change: Change) -> None:
        """Open the windows that begin before this change is visible."""
        while self._waiting and self._waiting[-1][0] < change.end:
            self._open_next()

    def _open_next(self) -> None:
        _, _, op = self._waiting.pop()
        wrong = self._fold.refuses(op)
        if wrong:
            self._open.setdefault(op.key, []).append((op, wrong))

    def applied(self, change: Change, keys: Iterable[str]) -> None:
        """Check the open refusals of the keys that the visible change altered."""
        if not self._open:
            return
        for key in {*keys, ""}:
            waiting = self._open.pop(key, None)
            if waiting is None:
                continue
            still = []
            for op, wrong in waiting:
                if change.begin >= self._ceilings[op.index]:
                    self._refuse(op, wrong)
                elif self._fold.refuses(op):
                    still.append((op, wrong))
            if still:
                self._open[key] = still

    def close(self) -> None:
        while self._waiting:
            self._open_next()
        for waiting in self._open.values():
            for op, wrong in waiting:
                self._refuse(op, wrong)

    def _refuse(self, op: Op, wrong: str) -> None:
        text = f"{_shown(op)} was refused with {op.error}, which no state during the operation justifies: {wrong}"
        self._findings.add("unjustified refusal", text, [op.index])


def _shown(op: Op) -> str:
    value = "" if op.value is None else f" {op.value!r}"
    return f"operation {op.index} ({op.f}{f' {op.key}' if op.key else ''}{value})"
