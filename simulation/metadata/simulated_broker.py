"""Brokers, reduced to their requests to the controller.

A broker registers, sends heartbeats, changes the in-sync sets of partitions that it believes to lead, shuts down in order or
falls silent for a while, and comes back as a new incarnation. It reads the image of one node, its home, which gets old while that
node is down. Requests take time, and are lost if the controller dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import Uuid
from kraftlab.controller.cluster import brokers
from kraftlab.controller.engine.purgatory import Answer
from kraftlab.controller.engine.state import Context, ControllerState, Outcome
from kraftlab.controller.partitions.partitions import NOT_CHECKED, alter_partition
from kraftlab.metadata.features import supported_features
from kraftlab.metadata.image import EMPTY, PartitionImage
from kraftlab.metadata.peer_rpc import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    IsrChange,
)
from kraftlab.metadata.records import RECOVERED, Listener

from ..consensus.process import SimulatedProcess
from .broker_line import BrokerLine
from .simulated_controller import CLUSTER_ID, FIRST_BROKER_PORT, HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, SimulatedController
from .stage import MetadataStage, TargetController

TRAVEL_US = (200, 200, 2_000, 40_000)
TURN_US = 120_000
"""The longest time between two turns of a broker."""
SILENCE_RATE, LEAVING_RATE = 0.01, 0.003
"""Shares of turns in which a broker falls silent or begins to shut down in order."""
DISK_RATE = 0.02
"""Share of a broker's heartbeats that report a disk."""
CHANGES_FOR_NOTHING_RATE = 0.1
"""Share of its partitions that a broker changes per turn without a reason."""


class Disks:
    """The directories of one broker: while faults strike, some fail, and some are cordoned. After that, none is cordoned."""

    def __init__(self, world: MetadataStage, broker_id: int) -> None:
        self._world = world
        self._random = world.options.random(f"disks/{broker_id}")

    def report(self, directories: tuple[Uuid, ...]) -> dict[str, Any]:
        """Return fields of the next heartbeat. At least one directory of a broker does not fail."""
        random = self._random
        if not self._world.is_troubled:
            return {"cordoned_log_dirs": ()}
        if random.random() >= DISK_RATE:
            return {}
        if len(directories) > 1 and random.random() < 0.5:
            return {"offline_log_dirs": directories[:1]}
        return {"cordoned_log_dirs": tuple(each for each in directories if random.random() < 0.5)}


