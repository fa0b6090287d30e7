"""`MetadataLog`: the metadata log of a running cluster for a program without an event loop, read as observers read it.

Batches come from the active controller by Fetch (KIP-595). An answer has the high watermark, and may have records beyond it.
Those may still be truncated; the caller must not use them. A position before the start of the leader's log needs a snapshot
(KIP-630).

The leader knows a named observer by the position that the observer *acknowledges*: the leader keeps the log from there, for the
time in its configuration, and `describe --replication` lists the observer. Reads are anonymous, and acknowledge nothing. An
observer has the node id of clients, -1, and is known by a directory id: it never is a node, so no certificate has to name it.
With an authorizer it needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode, describe
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.common.uuids import UUID_BYTES, ZERO
from kraftlab.quorum.core.messages import (
    API_OF,
    Diverging,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Records,
    SnapshotRequired,
)
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.wire.frames import FrameError

from .admin import AdminClient
from .caller import left_ms
from .data import PeerConnection
from .dialling import NotSecured
from .errors import ClusterUnreachable, api_error
from .results import Quorum
from .security import ClientSecurity

ANONYMOUS = ReplicaKey(-1, ZERO)
LISTENER = "CONTROLLER"
FETCH_BYTES = 1 << 20
_ATTEMPT_TIMEOUT_S = 5.0
"""Time limit for one leader, which answers at once unless it hangs. Then another leader is elected."""
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
_LEADER_CHANGED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
_NOT_FOR_STRANGERS = (
    "the cluster has an authorizer, and the metadata log is not for everybody: allow ClusterAction to {} (kraftlab acls --add "
    "--cluster --operation ClusterAction --allow-principal …), or {}"
)
_NOBODY_LEADS = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NOT_CONTROLLER})
"""Errors of a broker that could not forward a request to the active controller."""

Response = TypeVar("Response", FetchResponse, FetchSnapshotResponse)


class LogState(NamedTuple):
    """Range of the leader's log: records below `high_watermark` are committed, records from `start_offset` exist."""

    high_watermark: int
    start_offset: int


class Chunk(NamedTuple):
    """Consecutive whole batches from a position. The last may reach beyond the high watermark of the answer."""

    data: bytes
    state: LogState


class SnapshotInstead(Exception):
    """The leader's log starts after the position; earlier records are in this snapshot."""

    def __init__(self, snapshot: OffsetAndEpoch) -> None:
        super().__init__(f"the log was cleaned; earlier records are in snapshot {snapshot}")
        self.snapshot = snapshot


class HistoryChanged(Exception):
    """The position is not in the leader's log, which was reset to a survivor's log (force-standalone)."""


class _AnotherLeads(Exception):
    """The source of the bytes so far is no longer the leader."""


def observer_named(name: str) -> ReplicaKey:
    """Return the key of an observer from its name: a restart with the same name continues as the same observer."""
    return ReplicaKey(ANONYMOUS.node_id, hashlib.sha256(name.encode()).digest()[:UUID_BYTES])


