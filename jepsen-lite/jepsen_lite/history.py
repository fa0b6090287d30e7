"""Histories: one row per client operation.

An operation begins when a client sends it and ends in one of three ways. `ok`: it was answered. `fail`: it certainly had no
effect. `info`: its outcome is unknown; it may take effect at any later time, or never, so it has no return. Processes are
sequential: a process ends with its first `info`, and its worker continues as a new process.

Times are nanoseconds since the run began, on the clock of its world. `offset` and `epoch` come from the answer: the metadata
offset that it reflects, for a write one past its last record.
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
    """One operation that has ended. `value` is the request, `result` the answer; both are JSON values.

    `ended_ns` is the time at which its client continued, which for `info` says nothing about the operation. `node` answered it,
    -1 if none did. `request_id` names its request in the log ("client-id-in-hex:sequence"), "" if it has none. `offset` and
    `epoch` are -1 if unknown.
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
        """The end of the operation; None if its outcome is unknown."""
        return None if self.outcome == INFO else self.ended_ns


class History(Sequence[Op]):
    """Operations in the order of their invocation. `index` is the position of each."""

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
        """Return the operations of these functions."""
        return self.where(lambda op: op.f in functions)

    def by_key(self) -> dict[str, History]:
        """Return one history per key, in the order in which keys first appear."""
        keys: dict[str, list[Op]] = {}
        for op in self._ops:
            keys.setdefault(op.key, []).append(op)
        return {key: History(ops) for key, ops in keys.items()}

    def counts(self) -> dict[str, int]:
        """Return the number of operations by outcome; all three outcomes are present."""
        found = Counter(op.outcome for op in self._ops)
        return {outcome: found[outcome] for outcome in (OK, FAIL, INFO)}
