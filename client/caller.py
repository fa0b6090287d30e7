"""Calls of one client to the nodes of its cluster: which node gets a call, and when the next node is asked.

Theory of operation. A call goes to the active controller if it is known, otherwise to the next bootstrap server; any node will
do, since brokers forward. Every answer names the active controller, so the second call goes there directly. NOT_CONTROLLER and
broken connections move a call to the next node, with a short growing pause, until the call's deadline; then
`ClusterUnreachable` names the nodes that were asked, or the voters that are silent (`waiting.py`). All attempts of a write
carry the same id (`rpc/request_ids.py`): at most one of them takes effect, and the answer is of that attempt. Without ids a
write may take effect before its connection breaks, and the answer to the next attempt shows that (TOPIC_ALREADY_EXISTS, for
example).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import grpc
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.resources import ResourceType
from kraftlab.rpc.calls import CALLS
from kraftlab.rpc.methods import API_OF_RESPONSE, AdminRequest, Response
from kraftlab.rpc.request_ids import RequestIds

from .attempts import Attempts, fault_of, is_final, is_read, unreachable, was_never_sent
from .channels import Channels, Transport, authentication_error
from .config_parts import ConfigResource
from .entries import checked
from .errors import ClusterUnreachable, header_error
from .quorum_probe import ROUND_S, lost_quorum
from .stream import CallStream
from .waiting import CallTime

logger = logging.getLogger("kraftlab.client")

_FIRST_PAUSE_S = 0.02
_PAUSE_GROWTH = 1.5
"""Growth of the pause: a client finds a new controller within half the time of its election."""
_LONGEST_PAUSE_S = 0.25
ATTEMPT_TIMEOUT_S = 15.0
_RECONNECT_S = 1.0
"""Time in which a channel may repeat its last failure although the node listens again: it does not connect all the time."""
_SILENT_S = 0.5
"""A call that waits longer for an answer logs that once, to the logger `kraftlab.client`."""
_REFUSED_PATIENCE_S = 3.0
"""Time limit of a call if no address has an admin API: long enough for a restart."""
_MOVED_ON = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE})


class AboutConfigs(AdminRequest, Protocol):
    """A request about the configs of resources."""

    @property
    def resources(self) -> Iterable[ConfigResource]: ...


class Caller:
    """The part of `AdminClient` that sends requests. Thread-safe. `AdminClient` closes the `channels`."""

    def __init__(
        self,
        bootstrap: Iterable[Endpoint],
        channels: Transport,
        *,
        timeout_ms: int,
        cluster_id: str,
        linearizable: bool,
        exactly_once: bool,
        on_wait: Callable[[str], None] | None,
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self.channels = channels
        self._timeout_ms = timeout_ms
        self._cluster_id = cluster_id
        self._linearizable = linearizable
        self._on_wait = on_wait
        self._request_ids = RequestIds(exactly_once and not self.speaks_kafka)
        self.leader: Endpoint | None = None
        """Endpoint of the active controller in the last answer that named it."""
        self._newest_offset = 0
        """Newest metadata offset in an answer. Reads of this client are never older, at any node."""
        self._brokers: dict[int, Endpoint] = {}
        self._controllers: dict[int, Endpoint] = {}

    @property
    def speaks_kafka(self) -> bool:
        """True if the cluster is called over the Kafka protocol."""
        return not isinstance(self.channels, Channels)

    def call(
        self,
        answer: type[Response],
        request: AdminRequest,
        *,
        timeout_ms: int | None = None,
        attempt_timeout_s: float = ATTEMPT_TIMEOUT_S,
        once: bool = False,
    ) -> Response:
        """Send a request to a node that can answer it and return the response. ApiError, EntriesFailed, ClusterUnreachable.

        `answer` is the response's type, which names the method. The next node is asked if a node does not answer within
        `attempt_timeout_s`. With `once`, a request without an id is not repeated after an attempt that may have taken effect:
        ApiError NETWORK_EXCEPTION or OutcomeUnknown.
        """
        api = API_OF_RESPONSE[answer]
        if is_read(api) and CALLS[api].is_replicated and not request.HasField("header"):
            request.header.CopyFrom(self._reading(None))
        return checked(self._send(answer, request, timeout_ms=timeout_ms, attempt_timeout_s=attempt_timeout_s, once=once))

    def _send(
        self,
        answer: type[Response],
        request: AdminRequest,
        *,
        timeout_ms: int | None = None,
        attempt_timeout_s: float = ATTEMPT_TIMEOUT_S,
        once: bool = False,
    ) -> Response:
        """Send a request as it is and return the response with refused entries."""
        with (
            self._request_ids.of(API_OF_RESPONSE[answer], request) as is_named,
            CallTime(API_OF_RESPONSE[answer], self._probe, self._on_wait),
        ):
            return self._call(answer, request, timeout_ms, attempt_timeout_s, once and not is_named, is_named)

    def _probe(self) -> str | None:
        """Ask the voters for a sign of life. Return "1 of 3 voters answers: no majority", None with a leader."""
        if self.speaks_kafka:
            return None
        known = dict(self._controllers)
        return lost_quorum(self._ask_once, (*self._bootstrap, *known.values()))

    def _ask_once(self, endpoint: Endpoint, api: str, request: Message) -> Message:
        return self.channels.unary(endpoint, api)(request, timeout=ROUND_S)

    def _call(
        self,
        answer: type[Response],
        request: AdminRequest,
        timeout_ms: int | None,
        attempt_timeout_s: float,
        once: bool,
        is_named: bool,
    ) -> Response:
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        limited = request.header.HasField("timeout_ms")
        self._fill_header(request, timeout_ms)
        started = time.monotonic()
        deadline = started + timeout_ms / 1000
        attempts = Attempts(API_OF_RESPONSE[answer], once=once, last_look=self.channels.last_look)
        pause_s = _FIRST_PAUSE_S
        is_reported = False
        while True:
            asked: set[Endpoint | None] = {None}
            for endpoint in self._candidates():
                asked.add(endpoint)
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                if not limited:
                    # No node may execute the request after this call has timed out.
                    request.header.timeout_ms = max(1, int(left_s * 1000))
                try:
                    response = self._attempt(endpoint, answer, request, min(left_s, attempt_timeout_s))
                    self._newest_offset = max(self._newest_offset, response.header.metadata_offset)
                    return response
                except grpc.RpcError as error:
                    attempts.add_no_answer(endpoint, error, had_time=left_s >= attempt_timeout_s)
                except ApiError as error:
                    if error.code not in _MOVED_ON and not (is_named and self._is_early(error, limited, deadline - pause_s)):
                        attempts.end_with(error)
                        raise
                    attempts.add_refusal(endpoint, error)
                    if self.leader not in asked:
                        break
                if self.leader == endpoint:
                    self.leader = None
            if self.leader is not None and not attempts.has_failed_at(self.leader) and time.monotonic() < deadline:
                continue
            if attempts.is_hopeless:
                raise ClusterUnreachable(attempts.summary(time.monotonic() - started))
            if attempts.found_no_api:
                deadline = min(deadline, started + _REFUSED_PATIENCE_S)
            if time.monotonic() + pause_s >= deadline:
                raise ClusterUnreachable(attempts.summary(time.monotonic() - started))
            if time.monotonic() - started > _SILENT_S and not is_reported:
                is_reported = True
                logger.info("no answer yet (%s); trying for another %.0f s", attempts.so_far(), deadline - time.monotonic())
            time.sleep(pause_s)
            pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)

    def _is_early(self, error: ApiError, limited: bool, deadline: float) -> bool:
        """Return whether a node gave up before this client does, for example at its shutdown."""
        return error.code is ErrorCode.REQUEST_TIMED_OUT and not limited and time.monotonic() < deadline

    def call_at(
        self, endpoint: Endpoint, answer: type[Response], request: AdminRequest, *, timeout_ms: int | None = None
    ) -> Response:
        """Send a request to this node only. ApiError, ClusterUnreachable."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        self._fill_header(request, timeout_ms)
        started = time.monotonic()
        while True:
            try:
                return self._attempt(endpoint, answer, request, left_ms(started + timeout_ms / 1000) / 1000)
            except grpc.RpcError as error:
                seconds, fault = time.monotonic() - started, fault_of(error)
                if is_final(fault) or not was_never_sent(fault) or seconds > min(_RECONNECT_S, timeout_ms / 1000):
                    faults = {endpoint: self.channels.last_look(endpoint, fault)}
                    raise ClusterUnreachable(unreachable(API_OF_RESPONSE[answer], faults, seconds)) from error
            time.sleep(_FIRST_PAUSE_S)

    def call_broker(
        self, broker_id: int, answer: type[Response], request: AdminRequest, *, timeout_ms: int | None = None
    ) -> Response:
        """Send a request to a broker. ApiError BROKER_NOT_AVAILABLE if the broker is not registered."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        limited = request.header.HasField("timeout_ms")
        for fresh in (False, True):
            if fresh or broker_id not in self._brokers:
                self._members(include_fenced_brokers=True, timeout_ms=left_ms(deadline))
            endpoint = self._brokers.get(broker_id)
            if endpoint is None:
                known = ",".join(map(str, sorted(self._brokers))) or "none"
                raise ApiError(
                    ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered; registered brokers: {known}"
                )
            try:
                return self.call_at(endpoint, answer, request, timeout_ms=left_ms(deadline))
            except ClusterUnreachable:
                if fresh or time.monotonic() >= deadline:
                    raise
                if not limited:
                    request.header.ClearField("timeout_ms")  # the next attempt gets the remaining time
        raise AssertionError("the second attempt returns or raises")

    def _members(
        self, *, include_fenced_brokers: bool = False, linearizable: bool | None = None, timeout_ms: int | None = None
    ) -> pb.DescribeClusterResponse:
        """Describe the cluster, and remember the endpoints of its members."""
        request = pb.DescribeClusterRequest(header=self._reading(linearizable), include_fenced_brokers=include_fenced_brokers)
        response = self._send(pb.DescribeClusterResponse, request, timeout_ms=timeout_ms)
        brokers = {broker.broker_id: Endpoint(broker.host, broker.port) for broker in response.brokers}
        self._brokers = brokers if include_fenced_brokers else self._brokers | brokers
        self._controllers |= {node.controller_id: Endpoint(node.host, node.port) for node in response.controllers if node.port}
        return response

    def endpoint_of(self, node_id: int) -> Endpoint:
        """Return the endpoint of a broker or controller. ApiError BROKER_NOT_AVAILABLE if the node is not registered."""
        self._members(include_fenced_brokers=True)
        endpoint = self._brokers.get(node_id) or self._controllers.get(node_id)
        if endpoint is None:
            known = ",".join(map(str, sorted({*self._brokers, *self._controllers}))) or "none"
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} is not registered; registered nodes: {known}")
        return endpoint

    def _call_about_configs(
        self, node: int | None, answer: type[Response], request: AboutConfigs, timeout_ms: int | None
    ) -> Response:
        """Send a request to the node of its configs. The active controller changes and describes the configs of an unreachable
        broker. A controller describes its own configs, and the active controller changes them. Loggers need their own node.
        """
        with self._request_ids.of(API_OF_RESPONSE[answer], request):
            return self._call_node(node, answer, request, timeout_ms)

    def _call_node(self, node: int | None, answer: type[Response], request: AboutConfigs, timeout_ms: int | None) -> Response:
        if node is None:
            return self._send(answer, request, timeout_ms=timeout_ms)
        try:
            response = self.call_broker(node, answer, request, timeout_ms=timeout_ms)
        except (ApiError, ClusterUnreachable) as error:
            is_gone = isinstance(error, ClusterUnreachable) or error.code == ErrorCode.BROKER_NOT_AVAILABLE
            takes_any = all(resource.resource_type == ResourceType.BROKER for resource in request.resources)
            other = self._controllers.get(node, self.leader if takes_any else None)
            if not is_gone or other is None:
                raise
            try:
                response = self.call_at(other, answer, request, timeout_ms=timeout_ms)
            except ApiError as refusal:
                if refusal.code is not ErrorCode.NOT_CONTROLLER or self.leader is None or self.leader == other:
                    raise
                response = self.call_at(self.leader, answer, request, timeout_ms=timeout_ms)
        self._newest_offset = max(self._newest_offset, response.header.metadata_offset)
        return response

    def open_stream(self) -> CallStream:
        """Return a pipelined stream to the active controller. ClusterUnreachable if no node names the controller in time."""
        if not isinstance(self.channels, Channels):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, "a stream of calls needs a node's gRPC endpoint; use the calls one by one"
            )
        deadline = time.monotonic() + self._timeout_ms / 1000
        self._members()
        while self.leader is None:
            if time.monotonic() > deadline:
                raise ClusterUnreachable(
                    f"no node has named the active controller within {self._timeout_ms / 1000:g} s; "
                    "see `kraftlab metadata-quorum describe --status`"
                )
            time.sleep(_FIRST_PAUSE_S)
            self._members(timeout_ms=left_ms(deadline))
        return CallStream(self.channels, self.leader)

    def _attempt(self, endpoint: Endpoint, answer: type[Response], request: AdminRequest, timeout_s: float) -> Response:
        try:
            response = self.channels.unary(endpoint, API_OF_RESPONSE[answer])(request, timeout=timeout_s)
        except grpc.RpcError as error:
            refusal = authentication_error(error)
            if refusal is not None:
                raise refusal from error
            found = self.channels.explained(endpoint, error)
            if found is error:
                raise
            raise found from error
        assert isinstance(response, answer)
        header = response.header
        if header.HasField("leader") and header.leader.port:
            self.leader = Endpoint(header.leader.host, header.leader.port)
        if header.error_code:
            raise header_error(header)
        return response

    def _candidates(self) -> Iterable[Endpoint]:
        return dict.fromkeys((*((self.leader,) if self.leader else ()), *self._bootstrap))

    def _fill_header(self, request: AdminRequest, timeout_ms: int) -> None:
        if not request.header.HasField("timeout_ms"):
            request.header.timeout_ms = timeout_ms
        if self._cluster_id and not request.header.cluster_id:
            request.header.cluster_id = self._cluster_id

    def _reading(self, linearizable: bool | None, min_offset: int = 0) -> pb.RequestHeader:
        """Return the header of a read; None uses the client's default. The read is never older than an earlier answer."""
        is_linearizable = self._linearizable if linearizable is None else linearizable
        read_mode = pb.READ_MODE_LINEARIZABLE if is_linearizable else pb.READ_MODE_COMMITTED
        return pb.RequestHeader(min_offset=max(min_offset, self._newest_offset), read_mode=read_mode)


def left_ms(deadline: float) -> int:
    """Return the time until a moment of `time.monotonic`, at least 1: a timeout of 0 is rejected."""
    return max(1, int((deadline - time.monotonic()) * 1000))
