"""What clients did and saw: one operation per row.

An operation begins when a client sends it and ends in one of three ways. `ok`: its answer arrived. `fail`: it certainly did
nothing. `info`: nobody knows; it may take effect at any later time, or never, so it has no return. Processes are sequential: one
whose operation ended as `info` does nothing more, its worker goes on under a new number.

Times are nanoseconds since the run began, on the clock of its world. `offset` and `epoch` are of the answer: the metadata offset
that it reflects, for a write one past its last record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

Outcome = Literal["ok", "fail", "info"]
OK: Outcome = "ok"
FAIL: Outcome = "fail"
INFO: Outcome = "info"


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """One operation that has ended. `value` is what was asked, `result` what was answered; both are JSON values.

    `ended_ns` is when its client went on: for `info` that says nothing about the operation. `node` answered it, -1 if none did.
    `request_id` names it in the log ("client-id-in-hex:sequence"); "" if it has no name. `offset` and `epoch` are -1 if unknown.
    """

    index: int
    process: int
    f: str
    key: str = ""
    value: Any = None
    outcome: Outcome
    result: Any = None
    invoked_ns: int
    ended_ns: int
    error: str = ""
    request_id: str = ""
    node: int = -1
    offset: int = -1
    epoch: int = -1

    @property
    def returned_ns(self) -> int | None:
        """When it was over, None if nobody knows that it is."""
        return None if self.outcome == INFO else self.ended_ns


class History(Sequence[Op]):
    """Operations by the order of their invocation; `index` is the place of each."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self._ops = tuple(sorted(ops, key=lambda op: op.index))

    def __len__(self) -> int:
        return len(self._ops)

    def __getitem__(self, place: Any) -> Any:
        return self._ops[place]

    def __iter__(self) -> Iterator[Op]:
        return iter(self._ops)

    def __repr__(self) -> str:
        return f"<History of {len(self._ops)} operations: {self.counts()}>"

    def where(self, holds: Callable[[Op], bool]) -> History:
        return History(op for op in self._ops if holds(op))

    def of(self, *functions: str) -> History:
        """The operations of these names."""
        return self.where(lambda op: op.f in functions)

    def by_key(self) -> dict[str, History]:
        """One history for each key, in the order in which keys first appear."""
        keys: dict[str, list[Op]] = {}
        for op in self._ops:
            keys.setdefault(op.key, []).append(op)
        return {key: History(ops) for key, ops in keys.items()}

    def counts(self) -> dict[str, int]:
        """How many ended in each way; all three names are there."""
        found = Counter(op.outcome for op in self._ops)
        return {outcome: found[outcome] for outcome in (OK, FAIL, INFO)}
