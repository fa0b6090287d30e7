"""A cluster of real processes while faults strike it: who is down, stopped or cut off because of which faults.

Theory of operation. Faults overlap: two may hold the same node down, or cut the same link. So nothing is undone by the fault that
did it, but by the last that still wants it: a *hold* counts. Whatever is held is noted before it is done, and dropping the last
hold undoes it, done or not. What blocks runs in threads, and no cancellation tears a fault from its undo. Only nodes of the
cluster are signalled, by the process that forked them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import trio

from kraftlab.lab.links.shape import LinkShape

from .directories import Directories, ProcessDirectories
from .errors import CannotStrike, CannotUndo
from .failing_disks import ProcessTampering, Tampering
from .ledger import Ledger, Process
from .quorum_guard import QuorumGuard
from .targets import View

Link = tuple[int, int]
"""(source, target): what the one sends to the other."""
T = TypeVar("T", bound=Hashable)


class SteerableClock(Protocol):
    """A node's clock (`kraftlab.lab.steered_clock.ClockFile`)."""

    def run_at(self, rate: float) -> None: ...

    def jump(self, seconds: float) -> None: ...


class Cluster(Protocol):
    """What faults need of a cluster of processes; `kraftlab.lab.LocalCluster` has it. All may be called in threads."""

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


class Powered(Protocol):
    """A disk whose power can be taken (`powered_disk.PoweredDisk`)."""

    @property
    def has_power(self) -> bool: ...

    def sync(self) -> None: ...

    def lose_power(self) -> None: ...

    def restore_power(self) -> None: ...


class Leads(NamedTuple):
    """A leader and its epoch."""

    node: int
    epoch: int


class FindLeader(Protocol):
    """Asks who leads; None if nobody is known to. `above`: as soon as somebody is known to in an epoch above that one."""

    async def __call__(self, above: int | None = None) -> Leads | None: ...


class Holds(Generic[T]):
    """How many faults want each thing to be broken."""

    def __init__(self) -> None:
        self._counts: Counter[T] = Counter()

    def __contains__(self, thing: T) -> bool:
        return self._counts[thing] > 0

    def add(self, thing: T) -> bool:
        """True if nothing held it before."""
        self._counts[thing] += 1
        return self._counts[thing] == 1

    def drop(self, thing: T) -> bool:
        """True if nothing holds it any more."""
        self._counts[thing] -= 1
        return self._counts[thing] == 0


Work = Callable[..., Awaitable[Any]]
"""Calls its first argument with the others."""


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    """What blocks, in a thread; returns when it is done even if cancelled."""
    return await trio.to_thread.run_sync(work, *arguments)


