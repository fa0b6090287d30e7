"""Sees to it that a majority of those who vote stays whole while disks are damaged and voters change.

Theory of operation. What is committed is on a majority of the voters, and a node whose log is damaged or replaced gets it back
from a leader, which the others have to elect. So no disk is damaged and no voter is taken out unless every voter set that may be
in force then has a majority of whole voters. Which may be: those that the controllers say (each acts on what its own log says,
committed or not), and whatever these become by changes that are under way. A change that has ended may still stand in the log of
a node that did not answer since, whatever came of it; so both, what was said before and the change, count until all controllers
have answered in one round. All changes pass here: those that a nemesis makes, and those that clients of a workload ask for.

Nodes that are down, stand still or are cut off count as whole: they come back with all that they had. A broker's metadata is a
copy, without which the quorum does at any time. Not seen: the voters that a node passes through while it catches up, and a set
that goes from one node to another and is cut away from the first while the two are being asked.
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
"""Asks all controllers at the same time who votes; has those that answer, with the voters in their own logs."""


class Change:
    """One voter joins or leaves, perhaps. `ended_at`: None as long as it is under way."""

    __slots__ = ("ended_at", "leaves", "node")

    def __init__(self, node: int, leaves: bool) -> None:
        self.node, self.leaves = node, leaves
        self.ended_at: int | None = None


class VoterSets:
    """Which voter sets may be in force. Times are numbers that only order what happens."""

    def __init__(self, controllers: Collection[int]) -> None:
        self._controllers = frozenset(controllers)
        self._said: set[VoterIds] = {self._controllers}
        self._changes: list[Change] = []
        self._times = count()

    def begin(self, node: int, *, leaves: bool) -> Change:
        """From now on that node may join, or leave."""
        change = Change(node, leaves)
        self._changes.append(change)
        return change

    def end(self, change: Change) -> None:
        """Nobody begins any more to carry it out."""
        change.ended_at = next(self._times)

    def ask(self) -> int:
        """When a round of questions begins."""
        return next(self._times)

    def hear(self, asked_at: int, said: Mapping[int, VoterIds]) -> None:
        """The voters by the controllers that answered in that round."""
        if said.keys() >= self._controllers:
            self._said.clear()
            self._changes = [change for change in self._changes if change.ended_at is None or change.ended_at > asked_at]
        self._said.update(said.values())

    def possible(self) -> set[VoterIds]:
        found = set(self._said)
        for node, leaves in {(change.node, change.leaves) for change in self._changes}:
            found |= {voters - {node} if leaves else voters | {node} for voters in found}
        return found - {frozenset()}


def has_whole_majority(voters: VoterIds, weak: Collection[int]) -> bool:
    return len(voters.difference(weak)) > len(voters) // 2


class QuorumGuard:
    """Of one cluster under faults: a LocalCluster, or what has its `controller_ids` and `metadata_dir`. `files` gives those of a
    node, this machine's if not given.
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
        """While this lasts the quorum can do without what this node's disk holds. CannotStrike if it could not."""
        async with self._turn:
            sets = await self._possible()
            weak = self._weak()
            if node in weak:
                raise CannotStrike(f"the log of node {node} is not whole as it is")
            _demand((voters for voters in sets if node in voters), {*weak, node}, f"without the log of node {node}")
            self._held[node] += 1
        try:
            yield
        finally:
            self._held[node] -= 1

    def damaged(self, node: int, damage: Damage) -> None:
        """It is so until the node has repaired itself."""
        self._damage[node] = damage

    @asynccontextmanager
    async def changing(self, node: int, *, leaves: bool) -> AsyncIterator[None]:
        """Meanwhile somebody asks the quorum to make this controller a voter, or none if it `leaves`. CannotStrike if that could
        leave voters of which no majority is whole.

        A leader lets nobody join that has not caught up, so an empty disk is none that lacks anything by then.
        """
        async with self._turn:
            sets = await self._possible()
            weak = self._weak()
            if not leaves and node not in self._damage:
                weak.discard(node)
            after = {voters - {node} if leaves else voters | {node} for voters in sets} - {frozenset()}
            _demand(after, weak, f"{'without' if leaves else 'with'} node {node} among the voters")
            change = self._voters.begin(node, leaves=leaves)
        try:
            yield
        finally:
            self._voters.end(change)

    async def _possible(self) -> set[VoterIds]:
        asked_at = self._voters.ask()
        self._voters.hear(asked_at, await self._find_voters())
        return self._voters.possible()

    def is_whole(self, node: int) -> bool:
        return node not in self._weak()

    def _weak(self) -> set[int]:
        """Controllers whose logs are not whole, or may not be in a moment."""
        for node, damage in list(self._damage.items()):
            if not damage.is_there() and not is_repairing(self._cluster.metadata_dir(node), self.files(node)):
                del self._damage[node]
        return {*self._damage, *(node for node, holds in self._held.items() if holds)}


def _demand(sets: Iterable[VoterIds], weak: Collection[int], what: str) -> None:
    """CannotStrike unless each of the voter sets has a majority of whole voters."""
    for voters in sorted(sets, key=lambda voters: (len(voters), sorted(voters))):
        if not has_whole_majority(voters, weak):
            names = ",".join(map(str, sorted(voters)))
            raise CannotStrike(f"{what}, no majority of the voters {names} would be whole")
