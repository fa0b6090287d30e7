"""Senders of peer requests: which node may send a request in whose name.

Theory of operation. The sender of a connection is fixed (`transport.py`). Most requests name a node as well: the candidate of a
vote, the replica of a fetch, the broker of a heartbeat. A row says how to find that id in a request, and it has to be the
sender's. So nobody speaks for a node on a connection of another one. Under TLS the sender has proven its role, and only the role
of the row may send the request. Without TLS the sender itself is only a claim: the receiver knows its voters, registered
controllers and brokers, and decides by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .transport import PeerError, PeerRequest

CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST = 31, 42
"""Kafka's numbers."""
CONTROLLER, BROKER, NODE, CLIENT = "controller", "broker", "controller or broker", "anybody"
_ROLES = {CONTROLLER: (CONTROLLER,), BROKER: (BROKER,), NODE: (CONTROLLER, BROKER, ""), CLIENT: (CONTROLLER, BROKER, "")}
"""Proven roles that may send the requests of a row. A client may ask what a node asks of the metadata log, with rights and
without a node's name.
"""
UNNAMED = -1
"""Node id in a request that names no node."""


class SenderRule(NamedTuple):
    """`role` may send the request. `field` is the path to the node id in it, "" if it names none. None: no peer sends it."""

    role: str
    field: str | None = ""


def named_node(rule: SenderRule, request: object) -> int:
    """Return the id of the node that the request names; UNNAMED if it names none."""
    found = request
    for name in rule.field.split(".") if rule.field else ():
        found = getattr(found, name)
        if found is None:
            return UNNAMED
    return found if rule.field and isinstance(found, int) else UNNAMED


def check_sender(rules: Mapping[int, SenderRule], peer_request: PeerRequest, request: object) -> None:
    """PeerError INVALID_REQUEST if the request names another node than its sender. A request of a node needs a node as sender."""
    rule, sender = rules[peer_request.api], peer_request.sender.node_id
    if rule.field is None:
        raise PeerError(INVALID_REQUEST, f"api {peer_request.api} is not for peers; use the admin API")
    if rule.role in (CONTROLLER, BROKER) and sender < 0:
        raise PeerError(INVALID_REQUEST, f"only a {rule.role} sends api {peer_request.api}, and the sender names no node")
    if peer_request.role is not None and peer_request.role not in _ROLES[rule.role]:
        proven = peer_request.role or peer_request.principal
        raise PeerError(CLUSTER_AUTHORIZATION_FAILED, f"only a {rule.role} sends api {peer_request.api}, and this is {proven}")
    named = named_node(rule, request)
    if named not in (UNNAMED, sender):
        raise PeerError(INVALID_REQUEST, f"api {peer_request.api} names node {named}, but node {sender} sends it")
