"""The run's side of a network that a holder holds: the places of nodes and the states of links.

The harness can take part: its clients then reach nodes over the same switch, and faults of links do not affect them. For that it
moves into a network namespace of its own (`own_network`), once and for good, so nothing of this machine's network changes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType

import msgspec

from kraftlab.lab import ClusterError, namespaces
from kraftlab.lab.links.network import Links
from kraftlab.lab.links.shape import PLAIN, Cut, LinkShape

from ..ledger import Ledger
from .addresses import PLACES_MAX, CannotMake, LinkChange, LinkState, Place, Reply, Setup, ip, places

_END_WITHIN_S = 10.0
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Reply).decode


@functools.cache
def own_network() -> str:
    """Move this process, which must have one thread, into a network namespace of its own; return the path of the namespace.
    ClusterError.

    All processes started later are in that namespace as well. It has a loopback device, and later the devices of networks made
    with this path as `observer`. A process that does not run as root first becomes root in a user namespace.
    """
    try:
        if not namespaces.is_alone():
            raise CannotMake("this process has several threads, which cannot move together; start a new process")
        try:
            namespaces.enter_new()
        except PermissionError:
            namespaces.become_root()
            namespaces.enter_new()
        ip("link set dev lo up")
    except (OSError, CannotMake) as error:
        raise ClusterError(f"cannot have a network of its own: {error}; see kraftlab chaos doctor") from error
    return f"/proc/{os.getpid()}/ns/net"


class HeldNetwork:
    """The `kraftlab.lab.links.network.Network` of these nodes. `observer`: the namespace of the harness, if it takes part.
    Thread-safe. ClusterError if the network cannot be made or changed.
    """

    def __init__(self, nodes: Iterable[int], ledger: Ledger, *, seed: int = 0, observer: str = "") -> None:
        setup = Setup(tuple(nodes), observer, seed)
        if len(setup.nodes) > PLACES_MAX:
            raise ClusterError(f"{len(setup.nodes)} nodes are too many for a network of their own; take {PLACES_MAX} at most")
        self._places = places(setup.nodes)
        self._states: dict[tuple[int, int], LinkState] = {}
        self._turn = threading.Lock()
        self._ledger = ledger
        self._holder = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.namespace_holder"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._entry = ledger.add_process(self._holder.pid, "network")
        try:
            self._namespaces = self._request(setup).namespaces
        except BaseException:
            self.close()
            raise

    def host(self, node_id: int) -> str:
        return self._place(node_id).address

    def namespace(self, node_id: int) -> str:
        self._place(node_id)
        return self._namespaces[node_id]

    def _place(self, node_id: int) -> Place:
        try:
            return self._places[node_id]
        except KeyError:
            raise ClusterError(f"node {node_id} is not one of the nodes of this network") from None

    def cut(self, pairs: Links, cut: Cut) -> None:
        self._change(pairs, lambda state: msgspec.structs.replace(state, cut=cut.value))

    def heal(self, pairs: Links, *, drop: bool = False) -> None:
        self._change(pairs, lambda state: LinkState(state.source, state.target), drop=drop)

    def shape(self, pairs: Links, shape: LinkShape) -> None:
        self._change(pairs, lambda state: msgspec.structs.replace(state, shape=shape))

    def heal_all(self, *, drop: bool = False) -> None:
        self.heal(list(self._states), drop=drop)

    def _change(self, pairs: Links, change: Callable[[LinkState], LinkState], *, drop: bool = False) -> None:
        with self._turn:
            states = [change(self._states.get(pair) or LinkState(*pair)) for pair in dict.fromkeys(pairs)]
            for state in states:
                self._place(state.source), self._place(state.target)
            if not states:
                return
            self._request(LinkChange(tuple(states), drop))
            self._states.update({state.link: state for state in states})
            self._states = {link: state for link, state in self._states.items() if state.cut is not None or state.shape != PLAIN}

    def _request(self, order: Setup | LinkChange) -> Reply:
        assert self._holder.stdin is not None and self._holder.stdout is not None, "stdin and stdout are pipes"
        try:
            self._holder.stdin.write(_encode(order) + b"\n")
            self._holder.stdin.flush()
            line = self._holder.stdout.readline()
        except (OSError, ValueError):
            line = b""
        if not line:
            raise ClusterError(f"the process of the network ({self._holder.pid}) has ended; see its message above")
        reply = _decode(line)
        if reply.error:
            raise ClusterError(f"the network: {reply.error}")
        return reply

    def close(self) -> None:
        """Remove the network and everything that it has made."""
        assert self._holder.stdin is not None and self._holder.stdout is not None, "stdin and stdout are pipes"
        with contextlib.suppress(BrokenPipeError):
            self._holder.stdin.close()
        try:
            self._holder.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait()
        self._holder.stdout.close()
        if self._entry is not None:
            self._ledger.drop(self._entry)
            self._entry = None

    def __enter__(self) -> HeldNetwork:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
