"""A cluster under faults: each fault is in force for as long as its `async with` lasts.

Theory of operation. Faults overlap, and the same book as in `kraftlab cluster` (`kraftlab.lab.faults.holds`) counts their
holders: a hold is noted before its fault is brought about, and the last holder to let go undoes the fault, whether it was
complete or not. `FaultSteps` says which steps this takes. Steps block, so they run in threads; steps of one node, and steps of
links, run one after the other. No cancellation separates a fault from its undo. Only nodes of the cluster are signalled, by the
process that forked them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import trio

from kraftlab.lab.faults.fault_steps import FaultSteps
from kraftlab.lab.faults.holds import CUT, DARK, DOWN, LOSSY, PAUSED, SLOW, WRONG_CLOCK, Fault, Hold, Holds, Link
from kraftlab.lab.links.shape import LinkShape

from .directories import Directories, ProcessDirectories
from .errors import CannotStrike, CannotUndo
from .failing_disks import DiskFaults, ProcessTampering
from .ledger import Ledger, Process
from .quorum_guard import QuorumGuard
from .targets import View

T = TypeVar("T")


class DiskPower(Protocol):
    """A disk that can lose its power (`kraftlab.lab.powered_disk.PoweredDisk`)."""

    def sync(self) -> None: ...

    def lose_power(self) -> None: ...

    def restore_power(self) -> None: ...


class Leads(NamedTuple):
    """A leader and its epoch."""

    node: int
    epoch: int


class FindLeader(Protocol):
    """Return the leader, None if it is unknown. `above`: return as soon as a leader is known in an epoch above that one."""

    async def __call__(self, above: int | None = None) -> Leads | None: ...


Work = Callable[..., Awaitable[Any]]
"""Calls its first argument with the others."""


async def in_thread(work: Callable[..., object], *arguments: object) -> Any:
    """Run blocking work in a thread; return when it is done even if cancelled."""
    return await trio.to_thread.run_sync(work, *arguments)


class ClusterUnderFaults:
    """`cluster` is a `kraftlab.lab.faults.fault_steps.BreakableCluster` with additional methods for faults of voters and
    replicas.

    `find_leader` returns the leader, `guard` knows which nodes the quorum can spare, `disks` are the disks whose power can be
    taken, by node. `ledger` None: nothing of this cluster can outlive the harness. `work` runs blocking steps, by default in a
    thread. `tampering` makes disks fail and `directories` are the brokers', by default those of processes.
    """

    def __init__(
        self,
        cluster: Any,
        find_leader: FindLeader,
        guard: QuorumGuard,
        ledger: Ledger | None,
        disks: Mapping[int, DiskPower] = MappingProxyType({}),
        work: Work | None = None,
        tampering: DiskFaults | None = None,
        directories: Directories | None = None,
    ) -> None:
        self.cluster: Any = cluster
        self.find_leader = find_leader
        self.guard = guard
        self._ledger = ledger
        self.work = work or in_thread
        self.disks = disks
        self.directories: Directories = directories or ProcessDirectories(cluster)
        self.tampering: DiskFaults = tampering or ProcessTampering(cluster, lambda: self.ledger)
        self._holds: Holds[Hold] = Holds(adds_up=True)
        self._steps = FaultSteps(cluster, self._holds, self)
        self._noted: dict[int, Process] = {}
        self._turns: defaultdict[int, trio.Lock] = defaultdict(trio.Lock)
        self._links = trio.Lock()

    @property
    def ledger(self) -> Ledger:
        """The ledger of everything that would outlive the harness; only clusters of processes have one."""
        assert self._ledger is not None, "this cluster has no processes"
        return self._ledger

    @property
    def nodes(self) -> tuple[int, ...]:
        return (*self.cluster.controller_ids, *self.cluster.broker_ids)

    async def view(self, *, with_leader: bool = True) -> View:
        """Return the current state of the cluster."""
        up = frozenset(node for node in self._running(self.nodes) if Fault(PAUSED, node) not in self._holds)
        leader = await self.find_leader() if with_leader else None
        return View(self.cluster.controller_ids, self.cluster.broker_ids, up, None if leader is None else leader.node)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _running(self, nodes: Iterable[int]) -> tuple[int, ...]:
        return tuple(node for node in nodes if self.cluster.pid(node) is not None)

    @asynccontextmanager
    async def kept_down(self, nodes: Iterable[int]) -> AsyncIterator[tuple[int, ...]]:
        """Kill the nodes (kill -9); start them when nothing keeps them down. Yield those that were running. CannotStrike
        if none was.
        """
        held = [node for node in nodes if Fault(DOWN, node) in self._holds or self.cluster.pid(node) is not None]
        async with self._kept(DOWN, held):
            yield tuple(held)

    @asynccontextmanager
    async def kept_stopped(self, nodes: Iterable[int]) -> AsyncIterator[tuple[int, ...]]:
        """Pause the nodes (SIGSTOP), also if they are killed and started again meanwhile. Yield those that were running.
        CannotStrike if none was.
        """
        held = self._running(nodes)
        async with self._kept(PAUSED, held):
            yield held

    @asynccontextmanager
    async def kept_dark(self, nodes: Iterable[int]) -> AsyncIterator[None]:
        """Take the power of the disks of nodes that the caller keeps down: unsynced data are lost."""
        async with self._kept(DARK, tuple(nodes)):
            yield

    @asynccontextmanager
    async def _kept(self, kind: str, nodes: Sequence[int]) -> AsyncIterator[None]:
        if not nodes:
            raise CannotStrike("none of these nodes is running")
        hold, faults = Hold(), [Fault(kind, node) for node in nodes]
        self._holds.add(hold, faults)
        try:
            await each(self._settle, faults)
            yield
        finally:
            await undo_each(partial(self._release, hold), faults)

    async def _release(self, hold: Hold, fault: Fault) -> None:
        """End a fault with its last holder. A disk without power stays dark, so that its node is not started."""
        if not self._holds.drop(hold, [fault]):
            return
        try:
            await self._settle(fault)
        except BaseException:
            if fault.kind == DARK:
                self._holds.add(hold, [fault])
            raise

    async def _settle(self, fault: Fault) -> None:
        async with self._turns[fault.node]:
            for _, step in self._steps.steps([fault]):
                await self.work(step)
                self._note(fault.node)

    async def revive(self, node: int) -> None:
        """Start a node that a fault has ended, unless another fault keeps it down."""
        async with self._turns[node]:
            for step in self._steps.start(node):
                await self.work(step)
                self._note(node)

    async def while_down(self, node: int, work: Callable[[int], object]) -> None:
        """Change the files of a node that the caller keeps down. CannotStrike if they cannot be reached."""
        async with self._turns[node]:
            if Fault(DARK, node) in self._holds:
                raise CannotStrike(f"the disk of node {node} has no power")
            await self.work(work, node)

    def lose_power(self, node_ids: Sequence[int]) -> None:
        """Take the power of the nodes' disks; a step."""
        for node in node_ids:
            self.disks[node].lose_power()

    def restore_power(self, node_id: int) -> None:
        """Give the node's disk its power back; a step."""
        self.disks[node_id].restore_power()

    @asynccontextmanager
    async def noted(self) -> AsyncIterator[None]:
        """Note the processes of the nodes in the ledger, because a paused process does not end with the harness. Sync the disks,
        so that they keep the layout of the cluster.
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
        """Note the current process of a node."""
        if self._ledger is None:
            return
        pid = self.cluster.pid(node)
        before = self._noted.get(node)
        if before is not None and before.pid != pid:
            self.ledger.drop(self._noted.pop(node))
        if pid is not None and node not in self._noted:
            entry = self.ledger.add_process(pid, f"node {node}")
            if entry is not None:
                self._noted[node] = entry

    # -- clocks --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def kept_wrong(self, nodes: Iterable[int], *, rate: float = 1.0, jump_s: float = 0.0) -> AsyncIterator[None]:
        """Let the clocks of the nodes jump ahead, and multiply their rate by `rate`. ClusterError."""
        hold = Hold(rate=rate)

        def settle(fault: Fault) -> None:
            for _, step in self._steps.steps([fault]):
                step()

        def right(fault: Fault) -> None:
            self._holds.drop(hold, [fault])
            settle(fault)

        with ExitStack() as held:
            for node in nodes:
                if jump_s:
                    self.cluster.clock(node).jump(jump_s)
                fault = Fault(WRONG_CLOCK, node)
                self._holds.add(hold, [fault])
                held.callback(right, fault)
                settle(fault)
            await trio.lowlevel.checkpoint()
            yield

    # -- links ---------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def kept_cut(self, links: Iterable[Link], *, reset: bool = False, drop: bool = False) -> AsyncIterator[None]:
        """Let nothing pass the links until no fault keeps them cut. With `reset` connections break; otherwise they seem alive,
        and waiting messages are delivered late, or never with `drop`.
        """
        hold, faults = Hold(reset=reset), [Fault(CUT, *link) for link in links]
        self._holds.add(hold, faults)
        try:
            await self._settle_links(faults)
            yield
        finally:
            freed = self._holds.drop(hold, faults)
            await undo_each(partial(self._settle_links, drop=drop), [freed])

    @asynccontextmanager
    async def kept_shaped(self, links: Iterable[Link], shape: LinkShape) -> AsyncIterator[None]:
        """Shape the messages of the links, in addition to other faults."""
        is_slow, is_lossy = shape.delay_ms or shape.jitter_ms, shape.loss or shape.duplicate or shape.reorder
        kinds = [kind for kind, is_wanted in ((SLOW, is_slow), (LOSSY, is_lossy)) if is_wanted]
        hold, faults = Hold(shape=shape), [Fault(kind, *link) for link in links for kind in kinds]
        self._holds.add(hold, faults)
        try:
            await self._settle_links(faults)
            yield
        finally:
            self._holds.drop(hold, faults)
            await undo_each(self._settle_links, [faults])

    async def _settle_links(self, faults: Sequence[Fault], *, drop: bool = False) -> None:
        async with self._links:
            for _, step in self._steps.steps(faults, drop=drop):
                await self.work(step)


async def each(work: Callable[[T], Awaitable[None]], things: Iterable[T]) -> None:
    """Do the work for all items concurrently; raise the first error when all are done."""
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
    """Undo all items, even if some fail or the caller is cancelled. CannotUndo."""
    with trio.CancelScope(shield=True):
        try:
            await each(undo, things)
        except Exception as error:
            raise CannotUndo(f"could not be undone: {error}") from error
