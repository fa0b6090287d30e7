"""The address of a client, as gRPC's peer tells it."""

from __future__ import annotations

import pytest

from kraftlab.rpc.front_door import host_of


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("unix-abstract:kraftlab-7-ab-3-from-127.0.0.1", "127.0.0.1"),
        ("unix-abstract:kraftlab-7-ab-3-from-%3A%3A1", "::1"),
        ("unix-abstract:kraftlab-7-ab-3-from-::ffff:10.0.0.1", "10.0.0.1"),
        ("unix:/tmp/kraftlab-x/grpc-12-from-10.1.2.3", "10.1.2.3"),
        ("unix:", ""),
    ],
)
def test_the_address_stands_at_the_end_of_the_peers_name(peer: str, host: str) -> None:
    assert host_of(peer) == host
