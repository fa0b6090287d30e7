"""The leader and the voters of a cluster of processes, as its controllers report them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kraftlab.admin.v1 import admin_pb2
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.common.errors import ApiError

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
            leads = Leads(answer.header.leader_id, answer.header.epoch)
            if leads.node >= 0:
                found.append(leads)
            return above is not None and leads.node >= 0 and leads.epoch > above

        # This call needs no right: an authorizer does not refuse it.
        await self._ask_all(accept, admin_pb2.DescribeClusterResponse, admin_pb2.DescribeClusterRequest)
        return max(found, key=lambda leads: leads.epoch, default=None)

    async def voters(self) -> dict[int, frozenset[int]]:
        """Return the voters by the controllers that answer, each from its own log, committed or not."""
        found: dict[int, frozenset[int]] = {}

        def accept(node: int, answer: Any) -> bool:
            found[node] = frozenset(voter.replica_id for voter in answer.current_voters)
            return False

        await self._ask_all(accept, admin_pb2.DescribeQuorumResponse, admin_pb2.DescribeQuorumRequest)
        return found

    async def _ask_all(self, accept: Callable[[int, Any], bool], answer: type[Any], request: Callable[[], Any]) -> None:
        """Ask all controllers. `accept` takes each answer and returns True if that was enough."""

        async def ask(node: int) -> None:
            try:
                given = await trio.to_thread.run_sync(self._ask, node, answer, request(), abandon_on_cancel=True)
            except (ApiError, ClusterUnreachable):
                return
            if accept(node, given):
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for node in self._cluster.controller_ids:
                if self._cluster.pid(node) is not None:
                    nursery.start_soon(ask, node)

    def _ask(self, node: int, answer: type[Any], request: Any) -> Any:
        return self._admin.call_at(self._cluster.node(node).grpc, answer, request, timeout_ms=_TIMEOUT_MS)
