"""Our commands against a real cluster of Apache Kafka 4.3, as docs/real-kafka.md promises."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftlab.cli.connection import SERVERS_VARIABLE

from ..helpers.commands import plan_file, run_command, until
from ..helpers.waiting import wait_until
from .apache_kafka import CLUSTER_ID, CONTROLLER_ID, PASSWORD, ApacheKafka
from .conftest import JARS, JAVA_OPTIONS, KafkaTools

pytestmark = pytest.mark.cluster

RECORDS, RECORD_BYTES = 3000, 1000
Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, jars: None) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path_factory.mktemp("apache"), brokers=3, log_dirs=2) as cluster:
        yield cluster


@pytest.fixture
def run(real: ApacheKafka, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command against the cluster and returns its exit code and output."""
    monkeypatch.setenv(SERVERS_VARIABLE, real.bootstrap_servers)

    def call(*arguments: str) -> tuple[int, str]:
        code, out, err = run_command(capsys, *arguments)
        return code, out + err

    return call


def fill(real: ApacheKafka, run: Run, topic: str, replicas: str) -> None:
    """Create a topic with one partition and some megabytes of records."""
    assert run("topics", "--create", "--topic", topic, "--replica-assignment", replicas) == (0, f"Created topic {topic}.\n")
    command = ["java", *JAVA_OPTIONS, "-cp", f"{JARS}/*", "org.apache.kafka.tools.ProducerPerformance", "--topic", topic]
    command += ["--num-records", str(RECORDS), "--record-size", str(RECORD_BYTES), "--throughput", "-1"]
    command += ["--bootstrap-server", real.bootstrap_servers]
    subprocess.run(command, capture_output=True, timeout=60, check=True)


