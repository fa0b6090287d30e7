"""DescribeProducers and ListTransactions: the idempotent producers of partitions, at the leader and at followers (KIP-664).

There is no transaction coordinator, so there are no transactions to list; the filters are checked as in Kafka.
"""

from __future__ import annotations

import re

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.topic_names import name_problem
from kraftlab.records.errors import LogError
from kraftlab.rpc.turns import Turns

from ..log.producer_state import NONE, Producer
from ..replica_manager import ReplicaManager
from ..replication.replica_errors import ReplicaError, code_of

TRANSACTION_STATES = frozenset(
    {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}
)
UNKNOWN_TOPIC = "This server does not host this topic-partition."


class DescribeProducers:
    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def describe(self, message: Message) -> Message:
        """Return the producers of each partition, by their ids.

        Error codes: 17 invalid name; 3 unknown, with a text for an unknown topic; 6 not hosted here; 56 log directory offline.
        """
        assert isinstance(message, admin_pb2.DescribeProducersRequest)
        response, turns = admin_pb2.DescribeProducersResponse(), Turns()
        for topic in message.topics:
            await turns.step()
            answers = response.topics.add(name=topic.name).partitions
            refusal = name_problem(topic.name)
            for index in topic.partition_indexes:
                await turns.step()
                # The topic may be deleted while an earlier partition is read.
                topic_id = self._replicas.image.topics.by_name.get(topic.name)
                answer = answers.add(partition_index=index)
                if refusal is not None:
                    answer.error_code, answer.error_message = ErrorCode.INVALID_TOPIC_EXCEPTION, refusal
                    continue
                if topic_id is None:
                    answer.error_code, answer.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC
                    continue
                try:
                    answer.active_producers.extend(await self._producers((topic_id, index)))
                except (ReplicaError, LogError) as error:
                    answer.error_code = code_of(error)
        return response

    async def _producers(self, replica: tuple[bytes, int]) -> list[admin_pb2.ActiveProducer]:
        partition = self._replicas.hosted(replica)
        partition.reader_role()
        log = partition.online_log()
        # The log's lock may be held while a disk writes.
        state = await self._replicas.disks.run(partition.log_dir, lambda: log.producers)
        return [_described(producer_id, producer) for producer_id, producer in sorted(state.producers.items())]


def _described(producer_id: int, producer: Producer) -> admin_pb2.ActiveProducer:
    return admin_pb2.ActiveProducer(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.batches[-1].timestamp_ms if producer.batches else NONE,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_offset,
    )


async def list_transactions(message: Message) -> Message:
    """Return no transactions, and the state filters that name no state. ApiError INVALID_REGULAR_EXPRESSION."""
    assert isinstance(message, admin_pb2.ListTransactionsRequest)
    try:
        re.compile(message.transactional_id_pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The pattern of transactional ids {message.transactional_id_pattern!r} is not a regular expression: {error}",
        ) from error
    unknown = [state for state in message.state_filters if state not in TRANSACTION_STATES]
    return admin_pb2.ListTransactionsResponse(unknown_state_filters=unknown)
