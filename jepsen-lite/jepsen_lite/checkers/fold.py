"""The state that a committed log makes, change by change: the witness compares operations with it.

A `Change` is a set of records that become visible at once: the records of one batch that one request wrote, or those of one
transaction over several batches. Aborted and unfinished transactions change nothing. The witness applies all changes to a fold in
order; between two changes it asks the fold about the operations that saw the state at that point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ..committed_log import CommittedLog, Entry
from ..history import Op


class Change(NamedTuple):
    """Records that became visible at once. `begin` is the offset of the first, `end` the offset in the answer to the request."""

    begin: int
    end: int
    epoch: int
    request_id: str
    entries: tuple[Entry, ...]

    @property
    def is_answer_alone(self) -> bool:
        """True if nothing was done: the answer to a request that was refused in all its entries is remembered, too."""
        return all(entry.kind == _ANSWER for entry in self.entries)


class Fold(Protocol):
    """A state and the questions about it. Each question is answered with "" if all is well, otherwise with a sentence that says
    what was expected.

    `writes` are the names of the operations that request a change, `refusals` the errors that depend on the state. A subclass may
    omit `refusals`, `permits` and `refuses`: then no error depends on the state, and every state permits every write.

    A write of unknown outcome that is in the log is passed to `wrote` and `permits` as well; its result may be missing.
    """

    writes: frozenset[str]
    refusals: frozenset[str] = frozenset()

    def apply(self, change: Change) -> Iterable[str]:
        """Apply the next change; return the keys (of operations) whose state changed."""

    def wrote(self, op: Op, change: Change) -> str:
        """Compare a write with its change."""

    def permits(self, op: Op) -> str:
        """Check that the state just before the change of a write let it happen."""
        return ""

    def answers(self, op: Op) -> str:
        """Compare the result of an acknowledged operation with this state: for a read, the state at its offset; for a write, the
        state just after its change.
        """

    def refuses(self, op: Op) -> str:
        """Check that this state justifies the error of a failed operation; called only for errors in `refusals`."""
        return f"{op.error} does not depend on the state"


_ANSWER = "RequestOutcome"
_BEGIN, _END, _ABORT = "BeginTransaction", "EndTransaction", "AbortTransaction"


def changes(log: CommittedLog) -> list[Change]:
    """Return the changes of a log in order. Requests that share a batch are separate changes."""
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
