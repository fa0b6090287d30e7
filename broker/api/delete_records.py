"""DeleteRecords: the leader of a partition advances its log start offset and answers once every live replica has followed
(KIP-107).

Theory of operation. The leader raises its log start offset, at most to the high watermark, and deletes the segments below.
Readers get OFFSET_OUT_OF_RANGE there from then on. Followers learn the new start with their next fetch and report their own start
in the fetch after that. The low watermark is the lowest log start offset of all replicas whose broker is alive: records below it
will not be seen again, whichever replica leads next. Replicas of other brokers catch up when their brokers come back.

Each log start offset is written to disk before the answer, so that deleted records do not come back after a crash. Deleted
records that share a segment with others stay on the disk until the whole segment can go.
"""

from __future__ import annotations

import trio
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.topic_names import INTERNAL_TOPICS
from kraftlab.records.errors import LogError
from kraftlab.rpc.turns import Turns

from ..control.dynamic_configs import DynamicConfigs
from ..replica_manager import ReplicaManager
from ..replication.partition import Partition
from ..replication.replica_errors import ReplicaError, code_of

NO_WATERMARK = -1
TIMEOUT_DEFAULT_MS = 60_000
TIMEOUT_MARGIN_S = 0.05
"""The answer comes this long before the call's own deadline, so that it still reports the deletions."""

Key = tuple[int, int]
"""Position of an entry in the request: (topic, partition)."""


class DeleteRecordsApi:
    def __init__(self, replicas: ReplicaManager, configs: DynamicConfigs) -> None:
        self._replicas = replicas
        self._configs = configs

    async def delete(self, message: Message) -> Message:
        """Delete records of each partition.

        Error codes, checked in this order: 3 unknown, 17 internal topic, 6 not led by this broker, 56 log directory offline, 44
        topic compacted only, 1 offset negative (but for -1) or beyond the high watermark, 7 deleted on the leader, but a live
        replica did not follow in time.
        """
        assert isinstance(message, admin_pb2.DeleteRecordsRequest)
        asked = {
            (at, index): (topic.name, entry.partition_index, entry.offset)
            for at, topic in enumerate(message.topics)
            for index, entry in enumerate(topic.partitions)
        }
        results: dict[Key, admin_pb2.DeleteRecordsPartitionResult] = {}
        started: dict[Key, tuple[Partition, int]] = {}
        turns = Turns()
        for key, (name, number, offset) in asked.items():
            await turns.step()
            results[key] = admin_pb2.DeleteRecordsPartitionResult(partition_index=number, low_watermark=NO_WATERMARK)
            try:
                started[key] = await self._begin(name, number, offset)
            except (ReplicaError, LogError) as error:
                _refuse(results[key], code_of(error), str(error))
        await self._make_durable(started, results)
        timeout_ms = message.header.timeout_ms if message.header.HasField("timeout_ms") else TIMEOUT_DEFAULT_MS
        with trio.move_on_after(max(0.0, timeout_ms / 1000 - TIMEOUT_MARGIN_S)):
            async with trio.open_nursery() as nursery:
                for key, (partition, offset) in started.items():
                    nursery.start_soon(self._finish, partition, offset, results[key])
        for key, (partition, _) in started.items():
            if results[key].low_watermark == NO_WATERMARK and not results[key].error_code:
                waiting = f"not every live replica of {partition} begins at that offset yet; the leader does"
                _refuse(results[key], ErrorCode.REQUEST_TIMED_OUT, waiting)
        response = admin_pb2.DeleteRecordsResponse()
        for at, topic in enumerate(message.topics):
            response.topics.add(name=topic.name, partitions=[results[at, index] for index in range(len(topic.partitions))])
        return response

    async def _begin(self, topic: str, number: int, offset: int) -> tuple[Partition, int]:
        """Delete on this leader. Return the partition and the log start offset that every replica is to reach."""
        topic_id = self._replicas.image.topics.by_name.get(topic)
        if topic_id is None:
            raise ReplicaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic named {topic}")
        if topic in INTERNAL_TOPICS:
            raise ReplicaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"records of the internal topic {topic} cannot be deleted")
        partition = self._replicas.hosted((topic_id, number))
        partition.leader_role()
        if not self._configs.deletes(topic):
            raise ReplicaError(
                ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} is compact without delete: its records are not deleted"
            )
        return partition, await partition.delete_records_before(offset)

    async def _make_durable(
        self, started: dict[Key, tuple[Partition, int]], results: dict[Key, admin_pb2.DeleteRecordsPartitionResult]
    ) -> None:
        """Write log start offsets, once per directory; drop failed entries from `started`."""
        for log_dir in {partition.log_dir for partition, _ in started.values()}:
            if log_dir is None:
                continue
            try:
                await self._replicas.disks.run(log_dir, self._replicas.logs.write_log_start_offsets, log_dir)
            except LogError as error:
                for key in [key for key, (partition, _) in started.items() if partition.log_dir in (log_dir, None)]:
                    del started[key]
                    _refuse(results[key], code_of(error), str(error))

    async def _finish(self, partition: Partition, offset: int, result: admin_pb2.DeleteRecordsPartitionResult) -> None:
        """Wait until the low watermark has reached the offset."""
        while True:
            changed = trio.Event()
            with partition.watched_by(changed):
                try:
                    low_watermark = partition.low_watermark()
                except ReplicaError as error:
                    _refuse(result, error.code, error.message)
                    return
                if low_watermark >= offset:
                    result.low_watermark = low_watermark
                    return
                await changed.wait()


def _refuse(result: admin_pb2.DeleteRecordsPartitionResult, code: ErrorCode, message: str) -> None:
    result.error_code = code
    result.error_message = message
