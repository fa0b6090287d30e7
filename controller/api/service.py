"""The controller's API: admin calls (over gRPC or forwarded by brokers) and brokers' requests over peer frames.

Theory of operation. `node/api.py` has the prelude of every call: cluster id, read mode, the caller's rights, loggers. A write is
then ready, unless it is refused or has to wait for `min_offset`; `accept` answers a ready write without a task. A deferred call
continues in a task: it waits for `min_offset`, and a linearizable read waits until a majority has confirmed this leader and the
committed state has caught up. Writes are linearizable in any read mode. `dispatch` does both in one task. Neither raises for a
request, and both fill in the response's header.

The ACLs of the committed state decide on the caller's rights. A write is judged on the active
controller, where it is executed. Before the state is complete, only super users' calls are served. A repeated write with a
request id gets the first answer (`engine/exactly_once.py`); authorization is not repeated, because the answer already belongs
to this caller.

A peer handler decodes a struct, checks that it speaks for its sender only (`metadata/peer_senders.py`), runs the manager's
operation as a write, and encodes its response. A refusal of the whole request is the response's own error. Heartbeats need no
task. An envelope counts only if its sender is a registered broker: the broker's word makes the caller.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import trio
from google.protobuf.message import DecodeError, Message

from kraftlab.access.authorizer import AccessSettings
from kraftlab.access.calls import Admission
from kraftlab.access.node_names import NodeNames
from kraftlab.access.refusals import CONTROLLERS
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.decoding import Decoder
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.line_limit import LimitedLog
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    Api,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    MoveProgressRequest,
    MoveProgressResponse,
)
from kraftlab.metadata.peer_senders import PEER_SENDERS
from kraftlab.node.api import DEFAULT_TIMEOUT_MS, Service, timeout_of
from kraftlab.quorum.core.types import Standing
from kraftlab.rpc.calls import CALLS, NODE, QUORUM, READ, WRITE, Row, fault
from kraftlab.rpc.methods import METHODS, LocalCall, header_of
from kraftlab.rpc.server import Call, Later
from kraftlab.rpc.versions import version_of
from kraftlab.wire.senders import check_sender
from kraftlab.wire.transport import Connection, DirectHandler, PeerError, PeerHandler, PeerRequest, Responder

from ..cluster import brokers, controllers, directories, producer_ids
from ..configs.mutation_quota import UNLIMITED, MutationCharge, quota_of
from ..engine import exactly_once
from ..engine.answer_deadlines import CommitUnknown
from ..engine.purgatory import Answer
from ..engine.quorum_controller import QuorumController
from ..engine.state import Context, ControllerState, Outcome, QuorumFacts, unknown_quorum
from ..partitions import partitions
from . import change_log
from .apis import HANDLERS, HandlerContext
from .peer_standing import standing_of
from .waits import TrioWaits, Waits

if TYPE_CHECKING:
    from .forwarded_frames import ForwardedFrames

logger = logging.getLogger("kraftlab.controller")

FORWARDED_FRAMES = "kraftlab.controller.api.forwarded_frames"
LONG_CHANGES = 250
"""A broker's request with more changes is computed off the event loop."""


class Ready(NamedTuple):
    """A call that nothing holds up. A request with an id is authorized later, in its turn in the queue: `admission` holds the
    whole request then.
    """

    row: Row
    call: Call
    admission: Admission
    deadline_ms: int
    identity: exactly_once.RequestIdentity | None


class FinishedCall(NamedTuple):
    """The response to a call that is not executed: it was refused, is empty, or the caller may have no part of it."""

    response: Message


class DeferredCall(NamedTuple):
    """A call that has to wait, or that is not a write. `run` continues in a task and returns the response."""

    run: Later


