"""The network between clients and nodes: requests and answers take time, get lost, or find that a node is down.

Theory of operation. A call is one request over one connection, as with gRPC: it arrives once or not at all, after a while, and so
does its answer. A node without a process refuses the connection, which proves that nothing was sent. A node that dies during the
request breaks the connection; the client notices, or waits until its timeout. A paused process answers when it goes on.
Controllers serve a call themselves (`simulated_service.py`). A broker passes the call on to the active controller that its home
knows, and looks for another one until the call's deadline, as real brokers do.

When a call begins, everything that will happen to it is drawn from the caller's generator.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any, NamedTuple

from google.protobuf.message import Message

from kraftlab.common.errors import ErrorCode
from kraftlab.rpc.calls import fault
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.request_ids import changes, is_repeatable
from kraftlab.rpc.server import Call

from .coroutines import Error, Outcome, Resume, Task, Value, first_of, sleep, waiting
from .simulated_controller import SimulatedController
from .simulated_service import is_not_controller
from .stage import MetadataStage, TargetBroker

PRINCIPAL = "User:ANONYMOUS"
TRAVEL_US = (200, 200, 200, 1_000, 2_000, 15_000)
BROKEN_RATE = 0.7
"""Share of the clients that notice when a node dies with their request; the others wait in vain."""
LOOK_AGAIN_US = 50_000
"""Time between two attempts of a broker to pass a call on."""
DEFAULT_TIMEOUT_MS = 60_000


class NoResponse(Exception):
    """A call without an answer. `was_sent` False: certainly nothing was sent. `status` is gRPC's name for the status."""

    def __init__(self, status: str, text: str, *, was_sent: bool) -> None:
        super().__init__(text)
        self.status, self.was_sent = status, was_sent


class Journey(NamedTuple):
    """The drawn times and losses of one call."""

    there_us: int
    back_us: int
    is_lost: bool
    is_answer_lost: bool
    notices_death: bool

    @classmethod
    def drawn(cls, random: Random, loss: float) -> Journey:
        there, back = random.choice(TRAVEL_US), random.choice(TRAVEL_US)
        chances = [random.random() for _ in range(3)]
        scatter = 0.5 + random.random()
        return cls(int(there * scatter), int(back * scatter), chances[0] < loss, chances[1] < loss, chances[2] < BROKEN_RATE)


class _Attempt:
    """One request to one controller. `resume` gets the answer, or an NoResponse error."""

    def __init__(
        self, network: AdminNetwork, journey: Journey, node_id: int, call: Call, timeout_ms: int, resume: Resume[Any]
    ) -> None:
        self._network = network
        self._world = network.world
        self._journey = journey
        self._node_id = node_id
        self._call = call
        self._timeout_ms = timeout_ms
        self._resume: Resume[Any] | None = resume
        if not journey.is_lost:
            self._world.after(journey.there_us, self._arrive)
        self._world.after(timeout_ms * 1_000, self._give_up)

    def _arrive(self) -> None:
        machine = self._world.machines[self._node_id]
        target = machine.process.state_machine if machine.process is not None else None
        if not isinstance(target, SimulatedController):
            text = f"connection refused by node {self._node_id}"
            self._answer(Error(NoResponse("UNAVAILABLE", text, was_sent=False)))
        elif not target.postponed(self._arrive):
            self._network.in_hand.setdefault(target, []).append(self)
            self._world.replayed.named.arrived(self._call)
            Task(self._world, target.service.dispatch(self._call), partial(self._served, target), target.postponed).start()
            target.check()

    def _served(self, target: SimulatedController, result: Outcome[Message]) -> None:
        response = result.unwrap()
        self._network.in_hand[target].remove(self)
        self._world.replayed.named.answered(self._call, response)
        if not self._journey.is_answer_lost:
            self._answer(Value(response))

    def broken(self) -> None:
        """Break the connection, since the process that served the request has died."""
        if self._journey.notices_death:
            text = f"node {self._node_id} has broken the connection"
            self._answer(Error(NoResponse("UNAVAILABLE", text, was_sent=True)))

    def _answer(self, result: Outcome[Any]) -> None:
        self._world.after(self._journey.back_us, self._end, result)

    def _give_up(self) -> None:
        if self._resume is not None:
            self._end(Error(_too_late(self._timeout_ms)))

    def _end(self, result: Outcome[Any]) -> None:
        resume, self._resume = self._resume, None
        if resume is not None:
            resume(result)


