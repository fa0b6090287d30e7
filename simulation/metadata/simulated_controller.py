"""A QuorumController on a simulated process: its log, its clock, its timers, and its notices.

Notices (commits, leadership) go through a queue and arrive one after the other, with delays that the seed draws, like those of
the driver's apply task. Commits also arrive in other portions than the log's, and requests arrive in between. A paused process
delays all notices, and a dead one drops them. Sometimes the log is full for a while: then requests wait in the controller's
queue, and a large change stops in the middle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

from kraftlab.common.endpoint import Endpoint
from kraftlab.config.access import AUTHORIZER
from kraftlab.controller.engine.queue import NEVER_MS
from kraftlab.controller.engine.quorum_controller import QuorumController
from kraftlab.controller.engine.state import ControllerState, Settings
from kraftlab.metadata.image import MetadataImage
from kraftlab.quorum.core.effects import Proposed, Rejected
from kraftlab.quorum.core.events import Propose, ResignAsked
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.driver.errors import NotLeader, Overloaded
from kraftlab.quorum.state_machine import CommittedBatch, FrozenState

from ..consensus.process import SimulatedProcess
from ..consensus.state_machine import HashingStateMachine, run_at_once
from .coroutines import Resume, Signal, Value, waiting
from .named_requests import PAIRS, metrics_of
from .simulated_past import SimulatedPast
from .simulated_service import SimulatedService
from .stage import MetadataStage

CLUSTER_ID = "simulated"
SESSION_TIMEOUT_MS = 1_200
HEARTBEAT_INTERVAL_MS = 300
NOTICE_DELAYS_US = (1, 1, 1, 300, 5_000, 60_000)
"""Delays of the first notice in an empty queue."""
NOTICE_GAPS_US = (0, 1, 100, 3_000)
FIRST_BROKER_PORT = 9_000
"""The port of broker 0."""
TRY_US = (100, 200, 10_000)
"""Times to a broker's port, or back."""
OVERLOAD_RATE = 0.01
OVERLOADS_US = (1_000, 40_000, 300_000)

Notice = Callable[[], Coroutine[object, None, None]]


class FrozenController:
    """The snapshot of the chain, followed by the controller's."""

    def __init__(self, hashes: FrozenState, image: FrozenState) -> None:
        self._hashes = hashes
        self._image = image

    def batches(self) -> Iterator[tuple[bytes, int]]:
        return chain(self._hashes.batches(), self._image.batches())


class LoadedController(NamedTuple):
    """The content of a snapshot."""

    hashes: tuple[int, int]
    state: ControllerState


