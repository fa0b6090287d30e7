"""Voters in the log, on real drivers: discovery, joining, and refusals."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from kraftlab.common.errors import ErrorCode
from kraftlab.quorum.core.messages import AddVoterRequest, RemoveVoterRequest, TransferLeadershipRequest
from kraftlab.quorum.core.types import VoterSet

Clusters = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Eventually = Callable[..., Awaitable[None]]
ANY_EPOCH = -1


async def test_nodes_find_the_quorum_by_bootstrap_endpoints_and_the_voters_by_the_log(
    cluster: Clusters, eventually: Eventually
) -> None:
    async with cluster(observers=1, dynamic=True) as c:
        leader = await c.leader()
        await c.nodes[3].start()
        await c.committed(c.propose(leader, "a"))
        for node in c.nodes:
            await eventually(lambda node=node: len(node.driver.describe().voters) == 3, "every node knows the voters")  # type: ignore[misc]
            assert node.driver.describe().kraft_version == 1


async def test_an_observer_becomes_a_voter_and_the_cluster_lives_on_without_two_old_ones(
    cluster: Clusters, eventually: Eventually
) -> None:
    async with cluster(observers=2, dynamic=True) as c:
        leader = await c.leader()
        for node in c.nodes[3:]:
            await node.start()
            answer = await leader.driver.ask(AddVoterRequest(ANY_EPOCH, node.voter, 10_000))
            assert (answer.error, answer.message) == (ErrorCode.NONE, "")
        for node in [node for node in c.nodes if node is not leader][:2]:
            await node.crash()
        await c.committed(c.propose(leader, "by the others"))
        assert sorted(voter.node_id for voter in leader.driver.describe().voters) == [0, 1, 2, 3, 4]


async def test_the_leadership_is_handed_over_and_a_removed_leader_makes_way(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster(dynamic=True) as c:
        leader = await c.leader()
        target = next(node for node in c.nodes if node is not leader)
        await c.committed(c.propose(leader, "old"))
        while leader is not target:  # a leader resigns in the target's favour; on a slow machine another voter may be faster
            answer = await leader.driver.ask(TransferLeadershipRequest(ANY_EPOCH, target.voter.key, 5_000))
            assert answer.error is ErrorCode.NONE
            await eventually(lambda resigned=leader: resigned.journal.leads is None, "the leader has resigned")  # type: ignore[misc]
            leader = await c.leader()
        await c.followed(target)
        answer = await target.driver.ask(RemoveVoterRequest(ANY_EPOCH, target.voter.key, 10_000))
        assert answer.error is ErrorCode.NONE
        successor = await c.leader(but=target)
        await c.committed(c.propose(successor, "new"))
        assert [voter.node_id for voter in successor.driver.describe().voters] == [n.node_id for n in c.nodes if n is not target]


async def test_a_follower_names_the_leader_and_static_voters_refuse_changes(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster(observers=1) as c:
        leader = await c.leader()
        follower = next(node for node in c.nodes if node is not leader)
        await eventually(lambda: follower.driver.leader.leader_id == leader.node_id, "the follower knows the leader")
        answer = await follower.driver.ask(AddVoterRequest(ANY_EPOCH, c.nodes[3].voter, 1_000))
        assert (answer.error, answer.leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader.node_id)
        await c.committed(c.propose(leader, "a"))
        answer = await leader.driver.ask(AddVoterRequest(ANY_EPOCH, c.nodes[3].voter, 1_000))
        assert answer.error is ErrorCode.UNSUPPORTED_VERSION
        await leader.stop()
        assert (await leader.driver.ask(AddVoterRequest(ANY_EPOCH, c.nodes[3].voter, 1))).error is ErrorCode.BROKER_NOT_AVAILABLE


async def test_a_voter_change_is_refused_when_the_node_stops(cluster: Clusters) -> None:
    async with cluster(observers=1, dynamic=True) as c:
        leader = await c.leader()
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await leader.driver.ask(AddVoterRequest(ANY_EPOCH, c.nodes[3].voter, 60_000)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(0.1)
            assert not answers, "the node to be added does not run"
            await leader.stop()
        assert answers[0].error is not ErrorCode.NONE


async def test_a_voter_that_moved_updates_its_endpoints_in_the_voter_set(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster(observers=1, dynamic=True) as c:
        leader = await c.leader()
        mover = next(node for node in c.nodes[:3] if node is not leader)
        await mover.crash()
        mover.port = c.nodes[3].port
        await mover.start()
        where = mover.voter.endpoints

        def everybody_knows() -> bool:
            return all(
                voter.endpoints == where
                for node in c.nodes[:3]
                for voter in node.driver.describe().voters
                if voter.node_id == mover.node_id
            )

        await eventually(everybody_knows, "the new endpoint is in everybody's voter set")
        await leader.crash()
        await c.committed(c.propose(await c.leader(), "the one that moved counts"))


async def test_transitions_are_written_to_the_trace_file(cluster: Clusters, tmp_path: Any) -> None:
    async with cluster() as c:
        node = c.nodes[0]
        await node.crash()
        path = tmp_path / "trace.ndjson"
        node.options["trace_file"] = str(path)
        await node.start()
        await c.committed(c.propose(await c.leader(), "a"))
        await node.stop()
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines[0]["event"] == "boot"
        assert {"state", "append", "durable", "commit"} <= {line["event"] for line in lines}
        assert {line["node"] for line in lines} == {0}


async def test_a_trace_file_that_cannot_be_written_costs_one_line_in_the_log(
    cluster: Clusters, eventually: Eventually, caplog: Any
) -> None:
    async with cluster(trace_file="/proc/no/such/place") as c:
        await c.committed(c.propose(await c.leader(), "a"))
        await eventually(lambda: "the trace ends" in caplog.text, "the line")
        assert not any(node.failure for node in c.nodes)


def move(cluster: Any, node: Any, port: int) -> None:
    """Let a stopped node listen at another port; all configurations name it from their next start on."""
    node.port = port
    cluster.voters = VoterSet.of(node.voter for node in cluster.nodes[:3])


async def test_a_voter_that_was_removed_while_it_was_away_finds_the_others_although_all_have_moved(
    cluster: Clusters, eventually: Eventually, new_port: Callable[[], int]
) -> None:
    """No leader looks for it any more, and its log names places at which nobody listens; but its configuration is up to date."""
    async with cluster(dynamic=True) as c:
        leader = await c.leader()
        await c.followed(leader)
        away, *others = [node for node in c.nodes if node is not leader] + [leader]
        await c.committed(c.propose(leader, "old"))
        await away.crash()
        assert (await leader.driver.ask(RemoveVoterRequest(ANY_EPOCH, away.voter.key, 10_000))).error is ErrorCode.NONE
        for node in others:
            await node.crash()
            move(c, node, new_port())
            await node.start()

            def is_known(node: Any = node) -> bool:
                rows = [row for other in others for row in other.driver.describe().voters if row.node_id == node.node_id]
                return [row.endpoints for row in rows] == [node.voter.endpoints] * 2

            await eventually(is_known, "the voter set names the new place")
        await away.start()
        await c.committed(c.propose(await c.leader(), "new"))
        assert away.journal.records == ["old", "new"]
