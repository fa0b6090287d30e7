"""Options of the moves that a request starts."""

from __future__ import annotations

import msgspec


class MoveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of moves; the defaults are Kafka's behaviour. Times are in milliseconds, `throttle` is in bytes per second into
    each broker.

    `validate_only`: answer without changes. `initiator`: by default the principal of the request. `plan_id`: remember the current
    replicas under this name, for `rollback_plan`. `queued`: wait for a free slot; higher `priority` starts first.
    `throttle` belongs to these moves and ends with them, or `throttle_expires_ms` after their start. `force`: cancel even if a
    partition loses its leader; roll back even partitions that moved again since.
    """

    validate_only: bool = False
    reason: str = ""
    initiator: str | None = None
    plan_id: str | None = None
    queued: bool = False
    priority: int = 0
    throttle: int | None = None
    throttle_expires_ms: int | None = None
    force: bool = False

    def fill(self, request: object) -> None:
        """Copy the options that differ from their defaults into a request with these fields."""
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                setattr(request, field.name, value)


NO_OPTIONS = MoveOptions()
