"""The proxy of one node, on the port that other nodes know.

Theory of operation. Other nodes connect to the proxy's port. Their first frame names the sender, and with it the two links of the
connection: from the sender to the node for requests, and back for answers. Only then the proxy connects to the node. Under TLS an
introduction takes the place of that frame (`introduction.py`).

A port that refuses shows that a process has gone, and nodes act on that at once. So the proxy listens only while its node does:
it checks when a connection to the node ends or is refused, and then until the node is back. While a link of the node is cut the
proxy listens in any case, since a node that is cut off must not learn even that.

A held link can gather connections that their openers have abandoned: the oldest beyond `HELD_CONNECTIONS_MAX` are reset.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import struct
from collections.abc import Callable

import trio

from kraftlab.wire.frames import FrameError

from .frame_splitter import FrameSplitter, Splitter
from .link import Link, Pipe

logger = logging.getLogger("kraftlab.links")

HELD_CONNECTIONS_MAX = 32
_TRY_S = 0.02
_TRY_S_MAX = 0.1
_PATIENCE_S = 0.5
_WARNINGS_MAX = 100
_RESET = struct.pack("ii", 1, 0)

Links = Callable[[int, int], Link]


class NodeProxy:
    """`links(source, target)` returns a link; `has_cuts(node_id)` is True if one of the node's links is cut. Each direction of a
    connection has a splitter of its own.
    """

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        node_port: int,
        links: Links,
        has_cuts: Callable[[int], bool],
        splitter: Callable[[], Splitter] = FrameSplitter,
    ) -> None:
        self.node_id = node_id
        self.splitter = splitter
        self._host = host
        self._port = port
        self._node_port = node_port
        self._links = links
        self._has_cuts = has_cuts
        self._listening = trio.CancelScope()
        self._warned_of: set[str] = set()
        self._wanted = trio.Event()
        self._looked = trio.Event()

    async def serve(self) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            while True:
                while not self._wanted.is_set():
                    await self._wanted.wait()
                with trio.CancelScope() as self._listening:
                    await self._listen(nursery)

    async def _watch(self) -> None:
        """Decide whether to listen, after each possible change."""
        pause_s = _TRY_S
        while True:
            self._looked = trio.Event()
            if self._has_cuts(self.node_id) or await self._node_listens():
                self._wanted.set()
                await self._looked.wait()
                pause_s = _TRY_S
            else:
                if self._wanted.is_set():
                    self._wanted = trio.Event()
                    self._listening.cancel()
                with trio.move_on_after(pause_s):
                    await self._looked.wait()
                pause_s = min(1.2 * pause_s, _TRY_S_MAX)

    def look(self) -> None:
        """Check again if the node listens, since it may have gone, or links have changed."""
        self._looked.set()

    async def _listen(self, nursery: trio.Nursery) -> None:
        try:
            listeners = await trio.open_tcp_listeners(self._port, host=self._host)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            logger.warning("the proxy of node %d cannot listen on port %d, which is in use", self.node_id, self._port)
            await trio.sleep(1)
            return
        await trio.serve_listeners(self._accepted, listeners, handler_nursery=nursery)

    async def _node_listens(self) -> bool:
        """Return True unless the node's port refuses a connection; a paused node may let the connection wait."""
        with trio.move_on_after(_PATIENCE_S):
            try:
                (await self.connect()).close()
            except OSError:
                return False
        return True

    async def connect(self) -> socket.socket:
        """Connect to the node itself. OSError."""
        connecting = trio.socket.socket()
        try:
            await connecting.connect((self._host, self._node_port))
            return _prepared(connecting)
        finally:
            connecting.close()

    def warn_of(self, carried: str) -> None:
        """Log the reason of a reset, each reason once: a client of the wrong port tries many times."""
        if carried not in self._warned_of and len(self._warned_of) < _WARNINGS_MAX:
            self._warned_of.add(carried)
            logger.warning("reset a connection to node %d: it carried %s", self.node_id, carried)

    async def _accepted(self, stream: trio.SocketStream) -> None:
        try:
            opener = _prepared(stream.socket)
        except OSError:
            return
        await _Connection(self, self._links, opener).run()


def _prepared(connected: trio.socket.SocketType) -> socket.socket:
    raw = socket.socket(fileno=connected.detach())
    raw.setblocking(False)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return raw


class _Connection:
    """A connection from an opener to the proxy, and from the proxy to its node once a message may be delivered there."""

    def __init__(self, proxy: NodeProxy, links: Links, opener: socket.socket) -> None:
        self._proxy = proxy
        self._links = links
        self._opener = opener
        self._node: socket.socket | None = None
        self._scope = trio.CancelScope()
        self._pipes: list[Pipe] = []

    async def run(self) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    await self._carry(nursery)
        except* FrameError as errors:
            self._proxy.warn_of(str(errors.exceptions[0]))
            self.reset()
        finally:
            for pipe in self._pipes:
                pipe.leave()
            self._opener.close()
            if self._node is not None:
                self._node.close()

    async def _carry(self, nursery: trio.Nursery) -> None:
        splitter = self._proxy.splitter()
        found = await self._first(splitter)
        if found is None:
            return
        (opener_id, first), node_id = found, self._proxy.node_id
        link = self._links(opener_id, node_id)
        self._give_up_oldest(link)

        async def opener() -> socket.socket:
            return self._opener

        async def node() -> socket.socket:
            if self._node is None:
                self._node = await self._connect()
                back = self._links(node_id, opener_id)
                answers = Pipe(back, self._node, self._proxy.splitter(), opener, self.reset, self._node_closed, nursery)
                self._pipes.append(answers)
                nursery.start_soon(answers.read)
            return self._node

        requests = Pipe(link, self._opener, splitter, node, self.reset, self._scope.cancel, nursery)
        self._pipes.append(requests)
        await requests.pass_on(first)
        await requests.read()

    async def _first(self, splitter: Splitter) -> tuple[int, bytes] | None:
        """Return the opener's id and its first bytes; None if it closes before."""
        while True:
            await trio.lowlevel.wait_readable(self._opener)
            try:
                if not splitter.receive_from(self._opener):
                    return None
            except BlockingIOError:
                continue
            except OSError:
                return None
            found = splitter.first()
            if found is not None:
                return found

    async def _connect(self) -> socket.socket:
        try:
            return await self._proxy.connect()
        except OSError:
            self._proxy.look()
            self.reset()
            await trio.sleep_forever()

    def _node_closed(self) -> None:
        self._proxy.look()
        self._scope.cancel()

    def reset(self) -> None:
        """Break the connection, so that both ends see an error instead of an end."""
        for end in (self._opener, self._node):
            if end is not None and end.fileno() >= 0:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._scope.cancel()

    def _give_up_oldest(self, link: Link) -> None:
        given_up = [pipe for pipe in link.pipes if pipe.is_ended]
        if len(given_up) > HELD_CONNECTIONS_MAX:
            given_up[0].reset()
