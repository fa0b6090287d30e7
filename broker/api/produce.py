"""Produce over peer frames: whole v2 batches for one partition (KIP-98's batch format, not Kafka's request format).

Theory of operation. A batch is checked and appended under the log's lock (`log/record_checks.py`, `log/producer_state.py`). With
acks=-1 the answer waits until the high watermark covers the batch. So does the answer to a duplicate, whose first copy may not be
replicated yet: a success always says that the records are where the request wanted them. With acks=0 nobody waits for the answer,
so errors are counted and logged here.
"""

from __future__ import annotations

import logging
from collections import Counter

import trio

from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import ProduceRequest, ProduceResponse
from kraftlab.records.errors import InvalidRecords, LogError

from ..log.record_checks import check_request
from ..replica_manager import ReplicaManager
from ..replication.acknowledgement import replicated
from ..replication.replica_errors import ReplicaError, code_of

ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1
TIMEOUT_MAX_MS = 60_000
UNSEEN_LOG_INTERVAL_S = 10.0
NOT_REPLICATED = (
    "It was written, but not every in-sync replica had it in time; without a producer id, a second attempt may write it twice."
)
WITHOUT_START = frozenset(
    {ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
)
"""Refusals of a batch whose answers do not name the log's start, as in Kafka."""

logger = logging.getLogger("kraftlab.broker.produce")


class Produce:
    """Appends at the leader. `unseen_errors`: errors of requests with acks=0, by code."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self.unseen_errors: Counter[ErrorCode] = Counter()
        self._unseen_logged_at = -UNSEEN_LOG_INTERVAL_S

    async def produce(self, request: ProduceRequest) -> ProduceResponse:
        """Append batches; with acks=-1, answer once every in-sync replica has them.

        Errors: 21 invalid acks; 3, 100, 6, 56 about the replica; 19 too few in-sync replicas before the append, 20 after it; 7
        not replicated in time (the batches may still be kept); 2, 10, 32, 53, 76, 87 for batches that are not accepted; 45, 47
        and 49 about their producer.
        """
        response = await self._produce(request)
        partition = self._replicas.partitions.get((request.topic_id, request.partition))
        self._replicas.traffic.produced(None if partition is None else partition.traffic, response.error)
        if request.acks == ACKS_NONE and response.error != ErrorCode.NONE:
            self._note_unseen(request, response)
        return response

    async def _produce(self, request: ProduceRequest) -> ProduceResponse:
        if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            return _refusal(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; send 0, 1 or -1 (all)")
        try:
            if not request.keep_offsets:
                check_request(request.records)
            partition = self._replicas.hosted((request.topic_id, request.partition))
            log_start_offset = partition.leader_log().log_start_offset
            if request.acks == ACKS_ALL and partition.is_below_min_isr():
                raise ReplicaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"only {partition.state.isr} of {partition} are in sync, fewer than min.insync.replicas; nothing was written",
                )
        except (ReplicaError, LogError) as error:
            return _refusal(code_of(error), str(error))
        try:
            appended, epoch = await partition.append_as_leader(
                request.records, keep_offsets=request.keep_offsets, may_be_stored=request.may_be_stored
            )
        except (ReplicaError, LogError) as error:
            code = code_of(error)
            records = error.records if isinstance(error, InvalidRecords) else ()
            start = -1 if isinstance(error, ReplicaError) or code in WITHOUT_START else log_start_offset
            return ProduceResponse(code, str(error), log_start_offset=start, record_errors=records)
        code, message = ErrorCode.NONE, None
        if request.acks == ACKS_ALL:
            code = await replicated(partition, appended.end_offset, epoch, min(request.timeout_ms, TIMEOUT_MAX_MS))
            if code != ErrorCode.NONE:
                message = NOT_REPLICATED if code == ErrorCode.REQUEST_TIMED_OUT else code.message
        return ProduceResponse(
            code, message, appended.base_offset, appended.end_offset, appended.log_append_time_ms, log_start_offset
        )

    def _note_unseen(self, request: ProduceRequest, response: ProduceResponse) -> None:
        """Count the error of a producer that does not look at the answer; log one from time to time."""
        self.unseen_errors[ErrorCode(response.error)] += 1
        now = trio.current_time()
        if now >= self._unseen_logged_at + UNSEEN_LOG_INTERVAL_S:
            self._unseen_logged_at = now
            logger.warning(
                "a batch for partition %d with acks=0 was not written: %s (%d such errors so far)",
                *(request.partition, response.message, self.unseen_errors.total()),
            )


def _refusal(code: ErrorCode, message: str) -> ProduceResponse:
    return ProduceResponse(code, message)