class Scene:
    """One cluster under faults. `find_leader` asks who leads, `guard` knows what the quorum can do without; `disks` are those
    whose power can be taken, by node. `ledger` None: nothing of this cluster can outlive the harness. `work` does what may block,
    in a thread if not given; `tampering` makes disks fail and `directories` are brokers', those of processes if not given.
    """

    def __init__(
        self,
        cluster: Any,
        find_leader: FindLeader,
        guard: QuorumGuard,
        ledger: Ledger | None,
        disks: Mapping[int, Powered] = MappingProxyType({}),
        work: Work | None = None,
        tampering: Tampering | None = None,
        directories: Directories | None = None,
    ) -> None:
        self.cluster: Any = cluster
        self.find_leader = find_leader
        self.guard = guard
        self._ledger = ledger
        self.work = work or in_thread
        self.disks = disks
        self.directories: Directories = directories or ProcessDirectories(cluster)
        self.tampering: Tampering = tampering or ProcessTampering(cluster, lambda: self.ledger)
        self.down: Holds[int] = Holds()
        self.stopped: Holds[int] = Holds()
        self.dark: Holds[int] = Holds()
        """Nodes whose disks have no power."""
        self.cuts: Holds[Link] = Holds()
        self._rates: defaultdict[int, list[float]] = defaultdict(list)
        self._shapes: defaultdict[Link, list[LinkShape]] = defaultdict(list)
        self._noted: dict[int, Process] = {}
        self._turns: defaultdict[int, trio.Lock] = defaultdict(trio.Lock)
        self._links = trio.Lock()

    @property
    def ledger(self) -> Ledger:
        """Where those write what they do who do it to processes of this machine."""
        assert self._ledger is not None, "this cluster has no processes"
        return self._ledger

    @property
    def nodes(self) -> tuple[int, ...]:
        return (*self.cluster.controller_ids, *self.cluster.broker_ids)

    async def view(self, *, with_leader: bool = True) -> View:
        """The cluster as it stands."""
        up = frozenset(node for node in self.nodes if self.cluster.pid(node) is not None and node not in self.stopped)
        leader = await self.find_leader() if with_leader else None
        return View(self.cluster.controller_ids, self.cluster.broker_ids, up, None if leader is None else leader.node)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def kept_down(self, nodes: Iterable[int]) -> AsyncIterator[tuple[int, ...]]:
        """The nodes are killed (kill -9), and started again when nothing keeps them down any more; gives those of them that ran.
        CannotStrike if none did.
        """
        held = tuple(node for node in nodes if node in self.down or self.cluster.pid(node) is not None)
        if not held:
            raise CannotStrike("none of these nodes runs")
        for node in held:
            self.down.add(node)
        try:
            await each(self._take_down, held)
            yield held
        finally:
            await undo_each(self._bring_up, held)

    async def _take_down(self, node: int) -> None:
        async with self._turns[node]:
            if self.cluster.pid(node) is not None:
                await self.work(self.cluster.kill_node, node)

    async def _bring_up(self, node: int) -> None:
        if self.down.drop(node):
            async with self._turns[node]:
                await self._start(node)

    async def _start(self, node: int) -> None:
        has_power = node not in self.dark and (node not in self.disks or self.disks[node].has_power)
        if node not in self.down and has_power and self.cluster.pid(node) is None:
            await self.work(self.cluster.start_node, node)
            self._note(node)
            if node in self.stopped:
                await self.work(self.cluster.pause_node, node)

    @asynccontextmanager
    async def noted(self) -> AsyncIterator[None]:
        """The processes of the nodes stand in the ledger: one that stands still does not end with the harness. What the cluster
        was laid out with is on its disks, whoever wrote it.
        """
        for node in self.nodes:
            self._note(node)
        for disk in self.disks.values():
            await self.work(disk.sync)
        try:
            yield
        finally:
            for entry in self._noted.values():
                self.ledger.drop(entry)

    def _note(self, node: int) -> None:
        if self._ledger is None:
            return
        pid = self.cluster.pid(node)
        before = self._noted.pop(node, None)
        if before is not None:
            self.ledger.drop(before)
        entry = self.ledger.add_process(pid, f"node {node}") if pid is not None else None
        if entry is not None:
            self._noted[node] = entry

    async def revive(self, node: int) -> None:
        """Starts a node that a fault has ended, unless another keeps it down."""
        async with self._turns[node]:
            await self._start(node)

    async def while_down(self, node: int, work: Callable[[int], object]) -> None:
        """Does something to the files of a node that this caller keeps down. CannotStrike if they cannot be reached."""
        async with self._turns[node]:
            if node in self.dark:
                raise CannotStrike(f"the disk of node {node} has no power")
            await self.work(work, node)

    @asynccontextmanager
    async def kept_stopped(self, nodes: Iterable[int]) -> AsyncIterator[tuple[int, ...]]:
        """The nodes stand still (SIGSTOP) until nothing keeps them so, also if they are killed and started again meanwhile; gives
        those of them that ran. CannotStrike if none did.
        """
        held = tuple(node for node in nodes if self.cluster.pid(node) is not None)
        if not held:
            raise CannotStrike("none of these nodes runs")
        for node in held:
            self.stopped.add(node)
        try:
            await each(self._stop, held)
            yield held
        finally:
            await undo_each(self._go_on, held)

    async def _stop(self, node: int) -> None:
        async with self._turns[node]:
            await self.work(self.cluster.pause_node, node)

    async def _go_on(self, node: int) -> None:
        if self.stopped.drop(node):
            async with self._turns[node]:
                if node not in self.stopped:
                    await self.work(self.cluster.resume_node, node)

    @asynccontextmanager
    async def kept_wrong(self, nodes: Iterable[int], *, rate: float = 1.0, jump_s: float = 0.0) -> AsyncIterator[None]:
        """The clocks of the nodes jump ahead, and run at that rate times what others want of them. ClusterError."""
        with ExitStack() as held:
            for node in nodes:
                if jump_s:
                    self.cluster.clock(node).jump(jump_s)
                self._rates[node].append(rate)
                held.callback(self._right_clock, node, rate)
                self._run_clock(node)
            await trio.lowlevel.checkpoint()
            yield

    def _right_clock(self, node: int, rate: float) -> None:
        self._rates[node].remove(rate)
        self._run_clock(node)

    def _run_clock(self, node: int) -> None:
        self.cluster.clock(node).run_at(math.prod(self._rates[node]))

    # -- disks ---------------------------------------------------------------------------------------------------------

    async def lose_power(self, node: int) -> None:
        """Of a node that is down. What its disk has not synced is gone."""
        async with self._turns[node]:
            await self.work(self.disks[node].lose_power)

    async def restore_power(self, node: int) -> None:
        if self.dark.drop(node):
            async with self._turns[node]:
                if node not in self.dark:
                    await self.work(self.disks[node].restore_power)

    # -- links ---------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def kept_cut(self, links: Iterable[Link], *, reset: bool = False, drop: bool = False) -> AsyncIterator[None]:
        """Nothing passes the links until nothing keeps them cut. `reset`: connections break, else they seem to live, and what
        waits comes late, or never if `drop`.
        """
        held = tuple(links)
        for link in held:
            self.cuts.add(link)
        try:
            async with self._links:
                await self.work(partial(self.cluster.cut_all, list(held), reset=reset))
            yield
        finally:
            freed = tuple(link for link in held if self.cuts.drop(link))
            await undo_each(partial(self._heal, drop=drop), [freed])

    async def _heal(self, links: tuple[Link, ...], *, drop: bool) -> None:
        async with self._links:
            freed = [link for link in links if link not in self.cuts]
            if freed:
                await self.work(partial(self.cluster.heal_links, freed, drop=drop))
                await self._reshape(freed)

    @asynccontextmanager
    async def kept_shaped(self, links: Iterable[Link], shape: LinkShape) -> AsyncIterator[None]:
        """The links do that to messages, beside what others want of them."""
        held = tuple(links)
        for link in held:
            self._shapes[link].append(shape)
        try:
            async with self._links:
                await self._reshape(held)
            yield
        finally:
            for link in held:
                self._shapes[link].remove(shape)
            await undo_each(self._unshape, [held])

    async def _unshape(self, links: tuple[Link, ...]) -> None:
        async with self._links:
            await self._reshape(links)

    async def _reshape(self, links: Iterable[Link]) -> None:
        """Lets the links have the shape that all together want."""
        wanted: defaultdict[LinkShape, list[Link]] = defaultdict(list)
        for link in links:
            wanted[together(self._shapes[link])].append(link)
        for shape, alike in wanted.items():
            await self.work(self.cluster.shape_links, alike, shape)


