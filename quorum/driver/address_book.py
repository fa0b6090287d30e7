"""The endpoints of the quorum's nodes, and those that turned out to belong to another cluster.

The core knows the voters, the leader and a node that is about to become a voter. The bootstrap endpoints of the configuration are
for a node that knows no other nodes. They are used beside the known nodes as well, which may all have been replaced, or have
moved, while this node was away.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kraftlab.common.endpoint import Endpoint

from ..core.effects import ANYBODY
from ..core.types import VoterSet


class AddressBook:
    """`endpoints_of(node_id)` and `voters` return the core's current knowledge."""

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
        self._met: dict[Endpoint, int] = {}
        """By endpoint of a controller, the node that answered this node there."""

    def find(self, node_id: int) -> Endpoint | None:
        """Return the endpoint of a node; for ANYBODY, a random voter or bootstrap endpoint other than this node's own."""
        if node_id != ANYBODY:
            return self._endpoints_of(node_id).get(self._listener)
        return self._random.choice(candidates) if (candidates := sorted(self.members(), key=str)) else None

    def members(self) -> set[Endpoint]:
        """Return every endpoint of another possible member of the quorum."""
        voters = (voter.endpoints.get(self._listener) for voter in self._voters().voters)
        return {endpoint for endpoint in (*voters, *self._bootstrap) if endpoint is not None and endpoint != self._own}

    def note_stranger(self, endpoint: Endpoint) -> bool:
        """Note that a node of another cluster answers there. Return True if that is new."""
        is_news = endpoint not in self._strangers
        self._strangers.add(endpoint)
        return is_news

    def note_member(self, endpoint: Endpoint, node_id: int) -> None:
        """Note that this node of this cluster answers there."""
        if self._strangers:
            self._strangers.discard(endpoint)
        if self._met.get(endpoint) != node_id and endpoint in self.members():
            self._met[endpoint] = node_id

    def has_met(self, node_id: int) -> bool:
        """Return True if that node answered at the endpoint of a voter, or at one of the configuration."""
        return node_id in self._met.values()

    def strangers_in_majority(self) -> list[Endpoint]:
        """Return the endpoints of strangers if this cluster is left without a majority of all endpoints; otherwise none."""
        members = self.members()
        strangers = sorted(self._strangers & members, key=str)
        is_one_of_them = self._own is not None and any(
            voter.endpoints.get(self._listener) == self._own for voter in self._voters().voters
        )
        return strangers if 2 * len(strangers) > len(members) + is_one_of_them else []
