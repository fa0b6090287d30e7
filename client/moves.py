"""What a caller may say about the moves that a request starts."""

from __future__ import annotations

import msgspec


class MoveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Left out: as Kafka does. Times in milliseconds, `throttle` in bytes per second that each broker takes in.

    `validate_only`: answer as if, and do nothing. `initiator`: the principal that asks if left out. `plan_id`: remember what
    was before under that name, for `rollback_reassignment`. `queued`: wait for a free slot; higher `priority` starts first.
    `throttle` belongs to these moves and ends with them, or `throttle_expires_ms` after their start. `force`: cancel although
    that takes the leader away; roll back although partitions moved on since.
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
        """Writes what is given into a request that has these fields."""
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                setattr(request, field.name, value)


NO_OPTIONS = MoveOptions()
