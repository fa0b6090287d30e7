"""A test of a network: packets pass, except on a link that is cut.

As a program (`python -m jepsen_lite.faults.networks.probe`) it makes a network for the test and prints the result or the
error.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kraftlab.lab import ClusterError, namespaces
from kraftlab.lab.links.shape import Cut

from ..ledger import Ledger, NotUndone
from .network import HeldNetwork, own_network

_PORT = 7
_PATIENCE_S = 5.0


@contextmanager
def datagrams(network: HeldNetwork, source: int, target: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield (a socket that sends to the target, a socket that receives there). OSError."""
    with ExitStack() as stack:
        sending, receiving = (
            stack.enter_context(namespaces.socket_in(network.namespace(node), socket.SOCK_DGRAM)) for node in (source, target)
        )
        for end in (sending, receiving):
            end.settimeout(_PATIENCE_S)
        receiving.bind((network.host(target), _PORT))
        sending.connect((network.host(target), _PORT))
        yield sending, receiving


def try_out(network: HeldNetwork, source: int, target: int) -> None:
    """Test a link. ClusterError if packets do not pass, or pass a cut link. A lost packet is noticed by the arrival of a later
    one, without waiting.
    """
    with datagrams(network, source, target) as (sending, receiving), datagrams(network, target, source) as (answering, hearing):
        for sent in (b"before", b"cut", b"after"):
            if sent == b"cut":
                network.cut([(source, target)], Cut.HOLD)
            sending.send(sent)
            if sent == b"cut":
                answering.send(sent)
                _expect(sent, hearing, "the other way round")
                network.heal_all(drop=True)
            else:
                _expect(sent, receiving, "a link that is whole")


def _expect(sent: bytes, receiving: socket.socket, where: str) -> None:
    try:
        received = receiving.recv(64)
    except TimeoutError:
        raise ClusterError(f"a packet sent {sent.decode()} a cut did not arrive within {_PATIENCE_S:g} s ({where})") from None
    if received != sent:
        raise ClusterError(f"a packet sent {received.decode()} a cut arrived instead of one sent {sent.decode()} a cut ({where})")


def main() -> str:
    """Return the result. ClusterError, OSError, NotUndone."""
    own_network()
    with Ledger() as ledger, HeldNetwork((1, 2), ledger) as network:
        try_out(network, 1, 2)
    return "packets passed between two namespaces, and none where the link was cut"


if __name__ == "__main__":
    try:
        print(main())
    except (OSError, ClusterError, NotUndone) as error:
        sys.exit(str(error))
