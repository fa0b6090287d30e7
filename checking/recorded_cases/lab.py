"""The cluster for recordings: its setup, its requests, and its faults."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import grpc

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.client.channels import Channels
from kraftlab.client.data import DataClient
from kraftlab.client.entries import raise_first_error
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError
from kraftlab.lab import LocalCluster
from kraftlab.records.record_batch import Record, build_batch

from .paths import Value

CONTROLLERS, BROKERS, LOG_DIRS, RACKS = 3, 5, 2, 2
BARE = 1, 1, 1
"""Size of the cluster without an authorizer."""
USERS = ("alice", "bob", "carol")
SETTINGS = {
    "auto.create.topics.enable": "false",
    "replica.fetch.max.bytes": "16384",
    "num.partitions": "2",
    "default.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
    "log.segment.delete.delay.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "controller.quorum.election.timeout.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "5000",
}
FASTER = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
"""Settings of our own: a killed broker is fenced sooner."""
WITH_USERS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.grpc.users": ",".join(f"{user}:{user}-secret" for user in USERS),
}
THROTTLES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
ELIGIBLE_LEADERS_FEATURE = "eligible.leader.replicas.version"
OFFSETS_TOPIC = "__consumer_offsets"
OWN_TOPICS = (OFFSETS_TOPIC,)
"""Topics of the recorded cluster besides the topics of scenarios."""
RECORD_BYTES, RECORDS_PER_BATCH = 8000, 2
CALL_TIMEOUT_S = 20.0
WAIT_TIMEOUT_S = 25.0
POLL_S = 0.02
TOPIC, BROKER = 2, 4

_LOG_DIR = re.compile(r"/data/n(\d+)/d(\d+)(?![\w])")


class LabFault(Exception):
    """A change of the cluster without the expected effect. The text names it."""


class Lab:
    """One running cluster. `newest_offset` is of the newest answer; every request waits for this offset."""

    def __init__(self, directory: Path, cluster_id: str, *, with_users: bool) -> None:
        settings = SETTINGS | FASTER | (WITH_USERS if with_users else {})
        self.with_users = with_users
        size = (CONTROLLERS, BROKERS, LOG_DIRS) if with_users else BARE
        self.cluster = LocalCluster(directory, *size, overrides=settings, cluster_id=cluster_id, racks=RACKS)
        self._channels = Channels()
        self.newest_offset = 0
        self.active = -1
        self.killed_controller: int | None = None
        self.own_topics = OWN_TOPICS
        self.set_up_configs: dict[tuple[int, str], dict[str, str]] = {
            (BROKER, str(broker)): dict.fromkeys(THROTTLES, "1") for broker in self.cluster.broker_ids
        }
        """Configs at the start of every scenario, by (type, name) of the resource."""
        self.set_up_configs[BROKER, ""] = {"min.insync.replicas": "1"}
        self._own_of_recorded = {
            f"/data/n{broker}/d{index}": str(path)
            for broker in self.cluster.broker_ids
            for index, path in enumerate(self.cluster.log_dirs(broker))
        }
        try:
            self.cluster.start()
            self.cluster.wait_ready(60.0)
            self.admin: AdminClient = self.cluster.admin()
            self.data = DataClient(self.admin)
            self._prepare()
        except BaseException:
            self.cluster.close()
            raise

    def close(self) -> None:
        self.data.close()
        self.admin.close()
        self._channels.close()
        self.cluster.close()

    def _prepare(self) -> None:
        """Set the configs, features and topics from before the first scenario."""
        controllers, brokers = self.cluster.controller_ids, self.cluster.broker_ids
        self.wait_until(
            "all controllers are registered", lambda: len(self.admin.describe_cluster().controllers) == len(controllers)
        )
        update = pb.FeatureUpdate(feature=ELIGIBLE_LEADERS_FEATURE, max_version_level=1, upgrade_type=1)
        self.call("controller", "UpdateFeatures", pb.UpdateFeaturesRequest(feature_updates=[update]))
        for broker in brokers:
            self.alter_configs(BROKER, str(broker), self.set_up_configs[BROKER, str(broker)], to=broker)
        factor = min(3, len(brokers))
        topics = [pb.CreatableTopic(name=name, num_partitions=2, replication_factor=factor) for name in self.own_topics]
        self._demand(
            self.call("controller", "CreateTopics", pb.CreateTopicsRequest(topics=topics)).topics, "own topics are created"
        )

    # --- asking ---------------------------------------------------------------------------------------------------------

    def find_active(self) -> int:
        """Wait for a running active controller and return its id."""

        def is_known() -> bool:
            leader_id = self.admin.describe_cluster().leader_id
            self.active = -1 if leader_id is None else leader_id
            return self.active >= 0 and self.cluster.pid(self.active) is not None

        self.wait_until("a controller is active", is_known)
        return self.active

    def any_standby(self) -> int:
        """Return a running controller that is not active."""
        active = self.find_active()
        return next(node for node in self.cluster.controller_ids if node != active and self.cluster.pid(node) is not None)

    def any_broker(self) -> int:
        """Return a running broker."""
        return next(node for node in self.cluster.broker_ids if self.cluster.pid(node) is not None)

    def no_coordinator(self) -> int:
        """Return a running broker that coordinates no group."""
        request = pb.DescribeTopicPartitionsRequest(topics=pb.TopicNames(names=[OFFSETS_TOPIC]))
        (topic,) = self.call("controller", "DescribeTopicPartitions", request).topics
        coordinators = {partition.leader_id for partition in topic.partitions}
        running = (node for node in self.cluster.broker_ids if self.cluster.pid(node) is not None)
        return next(node for node in running if node not in coordinators)

    def endpoint(self, to: int | str) -> Endpoint:
        return self.cluster.node(self.node_id(to)).grpc

    def node_id(self, to: int | str) -> int:
        return to if isinstance(to, int) else self.active if self.active >= 0 else self.find_active()

    def kafka(self, to: int | str) -> Endpoint:
        """Return the KAFKA listener of a node."""
        at = self.cluster.node(self.node_id(to)).kafka
        assert at is not None, "every node has one"
        return at

    def send(self, to: int | str, api: str, request: Value, user: str | None = None) -> Value:
        """Return the answer of a node, also a refusal. grpc.RpcError."""
        if not request.header.min_offset:
            request.header.min_offset = self.newest_offset
        metadata = (("kraftlab-user", user), ("kraftlab-password", f"{user}-secret")) if user else ()
        response: Value = self._channels.unary(self.endpoint(to), api)(request, timeout=CALL_TIMEOUT_S, metadata=metadata)
        self.newest_offset = max(self.newest_offset, response.header.metadata_offset)
        if response.header.leader_id >= 0:
            self.active = response.header.leader_id
        return response

    def call(self, to: int | str, api: str, request: Value) -> Value:
        """Return the answer of a node to a super user. LabFault for a refusal of the whole request."""
        try:
            response = self.send(to, api, request)
        except grpc.RpcError as error:
            raise LabFault(f"{api} at {to}: {error}") from error
        if response.header.error_code:
            raise LabFault(f"{api} at {to}: error {response.header.error_code}, {response.header.error_message}")
        return response

    # --- names of places ------------------------------------------------------------------------------------------------

    def own_paths(self, value: Value) -> Value:
        """Return a recorded request with our log dirs."""
        return _in_texts(value, lambda text: _LOG_DIR.sub(lambda found: self._own_of_recorded.get(found[0], found[0]), text))

    def recorded_paths(self, value: Value) -> Value:
        """Return our answer with the recorded log dirs."""
        return _in_texts(value, self._with_recorded_paths)

    def _with_recorded_paths(self, text: str) -> str:
        if str(self.cluster.directory) in text:
            for recorded, own in self._own_of_recorded.items():
                text = text.replace(own, recorded)
        return text

    # --- doing ----------------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, assignment: Mapping[str, list[int]], configs: Mapping[str, str]) -> str:
        """Create a topic and return its id."""
        topic = pb.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                pb.CreatableReplicaAssignment(partition_index=int(index), broker_ids=replicas)
                for index, replicas in assignment.items()
            ],
            configs=[pb.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        response = self.call("controller", "CreateTopics", pb.CreateTopicsRequest(topics=[topic]))
        self._demand(response.topics, f"topic {name} is created")
        return str(response.topics[0].topic_id)

    def alter_configs(self, kind: int, name: str, values: Mapping[str, str | None], to: int | str = "controller") -> None:
        """Set configs of a topic or a broker; None removes a config."""
        changes = [
            pb.AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
            for key, value in values.items()
        ]
        resource = pb.AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        response = self.call(to, "IncrementalAlterConfigs", pb.IncrementalAlterConfigsRequest(resources=[resource]))
        self._demand(response.responses, f"configs of {name} are set")

    def produce(self, topic: str, partition: int, size_bytes: int) -> None:
        """Append batches of two records with this many bytes of values, and return when all replicas are in sync."""
        now_ms = int(time.time() * 1000)
        while size_bytes > 0:
            sizes = [min(RECORD_BYTES, size_bytes - begun) for begun in range(0, size_bytes, RECORD_BYTES)][:RECORDS_PER_BATCH]
            size_bytes -= sum(sizes)
            self.data.produce(topic, partition, build_batch([Record(None, b"x" * size, now_ms) for size in sizes]))

    def remember_log_dir(self, broker: int, index: int, topic: str, partitions: list[int]) -> None:
        """Name the log dir of future replicas to a broker, which remembers it."""
        place = pb.AlterReplicaLogDir(
            path=str(self.cluster.log_dirs(broker)[index]),
            topics=[pb.AlterReplicaLogDirTopic(name=topic, partitions=partitions)],
        )
        self.call(broker, "AlterReplicaLogDirs", pb.AlterReplicaLogDirsRequest(dirs=[place]))

    def stop_broker(self, broker: int, *, kill: bool = False) -> None:
        """Stop a broker and wait until it is fenced."""
        if self.cluster.pid(broker) is not None:
            (self.cluster.kill_node if kill else self.cluster.stop_node)(broker)
        self.wait_until(f"broker {broker} is fenced", lambda: self._is_fenced(broker))

    def start_broker(self, broker: int) -> None:
        """Start a broker unless it runs, and wait until it is unfenced."""
        if self.cluster.pid(broker) is None:
            self.cluster.start_node(broker)
        self.cluster.wait_ready(WAIT_TIMEOUT_S)
        self.wait_until(f"broker {broker} is unfenced", lambda: not self._is_fenced(broker))

    def _is_fenced(self, broker: int) -> bool:
        found = self.admin.describe_cluster(include_fenced_brokers=True)
        self.newest_offset = max(self.newest_offset, found.metadata_offset)
        return all(item.is_fenced for item in found.brokers if item.broker_id == broker)

    def kill_controller(self) -> None:
        """Kill the active controller and wait for another."""
        self.killed_controller = killed = self.find_active()
        self.cluster.kill_node(killed)

        def is_replaced() -> bool:
            return self.admin.describe_cluster().leader_id not in (killed, None)

        self.wait_until("another controller is active", is_replaced)
        self.find_active()

    def start_controller(self) -> None:
        """Start the killed controller."""
        if self.killed_controller is not None:
            self.cluster.start_node(self.killed_controller)
            self.killed_controller = None
        self.cluster.wait_ready(WAIT_TIMEOUT_S)

    def start_what_is_stopped(self) -> None:
        """Start all stopped nodes and wait for them."""
        if any(self.cluster.pid(node.node_id) is None for node in self.cluster.plan.nodes):
            self.killed_controller = None
            self.cluster.start()
            self.cluster.wait_ready(WAIT_TIMEOUT_S)
            self.find_active()

    def _demand(self, results: Value, what: str) -> None:
        try:
            raise_first_error(results)
        except ApiError as error:
            raise LabFault(f"{what}: {error}") from error

    def wait_until(self, what: str, is_true: Callable[[], bool], timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Poll a condition. LabFault names it at the timeout."""
        deadline = time.monotonic() + timeout_s
        while not is_true():
            if time.monotonic() > deadline:
                raise LabFault(f"not true within {timeout_s:g} s: {what}")
            time.sleep(POLL_S)


def _in_texts(value: Value, change: Callable[[str], str]) -> Value:
    """Return a copy of JSON with every text changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_in_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {name: _in_texts(item, change) for name, item in value.items()}
    return value
