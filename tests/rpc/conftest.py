from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest
import trio
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2, admin_pb2_grpc
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import AdminServer, Call


class Echo:
    """A dispatcher under the test's control: answers with the request's min_offset as metadata offset."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.gates: dict[int, trio.Event] = {}

    async def __call__(self, call: Call) -> Message:
        self.calls.append(call)
        number: int = call.request.header.min_offset  # type: ignore[attr-defined]
        if number in self.gates:
            await self.gates[number].wait()
        if number == 666:
            raise RuntimeError("no such luck")
        return METHODS[call.api].response(header=admin_pb2.ResponseHeader(metadata_offset=number))


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
async def served(nursery: trio.Nursery, echo: Echo) -> AsyncIterator[tuple[str, int]]:
    server = AdminServer(echo, "127.0.0.1", 0)
    yield "127.0.0.1", await nursery.start(server.serve)


@pytest.fixture
async def stub(served: tuple[str, int]) -> AsyncIterator[admin_pb2_grpc.AdminStub]:
    channel = grpc.insecure_channel(f"{served[0]}:{served[1]}")
    try:
        yield admin_pb2_grpc.AdminStub(channel)
    finally:
        await trio.to_thread.run_sync(channel.close)
