"""The simulated world with controllers, and the rules about their answers.

An `Operation` wraps a manager's operation, and notes the state that it read and the records that it made. When the answer comes,
the world compares it with the committed log as the Raft checkers know it, not as the controller knows it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.resources import ResourceType
from kraftlab.controller.engine.answer_deadlines import CommitUnknown
from kraftlab.controller.engine.purgatory import Answer
from kraftlab.controller.engine.quorum_controller import Generate
from kraftlab.controller.engine.state import Context, ControllerState, Outcome
from kraftlab.controller.reassignment import upkeep
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import AlterPartitionRequest, BrokerHeartbeatResponse
from kraftlab.metadata.records import AnyRecord, Config, PartitionChange
from kraftlab.quorum.state_machine import CommittedBatch

from ..consensus.invariants import Violation
from ..consensus.options import SimulationOptions
from ..consensus.process import SimulatedProcess
from ..consensus.stage import Process
from ..consensus.transcript import Transcript
from ..consensus.world import World
from .admin_network import AdminNetwork
from .broker_line import are_watched
from .named_requests import metrics_of
from .replayed_log import ReplayedLog
from .sessions import Sessions
from .simulated_broker import SimulatedBroker
from .simulated_controller import SESSION_TIMEOUT_MS, SimulatedController
from .stage import TargetController

FIRST_BROKER_ID = 100

logger = logging.getLogger("kraftlab.controller")


def milder(options: SimulationOptions) -> SimulationOptions:
    """Return milder options, with leaders that last. Short leaderships are good for bugs of consensus, but a controller needs
    time.

    There is no `apply_delay_us`, because the controllers' notices have delays of their own.
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


class Operation:
    """One request to one controller. `seen` is the offset of the state that the answer rests on."""

    def __init__(
        self,
        world: MetadataWorld,
        target: TargetController,
        name: str,
        generate: Generate[object],
        then: Callable[[Answer[object]], None] | None,
    ) -> None:
        self._world = world
        self.target = target
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
        """Run the operation for the controller, maybe again if the log was full the first time."""
        self.seen = state.image.provenance.offset
        try:
            outcome = self._generate(state, context)
        except ApiError as error:
            self._refusal = error
            raise
        self.base_offset = context.next_offset
        self.records = list(outcome.records)

        def appended(end_offset: int) -> None:
            self._is_appended = bool(self.records)
            if outcome.appended is not None:
                outcome.appended(end_offset)

        return outcome._replace(appended=appended)

    def judge(self, answer: Answer[object]) -> None:
        """Judge the answer when it is given: M3, M4, M6 and M8."""
        self.answer = answer
        committed = self._world.history.end_offset
        if answer.error is None or answer.error is self._refusal:
            rests_on = max(self.seen, answer.offset)
            if rests_on > committed:
                self._world.violated(f"M3 {self} is answered for offset {rests_on}, and {committed} is committed")
        if answer.error is None:
            if self.records and self._world.replayed.between(self.base_offset, answer.offset) != self.records:
                self._world.violated(f"M4 {self} is acknowledged at {answer.offset}, and other records are committed there")
        elif answer.error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
            self._world.violated(f"M8 {self}: {answer.error}")
        elif (
            answer.error.code == ErrorCode.REQUEST_TIMED_OUT and self._is_appended and not isinstance(answer.error, CommitUnknown)
        ):
            self._world.violated(f"M6 {self} was appended at {self.base_offset}, and its answer says that nothing was done")
        if self._then is not None:
            self._then(answer)

    def __repr__(self) -> str:
        return f"{self.name} on n{self.target.node_id}"


