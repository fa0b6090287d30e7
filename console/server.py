"""Serves a console: the address, TLS, the threads, and the end.

Hypercorn runs on trio in this process, which does nothing else: nodes and other commands never import it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.typing import Framework

from kraftlab.client import AdminClient
from kraftlab.client.security import ClientSecurity
from kraftlab.common.audit import AuditLog
from kraftlab.common.endpoint import Endpoint

from .app import Console, Guard, Page, Settings, application
from .follower import Follower
from .streams import Streams
from .visitors import Visitors

logger = logging.getLogger("kraftlab.console")

GRACE_S = 1.0
Connect = Callable[[ClientSecurity | None], AdminClient]
"""Makes a client of a security; without one, of the console's own user."""


def listen(at: Endpoint) -> socket.socket:
    """Return the socket of the console. OSError."""
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    return socket.create_server((at.host, at.port), family=family, backlog=128)


async def run(
    listening: socket.socket,
    connect: Connect | None,
    seeds: tuple[Endpoint, ...],
    settings: Settings,
    tls: tuple[Path, Path] | None,
    ready: Callable[[], None],
    others: Mapping[str, Page],
    until_eof: bool,
) -> None:
    """Serve until SIGINT or SIGTERM, with `until_eof` also until stdin ends. Without `connect` there is no cluster. `ready` is
    called when the console answers.
    """
    config = Config()
    config.bind = [f"fd://{listening.detach()}"]
    config.errorlog = logger
    config.graceful_timeout = GRACE_S
    config.include_server_header = False
    config.h11_max_incomplete_size = 64 * 1024
    if tls is not None:
        config.certfile, config.keyfile = map(str, tls)
    stop = trio.Event()
    with ExitStack() as stack:
        console = None if connect is None else stack.enter_context(_console(connect, seeds, settings))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_signals, stop)
            if until_eof:
                nursery.start_soon(_watch_stdin, stop)
            if console is not None:
                nursery.start_soon(console.streams.tick)
            app = cast(Framework, Guard(application(console, others, settings), settings))
            await nursery.start(lambda task_status: serve(app, config, shutdown_trigger=stop.wait, task_status=task_status))
            ready()
            await stop.wait()
            nursery.cancel_scope.deadline = trio.current_time() + 2 * GRACE_S


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
