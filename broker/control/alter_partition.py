"""Requests for other in-sync sets, from this broker's leaders to the controller: one request in flight, one pending change per
partition (KIP-497).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from kraftlab.common.decoding import Decoder
from kraftlab.common.errors import ErrorCode
from kraftlab.common.signal import Signal
from kraftlab.common.uuids import Uuid
from kraftlab.metadata.peer_rpc import AlterPartitionRequest, AlterPartitionResponse, Api, IsrChange, IsrChangeResult

from .controller_channel import Requests, ask

logger = logging.getLogger("kraftlab.broker.isr")

RETRY_BACKOFF_S = 0.05
REQUEST_TIMEOUT_MS = 5000

OnAnswer = Callable[[IsrChangeResult], bool]
"""Called with the controller's answer for a partition; False asks again."""

_response = Decoder(AlterPartitionResponse)


class AlterPartitionManager:
    """`submit` replaces a change of the same partition that has not been answered."""

    def __init__(self, channel: Requests, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._pending: dict[tuple[Uuid, int], tuple[IsrChange, OnAnswer]] = {}
        self._wake = Signal()

    def submit(self, change: IsrChange, on_answer: OnAnswer) -> None:
        self._pending[change.topic_id, change.partition] = (change, on_answer)
        self._wake.set()

    def withdraw(self, topic_id: Uuid, partition: int) -> None:
        """Drop a change that is out of date; an answer to it is ignored."""
        self._pending.pop((topic_id, partition), None)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            if not self._pending:
                await self._wake.wait()
                continue
            if not await self._send():
                await trio.sleep(RETRY_BACKOFF_S)

    async def _send(self) -> bool:
        """Send one request with every pending change; False if a change has to be sent again."""
        sent = dict(self._pending)
        changes = tuple(change for change, _ in sent.values())
        request = AlterPartitionRequest(self._broker_id, self._broker_epoch(), changes)
        response = await ask(self._channel, Api.ALTER_PARTITION, request, _response, timeout_ms=REQUEST_TIMEOUT_MS)
        if response is None:
            return False
        if response.error != ErrorCode.NONE:
            logger.debug("AlterPartition was answered %d: %s", response.error, response.message)
            return False
        settled = True
        for result in response.results:
            key = (result.topic_id, result.partition)
            pending = self._pending.get(key)
            if pending is None or pending is not sent.get(key):
                continue
            _, on_answer = pending
            if on_answer(result):
                if self._pending.get(key) is pending:
                    del self._pending[key]
            else:
                settled = False
        return settled
