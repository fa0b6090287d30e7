"""Resolution of unknown outcomes from the committed log.

The log is read after the run was healed, the clients were stopped and every request in flight had time to arrive. A request that
is not in that log never took effect. A request in the log took effect at a time that only the order of the log bounds, so
its interval stays open.
"""

from __future__ import annotations

import msgspec

from ..committed_log import CommittedLog
from ..history import FAIL, INFO, OK, History, Op

NEVER_HAPPENED = "NEVER_HAPPENED"
"""The error of an operation of unknown outcome that the log shows to have had no effect."""


def resolved(history: History, log: CommittedLog) -> History:
    """Resolve operations with a request id: an operation that is not in the log becomes `fail`; one that is in the log stays
    `info` and gets its offset and epoch. A log without its beginning proves nothing about requests that it does not contain.
    """
    places: dict[str, tuple[int, int]] = {}
    for entry in log.entries:
        if entry.request_id:
            places.setdefault(entry.request_id, (entry.batch_end, entry.epoch))

    def outcome_of(op: Op) -> Op:
        if op.outcome != INFO or not op.request_id:
            return op
        place = places.get(op.request_id)
        if place is not None:
            return msgspec.structs.replace(op, offset=place[0], epoch=place[1])
        return op if log.start > 0 else msgspec.structs.replace(op, outcome=FAIL, error=NEVER_HAPPENED)

    return History(map(outcome_of, history)) if any(op.outcome == INFO for op in history) else history


def one_per_request(history: History) -> History:
    """Merge the sendings of a request into one operation. It begins with the first sending and ends like the most informative
    one: the first answer, otherwise an unknown outcome, otherwise a failure.
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
