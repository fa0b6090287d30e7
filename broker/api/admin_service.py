"""The admin API of a broker. Calls about the broker's own log directories and metadata are answered here; every other call is
passed on to the active controller.

A call is passed on in an Envelope (`forwarding.py`), and the controller's answer is returned unchanged: a message of the Admin
service, or a frame for a Kafka client.

Authorization happens where a call is executed: here for the broker's own calls, by the ACLs in the published image; on the
controller for calls that are passed on, whose envelope names the principal and the host.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from google.protobuf.message import Message

from kraftlab.access.authorizer import AccessSettings
from kraftlab.access.refusals import BROKERS
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.resources import ResourceType
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import EnvelopeRequest, EnvelopeResponse, ForwardingBroker
from kraftlab.node.api import DEFAULT_TIMEOUT_MS, Service, timeout_of
from kraftlab.quorum.driver.quorum_description import ReplicaDescription
from kraftlab.rpc.caller import Caller
from kraftlab.rpc.calls import CALLS, Row, fault
from kraftlab.rpc.methods import METHODS, LocalCall, Method, header_of
from kraftlab.rpc.request_ids import changes, is_repeatable
from kraftlab.rpc.server import Call

from ..control.metadata_publisher import MetadataPublisher
from .forwarding import CallOnItsWay, Channel, OutcomeUnknown, forward

if TYPE_CHECKING:
    from kraftlab.gateway.codec import KafkaRequest

logger = logging.getLogger("kraftlab.broker.admin")

PATIENCE_S = 5.0
"""Forwarding time of a call that arrives with timeout_ms <= 0."""


class AdminService(Service):
    """`dispatch` of the broker's AdminServer. `local` holds the calls that this broker answers itself, by method name. Without
    `access`, every principal may make them. `voters` returns those of the metadata quorum.
    """

    def __init__(
        self,
        cluster_id: str,
        channel: Channel,
        publisher: MetadataPublisher,
        local: Mapping[str, LocalCall],
        access: AccessSettings | None = None,
        identity: ForwardingBroker | None = None,
        voters: Callable[[], Iterable[ReplicaDescription]] | None = None,
    ) -> None:
        super().__init__(cluster_id, BROKERS, identity.node_id if identity is not None else None, access)
        self._identity = identity
        self._channel = channel
        self._publisher = publisher
        self._local = local
        self._voters = voters

    async def dispatch(self, call: Call) -> Message:
        timeout_ms = timeout_of(call.request, DEFAULT_TIMEOUT_MS)
        deadline = trio.current_time() + max(timeout_ms, 0) / 1000
        try:
            self.check(call)
            if self.is_about_loggers(call):
                return await self.with_loggers(call, partial(self._pass_on, deadline=deadline))
            if call.api in self._local:
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
            response = METHODS[call.api].response() if admission.is_void else await self._local[call.api](admission.request)
            return self.answered(admission.completed(response))
        if has_begun and CALLS[call.api].changes:
            text = f"{call.api} was begun and did not end within {timeout_ms} ms; it may have been carried out in part"
            return _unknown(self.refused(call, ApiError(ErrorCode.REQUEST_TIMED_OUT, text)))
        behind = f"this broker has metadata up to {self._publisher.offset}, the request's min_offset is {min_offset}"
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"not done within {timeout_ms} ms; {behind}")

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
        # The answer to a deadline that is over depends on the call, so the controller gives it.
        is_over = header.HasField("timeout_ms") and header.timeout_ms <= 0

        def envelope(rest_ms: int) -> EnvelopeRequest:
            if not is_over:
                header.timeout_ms = rest_ms
            return self._envelope_of(call)

        forwarded = CallOnItsWay(call.api, envelope, changes(call.api, call.request), is_repeatable(call.api, call.request))
        try:
            answer = await forward(self._channel, forwarded, trio.current_time() + PATIENCE_S if is_over else deadline)
        except ApiError as error:
            refusal: Any = fault(method, error.message or "", error.code)
            refusal.header.outcome_unknown = isinstance(error, OutcomeUnknown)
            return self._naming_voters(call, refusal)
        return method.response.FromString(answer.response)

    def forwards(self, row: Row, request: KafkaRequest) -> bool:
        """Return True if the active controller answers a client's frame. This broker answers for its disks and its loggers."""
        about_loggers = row.per_broker and any(
            resource.resource_type == ResourceType.BROKER_LOGGER for resource in request.body.resources
        )
        return not row.is_brokers and not about_loggers

    async def forward_frame(self, row: Row, request: KafkaRequest, caller: Caller) -> EnvelopeResponse:
        """Return the active controller's answer to a client's frame (KIP-590). ApiError, OutcomeUnknown."""
        timeout_ms: int = getattr(request.body, "timeout_ms", DEFAULT_TIMEOUT_MS)
        is_over, identity = timeout_ms <= 0, self._identity if row.per_broker else None

        def envelope(rest_ms: int) -> EnvelopeRequest:
            return EnvelopeRequest(
                row.name,
                caller.principal,
                bytes(request.frame),
                caller.client_id,
                identity,
                caller.host,
                is_frame=True,
                timeout_ms=None if is_over else rest_ms,
            )

        forwarded = CallOnItsWay(row.name, envelope, changes(row.name, request.body), not row.once)
        return await forward(self._channel, forwarded, trio.current_time() + (PATIENCE_S if is_over else timeout_ms / 1000))

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


def _unknown(refused: Any) -> Message:
    """Mark the answer to a change that may have been executed, or may still be."""
    refused.header.outcome_unknown = True
    return refused  # type: ignore[no-any-return]
