"""DescribeProducers and ListTransactions: the idempotent producers of partitions, at the leader and at followers (KIP-664).

There is no transaction coordinator, so there are no transactions to list; the filters are checked as in Kafka.
"""

from __future__ import annotations

import re

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.gateway.codec import KafkaRequest
from kraftlab.messages.generated.describe_producers_request import DescribeProducersRequest
from kraftlab.messages.generated.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kraftlab.messages.generated.list_transactions_request import ListTransactionsRequest
from kraftlab.messages.generated.list_transactions_response import ListTransactionsResponse
from kraftlab.metadata.acls import Operation, ResourceType
from kraftlab.metadata.topic_names import name_problem
from kraftlab.records.errors import LogError
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.turns import Turns

from ..log.producer_state import NONE, Producer
from ..replica_manager import ReplicaManager
from ..replication.replica_errors import ReplicaError, code_of
from .consumer_groups import RightsOf

TRANSACTION_STATES = frozenset(
    {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}
)
UNKNOWN_TOPIC = "This server does not host this topic-partition."
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."


class DescribeProducers:
    def __init__(self, replicas: ReplicaManager, rights: RightsOf) -> None:
        self._replicas = replicas
        self._rights = rights

    async def describe(self, request: KafkaRequest, caller: Caller) -> DescribeProducersResponse:
        """Return the producers of each partition, by their ids. Requires READ on each topic; those without it come last.

        Error codes: 17 invalid name; 3 unknown, with a text for an unknown topic; 6 not hosted here; 29 not authorized; 56 log
        directory offline.
        """
        body: DescribeProducersRequest = request.body
        rights, turns = self._rights(caller.principal, caller.host), Turns()
        rows: list[TopicResponse] = []
        refused: list[TopicResponse] = []
        for topic in body.topics:
            await turns.step()
            may = rights.allow(Operation.READ, ResourceType.TOPIC, topic.name)
            partitions = []
            for index in topic.partition_indexes:
                await turns.step()
                partitions.append(await self._partition(topic.name, index) if may else PartitionResponse(index, *REFUSED))
            (rows if may else refused).append(TopicResponse(topic.name, partitions))
        return DescribeProducersResponse(topics=[*rows, *refused])

    async def _partition(self, name: str, index: int) -> PartitionResponse:
        refusal = name_problem(name)
        if refusal is not None:
            return PartitionResponse(index, ErrorCode.INVALID_TOPIC_EXCEPTION, refusal)
        # The topic may be deleted while an earlier partition is read.
        topic_id = self._replicas.image.topics.by_name.get(name)
        if topic_id is None:
            return PartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC)
        try:
            return PartitionResponse(index, active_producers=await self._producers((topic_id, index)))
        except (ReplicaError, LogError) as error:
            return PartitionResponse(index, code_of(error))

    async def _producers(self, replica: tuple[bytes, int]) -> list[ProducerState]:
        partition = self._replicas.hosted(replica)
        partition.reader_role()
        log = partition.online_log()
        # The log's lock may be held while a disk writes.
        state = await self._replicas.disks.run(partition.log_dir, lambda: log.producers)
        return [_described(producer_id, producer) for producer_id, producer in sorted(state.producers.items())]


def _described(producer_id: int, producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.batches[-1].timestamp_ms if producer.batches else NONE,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_offset,
    )


async def list_transactions(request: KafkaRequest, caller: Caller) -> ListTransactionsResponse:
    """Return no transactions, and the state filters that name no state. ApiError INVALID_REGULAR_EXPRESSION."""
    body: ListTransactionsRequest = request.body
    pattern = body.transactional_id_pattern or ""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The pattern of transactional ids {pattern!r} is not a regular expression: {error}",
        ) from error
    unknown = tuple(state for state in body.state_filters if state not in TRANSACTION_STATES)
    return ListTransactionsResponse(unknown_state_filters=unknown)
