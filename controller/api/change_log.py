"""Lines of the audit log about committed changes."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import Message

from kraftlab.common import audit
from kraftlab.rpc.server import Call

NAMES_MAX = 5
_NAMES = ("name", "topic", "resource_name", "feature", "principal", "broker_id", "voter_id", "plan_id", "directory")
"""Fields that name what a request, or an entry of it, is about. None of them is secret."""


def note(call: Call, offset: int) -> None:
    """Note a change that is committed below the offset, unless it was only tried."""
    if not getattr(call.request, "validate_only", False):
        audit.changed(call.principal, call.host or "this node", call.api, named(call.request), offset)


def named(request: Message) -> str:
    """Return the names in a request, NAMES_MAX of them."""
    found = dict.fromkeys(_names(request))
    more = f" and {len(found) - NAMES_MAX} more" if len(found) > NAMES_MAX else ""
    return ", ".join(list(found)[:NAMES_MAX]) + more


def _names(message: Message) -> Iterator[str]:
    for field, value in message.ListFields():
        if field.name in _NAMES and not field.is_repeated:
            yield str(value)
        elif field.is_repeated and field.message_type is not None:
            for entry in value:
                yield from _own_names(entry)


def _own_names(entry: Message) -> Iterator[str]:
    for field, value in entry.ListFields():
        if field.name in _NAMES and not field.is_repeated:
            yield str(value)
            return
