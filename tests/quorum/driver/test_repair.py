"""Damage on real disks: found at the start, repaired from other nodes, and a reason not to start without other nodes."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlab.quorum.core.types import Voter, VoterSet
from kraftlab.quorum.storage.errors import LogCorrupt
from kraftlab.quorum.storage.identity import partition_directory

Clusters = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Eventually = Callable[..., Awaitable[None]]

ON_DEMAND = {"snapshot_max_new_bytes": 1 << 40, "snapshot_max_interval_ms": 0}


async def commit(c: Any, count: int) -> int:
    """Commit one batch after the other, so that each carries the commit of the one before; return the end offset."""
    for number in range(count):
        end_offset = await c.fill(1, number)
        await c.committed(end_offset)
    return end_offset  # type: ignore[no-any-return]


def damage(node: Any, suffix: str, at: float = 0.5) -> Path:
    """Flip a bit in the node's only file of that kind, at that part of the written bytes."""
    [path] = [path for path in Path(partition_directory(node.directory)).iterdir() if path.name.endswith(suffix)]
    data = bytearray(path.read_bytes())
    written = len(bytes(data).rstrip(b"\0"))
    data[4096 + int((written - 4096) * at) if suffix == ".log" else int(written * at)] ^= 4
    path.write_bytes(data)
    return path


async def test_a_voter_repairs_its_log_from_the_others_and_votes_again(
    cluster: Clusters, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(**ON_DEMAND) as c:
        end_offset = await commit(c, 30)
        leader = await c.leader()
        node = next(node for node in c.nodes if node is not leader)
        await node.crash()
        damage(node, ".log")
        await node.start()
        await c.committed(end_offset, node)
        await eventually(lambda: not node.driver.describe().is_repairing, "the repair ends")
        assert "repairs its metadata log up to offset" in caplog.text
        await eventually(lambda: "it votes again" in caplog.text, "the end is told")
        assert node.journal.records == leader.journal.records
        assert not [name for name in os.listdir(partition_directory(node.directory)) if "damaged" in name or "repair" in name]
        other = next(other for other in c.nodes if other not in (node, leader))
        await other.crash()
        await c.committed(c.propose(await c.leader(), "with its acknowledgement"))


async def test_a_node_whose_snapshot_has_rotted_gets_the_state_from_the_others(cluster: Clusters) -> None:
    async with cluster(raft={"snapshots_kept": 1}, **ON_DEMAND) as c:
        await commit(c, 20)
        leader = await c.leader()
        node = next(node for node in c.nodes if node is not leader)
        for each in c.nodes:
            await each.driver.take_snapshot()
        end_offset = await commit(c, 3)
        await node.crash()
        damage(node, ".checkpoint")
        await node.start()
        await c.committed(end_offset, node)
        assert node.journal.records == leader.journal.records


async def test_while_most_voters_repair_nobody_is_elected(cluster: Clusters, eventually: Eventually) -> None:
    async with cluster(**ON_DEMAND) as c:
        await commit(c, 20)
        for node in c.nodes:
            await node.crash()
        for node in c.nodes[:2]:
            damage(node, ".log")
            await node.start()
        whole = c.nodes[2]
        whole.options["raft"] = {"election_timeout_ms": 50}
        await whole.start()
        await eventually(lambda: whole.driver.statistics().core.steps > 60, "the one that is whole has asked for votes often")
        assert all(node.journal.leads is None for node in c.nodes)
        assert [node.driver.describe().is_repairing for node in c.nodes] == [True, True, False]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static voters", "voters in the log"])
async def test_a_sole_voter_with_rot_does_not_start(cluster: Clusters, dynamic: bool) -> None:
    async with cluster(dynamic=dynamic, **ON_DEMAND) as c:
        for node in c.nodes:
            await node.crash()
        only = c.nodes[0]
        shutil.rmtree(partition_directory(only.directory))
        c.voters = VoterSet.of([only.voter if dynamic else Voter(c.voters.voters[0].key, only.voter.endpoints)])
        if dynamic:
            only.format()
        await only.start()
        for number in range(20):
            await c.committed(c.propose(await c.leader(), f"record {number}"), only)
        await only.crash()
        path = damage(only, ".log", 0.8)
        before = path.read_bytes()
        await only.start_in_vain()
        assert isinstance(only.failure, LogCorrupt)
        assert str(path) in str(only.failure)
        assert path.read_bytes() == before