class _UnexpectedExceptions(logging.Handler):
    """Keeps the log lines of exceptions that controllers did not expect."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.errors.append(f"{record.getMessage()} {record.exc_info[1]!r}")


class MetadataWorld(World):
    """The consensus world with controllers as state machines, and brokers as their clients."""

    def __init__(
        self,
        options: SimulationOptions,
        transcript: Transcript,
        brokers: int,
        properties: Mapping[str, str],
        batch_records_max: int,
    ) -> None:
        self.is_judged = True
        """True if a broken rule of this world ends the run."""
        self.properties = properties
        """Settings of all controllers, as in server.properties."""
        self.is_troubled = False
        """True while faults strike."""
        self.batch_records_max = batch_records_max
        """Largest number of records in a batch of a change that several batches can hold."""
        self.replayed = ReplayedLog(self.violated, batch_records_max)
        self.sessions = Sessions(SESSION_TIMEOUT_MS, batch_records_max)
        self.watches_brokers = are_watched(options)
        """True if controllers notice the ends of brokers' connections and try their ports."""
        self.operations: list[Operation] = []
        """All operations so far."""
        super().__init__(milder(options), transcript, self._make_controller)
        self.admin_network = AdminNetwork(self)
        self.broker_ids = tuple(range(FIRST_BROKER_ID, FIRST_BROKER_ID + brokers))
        self._brokers = {broker_id: SimulatedBroker(self, broker_id) for broker_id in self.broker_ids}
        self._unexpected = _UnexpectedExceptions()

    def _make_controller(self, node_id: int) -> SimulatedController:
        self.booted(node_id)
        return SimulatedController(self, node_id)

    def booted(self, node_id: int) -> None:
        """Called when a process starts."""

    def committed(self, target: TargetController, batch: CommittedBatch) -> None:
        """Replay a batch that a node applies, if it is the first node to do so."""
        is_new = batch.end_offset > self.replayed.end_offset
        self.replayed.extend(batch)
        if is_new and batch.body and (broken := self.sessions.broken_by(batch, self.replayed.records[batch.base_offset][1])):
            self.violated(broken)

    def violated(self, text: str) -> None:
        """Raise Violation, unless the run is not judged."""
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

    # Requests

    def broker(self, broker_id: int) -> SimulatedBroker | None:
        """Return the broker with that id; None if there is none."""
        return self._brokers.get(broker_id)

    def controllers(self) -> list[SimulatedController]:
        """Return the controllers of all running processes, in the order of nodes."""
        found = [machine.process.state_machine for machine in self.machines if machine.process is not None]
        return [state_machine for state_machine in found if isinstance(state_machine, SimulatedController)]

    def active_controllers(self) -> list[SimulatedController]:
        """Return the controllers that believe to be active and accept requests: none, one, or several."""
        return [target for target in self.controllers() if target.controller.is_active and target.accepts]

    def write(
        self,
        target: TargetController,
        name: str,
        generate: Generate[object],
        timeout_ms: int,
        then: Callable[[Answer[object]], None] | None = None,
    ) -> None:
        """Send an operation to a controller that accepts requests. The answer is judged when it comes, and passed to `then`."""
        put = partial(target.controller.write, name, deadline_ms=target.machine.now_ms() + timeout_ms)
        self.judged(target, name, generate, put, then)

    def judged(
        self,
        target: TargetController,
        name: str,
        generate: Generate[object],
        put: Callable[[Generate[object]], Answer[object]],
        then: Callable[[Answer[object]], None] | None,
    ) -> None:
        """Judge an operation as `write` does; `put` hands the operation to the controller."""
        operation = Operation(self, target, name, generate, then)
        self.operations.append(operation)
        put(operation.run).when_done(operation.judge)

    def judge_heartbeat(self, answer: Answer[BrokerHeartbeatResponse]) -> None:
        """Judge the offset in the answer to a heartbeat: M3."""
        if answer.error is None and answer.offset > self.history.end_offset:
            self.violated(f"M3 a heartbeat is answered for offset {answer.offset}, and {self.history.end_offset} is committed")

    def judge_change(self, image: MetadataImage, request: AlterPartitionRequest, records: Sequence[AnyRecord]) -> None:
        """Judge a change of in-sync sets: M12. Violations are raised later, because the operation would handle an exception."""
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
        """Do nothing: clients and brokers have their own times."""

    # The end

    def has_converged(self, offset: int) -> bool:
        """Return True if the controllers have converged as well. Judges M2, M7, M8 and M11."""
        if self._unexpected.errors:
            self.violated(f"M8 {self._unexpected.errors[0]}")
        controllers = self.controllers()
        if not super().has_converged(offset) or len(self.active_controllers()) != 1:
            return False
        if any(target.controller.applied_offset != offset or not target.has_settled for target in controllers):
            return False
        for target in controllers:
            target.check()
            if target.controller.committed.index != self.replayed.state.index:
                self.violated(f"M2 the index of n{target.node_id} at offset {offset} is not the one replayed from scratch")
        for operation in self.operations:
            if operation.answer is None and operation.target.is_alive:
                self.violated(f"M7 {operation} has no answer although everything is committed")
        self.check_configs(self.replayed.state.image)
        return self._has_settled_moves(self.active_controllers()[0])

    def _has_settled_moves(self, active: SimulatedController) -> bool:
        """Judge queued moves: M11. Return False while the controller's upkeep of moves is due."""
        controller = active.controller
        if controller.moves.is_due:
            return False
        state = controller.newest
        context = Context(active.machine.now_ms(), self.options.random("judge of moves"), controller.settings, 0)
        if upkeep.start_waiting(state, {}, context).records:
            self.violated(f"M11 a queued move waits at {state.image.provenance}, and there is a slot for it")
        return True

    def check_configs(self, image: MetadataImage) -> None:
        """Check that each subscription has its last acknowledged metrics, or metrics that were written later in the log."""
        written: dict[str, dict[str | None, int]] = {}
        acknowledged: dict[str, int] = {}
        for operation in self.operations:
            for record in operation.records:
                if isinstance(record, Config) and record.resource_type == ResourceType.CLIENT_METRICS:
                    name = record.resource_name
                    offsets = written.setdefault(name, {})
                    offsets[record.value] = max(offsets.get(record.value, -1), operation.base_offset)
                    if operation.answer is not None and operation.answer.error is None:
                        acknowledged[name] = max(acknowledged.get(name, -1), operation.base_offset)
        for name, offset in acknowledged.items():
            value = metrics_of(image, name)
            if written[name].get(value, -1) < offset:
                self.violated(f"M7 {name} was acknowledged at {offset}, and is {value!r} in the end")
