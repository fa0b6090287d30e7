"""Linearizable reads through real drivers: a shared round trip to a majority; refused by a node that does not lead."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from kraftlab.quorum.core.events import ReadIndexAsked
from kraftlab.quorum.driver import raft_driver
from kraftlab.quorum.driver.errors import NotLeader

Clusters = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Eventually = Callable[..., Awaitable[None]]


async def test_a_read_reflects_committed_records(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        end_offset = c.propose(leader, "a")
        await c.committed(end_offset)
        assert await leader.driver.read_index() == end_offset


async def test_reads_that_are_asked_together_share_one_question(cluster: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens: list[int] = []

    def asked(token: int) -> ReadIndexAsked:
        tokens.append(token)
        return ReadIndexAsked(token)

    monkeypatch.setattr(raft_driver, "ReadIndexAsked", asked)
    async with cluster() as c:
        leader = await c.leader()
        offsets: list[int] = []

        async def read() -> None:
            offsets.append(await leader.driver.read_index())

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(read)
        assert len(offsets) == 50
        assert len(set(offsets)) == 1
        assert len(tokens) == 1


async def test_a_follower_names_the_leader(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster() as c:
        leader = await c.leader()
        follower = next(node for node in c.nodes if node is not leader)
        await eventually(lambda: follower.driver.leader.leader_id == leader.node_id, "the follower knows the leader")
        with pytest.raises(NotLeader, match=f"node {leader.node_id} leads"):
            await follower.driver.read_index()


async def test_a_leader_without_a_majority_never_answers(cluster: Clusters) -> None:
    async with cluster(raft={"fetch_timeout_ms": 200}) as c:
        leader = await c.leader()
        for node in c.nodes:
            if node is not leader:
                await node.crash()
        with pytest.raises(NotLeader):
            await leader.driver.read_index()
        assert leader.driver.leader.leader_id == -1, "it has resigned"


async def test_a_node_that_stops_leaves_no_read_waiting(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        for node in c.nodes:
            if node is not leader:
                await node.crash()
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                with pytest.raises(NotLeader):
                    await leader.driver.read_index()

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked(0.005)
            await leader.stop()
        with pytest.raises(NotLeader):
            await leader.driver.read_index()


async def test_a_reader_that_gives_up_disturbs_nobody(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        with trio.CancelScope() as scope:
            scope.cancel()
            await leader.driver.read_index()
        assert await leader.driver.read_index() >= 1
