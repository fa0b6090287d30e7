"""A scripted broker of the Kafka protocol, on a real port, with or without TLS."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint
from kraftlab.gateway.codec import Header, KafkaRequest, decode_request, encode_response, peek
from kraftlab.gateway.translation import to_value
from kraftlab.messages.catalog import response_class
from kraftlab.messages.schema import Message
from kraftlab.rpc.calls import OFFERS

FRAME_BYTES_MAX = 1 << 20


class Broker:
    """A broker that knows ranges of versions by API name, and answers each API with a message."""

    def __init__(self, tls: ssl.SSLContext | None = None, **ranges: tuple[int, int]) -> None:
        self._tls = tls
        self.ranges = {"ApiVersions": (0, 3), "DescribeCluster": (0, 0), "Metadata": (0, 9), **ranges}
        self.answers: dict[str, Callable[[Any], Any]] = {"DescribeCluster": lambda _: pb.DescribeClusterResponse(cluster_id="k")}
        self.seen: list[tuple[str, int]] = []
        self.cuts = 0
        """Number of connections to close after their next response."""
        self.garbles = False
        """Leave out the end of each response but ApiVersions'."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint(*self._listener.getsockname())
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._threads: list[threading.Thread] = []
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        for connected in self._sockets:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
            connected.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connected, _ = self._listener.accept()
                self._sockets.append(connected)
                self._threads.append(threading.Thread(target=self._serve, args=(connected,)))
                self._threads[-1].start()

    def _secured(self, connected: socket.socket) -> socket.socket:
        if self._tls is not None:
            connected = self._tls.wrap_socket(connected, server_side=True)
            self._sockets.append(connected)
        return connected

    def _serve(self, connected: socket.socket) -> None:
        with suppress(OSError, struct.error), self._secured(connected) as connected, connected.makefile("rb") as stream:
            while True:
                (size,) = struct.unpack(">i", stream.read(4))
                if size > FRAME_BYTES_MAX:
                    return
                frame = stream.read(size)
                header = peek(frame)
                name = next(offer.name for offer in OFFERS.values() if offer.key == header.key)
                self.seen.append((name, header.version))
                answer = b"".join(encode_response(*self._answer(name, frame)))[4:]  # type: ignore[arg-type]
                answer = answer[:-1] if self.garbles and name != "ApiVersions" else answer
                connected.sendall(struct.pack(">i", len(answer)) + answer)
                if name != "ApiVersions" and self.cuts:
                    self.cuts -= 1
                    return

    def _answer(self, name: str, frame: bytes) -> tuple[Header, Message]:
        key, version, correlation_id = peek(frame)
        if name == "ApiVersions":
            is_known = version <= self.ranges[name][1]
            version = version if is_known else 0
            said = pb.ApiVersionsResponse()
            for api, (lowest, highest) in self.ranges.items():
                said.api_keys.add(api_key=OFFERS[api].key, min_version=lowest, max_version=highest)
            said.header.error_code = 0 if is_known else 35
            return Header(key, version, correlation_id), to_value(said, response_class(key), version)
        request: KafkaRequest = decode_request(frame)
        answer = self.answers[name](request.body)
        return request.header, answer if isinstance(answer, Message) else to_value(answer, response_class(key), version)
