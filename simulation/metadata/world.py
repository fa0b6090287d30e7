"""The simulated world with controllers in it: who asks them, and what their answers must be worth.

An `Operation` stands around a manager's operation: it notes what the operation saw, decided and appended. When its answer comes,
the world compares that with what is committed at this moment, by the raft checkers' knowledge and not by the controller's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import immutables
import msgspec

from kraftlab.controller.engine.answer_deadlines import CommitUnknown
from kraftlab.controller.engine.purgatory import Answer
from kraftlab.controller.engine.quorum_controller import Generate
from kraftlab.controller.engine.state import Context, ControllerState, Outcome
from kraftlab.controller.reassignment import upkeep
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import AlterPartitionRequest, BrokerHeartbeatResponse
from kraftlab.metadata.records import RESOURCE_BROKER, AnyRecord, BeginTransaction, Config, EndTransaction, PartitionChange
from kraftlab.quorum.core.batch import MAX_RECORDS
from kraftlab.quorum.state_machine import CommittedBatch

from ..consensus.invariants import Violation
from ..consensus.options import SimulationOptions
from ..consensus.process import SimulatedProcess
from ..consensus.stage import Process
from ..consensus.transcript import Transcript
from ..consensus.world import World
from .admin_network import AdminNetwork
from .replayed_log import ReplayedLog
from .sessions import Sessions
from .simulated_broker import Habits, SimulatedBroker
from .simulated_controller import SESSION_TIMEOUT_MS, SimulatedController
from .stage import Asked
from .workload import Administrator

BROKERS = 5
FIRST_BROKER_ID = 100

logger = logging.getLogger("kraftlab.controller")


def milder(options: SimulationOptions) -> SimulationOptions:
    """Leaders that last: consensus finds its bugs where hardly any does, but a controller has to get somewhere first.

    No `apply_delay_us`, for the controllers' notices are delayed by themselves.
    """
    random = options.random("milder")
    network = options.network
    return msgspec.structs.replace(
        options,
        heals_everything=True,
        apply_delay_us=0,
        fault_pace=options.fault_pace * random.choice((1, 2, 5)),
        disk_latency_us=min(options.disk_latency_us, random.choice((1_000, 10_000))),
        propose_interval_us=random.choice((10_000, 40_000)),
        network=msgspec.structs.replace(
            network,
            delay_us=min(network.delay_us, 5_000),
            loss=min(network.loss, random.choice((5, 50))),
            response_loss=min(network.response_loss, random.choice((5, 50))),
        ),
    )


class People(NamedTuple):
    """Who asks controllers of the world's own accord."""

    administrator: bool = True
    brokers: int = BROKERS
    habits: Habits = Habits()
    """Of the brokers."""


class Operation:
    """One question to one controller. `seen` is the offset of the state that the answer rests on."""

    def __init__(
        self,
        world: MetadataWorld,
        asked: Asked,
        name: str,
        generate: Generate[object],
        then: Callable[[Answer[object]], None] | None,
    ) -> None:
        self._world = world
        self.asked = asked
        self.name = name
        self._generate = generate
        self._then = then
        self.answer: Answer[Any] | None = None
        self.seen = -1
        self.base_offset = -1
        self.records: list[AnyRecord] = []
        self._refusal: ApiError | None = None
        self._is_appended = False

    def run(self, state: ControllerState, context: Context) -> Outcome[object]:
        """The operation, as the controller runs it: perhaps again, if the log took nothing the first time."""
        self.seen = state.image.provenance.offset
        try:
            outcome = self._generate(state, context)
        except ApiError as error:
            self._refusal = error
            raise
        self.base_offset = context.next_offset
        self.records = list(outcome.records)
        if outcome.transaction is not None and len(self.records) > MAX_RECORDS:
            self.records = [BeginTransaction(0, outcome.transaction), *self.records, EndTransaction(0)]

        def appended(end_offset: int) -> None:
            self._is_appended = bool(self.records)
            if outcome.appended is not None:
                outcome.appended(end_offset)

        return outcome._replace(appended=appended)

    def judge(self, answer: Answer[object]) -> None:
        """Called when the answer is given. M3, M4, M6 and M8."""
        self.answer = answer
        committed = self._world.history.end_offset
        if answer.error is None or answer.error is self._refusal:
            rests_on = max(self.seen, answer.offset)
            if rests_on > committed:
                self._world.violated(f"M3 {self} is answered for offset {rests_on}, and {committed} is committed")
        if answer.error is None:
            self._world.acknowledged += 1
            if self.records and self._world.replayed.between(self.base_offset, answer.offset) != self.records:
                self._world.violated(f"M4 {self} is acknowledged at {answer.offset}, and other records are committed there")
        elif answer.error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
            self._world.violated(f"M8 {self}: {answer.error}")
        elif (
            answer.error.code == ErrorCode.REQUEST_TIMED_OUT and self._is_appended and not isinstance(answer.error, CommitUnknown)
        ):
            self._world.violated(f"M6 {self} was appended at {self.base_offset} and is told that nothing was done")
        if self._then is not None:
            self._then(answer)

    def __repr__(self) -> str:
        return f"{self.name} on n{self.asked.node_id}"


