"""After a forced majority: nodes that were away notice it, voters stop, observers discard their copy."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from kraftlab.quorum.core.messages import RemoveVoterRequest
from kraftlab.quorum.driver.cluster_generation import discard_copy
from kraftlab.quorum.driver.errors import GenerationOver
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.identity import LogIdentity
from kraftlab.quorum.storage.standalone import force_standalone

Clusters = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Eventually = Callable[..., Awaitable[None]]

CLUSTER_ID = "driver-test-cluster"
ANY_EPOCH = -1


def force(node: Any) -> None:
    """Make the stopped node the only voter of the next generation."""
    identity = LogIdentity(CLUSTER_ID, node.voter.key.directory_id)
    force_standalone(RealFileSystem(), node.directory, identity, node.voter, 1_000)


def why(node: Any) -> GenerationOver:
    error = node.failure
    while isinstance(error, BaseExceptionGroup):
        [error] = error.exceptions
    assert isinstance(error, GenerationOver), error
    return error


async def survive(c: Any, survivor: Any) -> None:
    """Stop all nodes; force `survivor`, which then leads alone."""
    for node in c.running():
        await node.crash()
    await trio.to_thread.run_sync(force, survivor)
    await survivor.start()
    await c.leader()


async def test_the_forced_survivor_leads_alone_with_its_own_log(cluster: Clusters) -> None:
    async with cluster(dynamic=True) as c:
        await c.committed(c.propose(await c.leader(), "kept"))
        await survive(c, c.nodes[0])
        await c.committed(c.propose(c.nodes[0], "new"))
        assert c.nodes[0].journal.records == ["kept", "new"]
        assert c.nodes[0].driver.generation == 1
        assert [voter.node_id for voter in c.nodes[0].driver.describe().voters] == [0]


async def test_a_voter_of_the_old_generation_ends_with_the_next_step(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster(dynamic=True) as c:
        await c.committed(c.propose(await c.leader(), "kept"))
        await survive(c, c.nodes[0])
        for node in c.nodes[1:]:
            await node.start()
            await eventually(lambda node=node: node.failure, "the voter ends")  # type: ignore[misc]
            error = why(node)
            assert (error.generation, error.is_expendable) == (1, False)
            assert "format it again" in str(error)
            assert node.directory in str(error)


async def test_an_observer_of_the_old_generation_discards_its_copy_and_follows_the_new_one(
    cluster: Clusters, eventually: Eventually
) -> None:
    async with cluster(observers=1, dynamic=True) as c:
        observer = c.nodes[3]
        await observer.start()
        await c.committed(c.propose(await c.leader(), "kept"))
        await c.nodes[0].crash()
        await c.committed(c.propose(await c.leader(), "lost"))
        assert observer.journal.records == ["kept", "lost"]
        await survive(c, c.nodes[0])
        end_offset = c.propose(c.nodes[0], "instead")
        await observer.start()
        await eventually(lambda: observer.failure, "the observer ends")
        error = why(observer)
        assert (error.generation, error.is_expendable) == (1, True)
        identity = LogIdentity(CLUSTER_ID, observer.voter.key.directory_id, error.generation)
        await trio.to_thread.run_sync(discard_copy, RealFileSystem(), observer.directory, identity)
        await observer.start()
        await c.committed(end_offset, observer)
        assert observer.journal.records == ["kept", "instead"]
        assert observer.driver.generation == 1
        await observer.crash()
        await observer.start()
        await c.committed(end_offset, observer)
        assert observer.journal.records == ["kept", "instead"]


async def test_a_newcomer_with_an_empty_disk_learns_the_generation_and_can_become_a_voter(
    cluster: Clusters, eventually: Eventually
) -> None:
    async with cluster(observers=1, dynamic=True) as c:
        await c.committed(c.propose(await c.leader(), "kept"))
        await survive(c, c.nodes[0])
        newcomer = c.nodes[3]
        newcomer.options["raft"] = {"auto_join": True}
        await newcomer.start()
        await eventually(lambda: newcomer.failure, "it hears of the generation")
        assert why(newcomer).is_expendable
        identity = LogIdentity(CLUSTER_ID, newcomer.voter.key.directory_id, 1)
        await trio.to_thread.run_sync(discard_copy, RealFileSystem(), newcomer.directory, identity)
        await newcomer.start()
        await eventually(lambda: len(c.nodes[0].driver.describe().voters) == 2, "two voters again")
        await c.committed(c.propose(c.nodes[0], "by both"))


async def test_a_voter_whose_removal_may_not_be_committed_keeps_its_data(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster(dynamic=True) as c:
        leader = await c.leader()
        await c.committed(c.propose(leader, "perhaps nowhere else"))
        for node in c.nodes:
            if node is not leader:
                await node.crash()
        c.nursery.start_soon(leader.driver.ask, RemoveVoterRequest(ANY_EPOCH, leader.voter.key, 10_000))
        await eventually(lambda: len(leader.driver.describe().voters) == 2, "it has removed itself")
        leader.driver.met_newer_generation(1, "node 0")
        await eventually(lambda: leader.failure, "it ends")
        assert not why(leader).is_expendable
