"""Serves a console: the address, TLS, the threads, and the end.

Hypercorn runs on trio in this process, which does nothing else: nodes and other commands never import it. It speaks HTTP on each
connection; accepting and ending them is done here. So a connection that fails ends alone, there are at most CONNECTIONS_MAX, and
a reader that does not read can neither stay nor hold up the end of the process.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState

from kraftlab.client import AdminClient
from kraftlab.client.security import ClientSecurity
from kraftlab.common.audit import AuditLog
from kraftlab.common.endpoint import Endpoint

from .app import Guard, Page, application
from .core import Console, Settings
from .follower import Follower
from .streams import Streams
from .visitors import Visitors

logger = logging.getLogger("kraftlab.console")

GRACE_S = 1.0
CONNECTIONS_MAX = 500
UNREAD_MS = 20_000
"""Time after which a connection ends if its reader does not read."""
Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]
Connect = Callable[[ClientSecurity | None], AdminClient]
"""Makes a client of a security; without one, of the console's own user."""


class Connection(TCPServer):
    """A connection that ends when its client has closed it. Hypercorn itself waits until its idle time is over."""

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()


def listen(at: Endpoint) -> socket.socket:
    """Return the socket of the console. OSError."""
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    listening = socket.create_server((at.host, at.port), family=family, backlog=128)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections inherit it
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
    return listening


def start(
    listening: socket.socket,
    cluster: tuple[Connect, tuple[Endpoint, ...]] | None,
    settings: Settings,
    tls: tuple[Path, Path] | None,
    others: Mapping[str, Page],
    ready: Callable[[], None],
    *,
    until_eof: bool,
) -> None:
    """Serve until SIGINT or SIGTERM, with `until_eof` also until stdin ends. `cluster`: how to connect, and the nodes that are
    asked first. `tls`: certificate and key. `ready` is called when the console answers.
    """
    config = Config()
    config.errorlog = logger
    config.include_server_header = False
    config.h11_max_incomplete_size = 64 * 1024
    if tls is not None:
        config.certfile, config.keyfile = map(str, tls)

    async def run() -> None:
        stop = trio.Event()
        with nullcontext() if cluster is None else _console(*cluster, settings) as console:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch_signals, stop)
                if until_eof:
                    nursery.start_soon(_watch_stdin, stop)
                if console is not None:
                    nursery.start_soon(console.streams.tick)
                    nursery.start_soon(console.streams.flush)
                app = cast(ASGIFramework, Guard(application(console, others, settings), settings))
                ready()
                await serve(app, config, listening, stop, None if console is None else console.streams)
                nursery.cancel_scope.cancel()

    trio.run(run)


async def serve(app: ASGIFramework, config: Config, listening: socket.socket, stop: trio.Event, events: Streams | None) -> None:
    """Serve connections until `stop`; then end the streams of events, and after GRACE_S whatever is still open."""
    wrapped, context = ASGIWrapper(app), WorkerContext(None)
    open_now: set[Stream] = set()
    all_gone = trio.Event()
    plain = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
    tls = config.create_ssl_context()
    listener = plain if tls is None else trio.SSLListener(plain, tls, https_compatible=True)

    async def connection(stream: Stream) -> None:
        if len(open_now) >= CONNECTIONS_MAX:
            await trio.aclose_forcefully(stream)
            return
        open_now.add(stream)
        try:
            await Connection(wrapped, config, context, ConnectionState({}), cast(trio.SSLStream[trio.SocketStream], stream))
        except Exception as error:  # of Hypercorn, about input that it does not foresee
            logger.warning("a connection has failed: %r", error)
            await trio.aclose_forcefully(stream)
        finally:
            open_now.discard(stream)
            if stop.is_set() and not open_now:
                all_gone.set()

    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            accepting.start_soon(partial(trio.serve_listeners, connection, [listener], handler_nursery=connections))
            await stop.wait()
            accepting.cancel_scope.cancel()
        if events is not None:
            events.end()
        await context.terminated.set()
        if open_now:
            with trio.move_on_after(GRACE_S):
                await all_gone.wait()
        for stream in [*open_now]:
            await trio.aclose_forcefully(stream)
        connections.cancel_scope.cancel()


@contextmanager
def _console(connect: Connect, seeds: tuple[Endpoint, ...], settings: Settings) -> Iterator[Console]:
    """Follow and question a cluster inside the `with` block."""
    with connect(None) as client:
        streams = Streams()
        follower = None if client.speaks_kafka else Follower(client, seeds, streams)
        visitors = Visitors(client, connect, AuditLog())
        console = Console(client, follower, visitors, streams, settings)
        console.start()
        try:
            yield console
        finally:
            console.stop()
            visitors.close()


async def _watch_signals(stop: trio.Event) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            stop.set()


async def _watch_stdin(stop: trio.Event) -> None:
    async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
        while await stdin.receive_some():
            pass
    stop.set()
