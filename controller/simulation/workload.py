"""Who asks controllers: an administrator, and brokers as far as the metadata is concerned.

The administrator creates, grows and deletes topics, elects leaders, changes configs, quotas and whether eligible leader
replicas are kept, starts, queues, replaces and cancels reassignments, and now and then makes a change of more records than one
batch holds, atomic or not. A broker registers, sends heartbeats, asks for in-sync sets where it believes to lead, leaves in
order or falls silent for a while, and comes back as a new incarnation. What it believes is the image of one node, its home, and
gets old while that is down. Requests travel for a while and are lost with the controller they go to.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.errors import ErrorCode
from kraftlab.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, MIN_INSYNC_REPLICAS, supported_features
from kraftlab.metadata.image import EMPTY, PartitionImage
from kraftlab.metadata.peer_rpc import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    IsrChange,
)
from kraftlab.metadata.records import RECOVERED, RESOURCE_BROKER, RESOURCE_TOPIC, Config, Listener
from kraftlab.metadata.uuids import Uuid
from kraftlab.quorum.core.batch import MAX_RECORDS

from ..cluster import brokers
from ..configs import client_quotas, configs, features
from ..engine.purgatory import Answer
from ..engine.quorum_controller import Generate
from ..engine.state import Context, ControllerState, Outcome
from ..partitions.leader_elections import PREFERRED, UNCLEAN, elect_leaders
from ..partitions.partitions import NOT_CHECKED, alter_partition
from ..reassignment import reassignments
from ..topics import topics
from ..topics.partition_counts import create_partitions
from .named_requests import NamedClients
from .rare_requests import Disks, RareRequests
from .simulated_controller import (
    CLUSTER_ID,
    CONFIG_KEYS,
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    SimulatedController,
    whole_keys,
)

if TYPE_CHECKING:
    from .world import MetadataWorld

TOPIC_NAMES = ("a", "b", "c.d", "c_d", "e", "f")
TIMEOUTS_MS = (20, 500, 500, 5_000)
TRAVEL_US = (200, 200, 2_000, 40_000)
LEADERS_RATE = 0.1
"""With how many of the administrator's requests another one goes, about leaders or more partitions."""
NAMED_RATE = 0.3
"""Of the administrator's requests, how many have ids."""
TURN_US = 120_000
"""Between two turns of a broker, at most."""
BULK_RATE = 0.0015
"""Of the administrator's requests, how many need more records than a batch holds."""


