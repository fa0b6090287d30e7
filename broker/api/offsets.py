"""ListOffsets and OffsetForLeaderEpoch over peer frames, answered by leaders (recorded from Apache Kafka 4.3).

Clients see nothing above the high watermark. A leader whose high watermark has not reached the start of its own epoch yet may
know an older one than its predecessor had: it refuses with LEADER_NOT_AVAILABLE, so that no client sees the end of a log move
back.
"""

from __future__ import annotations

from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import (
    EpochEnd,
    EpochEndsRequest,
    EpochEndsResponse,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    WantedEpoch,
    WantedOffset,
)
from kraftlab.records.errors import LogError
from kraftlab.rpc.turns import Turns

from ..log.partition_log import PartitionLog
from ..log.time_lookup import EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST, LATEST_TIERED, find_offset
from ..replica_manager import ReplicaManager
from ..replication.partition import LeaderRole, ReplicaId
from ..replication.readers import epoch_error
from ..replication.replica_errors import ReplicaError, code_of

_BEFORE_THE_END = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
"""Places that a leader knows without reading its log."""


class Offsets:
    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """Errors of partitions: 3, 100, 6, 56 about the replica; 74, 75 another leader epoch; 5 not known yet; 35 no such
        timestamp.
        """
        turns, answers = Turns(), []
        for wanted in request.partitions:
            await turns.step()
            answers.append(await self._list_one(wanted))
        return ListOffsetsResponse(tuple(answers))

    async def _list_one(self, wanted: WantedOffset) -> ListedOffset:
        try:
            role, log = self._led((wanted.topic_id, wanted.partition), wanted.leader_epoch)
            if wanted.timestamp_ms not in _BEFORE_THE_END and log.high_watermark < role.epoch_start_offset:
                raise ReplicaError(ErrorCode.LEADER_NOT_AVAILABLE, "the new leader does not know yet which records are committed")
            if wanted.timestamp_ms == LATEST:
                return ListedOffset(wanted.topic_id, wanted.partition, 0, None, -1, log.high_watermark, log.latest_epoch)
            if wanted.timestamp_ms in _BEFORE_THE_END:
                found = find_offset(log, wanted.timestamp_ms)
            else:
                found = await self._replicas.disks.run(log.log_dir, find_offset, log, wanted.timestamp_ms)
        except ValueError as error:
            return ListedOffset(wanted.topic_id, wanted.partition, ErrorCode.UNSUPPORTED_VERSION, str(error))
        except (ReplicaError, LogError) as error:
            return ListedOffset(wanted.topic_id, wanted.partition, code_of(error), str(error))
        if found is None or (wanted.timestamp_ms not in _BEFORE_THE_END and found.offset >= log.high_watermark):
            return ListedOffset(wanted.topic_id, wanted.partition, ErrorCode.NONE)
        return ListedOffset(wanted.topic_id, wanted.partition, ErrorCode.NONE, None, *found)

    async def epoch_ends(self, request: EpochEndsRequest) -> EpochEndsResponse:
        """Errors of partitions: those of `list_offsets`. An epoch after the latest has no end here (-1, -1)."""
        turns, answers = Turns(), []
        for wanted in request.partitions:
            await turns.step()
            answers.append(self._end_of(wanted))
        return EpochEndsResponse(tuple(answers))

    def _end_of(self, wanted: WantedEpoch) -> EpochEnd:
        try:
            _, log = self._led((wanted.topic_id, wanted.partition), wanted.current_leader_epoch)
        except ReplicaError as error:
            return EpochEnd(wanted.topic_id, wanted.partition, error.code, error.message)
        if not 0 <= wanted.leader_epoch <= log.latest_epoch:
            return EpochEnd(wanted.topic_id, wanted.partition, ErrorCode.NONE)
        epoch, end_offset = log.end_offset_for(wanted.leader_epoch)
        known = epoch if epoch >= 0 else wanted.leader_epoch
        return EpochEnd(wanted.topic_id, wanted.partition, ErrorCode.NONE, None, known, end_offset)

    def _led(self, replica: ReplicaId, leader_epoch: int) -> tuple[LeaderRole, PartitionLog]:
        partition = self._replicas.hosted(replica)
        role = partition.leader_role()
        error = epoch_error(leader_epoch, role.epoch)
        if error:
            raise ReplicaError(error, error.message)
        return role, partition.online_log()