class ControllerService(Service):
    """Serves one controller. `local`: handlers of calls about this node's log and quorum, by method name. `access` None:
    everybody may call everything. `waits` None: wait in trio. `nodes`: the principals that are nodes.
    """

    def __init__(
        self,
        controller: QuorumController,
        clock: Callable[[], int],
        local: Mapping[str, LocalCall],
        access: AccessSettings | None = None,
        quorum: Callable[[], QuorumFacts] = unknown_quorum,
        waits: Waits | None = None,
        nodes: NodeNames | None = None,
    ) -> None:
        super().__init__(controller.settings.cluster_id, CONTROLLERS, controller.settings.node_id, access)
        self._nodes = nodes or NodeNames()
        self.controller = controller
        self._quorum = quorum
        self._mutation_quota = quota_of(controller.settings.static)
        self._local = local
        self._clock = clock
        self._lines = LimitedLog(logger, lambda: clock() / 1000)
        self._waits = waits or TrioWaits()
        self._forwarded_frames: ForwardedFrames | None = None

    def now_ms(self) -> int:
        """The controller's clock."""
        return self._clock()

    def committed(self) -> tuple[MetadataImage, bool]:
        return self.controller.committed.image, self.controller.is_loaded

    # --- admin calls ---------------------------------------------------------------------------------------------------------

    def accept(self, call: Call, answer: Callable[[Message], None]) -> Later | None:
        """Answer a call that needs no task, at once or when its write is committed. Otherwise return the function that a task
        has to run.
        """
        admitted = self._admitted(call)
        if isinstance(admitted, DeferredCall):
            return admitted.run
        if isinstance(admitted, FinishedCall):
            answer(admitted.response)
        else:
            self._write(admitted).when_done(partial(self._answer_written, admitted, answer))
        return None

    def _answer_written(self, ready: Ready, answer: Callable[[Message], None], written: Answer[Any]) -> None:
        """Complete and send the answer of a write. This runs inside the controller's event queue, so no exception may escape."""
        call = ready.call
        try:
            if written.error is None:
                self._note_change(call, written)
                value: Any = written.value
                response = self.answered(ready.admission.completed(value), written.offset)
            else:
                response = self.refused(call, written.error)
        except Exception as error:
            self._lines.exception("cannot complete the answer to %s", call.api)
            failure = f"{call.api} was carried out, but its answer failed ({type(error).__name__})"
            response = fault(METHODS[call.api], failure)
        answer(response)

    async def dispatch(self, call: Call) -> Message:
        """Answer one admin call. Errors are in its header, and in its entries where the call has a place for them."""
        admitted = self._admitted(call)
        if isinstance(admitted, FinishedCall):
            return admitted.response
        if isinstance(admitted, DeferredCall):
            return await admitted.run()
        return await self._or_refusal(call, partial(self._carry_out, admitted))

    def _admitted(self, call: Call) -> Ready | FinishedCall | DeferredCall:
        """Check an arriving call as far as possible without waiting."""
        row, request = CALLS[call.api], call.request
        if call.api in HANDLERS:
            HANDLERS[call.api].prepare(request, call.principal)
        timeout_ms = timeout_of(request, DEFAULT_TIMEOUT_MS)
        deadline_ms = self._clock() + timeout_ms
        try:
            self.check(call)
            if self.is_about_loggers(call):
                return DeferredCall(partial(self._or_refusal, call, partial(self.with_loggers, call, self.dispatch)))
            if row.place is WRITE and HANDLERS[call.api].is_empty_request(request):
                self._admit(row, call)
                empty = METHODS[call.api].response()
                HANDLERS[call.api].answer_empty_request(request, empty)
                return FinishedCall(self.answered(empty))
            if row.place is WRITE and timeout_ms <= 0:
                self._admit(row, call)
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "")
            if row.place is not WRITE or header_of(request).min_offset > self.controller.applied_offset:
                return DeferredCall(partial(self._or_refusal, call, partial(self._run, row, call, timeout_ms, deadline_ms)))
            return self._ready(row, call, deadline_ms)
        except ApiError as error:
            return FinishedCall(self.refused(call, error))

    def _ready(self, row: Row, call: Call, deadline_ms: int) -> Ready | FinishedCall:
        """Check the caller's rights, unless the request has an id. ApiError refuses the whole request."""
        identity = exactly_once.identity_of(call.api, call.principal, call.request)
        admission = self._admit(row, call) if identity is None else Admission(call.request)
        if admission.is_void:
            return FinishedCall(self.answered(admission.completed(METHODS[call.api].response())))
        return Ready(row, call, admission, deadline_ms, identity)

    async def _or_refusal(self, call: Call, run: Later) -> Message:
        """Await a response. An ApiError becomes a refusal."""
        try:
            return await run()
        except ApiError as error:
            return self.refused(call, error)

    async def _run(self, row: Row, call: Call, timeout_ms: int, deadline_ms: int) -> Message:
        """Execute a call once this node has reached the state that the call's header asks for."""
        header = header_of(call.request)
        is_linearizable = header.read_mode == admin_pb2.READ_MODE_LINEARIZABLE and row.place is not WRITE
        if is_linearizable or header.min_offset > self.controller.applied_offset:
            await self._wait_for(header.min_offset, timeout_ms, is_linearizable)
        ready = self._ready(row, call, deadline_ms)
        if isinstance(ready, FinishedCall):
            return ready.response
        return await self._carry_out(ready)

    async def _carry_out(self, ready: Ready) -> Message:
        """Execute a call and return its response; a write returns when it is committed. A long read is computed on a thread:
        a committed state never changes, and the event loop has to serve the quorum and heartbeats meanwhile.
        """
        row, call, admission = ready.row, ready.call, ready.admission
        if row.place is WRITE:
            answer = self._write(ready)
            value = await self._waits.answered(answer)
            self._note_change(call, answer)
            return self.answered(admission.completed(value), answer.offset)
        if row.place is not READ:
            return self.answered(admission.completed(await self._of_node(row, admission.request)))
        offset, handler = self.controller.applied_offset, HANDLERS[row.name]
        run = partial(handler.run, HandlerContext(self.controller, self.now_ms, call.broker), admission.request)
        is_long = handler.takes_long(self.controller.committed, admission.request)
        return self.answered(admission.completed(await self._waits.offload(run) if is_long else run()), offset)

    async def _of_node(self, row: Row, request: Any) -> Message:
        """Answer a call about this node or the quorum. The leader of the quorum answers for it, but any controller describes the
        partition of the metadata log: that answer names the leader.
        """
        assert row.place is not None, "a request without a place is not a call"
        if row.is_brokers and row.place is not NODE:
            raise ApiError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, f"{row.place.value}, this is a controller.")
        if row.place is QUORUM and not self.controller.is_active and not getattr(request, "topics", ()):
            raise self.controller.not_controller()
        return await self._local[row.name](request)

    def _admit(self, row: Row, call: Call) -> Admission:
        """As `admit`, but NOT_CONTROLLER for a write on a standby, whose ACLs may be old."""
        if row.place is WRITE and self._authorizer.settings.is_enabled and not self.controller.is_active:
            raise self.controller.not_controller()
        return self.admit(call)

    def _write(self, ready: Ready) -> Answer[Any]:
        run = partial(self._run_write if ready.identity is None else self._once, ready)
        is_long = HANDLERS[ready.row.name].takes_long(self.controller.committed, ready.admission.request)
        return self.put(ready.call.api, run, ready.deadline_ms, is_long)

    def put(
        self, name: str, run: Callable[[ControllerState, Context], Outcome[object]], deadline_ms: int, is_long: bool
    ) -> Answer[object]:
        """Queue an operation at the controller. If it has begun and is not committed by the deadline, its outcome is unknown."""
        return self.controller.write(name, run, deadline_ms=deadline_ms, answer_by_ms=deadline_ms, is_long=is_long)

    def _note_change(self, call: Call, written: Answer[Any]) -> None:
        if self._authorizer.settings.is_enabled:
            change_log.note(call, written.offset)

    def _once(self, ready: Ready, state: ControllerState, context: Context) -> Outcome[Any]:
        """Run a write with an id, unless it has run before. A request that is refused as a whole is not remembered."""
        call, identity = ready.call, ready.identity
        assert identity is not None
        response = METHODS[call.api].response()
        answered = exactly_once.find(state.image.requests, identity, context.now_ms)
        if answered is not None:
            return exactly_once.repeated(answered, response)
        admission = self._admit(ready.row, call)
        if admission.is_void:
            return Outcome((), admission.completed(response))
        outcome = self._run_write(ready._replace(admission=admission), state, context)
        admission.completed(outcome.response)
        return exactly_once.recorded(call.api, identity, outcome, state, context.now_ms)

    def _run_write(self, ready: Ready, state: ControllerState, context: Context) -> Outcome[Any]:
        """Run a write with its client's mutation quota, the forwarding broker and the quorum in its context."""
        handler, call, request = HANDLERS[ready.row.name], ready.call, ready.admission.request
        charge = UNLIMITED
        if handler.strict_from is not None and not getattr(request, "validate_only", False):
            is_strict = version_of(request) >= handler.strict_from
            user = call.principal.partition(":")[2]
            charge = self._mutation_quota.charge(state.image, user, call.client_id, is_strict=is_strict, now_ms=context.now_ms)
        outcome: Outcome[Any] = handler.run(
            state, request, context._replace(mutations=charge, broker=call.broker, quorum=self._quorum)
        )
        if charge is UNLIMITED:
            return outcome
        outcome.response.header.throttle_time_ms = charge.throttle_time_ms
        return outcome._replace(appended=partial(_settle, charge, outcome.appended))

    async def _wait_for(self, offset: int, timeout_ms: int, is_linearizable: bool) -> None:
        async def reached() -> None:
            if is_linearizable:
                await self.controller.catch_up()
            await self.controller.wait_applied(offset)

        if await self._waits.within(timeout_ms, reached):
            return
        if is_linearizable and offset <= self.controller.applied_offset:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Not answered: a majority of the controllers did not confirm within {timeout_ms} ms that this one leads. Try "
                "again, or read committed state, which may be older.",
            )
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"This node has applied metadata up to offset {self.controller.applied_offset} and did not reach {offset} in time.",
        )

    def refused(self, call: Call, error: ApiError) -> Message:
        """If the outcome of a change is unknown, the response's offset is the end of the change."""
        response: Any = super().refused(call, error)
        response.header.outcome_unknown = isinstance(error, CommitUnknown)
        return self.answered(response, error.offset if isinstance(error, CommitUnknown) else None)

    def fill(self, header: admin_pb2.ResponseHeader, offset: int | None) -> None:
        active = self.controller.active_controller
        header.metadata_offset = self.controller.applied_offset if offset is None else offset
        header.epoch = active.epoch
        header.leader_id = active.leader_id
        if active.endpoint is not None:
            header.leader.host = active.endpoint.host
            header.leader.port = active.endpoint.port

    # --- peers ---------------------------------------------------------------------------------------------------------------

    def standing(self, request: PeerRequest) -> Standing:
        """Return the standing of a peer's request at the quorum."""
        controller = self.controller
        return standing_of(request, controller.newest.image, controller.is_loaded, self._authorizer)

    def peer_handlers(self) -> dict[int, PeerHandler | DirectHandler]:
        """Handlers by API number, for the node's PeerServer."""
        return {
            Api.ALTER_PARTITION: self._writer(
                AlterPartitionRequest,
                AlterPartitionResponse,
                partitions.alter_partition,
                lambda request: len(request.changes) > LONG_CHANGES,
            ),
            Api.ENVELOPE: self._envelope,
            Api.BROKER_REGISTRATION: self._writer(
                BrokerRegistrationRequest,
                BrokerRegistrationResponse,
                lambda state, request, context: brokers.register(state, self.controller.heartbeats, request, context),
                lambda request: brokers.is_long(self.controller.newest, request.broker_id),
            ),
            Api.BROKER_HEARTBEAT: self._handler(BrokerHeartbeatRequest, BrokerHeartbeatResponse, self._heartbeat),
            Api.MOVE_PROGRESS: self._handler(MoveProgressRequest, MoveProgressResponse, self._move_progress),
            Api.CONTROLLER_REGISTRATION: self._writer(
                ControllerRegistrationRequest, ControllerRegistrationResponse, controllers.register
            ),
            Api.ASSIGN_REPLICAS_TO_DIRS: self._writer(
                AssignReplicasToDirsRequest,
                AssignReplicasToDirsResponse,
                directories.assign,
                lambda request: len(request.assignments) > LONG_CHANGES,
            ),
            Api.ALLOCATE_PRODUCER_IDS: self._writer(
                AllocateProducerIdsRequest, AllocateProducerIdsResponse, producer_ids.allocate_for_broker
            ),
        }

    def _handler(
        self, request_type: type[Any], response_type: type[Any], begin: Callable[[Any, Connection], Answer[Any]]
    ) -> DirectHandler:
        """Decode a peer's request, give it to `begin` with its connection, and send the answer when it is complete."""
        decoder = Decoder(request_type)

        def accept(peer_request: PeerRequest, responder: Responder) -> None:
            try:
                request = decoder.decode(peer_request.body)
                check_sender(PEER_SENDERS, peer_request, request)
            except msgspec.MsgspecError as error:
                name = request_type.__name__.removesuffix("Request")
                responder.refuse(ErrorCode.INVALID_REQUEST, f"the body of {name} cannot be read: {error}")
                return
            except PeerError as error:
                responder.refuse(error.code, error.message)
                return
            begin(request, responder.connection).when_done(partial(_reply, responder, response_type))

        return DirectHandler(accept)

    def _writer(
        self,
        request_type: type[Any],
        response_type: type[Any],
        operation: Callable[..., Outcome[Any]],
        is_long: Callable[[Any], bool] = lambda request: False,
    ) -> DirectHandler:
        """Run a manager's operation as a write and reply with its response once it is committed."""
        name = request_type.__name__.removesuffix("Request")

        def begin(request: Any, _: Connection) -> Answer[Any]:
            run, deadline_ms = partial(self._operation, operation, request), self._clock() + DEFAULT_TIMEOUT_MS
            return self.controller.write(name, run, deadline_ms=deadline_ms, is_long=is_long(request))

        return self._handler(request_type, response_type, begin)

    def _operation(
        self, run: Callable[..., Outcome[Any]], request: Any, state: ControllerState, context: Context
    ) -> Outcome[Any]:
        return run(state, request, context._replace(quorum=self._quorum))

    def _heartbeat(self, request: BrokerHeartbeatRequest, connection: Connection) -> Answer[BrokerHeartbeatResponse]:
        """Pass on a heartbeat with its connection, whose end may be the end of the broker."""
        connection.on_closed = self.controller.connection_closed
        return self.controller.heartbeat(request, connection)

    def _move_progress(self, request: MoveProgressRequest, _: Connection) -> Answer[MoveProgressResponse]:
        """Keep a broker's progress report. Progress is not replicated: only the active controller has it."""
        controller, answer = self.controller, Answer[MoveProgressResponse]()
        try:
            if not controller.is_active:
                raise controller.not_controller()
            partitions.check_broker_epoch(controller.newest, request.broker_id, request.broker_epoch)
        except ApiError as error:
            answer.fail(error)
        else:
            controller.moves.progress.report(request, self._clock())
            answer.succeed(MoveProgressResponse(ErrorCode.NONE), controller.applied_offset)
        return answer

    async def _envelope(self, peer_request: PeerRequest) -> bytes:
        """Serve an admin call that a broker forwards, with the principal that the broker authenticated. A broker that is not
        registered, or not yet, is asked to try again.
        """
        envelope = _envelope_decoder.decode(peer_request.body)
        check_sender(PEER_SENDERS, peer_request, envelope)
        broker_id = peer_request.sender.node_id
        if broker_id not in self.controller.newest.image.cluster.brokers:
            refusal = f"broker {broker_id} is not registered here, so it passes on no calls; it registers by itself"
            return _encode(EnvelopeResponse(ErrorCode.NOT_CONTROLLER, refusal))
        if peer_request.role is not None and self._nodes.name_of(envelope.principal).role:
            self._authorizer.audit.refused(peer_request.principal, peer_request.host, "SPEAK", f"behalf of {envelope.principal}")
            refusal = f"broker {broker_id} passes on calls of clients, and {envelope.principal} is a node"
            return _encode(EnvelopeResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, refusal))
        return _encode(await self._unwrap(envelope))

    async def _unwrap(self, envelope: EnvelopeRequest) -> EnvelopeResponse:
        if envelope.is_frame:
            return await (await self._frames()).answer(envelope)
        method = METHODS.get(envelope.api)
        if method is None:
            return EnvelopeResponse(ErrorCode.UNSUPPORTED_VERSION, f"this node does not know the call {envelope.api}")
        try:
            request = method.request.FromString(envelope.request)
        except DecodeError as error:
            return EnvelopeResponse(ErrorCode.INVALID_REQUEST, f"the body of {envelope.api} cannot be read: {error}")
        response: Any = await self.dispatch(
            Call(envelope.api, request, envelope.principal, envelope.host, envelope.client_id, envelope.broker)
        )
        body = response.SerializeToString()
        if response.header.error_code == ErrorCode.NOT_CONTROLLER:
            unknown = response.header.outcome_unknown
            return EnvelopeResponse(ErrorCode.NOT_CONTROLLER, response.header.error_message, outcome_unknown=unknown)
        return EnvelopeResponse(ErrorCode.NONE, None, body)

    async def _frames(self) -> ForwardedFrames:
        """Return the answers to Kafka clients' frames. A worker thread loads the Kafka protocol with the first one."""
        if self._forwarded_frames is None:
            if FORWARDED_FRAMES not in sys.modules:
                await trio.to_thread.run_sync(importlib.import_module, FORWARDED_FRAMES)
            from .forwarded_frames import ForwardedFrames

            self._forwarded_frames = self._forwarded_frames or ForwardedFrames(self.dispatch)
        return self._forwarded_frames


_encode = msgspec.msgpack.Encoder().encode
_envelope_decoder = Decoder(EnvelopeRequest)


def _settle(charge: MutationCharge, then: Callable[[int], None] | None, end_offset: int) -> None:
    charge.settle()
    if then is not None:
        then(end_offset)


def _reply(responder: Responder, response_type: type[Any], answer: Answer[Any]) -> None:
    if answer.error is not None:
        responder.reply(_encode(response_type(answer.error.code, answer.error.message)))
    else:
        responder.reply(_encode(answer.value))
