"""The simulated cluster for clients: controllers, brokers, and faults that begin with the clients' calls.

Theory of operation. Controllers register as real processes do, so that clients can make voters of observers. One coroutine
(`Play`) is the script of the run: the cluster starts on a calm network and the clients prepare it; then faults strike while
clients call; then everything heals, the cluster has to converge, and the clients call once more. Liveness is not checked before
the heal.

The simulator lets no disk rot that a majority of the voters needs. Here, neither faults nor clients remove a voter that is needed
beside a rotten disk. A change that is queued while another disk rots is not noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from kraftlab.checking.facts import Observation, Strike
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.controller.cluster import controllers
from kraftlab.metadata.features import supported_features
from kraftlab.metadata.peer_rpc import ControllerRegistrationRequest
from kraftlab.metadata.records import Listener
from kraftlab.quorum.core import batch as batches
from kraftlab.quorum.core.batch import MAX_RECORDS
from kraftlab.quorum.state_machine import CommittedBatch

from ..consensus.fault_atlas import is_whole, sets_in_force
from ..consensus.invariants import Violation
from ..consensus.machine import ANCHOR_MS
from ..consensus.options import CALM, SimulationOptions
from ..consensus.options import Strike as Blow
from ..consensus.process import SimulatedProcess
from ..consensus.stage import Process
from ..consensus.transcript import Transcript
from ..metadata.coroutines import Signal, Task, sleep
from ..metadata.simulated_controller import SimulatedController
from ..metadata.stage import TargetController
from ..metadata.world import MetadataWorld

READY_MS = 20_000
"""Time for the election of a leader and the registration of all brokers."""
LOOK_US = 50_000
OBSERVE_US = 100_000
REGISTER_US = 300_000
REGISTRATION_TIMEOUT_MS = 1_000
ADMIN_LOSSES = (0.0, 0.0, 0.005, 0.03)
ENDS = frozenset({"restore", "boot", "set_clock", "setattr", "pop", "_stop"})
"""Names of the actions that a fault schedules as its end."""
Play = Callable[[], Coroutine[object, object, None]]


class ClientWorld(MetadataWorld):
    """A world for clients. `play` is the script of the run; strikes begin with `begin_trouble`."""

    def __init__(
        self,
        options: SimulationOptions,
        transcript: Transcript,
        brokers: int,
        properties: dict[str, str],
        *,
        is_judged: bool,
        batch_records_max: int = MAX_RECORDS,
    ) -> None:
        properties = {"reassignment.max.moves.per.broker": "100"} | properties
        super().__init__(options, transcript, brokers, properties, batch_records_max)
        self.is_judged = is_judged
        self.batches: list[tuple[CommittedBatch, bool]] = []
        """The committed log as (batch, is a control batch). Control batches have their bodies."""
        self.struck: list[Strike] = []
        self.observations: list[Observation] = []
        self.play: Play | None = None
        self._has_converged = Signal()
        self._down_since_us: dict[int, int] = {}
        self._starts = 0
        self._remove_voter = self.operators.remove
        self.operators.remove = self._remove_if_not_needed  # type: ignore[method-assign]
        self.network.be(CALM)

    # Controllers

    def _make_controller(self, node_id: int) -> SimulatedController:
        target = super()._make_controller(node_id)
        self._starts += 1
        machine = target.machine
        request = ControllerRegistrationRequest(
            node_id,
            bytes([0xC0]) + self._starts.to_bytes(15, "big"),
            tuple(Listener(name, at.host, at.port) for name, at in machine.endpoints.items()),
            supported_features(),
        )
        self.after(REGISTER_US, self._make_known, target, request)
        return target

    def _make_known(self, target: SimulatedController, request: ControllerRegistrationRequest) -> None:
        """Ask the active controller to register this one, until the registration is committed."""
        if target.postponed(self._make_known, target, request):
            return
        known = target.controller.committed.image.cluster.controllers.get(target.node_id)
        if known is not None and known.incarnation_id == request.incarnation_id:
            return
        for active in self.active_controllers():
            self.write(
                active,
                "ControllerRegistration",
                lambda state, context: controllers.register(state, request, context),
                REGISTRATION_TIMEOUT_MS,
            )
        self.after(REGISTER_US, self._make_known, target, request)

    # Phases

    def begin(self) -> None:
        assert self.play is not None, "there is nothing to play"
        for machine in self.machines:
            self.after(0, machine.boot)
        self.after(0, self._observe)
        Task(self, self.play()).start()

    async def ready(self) -> None:
        """Wait until a controller is active, and all brokers are registered and not fenced there."""
        while not self._is_ready():
            if self.now_us > READY_MS * 1_000:
                raise Violation(
                    f"L1 the cluster is not ready after {READY_MS} ms, and nothing has gone wrong: {self.liveness.summary()}"
                )
            await sleep(LOOK_US)

    def _is_ready(self) -> bool:
        for target in self.active_controllers():
            brokers = target.controller.committed.image.cluster.brokers
            return all(broker_id in brokers and not brokers[broker_id].fenced for broker_id in self.broker_ids)
        return False

    def begin_trouble(self) -> None:
        """Let faults strike from now on."""
        self.note("trouble begins")
        self.network.be(self.options.network)
        if self.options.faults:
            self.is_troubled = True
            self.admin_network.loss = self.options.random("admin network").choice(ADMIN_LOSSES)
        for strike in self.strikes:
            self.after(strike.time_us, self._strike, strike)

    async def heal(self) -> None:
        """Heal everything, and wait until the cluster has converged."""
        self.is_troubled = False
        self.liveness.heal()
        await self._has_converged.wait()

    def converged(self) -> None:
        self._has_converged.set()

    def _strike(self, strike: Blow) -> None:
        if not self.is_healed:
            super()._strike(strike)

    def may_leave(self, node_id: int) -> bool:
        """True if every voter set in force has a majority of whole disks without that voter."""
        for voters in sets_in_force(self):
            others = [self.machine_of(voter.key) for voter in voters.voters if voter.key.node_id != node_id]
            if 0 < len(others) < len(voters.voters) and sum(is_whole(other) for other in others) <= len(others) // 2:
                return False
        return True

    def _remove_if_not_needed(self, key: ReplicaKey, timeout_ms: int, process: SimulatedProcess | None = None) -> None:
        if self.may_leave(key.node_id):
            self._remove_voter(key, timeout_ms, process)

    # Observation

    def committed(self, target: TargetController, batch: CommittedBatch) -> None:
        end = self.batches[-1][0].end_offset if self.batches else 0
        if batch.base_offset == end:
            body = batch.body or _control_body(target, batch)
            self.batches.append((batch._replace(body=body), not batch.body))
        super().committed(target, batch)

    def strike_with(self, strike: Blow) -> tuple[int, ...]:
        """Strike as the simulator does, and note the nodes that were hit, and the end as far as it is known now."""
        begin_us, end_us, notes = self.now_us, self.now_us, list[str]()
        schedule, note, held_until_us = self.after, self.note, self.network.held_until_us

        def after(delay_us: int, action: Callable[..., object], *arguments: object) -> None:
            nonlocal end_us
            if getattr(action, "__name__", "") in ENDS:
                end_us = max(end_us, begin_us + delay_us)
            schedule(delay_us, action, *arguments)

        def noting(text: str) -> None:
            notes.append(text)
            note(text)

        self.after, self.note = after, noting  # type: ignore[method-assign]
        try:
            nodes = super().strike_with(strike)
        finally:
            del self.after, self.note
        if self.network.held_until_us != held_until_us:
            end_us = max(end_us, self.network.held_until_us)
        end_us = max(end_us, *(self.machines[node].paused_until_us for node in nodes), 0)
        self._note_strike(strike.fault, begin_us, end_us, nodes, "; ".join(notes))
        return nodes

    def process_died(self, process: Process) -> None:
        super().process_died(process)
        self._down_since_us[process.node_id] = self.now_us

    def booted(self, node_id: int) -> None:
        """Note the start of a process. If no strike of that moment explains its death, a delayed fault is noted as well."""
        since_us = self._down_since_us.pop(node_id, None)
        if since_us is not None and not any(
            node_id in struck.nodes and struck.begin_ns == since_us * 1_000 for struck in reversed(self.struck)
        ):
            self._note_strike("down", since_us, self.now_us, (node_id,), "a crash")

    def _note_strike(self, kind: str, begin_us: int, end_us: int, nodes: tuple[int, ...], detail: str) -> None:
        self.struck.append(Strike(kind=kind, begin_ns=begin_us * 1_000, end_ns=end_us * 1_000, nodes=nodes, detail=detail))

    def _observe(self) -> None:
        self.after(OBSERVE_US, self._observe)
        at_ns = self.now_us * 1_000
        for machine in self.machines:
            if machine.process is None:
                self.observations.append(Observation(at_ns=at_ns, node=machine.node_id, is_up=False))
                continue
            raft = machine.process.raft
            self.observations.append(
                Observation(
                    at_ns=at_ns,
                    node=machine.node_id,
                    is_up=True,
                    epoch=raft.epoch,
                    leader=raft.leader_id,
                    high_watermark=raft.high_watermark,
                    log_end=raft.log_end_offset,
                    clock_ahead_ms=machine.now_ms() - ANCHOR_MS - self.now_us // 1_000,
                )
            )


def _control_body(target: TargetController, batch: CommittedBatch) -> bytes:
    """Return the records of a control batch, which state machines do not get."""
    data = target.process.log.read(batch.base_offset, 1, end_offset=batch.end_offset)
    header = batches.read_header(data)
    return data[batches.HEADER_BYTES : header.size_bytes]
