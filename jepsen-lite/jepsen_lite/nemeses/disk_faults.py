"""Disks that fail: errors, full and slow disks, rot, torn tails, and the loss of power.

A node whose disk fails may end by itself; when the fault is over it is started again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

from kraftlab.cluster.chaos import full_disk

from . import damage
from .damage import Damage
from .faults import CannotStrike
from .kind import Draft, Fault, Hit, Shape, one_of
from .scene import Scene, each, in_thread, undo_each
from .tracing import SYNCS, kept_injected


def draw_one(random: Random, shape: Shape) -> list[Draft]:
    weights = {"leader": 2, "follower": 2, "controller": 1, **({"broker": 1} if shape.brokers else {})}
    return [Draft(one_of(random, weights))]


def draw_slow_disk(random: Random, shape: Shape) -> list[Draft]:
    (draft,) = draw_one(random, shape)
    return [Draft(draft.target, {"delay_ms": random.choice((10, 50, 200, 800))})]


def draw_controller(random: Random, shape: Shape) -> list[Draft]:
    return [Draft(random.choice(("leader", "follower", "controller")))]


def draw_power_loss(random: Random, shape: Shape) -> list[Draft]:
    """All at once is what shows whether committed data were durable."""
    weights = {"leader": 2, "follower": 1, "controllers": 2, **({"majority": 1, "minority": 1} if shape.controllers > 2 else {})}
    return [Draft(one_of(random, weights))]


def disk_error(scene: Scene, hit: Hit) -> Fault:
    """Every fsync fails with EIO."""
    hit.detail = "fsync: EIO"
    return _tampered(scene, hit, [f"{SYNCS}:error=EIO"])


@asynccontextmanager
async def disk_full(scene: Scene, hit: Hit) -> AsyncIterator[None]:
    """No file can be written any more, as on a full disk."""
    running = _running(scene, hit)
    hit.detail = "no file can be written"
    try:
        for node, pid in running.items():
            scene.full.add(node)
            await in_thread(full_disk.fill, pid)
        yield
    finally:
        await undo_each(partial(_free, scene, running), running)


async def _free(scene: Scene, running: Mapping[int, int], node: int) -> None:
    if scene.full.drop(node) and scene.cluster.pid(node) == running[node]:
        await in_thread(full_disk.free, running[node])
    await scene.revive(node)


def slow_disk(scene: Scene, hit: Hit) -> Fault:
    """Every fsync takes longer."""
    delay_ms = int(hit.arguments["delay_ms"])
    hit.detail = f"fsync: {delay_ms} ms later"
    return _tampered(scene, hit, [f"{SYNCS}:delay_enter={delay_ms * 1000}"])


@asynccontextmanager
async def _tampered(scene: Scene, hit: Hit, injections: Sequence[str]) -> AsyncIterator[None]:
    running = _running(scene, hit)
    try:
        async with AsyncExitStack() as stack:
            for pid in running.values():
                await stack.enter_async_context(kept_injected(pid, injections, scene.ledger))
            yield
    finally:
        await undo_each(scene.revive, running)


def _running(scene: Scene, hit: Hit) -> dict[int, int]:
    """The process ids of the nodes that run. CannotStrike if none does."""
    pids = {node: scene.cluster.pid(node) for node in hit.nodes}
    running = {node: pid for node, pid in pids.items() if pid is not None}
    if not running:
        raise CannotStrike("none of these nodes runs")
    return running


# -- files of nodes that are down ----------------------------------------------------------------------------------------

Choose = Callable[[Mapping[Path, bytes], Random], Damage | None]


@asynccontextmanager
async def bit_rot(scene: Scene, hit: Hit) -> AsyncIterator[None]:
    """Committed bytes of a node's metadata log rot while it is down; it must notice and repair itself from the others."""
    hit.nodes = hit.nodes[:1]
    (node,) = hit.nodes
    async with scene.guard.damaging(node), scene.kept_down([node]):
        await scene.while_down(node, lambda node: scene.guard.damaged(node, _inflict(scene, node, damage.rot, hit)))
        yield


@asynccontextmanager
async def torn(scene: Scene, hit: Hit) -> AsyncIterator[None]:
    """A node dies while it writes: a batch that was not finished stands at the end of its metadata log; it must be cut away."""
    async with scene.kept_down(hit.nodes):
        for node in hit.nodes:
            if not scene.guard.is_whole(node):
                raise CannotStrike(f"the log of node {node} is not whole as it is")
            await scene.while_down(node, lambda node: _inflict(scene, node, damage.torn, hit))
        yield


def _inflict(scene: Scene, node: int, choose: Choose, hit: Hit) -> Damage:
    log = damage.segments(scene.cluster.metadata_dir(node))
    chosen = choose(log, hit.random)
    if chosen is None:
        raise CannotStrike(f"the log of node {node} has nothing yet that could be damaged")
    chosen.inflict()
    hit.detail = f"{chosen.path.name} at {chosen.position}, {len(chosen.after)} bytes"
    return chosen


# -- power ---------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def power_loss(scene: Scene, hit: Hit) -> AsyncIterator[None]:
    """The nodes are gone, and with them all that their disks had not synced."""
    nodes = [node for node in hit.nodes if node in scene.disks]
    if not nodes:
        raise CannotStrike("no disk of these nodes has a power of its own")
    async with scene.kept_down(nodes):
        for node in nodes:
            scene.dark.add(node)
        try:
            await each(scene.lose_power, nodes)
            yield
        finally:
            await undo_each(scene.restore_power, nodes)
