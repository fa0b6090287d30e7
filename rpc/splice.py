"""Two connected sockets made into one connection: bytes are carried both ways until both have ended.

Theory of operation. What one `recv` gave goes out in one `send`; what the receiver does not take at once waits, and the sender
is not read until it is gone. So at most `CHUNK_BYTES` per direction are held, and the kernel's buffers keep the sender back.
Sockets are watched by the caller's selector, whose data for them has a `turn(mask)` to be called with what became ready.

The client's half-close is passed on to the server. A server that ends the connection means it: what it said last is still
delivered, then both are closed. A reset closes both. While the client does not take what waits for it, the server's end is not
noticed; how long to bear that is for the caller to say (`waits_for_client`).
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable

CHUNK_BYTES = 64 * 1024

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Splice:
    """Owns both sockets, which must not block. `chunk` is scratch space of CHUNK_BYTES that splices of one thread share.

    `on_change` is called when `waits_for_client` becomes true, when the client has taken something then, and at the end.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        chunk: memoryview,
        client: socket.socket,
        server: socket.socket,
        on_change: Callable[[Splice], None],
    ) -> None:
        self.chunk = chunk
        self.is_closed = False
        self._on_change = on_change
        self._client = _End(self, selector, client)
        self._server = _End(self, selector, server)
        self._client.other, self._server.other = self._server, self._client

    @property
    def waits_for_client(self) -> bool:
        return self._client.unsent is not None and not self.is_closed

    def begin(self, first: bytes) -> None:
        """Carries what the client has sent already, then whatever comes."""
        self._server.unsent = memoryview(first)
        self._server.flush()
        self._client.watch()
        self._server.watch()

    def read_out(self, end: _End, is_reset: bool) -> None:
        """No more bytes come from this end."""
        end.is_read_out = True
        if end is self._client and is_reset:
            self.close()
        elif end.other.unsent is None:
            self._pass_on_end(end)
        end.watch()

    def blocked(self, end: _End) -> None:
        """This end did not take everything at once."""
        end.watch()
        end.other.watch()
        if end is self._client:
            self._on_change(self)

    def flushed(self, end: _End) -> None:
        """This end took some of what waited for it."""
        if end.unsent is None:
            if end.other.is_read_out:
                self._pass_on_end(end.other)
            end.watch()
            end.other.watch()
        if end is self._client and not self.is_closed:
            self._on_change(self)

    def unwilling(self, end: _End) -> None:
        """This end takes no more bytes; a server may have said something before that."""
        if end is self._client:
            self.close()
            return
        end.unsent = None
        self._client.is_read_out = True
        self._client.watch()
        end.watch()

    def _pass_on_end(self, end: _End) -> None:
        if end is self._client:
            self._server.finish()
        else:
            self.close()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._client.close()
            self._server.close()
            self._on_change(self)


class _End:
    """One of the two sockets. `unsent` came from the other one and waits for this."""

    __slots__ = ("_interest", "_selector", "_socket", "_splice", "is_read_out", "other", "unsent")

    other: _End

    def __init__(self, splice: Splice, selector: selectors.BaseSelector, connected: socket.socket) -> None:
        self._splice = splice
        self._selector = selector
        self._socket = connected
        self._interest = 0
        self.is_read_out = False
        self.unsent: memoryview | None = None

    def turn(self, mask: int) -> None:
        """Called when the socket is ready."""
        if mask & self._interest & _WRITE:
            self.flush()
        if mask & self._interest & _READ:
            self._carry()

    def _carry(self) -> None:
        chunk = self._splice.chunk
        try:
            count = self._socket.recv_into(chunk)
        except BlockingIOError:
            return
        except OSError:
            self._splice.read_out(self, is_reset=True)
            return
        if not count:
            self._splice.read_out(self, is_reset=False)
            return
        other = self.other
        try:
            sent = other._socket.send(chunk[:count])
        except BlockingIOError:
            sent = 0
        except OSError:
            self._splice.unwilling(other)
            return
        if sent < count:
            other.unsent = memoryview(bytes(chunk[sent:count]))
            self._splice.blocked(other)

    def flush(self) -> None:
        """Sends what waits, as much as goes."""
        if self.unsent is None:
            return
        try:
            sent = self._socket.send(self.unsent)
        except BlockingIOError:
            return
        except OSError:
            self._splice.unwilling(self)
            return
        self.unsent = self.unsent[sent:] if sent < len(self.unsent) else None
        self._splice.flushed(self)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def watch(self) -> None:
        """Lets the selector watch for what this end can do now: nothing, perhaps."""
        interest = 0 if self.is_read_out or self.other.unsent is not None else _READ
        if self.unsent is not None:
            interest |= _WRITE
        if self._splice.is_closed or interest == self._interest:
            return
        if not self._interest:
            self._selector.register(self._socket, interest, self)
        elif interest:
            self._selector.modify(self._socket, interest, self)
        else:
            self._selector.unregister(self._socket)
        self._interest = interest

    def close(self) -> None:
        if self._interest:
            self._selector.unregister(self._socket)
            self._interest = 0
        self._socket.close()