class Administrator:
    """Asks one thing at a time, of whom the world names."""

    def __init__(self, world: MetadataWorld) -> None:
        self._world = world
        self._random = world.options.random("administrator")
        self._moves_random = world.options.random("administrator/moves")
        self._leaders_random = world.options.random("administrator/leaders")
        self._rare = RareRequests(world)
        self._named = NamedClients(world)
        self._serial = 0
        self._requests = (
            *(self._create, self._create, self._create, self._delete),
            *(self._configure, self._configure, self._configure, self._set_up),
            *(self._reassign, self._reassign, self._reassign, self._reassign),
            *(self._min_isr, self._min_isr, self._eligible_leaders, self._quota),
        )

    def ask(self, asked: SimulatedController) -> None:
        random = self._random
        self._serial += 1
        self._rare.ask(asked)
        if self._leaders_random.random() < LEADERS_RATE:
            name, generate = self._leaders_random.choice((self._elect, self._elect, self._grow))()
            self._world.write(asked, name, generate, self._leaders_random.choice(TIMEOUTS_MS))
        if random.random() < NAMED_RATE:
            named, judge = self._named.next()
            self._world.write(asked, "named", named, random.choice(TIMEOUTS_MS), judge)
            return
        request = random.choice((self._bulk, self._whole)) if random.random() < BULK_RATE else random.choice(self._requests)
        name, generate = request(asked)
        self._world.write(asked, name, generate, random.choice(TIMEOUTS_MS))

    def _create(self, asked: SimulatedController) -> tuple[str, Generate[Any]]:
        request = admin_pb2.CreateTopicsRequest()
        for name in self._random.sample(TOPIC_NAMES, self._random.choice((1, 1, 2))):
            request.topics.add(
                name=name, num_partitions=self._random.randint(1, 4), replication_factor=self._random.choice((1, 2, 3))
            )
        return "CreateTopics", lambda state, context: topics.create(state, request, context)

    def _elect(self) -> tuple[str, Generate[Any]]:
        """Preferred leaders, or any, of all partitions."""
        request = admin_pb2.ElectLeadersRequest(election_type=self._leaders_random.choice((PREFERRED, UNCLEAN)))
        return "ElectLeaders", lambda state, context: elect_leaders(state, request, context)

    def _grow(self) -> tuple[str, Generate[Any]]:
        request = admin_pb2.CreatePartitionsRequest()
        for name in self._leaders_random.sample(TOPIC_NAMES, 2):
            request.topics.add(name=name, count=self._leaders_random.randint(1, 8))
        return "CreatePartitions", lambda state, context: create_partitions(state, request, context)

    def _delete(self, asked: SimulatedController) -> tuple[str, Generate[Any]]:
        request = admin_pb2.DeleteTopicsRequest()
        request.topics.add(name=self._random.choice(TOPIC_NAMES))
        return "DeleteTopics", lambda state, context: topics.delete(state, request, context)

    def _configure(self, asked: SimulatedController) -> tuple[str, Generate[Any]]:
        """A value that nobody wrote before."""
        request = admin_pb2.IncrementalAlterConfigsRequest()
        resource = request.resources.add(resource_type=RESOURCE_BROKER, resource_name="")
        resource.configs.add(
            name=f"simulation.{self._random.randrange(CONFIG_KEYS)}", config_operation=0, value=f"value {self._serial}"
        )
        return "IncrementalAlterConfigs", lambda state, context: configs.alter(state, request, context)

    def _set_up(self, asked: SimulatedController) -> tuple[str, Generate[Any]]:
        """Of a topic: set or deleted, so that unclean elections happen, too."""
        request = admin_pb2.IncrementalAlterConfigsRequest()
        resource = request.resources.add(resource_type=RESOURCE_TOPIC, resource_name=self._random.choice(TOPIC_NAMES))
        if self._random.random() < 0.5:
            value = self._random.choice(("true", "false"))
            resource.configs.add(name="unclean.leader.election.enable", config_operation=0, value=value)
        else:
            resource.configs.add(name="unclean.leader.election.enable", config_operation=1)
        return "IncrementalAlterConfigs", lambda state, context: configs.alter(state, request, context)

    def _min_isr(self, asked: SimulatedController) -> tuple[str, Generate[Any]]:
        """Of a topic, of the cluster, or of a broker, which may not have one while eligible leader replicas are kept."""
        random = self._random
        request = admin_pb2.IncrementalAlterConfigsRequest()
        resource = request.resources.add(resource_type=RESOURCE_TOPIC, resource_name=random.choice(TOPIC_NAMES))
        if random.random() < 0.4:
            resource.resource_type, resource.resource_name = RESOURCE_BROKER, random.choice(("", "0", "1"))
        change = resource.configs.add(name=MIN_INSYNC_REPLICAS, config_operation=1)
        if random.random() < 0.7:
            change.config_operation, change.value = 0, str(random.randint(1, 3))
        return "IncrementalAlterConfigs", lambda state, context: configs.alter(state, request, context)

    def _eligible_leaders(self, asked: SimulatedController) -> tuple[str, Generate[Any]]:
        """Switched on, off, or left as it is."""
        request = admin_pb2.UpdateFeaturesRequest()
        level, upgrade_type = self._random.choice(((0, 2), (1, 1), (1, 1)))
        request.feature_updates.add(feature=ELIGIBLE_LEADER_REPLICAS_VERSION, max_version_level=level, upgrade_type=upgrade_type)
        return "UpdateFeatures", lambda state, context: features.update(state, request, context)

    def _quota(self, asked: SimulatedController) -> tuple[str, Generate[Any]]:
        request = admin_pb2.AlterClientQuotasRequest()
        entry = request.entries.add()
        entry.entity.add(entity_type="user", entity_name=self._random.choice(("alice", "bob")))
        entry.ops.add(key="producer_byte_rate", value=self._random.randint(1, 9), remove=self._random.random() < 0.3)
        return "AlterClientQuotas", lambda state, context: client_quotas.alter(state, request, context)

    def _reassign(self, asked: SimulatedController) -> tuple[str, Generate[Any]]:
        """Starts, replaces, queues, rolls back and cancels: what runs already, and what does not."""
        image = asked.controller.committed.image
        request = admin_pb2.AlterPartitionReassignmentsRequest()
        known = sorted(image.topics.by_name)
        registered = sorted(image.cluster.brokers)
        for name in self._random.sample(known, min(len(known), self._random.choice((1, 1, 2)))):
            topic = request.topics.add(name=name)
            for number in range(self._random.randint(1, 3)):
                entry = topic.partitions.add(partition_index=number)
                if registered and self._random.random() < 0.75:
                    size = self._random.randint(1, min(3, len(registered)))
                    entry.replicas.values.extend(self._random.sample(registered, size))
        self._say_how(request, sorted(image.moves.plans))
        return "AlterPartitionReassignments", lambda state, context: reassignments.alter(state, request, context)

    def _say_how(self, request: admin_pb2.AlterPartitionReassignmentsRequest, plans: list[str]) -> None:
        """What is ours in such a request: queue, throttles, plans, and what is asked of all moves at once."""
        random = self._moves_random
        kind = random.random()
        if kind < 0.05 or (kind < 0.1 and plans):
            del request.topics[:]
            request.force = random.random() < 0.5
            if kind < 0.05:
                request.cancel_all = True
            else:
                request.rollback_plan_id = random.choice(plans)
            return
        request.queued = random.random() < 0.5
        request.priority = random.choice((0, 0, 1))
        if random.random() < 0.3:
            request.plan_id = random.choice(("plan", "another plan"))
        if random.random() < 0.3:
            request.throttle, request.throttle_expires_ms = 1000, random.choice((50, 5_000))

    def _bulk(self, asked: SimulatedController) -> tuple[str, Generate[Any]]:
        key, value = f"bulk.{self._random.randrange(CONFIG_KEYS)}", f"value {self._serial}"
        records = [Config(0, RESOURCE_BROKER, "", key, value)] * (MAX_RECORDS + 1)

        def generate(state: ControllerState, context: Context) -> Outcome[bool]:
            return Outcome(records, True, atomic=False)

        return "bulk", generate

    def _whole(self, asked: SimulatedController) -> tuple[str, Generate[Any]]:
        """More than a batch holds, and yet atomic: whoever sees the value of the first key sees that of the last."""
        first, last = whole_keys(self._random.randrange(CONFIG_KEYS))
        value = f"value {self._serial}"
        filler = [Config(0, RESOURCE_BROKER, "", "filler", value)] * MAX_RECORDS
        records = [Config(0, RESOURCE_BROKER, "", first, value), *filler, Config(0, RESOURCE_BROKER, "", last, value)]

        def generate(state: ControllerState, context: Context) -> Outcome[bool]:
            return Outcome(records, True, transaction="whole")

        return "whole", generate


