"""The control socket of a cluster with --allow-chaos: orders in, answers out, one line of JSON each.

It is a Unix socket in the cluster's directory that only its owner can use (mode 0600), and is removed with the cluster. A socket
of a process that was killed is replaced: the lock of the directory shows that no process serves it.
"""

from __future__ import annotations

import contextlib
import os
import socketserver
import threading
from pathlib import Path
from typing import Protocol

import msgspec

from kraftlab.config.errors import ConfigError

from ..cluster_plan import ClusterError
from .orders import SOCKET_NAME, Done, Order, OrderRefused
from .paths import address

_LINE_BYTES_MAX = 64 * 1024
_POLL_S = 0.1
_decode = msgspec.json.Decoder(Order).decode
_encode = msgspec.json.Encoder().encode


class Taker(Protocol):
    """Takes the orders, such as a Breaker. Thread-safe."""

    def carry_out(self, order: Order) -> Done:
        """Execute an order. ClusterError."""

    def close(self) -> None: ...


class ControlServer:
    """Serves until `close`, in threads of its own; then `breaker` is closed, which heals every fault but killed nodes."""

    def __init__(self, directory: Path, breaker: Taker) -> None:
        self.path = directory / SOCKET_NAME
        self._breaker = breaker
        self.path.unlink(missing_ok=True)
        with address(self.path) as name:
            self._server = _Server(name, breaker)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), name="control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.path.unlink(missing_ok=True)
        self._breaker.close()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    """Number of commands that may come at once; the system refuses one more."""

    def __init__(self, name: str, breaker: Taker) -> None:
        self.breaker = breaker
        super().__init__(name, _Conversation)

    def server_activate(self) -> None:
        """Set the mode before the server listens, so that no other user can connect."""
        assert isinstance(self.server_address, str), "it is a path"
        os.chmod(self.server_address, 0o600)
        super().server_activate()


class _Conversation(socketserver.StreamRequestHandler):
    """Orders of one connection, one after the other. An order stays in force when its command has gone."""

    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while line := self.rfile.readline(_LINE_BYTES_MAX):
                self.wfile.write(_encode(self._answer(line)) + b"\n")
                if not line.endswith(b"\n"):
                    return  # the rest of a line that is too long does not count as an order

    def _answer(self, line: bytes) -> Done | OrderRefused:
        if len(line) == _LINE_BYTES_MAX and not line.endswith(b"\n"):
            return OrderRefused(f"an order has at most {_LINE_BYTES_MAX} bytes")
        try:
            return self.server.breaker.carry_out(_decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return OrderRefused(f"invalid order: {error}")
        except (ClusterError, ConfigError, OSError) as error:
            return OrderRefused(str(error))