class _Unexpected(logging.Handler):
    """Keeps what controllers log of exceptions that they did not expect."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.errors.append(f"{record.getMessage()} {record.exc_info[1]!r}")


class MetadataWorld(World):
    """`simulation/consensus`'s world; its state machines are controllers, its workload is what administrators and brokers ask."""

    def __init__(
        self,
        options: SimulationOptions,
        transcript: Transcript,
        people: People = People(),
        properties: Mapping[str, str] = immutables.Map(),
    ) -> None:
        self.is_judged = True
        """Whether broken rules of this world end the run."""
        self.properties = properties
        """Of all controllers: keys of server.properties."""
        self.replayed = ReplayedLog(self.violated)
        self.sessions = Sessions(SESSION_TIMEOUT_MS)
        self.operations: list[Operation] = []
        """All that were asked so far."""
        super().__init__(milder(options), transcript, self._make_controller)
        self.admin_network = AdminNetwork(self)
        self._administrator = Administrator(self) if people.administrator else None
        self._brokers = {
            broker_id: SimulatedBroker(self, broker_id, people.habits)
            for broker_id in range(FIRST_BROKER_ID, FIRST_BROKER_ID + people.brokers)
        }
        self._unexpected = _Unexpected()

    def _make_controller(self, node_id: int) -> SimulatedController:
        self.booted(node_id)
        return SimulatedController(self, node_id)

    def booted(self, node_id: int) -> None:
        """A process starts."""

    def committed(self, asked: Asked, batch: CommittedBatch) -> None:
        """A node applies a batch, perhaps as the first one."""
        is_new = batch.end_offset > self.replayed.end_offset
        self.replayed.extend(batch)
        if is_new and batch.body and (broken := self.sessions.broken_by(batch, self.replayed.records[batch.base_offset][1])):
            self.violated(broken)

    def violated(self, text: str) -> None:
        """A rule is broken. Raises Violation, if anybody judges."""
        if self.is_judged:
            raise Violation(text)

    def run(self) -> None:
        for broker in self._brokers.values():
            broker.start()
        propagates, level = logger.propagate, logger.level
        logger.addHandler(self._unexpected)
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        try:
            super().run()
        finally:
            logger.removeHandler(self._unexpected)
            logger.propagate = propagates
            logger.setLevel(level)

    def process_died(self, process: Process) -> None:
        super().process_died(process)
        if isinstance(process.state_machine, SimulatedController):
            self.admin_network.process_died(process.state_machine)

    # Asking

    def broker(self, broker_id: int) -> SimulatedBroker | None:
        """None if that is no broker."""
        return self._brokers.get(broker_id)

    def controllers(self) -> list[SimulatedController]:
        """Of all processes that live, by node."""
        found = [machine.process.state_machine for machine in self.machines if machine.process is not None]
        return [state_machine for state_machine in found if isinstance(state_machine, SimulatedController)]

    def active_controllers(self) -> list[SimulatedController]:
        """Who believes to be active and can be asked now: nobody, one, or several."""
        return [asked for asked in self.controllers() if asked.controller.is_active and asked.accepts]

    def write(
        self,
        asked: Asked,
        name: str,
        generate: Generate[object],
        timeout_ms: int,
        then: Callable[[Answer[object]], None] | None = None,
    ) -> None:
        """Puts an operation to a controller that accepts requests. Its answer is judged when it comes, and passed to `then`."""
        put = partial(asked.controller.write, name, deadline_ms=asked.machine.now_ms() + timeout_ms)
        self.judged(asked, name, generate, put, then)

    def judged(
        self,
        asked: Asked,
        name: str,
        generate: Generate[object],
        put: Callable[[Generate[object]], Answer[object]],
        then: Callable[[Answer[object]], None] | None,
    ) -> None:
        """As `write`; `put` hands the operation to the controller in its own way."""
        operation = Operation(self, asked, name, generate, then)
        self.operations.append(operation)
        put(operation.run).when_done(operation.judge)

    def judge_heartbeat(self, answer: Answer[BrokerHeartbeatResponse]) -> None:
        """M3, as far as it can be told from outside."""
        if answer.error is None and answer.offset > self.history.end_offset:
            self.violated(f"M3 a heartbeat is answered for offset {answer.offset}, and {self.history.end_offset} is committed")

    def judge_change(self, image: MetadataImage, request: AlterPartitionRequest, records: Sequence[AnyRecord]) -> None:
        """M12: an in-sync set is only changed by the registered incarnation that leads, and as the partition is now. Told outside
        the operation, which would take what is raised there for a fault of its own.
        """
        sender = image.cluster.brokers.get(request.broker_id)
        if sender is None or sender.epoch != request.broker_epoch:
            known = "is not registered" if sender is None else f"is registered with epoch {sender.epoch}"
            self.after(
                0,
                self.violated,
                f"M12 a change by broker {request.broker_id} of epoch {request.broker_epoch} is taken, and it {known}",
            )
        changed = {(record.topic_id, record.partition_id) for record in records if isinstance(record, PartitionChange)}
        for change in request.changes:
            partition = image.topics.partition(change.topic_id, change.partition)
            if partition is None or (change.topic_id, change.partition) not in changed:
                continue
            if (change.leader_epoch, change.partition_epoch) != (partition.leader_epoch, partition.partition_epoch):
                self.after(0, self.violated, f"M12 {change} is taken, and the partition is {partition}")

    def work(self, process: SimulatedProcess) -> None:
        asked = process.state_machine
        if isinstance(asked, SimulatedController) and asked.accepts and self._administrator is not None:
            self._administrator.ask(asked)
            asked.check()

    # The end

    def has_converged(self, offset: int) -> bool:
        """Also the controllers have, and M7 holds."""
        if self._unexpected.errors:
            self.violated(f"M8 {self._unexpected.errors[0]}")
        controllers = self.controllers()
        if not super().has_converged(offset) or len(self.active_controllers()) != 1:
            return False
        if any(asked.controller.applied_offset != offset or not asked.has_settled for asked in controllers):
            return False
        for asked in controllers:
            asked.check()
            if asked.controller.committed.index != self.replayed.state.index:
                self.violated(f"M2 the index of n{asked.node_id} at offset {offset} is not the one replayed from scratch")
        for operation in self.operations:
            if operation.answer is None and operation.asked.is_alive:
                self.violated(f"M7 {operation} has no answer although everything is committed")
        self.check_configs(self.replayed.state.image)
        return self._has_settled_moves(self.active_controllers()[0])

    def _has_settled_moves(self, active: SimulatedController) -> bool:
        """M11. False while the controller is about to look after moves."""
        controller = active.controller
        if controller.moves.is_due:
            return False
        state = controller.newest
        context = Context(active.machine.now_ms(), self.options.random("judge of moves"), controller.settings, 0)
        if upkeep.start_waiting(state, {}, context).records:
            self.violated(f"M11 a queued move waits at {state.image.provenance}, and there is a slot for it")
        return True

    def check_configs(self, image: MetadataImage) -> None:
        """The last acknowledged value of each key is there, or one that was written at a later place of the log."""
        written: dict[str, dict[str | None, int]] = {}
        acknowledged: dict[str, int] = {}
        for operation in self.operations:
            for record in operation.records:
                if isinstance(record, Config) and (record.resource_type, record.resource_name) == (RESOURCE_BROKER, ""):
                    offsets = written.setdefault(record.name, {})
                    offsets[record.value] = max(offsets.get(record.value, -1), operation.base_offset)
                    if operation.answer is not None and operation.answer.error is None:
                        acknowledged[record.name] = max(acknowledged.get(record.name, -1), operation.base_offset)
        for key, offset in acknowledged.items():
            value = image.config(RESOURCE_BROKER, "", key)
            if written[key].get(value, -1) < offset:
                self.violated(f"M7 {key} was acknowledged at {offset}, and is {value!r} in the end")
