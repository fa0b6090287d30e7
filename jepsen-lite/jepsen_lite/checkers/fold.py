"""The state that a committed log makes, change by change: what a workload gives the witness.

A `Change` is what becomes visible at once: the records of one batch that one request wrote, or of one transaction of several
batches. Transactions that were aborted, or that the log does not end, change nothing. A fold is walked once through all changes
from the first on; between two of them it is asked about the operations that looked at the state just there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ..committed_log import CommittedLog, Entry
from ..history import Op


class Change(NamedTuple):
    """Records that became visible at once. `begin` is the offset of the first, `end` what the answer to its request reflects."""

    begin: int
    end: int
    epoch: int
    request_id: str
    entries: tuple[Entry, ...]

    @property
    def is_answer_alone(self) -> bool:
        """True if nothing was done: the answer of a request that was refused in all its entries is remembered, too."""
        return all(entry.kind == _ANSWER for entry in self.entries)


class Fold(Protocol):
    """State and the questions about it. Each question is answered with "" if all is well, else with a sentence for people that
    says what should have been.

    `writes` are the names of the operations that ask for a change, `refusals` errors that say something of the state. Who derives
    from it may leave these out, and `permits`: then no error says anything, and every state lets a write happen.

    A write of unknown outcome that is in the log is asked about as well, by `wrote` and `permits`; its result may be missing.
    """

    writes: frozenset[str]
    refusals: frozenset[str] = frozenset()

    def apply(self, change: Change) -> Iterable[str]:
        """Takes in the next change; gives the keys (of operations) whose state is another one now."""

    def wrote(self, op: Op, change: Change) -> str:
        """Compare a write with its change."""

    def permits(self, op: Op) -> str:
        """Check that the state just before the change of a write let it happen."""
        return ""

    def answers(self, op: Op) -> str:
        """Compare the result of an acknowledged operation with what this state gives: of a read, the state at its offset; of a
        write, the state just after its change.
        """

    def refuses(self, op: Op) -> str:
        """Check that this state justifies the error of an operation that failed; asked only of errors in `refusals`."""
        return f"{op.error} says nothing of the state"


_ANSWER = "RequestOutcome"
_BEGIN, _END, _ABORT = "BeginTransaction", "EndTransaction", "AbortTransaction"


def changes(log: CommittedLog) -> list[Change]:
    """Return the changes of a log in order. Several requests in one batch are changes of their own."""
    found: list[Change] = []
    transaction: list[Entry] | None = None
    together: list[Entry] = []
    for entry in log.entries:
        if transaction is not None:
            transaction.append(entry)
            if entry.kind == _END:
                found.append(_change(transaction, entry.batch_end))
            if entry.kind in (_END, _ABORT):
                transaction = None
            continue
        if together and (entry.batch_end != together[0].batch_end or entry.request_id != together[0].request_id):
            found.append(_change(together, together[0].batch_end))
            together = []
        if entry.kind == _BEGIN:
            if together:
                found.append(_change(together, together[0].batch_end))
                together = []
            transaction = [entry]
        else:
            together.append(entry)
    if together:
        found.append(_change(together, together[0].batch_end))
    return found


def _change(entries: Sequence[Entry], end: int) -> Change:
    first = entries[0]
    name = first.request_id or next((entry.request_id for entry in entries if entry.request_id), "")
    return Change(first.offset, end, first.epoch, name, tuple(entries))