class SimulatedController:
    """A state machine of the world, and its controller's log."""

    def __init__(self, world: MetadataStage, node_id: int) -> None:
        self._chain = HashingStateMachine()
        self.world = world
        self.node_id = node_id
        self.machine = world.machines[node_id]
        self._process: SimulatedProcess | None = None
        self._random = world.options.random(f"controller/{node_id}/{self.machine.boots}")
        self._notices: deque[Notice] = deque()
        self._is_draining = False
        self._timer_us: int | None = None
        self._full_until_us = 0
        self._compared: MetadataImage | None = None
        self.past = SimulatedPast(node_id)
        settings = Settings(
            CLUSTER_ID,
            node_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            default_replication_factor=3,
            static={AUTHORIZER: "simulated", **world.properties},
            batch_records_max=world.batch_records_max,
        )
        probe = self._probe if world.watches_brokers else None
        self.controller = QuorumController(
            settings, self.machine.now_ms, self._random, self._arm_timer, signal=Signal, probe=probe
        )
        self.controller.attach(self)
        self.service = SimulatedService(self, CLUSTER_ID)

    @property
    def is_alive(self) -> bool:
        process = self.machine.process
        return process is not None and process.state_machine is self

    @property
    def accepts(self) -> bool:
        """True if the process can serve a request now."""
        return self.is_alive and self.machine.paused_until_us <= self.world.now_us

    @property
    def has_settled(self) -> bool:
        """True if no notice is queued, and no request waits for a full log."""
        return not self._notices and not self._is_draining and not self.controller.queue.statistics()["waiting"]

    # The controller's log

    @property
    def process(self) -> SimulatedProcess:
        if self._process is None:
            self._process = self.machine.process
        assert self._process is not None, "the world calls nobody before its process is there"
        return self._process

    @property
    def end_offset(self) -> int:
        return self.process.raft.log_end_offset

    def propose(self, epoch: int, body: bytes, record_count: int) -> tuple[int, int]:
        process = self.process
        if self._is_overloaded():
            raise Overloaded("the simulated log takes no more for now")
        for effect in process.step(Propose(epoch, body, record_count)):
            if process.dead:
                break
            if isinstance(effect, Proposed):
                return effect.base_offset, effect.end_offset
            if isinstance(effect, Rejected):
                if effect.overloaded:
                    raise Overloaded("the simulated log takes no more")
                raise NotLeader(effect.leader_id, effect.epoch)
        if not process.dead:
            raise AssertionError(f"n{self.node_id} has no verdict on a proposal")
        raise NotLeader(-1, epoch)

    def _is_overloaded(self) -> bool:
        """Return True while the log refuses proposals, like the driver's with a slow disk. Never after the heal."""
        now_us = self.world.now_us
        if not self.world.is_healed and now_us >= self._full_until_us and self._random.random() < OVERLOAD_RATE:
            self._full_until_us = now_us + self._random.choice(OVERLOADS_US)
        return now_us < self._full_until_us

    def resign(self, epoch: int, reason: str) -> None:
        self.process.step(ResignAsked(epoch, reason))

    async def read_index(self) -> int:
        def begin(resume: Resume[bool]) -> None:
            self.process.read(lambda is_confirmed: resume(Value(is_confirmed)))

        if not await waiting(begin):
            raise NotLeader(self.process.raft.leader_id, self.process.raft.epoch)
        return self.process.applying.applied_offset

    # Notices

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        await self._chain.apply(batches, high_watermark)
        for batch in batches:
            self.world.committed(self, batch)
        cut = self._random.randint(1, len(batches))
        for portion in (batches[:cut], batches[cut:]):
            if portion:
                self._put(partial(self.controller.apply, portion, high_watermark))

    async def leader_changed(self, epoch: int, leader_id: int, endpoints: dict[str, Endpoint]) -> None:
        self._put(lambda: self.controller.leader_changed(epoch, leader_id, endpoints))

    async def became_leader(self, epoch: int) -> None:
        await self._chain.became_leader(epoch)
        self._put(lambda: self.controller.became_leader(epoch))

    async def resigned(self, epoch: int, reason: str) -> None:
        self._put(lambda: self.controller.resigned(epoch, reason))

    def freeze(self) -> FrozenController | None:
        """Return None while notices are queued."""
        image = None if self._notices or self._is_draining else self.controller.freeze()
        return None if image is None else FrozenController(self._chain.freeze(), image)

    def read_snapshot(self, bodies: Iterable[bytes]) -> LoadedController:
        rest = iter(bodies)
        return LoadedController(self._chain.read_snapshot([next(rest)]), self.controller.read_snapshot(rest))

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: LoadedController) -> None:
        await self._chain.load_snapshot(position, append_time_ms, state.hashes)
        self._put(partial(self.controller.load_snapshot, position, append_time_ms, state.state))

    def digest(self) -> int:
        """Return the digest of all applied batches. The controller gets them later, and its image is compared."""
        return self._chain.digest()

    def _put(self, notice: Notice) -> None:
        self._notices.append(notice)
        if not self._is_draining:
            self._is_draining = True
            self.world.after(self._random.choice(NOTICE_DELAYS_US), self._drain)

    def _drain(self) -> None:
        if self.postponed(self._drain):
            return
        run_at_once(self._notices.popleft()())
        self.check()
        if self._notices:
            self.world.after(self._random.choice(NOTICE_GAPS_US), self._drain)
        else:
            self._is_draining = False

    def check(self) -> None:
        """Check the rules that hold between any two events of this controller: M2, M5, M8 and M9."""
        controller = self.controller
        if controller.failure is not None:
            self.world.violated(f"M8 n{self.node_id} must stop: {controller.failure}")
        if not controller.is_active and controller.newest is not controller.committed:
            self.world.violated(
                f"M5 n{self.node_id} is not active and holds uncommitted state at {controller.newest.image.provenance}"
            )
        image = controller.committed.image
        compared = self._compared
        if image is not compared:
            self._compared = image
            self.past.publish(image)
            self.world.replayed.compare(self.node_id, controller.applied_offset, image)
            if compared is None or image.configs is not compared.configs:
                self._check_transactions(image)

    def _check_transactions(self, image: MetadataImage) -> None:
        """Check that subscriptions which are only set together have the same metrics: M9."""
        for pair in PAIRS:
            one, other = (metrics_of(image, name) for name in pair)
            if one != other:
                self.world.violated(f"M9 n{self.node_id} shows a part of a transaction: {pair} are {one!r} and {other!r}")

    # The ports of brokers

    def _probe(self, endpoint: Endpoint, tell: Callable[[bool], None]) -> None:
        """Try the port of the broker with that endpoint."""
        delays = self.world.options.random(f"probe/{self.node_id}/{endpoint.port}/{self.world.now_us}")
        broker_id, began_ms = endpoint.port - FIRST_BROKER_PORT, self.machine.now_ms()
        self.world.after(delays.choice(TRY_US), self._arrive, broker_id, began_ms, delays.choice(TRY_US), tell)

    def _arrive(self, broker_id: int, began_ms: int, back_us: int, tell: Callable[[bool], None]) -> None:
        broker = self.world.broker(broker_id)
        self.world.after(back_us, self._tried, broker_id, began_ms, broker is not None and broker.port_refuses, tell)

    def _tried(self, broker_id: int, began_ms: int, was_refused: bool, tell: Callable[[bool], None]) -> None:
        if self.postponed(self._tried, broker_id, began_ms, was_refused, tell):
            return
        epoch = self.controller.active_controller.epoch
        self.world.sessions.tried(broker_id, epoch, began_ms, self.machine.now_ms(), was_refused)
        tell(was_refused)
        self.check()

    # Time

    def _arm_timer(self) -> None:
        deadline_ms = self.controller.queue.next_deadline_ms()
        if deadline_ms >= NEVER_MS:
            return
        due_us = max(self.machine.time_us_at(deadline_ms), self.world.now_us + 1)
        if self._timer_us is None or due_us < self._timer_us:
            self._timer_us = due_us
            self.world.after(due_us - self.world.now_us, self._fire, due_us)

    def _fire(self, due_us: int) -> None:
        if self._timer_us != due_us or self.postponed(self._fire, due_us):
            return
        self._timer_us = None
        self.controller.queue.run_due()
        self._arm_timer()

    def postponed(self, action: Callable[..., object], *arguments: object) -> bool:
        """Return True if the process is dead, or paused: then the action runs when the pause ends."""
        if not self.is_alive:
            return True
        wait_us = self.machine.paused_until_us - self.world.now_us
        if wait_us > 0:
            self.world.after(wait_us, action, *arguments)
        return wait_us > 0
