"""Commands over the Kafka protocol, against the KAFKA listeners of a real cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli.connection import SERVERS_VARIABLE
from kraftlab.client import AdminClient, ClusterUnreachable, DataClient
from kraftlab.client.kafka_data import KafkaDataClient
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.lab import LocalCluster
from kraftlab.records.record_batch import Record, build_batch, validate

from ..helpers.commands import plan_file, run_command, until
from ..helpers.waiting import wait_until

CLUSTER = (1, 3, 2)
DATA_BYTES = 2_000_000


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command against the KAFKA listeners, without saying that they are: `run("topics", "--list")`."""
    monkeypatch.setenv(SERVERS_VARIABLE, cluster.kafka_bootstrap_servers)

    def call(*arguments: str) -> tuple[int, str]:
        code, out, err = run_command(capsys, *arguments)
        return code, out + err

    return call


def make_topic(cluster: LocalCluster, name: str, replicas: list[int], size_bytes: int = 0) -> None:
    """Create a topic with one partition, and records of about that size."""
    with cluster.admin() as admin:
        topic = pb.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        topic.assignments.add(partition_index=0, broker_ids=replicas)
        assert not admin.create_topics([topic]).topics[0].error_code
        with DataClient(admin) as data:
            for _ in range(size_bytes // 100_000):
                data.produce(name, 0, build_batch([Record(timestamp_ms=1, key=None, value=bytes(100_000))]))


def test_topics_are_created_listed_described_altered_and_deleted(run: Run) -> None:
    assert run("topics", "--create", "--topic", "orders", "--partitions", "2", "--replication-factor", "3") == (
        *(0, "Created topic orders.\n"),
    )
    assert run("topics", "--alter", "--topic", "orders", "--partitions", "3") == (0, "")
    code, text = run("topics", "--describe", "--topic", "orders")
    assert (code, text.count("\tPartition: ")) == (0, 3)
    assert "orders" in run("topics", "--list")[1].splitlines()
    assert run("topics", "--create", "--topic", "orders")[0] == 1
    assert run("topics", "--delete", "--topic", "orders") == (0, "")
    assert "orders" not in run("topics", "--list")[1].splitlines()


def test_a_throttled_reassignment_is_followed_by_sizes_and_verified(run: Run, cluster: LocalCluster, tmp_path: Path) -> None:
    make_topic(cluster, "moved", [0], DATA_BYTES)
    plan = plan_file(tmp_path, "moved", [1])
    of_plan = ("--reassignment-json-file", plan)
    assert run("reassign-partitions", "--execute", "--throttle", str(DATA_BYTES // 2), *of_plan)[0] == 0
    assert "adding: 1. removing: 0." in run("reassign-partitions", "--list")[1]
    assert "Adding Replicas: 1" in run("topics", "--describe", "--topic", "moved")[1]
    document = json.loads(until(run, 2, "reassign-partitions", "--progress", "--json", *of_plan))
    assert document["state"] == "running"
    code, shown = run("reassign-partitions", "--progress", "--watch", *of_plan)
    assert code == 0
    assert " behind" in shown
    code, text = run("reassign-partitions", "--verify", *of_plan)
    assert code == 0
    assert "Reassignment of partition moved-0 is completed." in text
    assert "Clearing topic-level throttles on topic moved" in text
    assert "throttled" not in run("configs", "--describe", "--topic", "moved")[1]


def test_reassignments_are_cancelled_by_file_by_topic_and_all(run: Run, cluster: LocalCluster, tmp_path: Path) -> None:
    make_topic(cluster, "stays", [0], DATA_BYTES)
    of_plan = ("--reassignment-json-file", plan_file(tmp_path, "stays", [2]))
    for choice in (of_plan, ("--topic", "stays"), ("--all",)):
        assert run("reassign-partitions", "--execute", "--throttle", "1000", *of_plan)[0] == 0
        code, text = run("reassign-partitions", "--cancel", *choice)
        assert (code, text.splitlines()[0]) == (0, "Successfully cancelled partition reassignments for: stays-0")
    assert run("reassign-partitions", "--list") == (0, "No partition reassignments found.\n")


def test_a_move_between_log_directories_runs_and_is_dropped(run: Run, cluster: LocalCluster, tmp_path: Path) -> None:
    make_topic(cluster, "dirs", [0], DATA_BYTES)
    document = json.loads(run("log-dirs", "--describe", "--broker-list", "0", "--topic-list", "dirs", "--json")[1])
    (broker,) = document["brokers"]
    (other,) = [found["logDir"] for found in broker["logDirs"] if not found["partitions"]]
    of_plan = ("--reassignment-json-file", plan_file(tmp_path, "dirs", [0], log_dirs=[other]))
    throttle = ("--replica-alter-log-dirs-throttle", "1000")
    assert run("reassign-partitions", "--execute", *throttle, *of_plan)[0] == 0
    (move,) = json.loads(run("log-dirs", "--moves", "--json")[1])["moves"]
    assert (move["topic"], move["target"], move["bytes_left"] > 0) == ("dirs", other, True)
    assert run("reassign-partitions", "--verify", *of_plan)[0] == 2
    assert run("reassign-partitions", "--cancel", *of_plan)[0] == 0
    assert run("log-dirs", "--moves") == (0, "No replica is being filled.\n")


def test_one_replica_is_moved_by_its_name_to_the_name_of_a_directory(run: Run, cluster: LocalCluster) -> None:
    make_topic(cluster, "by-name-1", [0], DATA_BYTES)
    [replica] = json.loads(run("log-dirs", "--replicas", "--partition-list", "by-name-1-0", "--json")[1])["replicas"]
    home = Path(replica["current_log_dir"])
    [other] = {*cluster.log_dirs(0)} - {home}
    move = ("reassign-partitions", "--move", "by-name-1-0", "--broker", "0", "--to")
    code, said = run(*move, other.name)
    assert (code, said.splitlines()[0].strip()) == (
        *(0, f"Successfully started moving log directory to {other} for replica by-name-1-0 with broker 0"),
    )
    watch = next(line.partition("kraftlab ")[2] for line in said.splitlines() if line.startswith("Watch it: "))
    assert run(*watch.split())[0] == 0
    already = f"Replica by-name-1-0 on broker 0 is in log directory {other} already.\n"
    wait_until(lambda: run(*move, other.name) == (0, already), "it is there")
    code, said = run("reassign-partitions", "--move", "by-name-1-0", "--broker", "1", "--to", other.name)
    assert code == 1 and "by-name-1-0 has no replica on broker 1; its brokers are 0." in said


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("metadata-quorum", "describe", "--status"), "LeaderId:               3000"),
        (("metadata-quorum", "describe", "--replication"), "Observer"),
        (("features", "describe"), "metadata.version"),
        (("cluster", "list-endpoints"), "127.0.0.1"),
        (("configs", "--describe", "--broker", "0", "--all"), "log.dirs"),
        (("configs", "--alter", "--user", "alice", "--add-config", "producer_byte_rate=1000"), "Completed updating config"),
        (("configs", "--alter", "--user", "alice", "--add-config", "SCRAM-SHA-256=[password=s]"), "Completed updating config"),
        (("leader-election", "--election-type", "preferred", "--all-topic-partitions"), "(PREFERRED)"),
        (("log-dirs", "--describe", "--format", "table"), "online"),
        (("pipeline", "plan", "cluster"), '"brokers":[{"id":0'),
        (("top", "--once", "--json"), '"faults":[]'),
        (("cluster", "health", "--wait", "30"), "Healthy."),
    ],
)
def test_other_commands_work(run: Run, command: tuple[str, ...], expected: str) -> None:
    code, text = run(*command)
    assert (code, expected in text) == (0, True), text


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            ("topics", "--alter", "--topic", "t", "--if-exists", "--replication-factor", "2"),
            "AlterReplicationFactors is a call of kraftlab's own",
        ),
        (("topics", "--list", "--linearizable"), "leave --linearizable out"),
        (("snapshot", "list"), "ListSnapshots is a call of kraftlab's own"),
        (("log-dirs", "--online", "/d1", "--broker", "0"), "OnlineLogDir is a call of kraftlab's own"),
        (("reassign-partitions", "--rollback", "friday"), "RollbackPlan is a call of kraftlab's own"),
        (("reassign-partitions", "--forget", "friday"), "ForgetPlans is a call of kraftlab's own"),
        (("cluster", "unregister", "--id", "9", "--expected-epoch", "1"), "no --expected-epoch"),
    ],
)
def test_a_command_of_our_own_is_refused_by_name(run: Run, command: tuple[str, ...], reason: str) -> None:
    code, text = run(*command)
    assert (code, reason in text) == (1, True), text


