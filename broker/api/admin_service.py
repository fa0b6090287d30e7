"""The admin API of a broker. Calls about the broker's own log directories and metadata are answered here; every other call is
passed on to the active controller.

A call is passed on in an Envelope over peer frames, and the controller's answer is returned unchanged. While there is no active
controller, or the controller has just moved, the broker looks for it again until the call's deadline. If a change may have
reached a controller before that, the answer says that its outcome is unknown.

Authorization happens where a call is executed: here for the broker's own calls, by the ACLs in the published image; on the
controller for calls that are passed on, whose envelope names the principal and the host.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import msgspec
import trio
from google.protobuf.message import Message

from kraftlab.access.authorizer import AccessSettings
from kraftlab.access.refusals import BROKERS
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.decoding import Decoder
from kraftlab.common.errors import ApiError, ErrorCode, describe
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import Api, EnvelopeRequest, EnvelopeResponse, ForwardingBroker
from kraftlab.node.api import DEFAULT_TIMEOUT_MS, Service, timeout_of
from kraftlab.quorum.driver.quorum_description import ReplicaDescription
from kraftlab.rpc.calls import CALLS, fault
from kraftlab.rpc.methods import METHODS, LocalCall, Method, header_of
from kraftlab.rpc.request_ids import changes, is_repeatable
from kraftlab.rpc.server import Call
from kraftlab.wire.frames import FrameError
from kraftlab.wire.parts import InMemory
from kraftlab.wire.transport import PeerError, PeerTimeout, PeerUnreachable

from ..control.controller_channel import NoController
from ..control.metadata_publisher import MetadataPublisher

logger = logging.getLogger("kraftlab.broker.admin")

RETRY_BACKOFF_S = 0.05
PATIENCE_S = 5.0
"""Forwarding time of a call that arrives with timeout_ms <= 0."""


_encode = msgspec.msgpack.encode
_envelope = Decoder(EnvelopeResponse)


class Channel(Protocol):
    """The way to the active controller (`ControllerChannel`)."""

    @property
    def controller_id(self) -> int: ...

    async def pass_on(self, api: int, body: bytes, *, timeout_ms: int) -> InMemory: ...

    async def wait_for_change(self, timeout_s: float) -> None: ...


CallerCall = Callable[[Message, Call], Awaitable[Message]]
"""As LocalCall, for a call whose answer depends on its caller."""


class AdminService(Service):
    """`dispatch` of the broker's AdminServer. `local` and `of_callers` hold the calls that this broker answers itself, by method
    name. Without `access`, every principal may make them. `voters` returns those of the metadata quorum.
    """

    def __init__(
        self,
        cluster_id: str,
        channel: Channel,
        publisher: MetadataPublisher,
        local: Mapping[str, LocalCall],
        access: AccessSettings | None = None,
        identity: ForwardingBroker | None = None,
        of_callers: Mapping[str, CallerCall] = {},
        voters: Callable[[], Iterable[ReplicaDescription]] | None = None,
    ) -> None:
        super().__init__(cluster_id, BROKERS, identity.node_id if identity is not None else None, access)
        self._identity = identity
        self._channel = channel
        self._publisher = publisher
        self._local = local
        self._of_callers = of_callers
        self._voters = voters

    async def dispatch(self, call: Call) -> Message:
        timeout_ms = timeout_of(call.request, math.inf if CALLS[call.api].waits else DEFAULT_TIMEOUT_MS)
        deadline = trio.current_time() + max(timeout_ms, 0) / 1000
        try:
            self.check(call)
            if self.is_about_loggers(call):
                return await self.with_loggers(call, partial(self._pass_on, deadline=deadline))
            if call.api in self._local or call.api in self._of_callers:
                return await self._answer(call, timeout_ms, deadline)
        except ApiError as error:
            return self.refused(call, error)
        return await self._pass_on(call, deadline)

    async def _answer(self, call: Call, timeout_ms: float, deadline: float) -> Message:
        """Answer one of this broker's own calls. ApiError refuses the whole request."""
        min_offset, has_begun = header_of(call.request).min_offset, False
        with trio.move_on_at(deadline):
            await self._publisher.wait_for(min_offset)
            has_begun = True
            admission = self.admit(call)
            response = METHODS[call.api].response() if admission.is_void else await self._carry_out(call, admission.request)
            return self.answered(admission.completed(response))
        if has_begun and CALLS[call.api].changes:
            text = f"{call.api} was begun and did not end within {timeout_ms} ms; it may have been carried out in part"
            return _unknown(self.refused(call, ApiError(ErrorCode.REQUEST_TIMED_OUT, text)))
        behind = f"this broker has metadata up to {self._publisher.offset}, the request's min_offset is {min_offset}"
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"not done within {timeout_ms} ms; {behind}")

    async def _carry_out(self, call: Call, request: Any) -> Message:
        """Execute the admitted part of a call."""
        of_caller = self._of_callers.get(call.api)
        return await (self._local[call.api](request) if of_caller is None else of_caller(request, call))

    def committed(self) -> tuple[MetadataImage, bool]:
        image = self._publisher.image
        return image, image.provenance.offset > 0

    def fill(self, header: admin_pb2.ResponseHeader, offset: int | None) -> None:
        provenance = self._publisher.image.provenance
        header.metadata_offset = provenance.offset if offset is None else offset
        header.epoch = provenance.epoch
        header.leader_id = self._channel.controller_id

    def _envelope_of(self, call: Call) -> EnvelopeRequest:
        """Wrap a call. If the answer depends on this broker, the envelope has its identity and its configuration file."""
        return EnvelopeRequest(
            call.api,
            call.principal,
            call.request.SerializeToString(),
            call.client_id,
            self._identity if CALLS[call.api].per_broker else None,
            call.host,
        )

    async def _pass_on(self, call: Call, deadline: float) -> Message:
        """Return the active controller's answer. DescribeCluster has a type of endpoint, which is another one there."""
        request: Any = call.request
        is_typed = call.api == "DescribeCluster" and request.HasField("endpoint_type")
        if is_typed:
            request.ClearField("endpoint_type")
        response: Any = await self._forward(call, METHODS[call.api], deadline)
        if is_typed:
            response.ClearField("controllers")
        return response  # type: ignore[no-any-return]

    async def _forward(self, call: Call, method: Method, deadline: float) -> Message:
        header = header_of(call.request)
        reason = "no controller is known to lead; make sure that a majority of the controllers runs"
        is_change, is_safe, is_open = changes(call.api, call.request), is_repeatable(call.api, call.request), False
        is_over = header.HasField("timeout_ms") and header.timeout_ms <= 0
        if is_over:
            # The answer to such a deadline depends on the call, so the controller gives it.
            deadline = trio.current_time() + PATIENCE_S
        while (rest_s := deadline - trio.current_time()) > 0:
            if self._channel.controller_id < 0:
                await self._channel.wait_for_change(rest_s)
                continue
            # The controller gets the client's deadline: a call whose client has timed out must not be executed later.
            rest_ms = max(1, int(rest_s * 1000))
            if not is_over:
                header.timeout_ms = rest_ms
            body = _encode(self._envelope_of(call))
            try:
                answer = await self._channel.pass_on(Api.ENVELOPE, body, timeout_ms=rest_ms)
                response = _envelope.decode(answer)
            except FrameError as error:
                refusal = f"Not carried out, since it cannot be passed on: {error}, or send it to a controller."
                return fault(method, refusal, ErrorCode.INVALID_REQUEST)
            except PeerTimeout:
                is_open = is_change
                break
            except PeerUnreachable as error:
                may_have_arrived = not error.refused and not isinstance(error, NoController)
                reason = str(error)
                if may_have_arrived and not is_safe:
                    return _lost(call, reason)
                is_open = is_open or (is_change and may_have_arrived)
            except PeerError as error:
                if error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE):
                    return fault(method, error.message, error.code)
                reason = error.message
            except msgspec.MsgspecError as error:
                return fault(method, f"the controller's answer cannot be read: {error}")
            else:
                if response.error == ErrorCode.NONE:
                    return method.response.FromString(response.response)
                if response.error != ErrorCode.NOT_CONTROLLER:
                    return fault(
                        method, response.message or f"the controller answered {describe(response.error)}", response.error
                    )
                reason = response.message or "the controller has moved"
                if _is_outcome_unknown(method, response.response):
                    if not is_safe:
                        return _lost(call, reason)
                    is_open = True
            await self._channel.wait_for_change(min(RETRY_BACKOFF_S, max(rest_s, 0)))
        if is_open:
            text = f"{call.api} was passed on and not answered in time; whether it was carried out is unknown ({reason})"
            return _unknown(fault(method, text, ErrorCode.REQUEST_TIMED_OUT))
        text = f"{call.api} could not be passed on to the active controller in time: {reason}"
        return self._naming_voters(call, fault(method, text, ErrorCode.REQUEST_TIMED_OUT))

    def _naming_voters(self, call: Call, refusal: Message) -> Message:
        """Add the voters that this broker knows to a refusal of DescribeQuorum, so that a client can ask them itself."""
        if isinstance(refusal, admin_pb2.DescribeQuorumResponse) and self._voters is not None:
            with suppress(ApiError):
                self.admit(call)
                controllers = self._publisher.image.cluster.controllers
                for voter in self._voters():
                    listed = refusal.current_voters.add(replica_id=voter.node_id)
                    registered = controllers.get(voter.node_id)
                    for listener in registered.listeners if registered is not None else ():
                        listed.endpoints.add(name=listener.name, host=listener.host, port=listener.port)
        return refusal


def _lost(call: Call, reason: str) -> Message:
    """The answer to a change that may not be forwarded again."""
    text = f"{reason}; whether {call.api} was carried out is unknown"
    return _unknown(fault(METHODS[call.api], text, ErrorCode.NETWORK_EXCEPTION))


def _unknown(refused: Any) -> Message:
    """Mark the answer to a change that may have been executed, or may still be."""
    refused.header.outcome_unknown = True
    return refused  # type: ignore[no-any-return]


def _is_outcome_unknown(method: Method, body: bytes) -> bool:
    """Return True if a controller that lost the leadership says that the change may survive."""
    answered: Any = method.response.FromString(body)
    return bool(answered.header.outcome_unknown)
