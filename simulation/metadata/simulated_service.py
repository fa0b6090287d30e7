"""The real API layer of a simulated controller: its ControllerService, which waits in virtual time.

The code of a real node serves a request: the table of calls, headers, deadlines, request ids, refusals. Its waits are simulated:
for an answer of the controller, for the round of a linearizable read, for the process's own clock. Long computations run at once.
Every write is judged like other writes in the world.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from kraftlab.common.errors import ErrorCode
from kraftlab.controller.api.service import ControllerService
from kraftlab.controller.engine.purgatory import Answer
from kraftlab.controller.engine.state import Context, ControllerState, Outcome, QuorumFacts
from kraftlab.controller.quorum_operations import QuorumOperations
from kraftlab.quorum.core.messages import VoterChangeRequest, VoterChangeResponse
from kraftlab.quorum.driver.quorum_description import QuorumDescription, describe_quorum

from .coroutines import Error, Resume, Value, first_of, waiting
from .stage import TargetController

T = TypeVar("T")


class SimulatedWaits:
    """Waits on the clock of one process, while that process lives."""

    def __init__(self, target: TargetController) -> None:
        self._target = target

    async def within(self, timeout_ms: int, wait: Callable[[], Awaitable[None]]) -> bool:
        target, machine = self._target, self._target.machine
        due_us = machine.time_us_at(machine.now_ms() + max(0, timeout_ms))

        async def come() -> bool:
            await wait()
            return True

        return bool(await first_of(target.world, come, max(0, due_us - target.world.now_us), target.postponed))

    async def answered(self, answer: Answer[T]) -> T:
        def begin(resume: Resume[T]) -> None:
            def done(answer: Answer[T]) -> None:
                resume(Error(answer.error) if answer.error is not None else Value(answer.value))  # type: ignore[arg-type]

            answer.when_done(done)

        return await waiting(begin)

    async def offload(self, run: Callable[[], T]) -> T:
        return run()


class SimulatedQuorum:
    """The replica of one process, as `QuorumOperations` uses it."""

    generation = 0

    def __init__(self, target: TargetController) -> None:
        self._target = target

    async def ask(self, request: VoterChangeRequest) -> VoterChangeResponse:
        return await waiting(lambda resume: self._target.process.ask(request, lambda response: resume(Value(response))))

    def describe(self) -> QuorumDescription:
        return describe_quorum(self._target.process.raft, self._target.machine.now_ms())

    def facts(self) -> QuorumFacts:
        described = self.describe()
        return QuorumFacts(tuple(voter.node_id for voter in described.voters), described.kraft_version)


class SimulatedService(ControllerService):
    """The service of one simulated controller. It lists no snapshots, and describes only images that it has published."""

    def __init__(self, target: TargetController, cluster_id: str) -> None:
        quorum = SimulatedQuorum(target)
        operations = QuorumOperations(cluster_id, quorum, lambda: target.controller.committed.image)
        waits = SimulatedWaits(target)
        calls = {**operations.calls(), **target.past.calls()}
        super().__init__(target.controller, target.machine.now_ms, calls, None, quorum.facts, waits)
        self._target = target

    def put(
        self, name: str, run: Callable[[ControllerState, Context], Outcome[object]], deadline_ms: int, is_long: bool
    ) -> Answer[object]:
        answer: Answer[Any] = Answer()
        put = partial(super().put, name, deadline_ms=deadline_ms, is_long=is_long)
        self._target.world.judged(self._target, name, run, put, partial(_pass_on, answer))
        return answer


def _pass_on(answer: Answer[Any], judged: Answer[Any]) -> None:
    if judged.error is not None:
        answer.fail(judged.error)
    else:
        answer.succeed(judged.value, judged.offset)


def is_not_controller(response: Any) -> bool:
    """Return True if the node did not lead, or lost the leadership during the call."""
    return bool(response.header.error_code == ErrorCode.NOT_CONTROLLER)