@pytest.mark.parametrize(
    "option",
    [("--queue",), ("--plan-id", "p"), ("--if-unchanged",), ("--validate-only",), ("--throttle-ends-with-move",)],
)
def test_an_option_that_kafka_lacks_is_refused_before_throttles_are_set(
    run: Run, cluster: LocalCluster, tmp_path: Path, option: tuple[str, ...]
) -> None:
    topic = f"kept{option[0]}"
    make_topic(cluster, topic, [0])
    plan = plan_file(tmp_path, topic, [1])
    code, text = run("reassign-partitions", "--execute", "--throttle", "1000", "--reassignment-json-file", plan, *option)
    assert (code, f"no {option[0]}" in text) == (1, True), text
    assert "throttled" not in run("configs", "--describe", "--topic", topic)[1]


def test_records_are_deleted_at_the_leader(run: Run, cluster: LocalCluster, tmp_path: Path) -> None:
    make_topic(cluster, "short", [1], 300_000)
    path = tmp_path / "offsets.json"
    path.write_text('{"version":1,"partitions":[{"topic":"short","partition":0,"offset":2}]}')
    code, text = run("delete-records", "--offset-json-file", str(path))
    assert (code, "partition: short-0\tlow_watermark: 2" in text) == (0, True)


def test_the_python_client_speaks_kafka_by_its_scheme(cluster: LocalCluster) -> None:
    with AdminClient(f"kafka://{cluster.kafka_bootstrap_servers}") as client:
        assert client.create_topic("python", partitions=2, replication_factor=2)
        assert [partition.partition_index for partition in client.describe_topics(["python"])["python"].partitions] == [0, 1]
        with pytest.raises(ApiError) as refused:
            client.open_stream()
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_the_consoles_write_and_read_records(
    run: Run, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(cluster, "lines", [2])
    path = tmp_path / "lines.txt"
    path.write_text("one\ntwo\nthree\n")
    with path.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert run("console-producer", "--topic", "lines") == (0, "3 records to lines-0, offsets 0 to 2\n")
    code, text = run("console-consumer", "--topic", "lines", "--from-beginning", "--max-messages", "3", "--json")
    assert (code, [json.loads(line)["value"] for line in text.splitlines()[:3]]) == (0, ["one", "two", "three"])
    code, text = run("console-consumer", "--topic", "lines", "--partition", "0", "--offset", "2", "--timeout-ms", "100", "--json")
    assert (code, [json.loads(line)["offset"] for line in text.splitlines()[:-1]]) == (0, [2])


def test_batches_are_numbered_and_what_needs_our_own_nodes_is_refused(cluster: LocalCluster) -> None:
    make_topic(cluster, "numbered", [0])
    batch = build_batch([Record(timestamp_ms=1, key=None, value=b"v")])
    with AdminClient(f"kafka://{cluster.kafka_bootstrap_servers}") as admin, KafkaDataClient(admin) as data:
        assert [data.produce("numbered", 0, batch).base_offset for _ in range(3)] == [0, 1, 2]
        stored = validate(data.fetch("numbered", 0, 0).records)
        assert [header.base_sequence for _, header in stored] == [0, 1, 2]
        assert data.bounds("numbered", 0) == (0, 3)
        with pytest.raises(ApiError, match="acks=0 needs the peer ports"):
            data.produce("numbered", 0, batch, acks=0)
        with pytest.raises(ApiError, match="peer ports"):
            data.offset_for("numbered", 0, 0)


def test_controllers_answer_over_the_kafka_protocol_too(run: Run, cluster: LocalCluster) -> None:
    controller = str(next(node.kafka for node in cluster.plan.nodes if node.role == "controller"))
    assert run("reassign-partitions", "--list", "--bootstrap-controller", controller)[0] == 0
    code, text = run("cluster", "list-endpoints", "--bootstrap-controller", controller)
    assert (code, text.splitlines()[1].split()[0]) == (0, "3000")


def test_a_grpc_endpoint_that_is_called_a_kafka_listener_is_reported(cluster: LocalCluster) -> None:
    client = AdminClient(f"kafka://{cluster.node(0).grpc}", timeout_ms=500)
    with client, pytest.raises(ClusterUnreachable, match="does not speak the Kafka protocol as asked"):
        client.describe_cluster()
