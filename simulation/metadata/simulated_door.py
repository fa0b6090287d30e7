"""The real doors of a simulated controller: its ControllerService, waiting in virtual time.

A request that has arrived is served by the very code that serves it on a real node: the table of calls, headers, deadlines,
request ids, refusals. What that code waits for is the simulation's: an answer of the controller, a linearizable read's round of
the quorum, the process's own clock. What takes long runs at once. Every write is judged as those of the world are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from kraftlab.controller.api.service import ControllerService
from kraftlab.controller.engine.purgatory import Answer
from kraftlab.controller.engine.state import Context, ControllerState, Outcome, QuorumFacts
from kraftlab.controller.quorum_operations import QuorumOperations
from kraftlab.metadata.errors import ErrorCode
from kraftlab.quorum.core.messages import VoterChangeRequest, VoterChangeResponse
from kraftlab.quorum.driver.quorum_description import QuorumDescription, describe_quorum

from .coroutines import Error, Resume, Value, first_of, waiting
from .stage import Asked

T = TypeVar("T")


class SimulatedWaits:
    """On the clock of one process, as long as it lives."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    async def within(self, timeout_ms: int, wait: Callable[[], Awaitable[None]]) -> bool:
        asked, machine = self._asked, self._asked.machine
        due_us = machine.time_us_at(machine.now_ms() + max(0, timeout_ms))

        async def come() -> bool:
            await wait()
            return True

        return bool(await first_of(asked.world, come, max(0, due_us - asked.world.now_us), asked.is_still))

    async def answered(self, answer: Answer[T]) -> T:
        def begin(resume: Resume[T]) -> None:
            def done(answer: Answer[T]) -> None:
                resume(Error(answer.error) if answer.error is not None else Value(answer.value))  # type: ignore[arg-type]

            answer.when_done(done)

        return await waiting(begin)

    async def offload(self, run: Callable[[], T]) -> T:
        return run()


class SimulatedQuorum:
    """The replica of one process, as `QuorumOperations` asks it."""

    generation = 0

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    async def ask(self, request: VoterChangeRequest) -> VoterChangeResponse:
        return await waiting(lambda resume: self._asked.process.ask(request, lambda response: resume(Value(response))))

    def describe(self) -> QuorumDescription:
        return describe_quorum(self._asked.process.raft, self._asked.machine.now_ms())

    def facts(self) -> QuorumFacts:
        described = self.describe()
        return QuorumFacts(tuple(voter.node_id for voter in described.voters), described.kraft_version)


class SimulatedService(ControllerService):
    """Serves one simulated controller. There are no snapshots to list; of itself it tells what it has published."""

    def __init__(self, asked: Asked, cluster_id: str) -> None:
        quorum = SimulatedQuorum(asked)
        operations = QuorumOperations(cluster_id, quorum, lambda: asked.controller.committed.image)
        waits = SimulatedWaits(asked)
        calls = {**operations.calls(), **asked.past.calls()}
        super().__init__(asked.controller, asked.machine.now_ms, calls, None, quorum.facts, waits)
        self._asked = asked

    def put(
        self, name: str, run: Callable[[ControllerState, Context], Outcome[object]], deadline_ms: int, is_long: bool
    ) -> Answer[object]:
        answer: Answer[Any] = Answer()
        put = partial(super().put, name, deadline_ms=deadline_ms, is_long=is_long)
        self._asked.world.judged(self._asked, name, run, put, partial(_pass_on, answer))
        return answer


def _pass_on(answer: Answer[Any], judged: Answer[Any]) -> None:
    if judged.error is not None:
        answer.fail(judged.error)
    else:
        answer.succeed(judged.value, judged.offset)


def is_not_controller(response: Any) -> bool:
    """Whether the one asked does not lead, or did not to the end."""
    return bool(response.header.error_code == ErrorCode.NOT_CONTROLLER)
