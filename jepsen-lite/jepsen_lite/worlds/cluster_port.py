"""A client's port to a cluster under trio: requests and answers, independent of their transport.

Nothing is sent twice: a retry would hide the effect of the first sending. Every request names its cluster. A request without a
node goes to the leader according to the last answer, and occasionally to another controller, so that a deposed controller that
does not know it is asked too. A change of the voters is sent only if the guard of the quorum allows it: while a log is damaged
the change may be one too many.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

import trio

from kraftlab.common.errors import ErrorCode

from ..faults.errors import CannotStrike
from ..faults.quorum_guard import QuorumGuard
from ..history import FAIL
from ..outcomes import error_name, of_error_code
from ..workload import CallFailed, Options, Reply

GRACE_S = 0.5
"""The wait for an answer exceeds the node's own deadline by this time: the answer says whether anything was done."""
ASIDE = 0.15
"""Share of the requests without a node that go to a controller other than the leader."""
_LEAVES = {"AddRaftVoter": False, "RemoveRaftVoter": True}
"""Changes of the voters: True if a voter leaves."""


class Nodes(Protocol):
    """The nodes that a port reaches."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def controller_ids(self) -> tuple[int, ...]: ...

    @property
    def broker_ids(self) -> tuple[int, ...]: ...


class ClusterPort(ABC):
    """The `workload.Port` of one process. `now_ns` is the run's clock, `guard` the guard of the quorum."""

    def __init__(self, nodes: Nodes, options: Options, process: int, now_ns: Callable[[], int], guard: QuorumGuard) -> None:
        self.controllers: Sequence[int] = nodes.controller_ids
        self.brokers: Sequence[int] = nodes.broker_ids
        self.now_ns = now_ns
        self._cluster_id, self._guard, self._timeout_ms = nodes.cluster_id, guard, options.timeout_ms
        self._random: Random = options.random(f"port/{process}")
        self._leader = -1

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def call(self, api: str, request: Any, *, node: int | None = None, timeout_ms: int | None = None) -> Reply:
        """Send a request once, unless it changes the voters and could leave them without a whole majority. CallFailed."""
        if api not in _LEAVES:
            return await self._send(api, request, node, timeout_ms)
        try:
            async with self._guard.changing(request.voter_id, leaves=_LEAVES[api]):
                return await self._send(api, request, node, timeout_ms)
        except CannotStrike as refused:
            raise CallFailed(FAIL, f"not sent: {refused}") from None

    async def _send(self, api: str, request: Any, node: int | None, timeout_ms: int | None) -> Reply:
        target = self._likely() if node is None else node
        header = request.header
        if not header.HasField("timeout_ms"):
            header.timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        header.cluster_id = self._cluster_id
        response = await self._carry(target, api, request, header.timeout_ms / 1000 + GRACE_S)
        self._leader = response.header.leader_id
        return reply_of(response, target)

    @abstractmethod
    async def _carry(self, node: int, api: str, request: Any, timeout_s: float) -> Any:
        """Return the response of a node. CallFailed if there is none."""

    @abstractmethod
    def _likely(self) -> int:
        """Return a controller that is likely to lead."""


def reply_of(response: Any, node: int) -> Reply:
    """Return a node's response as a reply. CallFailed if its header has an error of the whole request."""
    header = response.header
    code = header.error_code
    if code == ErrorCode.NONE:
        return Reply(response, node, header.metadata_offset, header.epoch)
    outcome = of_error_code(code, outcome_unknown=header.outcome_unknown)
    raise CallFailed(outcome, error_name(code), node=node, offset=header.metadata_offset, epoch=header.epoch)