class AdminNetwork:
    """The network of administrators. `loss` is the rate at which requests and answers are lost before the heal."""

    def __init__(self, world: MetadataStage) -> None:
        self.world = world
        self.loss = 0.0
        self.in_hand: dict[SimulatedController, list[_Attempt]] = {}
        """The requests that each process is serving."""

    def process_died(self, target: SimulatedController) -> None:
        for attempt in self.in_hand.pop(target, []):
            attempt.broken()

    async def ask(self, random: Random, node_id: int, api: str, request: Any, timeout_ms: int) -> Any:
        """Return the response of a controller or broker to a copy of this request. NoResponse."""
        message = METHODS[api].request.FromString(request.SerializeToString())
        call = Call(api, message, PRINCIPAL)
        broker = self.world.broker(node_id)
        if broker is None:
            return await self._ask(random, node_id, call, timeout_ms)
        journey = Journey.drawn(random, self._loss())

        async def by_broker() -> Any:
            await sleep(journey.there_us)
            if broker.is_down:
                raise NoResponse("UNAVAILABLE", f"connection refused by broker {node_id}", was_sent=False)
            response = await self._passed_on(random, broker, call)
            await sleep(journey.back_us)
            return response

        if not (journey.is_lost or journey.is_answer_lost):
            response = await first_of(self.world, by_broker, timeout_ms * 1_000)
            if response is not None:
                return response
        elif journey.is_lost:
            await sleep(timeout_ms * 1_000)
        else:
            await first_of(self.world, by_broker, timeout_ms * 1_000)
        raise _too_late(timeout_ms)

    async def _ask(self, random: Random, node_id: int, call: Call, timeout_ms: int) -> Any:
        journey = Journey.drawn(random, self._loss())
        return await waiting(lambda resume: _Attempt(self, journey, node_id, call, timeout_ms, resume))

    def _loss(self) -> float:
        return 0.0 if self.world.is_healed else self.loss

    async def _passed_on(self, random: Random, broker: TargetBroker, call: Call) -> Any:
        """Pass a call on as a broker does: try again until the call's deadline while there is no leader, or only a former one."""
        request: Any = call.request
        timeout_ms = request.header.timeout_ms if request.header.HasField("timeout_ms") else DEFAULT_TIMEOUT_MS
        until_us = self.world.now_us + timeout_ms * 1_000
        reason, is_open = "no controller is known to lead", False
        while (rest_ms := (until_us - self.world.now_us) // 1_000) > 0:
            leader_id = broker.leader_id
            if leader_id >= 0:
                request.header.timeout_ms = rest_ms
                copy = METHODS[call.api].request.FromString(request.SerializeToString())
                try:
                    response = await self._ask(random, leader_id, call._replace(request=copy), rest_ms)
                except NoResponse as error:
                    reason, may_be_made = str(error), error.was_sent and changes(call.api, request)
                else:
                    if not is_not_controller(response):
                        return response
                    reason, may_be_made = response.header.error_message, response.header.outcome_unknown
                if may_be_made and not is_repeatable(call.api, request):
                    text = f"{reason}; whether {call.api} was carried out is unknown"
                    return fault(METHODS[call.api], text, ErrorCode.NETWORK_EXCEPTION)
                is_open = is_open or may_be_made
            await sleep(LOOK_AGAIN_US)
        text = f"{call.api} could not be passed on to the active controller in time: {reason}"
        refused: Any = fault(METHODS[call.api], text, ErrorCode.REQUEST_TIMED_OUT)
        refused.header.outcome_unknown = is_open
        return refused


def _too_late(timeout_ms: int) -> NoResponse:
    return NoResponse("DEADLINE_EXCEEDED", f"no answer within {timeout_ms} ms", was_sent=True)
