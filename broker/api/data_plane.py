"""The data plane's calls over peer frames: produce (`produce.py`), offsets (`offsets.py`), fetch
(`replication/fetch_service.py`), and digests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from kraftlab.access.authorizer import AccessSettings, Authorizer
from kraftlab.common.decoding import Decoder
from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.acls import Operation
from kraftlab.metadata.peer_rpc import (
    Api,
    EpochEndsRequest,
    ListOffsetsRequest,
    LogDigestRequest,
    LogDigestResponse,
    ProduceRequest,
    ReplicaDigest,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from kraftlab.metadata.snapshot import image_digest
from kraftlab.records.errors import LogError
from kraftlab.wire.parts import Part, around, array_header, bin_header
from kraftlab.wire.transport import Body, PeerHandler, PeerRequest

from ..log.errors import LogClosed
from ..replica_manager import ReplicaManager
from ..replication.fetch_service import FetchService
from ..replication.partition import ReplicaId
from ..replication.replica_errors import ReplicaError, code_of
from ..replication.stored_records import StoredRecords
from .offsets import Offsets
from .peer_admission import PeerAdmission
from .produce import Produce

if TYPE_CHECKING:
    from kraftlab.gateway.data import ReadableTopics

_encode = msgspec.msgpack.Encoder().encode
_produce_request = Decoder(ProduceRequest)
_list_offsets = Decoder(ListOffsetsRequest)
_epoch_ends = Decoder(EpochEndsRequest)
_fetch = Decoder(ReplicaFetchRequest)
_digest = Decoder(LogDigestRequest)


class DataPlane:
    """Handlers for the broker's PeerServer. Errors travel in the bodies of answers; a caller without rights gets none."""

    def __init__(self, replicas: ReplicaManager, fetches: FetchService, access: AccessSettings = AccessSettings()) -> None:
        self._replicas = replicas
        self._admission = PeerAdmission(Authorizer(access), lambda: replicas.image)
        self._fetches = fetches
        self.producing = Produce(replicas)
        self.produce = self.producing.produce
        self.offsets = Offsets(replicas)
        self.list_offsets, self.epoch_ends = self.offsets.list_offsets, self.offsets.epoch_ends

    def handlers(self) -> Mapping[int, PeerHandler]:
        return {
            Api.PRODUCE: self._on_produce,
            Api.LIST_OFFSETS: self._on_list_offsets,
            Api.OFFSET_FOR_LEADER_EPOCH: self._on_epoch_ends,
            Api.REPLICA_FETCH: self._on_fetch,
            Api.LOG_DIGEST: self._on_digest,
        }

    async def _on_produce(self, request: PeerRequest) -> bytes:
        wanted = _produce_request.decode(request.body)
        self._admission.check_topics(request, Operation.WRITE, (wanted.topic_id,))
        return _encode(await self.produce(wanted))

    async def _on_list_offsets(self, request: PeerRequest) -> bytes:
        wanted = _list_offsets.decode(request.body)
        self._admission.check_topics(request, Operation.DESCRIBE, (each.topic_id for each in wanted.partitions))
        return _encode(await self.offsets.list_offsets(wanted))

    async def _on_epoch_ends(self, request: PeerRequest) -> bytes:
        wanted = _epoch_ends.decode(request.body)
        if not self._admission.is_broker(request):
            self._admission.check_topics(request, Operation.DESCRIBE, (each.topic_id for each in wanted.partitions))
        return _encode(await self.offsets.epoch_ends(wanted))

    async def _on_fetch(self, request: PeerRequest) -> Body:
        wanted = _fetch.decode(request.body)
        self._admission.check_sender(request, wanted)
        if wanted.replica_id >= 0:
            self._admission.check_broker(request)
        else:
            self._admission.check_topics(request, Operation.READ, (each.topic_id for each in wanted.partitions))
        response, stored = await self.fetch(wanted)
        return _in_parts(response, stored) if stored else _encode(response)

    async def fetch(
        self, request: ReplicaFetchRequest, topics: ReadableTopics | None = None
    ) -> tuple[ReplicaFetchResponse, Mapping[ReplicaId, StoredRecords]]:
        """Answer a fetch. Records of partitions that have many are not in the response: they are sent from their files.

        `topics`: those of a Kafka client.
        """
        stored: dict[ReplicaId, StoredRecords] = {}
        return await self._fetches.fetch(request, stored, topics), stored

    async def _on_digest(self, request: PeerRequest) -> bytes:
        wanted = _digest.decode(request.body)
        self._admission.check_cluster(request, Operation.DESCRIBE)
        return _encode(await self.digest(wanted))

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
