"""Fetches that wait for something to tell: more log, a higher high watermark, the end of a leadership, or their own deadline.

A fetch is parked only when its sender already holds everything that is of use to it: a voter the whole log, an observer what is
committed. An append concerns the voters, a commit all of them; they are few (one per replica), so waking is a walk, in the order
of arrival. Deadlines sit in a heap with lazy deletion.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import msgspec

from .messages import FetchRequest
from .types import NEVER_MS, ReplicaKey


class ParkedFetch(msgspec.Struct, frozen=True, gc=False):
    """A request that will be answered under `correlation`. `committed_only`: an append is no news to its sender."""

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
        """Its sender has hung up."""
        self._parked.pop(correlation, None)

    def reseat(self, is_voter: Callable[[ReplicaKey], bool]) -> None:
        """The voters are others now, and with them those to whom an append is news."""
        for correlation, fetch in self._parked.items():
            committed_only = not is_voter(fetch.request.replica)
            self._parked[correlation] = msgspec.structs.replace(fetch, committed_only=committed_only)

    def take_all(self) -> list[ParkedFetch]:
        """Everybody leaves, in the order of arrival."""
        fetches = list(self._parked.values())
        self._parked.clear()
        self._deadlines.clear()
        return fetches

    def hasten_behind(self, high_watermark: int, deadline_ms: int) -> None:
        """Those whose sender does not know of `high_watermark` wait no longer than `deadline_ms`."""
        for correlation, fetch in self._parked.items():
            if fetch.request.high_watermark < high_watermark:
                heappush(self._deadlines, (deadline_ms, correlation))

    def take_awaiting_records(self) -> list[ParkedFetch]:
        """Those to whom an append is news."""
        fetches = [fetch for fetch in self._parked.values() if not fetch.committed_only]
        for fetch in fetches:
            del self._parked[fetch.correlation]
        return fetches

    def take_behind(self, high_watermark: int, *, committed_only: bool = False) -> list[ParkedFetch]:
        """Those whose sender does not know of `high_watermark`; of these, perhaps, only who waits for commits alone."""
        fetches = [
            fetch
            for fetch in self._parked.values()
            if fetch.request.high_watermark < high_watermark and (fetch.committed_only or not committed_only)
        ]
        for fetch in fetches:
            del self._parked[fetch.correlation]
        return fetches

    def take_expired(self, now_ms: int) -> list[ParkedFetch]:
        """Those whose wait is over."""
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
