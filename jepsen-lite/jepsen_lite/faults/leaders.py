"""The leader and the voters of a cluster of processes, as its controllers report them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.metadata.errors import ApiError

from .cluster_under_faults import Leads

_TIMEOUT_MS = 400


class LeaderFinder:
    """Asks all running controllers concurrently and believes the highest epoch. The cluster is a LocalCluster; close the finder
    when done.
    """

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._admin: AdminClient = cluster.admin(timeout_ms=_TIMEOUT_MS)

    def close(self) -> None:
        self._admin.close()

    async def __call__(self, above: int | None = None) -> Leads | None:
        """Return the leader, None if no controller knows one. `above`: return as soon as a controller knows a leader in an epoch
        above.
        """
        found: list[Leads] = []

        def accept(_: int, answer: Any) -> bool:
            if answer.leader_id >= 0:
                found.append(Leads(answer.leader_id, answer.leader_epoch))
            return above is not None and answer.leader_id >= 0 and answer.leader_epoch > above

        await self._describe_all(accept)
        return max(found, key=lambda leads: leads.epoch, default=None)

    async def voters(self) -> dict[int, frozenset[int]]:
        """Return the voters by the controllers that answer, each from its own log, committed or not."""
        found: dict[int, frozenset[int]] = {}

        def accept(node: int, answer: Any) -> bool:
            found[node] = frozenset(voter.replica_id for voter in answer.current_voters)
            return False

        await self._describe_all(accept)
        return found

    async def _describe_all(self, accept: Callable[[int, Any], bool]) -> None:
        """Ask all controllers. `accept` takes each answer and returns True if that was enough."""

        async def describe(node: int) -> None:
            try:
                answer = await trio.to_thread.run_sync(self._describe, node, abandon_on_cancel=True)
            except (ApiError, ClusterUnreachable):
                return
            if accept(node, answer):
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for node in self._cluster.controller_ids:
                if self._cluster.pid(node) is not None:
                    nursery.start_soon(describe, node)

    def _describe(self, node: int) -> Any:
        from kraftlab.admin.v1 import admin_pb2

        request = admin_pb2.DescribeQuorumRequest()
        endpoint = self._cluster.node(node).grpc
        return self._admin.call_at(endpoint, admin_pb2.DescribeQuorumResponse, request, timeout_ms=_TIMEOUT_MS)
