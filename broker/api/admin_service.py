"""The admin API of a broker. Calls about the broker's own log directories and metadata are answered here; every other call is
passed on to the active controller.

A call is passed on in an Envelope over peer frames, and the controller's answer is returned unchanged. While there is no active
controller, or the controller has just moved, the broker looks for it again until the call's deadline. If a change may have
reached a controller by then, the answer says that its outcome is unknown.

Authorization happens where a call is carried out: here for the broker's own calls, by the ACLs in the published image; on the
controller for calls that are passed on, whose envelope names the principal and the host.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec
import trio
from google.protobuf.message import Message

from kraftlab.access.admission import admit
from kraftlab.access.authorizer import NOT_ASKED, AccessSettings, Authorizer, Rights
from kraftlab.access.calls import Admission
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.decoding import Decoder
from kraftlab.common.errors import ApiError, ErrorCode, describe
from kraftlab.metadata.peer_rpc import Api, EnvelopeRequest, EnvelopeResponse, ForwardingBroker
from kraftlab.node import logger_configs
from kraftlab.quorum.driver.quorum_description import ReplicaDescription
from kraftlab.rpc.endpoint_types import BROKERS, check_endpoint_type
from kraftlab.rpc.methods import METHODS, LocalCall, Method, fault
from kraftlab.rpc.request_ids import ONCE, can_be_named, is_named
from kraftlab.rpc.server import Call
from kraftlab.wire.frames import FrameError
from kraftlab.wire.parts import InMemory
from kraftlab.wire.transport import PeerError, PeerTimeout, PeerUnreachable

from ..control.controller_channel import NoController
from ..control.metadata_publisher import MetadataPublisher
from .refusals import REFUSALS

logger = logging.getLogger("kraftlab.broker.admin")

TIMEOUT_DEFAULT_MS = 60_000
RETRY_BACKOFF_S = 0.05
PATIENCE_S = 5.0
"""Time for which a call is passed on whose deadline is over from the start."""
ABOUT_CONFIGS = ("IncrementalAlterConfigs", "AlterConfigs", "DescribeConfigs")
"""Calls whose answer depends on the broker that passes them on."""
OWN_CHANGES = frozenset(
    {
        "AlterReplicaLogDirs",
        "CreateSnapshot",
        "DeleteGroups",
        "DeleteRecords",
        "JoinGroup",
        "LeaveGroup",
        "OffsetCommit",
        "OffsetDelete",
        "OnlineLogDir",
        "ResolveReplicaCopy",
        "SyncGroup",
    }
)
"""Calls that a broker carries out itself and that change something."""
WITH_OWN_TIMEOUTS = frozenset({"JoinGroup", "SyncGroup"})
"""Calls without a deadline unless their header has one: the timeouts of the group end their wait."""


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


class AdminService:
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
        self._cluster_id = cluster_id
        self._identity = identity
        self._authorizer = Authorizer(access or AccessSettings())
        self._channel = channel
        self._publisher = publisher
        self._local = local
        self._of_callers = of_callers
        self._voters = voters

    async def dispatch(self, call: Call) -> Message:
        method = METHODS[call.api]
        header: admin_pb2.RequestHeader = getattr(call.request, "header")  # noqa: B009 - every request has one
        default_ms = math.inf if call.api in WITH_OWN_TIMEOUTS else TIMEOUT_DEFAULT_MS
        timeout_ms = header.timeout_ms if header.HasField("timeout_ms") else default_ms
        deadline = trio.current_time() + max(timeout_ms, 0) / 1000
        if call.api == "DescribeCluster":
            return await self._describe_cluster(call, method, deadline)
        is_about_loggers = self._identity is not None and logger_configs.concerns(call.request)
        if not (call.api in self._local or call.api in self._of_callers or is_about_loggers):
            return await self._pass_on(call, method, deadline)
        if header.cluster_id and header.cluster_id != self._cluster_id:
            return fault(
                method,
                f"the request is for cluster {header.cluster_id}, this is {self._cluster_id}; check --bootstrap-server",
                ErrorCode.INCONSISTENT_CLUSTER_ID,
            )
        if self._identity is not None and is_about_loggers:
            return await self._with_loggers(call, self._identity.node_id, deadline)
        if header.read_mode == admin_pb2.READ_MODE_LINEARIZABLE:
            return fault(
                method,
                f"{call.api} is about this broker itself, which is not replicated and cannot be read linearizably; leave out "
                "read_mode, and set min_offset if the broker must have applied a certain change",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        has_begun = False
        with trio.move_on_at(deadline) as scope:
            await self._publisher.wait_for(header.min_offset)
            has_begun = True
            try:
                admission = self._admit(call)
                response: Any = method.response() if admission.is_void else await self._carry_out(call, admission.request)
                if admission.complete is not None:
                    admission.complete(response)
            except ApiError as error:
                response = fault(method, error.message or "", error.code)
                if call.api in REFUSALS:
                    REFUSALS[call.api](call.request, response, error)
                return response  # type: ignore[no-any-return]
            getattr(response, "header").MergeFrom(self._header())  # noqa: B009 - every response has one
            return response  # type: ignore[no-any-return]
        assert scope.cancelled_caught
        if has_begun and call.api in OWN_CHANGES:
            text = f"{call.api} was begun and did not end within {timeout_ms} ms; it may have been carried out in part"
            response = _unknown(method, text, ErrorCode.REQUEST_TIMED_OUT)
        else:
            behind = f"this broker has metadata up to {self._publisher.offset}, the request's min_offset is {header.min_offset}"
            text = f"not done within {timeout_ms} ms; {behind}"
            response = fault(method, text, ErrorCode.REQUEST_TIMED_OUT)
        if call.api in REFUSALS:
            REFUSALS[call.api](call.request, response, ApiError(ErrorCode.REQUEST_TIMED_OUT, text))
        return response  # type: ignore[no-any-return]

    async def _carry_out(self, call: Call, request: Any) -> Message:
        """Carry out the admitted part of a call."""
        of_caller = self._of_callers.get(call.api)
        return await (self._local[call.api](request) if of_caller is None else of_caller(request, call))

    async def _with_loggers(self, call: Call, node_id: int, deadline: float) -> Message:
        """Answer for this broker's loggers; pass on the rest of the request."""
        method = METHODS[call.api]

        def admit(request: Any) -> Admission:
            return self._admit(call._replace(request=request))

        async def others(request: Any) -> Message:
            return await self._pass_on(call._replace(request=request), method, deadline)

        try:
            response: Any = await logger_configs.answer(call.api, call.request, node_id, admit, others)
        except ApiError as error:
            return fault(method, error.message or "", error.code)
        if not response.HasField("header"):
            response.header.CopyFrom(self._header())
        return response  # type: ignore[no-any-return]

    def _admit(self, call: Call) -> Admission:
        """Return the part of a call that its caller is authorized for; ApiError if there is no such part."""
        return admit(call.api, self.rights(call.principal, call.host), call.request, self._publisher.image)

    def rights(self, principal: str, host: str) -> Rights:
        """Return a caller's rights by the published ACLs. ApiError if the ACLs are not loaded yet."""
        image = self._publisher.image
        is_loaded = image.provenance.offset > 0
        return self._authorizer.rights(image.acls if is_loaded else None, principal, host)

    def _envelope_of(self, call: Call) -> EnvelopeRequest:
        """Wrap a call. Calls about configs carry this broker's identity: its configuration file takes part in the answer."""
        about_configs = call.api in ABOUT_CONFIGS and self._identity is not None
        return EnvelopeRequest(
            call.api,
            call.principal,
            call.request.SerializeToString(),
            call.client_id,
            self._identity if about_configs else None,
            call.host,
        )

    def _header(self) -> admin_pb2.ResponseHeader:
        """Offset and epoch of this broker's metadata, and the leader."""
        provenance = self._publisher.image.provenance
        return admin_pb2.ResponseHeader(
            metadata_offset=provenance.offset, epoch=provenance.epoch, leader_id=self._channel.controller_id
        )

    async def _describe_cluster(self, call: Call, method: Method, deadline: float) -> Message:
        """Answer as a broker endpoint. The controller has the other endpoint type, so that field is not passed on."""
        request: Any = call.request
        is_typed = request.HasField("endpoint_type")
        try:
            check_endpoint_type(request, BROKERS)
        except ApiError as error:
            refused: Any = fault(method, error.message or "", error.code)
            refused.controller_id, refused.endpoint_type, refused.cluster_authorized_operations = -1, BROKERS, NOT_ASKED
            return refused  # type: ignore[no-any-return]
        request.ClearField("endpoint_type")
        response: Any = await self._pass_on(call, method, deadline)
        if is_typed:
            response.ClearField("controllers")
        return response  # type: ignore[no-any-return]

    async def _pass_on(self, call: Call, method: Method, deadline: float) -> Message:
        header: admin_pb2.RequestHeader = getattr(call.request, "header")  # noqa: B009 - every request has one
        reason = "no controller is known to lead; make sure that a majority of the controllers runs"
        changes, is_open = call.api in ONCE or can_be_named(call.api, call.request), False
        is_safe = call.api not in ONCE or is_named(call.api, call.request)
        is_over = header.HasField("timeout_ms") and header.timeout_ms <= 0
        if is_over:
            # The answer to such a deadline depends on the call, so the controller gives it.
            deadline = trio.current_time() + PATIENCE_S
        while (rest_s := deadline - trio.current_time()) > 0:
            if self._channel.controller_id < 0:
                await self._channel.wait_for_change(rest_s)
                continue
            # The controller gets the client's deadline: a call whose client has given up must not be carried out later.
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
                is_open = changes
                break
            except PeerUnreachable as error:
                may_have_arrived = not error.refused and not isinstance(error, NoController)
                reason = str(error)
                if may_have_arrived and not is_safe:
                    return _unknown(method, f"{reason}; whether {call.api} was carried out is unknown")
                is_open = is_open or (changes and may_have_arrived)
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
                        return _unknown(method, f"{reason}; whether {call.api} was carried out is unknown")
                    is_open = True
            await self._channel.wait_for_change(min(RETRY_BACKOFF_S, max(rest_s, 0)))
        if is_open:
            text = f"{call.api} was passed on and not answered in time; whether it was carried out is unknown ({reason})"
            return _unknown(method, text, ErrorCode.REQUEST_TIMED_OUT)
        text = f"{call.api} could not be passed on to the active controller in time: {reason}"
        return self._naming_voters(call, fault(method, text, ErrorCode.REQUEST_TIMED_OUT))

    def _naming_voters(self, call: Call, refusal: Message) -> Message:
        """Add the voters that this broker knows to a refusal of DescribeQuorum, so that a client can ask them itself."""
        if isinstance(refusal, admin_pb2.DescribeQuorumResponse) and self._voters is not None:
            with suppress(ApiError):
                self._admit(call)
                controllers = self._publisher.image.cluster.controllers
                for voter in self._voters():
                    listed = refusal.current_voters.add(replica_id=voter.node_id)
                    registered = controllers.get(voter.node_id)
                    for listener in registered.listeners if registered is not None else ():
                        listed.endpoints.add(name=listener.name, host=listener.host, port=listener.port)
        return refusal


def _unknown(method: Method, text: str, code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> Message:
    """The answer to a change that may have been carried out, or may still be."""
    refused: Any = fault(method, text, code)
    refused.header.outcome_unknown = True
    return refused  # type: ignore[no-any-return]


def _is_outcome_unknown(method: Method, body: bytes) -> bool:
    """Return True if a controller that lost the leadership says that the change may survive."""
    answered: Any = method.response.FromString(body)
    return bool(answered.header.outcome_unknown)