class SimulatedBroker:
    """A broker. Until it knows that it is registered, it has the `epoch` None."""

    def __init__(self, world: MetadataStage, broker_id: int) -> None:
        self._world = world
        self._random = world.options.random(f"broker/{broker_id}")
        self._disks = Disks(world, broker_id)
        self._line = BrokerLine(world, broker_id, self._hold)
        self.broker_id = broker_id
        self.epoch: int | None = None
        self._incarnation = 1
        self._is_leaving = False
        self._silent_until_us = 0
        self._restarts = False
        self._image = EMPTY
        self._led_in = EMPTY.topics
        self._led: list[tuple[Uuid, int, PartitionImage]] = []
        """The partitions that it leads in `_led_in`."""
        self._leader_id = -1
        self._home = world.machines[self._random.randrange(len(world.machines))]

    def start(self) -> None:
        self._world.after(self._random.randrange(HEARTBEAT_INTERVAL_MS * 1_000), self._turn)

    @property
    def is_down(self) -> bool:
        """True while the broker has no process."""
        return self._restarts and self._world.now_us < self._silent_until_us

    @property
    def port_refuses(self) -> bool:
        """True if its port refuses connections now."""
        return self._line.refuses(self.is_down)

    @property
    def leader_id(self) -> int:
        """The active controller that its home node knows, or knew before it went down; -1: unknown."""
        process = self._home_process()
        if process is not None:
            self._leader_id = process.raft.leader_id
        return self._leader_id

    def _home_process(self) -> SimulatedProcess | None:
        """Return the process of its home node, None while the node is down. After the heal, another node replaces a home that is
        down, since that is gone for good.
        """
        if self._home.process is None and self._world.is_healed:
            self._home = next((machine for machine in self._world.machines if machine.process is not None), self._home)
        return self._home.process

    def _turn(self) -> None:
        world, random = self._world, self._random
        world.after(random.randrange(TURN_US) + 1, self._turn)
        if world.now_us < self._silent_until_us:
            return
        self._learn()
        self._line.maybe_break()
        if world.is_troubled and random.random() < SILENCE_RATE:
            self._fall_silent(random.choice((200, 1_500, 3_000)), restarts=random.random() < 0.6)
            return
        self._is_leaving = self._is_leaving or (world.is_troubled and random.random() < LEAVING_RATE)
        candidates = world.active_controllers()
        if not candidates:
            return
        target = random.choice(candidates)
        if self.epoch is None:
            self._travel(self._register, target)
            return
        self._travel(self._beat, target)
        if random.random() < 0.6:
            self._travel(self._alter, target)

    def _learn(self) -> None:
        """Take over the committed image of its home node, if that is newer."""
        process = self._home_process()
        if process is not None and isinstance(process.state_machine, SimulatedController):
            image = process.state_machine.controller.committed.image
            if image.provenance.offset > self._image.provenance.offset:
                self._image = image

    def _fall_silent(self, duration_ms: int, *, restarts: bool) -> None:
        self._silent_until_us = self._world.now_us + duration_ms * 1_000
        self._restarts = restarts
        if restarts:
            self._line.process_died()
            self._incarnation += 1
            self.epoch = None
            self._is_leaving = False

    def _hold(self, duration_ms: int) -> None:
        """Send nothing for a while, unless it is silent anyway."""
        if self._world.now_us >= self._silent_until_us:
            self._fall_silent(duration_ms, restarts=False)

    def _travel(self, request: Any, target: TargetController) -> None:
        self._world.after(self._random.choice(TRAVEL_US), self._arrive, request, target)

    def _arrive(self, request: Any, target: TargetController) -> None:
        if target.accepts:
            request(target)
            target.check()

    # Requests

    def _directories(self) -> tuple[Uuid, ...]:
        """Return the ids of its directories: two for odd broker ids, one for even ones."""
        return tuple(bytes([0xD0 + number]) + self.broker_id.to_bytes(15, "big") for number in range(1 + self.broker_id % 2))

    def _register(self, target: TargetController) -> None:
        request = BrokerRegistrationRequest(
            self.broker_id,
            CLUSTER_ID,
            bytes([0xB0]) + (self.broker_id << 32 | self._incarnation).to_bytes(15, "big"),
            (Listener("PEER", "h", FIRST_BROKER_PORT + self.broker_id),),
            supported_features(),
            None,
            self._directories(),
        )
        table = target.controller.heartbeats
        self._world.write(
            target,
            "BrokerRegistration",
            lambda state, context: brokers.register(state, table, request, context),
            SESSION_TIMEOUT_MS,
            partial(self._registered, self._incarnation),
        )

    def _registered(self, incarnation: int, answer: Answer[BrokerRegistrationResponse]) -> None:
        if answer.value is not None and incarnation == self._incarnation:
            self.epoch = answer.value.broker_epoch

    def _beat(self, target: TargetController) -> None:
        if self.epoch is None:
            return
        request = BrokerHeartbeatRequest(
            self.broker_id,
            self.epoch,
            self._image.provenance.offset,
            want_fence=False,
            want_shutdown=self._is_leaving,
            **self._disks.report(self._directories()),
        )
        if target.controller.is_active:
            self._world.sessions.received(request, target.process.quorum.epoch, target.machine.now_ms())
        answer = target.controller.heartbeat(request, self._line.connection(target))
        answer.when_done(partial(self._beaten, request))

    def _beaten(self, request: BrokerHeartbeatRequest, answer: Answer[BrokerHeartbeatResponse]) -> None:
        self._world.judge_heartbeat(answer)
        if request.broker_epoch != self.epoch:
            return
        if answer.error is not None and answer.error.code == ErrorCode.STALE_BROKER_EPOCH:
            self.epoch = None
        elif answer.value is not None and answer.value.should_shutdown:
            self._fall_silent(500, restarts=True)

    def _alter(self, target: TargetController) -> None:
        """Ask for changed in-sync sets of some partitions that it leads: all active replicas, or one of them fewer."""
        led = [each for each in self._led_partitions() if self._wants_more(each[2])]
        if self.epoch is None or not led:
            return
        chosen = self._random.sample(led, min(len(led), self._random.randint(1, 3)))
        changes = tuple(self._change(topic_id, number, partition) for topic_id, number, partition in chosen)
        request = AlterPartitionRequest(self.broker_id, self.epoch, changes)

        def alter(state: ControllerState, context: Context) -> Outcome[AlterPartitionResponse]:
            outcome = alter_partition(state, request, context)
            self._world.judge_change(state.image, request, outcome.records)
            return outcome

        self._world.write(target, "AlterPartition", alter, SESSION_TIMEOUT_MS)

    def _led_partitions(self) -> Sequence[tuple[Uuid, int, PartitionImage]]:
        """Return the partitions that it believes to lead."""
        topics = self._image.topics
        if self._led_in is not topics:
            self._led_in = topics
            self._led = [
                (topic_id, number, partition)
                for topic_id, topic in sorted(topics.by_id.items())
                for number, partition in sorted(topic.partitions.items())
                if partition.leader == self.broker_id
            ]
        return self._led

    def _wants_more(self, partition: PartitionImage) -> bool:
        """Return True if an active replica is not in the in-sync set; while faults strike, sometimes without a reason."""
        registered = self._image.cluster.brokers
        missing = (replica for replica in partition.replicas if replica not in partition.isr and replica in registered)
        return any(registered[replica].is_active for replica in missing) or (
            self._world.is_troubled and self._random.random() < CHANGES_FOR_NOTHING_RATE
        )

    def _change(self, topic_id: Uuid, number: int, partition: PartitionImage) -> IsrChange:
        registered = self._image.cluster.brokers
        isr = [
            replica
            for replica in partition.replicas
            if replica == self.broker_id or (replica in registered and registered[replica].is_active)
        ]
        others = [replica for replica in isr if replica != self.broker_id]
        if others and self._world.is_troubled and self._random.random() < 0.2:
            isr.remove(self._random.choice(others))
        epochs = {replica: registered[replica].epoch for replica in isr if replica in registered}
        return IsrChange(
            topic_id,
            number,
            partition.leader_epoch,
            tuple((replica, epochs.get(replica, NOT_CHECKED)) for replica in isr),
            RECOVERED,
            partition.partition_epoch,
        )