class MetadataLog:
    """One cluster's metadata log. Use as a context manager, or call `close`. Not thread-safe.

    `bootstrap_servers` are gRPC endpoints of any nodes. `security` is for them and, with its certificate, for the CONTROLLER
    listeners. `timeout_ms` limits each call with its retries.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        observer: ReplicaKey = ANONYMOUS,
        cluster_id: str = "",
        timeout_ms: int = 30_000,
        security: ClientSecurity | None = None,
    ) -> None:
        self._admin = AdminClient(bootstrap_servers, timeout_ms=timeout_ms, cluster_id=cluster_id, security=security)
        self._observer = observer
        self._cluster_id = cluster_id
        self._timeout_s = timeout_ms / 1000
        self._epoch = -1
        self._connection: PeerConnection | None = None
        self._decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {}

    def __enter__(self) -> MetadataLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._drop()
        self._admin.close()

    @property
    def cluster_id(self) -> str:
        """The cluster's id. ClusterUnreachable, ApiError."""
        if not self._cluster_id:
            self._cluster_id = self._quorum().cluster_id
        return self._cluster_id

    def state(self) -> LogState:
        """Return the range of the log. ClusterUnreachable, ApiError."""
        quorum = self._quorum()
        return LogState(quorum.high_watermark, quorum.log_start_offset)

    def _quorum(self) -> Quorum:
        """Describe the quorum. ClusterUnreachable also if a node answers that it cannot reach a controller."""
        try:
            return self._admin.describe_quorum()
        except ApiError as error:
            if error.code in _NOBODY_LEADS:
                raise ClusterUnreachable(f"no active controller answers: {error}") from error
            raise

    def acknowledge(self, position: OffsetAndEpoch) -> LogState:
        """Acknowledge that this observer stores all records below the position durably. SnapshotInstead, HistoryChanged."""
        return self._fetch(position, self._observer, 1).state

    def fetch(self, position: OffsetAndEpoch, max_bytes: int = FETCH_BYTES) -> Chunk:
        """Return the batches from a position: the offset of a batch, and the epoch of the record before it. There is at least one
        batch unless the position is the log's end. SnapshotInstead, HistoryChanged, ApiError, ClusterUnreachable.
        """
        return self._fetch(position, ANONYMOUS, max_bytes)

    def snapshot(self, snapshot: OffsetAndEpoch) -> Iterator[bytes]:
        """Yield the bytes of a snapshot's file, in order. ApiError SNAPSHOT_NOT_FOUND for a deleted snapshot. All bytes are from
        one leader: another node's file of the same snapshot may differ, so the copy starts over at a new leader.
        """
        parts: list[bytes] = []
        position, source = 0, None
        while True:
            request = FetchSnapshotRequest(0, ANONYMOUS, snapshot, position, FETCH_BYTES)
            try:
                answer = self._ask(request, FetchSnapshotResponse, source)
            except _AnotherLeads:
                parts, position, source = [], 0, None
                continue
            source = self._leader().endpoint
            parts.append(answer.data)
            position += len(answer.data)
            if position >= answer.size_bytes:
                yield from parts
                return

    def _fetch(self, position: OffsetAndEpoch, replica: ReplicaKey, max_bytes: int) -> Chunk:
        request = FetchRequest(0, replica, position.offset, position.epoch, -1, 0, max_bytes)
        answer = self._ask(request, FetchResponse)
        outcome = answer.outcome
        if isinstance(outcome, SnapshotRequired):
            raise SnapshotInstead(outcome.id)
        if isinstance(outcome, Diverging):
            raise HistoryChanged(
                f"offset {position.offset} after epoch {position.epoch} is not in the log of the active controller, which agrees "
                f"up to {outcome.end_offset} at most; read the log into a new lake"
            )
        assert isinstance(outcome, Records)
        return Chunk(outcome.data, LogState(answer.high_watermark, answer.log_start_offset))

    def _ask(
        self, request: FetchRequest | FetchSnapshotRequest, kind: type[Response], source: Endpoint | None = None
    ) -> Response:
        """Send a request to the leader, with retries until the timeout. A leader without a high watermark is asked again.
        _AnotherLeads if the leader is not `source`.
        """
        deadline = time.monotonic() + self._timeout_s
        pause_s = _PAUSE_S
        while True:
            try:
                connection = self._leader(left_ms(deadline))
                if source is not None and connection.endpoint != source:
                    raise _AnotherLeads
                body = msgspec.msgpack.encode(msgspec.structs.replace(request, epoch=self._epoch))
                left_s = max(deadline - time.monotonic(), _PAUSE_S)
                answer = self._decoded(connection.request(API_OF[type(request)], body, min(left_s, _ATTEMPT_TIMEOUT_S)), kind)
            except ApiError as error:
                if error.code not in _LEADER_CHANGED | _NOBODY_LEADS:
                    raise
                fault: object = error
            except ClusterUnreachable:
                raise
            except NotSecured as error:
                raise ClusterUnreachable(f"no secure connection to the active controller: {error}") from error
            except (OSError, FrameError) as error:
                fault = error
            else:
                code = int(answer.error)
                if code == ErrorCode.NONE and not (isinstance(answer, FetchResponse) and answer.high_watermark < 0):
                    return answer
                if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    raise api_error(code, self._not_for_strangers())
                if code != ErrorCode.NONE and code not in _LEADER_CHANGED:
                    raise api_error(code, f"the active controller refuses {request!r}")
                fault = describe(code)
            self._drop()
            if time.monotonic() + pause_s > deadline:
                raise ClusterUnreachable(
                    f"no active controller answered within {self._timeout_s:g} s (last: {fault}); "
                    "see `kraftlab metadata-quorum describe --status`"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _not_for_strangers(self) -> str:
        if self._admin.security.tls is None:
            return _NOT_FOR_STRANGERS.format("User:ANONYMOUS", "read the files of a node")
        return _NOT_FOR_STRANGERS.format("the user in this client's certificate", "use the certificate of a super user")

    def _decoded(self, body: memoryview, kind: type[Response]) -> Response:
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = msgspec.msgpack.Decoder(kind)
        answer: Response = decoder.decode(body)
        return answer

    def _leader(self, timeout_ms: int | None = None) -> PeerConnection:
        if self._connection is None:
            quorum = self._admin.describe_quorum(timeout_ms=timeout_ms)
            self._cluster_id = quorum.cluster_id
            for voter in quorum.current_voters:
                for at in voter.endpoints:
                    if voter.replica_id == quorum.leader_id and at.name == LISTENER:
                        self._epoch = quorum.leader_epoch
                        endpoint = Endpoint(at.host, at.port)
                        self._connection = PeerConnection(endpoint, quorum.cluster_id, self._observer, self._admin.security)
                        return self._connection
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "no node names the peer listener of the active controller")
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
