"""The administrator: creates, grows and deletes topics, elects leaders, changes configs, quotas and the feature of eligible
leader replicas, starts, queues, replaces and cancels reassignments, and sometimes makes a change that does not fit into one
batch, atomic or not.
"""

from __future__ import annotations

from typing import Any

from kraftlab.admin.v1 import admin_pb2
from kraftlab.controller.configs import client_quotas, configs, features
from kraftlab.controller.engine.quorum_controller import Generate
from kraftlab.controller.engine.state import Context, ControllerState, Outcome
from kraftlab.controller.partitions.leader_elections import PREFERRED, UNCLEAN, elect_leaders
from kraftlab.controller.reassignment import reassignments
from kraftlab.controller.topics import topics
from kraftlab.controller.topics.partition_counts import create_partitions
from kraftlab.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, MIN_INSYNC_REPLICAS
from kraftlab.metadata.records import RESOURCE_BROKER, RESOURCE_TOPIC, Config
from kraftlab.quorum.core.batch import MAX_RECORDS

from .named_requests import NamedClients
from .rare_requests import RareRequests
from .simulated_controller import CONFIG_KEYS, WHOLE_KEYS
from .stage import MetadataStage, TargetController

TOPIC_NAMES = ("a", "b", "c.d", "c_d", "e", "f")
TIMEOUTS_MS = (20, 500, 500, 5_000)
LEADERS_RATE = 0.1
"""Share of the administrator's requests that another one accompanies, about leaders or more partitions."""
NAMED_RATE = 0.3
"""Share of the administrator's requests that have ids."""
BULK_RATE = 0.0015
"""Share of the administrator's requests that need more records than a batch holds."""


