"""Steps that bring a cluster in line with the book of faults.

`steps` looks at the wanted faults now, not at former steps, and yields one blocking call after the other, each with the faults
that it settles. The caller makes the calls: one after the other, or each in a thread. A node starts only when no fault keeps it
off. Then its faults are set again, since a process loses them when it ends.
"""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from ..links.shape import LinkShape
from . import full_disk
from .holds import CUT, DARK, FAILED, FULL, NODE_FAULTS, PAUSED, Fault, Holder, Holds, Link

Group = TypeVar("Group", bound=Hashable)
Step = tuple[Collection[Fault], Callable[[], object]]
DIRECTORY_ERRORS = {FULL: errno.ENOSPC, FAILED: errno.EIO}
"""Errors of file calls by the kind of fault; a directory with several faults has the last of them."""


class SteerableClock(Protocol):
    """A node's clock (`kraftlab.lab.steered_clock.ClockFile`)."""

    def run_at(self, rate: float) -> None: ...

    def jump(self, seconds: float) -> None: ...


class BreakableCluster(Protocol):
    """A cluster of nodes that faults can strike, such as `kraftlab.lab.LocalCluster`. Each call may block."""

    @property
    def controller_ids(self) -> tuple[int, ...]: ...

    @property
    def broker_ids(self) -> tuple[int, ...]: ...

    def pid(self, node_id: int) -> int | None: ...

    def start_node(self, node_id: int) -> None: ...

    def kill_node(self, node_id: int) -> None: ...

    def pause_node(self, node_id: int) -> None: ...

    def resume_node(self, node_id: int) -> None: ...

    def clock(self, node_id: int) -> SteerableClock: ...

    def cut_all(self, links: list[Link], *, reset: bool = False) -> None: ...

    def heal_links(self, links: list[Link], *, drop: bool = False) -> None: ...

    def shape_links(self, links: list[Link], shape: LinkShape) -> None: ...

    def fail_directories(self, errors: Mapping[str, int]) -> None: ...


class Power(Protocol):
    """Disks of nodes that can lose their power, such as those of `LocalCluster`."""

    def lose_power(self, node_ids: Sequence[int]) -> None: ...

    def restore_power(self, node_id: int) -> None: ...


class FaultSteps(Generic[Holder]):
    """`power`: None if no disk of this cluster can lose its power."""

    def __init__(self, cluster: BreakableCluster, holds: Holds[Holder], power: Power | None = None) -> None:
        self._cluster, self._holds, self._power = cluster, holds, power

    def steps(self, faults: Collection[Fault], *, drop: bool = False) -> Iterator[Step]:
        """Bring the cluster in line with the book for these faults. `drop`: messages that healed links held are lost."""
        yield from self._link_steps([fault for fault in faults if fault.other is not None], drop)
        dark = [fault for fault in faults if fault.kind == DARK and fault in self._holds]
        if dark and self._power is not None:
            yield dark, partial(self._power.lose_power, [fault.node for fault in dark])
        in_directories = [fault for fault in faults if fault.directory]
        if in_directories:
            yield in_directories, partial(self._cluster.fail_directories, self._errors_by_directory())
        for kind in NODE_FAULTS:
            for fault in faults:
                if fault.kind == kind:
                    for call in self._node_calls(fault):
                        yield [fault], call

    def start(self, node: int) -> Iterator[Callable[[], object]]:
        """Start a node, unless it runs or a fault keeps it off."""
        if self._cluster.pid(node) is not None or self._holds.is_off(node):
            return
        yield partial(self._cluster.start_node, node)
        for kind in (PAUSED, FULL):
            if Fault(kind, node) in self._holds:
                yield from self._node_calls(Fault(kind, node))

    def _link_steps(self, faults: Collection[Fault], drop: bool) -> Iterator[Step]:
        cuts = [fault for fault in faults if fault.kind == CUT]
        healed = [fault for fault in cuts if fault not in self._holds]
        if healed:
            yield healed, partial(self._cluster.heal_links, [fault.link for fault in healed], drop=drop)
        held = [fault for fault in cuts if fault in self._holds]
        for reset, alike in _grouped(held, self._is_reset).items():
            yield alike, partial(self._cluster.cut_all, [fault.link for fault in alike], reset=reset)
        shaped = [fault for fault in faults if fault.kind != CUT or fault in healed]
        for shape, alike in _grouped(shaped, lambda fault: self._holds.shape(fault.link)).items():
            links = list(dict.fromkeys(fault.link for fault in alike))
            yield alike, partial(self._cluster.shape_links, links, shape)

    def _is_reset(self, cut: Fault) -> bool:
        holder = self._holds.newest(cut)
        return holder is not None and holder.reset

    def _errors_by_directory(self) -> dict[str, int]:
        held = [fault for fault in self._holds if fault.directory]
        return {fault.directory: number for kind, number in DIRECTORY_ERRORS.items() for fault in held if fault.kind == kind}

    def _node_calls(self, fault: Fault) -> Iterator[Callable[[], object]]:
        cluster, node = self._cluster, fault.node
        is_wanted, pid = fault in self._holds, cluster.pid(node)
        match fault.kind:
            case "dark" if not is_wanted and pid is None:
                if self._power is not None:
                    yield partial(self._power.restore_power, node)
                yield from self.start(node)
            case "down" if is_wanted:
                if pid is not None:
                    yield partial(cluster.kill_node, node)
            case "down":
                yield from self.start(node)
            case "paused":
                yield partial(cluster.pause_node if is_wanted else cluster.resume_node, node)
            case "wrong clock":
                yield lambda: cluster.clock(node).run_at(self._holds.rate(node))
            case "full" if pid is not None and not fault.directory:
                yield partial(full_disk.fill if is_wanted else full_disk.free, pid)


def _grouped(faults: Iterable[Fault], by: Callable[[Fault], Group]) -> dict[Group, list[Fault]]:
    groups: defaultdict[Group, list[Fault]] = defaultdict(list)
    for fault in faults:
        groups[by(fault)].append(fault)
    return groups
