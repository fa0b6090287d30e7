"""Requests of the Kafka protocol: ApiVersions, data and Metadata for this broker, and admin calls for the `dispatch` that gRPC
calls too.

Only what is served is offered. A client sees the KAFKA listeners of the nodes; DescribeCluster leaves out nodes without one. A
controller serves admin calls too, to tools with `--bootstrap-controller`.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, TypeVarTuple

import trio

from kraftlab.access.refusals import BROKERS
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.models import KAFKA_LISTENER
from kraftlab.messages.catalog import API_VERSIONS, response_class
from kraftlab.messages.schema import Message, Structure
from kraftlab.metadata.records import Listener
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.calls import BROKER_OFFERS, CONTROLLER_OFFERS, LISTENER, Row
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call, Dispatch
from kraftlab.rpc.turns import ELEMENTS_AT_ONCE
from kraftlab.wire.parts import Part

from .codec import Header, KafkaRequest, encode_response
from .translation import client_code, says_error, to_message, to_value

OFFERS: dict[int, Row] = {row.key: row for row in BROKER_OFFERS if row.place is not None}
"""The requests that a broker serves, by API key."""
CONTROLLERS_OFFERS: dict[int, Row] = {row.key: row for row in CONTROLLER_OFFERS if row.place not in (None, LISTENER)}
"""The requests that a controller serves (KIP-919), by API key."""
UNSERVED_FEATURES = frozenset({"group.version", "share.version", "streams.version", "transaction.version"})
"""A client that sees one of them uses requests that are not served."""

CATCH_UP_S = 1.0
"""An answer waits at most so long until this broker has published the change: the client's next Metadata then shows it."""


LARGE_BYTES = 100_000
"""Bytes of an answer from which on a thread encodes it: the rows of a very large one take a minute."""


Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class Node(Protocol):
    """A broker or controller as the metadata knows it."""

    def listener(self, name: str, /) -> Listener | None: ...


LocalAnswer = Callable[[KafkaRequest, Caller], Awaitable[Message | None]]
"""Answers a request with a message of Kafka; None: the client expects no answer."""


class Unanswerable(Exception):
    """The request failed as a whole, and its response has no field for that. The text gives the request and the reason."""


class Door:
    """Answers requests of one node. `nodes` returns the nodes of its kind that the metadata knows; `published` waits until this
    node has published an offset. `local` answers requests about data, groups and Metadata, by name.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        node_id: int,
        nodes: Callable[[], Mapping[int, Node]],
        published: Callable[[int], Awaitable[None]],
        local: Mapping[str, LocalAnswer],
        offers: Mapping[int, Row] = OFFERS,
    ) -> None:
        self._dispatch = dispatch
        self._node_id = node_id
        self._nodes = nodes
        self._published = published
        self._local = local
        self.offers = offers
        self._one_large = trio.CapacityLimiter(1)
        """Large requests and answers are translated one after the other: several at once would leave other tasks little time."""

    async def answer(self, request: KafkaRequest, caller: Caller) -> Sequence[Part] | None:
        """Return the frame that answers a request that is offered, None if the client expects none.

        Unanswerable: close the connection, and the client tries again.
        """
        head = request.header
        name = self.offers[head.key].name
        if name in self._local:
            try:
                value = await self._local[name](request, caller)
            except ApiError as error:
                value = _refused(name, head, error)
            if value is None:
                return None
            is_large = request.is_large or elements_of(value) > ELEMENTS_AT_ONCE
            return await self._off_loop(encode_response, head, value) if is_large else encode_response(head, value)
        method = METHODS[name]
        message: Any = method.request()
        if request.is_large:
            await self._off_loop(to_message, request.body, head.version, message)
        else:
            to_message(request.body, head.version, message)
        if name == "DescribeCluster" and not message.HasField("endpoint_type"):
            message.endpoint_type = BROKERS
        response: Any = await self._dispatch(Call(name, message, caller.principal, caller.host, caller.client_id))
        with trio.move_on_after(CATCH_UP_S):
            await self._published(response.header.metadata_offset)
        if head.key == API_VERSIONS:
            return self._api_versions(response, head)
        if name == "DescribeCluster":
            self._name_kafka_listeners(response)
        if response.header.error_code and not says_error(response, response_class(head.key), head.version):
            raise Unanswerable(f"{name} failed: {response.header.error_message}")
        if response.ByteSize() < LARGE_BYTES:
            return _encoded(head, response)
        return await self._off_loop(_encoded, head, response)

    async def _off_loop(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call a pure function on a thread, where a large request or answer keeps nobody waiting."""
        return await trio.to_thread.run_sync(work, *arguments, abandon_on_cancel=True, limiter=self._one_large)

    def unsupported(self, head: Header) -> Sequence[Part]:
        """Return the answer to an ApiVersions request in an unknown version: version 0, which any client reads (KIP-511)."""
        response = admin_pb2.ApiVersionsResponse()
        response.header.error_code = ErrorCode.UNSUPPORTED_VERSION
        return self._api_versions(response, head._replace(version=0))

    def _api_versions(self, response: Any, head: Header) -> Sequence[Part]:
        del response.api_keys[:]
        is_answered = response.header.error_code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)
        for offer in self.offers.values() if is_answered else ():
            response.api_keys.add(api_key=offer.key, min_version=offer.lowest, max_version=offer.highest)
        for features in (response.supported_features, response.finalized_features):
            kept = [feature for feature in features if feature.name not in UNSERVED_FEATURES]
            del features[:]
            features.extend(kept)
        return _encoded(head, response)

    def _name_kafka_listeners(self, response: admin_pb2.DescribeClusterResponse) -> None:
        known = self._nodes()
        for index in reversed(range(len(response.brokers))):
            described = response.brokers[index]
            node = known.get(described.broker_id)
            listener = node.listener(KAFKA_LISTENER) if node is not None else None
            if listener is None:
                del response.brokers[index]
            else:
                described.host, described.port = listener.host, listener.port
        named = [described.broker_id for described in response.brokers]
        # A client takes the controller's address from the list of nodes.
        if response.controller_id not in named:
            response.controller_id = self._node_id if self._node_id in named else next(iter(named), -1)


def elements_of(value: Structure, depth: int = 2) -> int:
    """Return the number of elements in the lists of an answer, to some depth; a list that is full already is not entered."""
    count = 0
    for name in _lists_of(type(value)):
        entries = getattr(value, name) or ()
        count += len(entries)
        if depth and count <= ELEMENTS_AT_ONCE:
            count += sum(elements_of(entry, depth - 1) for entry in entries if isinstance(entry, Structure))
    return count


@functools.cache
def _lists_of(kind: type[Structure]) -> tuple[str, ...]:
    return tuple(field.name for field in kind.FIELDS if field.is_array)


def _refused(name: str, head: Header, error: ApiError) -> Message:
    """Return a response that says only that the whole request failed. Unanswerable if it has no field for that."""
    kind = response_class(head.key)
    if not any(field.name == "error_code" and field.is_in(head.version) for field in kind.FIELDS):
        raise Unanswerable(f"{name} failed: {error}") from error
    return kind(error_code=client_code(error.code))


def _encoded(head: Header, response: Any) -> Sequence[Part]:
    return encode_response(head, to_value(response, response_class(head.key), head.version))