class Administrator:
    """The administrator; the world chooses the controller of each request."""

    def __init__(self, world: MetadataStage) -> None:
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

    def ask(self, target: TargetController) -> None:
        random = self._random
        self._serial += 1
        self._rare.ask(target)
        if self._leaders_random.random() < LEADERS_RATE:
            name, generate = self._leaders_random.choice((self._elect, self._elect, self._grow))()
            self._world.write(target, name, generate, self._leaders_random.choice(TIMEOUTS_MS))
        if random.random() < NAMED_RATE:
            named, judge = self._named.next()
            self._world.write(target, "named", named, random.choice(TIMEOUTS_MS), judge)
            return
        request = random.choice((self._bulk, self._whole)) if random.random() < BULK_RATE else random.choice(self._requests)
        name, generate = request(target)
        self._world.write(target, name, generate, random.choice(TIMEOUTS_MS))

    def _create(self, target: TargetController) -> tuple[str, Generate[Any]]:
        request = admin_pb2.CreateTopicsRequest()
        for name in self._random.sample(TOPIC_NAMES, self._random.choice((1, 1, 2))):
            request.topics.add(
                name=name, num_partitions=self._random.randint(1, 4), replication_factor=self._random.choice((1, 2, 3))
            )
        return "CreateTopics", lambda state, context: topics.create(state, request, context)

    def _elect(self) -> tuple[str, Generate[Any]]:
        """Elect the preferred leaders, or any, of all partitions."""
        request = admin_pb2.ElectLeadersRequest(election_type=self._leaders_random.choice((PREFERRED, UNCLEAN)))
        return "ElectLeaders", lambda state, context: elect_leaders(state, request, context)

    def _grow(self) -> tuple[str, Generate[Any]]:
        request = admin_pb2.CreatePartitionsRequest()
        for name in self._leaders_random.sample(TOPIC_NAMES, 2):
            request.topics.add(name=name, count=self._leaders_random.randint(1, 8))
        return "CreatePartitions", lambda state, context: create_partitions(state, request, context)

    def _delete(self, target: TargetController) -> tuple[str, Generate[Any]]:
        request = admin_pb2.DeleteTopicsRequest()
        request.topics.add(name=self._random.choice(TOPIC_NAMES))
        return "DeleteTopics", lambda state, context: topics.delete(state, request, context)

    def _configure(self, target: TargetController) -> tuple[str, Generate[Any]]:
        """Set a config to a value that was never written before."""
        request = admin_pb2.IncrementalAlterConfigsRequest()
        resource = request.resources.add(resource_type=RESOURCE_BROKER, resource_name="")
        resource.configs.add(
            name=f"simulation.{self._random.randrange(CONFIG_KEYS)}", config_operation=0, value=f"value {self._serial}"
        )
        return "IncrementalAlterConfigs", lambda state, context: configs.alter(state, request, context)

    def _set_up(self, target: TargetController) -> tuple[str, Generate[Any]]:
        """Set or delete a topic's unclean.leader.election.enable, so that unclean elections happen."""
        request = admin_pb2.IncrementalAlterConfigsRequest()
        resource = request.resources.add(resource_type=RESOURCE_TOPIC, resource_name=self._random.choice(TOPIC_NAMES))
        if self._random.random() < 0.5:
            value = self._random.choice(("true", "false"))
            resource.configs.add(name="unclean.leader.election.enable", config_operation=0, value=value)
        else:
            resource.configs.add(name="unclean.leader.election.enable", config_operation=1)
        return "IncrementalAlterConfigs", lambda state, context: configs.alter(state, request, context)

    def _min_isr(self, target: TargetController) -> tuple[str, Generate[Any]]:
        """Change min.insync.replicas of a topic, the cluster or a broker. The last is refused while the feature is on."""
        random = self._random
        request = admin_pb2.IncrementalAlterConfigsRequest()
        resource = request.resources.add(resource_type=RESOURCE_TOPIC, resource_name=random.choice(TOPIC_NAMES))
        if random.random() < 0.4:
            resource.resource_type, resource.resource_name = RESOURCE_BROKER, random.choice(("", "0", "1"))
        change = resource.configs.add(name=MIN_INSYNC_REPLICAS, config_operation=1)
        if random.random() < 0.7:
            change.config_operation, change.value = 0, str(random.randint(1, 3))
        return "IncrementalAlterConfigs", lambda state, context: configs.alter(state, request, context)

    def _eligible_leaders(self, target: TargetController) -> tuple[str, Generate[Any]]:
        """Switch the feature of eligible leader replicas on or off."""
        request = admin_pb2.UpdateFeaturesRequest()
        level, upgrade_type = self._random.choice(((0, 2), (1, 1), (1, 1)))
        request.feature_updates.add(feature=ELIGIBLE_LEADER_REPLICAS_VERSION, max_version_level=level, upgrade_type=upgrade_type)
        return "UpdateFeatures", lambda state, context: features.update(state, request, context)

    def _quota(self, target: TargetController) -> tuple[str, Generate[Any]]:
        request = admin_pb2.AlterClientQuotasRequest()
        entry = request.entries.add()
        entry.entity.add(entity_type="user", entity_name=self._random.choice(("alice", "bob")))
        entry.ops.add(key="producer_byte_rate", value=self._random.randint(1, 9), remove=self._random.random() < 0.3)
        return "AlterClientQuotas", lambda state, context: client_quotas.alter(state, request, context)

    def _reassign(self, target: TargetController) -> tuple[str, Generate[Any]]:
        """Start, replace, queue, roll back or cancel reassignments, running or not."""
        image = target.controller.committed.image
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
        random, plans = self._moves_random, sorted(image.moves.plans)
        kind = random.random()
        if kind < 0.05:
            cancel = admin_pb2.CancelReassignmentsRequest(force=random.random() < 0.5)
            return "CancelReassignments", lambda state, context: reassignments.cancel(state, cancel, context)
        if kind < 0.1 and plans:
            back = admin_pb2.RollbackPlanRequest(force=random.random() < 0.5, rollback_plan_id=random.choice(plans))
            return "RollbackPlan", lambda state, context: reassignments.roll_back(state, back, context)
        request.queued = random.random() < 0.5
        request.priority = random.choice((0, 0, 1))
        if random.random() < 0.3:
            request.plan_id = random.choice(("plan", "another plan"))
        if random.random() < 0.3:
            request.throttle, request.throttle_expires_ms = 1000, random.choice((50, 5_000))
        return "AlterPartitionReassignments", lambda state, context: reassignments.alter(state, request, context)

    def _bulk(self, target: TargetController) -> tuple[str, Generate[Any]]:
        key, value = f"bulk.{self._random.randrange(CONFIG_KEYS)}", f"value {self._serial}"
        records = [Config(0, RESOURCE_BROKER, "", key, value)] * (MAX_RECORDS + 1)

        def generate(state: ControllerState, context: Context) -> Outcome[bool]:
            return Outcome(records, True, atomic=False)

        return "bulk", generate

    def _whole(self, target: TargetController) -> tuple[str, Generate[Any]]:
        """Write atomically more records than a batch holds: a reader sees the new values of first and last key, or neither."""
        first, last = WHOLE_KEYS[self._random.randrange(CONFIG_KEYS)]
        value = f"value {self._serial}"
        filler = [Config(0, RESOURCE_BROKER, "", "filler", value)] * MAX_RECORDS
        records = [Config(0, RESOURCE_BROKER, "", first, value), *filler, Config(0, RESOURCE_BROKER, "", last, value)]

        def generate(state: ControllerState, context: Context) -> Outcome[bool]:
            return Outcome(records, True, transaction="whole")

        return "whole", generate