def together(shapes: Iterable[LinkShape]) -> LinkShape:
    """What a link does of which several things are wanted: delays add up, and each has its chance."""
    found = tuple(shapes)

    def chance(name: str) -> float:
        return 1.0 - math.prod(1.0 - float(getattr(shape, name)) for shape in found)

    return LinkShape(
        delay_ms=sum(shape.delay_ms for shape in found),
        jitter_ms=sum(shape.jitter_ms for shape in found),
        loss=chance("loss"),
        duplicate=chance("duplicate"),
        reorder=chance("reorder"),
    )


async def each(work: Callable[[T], Awaitable[None]], things: Iterable[T]) -> None:
    """Does it to all at the same time, and raises the first error when all are done."""
    faults: list[Exception] = []

    async def one(thing: T) -> None:
        try:
            await work(thing)
        except Exception as error:
            faults.append(error)

    async with trio.open_nursery() as nursery:
        for thing in things:
            nursery.start_soon(one, thing)
    if faults:
        raise faults[0]


async def undo_each(undo: Callable[[T], Awaitable[None]], things: Iterable[T]) -> None:
    """Undoes all, whatever becomes of the others, and though cancelled. CannotUndo."""
    with trio.CancelScope(shield=True):
        try:
            await each(undo, things)
        except Exception as error:
            raise CannotUndo(f"could not be undone: {error}") from error
