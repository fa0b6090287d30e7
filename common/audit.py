"""The audit log, `kraftlab.audit`: who was refused, which logins failed, and who changed what from where.

Refusals and failed logins are lines that strangers can cause, so their number is limited; changes are all there. What a client
only claims, such as the user of a failed login, is not written. A line of JSON has the parts of its sentence as fields too.
"""

from __future__ import annotations

import logging
import time

from .line_limit import LimitedLog

logger = logging.getLogger("kraftlab.audit")

NAME_CHARACTERS_MAX = 200


class AuditLog:
    """Lines that callers of one listener, or of one authorizer, can cause."""

    def __init__(self) -> None:
        self._lines = LimitedLog(logger, time.monotonic)

    def refused(self, principal: str, host: str, operation: str, resource: str) -> None:
        """Note that a caller had no right to an operation on a resource."""
        principal, resource = shown(principal), shown(resource)
        fields = {"event": "refused", "principal": principal, "host": host, "operation": operation, "resource": resource}
        self._lines.warning("refused: %s from %s has no right to %s on %s", principal, host, operation, resource, fields=fields)

    def login_failed(self, listener: str, source: str, reason: str) -> None:
        """Note that somebody at that address has not proven an identity."""
        fields = {"event": "login-failed", "listener": listener, "source": source, "reason": reason}
        self._lines.warning("login failed: listener %s, %s: %s", listener, source, reason, fields=fields)


def changed(principal: str, host: str, call: str, names: str, offset: int) -> None:
    """Note a committed change. `names`: what it is about; `offset`: its end in the metadata log."""
    principal, names = shown(principal), shown(names)
    fields = {"event": "changed", "principal": principal, "host": host, "call": call, "names": names, "end_offset": offset}
    logger.info(
        "changed: %s from %s, %s %s, committed below offset %d", principal, host, call, names, offset, extra={"fields": fields}
    )


def shown(text: str) -> str:
    """Return a text for one line of the log: printable and short."""
    short = text if len(text) <= NAME_CHARACTERS_MAX else text[:NAME_CHARACTERS_MAX] + "…"
    return short if short.isprintable() else repr(short)
