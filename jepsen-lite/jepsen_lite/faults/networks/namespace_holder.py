"""The process that holds a network: it makes the network, changes it on request, and removes it when it ends.

Theory of operation. The namespaces have no names: the holder keeps each of them open as a file, through which others enter
(`/proc/PID/fd/N`). Devices live in those namespaces or belong to a file of the holder. So nothing has to be removed: when the
holder ends, however it ends, the kernel removes everything as soon as the last node has ended too. The holder ends when its
standard input ends, and so with its parent. Requests and answers are lines of JSON.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
from collections.abc import Iterator

import msgspec

from kraftlab.common.exit_codes import DONE
from kraftlab.lab import namespaces

from .addresses import OBSERVER, CannotMake, LinkChange, Reply, Setup, places
from .tap_network import TapNetwork

_READ_BYTES = 1 << 16
_decode = msgspec.json.Decoder(LinkChange).decode
_encode = msgspec.json.Encoder().encode


def hold() -> None:
    """Run the holder until standard input ends."""
    with _held_network() as held:
        if held is None:
            return
        orders = _Orders()
        with selectors.DefaultSelector() as selector:
            for descriptor in (0, *held.descriptors):
                selector.register(descriptor, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(held.pause_s()):
                    if key.fd:
                        held.ready(key.fd)
                    elif not orders.carry_out(held):
                        return
                held.deliver()


@contextlib.contextmanager
def _held_network() -> Iterator[TapNetwork | None]:
    """Make the network that the first line requests; yield None if that fails."""
    setup = msgspec.json.decode(_first_line(), type=Setup)
    try:
        paths = {node: _new_namespace() for node in setup.nodes}
        namespaces.enter_new()
        all_paths = {**paths, OBSERVER: setup.observer} if setup.observer else paths
        held = TapNetwork(places(setup.nodes), all_paths, setup.seed)
    except (CannotMake, OSError) as error:
        _send(Reply(error=str(error)))
        yield None
        return
    _send(Reply(namespaces=paths))
    try:
        yield held
    finally:
        held.close()


def _new_namespace() -> str:
    """Enter a new namespace and return its path, which is valid for all processes as long as this one lives."""
    namespaces.enter_new()
    return f"/proc/{os.getpid()}/fd/{os.open(namespaces.OWN, os.O_RDONLY | os.O_CLOEXEC)}"


class _Orders:
    """Requests on standard input."""

    def __init__(self) -> None:
        self._rest = b""

    def carry_out(self, held: TapNetwork) -> bool:
        """Apply the requests that have arrived; return False at the end of the input."""
        data = os.read(0, _READ_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                held.change(_decode(line))
            except (CannotMake, OSError) as error:
                _send(Reply(error=str(error)))
            else:
                _send(Reply())
        return bool(data)


def _first_line() -> bytes:
    """Read the first line and nothing more: the harness sends nothing until it is answered."""
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(0, _READ_BYTES)
        if not data:
            sys.exit(DONE)
        line += data
    return line


def _send(reply: Reply) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, _encode(reply) + b"\n")


if __name__ == "__main__":
    hold()
