"""`DataClient`: produce, fetch and digest whole record batches over peer frames, from a program with threads and no event loop.

It serves imports, load generators and checkers; it does not support consumer groups. Metadata (topic ids, leaders, peer
endpoints) comes from an AdminClient, and is read again when a broker does not lead or does not answer. There is one connection
per broker, with one request at a time; a lock makes it thread-safe. A produce request is repeated after a broken connection; its
batches are numbered (`numbering.py`), so they are stored once. With `keep_offsets` they have their own places: if the leader
refuses a repeated batch, the client finds the batch in the log.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.common.uuids import Uuid, from_text
from kraftlab.metadata.peer_rpc import (
    Api,
    EpochEnd,
    EpochEndsRequest,
    EpochEndsResponse,
    FetchedPartition,
    FetchPartition,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    LogDigestRequest,
    LogDigestResponse,
    ProduceRequest,
    ProduceResponse,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    WantedEpoch,
    WantedOffset,
)
from kraftlab.wire.frames import ERROR, REQUEST, Frame, FrameBuffer, FrameError, TlsAlert, frame_parts
from kraftlab.wire.parts import NOTHING, InMemory, around, bin_header

from .admin import AdminClient
from .caller import left_ms
from .dialling import NotSecured, alert_of, connect, expects_tls, refusal
from .entries import answer_of
from .errors import ClusterUnreachable, api_error
from .numbering import REFUSED_NUMBERS, Numbers, SendAttempts, numbered, requests_of
from .results import Broker
from .security import NO_SECURITY, ClientSecurity

ACKS_NONE = 0
CLOSE_TIMEOUT_S = 5.0
_CLIENT_KEY = ReplicaKey(-1)
_WITHOUT_NUMBERS = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION})
"""Errors of InitProducerId after which batches are sent without numbers."""
_encode = msgspec.msgpack.encode
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_RETRIED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,  # A broker of Kafka that still waits for its producer ids.
    }
)

Response = TypeVar("Response")


class PeerConnection:
    """A blocking connection to one node's peer port. `request` opens it when needed and drops it after any failure.

    A client has no state that a forced quorum could invalidate: if a node has a newer generation of the cluster, the request is
    sent again with that generation. `sender` is the caller in the frames: a client, unless it is a named observer. Under TLS the
    node knows the caller by the certificate; these ports have no SASL.
    """

    def __init__(
        self, endpoint: Endpoint, cluster_id: str, sender: ReplicaKey = _CLIENT_KEY, security: ClientSecurity = NO_SECURITY
    ) -> None:
        self.endpoint = endpoint
        self._sender = sender
        self._security = security
        self._cluster_id = cluster_id
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._buffer = FrameBuffer()
        self._correlation = 0
        self._generation = 0
        self._is_new = True
        """True until the node has answered over this connection: under TLS it may still refuse the client's certificate."""
        self._unawaited = 0
        """Requests without an answer yet, which nobody waits for."""

    def request(self, api: int, body: InMemory | Sequence[InMemory], timeout_s: float) -> memoryview:
        """Send one request and return the body of its response. OSError if the connection fails, NotSecured among them; ApiError
        if the node refuses. The timeout includes the wait for earlier requests.
        """
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=max(timeout_s, 0)):
            raise TimeoutError(f"{self.endpoint} was busy with other requests until the timeout")
        try:
            with self._dropped_if_broken():
                self._drain(deadline)
                return self._exchange(api, body, deadline)
        finally:
            self._lock.release()

    def send(self, api: int, body: Sequence[InMemory], timeout_s: float) -> None:
        """Send a request without waiting for its answer; the next request waits for that. OSError: the request may be lost."""
        deadline = time.monotonic() + timeout_s
        with self._lock, self._dropped_if_broken():
            self._drain(deadline)
            self._write(api, body, deadline)
            self._unawaited += 1

    @contextlib.contextmanager
    def _dropped_if_broken(self) -> Iterator[None]:
        """Drop the connection after an error of the network, and explain the error of a new one."""
        try:
            yield
        except TlsAlert as error:
            self._drop()
            raise expects_tls(self._security) from error
        except FrameError:
            self._drop()
            raise
        except OSError as error:
            explained = self._explained(error) if self._is_new else error
            self._drop()
            if explained is error:
                raise
            raise explained from error

    def _explained(self, error: OSError) -> OSError:
        """Return the error of a connection over which the node has not answered, with its reason if TLS is the reason."""
        if self._socket is None:
            return error
        return refusal(alert_of(self._socket, error), self.endpoint, self._security)

    def _drain(self, deadline: float) -> None:
        """Wait until the node has answered the last request that nobody waits for: it may execute two at once in any order."""
        while self._socket is not None and self._unawaited:
            self._socket.settimeout(self._left_s(deadline))
            self._take_unawaited(self._socket)

    def _take_unawaited(self, connected: socket.socket) -> None:
        self._receive(connected)
        self._unawaited -= sum(1 for _ in self._buffer.frames())

    def _write(self, api: int, body: InMemory | Sequence[InMemory], deadline: float) -> None:
        """Send one request, over a new connection if there is none."""
        if self._socket is None:
            self._is_new = True
            self._socket = connect(self.endpoint, self._security, self._left_s(deadline))
            self._buffer = FrameBuffer()
            self._unawaited = 0
        self._correlation += 1
        head = Frame(REQUEST, api, 0, self._correlation, self._cluster_id, self._generation, self._sender, NOTHING)
        try:
            parts = frame_parts(head, (body,) if isinstance(body, InMemory) else body)
        except FrameError as error:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
        self._socket.settimeout(self._left_s(deadline))
        for part in parts:
            assert isinstance(part, InMemory), "a client's requests are in memory"
            self._socket.sendall(part)

    def _exchange(self, api: int, body: InMemory | Sequence[InMemory], deadline: float) -> memoryview:
        self._write(api, body, deadline)
        connected = self._socket
        assert connected is not None
        while True:
            for answer, _ in self._buffer.frames():
                if answer.correlation != self._correlation:
                    continue
                if answer.kind == ERROR:
                    if answer.generation > self._generation:
                        self._generation = answer.generation
                        return self._exchange(api, body, deadline)
                    code, message = msgspec.msgpack.decode(answer.body, type=tuple[int, str])
                    raise api_error(code, message)
                return answer.body
            connected.settimeout(self._left_s(deadline))
            self._receive(connected)

    def _receive(self, connected: socket.socket) -> None:
        if not self._buffer.receive_from(connected):
            raise ConnectionResetError(f"{self.endpoint} closed the connection")
        self._is_new = False

    def _left_s(self, deadline: float) -> float:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"{self.endpoint} did not answer in time")
        return left_s

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        """Close the connection, after the node has answered the requests that nobody waits for: it drops the others."""
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        with self._lock:
            with contextlib.suppress(OSError, FrameError):
                self._drain(deadline)
            self._drop()


