"""The audit log, `kraftlab.audit`: who was refused, which logins failed, and who changed what from where.

Refusals and failed logins are lines that strangers can cause, so their number is limited; changes are all there. Equal failures
of one address become one line and a number, which the next failure at the listener brings. What a client only claims, such as
the user of a failed login, is not written. A line of JSON has the parts of its sentence as fields too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from .line_limit import LimitedLog

logger = logging.getLogger("kraftlab.audit")

NAME_CHARACTERS_MAX = 200
FOLD_S = 10.0
"""Time in which equal failures of one address are counted, after the first one."""
FOLDED_MAX = 1000
"""Number of failures that are remembered."""
PEERS = "of peers"
"""Name of the listener for other nodes, which has another one by role."""

_failed_logins: Counter[str] = Counter()
_counting = threading.Lock()


class AuditLog:
    """Lines that callers of one listener, or of one authorizer, can cause. `now` returns seconds of a monotonic clock."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lines = LimitedLog(logger, now)
        self._folded: dict[tuple[str, str, str], list[float]] = {}
        """Time until which a failure is counted, and its number since the line, by the line. The oldest line is first."""

    def refused(self, principal: str, host: str, operation: str, resource: str) -> None:
        """Note that a caller had no right to an operation on a resource."""
        principal, resource = shown(principal), shown(resource)
        fields = {"event": "refused", "principal": principal, "host": host, "operation": operation, "resource": resource}
        self._lines.warning("refused: %s from %s has no right to %s on %s", principal, host, operation, resource, fields=fields)

    def login_failed(self, listener: str, source: str, reason: str) -> None:
        """Note that somebody at that address has not proven an identity. A port scan gets one line per FOLD_S."""
        with _counting:
            _failed_logins[listener] += 1
        now, failure = self._now(), (listener, source, reason)
        while self._folded and next(iter(self._folded.values()))[0] <= now:
            self._unfold_oldest()
        if failure in self._folded:
            self._folded[failure][1] += 1
            return
        if len(self._folded) >= FOLDED_MAX:
            self._unfold_oldest()
        self._folded[failure] = [now + FOLD_S, 0]
        self._log_failure(failure)

    def __len__(self) -> int:
        """Return the number of failures that are remembered."""
        return len(self._folded)

    def _unfold_oldest(self) -> None:
        failure = next(iter(self._folded))
        _, count = self._folded.pop(failure)
        if count:
            self._log_failure(failure, int(count))

    def _log_failure(self, failure: tuple[str, str, str], count: int = 0) -> None:
        """Log a failed login, or that `count` equal ones came after it."""
        listener, source, reason = failure
        fields = {"event": "login-failed", "listener": listener, "source": source, "reason": reason}
        if count:
            fields["more"] = str(count)
        more = f"; {count} more of these" if count else ""
        self._lines.warning("login failed: listener %s, %s: %s%s", *failure, more, fields=fields)


def failed_logins(listener: str) -> int:
    """Return the number of failed logins at that listener of this process."""
    return _failed_logins[listener]


def changed(principal: str, host: str, call: str, names: str, offset: int) -> None:
    """Note a committed change. `names`: what it is about; `offset`: its end in the metadata log."""
    principal, names = shown(principal), shown(names)
    fields = {"event": "changed", "principal": principal, "host": host, "call": call, "names": names, "end_offset": offset}
    logger.info(
        "changed: %s from %s, %s %s, committed below offset %d", principal, host, call, names, offset, extra={"fields": fields}
    )


def shown(text: str) -> str:
    """Return a text that somebody claims for one line of a log or message: printable and short."""
    short = text if len(text) <= NAME_CHARACTERS_MAX else text[:NAME_CHARACTERS_MAX] + "…"
    return short if short.isprintable() else repr(short)
