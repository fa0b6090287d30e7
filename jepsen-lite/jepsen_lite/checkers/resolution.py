"""What became of operations of unknown outcome, read off the committed log once all is over.

The run was healed, its clients were stopped, and what was under way had time to arrive: what is not in the log by then never
happened. One that is there took effect, at a time that only the log's order bounds: its interval stays open at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ..committed_log import CommittedLog
from ..history import FAIL, INFO, OK, History, Op

NEVER_HAPPENED = "NEVER_HAPPENED"
"""The error of an operation that is known to have done nothing only since the log was read."""


class Resolution(NamedTuple):
    """`history` is the one that was resolved: what never happened is `fail`, what did stays `info` but has its offset and epoch.
    `happened` and `never` are indices of operations that were `info`.
    """

    history: History
    happened: frozenset[int]
    never: frozenset[int]


def resolved(history: History, log: CommittedLog) -> Resolution:
    """Of operations with a request's name; what changes anything leaves that name in the log. A log whose beginning is gone says
    nothing about what is not there.
    """
    places: dict[str, tuple[int, int]] = {}
    for entry in log.entries:
        if entry.request_id:
            places.setdefault(entry.request_id, (entry.batch_end, entry.epoch))
    happened: set[int] = set()
    never: set[int] = set()

    def outcome_of(op: Op) -> Op:
        if op.outcome != INFO or not op.request_id:
            return op
        place = places.get(op.request_id)
        if place is not None:
            happened.add(op.index)
            return msgspec.structs.replace(op, offset=place[0], epoch=place[1])
        if log.start > 0:
            return op
        never.add(op.index)
        return msgspec.structs.replace(op, outcome=FAIL, error=NEVER_HAPPENED)

    after = History(map(outcome_of, history)) if any(op.outcome == INFO for op in history) else history
    return Resolution(after, frozenset(happened), frozenset(never))


def one_per_request(history: History) -> History:
    """A request that was sent several times is one operation: it begins when it was first sent, and ends as the sending that says
    most of it (the first answer, else one that nobody knows of, else a failure).
    """
    sendings: dict[str, list[Op]] = {}
    for op in history:
        if op.request_id:
            sendings.setdefault(op.request_id, []).append(op)
    kept: dict[int, Op] = {}
    for ops in sendings.values():
        if len(ops) > 1:
            telling = min(ops, key=lambda op: ((OK, INFO, FAIL).index(op.outcome), op.ended_ns, op.index))
            kept[telling.index] = msgspec.structs.replace(telling, invoked_ns=min(op.invoked_ns for op in ops))
    if not kept:
        return history
    return History(kept.get(op.index, op) for op in history if op.index in kept or len(sendings.get(op.request_id, ())) < 2)
