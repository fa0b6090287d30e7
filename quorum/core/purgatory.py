"""Fetches that wait for news: more log, a higher high watermark, the end of a leadership, or their deadline.

A fetch is parked only when its sender already holds everything of use to it: a voter the whole log, an observer the committed
part. An append is news for voters, a commit for all. Replicas are few, so waking is a walk in the order of arrival. Deadlines are
in a heap with lazy deletion.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import msgspec

from kraftlab.common.replica_key import ReplicaKey

from .messages import FetchRequest
from .types import NEVER_MS


class ParkedFetch(msgspec.Struct, frozen=True, gc=False):
    """A request that is answered under `correlation`. `committed_only`: its sender does not need uncommitted records."""

    correlation: int
    request: FetchRequest
    committed_only: bool = False


class FetchPurgatory:
    """Parked fetches by correlation."""

    __slots__ = ("_deadlines", "_parked")

    def __init__(self) -> None:
        self._parked: dict[int, ParkedFetch] = {}
        self._deadlines: list[tuple[int, int]] = []

    def park(self, fetch: ParkedFetch, deadline_ms: int) -> None:
        self._parked[fetch.correlation] = fetch
        heappush(self._deadlines, (deadline_ms, fetch.correlation))

    def discard(self, correlation: int) -> None:
        """Drop a fetch whose sender has closed its connection."""
        self._parked.pop(correlation, None)

    def reseat(self, is_voter: Callable[[ReplicaKey], bool]) -> None:
        """Recompute `committed_only` of each fetch after a change of the voters."""
        for correlation, fetch in self._parked.items():
            committed_only = not is_voter(fetch.request.replica)
            self._parked[correlation] = msgspec.structs.replace(fetch, committed_only=committed_only)

    def take_all(self) -> list[ParkedFetch]:
        """Remove and return all fetches, in the order of arrival."""
        fetches = list(self._parked.values())
        self._parked.clear()
        self._deadlines.clear()
        return fetches

    def hasten_behind(self, high_watermark: int, deadline_ms: int) -> None:
        """Lower the deadline of fetches whose sender does not know `high_watermark` to at most `deadline_ms`."""
        for correlation, fetch in self._parked.items():
            if fetch.request.high_watermark < high_watermark:
                heappush(self._deadlines, (deadline_ms, correlation))

    def take_awaiting_records(self) -> list[ParkedFetch]:
        """Remove and return the fetches for which an append is news."""
        fetches = [fetch for fetch in self._parked.values() if not fetch.committed_only]
        for fetch in fetches:
            del self._parked[fetch.correlation]
        return fetches

    def take_behind(self, high_watermark: int, *, committed_only: bool = False) -> list[ParkedFetch]:
        """Remove and return the fetches whose sender does not know `high_watermark`; perhaps only those with `committed_only`."""
        fetches = [
            fetch
            for fetch in self._parked.values()
            if fetch.request.high_watermark < high_watermark and (fetch.committed_only or not committed_only)
        ]
        for fetch in fetches:
            del self._parked[fetch.correlation]
        return fetches

    def take_expired(self, now_ms: int) -> list[ParkedFetch]:
        """Remove and return the fetches whose deadline has passed."""
        fetches: list[ParkedFetch] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ms:
            fetch = self._parked.pop(heappop(deadlines)[1], None)
            if fetch is not None:
                fetches.append(fetch)
        return fetches

    def next_deadline_ms(self) -> int:
        deadlines, parked = self._deadlines, self._parked
        while deadlines and deadlines[0][1] not in parked:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else NEVER_MS

    def __len__(self) -> int:
        return len(self._parked)
