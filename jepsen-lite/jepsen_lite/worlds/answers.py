"""What every port of a cluster under trio makes of an answer, and of a call that the quorum's guard has to let pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kraftlab.metadata.errors import ErrorCode

from ..history import FAIL
from ..nemeses.faults import CannotStrike
from ..nemeses.quorum_guard import QuorumGuard
from ..outcomes import of_error_code
from ..workload import CallFailed, Reply

LEAVES = {"AddRaftVoter": False, "RemoveRaftVoter": True}
"""Changes of the voters: whether one leaves."""


async def guarded(guard: QuorumGuard, api: str, request: Any, send: Callable[[], Awaitable[Reply]]) -> Reply:
    """Sends a request, unless it changes the voters while that could leave no whole majority of them. CallFailed."""
    if api not in LEAVES:
        return await send()
    try:
        async with guard.changing(request.voter_id, leaves=LEAVES[api]):
            return await send()
    except CannotStrike as refused:
        raise CallFailed(FAIL, f"not sent: {refused}") from None


def reply_of(response: Any, node: int) -> Reply:
    """A node's answer. CallFailed if its header says that the whole request failed."""
    header = response.header
    code = header.error_code
    if code == ErrorCode.NONE:
        return Reply(response, node, header.metadata_offset, header.epoch)
    name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"UNKNOWN_{code}"
    outcome = of_error_code(code, outcome_unknown=header.outcome_unknown)
    raise CallFailed(outcome, name, node=node, offset=header.metadata_offset, epoch=header.epoch)
