"""The table of faults in the world `shell`: those of processes, and faults of brokers' disks with their log directories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import trio

from kraftlab.quorum.storage.errors import StorageError
from kraftlab.simulation.runtime import replica_damage
from kraftlab.simulation.runtime.clock import Skew
from kraftlab.simulation.runtime.cluster import LEFT_WITHIN_S

from ..faults.cluster_under_faults import ClusterUnderFaults
from ..faults.damage import Damage
from ..faults.errors import CannotStrike
from ..faults.kind import Draft, Hit, Kind, Shape
from ..faults.kinds import KINDS
from ..faults.process_faults import OF_PROCESSES, drawing

BROKERS_RATE = 0.4
"""Share of the strikes on disks that hit a broker's disk."""

Fault = Callable[[ClusterUnderFaults, Hit], AbstractAsyncContextManager[None]]
Choose = Callable[[Mapping[Path, bytes], Random], replica_damage.Patch | None]


def _or_broker(draw: Callable[[Random, Shape], list[Draft]]) -> Callable[[Random, Shape], list[Draft]]:
    def drawn(random: Random, shape: Shape) -> list[Draft]:
        drafts = draw(random, shape)
        return [Draft("broker")] if shape.brokers and random.random() < BROKERS_RATE else drafts

    return drawn


def _or_of_broker(fault: Fault, of_broker: Fault) -> Fault:
    """Return the fault for controllers, or `of_broker` at the first broker if only brokers are targets."""

    def struck(victim: ClusterUnderFaults, hit: Hit) -> AbstractAsyncContextManager[None]:
        if not set(hit.nodes) <= set(victim.cluster.broker_ids):
            hit.nodes = tuple(node for node in hit.nodes if node not in victim.cluster.broker_ids)
            return fault(victim, hit)
        hit.nodes = hit.nodes[:1]
        return of_broker(victim, hit)

    return struck


@asynccontextmanager
async def _power_loss(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """Kill the broker, and when the cluster no longer needs it, lose everything that its disk had not synced."""
    (node,) = hit.nodes
    async with victim.kept_down([node]):
        await _until_not_needed(victim, node)
        async with victim.kept_dark([node]):
            yield


@asynccontextmanager
async def _bit_rot(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """Corrupt records of a broker that is down. It must notice, and get them from the others."""
    (node,) = hit.nodes
    async with victim.kept_down([node]):
        await _until_not_needed(victim, node)
        await victim.while_down(node, lambda node: _inflict(victim, node, replica_damage.rot, hit))
        yield


@asynccontextmanager
async def _torn(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """Leave the beginning of a batch at the end of a log, as if the broker had died during an append. It must
    truncate the log.
    """
    (node,) = hit.nodes
    async with victim.kept_down([node]):
        await victim.cluster.until_ended(node)
        await victim.while_down(node, lambda node: _inflict(victim, node, replica_damage.torn, hit))
        yield


async def _until_not_needed(victim: ClusterUnderFaults, node: int) -> None:
    needed = await victim.cluster.until_not_needed(node)
    if needed:
        raise CannotStrike(f"broker {node} is needed for {needed}, {LEFT_WITHIN_S:g} s after it went down")


def _inflict(victim: ClusterUnderFaults, node: int, choose: Choose, hit: Hit) -> None:
    chosen = choose(replica_damage.newest_segments(victim.cluster.log_dirs(node)), hit.random)
    if chosen is None:
        raise CannotStrike(f"broker {node} has no data yet that could be damaged")
    try:
        Damage(*chosen).inflict()
    except StorageError as error:
        raise CannotStrike(str(error)) from error
    place = chosen.path.relative_to(victim.cluster.directory)
    hit.detail = f"{place} at {chosen.position}, {len(chosen.after)} bytes"


# -- clocks --------------------------------------------------------------------------------------------------------------

SETS_MS = (-3_600_000, -60_000, -2_000, 2_000, 60_000, 3_600_000)


@asynccontextmanager
async def _clock(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """Let clocks run at another rate (`rate`), jump ahead (`jump_ms`), or show another time of day (`set_ms`)."""
    amounts = hit.arguments
    skew = Skew(float(amounts.get("rate", 1)), amounts.get("jump_ms", 0) / 1000, amounts.get("set_ms", 0) / 1000)
    if skew.rate <= 0 or skew.jump_s < 0:
        raise CannotStrike(f"a clock needs a rate above 0 and a step of at least 0, not {skew.rate:g} and {skew.jump_s:g} s")
    hit.detail = ", ".join(f"{name} {value}" for name, value in amounts.items())
    with ExitStack() as stack:
        for node in hit.nodes:
            stack.enter_context(victim.cluster.clocks[node].wrong(skew))
        await trio.lowlevel.checkpoint()
        yield


def _row(name: str, of_broker: Fault) -> Kind:
    kind = KINDS[name]
    return kind._replace(draw=_or_broker(kind.draw), fault=_or_of_broker(kind.fault, of_broker))


SHELL_KINDS: dict[str, Kind] = {
    **KINDS,
    "power-loss": _row("power-loss", _power_loss),
    "bit-rot": _row("bit-rot", _bit_rot),
    "torn": _row("torn", _torn),
    "clock": Kind(
        "clock",
        "clocks run slow or fast, step forward, or have a wrong wall-clock time",
        drawing({**OF_PROCESSES, "set_ms": SETS_MS}),
        _clock,
    ),
}
"""By name."""