def test_a_throttled_reassignment_is_executed_followed_and_verified(run: Run, real: ApacheKafka, tmp_path: Path) -> None:
    fill(real, run, "moved", "0:1")
    of_plan = ("--reassignment-json-file", plan_file(tmp_path, "moved", [2, 1]))
    code, text = run("reassign-partitions", "--execute", "--throttle", str(RECORDS * RECORD_BYTES // 4), *of_plan)
    assert (code, text.splitlines()[-1]) == (0, "Successfully started partition reassignment for moved-0")
    assert "moved-0: replicas: 2,1,0. adding: 2. removing: 0." in run("reassign-partitions", "--list")[1]
    assert "Adding Replicas: 2\tRemoving Replicas: 0" in run("topics", "--describe", "--topic", "moved")[1]
    assert run("reassign-partitions", "--verify", *of_plan)[0] == 2
    refused, why = run("reassign-partitions", "--execute", *of_plan)
    assert (refused, "there is an existing partition assignment" in why) == (1, True)
    code, shown = run("reassign-partitions", "--progress", "--watch", *of_plan)
    assert (code, "MiB behind" in shown, "/s" in shown) == (0, True, True), shown
    assert "follower.replication.throttled.replicas=0:2" in run("configs", "--describe", "--topic", "moved")[1]
    code, text = run("reassign-partitions", "--verify", *of_plan)
    assert (code, "Reassignment of partition moved-0 is completed." in text) == (0, True)
    assert "throttled" not in run("configs", "--describe", "--topic", "moved")[1]
    assert "throttled" not in run("configs", "--describe", "--broker", "2")[1]


def test_reassignments_are_cancelled_by_file_by_topic_and_all(run: Run, real: ApacheKafka, tmp_path: Path) -> None:
    fill(real, run, "stays", "0")
    of_plan = ("--reassignment-json-file", plan_file(tmp_path, "stays", [2]))
    for choice in (of_plan, ("--topic", "stays"), ("--all",)):
        assert run("reassign-partitions", "--execute", "--throttle", "1000", *of_plan)[0] == 0
        code, text = run("reassign-partitions", "--cancel", *choice)
        assert (code, text.splitlines()[0]) == (0, "Successfully cancelled partition reassignments for: stays-0")
    assert run("reassign-partitions", "--list") == (0, "No partition reassignments found.\n")
    assert "throttled" not in run("configs", "--describe", "--broker", "0")[1]


def test_a_replica_moves_between_log_directories_and_a_move_is_dropped(run: Run, real: ApacheKafka, tmp_path: Path) -> None:
    fill(real, run, "dirs", "0")
    document = json.loads(run("log-dirs", "--describe", "--broker-list", "0", "--topic-list", "dirs", "--json")[1])
    (other,) = [found["logDir"] for found in document["brokers"][0]["logDirs"] if not found["partitions"]]
    of_plan = ("--reassignment-json-file", plan_file(tmp_path, "dirs", [0], log_dirs=[other]))
    slowly = ("--replica-alter-log-dirs-throttle", "1000")
    assert run("reassign-partitions", "--execute", *slowly, *of_plan)[0] == 0
    (move,) = json.loads(run("log-dirs", "--moves", "--json")[1])["moves"]
    assert (move["topic"], move["target"], move["bytes_left"] > 0) == ("dirs", other, True)
    assert run("reassign-partitions", "--verify", *of_plan)[0] == 2
    assert run("reassign-partitions", "--cancel", *of_plan)[0] == 0
    assert run("log-dirs", "--moves") == (0, "No replica is being filled.\n")
    assert run("reassign-partitions", "--execute", *of_plan)[0] == 0
    until(run, 0, "reassign-partitions", "--verify", *of_plan)
    assert other in run("log-dirs", "--replicas", "--topic-list", "dirs")[1]


def test_one_replica_is_moved_by_the_name_of_a_directory(run: Run, real: ApacheKafka) -> None:
    fill(real, run, "by-name-1", "0")
    [replica] = json.loads(run("log-dirs", "--replicas", "--partition-list", "by-name-1-0", "--json")[1])["replicas"]
    home = replica["current_log_dir"]
    (other,) = {real.log_dir(0, number) for number in range(2)} - {home}
    move = ("reassign-partitions", "--move", "by-name-1-0", "--broker", "0", "--to", other.rpartition("/")[2])
    code, text = run(*move)
    assert (code, f"Successfully started moving log directory to {other} for replica by-name-1-0" in text) == (0, True)
    already = f"Replica by-name-1-0 on broker 0 is in log directory {other} already.\n"
    wait_until(lambda: run(*move) == (0, already), "it is there")


def test_topics_change_and_records_are_deleted(run: Run, real: ApacheKafka, tmp_path: Path) -> None:
    fill(real, run, "orders", "1:2")
    assert run("topics", "--alter", "--topic", "orders", "--partitions", "3") == (0, "")
    assert "PartitionCount: 3" in run("topics", "--describe", "--topic", "orders")[1]
    path = tmp_path / "offsets.json"
    path.write_text('{"version":1,"partitions":[{"topic":"orders","partition":0,"offset":3}]}')
    code, text = run("delete-records", "--offset-json-file", str(path))
    assert (code, "partition: orders-0\tlow_watermark: 3" in text) == (0, True)
    assert run("configs", "--alter", "--topic", "orders", "--add-config", "retention.ms=100000")[0] == 0
    assert "retention.ms=100000" in run("configs", "--describe", "--topic", "orders")[1]
    code, text = run("leader-election", "--election-type", "preferred", "--topic", "orders", "--partition", "0")
    assert (code, "orders-0" in text) == (0, True)
    assert run("topics", "--delete", "--topic", "orders") == (0, "")
    assert run("topics", "--describe", "--topic", "orders") == (
        *(1, "Error while executing topic command : Topic 'orders' does not exist as expected\n"),
    )


def test_the_consoles_share_records_with_kafkas_own(
    run: Run, real: ApacheKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = KafkaTools(real.bootstrap_servers)
    assert run("topics", "--create", "--topic", "lines", "--replica-assignment", "2:0")[0] == 0
    path = tmp_path / "lines.txt"
    path.write_text("k1:one\nk2:two\n")
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    with path.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        code, text = run("console-producer", "--topic", "lines", *keyed)
    assert (code, text) == (0, "2 records to lines-0, offsets 0 to 1\n"), text
    tools("kafka-console-producer", "--topic", "lines", "--compression-codec", "lz4", stdin="three\nfour\n")
    code, text = run("console-consumer", "--topic", "lines", "--from-beginning", "--max-messages", "4", "--json")
    assert (code, [json.loads(line)["value"] for line in text.splitlines()[:4]]) == (0, ["one", "two", "three", "four"])
    text = tools("kafka-console-consumer", "--topic", "lines", "--from-beginning", "--max-messages", "4")
    assert text.splitlines() == ["one", "two", "three", "four"]


def test_a_group_is_described_as_by_kafkas_own_tool_reset_and_deleted(run: Run, real: ApacheKafka) -> None:
    fill(real, run, "grouped", "0:1")
    tools = KafkaTools(real.bootstrap_servers)
    limits = ("--from-beginning", "--max-messages", "10")
    tools("kafka-console-consumer", "--topic", "grouped", "--group", "readers", *limits)
    for view in ((), ("--state",), ("--members",)):
        describe = ("--describe", "--group", "readers", *view)
        code, text = run("consumer-groups", *describe)
        wanted = tools("kafka-consumer-groups", *describe)
        assert (code, [line for line in wanted.splitlines() if line.rstrip() not in text]) == (0, []), text
    reset = ("--reset-offsets", "--group", "readers", "--topic", "grouped", "--shift-by", "-3", "--dry-run")
    assert tools("kafka-consumer-groups", *reset).split() == run("consumer-groups", *reset)[1].split()
    assert run("consumer-groups", *reset[:-1], "--execute")[0] == 0
    assert " 7 " in run("consumer-groups", "--describe", "--group", "readers")[1]
    assert run("consumer-groups", "--list", "--state", "empty", "--type", "classic")[1].split()[-3:] == [
        "readers",
        "Classic",
        "Empty",
    ]
    assert run("consumer-groups", "--delete", "--group", "readers")[0] == 0
    assert "readers" not in tools("kafka-consumer-groups", "--list")


def test_the_exporter_tells_the_lag_of_groups_as_kafkas_own_tool_does(run: Run, real: ApacheKafka) -> None:
    fill(real, run, "scraped", "0:1")
    tools = KafkaTools(real.bootstrap_servers)
    tools("kafka-console-consumer", "--topic", "scraped", "--group", "lagging", "--from-beginning", "--max-messages", "10")
    code, text = run("exporter", "--once", "--topic-filter", "^scraped$", "--group-filter", "^lagging$")
    rows = [line.split() for line in tools("kafka-consumer-groups", "--describe", "--group", "lagging").splitlines()]
    ((offset, end, lag),) = [row[3:6] for row in rows if row[:3] == ["lagging", "scraped", "0"]]
    assert code == 0
    for line in (
        "kafka_brokers 3",
        f'kafka_consumergroup_current_offset{{consumergroup="lagging",topic="scraped",partition="0"}} {offset}',
        f'kafka_consumergroup_lag{{consumergroup="lagging",topic="scraped",partition="0"}} {lag}',
        'kafka_consumergroup_members{consumergroup="lagging"} 0',
        f'kafka_topic_partition_current_offset{{topic="scraped",partition="0"}} {end}',
        'kafka_topic_partition_oldest_offset{topic="scraped",partition="0"} 0',
        'kafka_topic_partition_replicas{topic="scraped",partition="0"} 2',
        "kraftlab_exporter_up 1",
    ):
        assert f"\n{line}\n" in text
    assert (int(end), int(lag)) == (RECORDS, RECORDS - int(offset))


def test_access_rules_are_added_listed_and_removed(run: Run) -> None:
    rule = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "secret")
    assert run("acls", "--add", *rule)[0] == 0
    code, text = run("acls", "--list", "--topic", "secret")
    assert (code, "principal=User:alice" in text, "operation=READ" in text) == (0, True, True), text
    assert run("acls", "--remove", "--force", *rule)[0] == 0
    assert "alice" not in run("acls", "--list")[1]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cluster cluster-id", f"Cluster ID: {CLUSTER_ID}"),
        ("cluster list-endpoints --include-fenced-brokers --long", "unfenced"),
        ("metadata-quorum describe --status", f"LeaderId:               {CONTROLLER_ID}"),
        ("metadata-quorum describe --replication --human-readable", "Observer"),
        ("features describe", "FinalizedVersionLevel: 4.3-IV0"),
        ("features upgrade --feature group.version=1 --dry-run", "group.version can be upgraded to 1."),
        ("configs --describe --broker 1 --all", "log.dirs"),
        ("configs --describe --broker-logger 1", "root="),
        ("configs --alter --user alice --add-config producer_byte_rate=1000", "Completed updating config for user alice."),
        ("configs --alter --user alice --add-config SCRAM-SHA-256=[password=s]", "Completed updating config for user alice."),
        ("configs --describe --user alice", "SCRAM-SHA-256=iterations=4096"),
        ("log-dirs --describe --format table", "online"),
        ("pipeline plan cluster", '"brokers":[{"id":0'),
        ("pipeline plan propose --drain 2", "LeaderReplicaDistributionGoal"),
    ],
)
def test_other_commands_work(run: Run, command: str, expected: str) -> None:
    code, text = run(*command.split())
    assert (code, expected in text) == (0, True), text


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("topics --alter --topic t --if-exists --replication-factor 2", "AlterReplicationFactors is a call of kraftlab's own"),
        ("snapshot list", "ListSnapshots is a call of kraftlab's own"),
        ("metadata-quorum transfer-leadership --to 3000", "TransferLeadership is a call of kraftlab's own"),
        ("reassign-partitions --rollback friday", "RollbackPlan is a call of kraftlab's own"),
        ("topics --list --linearizable", "leave --linearizable out"),
        ("cluster unregister --id 77", "Broker ID 77 is not currently registered"),
        ("topics --create --topic bad/name", "Topic name is invalid"),
    ],
)
def test_what_the_cluster_cannot_do_is_refused_with_its_reason(run: Run, command: str, reason: str) -> None:
    code, text = run(*command.split())
    assert (code, reason in text) == (1, True), text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_user_logs_in_over_tls(run: Run, real: ApacheKafka, tmp_path: Path, mechanism: str) -> None:
    if mechanism != "PLAIN":
        assert run("configs", "--alter", "--user", "alice", "--add-config", f"{mechanism}=[password={PASSWORD}]")[0] == 0
    secure = ("--bootstrap-server", real.secure_servers[0], "--command-config", str(tmp_path / "client.properties"))

    def log_in(password: str, *more: str) -> tuple[int, str]:
        lines = ["security.protocol=SASL_SSL", f"sasl.mechanism={mechanism}", *more]
        lines.append(f'sasl.jaas.config=some.LoginModule required username="alice" password="{password}";')
        (tmp_path / "client.properties").write_text("\n".join(lines) + "\n")
        return run("cluster", "cluster-id", *secure)

    trust = ("ssl.truststore.type=PEM", f"ssl.truststore.location={real.certificate}")
    assert log_in(PASSWORD, *trust) == (0, f"Cluster ID: {CLUSTER_ID}\n")
    code, text = log_in("wrong", *trust)
    assert (code, "uthentication failed" in text) == (1, True), text
    code, text = log_in(PASSWORD)
    assert (code, "its certificate is not trusted" in text) == (1, True), text


def test_the_controllers_of_the_cluster_answer_too(run: Run, real: ApacheKafka) -> None:
    assert run("reassign-partitions", "--list", "--bootstrap-controller", real.controller)[0] == 0
    code, text = run("cluster", "list-endpoints", "--bootstrap-controller", real.controller)
    assert (code, text.splitlines()[1].split()[0]) == (0, str(CONTROLLER_ID))