class SimulatedBroker:
    """`epoch` is None while it is not registered as far as it knows."""

    def __init__(self, world: MetadataWorld, broker_id: int) -> None:
        self._world = world
        self._random = world.options.random(f"broker/{broker_id}")
        self._disks = Disks(world, broker_id)
        self.broker_id = broker_id
        self.epoch: int | None = None
        self._incarnation = 1
        self._is_leaving = False
        self._silent_until_us = 0
        self._image = EMPTY
        self._home = world.machines[self._random.randrange(len(world.machines))]

    def start(self) -> None:
        self._world.after(self._random.randrange(HEARTBEAT_INTERVAL_MS * 1_000), self._turn)

    def _turn(self) -> None:
        world, random = self._world, self._random
        if world.is_healed:
            return
        world.after(random.randrange(TURN_US) + 1, self._turn)
        if world.now_us < self._silent_until_us:
            return
        self._learn()
        if random.random() < 0.01:
            self._fall_silent(random.choice((200, 1_500, 3_000)), restarts=random.random() < 0.6)
            return
        self._is_leaving = self._is_leaving or random.random() < 0.003
        candidates = world.active_controllers()
        if not candidates:
            return
        asked = random.choice(candidates)
        if self.epoch is None:
            self._travel(self._register, asked)
            return
        self._travel(self._beat, asked)
        if random.random() < 0.6:
            self._travel(self._alter, asked)

    def _learn(self) -> None:
        """Takes over the committed image of its home node, if that has a newer one."""
        process = self._home.process
        if process is not None and isinstance(process.state_machine, SimulatedController):
            image = process.state_machine.controller.committed.image
            if image.provenance.offset > self._image.provenance.offset:
                self._image = image

    def _fall_silent(self, duration_ms: int, *, restarts: bool) -> None:
        self._silent_until_us = self._world.now_us + duration_ms * 1_000
        if restarts:
            self._incarnation += 1
            self.epoch = None
            self._is_leaving = False

    def _travel(self, request: Any, asked: SimulatedController) -> None:
        self._world.after(self._random.choice(TRAVEL_US), self._arrive, request, asked)

    def _arrive(self, request: Any, asked: SimulatedController) -> None:
        if asked.accepts and not self._world.is_healed:
            request(asked)
            asked.check()

    # Requests

    def _directories(self) -> tuple[Uuid, ...]:
        """Brokers with odd ids have two."""
        return tuple(bytes([0xD0 + number]) + self.broker_id.to_bytes(15, "big") for number in range(1 + self.broker_id % 2))

    def _register(self, asked: SimulatedController) -> None:
        request = BrokerRegistrationRequest(
            self.broker_id,
            CLUSTER_ID,
            bytes([0xB0]) + (self.broker_id << 32 | self._incarnation).to_bytes(15, "big"),
            (Listener("PEER", "h", 9_000 + self.broker_id),),
            supported_features(),
            None,
            self._directories(),
        )
        table = asked.controller.heartbeats
        self._world.write(
            asked,
            "BrokerRegistration",
            lambda state, context: brokers.register(state, table, request, context),
            SESSION_TIMEOUT_MS,
            partial(self._registered, self._incarnation),
        )

    def _registered(self, incarnation: int, answer: Answer[BrokerRegistrationResponse]) -> None:
        if answer.value is not None and incarnation == self._incarnation:
            self.epoch = answer.value.broker_epoch

    def _beat(self, asked: SimulatedController) -> None:
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
        answer = asked.controller.heartbeat(request)
        answer.when_done(partial(self._beaten, request))

    def _beaten(self, request: BrokerHeartbeatRequest, answer: Answer[BrokerHeartbeatResponse]) -> None:
        self._world.judge_heartbeat(answer)
        if request.broker_epoch != self.epoch:
            return
        if answer.error is not None and answer.error.code == ErrorCode.STALE_BROKER_EPOCH:
            self.epoch = None
        elif answer.value is not None and answer.value.should_shutdown:
            self._fall_silent(500, restarts=True)

    def _alter(self, asked: SimulatedController) -> None:
        """Wants everybody active in sync, or somebody out, for some partitions that it leads."""
        led = [
            (topic_id, number, partition)
            for topic_id, topic in sorted(self._image.topics.by_id.items())
            for number, partition in sorted(topic.partitions.items())
            if partition.leader == self.broker_id
        ]
        if self.epoch is None or not led:
            return
        chosen = self._random.sample(led, min(len(led), self._random.randint(1, 3)))
        changes = tuple(self._change(topic_id, number, partition) for topic_id, number, partition in chosen)
        request = AlterPartitionRequest(self.broker_id, self.epoch, changes)
        self._world.write(
            asked, "AlterPartition", lambda state, context: alter_partition(state, request, context), SESSION_TIMEOUT_MS
        )

    def _change(self, topic_id: Uuid, number: int, partition: PartitionImage) -> IsrChange:
        registered = self._image.cluster.brokers
        isr = [
            replica
            for replica in partition.replicas
            if replica == self.broker_id or (replica in registered and registered[replica].is_active)
        ]
        others = [replica for replica in isr if replica != self.broker_id]
        if others and self._random.random() < 0.2:
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
