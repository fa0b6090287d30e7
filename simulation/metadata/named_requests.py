"""Requests with ids in the simulated world, with effects that show if a request is applied twice.

A named request raises a counter of its client by one and writes its own sequence: `count.2 = "7 11"` says that request 11 of
client 2 has set the counter to 7. Its answer is the 7. Clients send requests again to any controller that believes to be active,
while the first request can be in flight, committed, lost, or long ago. Sometimes a request is large and becomes a transaction.

M10 is judged in two places. In the committed log, no request raises a counter twice. When an answer is given, it must be the
effect of this request in the log, at the same offset as in all its other answers. A request is only refused as too old after five
newer ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ErrorCode
from kraftlab.controller.engine import exactly_once
from kraftlab.controller.engine.exactly_once import RequestIdentity
from kraftlab.controller.engine.purgatory import Answer
from kraftlab.controller.engine.state import Context, ControllerState, Outcome
from kraftlab.metadata.records import RESOURCE_BROKER, AnyRecord, Config
from kraftlab.metadata.requests import KEPT_PER_CLIENT
from kraftlab.quorum.core.batch import MAX_RECORDS

from .applied_requests import CLIENTS, count_key, counted
from .stage import MetadataStage

REMEMBERED = KEPT_PER_CLIENT + 2
"""Number of requests of a client that can be sent again; some of them are too old."""
AGAIN_RATE = 0.6
LARGE_RATE = 0.02


class NamedRequest:
    """One request, which can be sent several times."""

    def __init__(self, world: MetadataStage, clients: NamedClients, client: int, sequence: int, is_large: bool) -> None:
        self._world = world
        self._clients = clients
        self._client = client
        self._sequence = sequence
        self._is_large = is_large
        self._identity = RequestIdentity(bytes([client]) * 16, sequence, bytes(16))
        self._answer: tuple[int, int] | None = None

    def generate(self, state: ControllerState, context: Context) -> Outcome[object]:
        response = admin_pb2.AllocateProducerIdsResponse()
        answered = exactly_once.find(state.image.requests, self._identity, context.now_ms)
        if answered is not None:
            return exactly_once.repeated(answered, response)
        response.producer_id_start = counted(state.image, self._client)[0] + 1
        records: list[AnyRecord] = [
            Config(0, RESOURCE_BROKER, "", count_key(self._client), f"{response.producer_id_start} {self._sequence}")
        ]
        if self._is_large:
            records += [Config(0, RESOURCE_BROKER, "", "filler", str(self._sequence))] * MAX_RECORDS
        outcome = Outcome(records, response, transaction="large" if self._is_large else None)
        return exactly_once.recorded("count", self._identity, outcome, state, context.now_ms)

    def judge(self, answer: Answer[Any]) -> None:
        if answer.error is None:
            assert answer.value is not None
            given = (answer.value.producer_id_start, answer.offset)
            if self._answer not in (None, given):
                self._world.violated(f"M10 {self} is answered {given}, and was {self._answer}")
            self._answer = given
            applied = self._world.replayed.applied.counts.get((self._client, self._sequence))
            if applied != given[0]:
                self._world.violated(f"M10 {self} is answered {given}, and the log says {applied}")
        elif answer.error.code == ErrorCode.INVALID_REQUEST:
            self._world.violated(f"M10 {self} is taken for another: {answer.error}")
        elif answer.error.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            newer = self._clients.sent[self._client] - self._sequence
            if newer < KEPT_PER_CLIENT:
                self._world.violated(f"M10 {self} is refused as too old, and there are {newer} newer ones")

    def __repr__(self) -> str:
        return f"request {self._sequence} of client {self._client}"


class NamedClients:
    """The clients that send named requests, new ones and repeated ones. `sent` has each client's last sequence."""

    def __init__(self, world: MetadataStage) -> None:
        self._world = world
        self._random = world.options.random("named requests")
        self._remembered: list[deque[NamedRequest]] = [deque(maxlen=REMEMBERED) for _ in range(CLIENTS)]
        self.sent = [0] * CLIENTS

    def next(self) -> tuple[Callable[[ControllerState, Context], Outcome[object]], Callable[[Answer[object]], None]]:
        """Return the next request: its operation, and the function that judges the answer."""
        client = self._random.randrange(CLIENTS)
        remembered = self._remembered[client]
        if remembered and self._random.random() < AGAIN_RATE:
            request = self._random.choice(remembered)
        else:
            self.sent[client] += 1
            request = NamedRequest(self._world, self, client, self.sent[client], self._random.random() < LARGE_RATE)
            remembered.append(request)
        return request.generate, request.judge
