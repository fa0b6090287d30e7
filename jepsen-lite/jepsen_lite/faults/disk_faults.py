"""Disks that fail: errors, full and slow disks, corruption, torn tails, and loss of power.

A node whose disk fails may end by itself; it is started again when the fault is over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

from kraftlab.quorum.storage.errors import StorageError

from . import damage
from .cluster_under_faults import ClusterUnderFaults, undo_each
from .damage import Damage
from .errors import CannotStrike
from .kind import Draft, Fault, Hit, Shape, one_of


def draw_one(random: Random, shape: Shape) -> list[Draft]:
    weights = {"leader": 2, "follower": 2, "controller": 1, **({"broker": 1} if shape.brokers else {})}
    return [Draft(one_of(random, weights))]


def draw_slow_disk(random: Random, shape: Shape) -> list[Draft]:
    (draft,) = draw_one(random, shape)
    return [Draft(draft.target, {"delay_ms": random.choice((10, 50, 200, 800))})]


def draw_controller(random: Random, shape: Shape) -> list[Draft]:
    return [Draft(random.choice(("leader", "follower", "controller")))]


def draw_power_loss(random: Random, shape: Shape) -> list[Draft]:
    """All controllers at once show whether committed data were durable."""
    weights = {"leader": 2, "follower": 1, "controllers": 2, **({"majority": 1, "minority": 1} if shape.controllers > 2 else {})}
    return [Draft(one_of(random, weights))]


def disk_error(victim: ClusterUnderFaults, hit: Hit) -> Fault:
    """Let every fsync fail with EIO."""
    hit.detail = "fsync: EIO"
    return _tampered(victim, hit, victim.tampering.failing)


def disk_full(victim: ClusterUnderFaults, hit: Hit) -> Fault:
    """Let every write to a file fail, as on a full disk."""
    hit.detail = "no file can be written"
    return _tampered(victim, hit, victim.tampering.full)


def slow_disk(victim: ClusterUnderFaults, hit: Hit) -> Fault:
    """Delay every fsync."""
    delay_ms = int(hit.arguments["delay_ms"])
    hit.detail = f"fsync: {delay_ms} ms delay"
    return _tampered(victim, hit, partial(victim.tampering.slow, delay_ms=delay_ms))


@asynccontextmanager
async def _tampered(victim: ClusterUnderFaults, hit: Hit, tampered: Callable[[int], Fault]) -> AsyncIterator[None]:
    running = [node for node in hit.nodes if victim.cluster.pid(node) is not None]
    if not running:
        raise CannotStrike("none of these nodes is running")
    hit.nodes = tuple(running)
    try:
        async with AsyncExitStack() as stack:
            for node in running:
                await stack.enter_async_context(tampered(node))
            yield
    finally:
        await undo_each(victim.revive, running)


# -- files of nodes that are down ----------------------------------------------------------------------------------------

Choose = Callable[[Mapping[Path, bytes], Random], Damage | None]


@asynccontextmanager
async def bit_rot(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """Corrupt committed bytes of a node's metadata log while the node is down. The node must notice and repair itself from the
    others.
    """
    hit.nodes = hit.nodes[:1]
    (node,) = hit.nodes
    async with victim.guard.damaging(node), victim.kept_down([node]):
        await victim.while_down(node, lambda node: victim.guard.damaged(node, _inflict(victim, node, damage.rot, hit)))
        yield


@asynccontextmanager
async def torn(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """Leave an unfinished batch at the end of a node's metadata log, as if the node had died while writing. The node must
    truncate it.
    """
    async with victim.kept_down(hit.nodes):
        for node in hit.nodes:
            if not victim.guard.is_whole(node):
                raise CannotStrike(f"the log of node {node} is already damaged")
            await victim.while_down(node, lambda node: _inflict(victim, node, damage.torn, hit))
        yield


def _inflict(victim: ClusterUnderFaults, node: int, choose: Choose, hit: Hit) -> Damage:
    files = victim.guard.files(node)
    chosen = choose(damage.segments(victim.cluster.metadata_dir(node), files), hit.random)
    if chosen is None:
        raise CannotStrike(f"the log of node {node} has no data yet that could be damaged")
    chosen = chosen._replace(files=files)
    try:
        chosen.inflict()
    except StorageError as error:
        raise CannotStrike(str(error)) from error
    hit.detail = f"{chosen.path.name} at {chosen.position}, {len(chosen.after)} bytes"
    return chosen


# -- power ---------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def power_loss(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """Kill the nodes and lose everything that their disks had not synced."""
    nodes = [node for node in hit.nodes if node in victim.disks]
    if not nodes:
        raise CannotStrike("none of these nodes has a disk whose power can be cut")
    hit.nodes = tuple(nodes)
    async with victim.kept_down(nodes), victim.kept_dark(nodes):
        yield
