"""AlterReplicaLogDirs and DescribeLogDirs of one broker (KIP-113, KIP-827).

Beyond Kafka: `any` cancels a running move, as the replica's current directory does. A move goes on while another disk is dead.
Every error says what to do. A request for the directory of a parked move retries that move. DescribeLogDirs shows the bytes left,
the rate, the start time and the last error of each replica that is being filled, by a move or from its leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import to_text
from kraftlab.records.errors import LogError
from kraftlab.rpc.turns import Turns

from ..control.cordons import CORDONED_LOG_DIRS
from ..control.metadata_publisher import MetadataPublisher
from ..log.descriptions import DirDescription, KeptDescription, ReplicaDescription, StrayDescription
from ..log.partition_log import PartitionLog
from ..replica_manager import ReplicaManager
from ..replication.fill_progress import Filling
from ..replication.partition import FollowerRole, Partition
from ..replication.replica_errors import ReplicaError, code_of

logger = logging.getLogger("kraftlab.broker.log_dirs")

ANY = "any"
TOPIC_NAME_MAX = 249

Outcome = tuple[ErrorCode, str]
DONE: Outcome = (ErrorCode.NONE, "")


class LogDirsApi:
    """Handlers of the two calls. They change state under the replica manager's `state_lock`."""

    def __init__(self, replicas: ReplicaManager, publisher: MetadataPublisher) -> None:
        self._replicas = replicas
        self._publisher = publisher

    # --- AlterReplicaLogDirs -------------------------------------------------------------------------------------------------

    async def alter(self, message: Message) -> Message:
        """Begin or cancel moves.

        Error codes per partition, checked in this order: 17 a name of over 249 characters, 57 unknown directory, 39 cordoned, 56
        offline, 9 no replica on this broker, 3 unknown partition; with the last two the destination is remembered.

        A replica under two directories goes to the last of them.

        NONE means that the move has begun or that there is nothing to do, not that it is finished.
        """
        assert isinstance(message, admin_pb2.AlterReplicaLogDirsRequest)
        wanted: dict[str, dict[int, str]] = {}
        turns = Turns()
        for entry in message.dirs:
            for topic in entry.topics:
                for partition in topic.partitions:
                    await turns.step()
                    wanted.setdefault(topic.name, {})[partition] = entry.path
        response = admin_pb2.AlterReplicaLogDirsResponse()
        async with self._replicas.state_lock:
            for name, partitions in wanted.items():
                result = response.results.add(topic_name=name)
                for number, path in partitions.items():
                    await turns.step()
                    code, text = await self._alter_one(name, number, path)
                    answer = result.partitions.add(partition_index=number, error_code=code)
                    if text:
                        answer.error_message = text
            destinations = self._replicas.logs.destinations
            if not destinations.is_saved:
                await self._replicas.disks.run(None, destinations.save)
        return response

    async def _alter_one(self, topic: str, number: int, path: str) -> Outcome:
        try:
            if path == ANY:
                return await self._cancel(topic, number)
            return await self._move_to(topic, number, path)
        except ReplicaError as error:
            return error.code, error.message
        except LogError as error:
            return code_of(error), str(error)

    async def _cancel(self, topic: str, number: int) -> Outcome:
        """Cancel a move, or forget a remembered destination."""
        self._replicas.logs.destinations.forget(topic, number)
        partition = self._hosted(topic, number, "nothing is being moved")
        await self._replicas.mover.drop(partition.id)
        return DONE

    async def _move_to(self, topic: str, number: int, path: str) -> Outcome:
        if len(topic) > TOPIC_NAME_MAX:
            raise ReplicaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"no topic has a name of {len(topic)} characters; {TOPIC_NAME_MAX} are the most",
            )
        target = self._configured(path)
        topic_id = self._replicas.image.topics.by_name.get(topic)
        partition = self._replicas.partitions.get((topic_id, number)) if topic_id is not None else None
        self._check_takes_replicas(target, partition)
        if partition is not None:
            partition.online_log()
            move = self._replicas.mover.moves.get(partition.id)
            if move is not None and move.target_dir == target and move.dropped is None:
                self._replicas.mover.retry(partition.id)
                return DONE
            if move is not None:
                await self._replicas.mover.drop(partition.id)
        if partition is None or partition.log is None:
            target_id = self._replicas.logs.directory_ids()[target]
            self._replicas.logs.destinations.remember(topic, number, target_id, topic_id)
            self._hosted(topic, number, "if one is created here later, it goes to that directory")
            return DONE
        if partition.log.log_dir == target:
            return DONE
        create = self._replicas.logs.create_future
        future = await self._replicas.disks.run(target, create, *partition.id, target)
        self._replicas.mover.begin(partition, future)
        return DONE

    def _configured(self, path: str) -> Path:
        """Return the configured directory with exactly that path, as Kafka does, so that a typing error never moves a replica."""
        logs = self._replicas.logs
        known = next((log_dir for log_dir in logs.log_dirs if str(log_dir) == path), None)
        if known is None:
            names = ", ".join(map(str, logs.log_dirs))
            raise ReplicaError(
                ErrorCode.LOG_DIR_NOT_FOUND,
                f"{path!r} is not a log directory of broker {self._replicas.broker_id}; it has {names}",
            )
        return known

    def _check_takes_replicas(self, target: Path, partition: Partition | None) -> None:
        """ReplicaError if `target` is cordoned (39) or offline (56). A replica that is in a cordoned directory may stay."""
        logs = self._replicas.logs
        lies_there = partition is not None and partition.log is not None and partition.log.log_dir == target
        if target in logs.cordoned_dirs and not lies_there:
            raise ReplicaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"log directory {target} is cordoned; choose another directory, or take it out of {CORDONED_LOG_DIRS}",
            )
        if target in logs.offline_dirs:
            raise ReplicaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"log directory {target} is offline: {logs.offline_dirs[target]}; repair its disk, then run "
                "kraftlab log-dirs --online or restart the broker",
            )

    def _hosted(self, topic: str, number: int, otherwise: str) -> Partition:
        """Return the partition. ReplicaError 3 if the metadata does not have it, 9 if this broker is not a replica; `otherwise`
        says what that means for the request.
        """
        topic_image = self._replicas.image.topics.get(topic)
        if topic_image is None or number not in topic_image.partitions:
            raise ReplicaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{number}; check the name and the number"
            )
        partition = self._replicas.partitions.get((topic_image.topic_id, number))
        if partition is None:
            raise ReplicaError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"broker {self._replicas.broker_id} hosts no replica of {topic}-{number}; {otherwise}",
            )
        return partition

    # --- DescribeLogDirs -----------------------------------------------------------------------------------------------------

    async def describe(self, message: Message) -> Message:
        """Describe the configured directories and their replicas, filtered by the request; unknown replicas are omitted."""
        assert isinstance(message, admin_pb2.DescribeLogDirsRequest)
        response = admin_pb2.DescribeLogDirsResponse(broker_id=self._replicas.broker_id)
        limit = self._replicas.mover.limit
        if limit is not None:
            response.move_limit = int(limit)
        is_wanted = self._wanted(message)
        for directory in await self._replicas.disks.run(None, self._replicas.logs.describe, is_wanted):
            directory_id = to_text(directory.directory_id) if directory.directory_id is not None else ""
            if not message.log_dirs or str(directory.path) in message.log_dirs or directory_id in message.log_dirs:
                response.results.append(self._describe_dir(directory))
        return response

    def _wanted(self, request: admin_pb2.DescribeLogDirsRequest) -> Callable[[PartitionLog], bool]:
        """Return the filter of a request. It runs in another thread, so it keeps copies of what changes."""
        whole = {topic.topic for topic in request.topics.values if topic.all_partitions}
        named = {(topic.topic, number) for topic in request.topics.values for number in topic.partitions}
        takes_all, only_filling = not request.HasField("topics"), request.only_filling
        filling = {*self._replicas.mover.moves} | {
            partition.id
            for partition in (self._replicas.partitions.values() if only_filling else ())
            if isinstance(partition.role, FollowerRole) and partition.role.filling is not None
        }

        def is_wanted(log: PartitionLog) -> bool:
            is_named = takes_all or log.topic in whole or (log.topic, log.partition) in named
            return is_named and (not only_filling or (log.topic_id, log.partition) in filling)

        return is_wanted

    def _describe_dir(self, directory: DirDescription) -> admin_pb2.LogDirResult:
        result = admin_pb2.LogDirResult(
            error_code=ErrorCode.NONE if directory.error is None else ErrorCode.KAFKA_STORAGE_ERROR,
            log_dir=str(directory.path),
            total_bytes=directory.total_bytes,
            usable_bytes=directory.usable_bytes,
            is_cordoned=directory.path in self._replicas.logs.cordoned_dirs,
            directory_id=to_text(directory.directory_id) if directory.directory_id is not None else "",
            strays=[str(stray.path) for stray in directory.strays],
            error_message=directory.error or "",
            kept_copies=[*map(self._describe_kept, directory.kept), *map(self._describe_kept, directory.strays)],
        )
        topics: dict[str, admin_pb2.LogDirTopic] = {}
        for replica in directory.replicas:
            if replica.topic not in topics:
                topics[replica.topic] = result.topics.add(name=replica.topic)
            topics[replica.topic].partitions.append(self._describe_replica(replica))
        return result

    def _describe_kept(self, copy: KeptDescription | StrayDescription) -> admin_pb2.KeptReplicaCopy:
        topic_id = self._replicas.image.topics.by_name.get(copy.topic, b"")
        lost = self._replicas.lost.get((topic_id, copy.partition))
        return admin_pb2.KeptReplicaCopy(
            path=str(copy.path),
            topic_name=copy.topic,
            partition_index=copy.partition,
            size_bytes=copy.size_bytes,
            log_end_offset=copy.log_end_offset,
            is_stray=isinstance(copy, StrayDescription),
            lost_log_end_offset=-1 if lost is None else lost.log_end_offset,
            doubt=copy.doubt if isinstance(copy, KeptDescription) else "",
        )

    def _describe_replica(self, replica: ReplicaDescription) -> admin_pb2.LogDirPartition:
        key = (replica.topic_id, replica.partition)
        partition = self._replicas.partitions.get(key)
        filling: Filling | None = None
        source: Path | None = None
        if replica.is_future:
            move = self._replicas.mover.moves.get(key)
            filling = move.filling if move is not None else None
            source = None if partition is None else partition.log_dir
        elif partition is not None and isinstance(partition.role, FollowerRole):
            filling = partition.role.filling
        described = admin_pb2.LogDirPartition(
            partition_index=replica.partition,
            partition_size=replica.size_bytes,
            offset_lag=replica.offset_lag,
            is_future_key=replica.is_future,
            bytes_left=-1,
            bytes_per_second=-1,
            started_ms=-1,
        )
        log = None if partition is None else partition.future if replica.is_future else partition.log
        if partition is not None and partition.losses and not replica.is_future:
            losses = partition.losses
            described.lost.CopyFrom(
                admin_pb2.LostRecords(
                    truncations=losses.truncations,
                    records=losses.records,
                    acknowledged_records=losses.acknowledged,
                    size_bytes=losses.size_bytes,
                    unclean_elections=losses.unclean_elections,
                    last_ms=losses.last_ms,
                )
            )
        described.log_end_offset = -1 if log is None else log.log_end_offset
        if source is not None:
            described.source_log_dir = str(source)
        if filling is not None:
            described.bytes_left = filling.bytes_left
            described.bytes_per_second = filling.bytes_per_second
            described.started_ms = filling.started_ms
            described.error = filling.error
        return described
