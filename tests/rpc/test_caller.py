"""The address of a client, as gRPC names its peer."""

from __future__ import annotations

import pytest

from kraftlab.rpc.caller import host_of


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:44122", "127.0.0.1"),
        ("ipv6:%5B::1%5D:57956", "::1"),
        ("ipv6:[2001:db8::7]:57956", "2001:db8::7"),
        ("ipv6:%5Bfe80::1%25eth0%5D:5", "fe80::1%eth0"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:5", "10.0.0.1"),
        ("unix:", ""),
        ("", ""),
    ],
)
def test_the_address_of_a_peer_is_its_name_without_family_and_port(peer: str, host: str) -> None:
    assert host_of(peer) == host
