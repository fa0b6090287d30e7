"""What became of operations of unknown outcome, read off the committed log once all is over.

The run was healed, its clients were stopped, and what was under way had time to arrive: what is not in the log by then never
happened. One that is there took effect, at a time that only the log's order bounds: its interval stays open at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ..committed_log import CommittedLog
from ..history import FAIL, INFO, History, Op

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
