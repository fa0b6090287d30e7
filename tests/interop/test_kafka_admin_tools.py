"""Apache Kafka's own admin tools. Expected lines are those that they print on a cluster of Apache Kafka."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kraftlab.lab.local import LocalCluster

from .conftest import KafkaTools


def create(kafka: KafkaTools, topic: str, assignment: str) -> None:
    """Create a topic with these replicas: brokers of a partition are separated by ":", partitions by ","."""
    assert kafka("kafka-topics", "--create", "--topic", topic, "--replica-assignment", assignment) == f"Created topic {topic}.\n"


def described(kafka: KafkaTools, topic: str) -> list[tuple[str, ...]]:
    """Return the leader and the replicas of each partition."""
    lines = kafka("kafka-topics", "--describe", "--topic", topic)
    return re.findall(r"Leader: (\S+)\tReplicas: (\S+)", lines)


class TestTopics:
    def test_a_topic_is_created_listed_described_grown_and_deleted(self, kafka: KafkaTools) -> None:
        options = ("--partitions", "3", "--replication-factor", "3", "--config", "retention.ms=1000000")
        assert kafka("kafka-topics", "--create", "--topic", "harvest", *options) == "Created topic harvest.\n"
        assert "harvest" in kafka("kafka-topics", "--list").splitlines()
        first, *partitions = kafka("kafka-topics", "--describe", "--topic", "harvest").splitlines()
        shape = r"Topic: harvest\tTopicId: [\w-]{22}\tPartitionCount: 3\tReplicationFactor: 3\tConfigs: .*retention.ms=1000000"
        assert re.fullmatch(shape, first)
        replicas = r"\tTopic: harvest\tPartition: \d\tLeader: (\d)\tReplicas: (\1,\d,\d)\tIsr: \2\tElr: \tLastKnownElr: ?"
        assert len(partitions) == 3 and all(re.fullmatch(replicas, line) for line in partitions)
        assert kafka("kafka-topics", "--alter", "--topic", "harvest", "--partitions", "5") == ""
        assert len(described(kafka, "harvest")) == 5
        assert kafka("kafka-topics", "--delete", "--topic", "harvest") == ""
        assert "harvest" not in kafka("kafka-topics", "--list").splitlines()

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--describe", "--topic", "nope"), "Topic 'nope' does not exist as expected"),
            (("--delete", "--topic", "nope"), "Topic 'nope' does not exist as expected"),
            (("--create", "--topic", "held"), "Topic 'held' already exists."),
            (
                ("--alter", "--topic", "held", "--partitions", "1"),
                "The topic held currently has 2 partition(s); 1 would not be an increase.",
            ),
            (
                ("--create", "--topic", "rf9", "--partitions", "1", "--replication-factor", "9"),
                "Unable to replicate the partition 9 time(s): The target replication factor of 9 cannot be reached because only "
                "4 broker(s) are registered",
            ),
        ],
    )
    def test_a_wrong_request_is_refused_as_by_kafka(self, kafka: KafkaTools, arguments: tuple[str, ...], said: str) -> None:
        kafka("kafka-topics", "--create", "--if-not-exists", "--topic", "held", "--partitions", "2")
        assert f"Error while executing topic command : {said}" in kafka("kafka-topics", *arguments, code=1)


class TestReassignments:
    """The main job: generate, execute with throttles, list, verify, cancel."""

    def run(self, kafka: KafkaTools, action: str, plan: Path, *options: str, code: int = 0) -> list[str]:
        return kafka("kafka-reassign-partitions", action, "--reassignment-json-file", str(plan), *options, code=code).splitlines()

    def configs(self, kafka: KafkaTools, kind: str, name: str) -> list[str]:
        lines = kafka("kafka-configs", "--describe", "--entity-type", kind, "--entity-name", name)
        return re.findall(r"^  (\S*throttled\S*) ", lines, re.MULTILINE)

    def test_a_generated_plan_names_directories_and_alternates_racks(self, kafka: KafkaTools, tmp_path: Path) -> None:
        create(kafka, "generated", "0:1,1:2")
        topics = tmp_path / "topics.json"
        topics.write_text('{"version":1,"topics":[{"topic":"generated"}]}')
        said = kafka(
            *("kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "2,3")
        )
        head, current, _, proposal_head, proposal = said.splitlines()
        assert head == "Current partition replica assignment"
        assert proposal_head == "Proposed partition reassignment configuration"
        held = json.loads(current)["partitions"]
        assert [part["replicas"] for part in held] == [[0, 1], [1, 2]]
        assert all(re.search(r"/broker-\d/d\d$", path) for part in held for path in part["log_dirs"])
        assert all(sorted(part["replicas"]) == [2, 3] for part in json.loads(proposal)["partitions"])

    def test_replicas_move_under_a_throttle_that_verify_removes(
        self, kafka: KafkaTools, cluster: LocalCluster, tmp_path: Path
    ) -> None:
        create(kafka, "moved", "0:1")
        fill(kafka, "moved")
        plan = tmp_path / "plan.json"
        home = str(cluster.log_dirs(3)[1])
        part = {"topic": "moved", "partition": 0, "replicas": [3, 0], "log_dirs": [home, "any"]}
        plan.write_text(json.dumps({"version": 1, "partitions": [part]}))
        throttles = ("--throttle", "100000", "--replica-alter-log-dirs-throttle", "1000000")
        lines = self.run(kafka, "--execute", plan, *throttles)
        assert lines[:2] == ["Current partition replica assignment", ""]
        assert lines[-5:-1] == [
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed.",
            "The inter-broker throttle limit was set to 100000 B/s",
            "The replica-alter-dir throttle limit was set to 1000000 B/s",
            "Successfully started partition reassignment for moved-0",
        ]
        assert lines[-1].rstrip() == f"Successfully started moving log directory to {home} for replica moved-0 with broker 3"
        assert kafka("kafka-reassign-partitions", "--list").splitlines() == [
            "Current partition reassignments:",
            "moved-0: replicas: 3,0,1. adding: 3. removing: 1.",
        ]
        assert "follower.replication.throttled.rate=100000" in self.configs(kafka, "brokers", "3")
        assert "Reassignment of partition moved-0 is still in progress." in self.run(kafka, "--verify", plan)
        said = self.run(kafka, "--execute", plan, code=1)
        assert any("Cannot execute because there is an existing partition assignment." in line for line in said)
        more = self.run(kafka, "--execute", plan, "--additional", "--throttle", "100000000")
        assert "The inter-broker throttle limit was set to 100000000 B/s" in more
        while "Reassignment of partition moved-0 is completed." not in (said := self.run(kafka, "--verify", plan)):
            pass
        assert said[-2:] == [
            "Clearing broker-level throttles on brokers 0,1,2,3",
            "Clearing topic-level throttles on topic moved",
        ]
        assert not self.configs(kafka, "brokers", "3") and not self.configs(kafka, "topics", "moved")
        assert [replicas for _, replicas in described(kafka, "moved")] == ["3,0"]

    def test_a_running_reassignment_is_cancelled(self, kafka: KafkaTools, tmp_path: Path) -> None:
        create(kafka, "cancelled", "0:1")
        fill(kafka, "cancelled")
        plan = tmp_path / "plan.json"
        plan.write_text('{"version":1,"partitions":[{"topic":"cancelled","partition":0,"replicas":[2,3]}]}')
        self.run(kafka, "--execute", plan, "--throttle", "1000")
        assert "Successfully cancelled partition reassignment for: cancelled-0" in self.run(kafka, "--cancel", plan)
        assert kafka("kafka-reassign-partitions", "--list") == "No partition reassignments found.\n"
        assert [replicas for _, replicas in described(kafka, "cancelled")] == ["0,1"]
        assert not self.configs(kafka, "brokers", "2") and not self.configs(kafka, "topics", "cancelled")

    def test_the_replicas_of_a_dead_broker_move_away(self, kafka: KafkaTools, cluster: LocalCluster, tmp_path: Path) -> None:
        create(kafka, "orphaned", "3:1")
        plan = tmp_path / "plan.json"
        plan.write_text('{"version":1,"partitions":[{"topic":"orphaned","partition":0,"replicas":[2,1]}]}')
        # Tools that look for the dead broker warn of it.
        kafka = KafkaTools(",".join(str(node.kafka) for node in cluster.plan.brokers if node.node_id != 3))
        cluster.kill_node(3)
        try:
            while described(kafka, "orphaned") != [("1", "3,1")]:
                pass  # The controller notices the end of a broker's connection within a second.
            self.run(kafka, "--execute", plan)
            while "Reassignment of partition orphaned-0 is completed." not in self.run(kafka, "--verify", plan):
                pass
            assert described(kafka, "orphaned") == [("1", "2,1")]
            assert re.search(r"^3 .* fenced ", kafka("kafka-cluster", "list-endpoints", "--include-fenced-brokers"), re.MULTILINE)
        finally:
            cluster.start_node(3)
            cluster.wait_ready()

    @pytest.mark.parametrize(
        ("plan", "said"),
        [
            ('{"version":9,"partitions":[]}', "Not supported version field value 9"),
            ('{"version":1,"partitions":[]}', "Partition reassignment list cannot be empty"),
            ('{"version":1,"partitions":[{"topic":"nope","partition":0,"replicas":[0]}]}', "Topic nope not found."),
            ('{"version":1,"partitions":[{"topic":"plain","partition":0,"replicas":[8]}]}', "Unknown broker id 8"),
        ],
    )
    def test_a_wrong_plan_is_refused_as_by_kafka(self, kafka: KafkaTools, tmp_path: Path, plan: str, said: str) -> None:
        kafka("kafka-topics", "--create", "--if-not-exists", "--topic", "plain", "--partitions", "1")
        path = tmp_path / "plan.json"
        path.write_text(plan)
        assert any(said in line for line in self.run(kafka, "--execute", path, code=1))


def fill(kafka: KafkaTools, topic: str) -> None:
    """Write two megabytes."""
    kafka("kafka-producer-perf-test", "--topic", topic, "--num-records", "2000", "--record-size", "1000", "--throughput", "-1")


def test_a_preferred_leader_is_elected(kafka: KafkaTools, tmp_path: Path) -> None:
    create(kafka, "led", "0:1")
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"led","partition":0,"replicas":[1,0]}]}')
    kafka("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    assert described(kafka, "led") == [("0", "1,0")]
    election = ("kafka-leader-election", "--election-type", "preferred", "--topic", "led", "--partition", "0")
    assert kafka(*election) == "Successfully completed leader election (PREFERRED) for partitions led-0\n"
    assert described(kafka, "led") == [("1", "1,0")]
    assert kafka(*election) == "Valid replica already elected for partitions led-0\n"


def test_log_directories_are_described(kafka: KafkaTools, cluster: LocalCluster) -> None:
    create(kafka, "placed", "0:1")
    head, received, document = kafka(
        "kafka-log-dirs", "--describe", "--broker-list", "0,1,2", "--topic-list", "placed"
    ).splitlines()
    assert head == "Querying brokers for log directories information"
    assert received == "Received log directory information from brokers 0,1,2"
    brokers: list[dict[str, Any]] = json.loads(document)["brokers"]
    assert {broker["broker"]: {entry["logDir"] for entry in broker["logDirs"]} for broker in brokers} == {
        broker: {str(path) for path in cluster.log_dirs(broker)} for broker in (0, 1, 2)
    }
    replicas = [
        (broker["broker"], replica["partition"], replica["offsetLag"], replica["isFuture"])
        for broker in brokers
        for entry in broker["logDirs"]
        for replica in entry["partitions"]
    ]
    assert sorted(replicas) == [(0, "placed-0", 0, False), (1, "placed-0", 0, False)]
    unknown = kafka("kafka-log-dirs", "--describe", "--broker-list", "0,9", code=1)
    assert unknown.startswith("ERROR: The given brokers do not exist from --broker-list: 9. Current existent brokers: 0,1,2,3")


class TestQuorum:
    def test_its_status_names_leader_voters_and_observers(self, kafka: KafkaTools, cluster: LocalCluster) -> None:
        lines = kafka("kafka-metadata-quorum", "describe", "--status").splitlines()
        status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
        assert status["ClusterId"] == cluster.cluster_id
        assert int(status["LeaderId"]) in cluster.controller_ids
        assert [voter["id"] for voter in json.loads(status["CurrentVoters"])] == list(cluster.controller_ids)
        endpoints = [[f"CONTROLLER://{node.peer}"] for node in cluster.plan.controllers]
        assert [voter["endpoints"] for voter in json.loads(status["CurrentVoters"])] == endpoints
        assert [observer["id"] for observer in json.loads(status["CurrentObservers"])] == list(cluster.broker_ids)

    def test_its_replicas_have_offsets_and_lags(self, kafka: KafkaTools, cluster: LocalCluster) -> None:
        head, *rows = kafka("kafka-metadata-quorum", "describe", "--replication", "--human-readable").splitlines()
        names = ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"]
        assert head.split() == names
        shape = r"\d+\s+[\w-]{22}\s+\d+\s+\d+\s+\d+ ms ago\s+\d+ ms ago\s+(Leader|Follower|Observer)\s*"
        assert [len(rows), all(re.fullmatch(shape, row) for row in rows)] == [len(cluster.plan.nodes), True]


def test_tools_ask_controllers_too(kafka: KafkaTools, cluster: LocalCluster) -> None:
    where = ("--bootstrap-controller", ",".join(str(node.kafka) for node in cluster.plan.controllers))
    assert f"ClusterId:              {cluster.cluster_id}" in kafka("kafka-metadata-quorum", *where, "describe", "--status")
    assert "metadata.version" in kafka("kafka-features", *where, "describe")
    assert kafka("kafka-reassign-partitions", *where, "--list") == "No partition reassignments found.\n"
    _, *rows = kafka("kafka-cluster", "list-endpoints", *where).splitlines()
    assert [row.split()[0] for row in rows] == [str(node_id) for node_id in cluster.controller_ids]


def test_features_are_described_and_changed(kafka: KafkaTools) -> None:
    name = "eligible.leader.replicas.version"
    shape = rf"Feature: {name}\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 1\s+FinalizedVersionLevel: 1\s+Epoch: \d+"
    assert re.search(shape, kafka("kafka-features", "describe"))
    assert re.search(r"metadata.version .*FinalizedVersionLevel: 4.3-IV0", kafka("kafka-features", "describe"))
    assert kafka("kafka-features", "downgrade", "--feature", f"{name}=0") == f"{name} was downgraded to 0.\n"
    assert kafka("kafka-features", "upgrade", "--feature", f"{name}=1") == f"{name} was upgraded to 1.\n"
    said = kafka("kafka-features", "upgrade", "--feature", "metadata.version=99", code=1)
    assert "Could not upgrade metadata.version to 99." in said and "1 out of 1 operation(s) failed." in said


def test_the_cluster_is_named_with_its_brokers(kafka: KafkaTools, cluster: LocalCluster) -> None:
    assert kafka("kafka-cluster", "cluster-id") == f"Cluster ID: {cluster.cluster_id}\n"
    head, *rows = kafka("kafka-cluster", "list-endpoints").splitlines()
    assert head.split() == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    assert [row.split() for row in rows] == [
        [str(node.node_id), "127.0.0.1", str(node.kafka_port), node.rack, "unfenced", "broker"] for node in cluster.plan.brokers
    ]
    assert "Broker ID 9 is not currently registered" in kafka("kafka-cluster", "unregister", "--id", "9", code=1)
    apis = kafka("kafka-broker-api-versions")
    assert len(re.findall(r"^127.0.0.1:\d+ \(id: \d rack: rack-\d isFenced: false\) -> \($", apis, re.MULTILINE)) == 4
    assert "\tApiVersions(18): 0 to 4 [usable: 4]" in apis


class TestConfigs:
    def alter(self, kafka: KafkaTools, kind: str, name: str, *change: str, code: int = 0) -> str:
        return kafka("kafka-configs", "--alter", "--entity-type", kind, "--entity-name", name, *change, code=code)

    def describe(self, kafka: KafkaTools, kind: str, name: str, *options: str) -> list[str]:
        said = kafka("kafka-configs", "--describe", "--entity-type", kind, "--entity-name", name, *options)
        return [line.strip() for line in said.splitlines()]

    def test_a_topic_has_dynamic_configs_and_defaults(self, kafka: KafkaTools) -> None:
        create(kafka, "configured", "0")
        change = "retention.ms=1000,cleanup.policy=[compact,delete]"
        said = self.alter(kafka, "topics", "configured", "--add-config", change)
        assert said == "Completed updating config for topic configured.\n"
        assert self.describe(kafka, "topics", "configured") == [
            "Dynamic configs for topic configured are:",
            "cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
            "DEFAULT_CONFIG:log.cleanup.policy=delete}",
            "retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000}",
        ]
        default = "segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}"
        assert default in self.describe(kafka, "topics", "configured", "--all")
        self.alter(kafka, "topics", "configured", "--delete-config", "retention.ms,cleanup.policy")
        assert self.describe(kafka, "topics", "configured") == ["Dynamic configs for topic configured are:"]
        said = self.alter(kafka, "topics", "configured", "--add-config", "nonsense=1", code=1)
        assert "InvalidConfigurationException: Unknown topic config name: nonsense" in said

    def test_a_broker_has_dynamic_and_static_configs(self, kafka: KafkaTools) -> None:
        self.alter(kafka, "brokers", "1", "--add-config", "log.retention.ms=5000")
        assert any(line.startswith("log.retention.ms=5000 ") for line in self.describe(kafka, "brokers", "1"))
        assert any("STATIC_BROKER_CONFIG:log.dirs=" in line for line in self.describe(kafka, "brokers", "1", "--all"))
        self.alter(kafka, "brokers", "1", "--delete-config", "log.retention.ms")

    def test_a_user_has_quotas_and_credentials(self, kafka: KafkaTools) -> None:
        self.alter(kafka, "users", "ann", "--add-config", "producer_byte_rate=1000")
        self.alter(kafka, "users", "ann", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
        assert self.describe(kafka, "users", "ann") == [
            "Quota configs for user-principal 'ann' are producer_byte_rate=1000.0",
            "SCRAM credential configs for user-principal 'ann' are SCRAM-SHA-256=iterations=8192",
        ]
        self.alter(kafka, "users", "ann", "--delete-config", "producer_byte_rate")
        self.alter(kafka, "users", "ann", "--delete-config", "SCRAM-SHA-256")
        assert self.describe(kafka, "users", "ann") == []


def test_access_rules_are_added_listed_and_removed(kafka: KafkaTools) -> None:
    rule = ("--allow-principal", "User:ann", "--operation", "Read", "--topic", "orders")
    held = [
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`:",
        "(principal=User:ann, host=*, operation=READ, permissionType=ALLOW)",
    ]
    said = [line.strip() for line in kafka("kafka-acls", "--add", *rule).splitlines()]
    assert said[0] == held[0].replace("Current ACLs", "Adding ACLs").removesuffix(":") + ":"
    assert [line.strip() for line in kafka("kafka-acls", "--list").splitlines() if line] == held
    kafka("kafka-acls", "--remove", "--force", *rule)
    assert not kafka("kafka-acls", "--list").strip()
