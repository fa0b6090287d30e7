"""InitProducerId: an id for an idempotent producer (KIP-98). Transactions are not supported."""

from __future__ import annotations

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode

from ..control.producer_ids import ProducerIds

NO_PRODUCER_ID = NO_PRODUCER_EPOCH = -1
FIRST_EPOCH = 0


async def allocate(message: Message) -> Message:
    """Refuse to allocate a block of ids: a broker gets its blocks from the active controller and hands out single ids."""
    raise ApiError(
        ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        "AllocateProducerIds is between brokers and the active controller, and this is a broker; producers use InitProducerId.",
    )


class InitProducerId:
    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    async def init(self, message: Message) -> Message:
        """Return a new id with epoch 0, also for a producer that sends its former id: without transactions no epochs are
        remembered.

        ApiError INVALID_REQUEST (an empty transactional id; an id without its epoch, or the other way round), UNSUPPORTED_VERSION
        (a transactional id).
        """
        assert isinstance(message, admin_pb2.InitProducerIdRequest)
        has_id = message.HasField("producer_id") and message.producer_id != NO_PRODUCER_ID
        has_epoch = message.HasField("producer_epoch") and message.producer_epoch != NO_PRODUCER_EPOCH
        if has_id != has_epoch:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"A producer sends its id and its epoch, or neither (-1); this is id {message.producer_id}, epoch "
                f"{message.producer_epoch}.",
            )
        if message.HasField("transactional_id"):
            if not message.transactional_id:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, "The transactional id is empty; leave it out for an idempotent producer."
                )
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"This cluster coordinates no transactions, so it has no producer id for transactional id "
                f"{message.transactional_id!r}; leave it out for an idempotent producer.",
            )
        return admin_pb2.InitProducerIdResponse(producer_id=await self._producer_ids.take(), producer_epoch=FIRST_EPOCH)
