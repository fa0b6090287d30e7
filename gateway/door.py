"""Requests of the Kafka protocol: data, groups and the cluster for this node itself, calls about its disks and loggers for the
`dispatch` that gRPC calls too, and frames to forward.

Only what is served is offered. A broker forwards the client's frame to the active controller, and returns the frame that it gets
(KIP-590). A controller serves admin calls too, to tools with `--bootstrap-controller`.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import trio

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.messages.catalog import API_VERSIONS, response_class
from kraftlab.messages.schema import Message, Structure
from kraftlab.metadata.peer_rpc import EnvelopeResponse
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.calls import BROKER_OFFERS, CONTROLLER_OFFERS, LISTENER, Row
from kraftlab.rpc.server import Dispatch
from kraftlab.rpc.turns import ELEMENTS_AT_ONCE
from kraftlab.wire.parts import Part

from .admin_calls import LARGE_BYTES, AdminCalls, Unanswerable, encoded, with_codes
from .answer_codes import codes_in_frame
from .codec import Header, KafkaRequest
from .request_figures import RequestFigures
from .translation import client_code, says_error_by_field

OFFERS: dict[int, Row] = {row.key: row for row in BROKER_OFFERS if row.place is not None}
"""The requests that a broker serves, by API key."""
CONTROLLERS_OFFERS: dict[int, Row] = {row.key: row for row in CONTROLLER_OFFERS if row.place not in (None, LISTENER)}
"""The requests that a controller serves (KIP-919), by API key."""
UNSERVED_FEATURES = frozenset({"group.version", "share.version", "streams.version", "transaction.version"})
"""A client that sees one of them uses requests that are not served."""

IN_DOUBT = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)
"""Errors after which a forwarded request may have been executed. Entries cannot say so; the end of the connection does."""
CATCH_UP_S = 1.0
"""An answer waits at most so long until this broker has published the change: the client's next Metadata then shows it."""


LocalAnswer = Callable[[KafkaRequest, Caller], Awaitable[Message | None]]
"""Answers a request with a message of Kafka; None: the client expects no answer."""


class ActiveController(Protocol):
    """The way to the active controller."""

    def forwards(self, row: Row, request: KafkaRequest, /) -> bool:
        """Return True if the active controller answers the request, whatever broker is asked."""
        ...

    async def forward_frame(self, row: Row, request: KafkaRequest, caller: Caller, /) -> EnvelopeResponse:
        """Return its answer, which has the frame of the response. ApiError if there is none."""
        ...


class Door:
    """Answers requests of one node. `local` answers requests about data, groups and the cluster, by name. `forwarding` passes
    on what the active controller answers; None: `dispatch` answers that too. `published` waits until this node has published an
    offset. `figures` counts the error codes in answers.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        published: Callable[[int], Awaitable[None]],
        local: Mapping[str, LocalAnswer],
        offers: Mapping[int, Row] = OFFERS,
        forwarding: ActiveController | None = None,
    ) -> None:
        self.figures = RequestFigures()
        self._admin = AdminCalls(dispatch)
        self._published = published
        self._local = local
        self.offers = offers
        self._forwarding = forwarding

    async def answer(self, request: KafkaRequest, caller: Caller) -> Sequence[Part] | None:
        """Return the frame that answers a request that is offered, None if the client expects none.

        Unanswerable: close the connection, and the client tries again.
        """
        head = request.header
        row = self.offers[head.key]
        if row.name in self._local:
            return await self._answer_here(row.name, request, caller)
        if self._forwarding is not None and self._forwarding.forwards(row, request):
            return await self._forwarded(self._forwarding, row, request, caller)
        response: Any = await self._admin.ask(request, caller)
        await self._catch_up(response.header.metadata_offset)
        if head.key == API_VERSIONS:
            return self._api_versions(response, head)
        return await self._admin.encode(head, response, functools.partial(self.figures.answered, row.name))

    async def _answer_here(self, name: str, request: KafkaRequest, caller: Caller) -> Sequence[Part] | None:
        head = request.header
        try:
            value = await self._local[name](request, caller)
        except ApiError as error:
            value = _refused(name, head, error)
        if value is None:
            return None
        is_large = request.is_large or elements_of(value) > ELEMENTS_AT_ONCE
        parts, codes = await self._admin.off_loop(with_codes, head, value) if is_large else with_codes(head, value)
        self.figures.answered(name, codes)
        return parts

    async def _forwarded(self, forwarding: ActiveController, row: Row, request: KafkaRequest, caller: Caller) -> Sequence[Part]:
        try:
            answer = await forwarding.forward_frame(row, request, caller)
        except ApiError as error:
            note = functools.partial(self.figures.answered, row.name)
            if error.code not in IN_DOUBT:
                return await self._admin.refuse(request, error, note)
            parts, codes = with_codes(request.header, _refused(row.name, request.header, error))
            note(codes)
            return parts
        await self._catch_up(answer.metadata_offset)
        is_large = len(answer.response) >= LARGE_BYTES
        read = functools.partial(codes_in_frame, request.header, answer.response)
        self.figures.answered(row.name, await self._admin.off_loop(read) if is_large else read())
        return [answer.response]

    async def _catch_up(self, offset: int) -> None:
        with trio.move_on_after(CATCH_UP_S):
            await self._published(offset)

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
        parts, codes = encoded(head, response)
        self.figures.answered(self.offers[API_VERSIONS].name, codes)
        return parts


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
    if not says_error_by_field(kind, head.version):
        raise Unanswerable(f"{name} failed: {error}") from error
    return kind(error_code=client_code(error.code))
