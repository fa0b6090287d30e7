"""The METRICS listener: `/metrics`, `/livez` and `/readyz` over HTTP, for scrapers and probes.

Theory of operation. A thread of its own serves, so that a slow reader costs the node's event loop nothing; a page asks the loop
for its values (`pages.py`). The port is bound when the node starts, what serves it is imported in the thread: a start does not
wait for it.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from kraftlab.common.endpoint import Endpoint

from .answers import Page

logger = logging.getLogger("kraftlab.metrics")

LOOK_S = 1.0
BACKLOG = 128


class MetricsServer:
    """Serves `pages` by their paths. `context` returns the present TLS context; None: plaintext. OSError if the port is taken."""

    def __init__(self, at: Endpoint, pages: Mapping[str, Page], context: Callable[[], ssl.SSLContext] | None = None) -> None:
        self._pages = pages
        self._context = context
        self._socket = _listen(at)
        self.port: int = self._socket.getsockname()[1]
        self._ended = threading.Event()

    def start(self) -> None:
        """Serve in a thread, which does not keep the process alive."""
        threading.Thread(target=self._serve, name="metrics", daemon=True).start()

    def stop(self) -> None:
        """Accept nothing from now on, and let the thread end. Connections that are open end with the process."""
        self._ended.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # frees the port at once, and wakes the thread

    def _serve(self) -> None:
        try:
            from .web import make_server

            with make_server(self._socket, self._pages, self._context) as server:
                server.timeout = LOOK_S
                while not self._ended.is_set():
                    server.handle_request()
                    server.service_actions()
        except Exception:
            if not self._ended.is_set():
                logger.exception("the METRICS listener has ended; the node goes on")


def _listen(at: Endpoint) -> socket.socket:
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((at.host, at.port))
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened
