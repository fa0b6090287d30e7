"""`KafkaChannels`: the admin API's calls to a cluster that speaks the Kafka protocol.

Theory of operation. A call takes and returns the messages of the Admin service, as a gRPC channel does. `KafkaNode.ask` turns a
request into Kafka's in the newest version that both sides know, and its response back (`gateway/translation.py`). Some calls need
more than one request, or work that our own nodes do and Kafka's brokers leave to their clients: `kafka_calls.py`.

Nothing that a request asks for is dropped. A call that Kafka does not have, and a field that its version does not have, are
refused with ApiError UNSUPPORTED_VERSION, which names them and what to do instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message as AdminMessage

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.errors import ConfigError
from kraftlab.gateway.translation import lost_fields, to_response, to_value
from kraftlab.messages.catalog import request_class, response_class
from kraftlab.messages.schema import Message
from kraftlab.rpc.calls import CALLS, OFFERS
from kraftlab.rpc.methods import API_OF_RESPONSE, METHODS, AdminRequest, Response

from .kafka_calls import SEVERAL
from .kafka_connection import Answer, KafkaConnection
from .security import NO_SECURITY, ClientSecurity

OPTIONS = {
    "validate_only": "--validate-only",
    "plan_id": "--plan-id",
    "queued": "--queue",
    "priority": "--priority",
    "reason": "--reason",
    "force": "--force",
    "throttle": "--throttle-ends-with-move",
    "throttle_expires_ms": "--throttle-expires",
    "expected_replicas": "--if-unchanged",
    "expected_broker_epoch": "--expected-epoch",
    "allow_replication_factor_change": "--disallow-replication-factor-change",
}
"""Fields of requests → the option of a command that sets them."""
HEADER_FIELDS = {
    "read_mode": "leave --linearizable out",
    "min_offset": "read without it: answers name no metadata offset",
    "cluster_id": "compare the id of `describe_cluster`",
}
"""Fields of request headers that Kafka does not have → what to do instead."""
HINTS = frozenset({"include_fenced_brokers", "include_cluster_authorized_operations", "include_topic_authorized_operations"})
"""Fields that ask for more in the response: an old broker's response has less."""


