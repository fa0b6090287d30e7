"""Peer frames with any number at its ends: the broker's handlers answer, and a number that is not an int64 is refused."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.metadata import peer_rpc
from kraftlab.metadata.peer_rpc import Api
from kraftlab.wire.transport import PeerError, PeerRequest

from ..conftest import batch

ENDS = (-(2**63), -(2**31), -1, 0, 2**31 - 1, 2**31, 2**63 - 1)
CALLS: dict[int, tuple[Any, Any]] = {
    Api.PRODUCE: (peer_rpc.ProduceRequest, peer_rpc.ProduceResponse),
    Api.LIST_OFFSETS: (peer_rpc.ListOffsetsRequest, peer_rpc.ListOffsetsResponse),
    Api.OFFSET_FOR_LEADER_EPOCH: (peer_rpc.EpochEndsRequest, peer_rpc.EpochEndsResponse),
    Api.REPLICA_FETCH: (peer_rpc.ReplicaFetchRequest, peer_rpc.ReplicaFetchResponse),
    Api.LOG_DIGEST: (peer_rpc.LogDigestRequest, peer_rpc.LogDigestResponse),
}
MESSAGES = [each for each in vars(peer_rpc).values() if getattr(each, "__module__", "") == peer_rpc.__name__ and each is not Api]
TREES: dict[Any, Any] = {memoryview: b"", bytes: b"\x00" * 16, str: "text", bool: False, float: 0.0, int: 0}
"""Type of a field → its value in MessagePack."""


def tree(kind: Any, values: dict[str, Any]) -> Any:
    """Return a message as plain lists, each of its arrays with one element. `values` by the name of a field."""
    if typing.get_origin(kind) is typing.Annotated:
        return tree(typing.get_args(kind)[0], values)
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return tree(next(each for each in arguments if each is not types.NoneType), values)
    if typing.get_origin(kind) is tuple:
        return [tree(each, values) for each in arguments if each is not ...]
    if typing.get_origin(kind) is dict:
        return {}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind, include_extras=True)
        return [values[name] if name in values else tree(hints[name], values) for name in kind.__struct_fields__]
    return TREES[kind]


def changed(value: Any, numbers: tuple[int, ...]) -> Iterator[Any]:
    """Yield the message with each of its numbers replaced by each of these."""
    if isinstance(value, list):
        for place, inside in enumerate(value):
            for other in changed(inside, numbers):
                yield [*value[:place], other, *value[place + 1 :]]
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from numbers


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_number_that_is_not_an_int64_is_refused(kind: Any) -> None:
    whole = tree(kind, {"listeners": []})  # The controller checks ports itself.
    for message in changed(whole, (2**63, 2**64 - 1)):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=kind)
    msgspec.msgpack.decode(msgspec.msgpack.encode(whole), type=kind)


@pytest.mark.parametrize("api", CALLS, ids=lambda api: CALLS[api][0].__name__)
async def test_a_request_with_any_number_at_its_ends_is_answered(autojump_clock: Any, world: Any, api: int) -> None:
    broker = await world.add_broker(0)
    topic_id = await world.create_topic("t", [0])
    values = {"topic_id": topic_id, "records": batch(), "acks": -1, "leader_epoch": -1, "current_leader_epoch": -1}
    handler = broker.data_plane.handlers()[api]
    request, response = CALLS[api]
    for message in changed(tree(request, values), ENDS):
        body = memoryview(bytearray(msgspec.msgpack.encode(message)))
        try:
            answer = await handler(PeerRequest(api, 0, ReplicaKey(1, bytes(16)), body, "User:ANONYMOUS", "test"))
        except PeerError as refusal:
            assert refusal.code == ErrorCode.INVALID_REQUEST and "names node" in refusal.message
            continue
        msgspec.msgpack.decode(answer if isinstance(answer, bytes) else b"".join(map(bytes, answer)), type=response)
