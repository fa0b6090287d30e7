"""The HTTP of the METRICS listener, by the standard library. Loaded by the listener's thread.

Connections are few and short. One that has no answer after CONNECTION_S is closed. When CONNECTIONS_MAX are open, one without a
whole request makes room, the oldest first; if all have sent theirs, the newcomer is closed.
"""

from __future__ import annotations

import contextlib
import http.server
import logging
import socket
import ssl
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from .answers import CONNECTIONS_MAX, Answer, Caller, Page

logger = logging.getLogger("kraftlab.metrics")

CONNECTION_S = 10.0
COMPRESSED_FROM_BYTES = 1024


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listening: socket.socket, pages: Mapping[str, Page], context: Callable[[], ssl.SSLContext] | None) -> None:
        self.pages = pages
        self._context = context
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}
        """The time at which each connection was accepted, the oldest first."""
        self._answering: set[socket.socket] = set()
        super().__init__(listening.getsockname()[:2], http.server.BaseHTTPRequestHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= CONNECTIONS_MAX and not self._made_room():
                self.shutdown_request(request)
                return
            self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def _made_room(self) -> bool:
        oldest = next((each for each in self._open if each not in self._answering), None)
        if oldest is None:
            return False
        self._end(oldest)
        return True

    def service_actions(self) -> None:
        late = time.monotonic() - CONNECTION_S
        with self._lock:
            for connection in [each for each, since in self._open.items() if since < late]:
                self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        """End a connection; its thread notices and closes it."""
        self._open.pop(connection, None)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def answering(self, connection: socket.socket) -> None:
        """Note that a connection has sent its whole request."""
        with self._lock:
            self._answering.add(connection)

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(CONNECTION_S)
        if self._context is None:
            _Handler(request, client_address, self, request)
            return
        with self._context().wrap_socket(request.dup(), server_side=True) as secured:
            _Handler(secured, client_address, self, request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
            self._answering.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note clients that end early, or speak something else, for those who look for them."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            logger.debug("a connection of %s ended: %s", client_address[0], error)
        else:
            logger.exception("a request of %s failed", client_address[0])


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    server_version = "kraftlab"
    sys_version = ""
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(message)s\n"

    def __init__(self, connection: Any, address: Any, server: _Server, accepted: socket.socket) -> None:
        self._accepted = accepted
        super().__init__(connection, address, server)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def _answer(self, *, has_body: bool) -> None:
        self.server.answering(self._accepted)
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            answer = Answer(f"no such page; there are {', '.join(self.server.pages)}\n", 404)
        else:
            certificate = self.connection.getpeercert(binary_form=True) if isinstance(self.connection, ssl.SSLSocket) else None
            host = self.client_address[0].removeprefix("::ffff:")
            answer = page(Caller(host, self.headers.get("Authorization", ""), certificate))
        body = answer.body.encode()
        self.send_response(answer.status)
        if answer.challenge:
            self.send_header("WWW-Authenticate", answer.challenge)
        self.send_header("Content-Type", answer.kind)
        if len(body) > COMPRESSED_FROM_BYTES and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = compressed(body)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if has_body:
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: a scrape comes every few seconds."""


def compressed(body: bytes) -> bytes:
    """Compress an answer quickly: level 1 takes a tenth of the time of the usual one, for a tenth more bytes."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


def make_server(
    listening: socket.socket, pages: Mapping[str, Page], context: Callable[[], ssl.SSLContext] | None
) -> http.server.ThreadingHTTPServer:
    """Return the server of a socket that listens."""
    return _Server(listening, pages, context)