class KafkaNode:
    """One broker, for the time of a call."""

    def __init__(self, connection: KafkaConnection, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def offers(self, api: str) -> bool:
        """Return whether the broker knows a request."""
        return OFFERS[api].key in self._connection.versions(self._deadline)

    def ask(self, answer: type[Response], request: AdminRequest) -> Response:
        """Send a request of the Admin service as Kafka's and return the response. ApiError UNSUPPORTED_VERSION, NoAnswer."""
        api = API_OF_RESPONSE[answer]
        if api not in OFFERS:
            raise own_call(api)
        key, version = OFFERS[api].key, self._version(api)
        kind = request_class(key)
        _refuse_lost(api, version, request, lost_fields(request, kind, version))
        response = answer()
        asked = to_value(request, kind, version)
        to_response(self._connection.request(asked, response_class(key), version, self._deadline), version, response)
        if response.header.error_code == ErrorCode.REQUEST_TIMED_OUT and not response.header.error_message:
            response.header.error_message = f"the broker did not finish {api} in time; the request may have taken effect"
        return response

    def exchange(self, request: Message, answer: type[Answer], newest: int | None = None) -> Answer:
        """Send a request outside the Admin service, in a version up to `newest`, and return its response. ApiError
        UNSUPPORTED_VERSION, NoAnswer.
        """
        version = self._version(type(request).__name__.removesuffix("Request"), newest)
        return self._connection.request(request, answer, version, self._deadline)

    def _version(self, api: str, newest: int | None = None) -> int:
        own, versions = OFFERS[api], self._connection.versions(self._deadline)
        offered = versions.get(own.key)
        if offered is None:
            raise _unsupported(
                f"{self._connection.endpoint} does not offer {api}; its Kafka is too old, or the listener is not a broker's"
            )
        version = min(own.highest if newest is None else newest, offered.highest)
        if version < max(own.lowest, offered.lowest):
            raise _unsupported(
                f"{self._connection.endpoint} offers {api} in versions {offered.lowest} to {offered.highest}, this client "
                f"{own.lowest} to {own.highest}; upgrade the older side"
            )
        return version


class KafkaChannels:
    """The connections of one client. Thread-safe. ConfigError for a user without SASL: brokers would never see the name."""

    def __init__(self, security: ClientSecurity = NO_SECURITY, client_id: str = "") -> None:
        if security.user is not None and not security.has_sasl:
            raise ConfigError(
                f"user {security.user} is named for a cluster that speaks the Kafka protocol; set security.protocol=SASL_SSL (or "
                "SASL_PLAINTEXT) and sasl.mechanism, for example in the file for --command-config, or leave the user out"
            )
        self._security = security
        self._client_id = client_id
        self._lock = threading.Lock()
        self._connections: dict[Endpoint, KafkaConnection] = {}

    def unary(self, endpoint: Endpoint, api: str) -> Callable[..., AdminMessage]:
        """Return the callable `(request, timeout=seconds) -> response` of a call at a broker. NoAnswer, ApiError."""
        return partial(self._call, endpoint, api)

    def _call(self, endpoint: Endpoint, api: str, request: AdminRequest, *, timeout: float) -> AdminMessage:
        for name, advice in HEADER_FIELDS.items():
            if getattr(request.header, name):
                raise _unsupported(f"{api} has no {name} over the Kafka protocol; {advice}")
        node = KafkaNode(self.connection(endpoint), time.monotonic() + timeout)
        answer: Any = METHODS[api].response
        response: AdminMessage = SEVERAL[api](node, request) if api in SEVERAL else node.ask(answer, request)
        return response

    def explained(self, endpoint: Endpoint, error: grpc.RpcError) -> grpc.RpcError:
        """Return the error: it has its reason."""
        return error

    def last_look(self, endpoint: Endpoint, fault: str) -> str:
        """Return the fault: it has its reason."""
        return fault

    def exchange(
        self, endpoint: Endpoint, request: Message, answer: type[Answer], timeout_s: float, newest: int | None = None
    ) -> Answer:
        """Send a request outside the Admin service to a broker, as `KafkaNode.exchange`."""
        return KafkaNode(self.connection(endpoint), time.monotonic() + timeout_s).exchange(request, answer, newest)

    def check(self, request: AdminRequest) -> None:
        """Refuse a request with fields that no version of Kafka's has. ApiError UNSUPPORTED_VERSION."""
        api = type(request).__name__.removesuffix("Request")
        if api not in OFFERS:
            raise own_call(api)
        newest = OFFERS[api].highest
        _refuse_lost(api, newest, request, lost_fields(request, request_class(OFFERS[api].key), newest))

    def connection(self, endpoint: Endpoint) -> KafkaConnection:
        """Return the connection to a broker; it opens at its first request."""
        with self._lock:
            found = self._connections.get(endpoint)
            if found is None:
                found = self._connections[endpoint] = KafkaConnection(endpoint, self._security, self._client_id)
            return found

    def close(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()


def own_call(api: str) -> ApiError:
    """Return the error for a call that Kafka does not have."""
    instead = f"; instead: {CALLS[api].instead}" if CALLS[api].instead else ""
    return _unsupported(f"{api} is a call of kraftlab's own, and this cluster speaks the Kafka protocol{instead}")


def _refuse_lost(api: str, version: int, request: AdminRequest, lost: list[str]) -> None:
    wanted = [name for name in lost if name not in HINTS]
    # The value that Kafka's brokers assume without the field asks for nothing.
    if "allow_replication_factor_change" in wanted and getattr(request, "allow_replication_factor_change", False):
        wanted.remove("allow_replication_factor_change")
    if wanted:
        names = ", ".join(OPTIONS.get(name, name) for name in wanted)
        raise _unsupported(f"Kafka's {api} (version {version}) has no {names}; leave that out for this cluster")


def _unsupported(text: str) -> ApiError:
    return ApiError(ErrorCode.UNSUPPORTED_VERSION, text)