class _Metadata(msgspec.Struct, frozen=True):
    """Topic ids, leaders and endpoints as of one answer."""

    cluster_id: str
    topic_ids: dict[str, Uuid]
    leaders: dict[tuple[str, int], int | None]
    peers: dict[int, Endpoint]


class DataClient:
    """Client for whole batches of partitions. Use as a context manager, or call `close`. The AdminClient stays open."""

    def __init__(self, admin: AdminClient, *, timeout_ms: int = 30_000) -> None:
        self._admin = admin
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._metadata: _Metadata | None = None
        self._topics: frozenset[str] = frozenset()
        """Topics in earlier requests: a large cluster has many more."""
        self._connections: dict[Endpoint, PeerConnection] = {}
        self._numbers: dict[tuple[str, int], Numbers] = {}
        self._may_number = True

    def __enter__(self) -> DataClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def produce(
        self,
        topic: str,
        partition: int,
        records: InMemory,
        *,
        acks: int = -1,
        keep_offsets: bool = False,
        timeout_ms: int | None = None,
    ) -> ProduceResponse:
        """Append whole v2 batches at the partition's leader. ApiError, ClusterUnreachable at the timeout.

        They are stored once, in order. With acks=0 the answer is not awaited: batches may be lost, errors go unnoticed.
        """
        deadline = time.monotonic() + (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        if acks == ACKS_NONE:
            return self._send_only(topic, partition, records, deadline)
        requests = None if keep_offsets else requests_of(records)
        if requests is not None:
            with self._lock:
                numbers = self._numbers.setdefault((topic, partition), Numbers())
            if not numbers.lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
                raise ClusterUnreachable(f"earlier batches for {topic}-{partition} were not acknowledged in time")
            try:
                if self._has_producer_id(numbers, topic, partition, deadline):
                    answers = [self._produce_numbered(topic, partition, one, acks, numbers, deadline) for one in requests]
                    return msgspec.structs.replace(answers[-1], base_offset=answers[0].base_offset)
            finally:
                numbers.lock.release()
        attempts = SendAttempts()
        try:
            return self._send(topic, partition, records, acks, attempts, deadline, keep_offsets=keep_offsets)
        except ApiError as error:
            if keep_offsets and attempts.may_be_stored and error.code is ErrorCode.INVALID_RECORD:
                earlier = self._appended_earlier(topic, partition, records, deadline)
                if earlier is not None:
                    return earlier
            raise

    def _send(
        self,
        topic: str,
        partition: int,
        records: InMemory,
        acks: int,
        attempts: SendAttempts,
        deadline: float,
        *,
        keep_offsets: bool = False,
    ) -> ProduceResponse:
        """Send batches until they are acknowledged or refused for good. ApiError, ClusterUnreachable."""

        def build(topic_id: Uuid, left_ms: int) -> tuple[int, Sequence[InMemory]]:
            may_be_stored = attempts.send()
            request = ProduceRequest(topic_id, partition, acks, left_ms, NOTHING, keep_offsets, may_be_stored)
            before, after = around(request, "records")
            return Api.PRODUCE, (before, bin_header(len(records)), records, after)

        def fault_of(response: ProduceResponse) -> tuple[int, str | None]:
            attempts.answered(response)
            return response.error, response.message

        return self._at_leader(topic, partition, build, ProduceResponse, fault_of, left_ms(deadline))

    def _produce_numbered(
        self, topic: str, partition: int, records: InMemory, acks: int, numbers: Numbers, deadline: float
    ) -> ProduceResponse:
        """Send batches with the next numbers of the partition; `numbers` is locked."""
        while True:
            data, following = numbered(records, numbers)
            attempts = SendAttempts()
            try:
                answer = self._send(topic, partition, data, acks, attempts, deadline)
            except BaseException as error:
                is_refused = isinstance(error, ApiError) and error.code in REFUSED_NUMBERS
                if attempts.is_open:
                    numbers.begin_epoch()
                elif is_refused:
                    numbers.producer_id = -1
                    if self._has_producer_id(numbers, topic, partition, deadline):
                        continue
                raise
            numbers.sequence = following
            return answer

    def _has_producer_id(self, numbers: Numbers, topic: str, partition: int, deadline: float) -> bool:
        """Get a producer id for the partition if it has none; False if this client may not have one."""
        pause_s, fresh = _FIRST_PAUSE_S, False
        while numbers.producer_id < 0 and self._may_number:
            try:
                _, leader, _ = self._leader_of(topic, partition, fresh, deadline)
                numbers.begin(self._admin.init_producer_id(leader, timeout_ms=left_ms(deadline)).producer_id)
            except (ApiError, ClusterUnreachable) as error:
                if isinstance(error, ApiError) and error.code in _WITHOUT_NUMBERS:
                    self._may_number = False
                    break
                is_final = isinstance(error, ApiError) and error.code not in _RETRIED
                if is_final or time.monotonic() + pause_s >= deadline:
                    raise
                time.sleep(pause_s)
                pause_s, fresh = min(pause_s * 2, _LONGEST_PAUSE_S), True
        return self._may_number

    def _send_only(self, topic: str, partition: int, records: InMemory, deadline: float) -> ProduceResponse:
        """Send batches without waiting for the answer, once. A connection that breaks while they are sent loses them."""
        topic_id, _, endpoint = self._leader_of(topic, partition, False, deadline)
        request = ProduceRequest(topic_id, partition, ACKS_NONE, left_ms(deadline), NOTHING)
        before, after = around(request, "records")
        try:
            self._connection(endpoint).send(
                Api.PRODUCE, (before, bin_header(len(records)), records, after), deadline - time.monotonic()
            )
        except NotSecured as error:
            raise _not_secured(topic, partition, error) from error
        except OSError:
            self.refresh()
        return ProduceResponse(ErrorCode.NONE)

    def _appended_earlier(self, topic: str, partition: int, records: InMemory, deadline: float) -> ProduceResponse | None:
        """Return the answer to an earlier attempt with these batches once they are committed, None if the log has others."""
        from kraftlab.records.record_batch import iterate

        batches = [header for _, header in iterate(records)]
        wanted = _without_epochs(records)
        base_offset, end_offset = batches[0].base_offset, batches[-1].end_offset
        while True:
            left_ms = int((deadline - time.monotonic()) * 1000)
            found = self.fetch(topic, partition, base_offset, max_bytes=len(records), timeout_ms=max(left_ms, 1))
            if not wanted.startswith(_without_epochs(found.records)):
                return None
            if len(found.records) == len(records):
                return ProduceResponse(ErrorCode.NONE, None, base_offset, end_offset)
            if left_ms <= 0 or found.high_watermark >= end_offset:
                return None
            time.sleep(_FIRST_PAUSE_S)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> FetchedPartition:
        """Return whole batches below the high watermark, from the batch with `offset`. ApiError, ClusterUnreachable."""

        def build(topic_id: Uuid, left_ms: int) -> tuple[int, Sequence[InMemory]]:
            wanted = FetchPartition(topic_id, partition, -1, offset, -1, -1, max_bytes)
            request = ReplicaFetchRequest(-1, -1, min(max_wait_ms, left_ms), 1, max_bytes, (wanted,))
            return Api.REPLICA_FETCH, (_encode(request),)

        response = self._at_leader(topic, partition, build, ReplicaFetchResponse, _fetch_error, timeout_ms)
        return response.partitions[0]

    def bounds(self, topic: str, partition: int, *, timeout_ms: int | None = None) -> tuple[int, int]:
        """Return the log start offset and high watermark of a partition: the range of `fetch`. ApiError, ClusterUnreachable."""

        def build(topic_id: Uuid, left_ms: int) -> tuple[int, Sequence[InMemory]]:
            # No log has that offset: the answer has the bounds of the log and no records.
            wanted = FetchPartition(topic_id, partition, -1, -1, -1, -1, 0)
            return Api.REPLICA_FETCH, (_encode(ReplicaFetchRequest(-1, -1, 0, 0, 0, (wanted,))),)

        found = self._at_leader(topic, partition, build, ReplicaFetchResponse, _bounds_error, timeout_ms).partitions[0]
        return found.log_start_offset, found.high_watermark

    def offset_for(self, topic: str, partition: int, timestamp_ms: int, *, timeout_ms: int | None = None) -> ListedOffset:
        """Return the first committed offset with that time or a later one; or the one of a special timestamp (`WantedOffset`).

        Offset -1: there is none. ApiError, ClusterUnreachable.
        """

        def build(topic_id: Uuid, left_ms: int) -> tuple[int, Sequence[InMemory]]:
            return Api.LIST_OFFSETS, (_encode(ListOffsetsRequest((WantedOffset(topic_id, partition, timestamp_ms),))),)

        return self._at_leader(topic, partition, build, ListOffsetsResponse, _first_fault, timeout_ms).partitions[0]

    def epoch_end(self, topic: str, partition: int, leader_epoch: int, *, timeout_ms: int | None = None) -> EpochEnd:
        """Return the end of a leader epoch in the leader's log. ApiError, ClusterUnreachable."""

        def build(topic_id: Uuid, left_ms: int) -> tuple[int, Sequence[InMemory]]:
            return Api.OFFSET_FOR_LEADER_EPOCH, (_encode(EpochEndsRequest((WantedEpoch(topic_id, partition, leader_epoch),))),)

        return self._at_leader(topic, partition, build, EpochEndsResponse, _first_fault, timeout_ms).partitions[0]

    def log_digest(
        self, broker_id: int, replicas: Iterable[tuple[str, int]] | None = None, *, timeout_ms: int | None = None
    ) -> LogDigestResponse:
        """Return digests of a broker's replicas, of all or of these topics and partitions. ApiError, ClusterUnreachable."""
        replicas = None if replicas is None else tuple(replicas)
        metadata = self._known(*(name for name, _ in replicas or ()), fresh=replicas is not None)
        wanted = None if replicas is None else tuple((self.topic_id(name), index) for name, index in replicas)
        if broker_id not in metadata.peers:
            metadata = self._known(fresh=True)
        endpoint = metadata.peers.get(broker_id)
        if endpoint is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
        body = msgspec.msgpack.encode(LogDigestRequest(wanted))
        timeout_s = (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        connection = self._connection(endpoint)
        try:
            try:
                answer = connection.request(Api.LOG_DIGEST, body, timeout_s)
            except ConnectionError:
                # The broker may have restarted since the connection was made.
                answer = connection.request(Api.LOG_DIGEST, body, timeout_s)
        except OSError as error:
            raise ClusterUnreachable(f"broker {broker_id} at {endpoint} gave no digest: {error}") from error
        response = msgspec.msgpack.decode(answer, type=LogDigestResponse)
        if response.error:
            raise api_error(response.error, response.message)
        return response

    def topic_id(self, topic: str) -> Uuid:
        """Return the id of a topic. ApiError UNKNOWN_TOPIC_OR_PARTITION."""
        for fresh in (False, True):
            found = self._known(topic, fresh=fresh).topic_ids.get(topic)
            if found is not None:
                return found
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} not found.")

    def refresh(self) -> None:
        """Drop the metadata; the next call reads it again."""
        self._metadata = None

    def _at_leader(
        self,
        topic: str,
        partition: int,
        build: Callable[[Uuid, int], tuple[int, Sequence[InMemory]]],
        answer_type: type[Response],
        fault_of: Callable[[Response], tuple[int, str | None]],
        timeout_ms: int | None,
    ) -> Response:
        def ask(topic_id: Uuid, leader: Endpoint, left_s: float) -> Response:
            api, body = build(topic_id, int(left_s * 1000))
            answer = self._connection(leader).request(api, body, left_s)
            response = msgspec.msgpack.decode(answer, type=answer_type)
            code, message = fault_of(response)
            if code:
                raise api_error(code, message)
            return response

        return self._retried(topic, partition, ask, timeout_ms)

    def _retried(
        self, topic: str, partition: int, ask: Callable[[Uuid, Endpoint, float], Response], timeout_ms: int | None
    ) -> Response:
        """Return the answer of the partition's leader to `ask(topic id, leader, seconds left)`. ApiError, ClusterUnreachable."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        pause_s = _FIRST_PAUSE_S
        fresh = False
        while True:
            try:
                topic_id, _, leader = self._leader_of(topic, partition, fresh, deadline)
                return ask(topic_id, leader, max(deadline - time.monotonic(), 0.001))
            except ApiError as error:
                if error.code not in _RETRIED or time.monotonic() + pause_s >= deadline:
                    raise
            except NotSecured as error:
                raise _not_secured(topic, partition, error) from error
            except (OSError, FrameError) as error:
                if time.monotonic() + pause_s >= deadline:
                    raise ClusterUnreachable(f"no leader of {topic}-{partition} answered in time: {error}") from error
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            fresh = True

    def _leader_of(self, topic: str, partition: int, fresh: bool, deadline: float) -> tuple[Uuid, int, Endpoint]:
        metadata = self._known(topic, fresh=fresh, deadline=deadline)
        if (topic, partition) not in metadata.leaders:
            metadata = self._known(topic, fresh=True, deadline=deadline)
        if (topic, partition) not in metadata.leaders:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {topic}-{partition} not found.")
        leader = metadata.leaders[topic, partition]
        endpoint = None if leader is None else metadata.peers.get(leader)
        if leader is None or endpoint is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader that is up.")
        return metadata.topic_ids[topic], leader, endpoint

    def _known(self, *topics: str, fresh: bool, deadline: float | None = None) -> _Metadata:
        """Return the metadata of these topics and of earlier ones. Without a `deadline` the AdminClient's timeout counts."""
        metadata = self._metadata
        if metadata is None or fresh or not self._topics.issuperset(topics):
            self._topics = self._topics.union(topics)
            timeout_ms = None if deadline is None else left_ms(deadline)
            cluster = self._admin.describe_cluster(include_fenced_brokers=True, timeout_ms=timeout_ms)
            timeout_ms = None if deadline is None else left_ms(deadline)
            names, reached = sorted(self._topics), cluster.metadata_offset
            describe = partial(self._admin.describe_topics, names, min_offset=reached, timeout_ms=timeout_ms)
            described = answer_of(describe).values() if names else ()
            metadata = self._metadata = _Metadata(
                cluster.cluster_id,
                {topic.name: from_text(topic.topic_id) for topic in described},
                {(topic.name, item.partition_index): item.leader_id for topic in described for item in topic.partitions},
                {broker.broker_id: self._endpoint_of(broker) for broker in cluster.brokers},
            )
        return metadata

    def _endpoint_of(self, broker: Broker) -> Endpoint:
        return Endpoint(broker.peer_host, broker.peer_port)

    def _connection(self, endpoint: Endpoint) -> PeerConnection:
        with self._lock:
            connection = self._connections.get(endpoint)
            if connection is None:
                cluster_id = self._known(fresh=False).cluster_id
                connection = self._connections[endpoint] = PeerConnection(endpoint, cluster_id, security=self._admin.security)
            return connection


def _without_epochs(batches: InMemory) -> bytes:
    """Return batches with masked leader epochs: equal for every leader that may have appended them."""
    from kraftlab.records.record_batch import iterate, mask_epochs

    data = bytearray(batches)
    mask_epochs(data, iterate(batches))
    return bytes(data)


def _not_secured(topic: str, partition: int, error: NotSecured) -> ClusterUnreachable:
    return ClusterUnreachable(f"no secure connection to the leader of {topic}-{partition}: {error}")


def _first_fault(response: ListOffsetsResponse | EpochEndsResponse) -> tuple[int, str | None]:
    return response.partitions[0].error, response.partitions[0].message


def _fetch_error(response: ReplicaFetchResponse) -> tuple[int, str | None]:
    if response.error or not response.partitions:
        return response.error or ErrorCode.UNKNOWN_SERVER_ERROR, response.message
    return response.partitions[0].error, None


def _bounds_error(response: ReplicaFetchResponse) -> tuple[int, str | None]:
    code, message = _fetch_error(response)
    return (0, None) if code == ErrorCode.OFFSET_OUT_OF_RANGE else (code, message)
