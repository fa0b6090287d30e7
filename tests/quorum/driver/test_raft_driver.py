"""Clusters of real drivers on loopback, with real files: the guarantees of a quorum, seen from above."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import trio

from kraftlab.common.endpoint import Endpoint
from kraftlab.quorum.core.errors import LogTruncationRefused
from kraftlab.quorum.core.events import Event, RequestReceived
from kraftlab.quorum.core.messages import RaftApi, VoteRequest
from kraftlab.quorum.driver import storage_tasks
from kraftlab.quorum.driver.errors import NotLeader
from kraftlab.quorum.driver.quorum_description import DESCRIBE_QUORUM, QuorumDescription
from kraftlab.quorum.storage.committed_mark import read_committed
from kraftlab.quorum.storage.errors import FsyncFailed, LogCorrupt
from kraftlab.quorum.storage.file_system import RealFileReader
from kraftlab.wire.transport import PeerPool

PATIENT: dict[str, Any] = {"fetch_timeout_ms": 20_000}
"""Options of nodes whose disks hang while a test looks: no other leader is needed meanwhile."""

Clusters = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Eventually = Callable[..., Awaitable[None]]


async def test_three_nodes_elect_one_leader_and_commit(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        end_offset = c.propose(leader, "a", "b")
        await c.committed(end_offset)
        assert [node.journal.records for node in c.nodes] == [["a", "b"]] * 3
        assert {node.driver.leader.leader_id for node in c.nodes} == {leader.node_id}
        assert leader.driver.high_watermark == end_offset


async def test_proposals_keep_their_order_and_share_flushes(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        flushes_before = leader.driver.statistics().flushes
        for number in range(500):
            end_offset = c.propose(leader, str(number))
        await c.committed(end_offset)
        assert leader.journal.records == [str(number) for number in range(500)]
        assert leader.driver.statistics().flushes - flushes_before < 20


async def test_a_node_that_does_not_lead_refuses_proposals_and_names_the_leader(
    cluster: Clusters, eventually: Eventually
) -> None:
    async with cluster() as c:
        leader = await c.leader()
        follower = next(node for node in c.nodes if node is not leader)
        await eventually(lambda: follower.driver.leader.leader_id == leader.node_id, "the follower knows the leader")
        with pytest.raises(NotLeader, match=f"node {leader.node_id} leads") as raised:
            follower.driver.propose(leader.journal.leads, b"\x90", 1)
        assert raised.value.leader_id == leader.node_id


async def test_a_follower_that_was_away_catches_up(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        follower = next(node for node in c.nodes if node is not leader)
        await c.committed(c.propose(leader, "before"))
        await follower.crash()
        for number in range(100):
            end_offset = c.propose(leader, f"while away {number}")
        await c.committed(end_offset, leader)
        await follower.start()
        await c.committed(end_offset, follower)
        assert follower.journal.records == leader.journal.records


async def test_after_a_restart_of_all_nodes_everything_committed_is_still_there(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        await c.committed(c.propose(leader, "kept"))
        for node in c.nodes:
            await node.crash()
        for node in c.nodes:
            await node.start()
        leader = await c.leader()
        await c.committed(c.propose(leader, "new"))
        assert [node.journal.records for node in c.nodes] == [["kept", "new"]] * 3


async def test_a_leader_that_stops_says_goodbye_and_another_goes_on(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        await c.committed(c.propose(leader, "old"))
        await leader.stop()
        assert "resigned" in [what for what, _ in leader.journal.heard]
        successor = await c.leader()
        await c.committed(c.propose(successor, "new"))
        assert successor.journal.records == ["old", "new"]
        assert leader.failure is None


async def test_a_clean_stop_stores_the_committed_offset(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        await c.committed(c.propose(leader, "last"))
        committed = leader.driver.high_watermark
        await leader.stop()
    partition = str(c.directory / str(leader.node_id) / "__cluster_metadata-0")
    assert read_committed(RealFileReader(), partition) == committed


async def test_goodbyes_are_waited_for_each_time(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster() as c:
        node = await c.leader()
        have_led = []
        while node not in have_led:
            have_led.append(node)
            node.driver.resign(node.journal.leads, "the test says so")
            await eventually(lambda node=node: node.journal.leads is None, "the leader resigns")  # type: ignore[misc]
            node = await c.leader()
        heard = 0
        answered = node.driver.peers.answered

        async def hear_later(*answer: Any) -> None:
            nonlocal heard
            await trio.sleep(0.1)
            answered(*answer)
            heard += 1

        def hear(api: int, *answer: Any) -> None:
            if api == RaftApi.END_QUORUM_EPOCH:
                c.nursery.start_soon(hear_later, api, *answer)
            else:
                answered(api, *answer)

        node.driver.peers.answered = hear
        await node.stop()
        assert heard == 2


async def test_a_leader_that_crashes_is_replaced(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        await c.committed(c.propose(leader, "old"))
        old_epoch = leader.journal.leads
        await leader.crash()
        successor = await c.leader()
        assert successor.journal.leads > old_epoch
        await c.committed(c.propose(successor, "new"))
        await leader.start()
        await c.committed(successor.driver.end_offset)
        assert leader.journal.records == ["old", "new"]


async def test_became_leader_follows_the_apply_of_all_earlier_records(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        for number in range(50):
            c.propose(leader, str(number))
        await c.committed(leader.driver.end_offset, leader)
        await leader.crash()
        applied_when_told: list[int] = []
        for node in c.running():
            tell = node.journal.became_leader

            async def noted(epoch: int, node: Any = node, tell: Any = tell) -> None:
                applied_when_told.append(len(node.journal.records))
                await tell(epoch)

            node.journal.became_leader = noted
        await c.leader()
        assert applied_when_told == [50]


async def test_an_observer_finds_the_leader_and_follows(cluster: Clusters) -> None:
    async with cluster(observers=1) as c:
        leader = await c.leader()
        await c.committed(c.propose(leader, "a"))
        observer = c.nodes[3]
        await observer.start()
        await c.committed(c.propose(leader, "b"))
        assert observer.journal.records == ["a", "b"]
        assert observer.journal.heard[-1] == ("leader", leader.node_id)
        await leader.stop()
        successor = await c.leader()
        await c.committed(c.propose(successor, "c"), observer)
        assert observer.journal.records == ["a", "b", "c"]


async def test_records_that_no_majority_has_flushed_are_not_committed(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster(raft=PATIENT) as c:
        leader = await c.leader()
        await c.followed(leader)
        followers = [node for node in c.nodes if node is not leader]
        for node in followers:
            node.disk.open_for_business.clear()
        before = leader.driver.high_watermark
        end_offset = c.propose(leader, "on one disk only")
        await eventually(lambda: all(node.driver.end_offset == end_offset for node in followers), "followers have it in memory")
        await eventually(lambda: leader.driver.statistics().staged_bytes == 0, "the leader has flushed it")
        assert leader.driver.high_watermark == before
        followers[0].disk.open_for_business.set()
        await c.committed(end_offset, leader)
        followers[1].disk.open_for_business.set()


async def test_the_leaders_own_unflushed_copy_does_not_count(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster(raft=PATIENT) as c:
        leader = await c.leader()
        followers = [node for node in c.nodes if node is not leader]
        await followers[1].crash()
        leader.disk.open_for_business.clear()
        before = leader.driver.high_watermark
        end_offset = c.propose(leader, "x")
        await eventually(lambda: followers[0].driver.end_offset == end_offset, "one follower has it")
        await eventually(lambda: followers[0].driver.statistics().staged_bytes == 0, "and has flushed it")
        assert leader.driver.high_watermark == before
        leader.disk.open_for_business.set()
        await c.committed(end_offset, followers[0])


async def test_a_leader_with_a_full_disk_makes_way_and_comes_back_when_there_is_space(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        await c.committed(c.propose(leader, "before"))
        leader.disk.full = True
        c.propose(leader, "has no space")
        successor = await c.leader(but=leader)
        end_offset = c.propose(successor, "after")
        await c.committed(end_offset, successor)
        leader.disk.full = False
        await c.committed(end_offset, leader)
        assert leader.failure is None
        assert leader.journal.records == successor.journal.records
        assert leader.journal.records[-1] == "after"


async def test_a_leader_whose_disk_hangs_makes_way(cluster: Clusters) -> None:
    async with cluster(raft={"fetch_timeout_ms": 300}) as c:
        leader = await c.leader()
        leader.disk.open_for_business.clear()
        c.propose(leader, "stuck")
        successor = await c.leader(but=leader)
        await c.committed(c.propose(successor, "goes on"), successor)


async def test_a_fetch_that_waits_for_the_disk_does_not_keep_other_messages_back(
    cluster: Clusters, eventually: Eventually
) -> None:
    async with cluster() as c:
        leader = await c.leader()
        follower, other = (node for node in c.nodes if node is not leader)
        await c.committed(c.propose(leader, "its vote and the leader's epoch are on the follower's disk"))
        follower.disk.open_for_business.clear()
        c.propose(leader, "not flushed by the follower")
        await eventually(lambda: follower.driver.statistics().held_messages, "the follower's fetch waits for its disk")
        asked: list[int] = []
        step = other.driver.peers.step

        def listen(event: Event) -> None:
            if isinstance(event, RequestReceived) and isinstance(event.request, VoteRequest):
                asked.append(event.sender.node_id)
            step(event)

        other.driver.peers.step = listen
        epoch = other.driver.leader.epoch
        await leader.crash()

        def is_heard() -> bool:
            """It asks for a pre-vote, or the other was first and has its pre-vote: without, it would open no epoch."""
            return follower.node_id in asked or other.driver.leader.epoch > epoch

        await eventually(is_heard, "the follower takes part in the election")


async def test_a_failed_fsync_ends_the_node_with_its_message(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster() as c:
        leader = await c.leader()
        leader.disk.broken = True
        c.propose(leader, "x")
        await eventually(lambda: leader.failure is not None, "the node ends")
        assert any(isinstance(error, FsyncFailed) for error in leader.failure.exceptions)
        await c.leader(but=leader)


async def test_a_voter_without_free_descriptors_for_a_moment_stores_its_vote_when_there_are_some(
    cluster: Clusters, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster() as c:
        leader = await c.leader()
        await c.committed(c.propose(leader, "before"))
        open_file, refused = os.open, []

        def scarce(path: Any, *arguments: Any, **options: Any) -> int:
            if str(path).endswith("quorum-state.tmp") and len(refused) < 2:
                refused.append(path)
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return open_file(path, *arguments, **options)

        monkeypatch.setattr(os, "open", scarce)
        leader.driver.resign(leader.journal.leads, "the test says so")
        await eventually(lambda: len(refused) == 2, "votes are to be stored")
        await c.committed(c.propose(await c.leader(), "after"))
        assert [node.failure for node in c.nodes] == [None] * 3


async def test_a_node_that_holds_committed_records_which_the_leader_lacks_ends_with_a_message(
    cluster: Clusters, eventually: Eventually
) -> None:
    async with cluster() as c:
        leader = await c.leader()
        for number in range(30):  # More records than the new log has when it reaches this epoch: it has one for each epoch.
            await c.committed(c.propose(leader, str(number)))
        old_epoch = leader.journal.leads
        for node in c.nodes:
            await node.crash()
        keeper, *wiped = c.nodes
        for node in wiped:
            shutil.rmtree(c.directory / str(node.node_id))
            await node.start()
        while (leader := await c.leader()).journal.leads <= old_epoch:
            leader.driver.resign(leader.journal.leads, "its epoch is too low for this test")
            await eventually(lambda leader=leader: leader.journal.leads is None, "the leader resigns")
        await keeper.start_in_vain()
        assert isinstance(keeper.failure, LogTruncationRefused)
        assert f"node {leader.node_id}, the leader of epoch" in str(keeper.failure)


async def test_every_node_describes_the_quorum_and_the_leader_knows_all_replicas(
    cluster: Clusters, eventually: Eventually
) -> None:
    async with cluster(observers=1) as c:
        leader = await c.leader()
        await c.nodes[3].start()
        end_offset = c.propose(leader, "a")
        await c.committed(end_offset)

        def caught_up() -> bool:
            description = leader.driver.describe()
            return all(replica.log_end_offset == end_offset for replica in (*description.voters, *description.observers))

        await eventually(caught_up, "the leader has heard of everybody's progress")
        description = leader.driver.describe()
        assert [voter.node_id for voter in description.voters] == [0, 1, 2]
        assert [observer.node_id for observer in description.observers] == [3]
        assert all(replica.last_caught_up_time_ms > 1_600_000_000_000 for replica in description.voters)
        async with trio.open_nursery() as nursery:
            pool = PeerPool(nursery, c.nodes[3].driver.identity)
            for node in c.nodes[:3]:
                body = await pool.request(Endpoint("127.0.0.1", node.port), DESCRIBE_QUORUM, b"", timeout_ms=2000)
                seen = msgspec.msgpack.decode(body, type=QuorumDescription)
                assert (seen.leader_id, seen.node_id) == (leader.node_id, node.node_id)
            nursery.cancel_scope.cancel()


async def test_stopping_leaves_no_task_behind(cluster: Clusters) -> None:
    async with cluster() as c:
        await c.leader()
        for node in c.nodes:
            await node.stop()
        assert [node.failure for node in c.nodes] == [None] * 3
        assert not c.nursery.child_tasks


async def test_a_driver_that_never_ran_or_could_not_open_its_log_stops_at_once(cluster: Clusters) -> None:
    async with cluster() as c:
        node = c.nodes[0]
        await node.crash()
        (c.directory / "0" / "__cluster_metadata-0" / "quorum-state").write_text("nonsense")
        await node.start_in_vain()
        assert isinstance(node.failure, LogCorrupt)
        await node.driver.stop()


async def test_requests_that_wait_for_a_full_disk_time_out(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster() as c:
        leader = await c.leader()
        follower = next(node for node in c.nodes if node is not leader)
        await follower.crash()
        follower.options["raft"] = {"fetch_timeout_ms": 30, "election_timeout_ms": 20}
        await follower.start()
        await c.committed(c.propose(leader, "there is room"))
        follower.disk.full = True
        c.propose(leader, "there is none")

        def polls() -> int:
            return follower.driver.statistics().core.steps  # type: ignore[no-any-return]

        begun = polls()
        await eventually(lambda: polls() > begun + 100, "it has lost patience many times")
        now = follower.driver.statistics()
        assert (now.held_messages < 8, now.core.requests_in_flight < 8) == (True, True), now


async def test_a_disk_that_never_answers_does_not_keep_a_node_from_ending(
    cluster: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_tasks, "SETTLE_TIMEOUT_S", 0.05)
    async with cluster() as c:
        leader = await c.leader()
        leader.disk.open_for_business.clear()
        c.propose(leader, "stuck")
        with trio.fail_after(3):
            await leader.crash()


async def test_a_proposal_no_batch_can_hold_is_refused_and_nothing_breaks(cluster: Clusters) -> None:
    async with cluster() as c:
        leader = await c.leader()
        with pytest.raises(ValueError, match="records"):
            leader.driver.propose(leader.journal.leads, b"\x90", 0)
        await c.committed(c.propose(leader, "fine"))


async def test_an_idle_cluster_keeps_its_leader(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster() as c:
        leader = await c.leader()
        epoch, steps = leader.journal.leads, leader.driver.statistics().core.steps
        await eventually(lambda: leader.driver.statistics().core.steps > steps + 16, "followers have asked for news many times")
        assert {node.driver.leader.epoch for node in c.nodes} == {epoch}
