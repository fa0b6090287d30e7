"""Producer ids come from blocks, in order, once each, and nobody waits while a controller answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from kraftlab.admin.v1 import admin_pb2
from kraftlab.broker.api.init_producer_id import InitProducerId, allocate
from kraftlab.broker.control.producer_ids import ProducerIds
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.peer_rpc import AllocateProducerIdsRequest, AllocateProducerIdsResponse, Api
from kraftlab.rpc.calls import fault
from kraftlab.rpc.methods import METHODS
from kraftlab.wire.transport import PeerUnreachable


class Controller:
    """Gives blocks of ten."""

    def __init__(self) -> None:
        self.requests: list[AllocateProducerIdsRequest] = []
        self.reachable = True
        self.refuses = False
        self.next_id = 0

    async def request(self, api: int, body: bytes, *, timeout_ms: int) -> bytes:
        assert api == Api.ALLOCATE_PRODUCER_IDS
        await trio.sleep(0.01)
        if not self.reachable:
            raise PeerUnreachable("nobody leads")
        self.requests.append(msgspec.msgpack.decode(body, type=AllocateProducerIdsRequest))
        if self.refuses:
            return msgspec.msgpack.encode(AllocateProducerIdsResponse(ErrorCode.STALE_BROKER_EPOCH, "register again"))
        start, self.next_id = self.next_id, self.next_id + 10
        return msgspec.msgpack.encode(AllocateProducerIdsResponse(0, None, start, 10))


@pytest.fixture
async def controller() -> Controller:
    return Controller()


@pytest.fixture
async def ids(controller: Controller, nursery: trio.Nursery, autojump_clock: Any) -> ProducerIds:
    made = ProducerIds(controller, 4, lambda: 17)
    nursery.start_soon(made.run)
    return made


async def test_nothing_is_asked_for_before_somebody_wants_an_id(
    autojump_clock: Any, ids: ProducerIds, controller: Controller
) -> None:
    await trio.sleep(10)
    assert controller.requests == []
    assert await ids.take() == 0
    assert controller.requests == [AllocateProducerIdsRequest(4, 17)]


async def test_ids_are_given_in_order_across_blocks(autojump_clock: Any, ids: ProducerIds) -> None:
    assert [await ids.take() for _ in range(35)] == list(range(35))


async def test_the_next_block_is_there_before_the_last_one_ends(
    autojump_clock: Any, ids: ProducerIds, controller: Controller
) -> None:
    for _ in range(9):
        await ids.take()
    await trio.sleep(1)
    assert len(controller.requests) == 2
    controller.reachable = False
    assert [await ids.take() for _ in range(11)] == list(range(9, 20)), "without a controller"
    assert ids.left == 0


async def test_a_request_without_an_id_left_waits_for_a_block_and_may_give_up(
    autojump_clock: Any, ids: ProducerIds, controller: Controller
) -> None:
    controller.reachable = False
    with trio.move_on_after(5) as scope:
        await ids.take()
    assert scope.cancelled_caught
    controller.reachable = True
    assert await ids.take() == 0


async def test_a_refusal_is_asked_again(
    autojump_clock: Any, ids: ProducerIds, controller: Controller, nursery: trio.Nursery
) -> None:
    controller.refuses = True
    taken: list[int] = []

    async def take() -> None:
        taken.append(await ids.take())

    nursery.start_soon(take)
    await trio.sleep(1)
    assert taken == [] and len(controller.requests) > 1
    controller.refuses = False
    await trio.sleep(5)
    assert taken == [0]


async def test_many_at_once_get_one_id_each(autojump_clock: Any, ids: ProducerIds) -> None:
    taken: list[int] = []

    async def take() -> None:
        taken.append(await ids.take())

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(take)
    assert sorted(taken) == list(range(50))


def init(**fields: Any) -> admin_pb2.InitProducerIdRequest:
    return admin_pb2.InitProducerIdRequest(transaction_timeout_ms=60_000, **fields)


async def test_every_idempotent_producer_gets_a_new_id_with_epoch_zero(autojump_clock: Any, ids: ProducerIds) -> None:
    api = InitProducerId(ids)
    for expected, request in enumerate((init(producer_id=-1, producer_epoch=-1), init(producer_id=0, producer_epoch=0), init())):
        response = await api.init(request)
        assert (response.producer_id, response.producer_epoch) == (expected, 0)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "mine"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"producer_id": 5, "producer_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_requests_that_get_no_producer_id(
    autojump_clock: Any, ids: ProducerIds, controller: Controller, fields: dict[str, Any], code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as caught:
        await InitProducerId(ids).init(init(**fields))
    assert caught.value.code is code
    assert controller.requests == []


async def test_blocks_are_not_for_clients_of_a_broker() -> None:
    with pytest.raises(ApiError) as caught:
        await allocate(admin_pb2.AllocateProducerIdsRequest(broker_id=0, broker_epoch=1))
    assert caught.value.code is ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_a_refusal_names_no_producer() -> None:
    response: Any = fault(METHODS["InitProducerId"], "no", ErrorCode.INVALID_REQUEST)
    assert (response.producer_id, response.producer_epoch, response.header.error_code) == (-1, -1, 42)
