"""Requests with many elements: threads decode them, and other tasks get their turn while they are answered."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from kraftlab.gateway import listener as listener_module
from kraftlab.gateway.codec import KafkaRequest
from kraftlab.gateway.data import DataCalls
from kraftlab.gateway.metadata import MetadataCalls
from kraftlab.metadata.image import MetadataImage
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.turns import ELEMENTS_AT_ONCE
from kraftlab.wire.parts import Part

from .conftest import everything, make_frame, make_request
from .test_data import Leader
from .test_listener import connected, echo, listening, read, with_id

CALLER = Caller("User:ANONYMOUS", "127.0.0.1")
COUNT = 8 * ELEMENTS_AT_ONCE
NAMES = [f"t{number}" for number in range(COUNT)]


async def test_a_thread_decodes_a_request_with_many_elements_and_answers_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []
    decode, seen = listener_module.decode_request, []

    def decoded(frame: memoryview, *limits: int) -> KafkaRequest:
        request = decode(frame, *limits)
        threads.append(threading.current_thread())
        return request

    async def noted(request: KafkaRequest) -> Sequence[Part]:
        seen.append(request.is_large)
        return await echo(request)

    monkeypatch.setattr(listener_module, "decode_request", decoded)
    large = make_frame(3, 1, topics=[{"name": name} for name in NAMES])
    async with listening(noted, socket_request_max_bytes="1000000") as (_, port), await connected(port) as stream:
        await stream.send_all(large + with_id(6))
        assert struct.unpack(">4i", await read(stream, 16)) == (4, 5, 4, 6)
    assert seen == [True, False]
    assert [thread is threading.main_thread() for thread in threads] == [False, True]


PARTITIONS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "produce": (
        *(0, 9),
        {"acks": 1, "transactional_id": None, "topic_data": [{"name": name, "partition_data": [{"index": 0}]} for name in NAMES]},
    ),
    "fetch": (1, 12, {"rack_id": "", "topics": [{"topic": "orders", "partitions": [{"partition": n} for n in range(COUNT)]}]}),
    "list_offsets": (2, 7, {"topics": [{"name": "orders", "partitions": [{"partition_index": n} for n in range(COUNT)]}]}),
    "epoch_ends": (23, 4, {"topics": [{"topic": name, "partitions": [{"partition": 0}]} for name in NAMES]}),
    "metadata": (3, 12, {"topics": [{"name": name, "topic_id": None} for name in NAMES]}),
}


@pytest.mark.parametrize("call", PARTITIONS)
async def test_other_tasks_get_turns_while_many_partitions_are_answered(image: MetadataImage, call: str) -> None:
    key, version, fields = PARTITIONS[call]
    data = DataCalls(Leader(), lambda: image, everything)
    metadata = MetadataCalls(1, "cluster", lambda: image, everything, lambda: None)
    answer: Any = getattr(metadata if call == "metadata" else data, call)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    request = make_request(key, version, **fields)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        await answer(request, CALLER)
        nursery.cancel_scope.cancel()
    assert turns >= 3
