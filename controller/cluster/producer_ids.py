"""AllocateProducerIds: brokers get producer ids in blocks, and no id is given twice (KIP-730).

A block is used up once its record is in the log, even if the answer is lost: there are plenty of ids. Brokers send this call
over peer frames, people over the admin API.
"""

from __future__ import annotations

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.peer_rpc import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraftlab.metadata.records import ProducerIds

from ..engine.state import Context, ControllerState, Outcome
from ..partitions.partitions import check_broker_epoch

BLOCK_SIZE = 1000
HIGHEST_PRODUCER_ID = (1 << 63) - 1


def allocate_for_broker(
    state: ControllerState, request: AllocateProducerIdsRequest, context: Context
) -> Outcome[AllocateProducerIdsResponse]:
    """Allocate a block for a broker. ApiError STALE_BROKER_EPOCH if that is not its registration."""
    start, record = _next_block(state, request.broker_id, request.broker_epoch)
    return Outcome([record], AllocateProducerIdsResponse(ErrorCode.NONE, None, start, BLOCK_SIZE))


def allocate(
    state: ControllerState, request: admin_pb2.AllocateProducerIdsRequest, context: Context
) -> Outcome[admin_pb2.AllocateProducerIdsResponse]:
    """As `allocate_for_broker`, over the admin API."""
    start, record = _next_block(state, request.broker_id, request.broker_epoch)
    return Outcome([record], admin_pb2.AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE))


def _next_block(state: ControllerState, broker_id: int, broker_epoch: int) -> tuple[int, ProducerIds]:
    broker = check_broker_epoch(state, broker_id, broker_epoch)
    start = state.image.next_producer_id
    if start > HIGHEST_PRODUCER_ID - BLOCK_SIZE:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Exhausted all producer ids: the next one would be {start}. No further producer can be given an id.",
        )
    return start, ProducerIds(0, broker_id, broker.epoch, start + BLOCK_SIZE)
