"""Where the nodes of the quorum are reached, and which of those places have turned out to belong to another cluster.

The core knows voters, the leader and whoever is about to become a voter. The bootstrap endpoints of the configuration are where a
node asks as long as it knows nobody, and beside the nodes it knows: those may all have been replaced, or have moved, while it was
away.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ..core.effects import ANYBODY
from ..core.types import Endpoint, VoterSet


class AddressBook:
    """`endpoints_of(node_id)` and `voters` are the core's knowledge at the time of asking."""

    def __init__(
        self,
        listener: str,
        own: Endpoint | None,
        bootstrap: tuple[Endpoint, ...],
        endpoints_of: Callable[[int], dict[str, Endpoint]],
        voters: Callable[[], VoterSet],
        source: random.Random,
    ) -> None:
        self._listener = listener
        self._own = own
        self._bootstrap = bootstrap
        self._endpoints_of = endpoints_of
        self._voters = voters
        self._random = source
        self._strangers: set[Endpoint] = set()

    def find(self, node_id: int) -> Endpoint | None:
        """Where to reach a node; ANYBODY is any voter or bootstrap endpoint but this node's own."""
        if node_id != ANYBODY:
            return self._endpoints_of(node_id).get(self._listener)
        return self._random.choice(candidates) if (candidates := sorted(self.everybody(), key=str)) else None

    def everybody(self) -> set[Endpoint]:
        """Every other place where a member of the quorum is, or may be."""
        voters = (voter.endpoints.get(self._listener) for voter in self._voters().voters)
        return {endpoint for endpoint in (*voters, *self._bootstrap) if endpoint is not None and endpoint != self._own}

    def note_stranger(self, endpoint: Endpoint) -> bool:
        """A node of another cluster answers there: True if that is news."""
        is_news = endpoint not in self._strangers
        self._strangers.add(endpoint)
        return is_news

    def note_member(self, endpoint: Endpoint) -> None:
        """A node of this cluster answers there, whoever did before."""
        if self._strangers:
            self._strangers.discard(endpoint)

    def strangers_in_majority(self) -> list[Endpoint]:
        """The places of strangers if, with this node, they leave no majority of all places to its cluster; else none."""
        everybody = self.everybody()
        strangers = sorted(self._strangers & everybody, key=str)
        is_one_of_them = self._own is not None and any(
            voter.endpoints.get(self._listener) == self._own for voter in self._voters().voters
        )
        return strangers if 2 * len(strangers) > len(everybody) + is_one_of_them else []
