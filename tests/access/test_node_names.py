"""Principals that name a node, and those that name a client."""

from __future__ import annotations

import pytest

from kraftlab.access.node_names import NodeNames
from kraftlab.common.peer_name import PeerName


@pytest.mark.parametrize(
    ("principal", "role", "node_id"),
    [
        ("User:controller-3000", "controller", 3000),
        ("User:broker-0", "broker", 0),
        ("User:broker-2147483647", "broker", 2**31 - 1),
        ("User:broker-2147483648", "", -1),
        ("User:broker-00", "", -1),
        ("User:broker-01", "", -1),
        ("User:broker--1", "", -1),
        ("User:broker-", "", -1),
        ("User:broker-٣", "", -1),
        ("User:broker-1\n", "", -1),
        ("User:broker-1 ", "", -1),
        ("User:Broker-1", "", -1),
        ("User:broker-1,O=x", "", -1),
        ("User:alice", "", -1),
        ("", "", -1),
    ],
)
def test_the_default_names_nodes_by_role_and_id(principal: str, role: str, node_id: int) -> None:
    assert NodeNames().name_of(principal) == PeerName(principal, role, node_id)


def test_other_principals_can_be_those_of_nodes() -> None:
    names = NodeNames("User:CN=c{id},O=lab; User:CN=b{id}.(x),O=lab")
    assert names.name_of("User:CN=b7.(x),O=lab") == PeerName("User:CN=b7.(x),O=lab", "broker", 7)
    assert names.name_of("User:CN=c7,O=lab").role == "controller"
    assert names.name_of("User:CN=b7xxx,O=lab").role == ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "expected the controllers' and the brokers' principal"),
        ("User:node-{id}", "expected the controllers' and the brokers' principal"),
        ("User:a-{id};User:b", "each with one {id}"),
        ("User:a-{id}{id};User:b-{id}", "each with one {id}"),
        ("a-{id};b-{id}", "expected the controllers' and the brokers' principal"),
        ("User:n-{id};User:n-{id}", "need different principals"),
        ("User:a-{id};User:b-{id};", "expected the controllers' and the brokers' principal"),
    ],
)
def test_a_text_that_names_no_two_principals_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        NodeNames(text)
