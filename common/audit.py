"""The audit log, `kraftlab.audit`: who was refused, which logins failed, and who changed what from where.

Refusals and failed logins are lines that strangers can cause, so their number is limited; changes are all there. What a client
only claims, such as the user of a failed login, is not written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter

from .line_limit import LimitedLog

logger = logging.getLogger("kraftlab.audit")

NAME_CHARACTERS_MAX = 200
PEERS = "of peers"
"""Name of the listener for other nodes, which has another one by role."""

_failed_logins: Counter[str] = Counter()
_counting = threading.Lock()


class AuditLog:
    """Lines that callers of one listener, or of one authorizer, can cause."""

    def __init__(self) -> None:
        self._lines = LimitedLog(logger, time.monotonic)

    def refused(self, principal: str, host: str, operation: str, resource: str) -> None:
        """Note that a caller had no right to an operation on a resource."""
        self._lines.warning("refused: %s from %s has no right to %s on %s", shown(principal), host, operation, shown(resource))

    def login_failed(self, listener: str, source: str, reason: str) -> None:
        """Note that somebody at that address has not proven an identity."""
        with _counting:
            _failed_logins[listener] += 1
        self._lines.warning("login failed: listener %s, %s: %s", listener, source, reason)


def failed_logins(listener: str) -> int:
    """Return the number of failed logins at that listener of this process."""
    return _failed_logins[listener]


def changed(principal: str, host: str, call: str, names: str, offset: int) -> None:
    """Note a committed change. `names`: what it is about; `offset`: its end in the metadata log."""
    logger.info("changed: %s from %s, %s %s, committed below offset %d", shown(principal), host, call, shown(names), offset)


def shown(text: str) -> str:
    """Return a text for one line of the log: printable and short."""
    short = text if len(text) <= NAME_CHARACTERS_MAX else text[:NAME_CHARACTERS_MAX] + "…"
    return short if short.isprintable() else repr(short)
