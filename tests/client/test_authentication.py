"""Users and passwords of a client."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
import trio
from google.protobuf.message import Message

from kraftlab.access.logins import UserLogin
from kraftlab.access.users import Users
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client.admin import AdminClient
from kraftlab.client.channels import Channels
from kraftlab.client.security import ClientSecurity
from kraftlab.client.stream import CallStream
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.rpc.server import AdminServer, Call


class Guarded:
    """A node that knows alice and answers with the caller."""

    def __init__(self) -> None:
        self.port = 0
        self._serving = threading.Event()
        self._stop = trio.CancelScope()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))

    async def _answer(self, call: Call) -> Message:
        return pb.DescribeClusterResponse(cluster_id=f"{call.principal} {call.host}")

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._stop:
            async with trio.open_nursery() as nursery:
                server = AdminServer(self._answer, "127.0.0.1", 0, login=UserLogin(Users({"alice": "secret"})))
                self.port = await nursery.start(server.serve)
                self._serving.set()

    def start(self) -> None:
        self._thread.start()
        assert self._serving.wait(10)

    def stop(self) -> None:
        self._token.run_sync_soon(self._stop.cancel)
        self._thread.join()


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    node = Guarded()
    node.start()
    yield node
    node.stop()


def test_calls_come_from_the_user_that_was_given(guarded: Guarded) -> None:
    with AdminClient(f"127.0.0.1:{guarded.port}", user="alice", password="secret") as client:
        assert client.describe_cluster().cluster_id == "User:alice 127.0.0.1"
    with AdminClient(f"127.0.0.1:{guarded.port}") as client:
        assert client.describe_cluster().cluster_id == "User:ANONYMOUS 127.0.0.1"


def test_a_wrong_password_is_raised_at_once_with_the_next_step(guarded: Guarded) -> None:
    with (
        AdminClient(f"127.0.0.1:{guarded.port}", user="alice", password="x") as client,
        pytest.raises(ApiError, match=r"user alice is wrong.*listener\.name\.grpc\.users") as refused,
    ):
        client.describe_cluster()
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_stream_raises_a_wrong_password(guarded: Guarded) -> None:
    with (
        contextlib.closing(Channels(ClientSecurity(user="alice", password="x"))) as channels,
        CallStream(channels, Endpoint("127.0.0.1", guarded.port)) as stream,
    ):
        with pytest.raises(ApiError) as refused:
            stream.submit("DescribeCluster", pb.DescribeClusterRequest()).result(10)
        assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_credentials_that_grpc_cannot_send_are_refused() -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        AdminClient("127.0.0.1:1", user="älice", password="x")
