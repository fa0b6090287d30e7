"""`configs` and `features` against a cluster: every type of entity, quotas that bind, levels that change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, answer_of
from kraftlab.lab import LocalCluster

ELR = "eligible.leader.replicas.version"


Run = Callable[..., Any]
CLUSTER = (1, 2, 1)


def test_configs_of_a_broker_come_from_that_broker(run: Run) -> None:
    described = run("configs", "--describe", "--broker", "1", "--all").out
    assert described.startswith("All configs for broker 1 are:\n")
    assert "  node.id=1 sensitive=false synonyms={STATIC_BROKER_CONFIG:node.id=1}\n" in described
    assert "  broker.id=1 sensitive=false synonyms={STATIC_BROKER_CONFIG:broker.id=1, DEFAULT_CONFIG:broker.id=-1}\n" in described


def test_defaults_of_all_brokers_are_set_and_removed(run: Run) -> None:
    added = run("configs", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=5")
    assert added.out == "Completed updating default config for brokers in the cluster.\n"
    described = run("configs", "--describe", "--broker-defaults").out
    assert described == (
        "Default configs for brokers in the cluster are:\n"
        "  log.retention.ms=5 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=5}\n"
        "  min.insync.replicas=1 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1}\n"
    )
    of_all = run("configs", "--describe", "--entity-type", "brokers").out
    assert of_all == "Dynamic configs for broker 0 are:\nDynamic configs for broker 1 are:\n" + described
    assert run("configs", "--alter", "--broker-defaults", "--delete-config", "log.retention.ms").code == 0
    refused = run("configs", "--alter", "--broker-defaults", "--delete-config", "min.insync.replicas")
    assert refused.err == "Error: Cluster-level min.insync.replicas cannot be removed while ELR is enabled.\n"


@pytest.mark.parametrize(
    ("option", "kind", "config", "shown"),
    [
        ("--group", "group", "consumer.session.timeout.ms=50000", "synonyms={GROUP_CONFIG:consumer.session.timeout.ms=50000, "),
        ("--client-metrics", "client-metric", "metrics=[a,b]", "metrics=a,b sensitive=false"),
    ],
)
def test_groups_and_client_metrics(run: Run, option: str, kind: str, config: str, shown: str) -> None:
    assert run("configs", "--alter", option, "x", "--add-config", config).out == f"Completed updating config for {kind} x.\n"
    assert shown in run("configs", "--describe", option, "x").out
    assert run("configs", "--alter", option, "x", "--delete-config", config.partition("=")[0]).code == 0


def test_a_file_has_configs_to_set(run: Run, tmp_path: Path) -> None:
    assert run("topics", "--create", "--topic", "from-file").code == 0
    file = tmp_path / "configs.properties"
    file.write_text("retention.ms=7\ncleanup.policy=compact,delete\n")
    assert run("configs", "--alter", "--topic", "from-file", "--add-config-file", str(file)).code == 0
    document = json.loads(run("configs", "--describe", "--topic", "from-file", "--json").out)
    assert [(c["name"], c["value"]) for c in document["entities"][0]["configs"]] == [
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "7"),
    ]


@pytest.mark.parametrize(
    ("entity", "key", "of"),
    [
        (("--topic", "kept"), "retention.ms,no.such", "topic kept"),
        (("--broker", "1"), "no.such", "broker 1"),
        (("--broker-defaults",), "no.such", "the default of brokers"),
        (("--user", "nobody"), "producer_byte_rate", "user nobody"),
    ],
)
def test_a_config_that_is_not_set_cannot_be_deleted(run: Run, entity: tuple[str, ...], key: str, of: str) -> None:
    run("topics", "--create", "--topic", "kept", "--if-not-exists")
    refused = run("configs", "--alter", *entity, "--delete-config", key)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == f"Error: Invalid config(s): {key}: not set for {of}, so there is nothing to delete\n"


@pytest.mark.parametrize("action", [("--describe",), ("--alter", "--delete-config", "retention.ms")])
def test_a_topic_that_does_not_exist_is_named(run: Run, action: tuple[str, ...]) -> None:
    assert run("configs", *action, "--topic", "nope") == (1, "", "Error: The topic 'nope' does not exist.\n")


def test_loggers_of_a_broker_have_levels(run: Run) -> None:
    assert run("configs", "--alter", "--broker-logger", "1", "--add-config", "kraftlab.broker=DEBUG").code == 0
    assert "  kraftlab.broker=DEBUG sensitive=false synonyms={}\n" in run("configs", "--describe", "--broker-logger", "1").out
    assert "kraftlab.broker=DEBUG" not in run("configs", "--describe", "--broker-logger", "0").out
    assert run("configs", "--alter", "--broker-logger", "3000", "--add-config", "kraftlab.controller=WARN").code == 0
    assert "  kraftlab.controller=WARN " in run("configs", "--describe", "--broker-logger", "3000").out
    refused = run("configs", "--alter", "--broker-logger", "1", "--add-config", "no.such=DEBUG")
    assert refused.err == "Error: Logger no.such does not exist!\n"


def test_quotas_are_set_shown_and_removed(run: Run) -> None:
    both = ("--user", "alice", "--client-defaults")
    assert run("configs", "--alter", *both, "--add-config", "producer_byte_rate=1024,request_percentage=12.5").code == 0
    assert run("configs", "--alter", "--user-defaults", "--add-config", "consumer_byte_rate=9").code == 0
    line = (
        "Quota configs for user-principal 'alice', the default client-id are producer_byte_rate=1024.0, request_percentage=12.5\n"
    )
    assert run("configs", "--describe", *both).out == line
    default = "Quota configs for the default user-principal are consumer_byte_rate=9.0\n"
    assert run("configs", "--describe", "--entity-type", "users").out == line + default
    refused = run("configs", "--alter", "--ip", "1.2.3.4", "--add-config", "producer_byte_rate=1")
    assert refused.err == "Error: Invalid configuration key producer_byte_rate\n"
    assert run("configs", "--alter", *both, "--delete-config", "producer_byte_rate,request_percentage").code == 0
    assert run("configs", "--alter", "--user-defaults", "--delete-config", "consumer_byte_rate").code == 0
    assert run("configs", "--describe", "--entity-type", "users").out == ""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--describe",), "At least one entity type must be specified"),
        (("--describe", "--alter", "--topic", "t"), "exactly one action"),
        (("--alter", "--topic", "t"), "At least one of --add-config"),
        (("--alter", "--entity-type", "topics", "--add-config", "a=b"), "--alter of topics needs --entity-name"),
        (("--describe", "--topic", "t", "--broker", "1"), "can be given together"),
        (("--alter", "--user", "u", "--add-config", "a=b"), "'b' is not a number"),
    ],
)
def test_conflicting_options_are_refused(run: Run, arguments: tuple[str, ...], error: str) -> None:
    ran = run("configs", *arguments)
    assert ran.code == 64
    assert error in ran.err


def test_a_mutation_quota_throttles_its_user(cluster: LocalCluster, run: Run) -> None:
    assert run("configs", "--alter", "--user", "ANONYMOUS", "--add-config", "controller_mutation_rate=1").code == 0

    def create(client: AdminClient, name: str, partitions: int, version: int | None = None) -> Any:
        request = pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)])
        if version is not None:
            request.header.api_version = version
        return answer_of(lambda: client.call(pb.CreateTopicsResponse, request))

    try:
        with AdminClient(str(cluster.node(0).grpc)) as client:
            assert create(client, "large", 100).topics[0].error_code == 0
            refused = create(client, "next", 1)
            assert refused.topics[0].error_code == 89
            assert 80_000 < refused.header.throttle_time_ms <= 90_000
            old = create(client, "old", 1, version=5)
            assert old.topics[0].error_code == 0, "an old client is let through and told to wait"
            assert old.header.throttle_time_ms > 80_000
    finally:
        assert run("configs", "--alter", "--user", "ANONYMOUS", "--delete-config", "controller_mutation_rate").code == 0


def test_a_quota_of_a_client_id_throttles_that_client(cluster: LocalCluster, run: Run) -> None:
    assert run("configs", "--alter", "--client", "loader", "--add-config", "controller_mutation_rate=1").code == 0
    codes = []
    for client_id in ("loader", "loader", "other"):
        with AdminClient(str(cluster.node(0).grpc), client_id=client_id) as client:
            topic = pb.CreatableTopic(name=f"by-{client_id}-{len(codes)}", num_partitions=50, replication_factor=1)
            codes.append(answer_of(lambda topic=topic: client.create_topics([topic])).topics[0].error_code)
    assert run("configs", "--alter", "--client", "loader", "--delete-config", "controller_mutation_rate").code == 0
    assert codes == [0, 89, 0]


def test_features_are_described_lowered_and_raised_again(run: Run) -> None:
    described = run("features", "describe").out.splitlines()
    assert [line.split()[1] for line in described] == sorted(line.split()[1] for line in described)
    assert "metadata.version" in described[3] and "4.3-IV0" in described[3]
    feature = "transaction.version"
    assert run("features", "downgrade", "--feature", f"{feature}=1", "--dry-run").out == f"{feature} can be downgraded to 1.\n"
    assert run("features", "disable", "--feature", feature).out == f"{feature} was disabled.\n"
    levels = {f["name"]: f["finalized"] for f in json.loads(run("features", "describe", "--json").out)["features"]}
    assert levels[feature] == 0
    assert run("features", "upgrade", "--feature", f"{feature}=2").out == f"{feature} was upgraded to 2.\n"


def test_a_refused_level_is_reported_with_the_reason(run: Run) -> None:
    ran = run("features", "downgrade", "--metadata", "4.2")
    assert ran.code == 1
    assert ran.out.startswith("Could not downgrade metadata.version to 29. The update failed for all features since")
    assert ran.out.endswith("1 out of 1 operation(s) failed.\n")
    assert run("features", "upgrade").code == 64
