"""Keeps a majority of the voters whole while disks are damaged and voters change.

Theory of operation. Committed data are on a majority of the voters. A node whose log is damaged or replaced gets the data back
from a leader, which the others must elect. So no disk is damaged and no voter removed unless every voter set that may be in force
then has a majority of whole voters. Possible voter sets: those that the controllers report (each acts on its own log, committed
or not), and the results of changes in progress. A finished change may still be in the log of a node that has not answered since,
whatever its outcome. So both the earlier reports and the change count until all controllers have answered in one round. All
changes pass through this guard: those of a nemesis and those of a workload's clients.

Nodes that are down, paused or cut off count as whole: they return with all their data. A broker's metadata is a copy that the
quorum never needs. Not covered: voter sets that a node passes through while it catches up, and a set that goes from one node to
another and is truncated on the first while both are being asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import trio

from kraftlab.quorum.storage.file_system import FileSystem

from .damage import THIS_MACHINE, Damage, is_repairing
from .errors import CannotStrike

VoterIds = frozenset[int]
FindVoters = Callable[[], Awaitable[Mapping[int, VoterIds]]]
"""Asks all controllers concurrently; returns the voters in the log of each one that answers."""


class VoterChange:
    """A voter may join or leave. `ended_at`: None while the change is in progress."""

    __slots__ = ("ended_at", "leaves", "node")

    def __init__(self, node: int, leaves: bool) -> None:
        self.node, self.leaves = node, leaves
        self.ended_at: int | None = None


class VoterSets:
    """The voter sets that may be in force. Times are numbers that only order events."""

    def __init__(self, controllers: Collection[int]) -> None:
        self._controllers = frozenset(controllers)
        self._reported: set[VoterIds] = {self._controllers}
        self._changes: list[VoterChange] = []
        self._times = count()

    def begin(self, node: int, *, leaves: bool) -> VoterChange:
        """Note that the node may join or leave from now on."""
        change = VoterChange(node, leaves)
        self._changes.append(change)
        return change

    def end(self, change: VoterChange) -> None:
        """Note that no further request for the change will begin."""
        change.ended_at = next(self._times)

    def begin_query(self) -> int:
        """Return the time at which a round of questions begins."""
        return next(self._times)

    def end_query(self, begun_at: int, reported: Mapping[int, VoterIds]) -> None:
        """Note the voters by the controllers that answered in that round."""
        if reported.keys() >= self._controllers:
            self._reported.clear()
            self._changes = [change for change in self._changes if change.ended_at is None or change.ended_at > begun_at]
        self._reported.update(reported.values())

    def possible(self) -> set[VoterIds]:
        found = set(self._reported)
        for node, leaves in {(change.node, change.leaves) for change in self._changes}:
            found |= {voters - {node} if leaves else voters | {node} for voters in found}
        return found - {frozenset()}


def has_whole_majority(voters: VoterIds, weak: Collection[int]) -> bool:
    return len(voters.difference(weak)) > len(voters) // 2


class QuorumGuard:
    """The guard of one cluster: a LocalCluster, or any object with its `controller_ids` and `metadata_dir`. `files` returns the
    file system of a node, by default this machine's.
    """

    def __init__(
        self, cluster: Any, find_voters: FindVoters, files: Callable[[int], FileSystem] = lambda _: THIS_MACHINE
    ) -> None:
        self._cluster = cluster
        self.files = files
        self._find_voters = find_voters
        self._voters = VoterSets(cluster.controller_ids)
        self._held: Counter[int] = Counter()
        self._damage: dict[int, Damage] = {}
        self._turn = trio.Lock()

    @asynccontextmanager
    async def damaging(self, node: int) -> AsyncIterator[None]:
        """Reserve the disk of a node for damage: the quorum can spare its data meanwhile. CannotStrike otherwise."""
        async with self._turn:
            sets = await self._possible()
            weak = self._weak()
            if node in weak:
                raise CannotStrike(f"the log of node {node} is already damaged")
            _require_majorities((voters for voters in sets if node in voters), {*weak, node}, f"without the log of node {node}")
            self._held[node] += 1
        try:
            yield
        finally:
            self._held[node] -= 1

    def damaged(self, node: int, damage: Damage) -> None:
        """Mark the node as damaged until it has repaired itself."""
        self._damage[node] = damage

    @asynccontextmanager
    async def changing(self, node: int, *, leaves: bool) -> AsyncIterator[None]:
        """Allow a request that makes this controller a voter, or removes it if it `leaves`. CannotStrike if the result could be a
        voter set without a whole majority.

        A leader adds only a node that has caught up, so an empty disk does not count as damage here.
        """
        async with self._turn:
            sets = await self._possible()
            weak = self._weak()
            if not leaves and node not in self._damage:
                weak.discard(node)
            after = {voters - {node} if leaves else voters | {node} for voters in sets} - {frozenset()}
            _require_majorities(after, weak, f"{'without' if leaves else 'with'} node {node} among the voters")
            change = self._voters.begin(node, leaves=leaves)
        try:
            yield
        finally:
            self._voters.end(change)

    async def _possible(self) -> set[VoterIds]:
        begun_at = self._voters.begin_query()
        self._voters.end_query(begun_at, await self._find_voters())
        return self._voters.possible()

    def is_whole(self, node: int) -> bool:
        return node not in self._weak()

    def _weak(self) -> set[int]:
        """Return the controllers with logs that are damaged or about to be."""
        for node, damage in list(self._damage.items()):
            if not damage.is_there() and not is_repairing(self._cluster.metadata_dir(node), self.files(node)):
                del self._damage[node]
        return {*self._damage, *(node for node, holds in self._held.items() if holds)}


def _require_majorities(sets: Iterable[VoterIds], weak: Collection[int], what: str) -> None:
    """Raise CannotStrike unless each of the voter sets has a majority of whole voters."""
    for voters in sorted(sets, key=lambda voters: (len(voters), sorted(voters))):
        if not has_whole_majority(voters, weak):
            names = ",".join(map(str, sorted(voters)))
            raise CannotStrike(f"{what}, no majority of the voters {names} would be undamaged")
