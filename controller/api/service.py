"""The controller's doors: admin calls (gRPC, or passed on by brokers) and what brokers ask over peer frames.

Theory of operation. `apis.APIS` is the one table of admin calls. Every call is admitted first, in the same way: cluster id, read
mode, deadline, the caller's rights. A write is then ready, unless it is refused or must wait for `min_offset`: `accept` needs no
task for it. What is not ready goes on in a task: it waits for `min_offset`, and for a linearizable read until a majority of the
controllers has confirmed that this one leads and its state has caught up (writes are linearizable in any read mode). `dispatch`
does both. Neither raises for a request, and the response's header is filled in. `access.admission` says whether the caller may
have a call, by the rules in the committed state: a write is only judged where it is carried out, on the active controller, and
nothing but super users' calls before the state is complete. A write with a request id is answered like its first sending if
there was one (`engine/exactly_once.py`); then the caller's rights are not asked again, for the answer is his.

Peer handlers decode a struct, run the manager's operation as a write, and encode its response; a refusal of the whole
request is the response's own error. Heartbeats are answered without a task of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from google.protobuf.message import DecodeError, Message

from kraftlab.access.admission import Admission, admit
from kraftlab.access.authorizer import AccessSettings, Authorizer
from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.errors import ApiError, ErrorCode
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
from kraftlab.node import logger_configs
from kraftlab.quorum.core.decoding import Decoder
from kraftlab.rpc.methods import METHODS, LocalCall, fault
from kraftlab.rpc.server import Call, Later
from kraftlab.rpc.versions import version_of
from kraftlab.wire.transport import DirectHandler, PeerHandler, PeerRequest, Responder

from ..cluster import brokers, controllers, directories, producer_ids
from ..configs.mutation_quota import UNLIMITED, MutationCharge, quota_of
from ..engine import exactly_once
from ..engine.answer_deadlines import CommitUnknown
from ..engine.purgatory import Answer
from ..engine.quorum_controller import QuorumController
from ..engine.state import Context, ControllerState, Outcome, QuorumFacts, set_error, unknown_quorum
from ..partitions import partitions
from .apis import APIS, AdminApi, Kind, Served
from .waits import TrioWaits, Waits

logger = logging.getLogger("kraftlab.controller")

DEFAULT_TIMEOUT_MS = 60_000
LONG_CHANGES = 250
"""More changes of a broker, in one request, are worked out beside the event loop."""


class Ready(NamedTuple):
    """A call that nothing holds up. A request with an id is not judged before its turn: `admission` is the whole request then."""

    row: AdminApi
    call: Call
    admission: Admission
    deadline_ms: int
    identity: exactly_once.RequestIdentity | None


class Refusal(NamedTuple):
    """The response to a call that is not carried out: refused, asking for nothing, or with nothing that the caller may have."""

    response: Message


class NotNow(NamedTuple):
    """A call that waits, or that is not a write. `run`, in a task, goes on from what was worked out, and returns the response."""

    run: Later


class ControllerService:
    """Serves one controller. `local` has what answers the calls about this node's log and its quorum, by method name. Without
    `access` everybody may call everything. `waits`: how to wait; None: in trio.
    """

    def __init__(
        self,
        controller: QuorumController,
        clock: Callable[[], int],
        local: Mapping[str, LocalCall],
        access: AccessSettings | None = None,
        quorum: Callable[[], QuorumFacts] = unknown_quorum,
        waits: Waits | None = None,
    ) -> None:
        self.controller = controller
        self._authorizer = Authorizer(access or AccessSettings())
        self._quorum = quorum
        self._mutation_quota = quota_of(controller.settings.static)
        self.local = local
        self._clock = clock
        self._waits = waits or TrioWaits()

    def now_ms(self) -> int:
        """The controller's clock."""
        return self._clock()

    # --- admin calls ---------------------------------------------------------------------------------------------------------

    def accept(self, call: Call, answer: Callable[[Message], None]) -> Later | None:
        """Answer a call that needs no task, at once or when its write is committed; otherwise return what a task has to run."""
        admitted = self._admitted(call)
        if isinstance(admitted, NotNow):
            return admitted.run
        if isinstance(admitted, Refusal):
            answer(admitted.response)
        else:
            self._write(admitted).when_done(partial(self._answer_written, admitted, answer))
        return None

    def _answer_written(self, ready: Ready, answer: Callable[[Message], None], written: Answer[Any]) -> None:
        """Runs while the controller is about its own business: nothing may escape."""
        call = ready.call
        try:
            if written.error is None:
                response = self._answered(_completed(ready.admission, written.value), written.offset)
            else:
                response = self._refused(ready.row, call, written.error)
        except Exception as error:
            logger.exception("the answer to %s cannot be given", call.api)
            failure = f"{call.api} was carried out, but its answer failed ({type(error).__name__})"
            response = fault(METHODS[call.api], failure)
        answer(response)

    async def dispatch(self, call: Call) -> Message:
        """Answers one admin call; errors stand in its header, and in its entries where the call has a place for them."""
        admitted = self._admitted(call)
        if isinstance(admitted, Refusal):
            return admitted.response
        if isinstance(admitted, NotNow):
            return await admitted.run()
        return await self._told(admitted.row, call, partial(self._carry_out, admitted))

    def _admitted(self, call: Call) -> Ready | Refusal | NotNow:
        """Judge a call that has arrived, as far as that can be done without waiting."""
        row = APIS.get(call.api)
        if row is None:
            header = admin_pb2.ResponseHeader(
                error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=f"This node does not know the call {call.api}."
            )
            return Refusal(admin_pb2.CallResponse(fault=header))
        request: Any = call.request
        header = request.header
        row.prepare(request, call.principal)
        timeout_ms = header.timeout_ms if header.HasField("timeout_ms") else DEFAULT_TIMEOUT_MS
        deadline_ms = self._clock() + timeout_ms
        try:
            self._check_header(row, header)
            if row.names_loggers(request):
                return NotNow(partial(self._told, row, call, partial(self._with_loggers, call)))
            if row.kind is Kind.WRITE and row.asks_for_nothing(request):
                self._admit(row, call)
                nothing = METHODS[call.api].response()
                row.answer_nothing(request, nothing)
                return Refusal(self._answered(nothing, self.controller.applied_offset))
            if row.kind is Kind.WRITE and timeout_ms <= 0:
                self._admit(row, call)
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "")
            if row.kind is not Kind.WRITE or header.min_offset > self.controller.applied_offset:
                return NotNow(partial(self._told, row, call, partial(self._run, row, call, timeout_ms, deadline_ms)))
            return self._ready(row, call, deadline_ms)
        except ApiError as error:
            return Refusal(self._refused(row, call, error))

    def _ready(self, row: AdminApi, call: Call, deadline_ms: int) -> Ready | Refusal:
        """Judge the caller's rights, unless the request has an id; ApiError refuses the whole request."""
        identity = exactly_once.identity_of(call.api, call.principal, call.request)
        admission = self._admit(row, call) if identity is None else Admission(call.request)
        if admission.is_void:
            empty = _completed(admission, METHODS[call.api].response())
            return Refusal(self._answered(empty, self.controller.applied_offset))
        return Ready(row, call, admission, deadline_ms, identity)

    async def _told(self, row: AdminApi, call: Call, run: Later) -> Message:
        """The response that a task works out; an ApiError becomes a refusal."""
        try:
            return await run()
        except ApiError as error:
            return self._refused(row, call, error)

    async def _with_loggers(self, call: Call) -> Message:
        """Answers for this controller's loggers; the rest of the request is served as any other."""

        def admit(request: Any) -> Admission:
            return self._rights(call, request)

        async def others(request: Any) -> Message:
            return await self.dispatch(call._replace(request=request))

        node_id = self.controller.settings.node_id
        response: Any = await logger_configs.answer(call.api, call.request, node_id, admit, others)
        if response.HasField("header"):
            return response  # type: ignore[no-any-return]
        return self._answered(response, self.controller.applied_offset)

    async def _run(self, row: AdminApi, call: Call, timeout_ms: int, deadline_ms: int) -> Message:
        """Carries a call out once this node has reached what the call's header asks for."""
        header: admin_pb2.RequestHeader = getattr(call.request, "header")  # noqa: B009 - every request has one
        is_linearizable = header.read_mode == admin_pb2.READ_MODE_LINEARIZABLE and row.kind is not Kind.WRITE
        if is_linearizable or header.min_offset > self.controller.applied_offset:
            await self._wait_for(header.min_offset, timeout_ms, is_linearizable)
        ready = self._ready(row, call, deadline_ms)
        if isinstance(ready, Refusal):
            return ready.response
        return await self._carry_out(ready)

    async def _carry_out(self, ready: Ready) -> Message:
        """The response, once a write is committed. A read that takes long is put together aside: a committed state never changes,
        and this loop has a quorum and heartbeats to answer.
        """
        row, call, admission = ready.row, ready.call, ready.admission
        if row.kind is Kind.WRITE:
            answer = self._write(ready)
            return self._answered(_completed(admission, await self._waits.answered(answer)), answer.offset)
        run = partial(row.run, Served(self.controller, self.local, self.now_ms, call.broker), admission.request)
        if row.kind is not Kind.READ:
            return self._answered(_completed(admission, await run()), self.controller.applied_offset)
        offset = self.controller.applied_offset
        is_long = row.is_long(self.controller.committed.image, admission.request)
        return self._answered(_completed(admission, await self._waits.aside(run) if is_long else run()), offset)

    def _admit(self, row: AdminApi, call: Call) -> Admission:
        """What of a call its caller may have; ApiError for nothing."""
        controller, authorizer = self.controller, self._authorizer
        if row.kind is Kind.WRITE and authorizer.settings.is_enabled and not controller.is_active:
            raise controller.not_controller()
        return self._rights(call, call.request)

    def _rights(self, call: Call, request: Any) -> Admission:
        """What of a request the caller may have, wherever it is carried out."""
        controller = self.controller
        image = controller.committed.image
        rights = self._authorizer.rights(image.acls if controller.is_loaded else None, call.principal, call.host)
        return admit(call.api, rights, request, image)

    def _write(self, ready: Ready) -> Answer[Any]:
        run = partial(self._run_write if ready.identity is None else self._once, ready)
        is_long = ready.row.is_long(self.controller.committed.image, ready.admission.request)
        return self.put(ready.call.api, run, ready.deadline_ms, is_long)

    def put(
        self, name: str, run: Callable[[ControllerState, Context], Outcome[object]], deadline_ms: int, is_long: bool
    ) -> Answer[object]:
        """Hands an operation to the controller; its outcome is unknown if it is begun and not committed by the deadline."""
        return self.controller.write(name, run, deadline_ms=deadline_ms, answer_by_ms=deadline_ms, is_long=is_long)

    def _once(self, ready: Ready, state: ControllerState, context: Context) -> Outcome[Any]:
        """Runs a write with an id, if it has not run yet. What its caller may not have at all is refused and not remembered."""
        call, identity = ready.call, ready.identity
        assert identity is not None
        response = METHODS[call.api].response()
        answered = exactly_once.find(state.image.requests, identity, context.now_ms)
        if answered is not None:
            return exactly_once.repeated(answered, response)
        admission = self._admit(ready.row, call)
        if admission.is_void:
            return Outcome((), _completed(admission, response))
        outcome = self._run_write(ready._replace(admission=admission), state, context)
        _completed(admission, outcome.response)
        return exactly_once.recorded(call.api, identity, outcome, state, context.now_ms)

    def _run_write(self, ready: Ready, state: ControllerState, context: Context) -> Outcome[Any]:
        """Runs a write, which may ask for its client's mutation quota, the broker that passed it on and the quorum."""
        row, call, request = ready.row, ready.call, ready.admission.request
        charge = UNLIMITED
        if row.strict_from is not None and not getattr(request, "validate_only", False):
            is_strict = version_of(request) >= row.strict_from
            user = call.principal.partition(":")[2]
            charge = self._mutation_quota.charge(state.image, user, call.client_id, is_strict=is_strict, now_ms=context.now_ms)
        outcome: Outcome[Any] = row.run(
            state, request, context._replace(mutations=charge, broker=call.broker, quorum=self._quorum)
        )
        if charge is UNLIMITED:
            return outcome
        outcome.response.header.throttle_time_ms = charge.throttle_time_ms
        return outcome._replace(appended=partial(_settle, charge, outcome.appended))

    def _check_header(self, row: AdminApi, header: admin_pb2.RequestHeader) -> None:
        settings = self.controller.settings
        if header.cluster_id and header.cluster_id != settings.cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"The request is meant for cluster {header.cluster_id}, this is {settings.cluster_id}. Check the address.",
            )
        if header.read_mode == admin_pb2.READ_MODE_LINEARIZABLE:
            if row.kind is Kind.LOCAL:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    "What a node says of itself is not replicated, so it cannot be read linearizably. Read it as it is, with "
                    "min_offset if the node must have applied a certain change.",
                )
        elif header.read_mode != admin_pb2.READ_MODE_COMMITTED:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown read mode {header.read_mode}.")

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

    def _refused(self, row: AdminApi, call: Call, error: ApiError) -> Message:
        """A refusal of the whole request. One of a change whose outcome is unknown reflects the change, if it was committed."""
        response: Any = METHODS[call.api].response()
        set_error(response.header, error)
        response.header.outcome_unknown = isinstance(error, CommitUnknown)
        row.refuse(call.request, response, error)
        return self._answered(response, error.offset if isinstance(error, CommitUnknown) else self.controller.applied_offset)

    def _answered(self, response: Any, offset: int) -> Message:
        """The response, with its header filled in."""
        header, active = response.header, self.controller.active_controller
        header.metadata_offset = offset
        header.epoch = active.epoch
        header.leader_id = active.leader_id
        if active.endpoint is not None:
            header.leader.host = active.endpoint.host
            header.leader.port = active.endpoint.port
        return response  # type: ignore[no-any-return]

    # --- peers ---------------------------------------------------------------------------------------------------------------

    def peer_handlers(self) -> dict[int, PeerHandler | DirectHandler]:
        """By api number, for the node's PeerServer."""
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
            ),
            Api.BROKER_HEARTBEAT: self._handler(BrokerHeartbeatRequest, BrokerHeartbeatResponse, self.controller.heartbeat),
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

    def _handler(self, request_type: type[Any], response_type: type[Any], begin: Callable[[Any], Answer[Any]]) -> DirectHandler:
        """Reply to a peer's request with the answer of what it begins, once there is one."""
        decoder = Decoder(request_type)

        def accept(peer_request: PeerRequest, responder: Responder) -> None:
            try:
                request = decoder.decode(peer_request.body)
            except msgspec.MsgspecError as error:
                name = request_type.__name__.removesuffix("Request")
                responder.refuse(ErrorCode.INVALID_REQUEST, f"the body of {name} cannot be read: {error}")
                return
            begin(request).when_done(partial(_reply, responder, response_type))

        return DirectHandler(accept)

    def _writer(
        self,
        request_type: type[Any],
        response_type: type[Any],
        operation: Callable[..., Outcome[Any]],
        is_long: Callable[[Any], bool] = lambda request: False,
    ) -> DirectHandler:
        """Reply with the outcome of a manager's operation, once that is committed."""
        name = request_type.__name__.removesuffix("Request")

        def begin(request: Any) -> Answer[Any]:
            run, deadline_ms = partial(self._operation, operation, request), self._clock() + DEFAULT_TIMEOUT_MS
            return self.controller.write(name, run, deadline_ms=deadline_ms, is_long=is_long(request))

        return self._handler(request_type, response_type, begin)

    def _operation(
        self, run: Callable[..., Outcome[Any]], request: Any, state: ControllerState, context: Context
    ) -> Outcome[Any]:
        return run(state, request, context._replace(quorum=self._quorum))

    def _move_progress(self, request: MoveProgressRequest) -> Answer[MoveProgressResponse]:
        """Progress of moves is no state: it is kept by the active controller, and by nobody else."""
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
        """An admin call that a broker passes on, with the principal that the broker authenticated."""
        return _encode(await self._unwrap(_envelope_decoder.decode(peer_request.body)))

    async def _unwrap(self, envelope: EnvelopeRequest) -> EnvelopeResponse:
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
            return EnvelopeResponse(ErrorCode.NOT_CONTROLLER, response.header.error_message, body)
        return EnvelopeResponse(ErrorCode.NONE, None, body)


_encode = msgspec.msgpack.Encoder().encode
_envelope_decoder = Decoder(EnvelopeRequest)


def _completed(admission: Admission, response: Any) -> Any:
    if admission.complete is not None:
        admission.complete(response)
    return response


def _settle(charge: MutationCharge, then: Callable[[int], None] | None, end_offset: int) -> None:
    charge.settle()
    if then is not None:
        then(end_offset)


def _reply(responder: Responder, response_type: type[Any], answer: Answer[Any]) -> None:
    if answer.error is not None:
        responder.reply(_encode(response_type(answer.error.code, answer.error.message)))
    else:
        responder.reply(_encode(answer.value))
