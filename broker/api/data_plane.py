"""Produce, fetch and digests over peer frames: whole v2 batches in and out (KIP-98's format, not Kafka's request format)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import trio

from kraftlab.metadata.errors import ErrorCode
from kraftlab.metadata.peer_rpc import (
    Api,
    LogDigestRequest,
    LogDigestResponse,
    ProduceRequest,
    ProduceResponse,
    ReplicaDigest,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from kraftlab.metadata.snapshot import image_digest
from kraftlab.quorum.core.decoding import Decoder
from kraftlab.wire.parts import Part, around, array_header, bin_header
from kraftlab.wire.transport import Body, PeerHandler, PeerRequest

from ..log.errors import LogClosed, LogError
from ..replica_manager import ReplicaManager
from ..replication.fetch_service import FetchService
from ..replication.partition import LeaderRole, Partition, ReplicaId
from ..replication.replica_errors import ReplicaError, code_of
from ..replication.stored_records import StoredRecords

ACKS_LEADER = 1
ACKS_ALL = -1
TIMEOUT_MAX_MS = 60_000
NOT_REPLICATED = "It was written, but not every in-sync replica had it in time; a second attempt may write it twice."

_encode = msgspec.msgpack.Encoder().encode
_produce = Decoder(ProduceRequest)
_fetch = Decoder(ReplicaFetchRequest)
_digest = Decoder(LogDigestRequest)


class DataPlane:
    """Handlers for the broker's PeerServer. Errors travel in the bodies of answers."""

    def __init__(self, replicas: ReplicaManager, fetches: FetchService) -> None:
        self._replicas = replicas
        self._fetches = fetches

    def handlers(self) -> Mapping[int, PeerHandler]:
        return {Api.PRODUCE: self._on_produce, Api.REPLICA_FETCH: self._on_fetch, Api.LOG_DIGEST: self._on_digest}

    async def _on_produce(self, request: PeerRequest) -> bytes:
        return _encode(await self.produce(_produce.decode(request.body)))

    async def _on_fetch(self, request: PeerRequest) -> Body:
        stored: dict[ReplicaId, StoredRecords] = {}
        response = await self._fetches.fetch(_fetch.decode(request.body), stored)
        return _in_parts(response, stored) if stored else _encode(response)

    async def _on_digest(self, request: PeerRequest) -> bytes:
        return _encode(await self.digest(_digest.decode(request.body)))

    # --- produce -------------------------------------------------------------------------------------------------------------

    async def produce(self, request: ProduceRequest) -> ProduceResponse:
        """Append batches; with acks=-1, answer once every in-sync replica has them.

        Errors: 21 invalid acks; 3, 100, 6, 56 about the replica; 19 too few in-sync replicas before the append, 20 after it; 7
        not replicated in time (the batches may still be kept); 2, 87 for bytes that are not batches or do not continue the log.
        """
        if request.acks not in (ACKS_LEADER, ACKS_ALL):
            return _refusal(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; send 1 or -1 (all)")
        try:
            partition = self._replicas.hosted((request.topic_id, request.partition))
            partition.leader_role()
            if request.acks == ACKS_ALL and partition.is_below_min_isr():
                raise ReplicaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"only {partition.state.isr} of {partition} are in sync, fewer than min.insync.replicas; nothing was written",
                )
            base, end, epoch = await partition.append_as_leader(request.records, keep_offsets=request.keep_offsets)
        except (ReplicaError, LogError) as error:
            return _refusal(code_of(error), str(error))
        if request.acks == ACKS_ALL:
            timeout_ms = min(request.timeout_ms, TIMEOUT_MAX_MS)
            code = await _replicated(partition, end, epoch, timeout_ms)
            if code != ErrorCode.NONE:
                message = NOT_REPLICATED if code == ErrorCode.REQUEST_TIMED_OUT else code.message
                return ProduceResponse(code, message, base, end)
        return ProduceResponse(ErrorCode.NONE, None, base, end)

    # --- digests -------------------------------------------------------------------------------------------------------------

    async def digest(self, request: LogDigestRequest) -> LogDigestResponse:
        """Digests of the replicas' logs on disk, and of the metadata image that this broker has published.

        Each log directory computes one digest at a time, so that other work gets its threads too.
        """
        image = self._replicas.image
        wanted = request.replicas if request.replicas is not None else tuple(sorted(self._replicas.partitions))
        digests: dict[int, ReplicaDigest] = {}
        places: dict[Path | None, list[int]] = {}
        for index, replica in enumerate(wanted):
            partition = self._replicas.partitions.get(replica)
            places.setdefault(None if partition is None else partition.log_dir, []).append(index)

        async def in_turn(indexes: list[int]) -> None:
            for index in indexes:
                digests[index] = await self._digest_of(wanted[index])

        async with trio.open_nursery() as nursery:
            for indexes in places.values():
                nursery.start_soon(in_turn, indexes)
        metadata_digest = await self._replicas.disks.in_thread(None, image_digest, image)
        replicas = tuple(digests[index] for index in range(len(wanted)))
        return LogDigestResponse(ErrorCode.NONE, None, image.provenance.offset, metadata_digest, replicas)

    async def _digest_of(self, replica: ReplicaId) -> ReplicaDigest:
        topic_id, number = replica
        try:
            partition = self._replicas.hosted(replica)
            log = partition.online_log()
            found = await self._replicas.disks.run(log.log_dir, log.digest)
        except (ReplicaError, LogError) as error:
            if isinstance(error, LogClosed) and partition.log not in (None, log):
                # A move has replaced the log.
                return await self._digest_of(replica)
            return ReplicaDigest(topic_id, number, code_of(error))
        return ReplicaDigest(
            topic_id,
            number,
            ErrorCode.NONE,
            str(log.log_dir),
            log.log_start_offset,
            log.log_end_offset,
            log.high_watermark,
            found.batches,
            found.records,
            found.control_records,
            found.size_bytes,
            found.crc32c,
            found.sha256,
        )


async def _replicated(partition: Partition, end_offset: int, leader_epoch: int, timeout_ms: int) -> ErrorCode:
    """Wait until the high watermark covers the append."""
    with trio.move_on_after(timeout_ms / 1000):
        while True:
            changed = trio.Event()
            with partition.watched_by(changed):
                log = partition.log
                if not isinstance(partition.role, LeaderRole) or partition.role.epoch != leader_epoch or log is None:
                    return ErrorCode.NOT_LEADER_OR_FOLLOWER
                if log.high_watermark >= end_offset:
                    return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if partition.is_below_min_isr() else ErrorCode.NONE
                await changed.wait()
    return ErrorCode.REQUEST_TIMED_OUT


def _in_parts(response: ReplicaFetchResponse, stored: Mapping[ReplicaId, StoredRecords]) -> list[Part]:
    """Encode the answer to a fetch around the records that are sent from their files."""
    before, after = around(msgspec.structs.replace(response, partitions=()), "partitions")
    parts: list[Part] = [before, array_header(len(response.partitions))]
    for answer in response.partitions:
        records = stored.get((answer.topic_id, answer.partition))
        if records is None:
            parts.append(_encode(answer))
        else:
            head, tail = around(answer, "records")
            parts += [head, bin_header(records.size_bytes), records, tail]
    return [*parts, after]


def _refusal(code: ErrorCode, message: str) -> ProduceResponse:
    return ProduceResponse(code, message)
