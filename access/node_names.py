"""Names of nodes: the principals that make a peer a controller or a broker with its id.

`kraftlab.node.principals` has two of them, for controllers and for brokers, with {id} where a node's id stands.
"""

from __future__ import annotations

import re

from kraftlab.common.peer_name import PeerName

DEFAULT = "User:controller-{id};User:broker-{id}"
ROLES = ("controller", "broker")
_ID = r"(0|[1-9][0-9]{0,9})"
_ID_MAX = 2**31 - 1


class NodeNames:
    """The principals of nodes, from the text of `kraftlab.node.principals`. ValueError names the fault."""

    def __init__(self, text: str = DEFAULT) -> None:
        templates = [part.strip() for part in text.split(";")]
        if len(templates) != len(ROLES) or any(part.count("{id}") != 1 or ":" not in part for part in templates):
            raise ValueError(f"expected the controllers' and the brokers' principal, each with one {{id}}, as in {DEFAULT}")
        if templates[0] == templates[1]:
            raise ValueError(f"controllers and brokers need different principals, as in {DEFAULT}")
        self._patterns = [re.compile(_ID.join(map(re.escape, part.split("{id}"))), re.DOTALL) for part in templates]

    def name_of(self, principal: str) -> PeerName:
        """Return the node that a principal names, or a client's name if it names none."""
        for role, pattern in zip(ROLES, self._patterns, strict=True):
            match = pattern.fullmatch(principal)
            if match is not None and int(match[1]) <= _ID_MAX:
                return PeerName(principal, role, int(match[1]))
        return PeerName(principal)
