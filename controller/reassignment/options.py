"""Options of a request that apply to all of its moves, checked."""

from __future__ import annotations

from typing import NamedTuple

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.moves import QueuedMoveImage

ANONYMOUS = "User:ANONYMOUS"
TEXT_LENGTH_MAX = 1000
NAME_LENGTH_MAX = 249
THROTTLE_FOR_MAX_MS = 10 * 365 * 24 * 3600 * 1000
PRIORITY_MAX = 1_000_000


MoveRequest = (
    admin_pb2.AlterPartitionReassignmentsRequest | admin_pb2.RollbackPlanRequest | admin_pb2.AlterReplicationFactorsRequest
)
"""Requests that start moves."""


class ReassignmentOptions(NamedTuple):
    """`throttle` None: not given; 0: remove the throttle."""

    initiator: str = ANONYMOUS
    reason: str = ""
    plan_id: str | None = None
    throttle: int | None = None
    throttle_for_ms: int | None = None
    queued: bool = False
    priority: int = 0
    force: bool = False
    validate_only: bool = False
    allows_size_change: bool = True

    @classmethod
    def of_request(cls, request: MoveRequest) -> ReassignmentOptions:
        """ApiError INVALID_REQUEST for an invalid value."""
        throttle = request.throttle if request.HasField("throttle") else None
        throttle_for_ms = request.throttle_expires_ms if request.HasField("throttle_expires_ms") else None
        plan_id = request.plan_id if request.HasField("plan_id") else None
        initiator = request.initiator if request.HasField("initiator") else ANONYMOUS
        if throttle is not None and throttle < 0:
            raise _refusal(f"throttle {throttle} is negative; give bytes per second, or 0 for none")
        if throttle_for_ms is not None and (throttle_for_ms <= 0 or not throttle):
            raise _refusal(f"throttle_expires_ms {throttle_for_ms} needs a throttle to expire, and must be positive")
        if throttle_for_ms is not None and throttle_for_ms > THROTTLE_FOR_MAX_MS:
            raise _refusal(f"throttle_expires_ms {throttle_for_ms} is more than ten years; leave it out for no end")
        if plan_id is not None and not 0 < len(plan_id) <= NAME_LENGTH_MAX:
            raise _refusal(f"a plan_id has 1 to {NAME_LENGTH_MAX} characters, this one {len(plan_id)}")
        if len(initiator) > NAME_LENGTH_MAX or len(request.reason) > TEXT_LENGTH_MAX:
            raise _refusal(f"initiator may have {NAME_LENGTH_MAX} characters and reason {TEXT_LENGTH_MAX}; shorten them")
        if abs(request.priority) > PRIORITY_MAX:
            raise _refusal(f"priority {request.priority} is not within -{PRIORITY_MAX} to {PRIORITY_MAX}")
        return cls(
            initiator,
            request.reason,
            plan_id,
            throttle,
            throttle_for_ms,
            request.queued,
            request.priority,
            force=not isinstance(request, admin_pb2.AlterReplicationFactorsRequest) and request.force,
            validate_only=request.validate_only,
        )

    def leaves(self, waiting: QueuedMoveImage) -> bool:
        """Return True if a queued move already has these options. Queueing it again would only cost it its place."""
        throttle = (self.throttle or None, self.throttle_for_ms)
        has_throttle = self.throttle is None or throttle == (waiting.throttle, waiting.throttle_for_ms)
        return self.queued and has_throttle and (self.plan_id, self.priority) == (waiting.plan_id, waiting.priority)


def _refusal(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"Nothing was changed: {text}.")
