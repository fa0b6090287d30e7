"""Producer ids for idempotent producers, from blocks that the controller allocates to this broker (KIP-730).

Theory of operation. Ids are taken from the current block, one after the other. When a tenth of the last block is left, the next
block is requested, so that producers do not wait for the controller; a producer that finds no id waits for the block. One request
is in flight, retried with a growing pause. A block whose answer is lost is never used: no id is given twice, whatever fails.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import trio

from kraftlab.common.decoding import Decoder
from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import AllocateProducerIdsRequest, AllocateProducerIdsResponse, Api

from .controller_channel import Requests, ask

logger = logging.getLogger("kraftlab.broker.producer_ids")

AHEAD_FRACTION = 0.1
"""The next block is requested when this part of the last one is left."""
REQUEST_TIMEOUT_MS = 5000
BACKOFF_S = 0.05
BACKOFF_MAX_S = 2.0

_response = Decoder(AllocateProducerIdsResponse)


class ProducerIds:
    """`run` fetches blocks until it is cancelled; `take` returns ids."""

    def __init__(self, channel: Requests, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._blocks: deque[range] = deque()
        self._block_size = 0
        self._wanted = trio.Event()
        self._arrived = trio.Event()

    @property
    def left(self) -> int:
        """Number of ids that can be given without a request to the controller."""
        return sum(map(len, self._blocks))

    async def take(self) -> int:
        """Return an id that no other producer gets. Waits for a block if necessary; may be cancelled."""
        while not self._blocks:
            self._wanted.set()
            await self._arrived.wait()
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        if self.left <= self._block_size * AHEAD_FRACTION:
            self._wanted.set()
        return block[0]

    async def run(self) -> None:
        """Keep a block ready from the first request for an id on."""
        while True:
            await self._wanted.wait()
            block = await self._allocate()
            self._blocks.append(block)
            self._block_size = len(block)
            self._wanted = trio.Event()
            self._arrived.set()
            self._arrived = trio.Event()

    async def _allocate(self) -> range:
        backoff_s = BACKOFF_S
        while True:
            block = await self._ask()
            if block is not None:
                logger.debug("producer ids %d to %d are allocated to this broker", block[0], block[-1])
                return block
            await trio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _ask(self) -> range | None:
        """Send one request; None if it has to be sent again."""
        request = AllocateProducerIdsRequest(self._broker_id, self._broker_epoch())
        response = await ask(self._channel, Api.ALLOCATE_PRODUCER_IDS, request, _response, timeout_ms=REQUEST_TIMEOUT_MS)
        if response is None:
            return None
        if response.error != ErrorCode.NONE or response.producer_id_len <= 0:
            logger.info("the controller answered %d to a request for producer ids: %s", response.error, response.message)
            return None
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)
