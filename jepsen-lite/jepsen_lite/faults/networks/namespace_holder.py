"""The process that holds a network: it makes the network, changes it on order, and takes it away when it ends.

Theory of operation. Namespaces here have no names: the holder has each of them open as a file, through which others get in
(`/proc/PID/fd/N`). Devices live in those namespaces, or belong to a file of the holder. So nothing has to be removed: when the
holder ends, however it ends, the kernel takes all of it away as soon as the last node has ended too. The holder ends when its
standard input does, and so with whoever started it. Orders and answers are lines of JSON.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from kraftlab.lab import namespaces

from .addresses import OBSERVER, CannotMake, Change, Place, Reply, Setup, places

_READ_BYTES = 1 << 16
_decode = msgspec.json.Decoder(Change).decode
_encode = msgspec.json.Encoder().encode


class Held(Protocol):
    """A network that stands."""

    @property
    def descriptors(self) -> Iterable[int]:
        """What has frames for it when it can be read."""

    def ready(self, descriptor: int) -> None:
        """That one can be read."""

    def pause_s(self) -> float | None:
        """How long nothing needs to be done; None: until something can be read."""

    def deliver(self) -> None:
        """Does what is due."""

    def change(self, change: Change) -> None:
        """CannotMake."""

    def close(self) -> None:
        """Removes what would be there for a moment after this process."""


Make = Callable[[Mapping[int, Place], Mapping[int, str], int], Held]
"""From places, paths of the namespaces of all who take part, and a seed. Called in a namespace of its own, and returns there.
CannotMake, OSError.
"""


def hold(make: Make) -> None:
    """The life of a holder: until standard input ends."""
    with _standing(make) as held:
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
def _standing(make: Make) -> Iterator[Held | None]:
    """The network that the first line asks for; None if it cannot be had."""
    setup = msgspec.json.decode(_first_line(), type=Setup)
    try:
        paths = {node: _new_namespace() for node in setup.nodes}
        namespaces.enter_new()
        everybody = {**paths, OBSERVER: setup.observer} if setup.observer else paths
        held = make(places(setup.nodes), everybody, setup.seed)
    except (CannotMake, OSError) as error:
        _say(Reply(error=str(error)))
        yield None
        return
    _say(Reply(namespaces=paths))
    try:
        yield held
    finally:
        held.close()


def _new_namespace() -> str:
    """Where this process is afterwards; the path is for all processes, as long as this one lives."""
    namespaces.enter_new()
    return f"/proc/{os.getpid()}/fd/{os.open(namespaces.OWN, os.O_RDONLY | os.O_CLOEXEC)}"


class _Orders:
    """What comes on standard input."""

    def __init__(self) -> None:
        self._rest = b""

    def carry_out(self, held: Held) -> bool:
        """Those that have come; False if no more will."""
        data = os.read(0, _READ_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                held.change(_decode(line))
            except (CannotMake, OSError) as error:
                _say(Reply(error=str(error)))
            else:
                _say(Reply())
        return bool(data)


def _first_line() -> bytes:
    """Read without taking more than it: nothing follows until it is answered."""
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(0, _READ_BYTES)
        if not data:
            sys.exit(0)
        line += data
    return line


def _say(reply: Reply) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, _encode(reply) + b"\n")
