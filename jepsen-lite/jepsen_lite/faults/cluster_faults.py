"""Operator actions as faults: voters leave and join, disks are replaced, replicas move."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import trio

from kraftlab.common.errors import ApiError, ErrorCode

from .cluster_under_faults import ClusterUnderFaults
from .directories import CHANGE_TIMEOUT_MS, Replica
from .errors import CLUSTER_FAULTS, CannotStrike, CannotUndo
from .kind import Draft, Hit, Shape

_JOIN_WITHIN_S = 40.0
_PAUSE_S = 0.1


def draw_membership(random: Random, shape: Shape) -> list[Draft]:
    return [Draft(random.choice(("leader", "follower", "follower", "controller")), {"wipe": random.random() < 0.4})]


@asynccontextmanager
async def membership(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """Let a voter leave the quorum and join again, with an empty disk if `wipe`."""
    hit.nodes = hit.nodes[:1]
    (node,) = hit.nodes
    hit.detail = "leaves, joins again with an empty disk" if hit.arguments.get("wipe") else "leaves, joins again"
    async with victim.guard.damaging(node), victim.guard.changing(node, leaves=True):
        try:
            await victim.work(victim.cluster.leave, node, CHANGE_TIMEOUT_MS)
            async with AsyncExitStack() as stack:
                if hit.arguments.get("wipe"):
                    await stack.enter_async_context(victim.kept_down([node]))
                    await victim.while_down(node, victim.cluster.wipe_controller)
                yield
        finally:
            with trio.CancelScope(shield=True):
                await _join(victim, node)


async def _join(victim: ClusterUnderFaults, node: int) -> None:
    """Make the node a voter again, retrying while other faults prevent it. CannotUndo."""
    fault: Exception | None = None
    with trio.move_on_after(_JOIN_WITHIN_S):
        while True:
            try:
                return await _add_voter(victim, node)
            except (CannotStrike, *CLUSTER_FAULTS) as error:
                if isinstance(error, ApiError) and error.code is ErrorCode.DUPLICATE_VOTER:
                    return None
                fault = error
            await trio.sleep(_PAUSE_S)
    raise CannotUndo(f"node {node} did not become a voter again within {_JOIN_WITHIN_S:g} s: {fault}")


async def _add_voter(victim: ClusterUnderFaults, node: int) -> None:
    async with victim.guard.changing(node, leaves=False):
        await victim.work(victim.cluster.join, node, CHANGE_TIMEOUT_MS)


def draw_move_dirs(random: Random, shape: Shape) -> list[Draft]:
    return [Draft("broker", {"replicas": random.choice((1, 2, 5))})]


@asynccontextmanager
async def move_dirs(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """Let a broker move some of its replicas to other log directories (KIP-113). Nothing is undone."""
    hit.nodes = hit.nodes[:1]
    (node,) = hit.nodes
    described = await victim.work(victim.directories.described, node)
    paths = _chosen(node, described, int(hit.arguments["replicas"]), hit.random)
    await victim.work(victim.directories.moved, node, paths)
    hit.detail = ", ".join(f"{topic}-{index}" for topic, index in paths)
    yield


def _chosen(node: int, described: Sequence[Any], count: int, random: Random) -> dict[Replica, str]:
    """Choose so many replicas and a target directory for each. CannotStrike."""
    directories = [found for found in described if not found.error_code]
    places = {
        (topic.name, partition.partition_index): directory.log_dir
        for directory in directories
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
    if len(directories) < 2 or not places:
        raise CannotStrike(f"broker {node} has {len(directories)} log directories and {len(places)} replicas: none can move")
    chosen = random.sample(sorted(places), min(count, len(places)))
    others = {replica: sorted(found.log_dir for found in directories if found.log_dir != places[replica]) for replica in chosen}
    return {replica: random.choice(paths) for replica, paths in others.items()}
