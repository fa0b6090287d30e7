"""`kraftlab consumer-groups` on a real cluster, with groups of kafka-python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata, TopicPartition

from kraftlab.cli.connection import SERVERS_VARIABLE
from kraftlab.client import AdminClient, EntriesFailed
from kraftlab.common.errors import ErrorCode
from kraftlab.lab.local import LocalCluster

from ...helpers.commands import Ran, run_command
from ...helpers.waiting import wait_until

OVERRIDES = {
    "group.initial.rebalance.delay.ms": "200",
    "offsets.topic.num.partitions": "3",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
}
CLUSTER = (1, 3, 1)
Run = Callable[..., Ran]
COLUMNS = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
ACTIVE = "Assignments can only be reset if the group 'active' is inactive, but the current state is Stable."


@pytest.fixture(scope="module")
def cluster(cluster: LocalCluster) -> LocalCluster:
    """Three brokers, and a topic with ten records in each of two partitions."""
    with cluster.admin() as admin:
        admin.create_topic("orders", partitions=2, replication_factor=3)
        admin.create_topic("gone", partitions=1, replication_factor=1)
    producer = KafkaProducer(bootstrap_servers=cluster.kafka_bootstrap_servers)
    for number in range(20):
        producer.send("orders", value=b"x", partition=number % 2, timestamp_ms=1_000 * (number // 2 + 1))
    producer.flush()
    producer.close()
    return cluster


@pytest.fixture(params=["grpc", "kafka"])
def run(
    request: pytest.FixtureRequest, cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs the command at gRPC endpoints, or at KAFKA listeners."""
    servers = {"grpc": cluster.bootstrap_servers, "kafka": cluster.kafka_bootstrap_servers}[request.param]
    monkeypatch.setenv(SERVERS_VARIABLE, servers)
    return lambda *arguments: run_command(capsys, "consumer-groups", *arguments)


def commit(cluster: LocalCluster, group: str, **offsets: int) -> None:
    """Commit offsets of partitions 0, as a group without members."""
    consumer = KafkaConsumer(group_id=group, bootstrap_servers=cluster.kafka_bootstrap_servers)
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1) for topic, offset in offsets.items()})
    consumer.close()


@pytest.fixture(scope="module")
def active(cluster: LocalCluster) -> Iterator[str]:
    """A group with one member, which has both partitions and committed 4 in the first."""
    where = cluster.kafka_bootstrap_servers
    consumer = KafkaConsumer("orders", group_id="active", client_id="reader", bootstrap_servers=where, enable_auto_commit=False)
    wait_until(lambda: consumer.poll(timeout_ms=50) is not None and len(consumer.assignment()) == 2, "the group is formed")
    consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(4, "", -1)})
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            consumer.poll(timeout_ms=50)

    thread = threading.Thread(target=poll)
    thread.start()
    yield "active"
    done.set()
    thread.join()
    consumer.close()


def cells(line: str) -> list[str]:
    return line.split()


def test_a_group_with_a_member_is_listed_and_described(run: Run, active: str) -> None:
    listed = run("--list", "--state", "stable", "--type").lines
    assert [cells(line) for line in listed] == [["GROUP", "TYPE", "STATE"], ["active", "Classic", "Stable"]]
    _, header, *rows = run("--describe", "--group", active).lines
    assert cells(header) == cells(COLUMNS)
    assert [cells(row)[:6] + cells(row)[7:] for row in rows] == [
        ["active", "orders", "0", "4", "10", "6", "/127.0.0.1", "reader"],
        ["active", "orders", "1", "-", "10", "-", "/127.0.0.1", "reader"],
    ]
    assert cells(run("--describe", "--group", active, "--members", "--verbose").lines[2])[-4:] == ["-", "orders:0,1", "-", "-"]
    assert cells(run("--describe", "--all-groups", "--state").lines[2])[-3:] == ["range", "Stable", "1"]


def test_a_group_with_a_member_is_neither_reset_nor_deleted(run: Run, active: str) -> None:
    reset = run("--reset-offsets", "--group", active, "--topic", "orders", "--to-earliest", "--execute")
    assert (reset.code, reset.lines[1]) == (1, f"Error: {ACTIVE}")
    deleted = run("--delete", "--group", active)
    assert (deleted.code, deleted.lines[1]) == (1, "Error: Deletion of some consumer groups failed:")
    assert "* Group 'active' could not be deleted due to: NON_EMPTY_GROUP" in deleted.out
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in run("--delete-offsets", "--group", active, "--topic", "orders").out


@pytest.mark.parametrize(
    ("specification", "offsets"),
    [
        (("--to-earliest",), {"0": "0", "1": "0"}),
        (("--to-latest",), {"0": "10", "1": "10"}),
        (("--to-current",), {"0": "3", "1": "10"}),
        (("--to-offset", "400"), {"0": "10", "1": "10"}),
        (("--to-datetime", "1970-01-01T00:00:04.500"), {"0": "4", "1": "4"}),
        (("--to-datetime", "2099-01-01T00:00:00.000"), {"0": "10", "1": "10"}),
        (("--by-duration", "P100000D"), {"0": "0", "1": "0"}),
    ],
)
def test_each_specification_names_offsets_within_the_log(
    run: Run, cluster: LocalCluster, specification: tuple[str, ...], offsets: dict[str, str]
) -> None:
    commit(cluster, "resting", orders=3)
    shown = run("--reset-offsets", "--group", "resting", "--topic", "orders", "--dry-run", *specification)
    assert (shown.code, {cells(row)[2]: cells(row)[3] for row in shown.lines[2:]}) == (0, offsets)


def test_a_reset_is_exported_executed_and_repeated_from_the_file(run: Run, cluster: LocalCluster, tmp_path: Path) -> None:
    commit(cluster, "moving", orders=3)
    scope = ("--reset-offsets", "--group", "moving", "--all-topics")
    back = run(*scope, "--shift-by", "-1000", "--execute")
    assert (back.code, cells(back.lines[2])) == (0, ["moving", "orders", "0", "0"])
    assert "WARN New offset (-997) is lower than earliest offset for topic partition orders-0. Value will be set to 0" in back.err
    exported = run(*scope, "--to-offset", "7", "--export")
    assert exported.out == "orders,0,7\n"
    path = tmp_path / "offsets.csv"
    path.write_text(exported.out)
    assert run("--reset-offsets", "--group", "moving", "--from-file", path, "--execute").code == 0
    (group,) = run("--describe", "--group", "moving", "--json").json["groups"]
    assert [(row["current_offset"], row["log_end_offset"], row["lag"]) for row in group["partitions"]] == [(7, 10, 3)]
    assert run("--delete-offsets", "--group", "moving", "--topic", "orders:0").lines[-1].split() == ["orders", "0", "Successful"]


def test_an_offset_behind_the_end_has_a_negative_lag(run: Run, cluster: LocalCluster) -> None:
    commit(cluster, "ahead", orders=50)
    assert cells(run("--describe", "--group", "ahead").lines[2])[3:6] == ["50", "10", "-40"]


def test_names_in_any_script_are_reset_described_and_deleted(run: Run) -> None:
    name = "Gruppe ☕, «одна»"
    assert run("--reset-offsets", "--group", name, "--topic", "orders:1", "--to-offset", "2", "--execute").code == 0
    assert name in run("--list").lines
    described = run("--describe", "--group", name)
    assert (described.lines[2].split()[-8:], "has no active members" in described.err) == (
        *(["orders", "1", "2", "10", "8", "-", "-", "-"], True),
    )
    assert run("--delete", "--group", name).out == f"Deletion of requested consumer groups ('{name}') was successful.\n"


def test_offsets_of_a_deleted_topic_are_no_obstacle(run: Run, cluster: LocalCluster) -> None:
    with cluster.admin() as admin:
        admin.create_topic("short-lived", replication_factor=1)
        commit(cluster, "left-over", **{"short-lived": 0, "orders": 3})
        admin.delete_topics(["short-lived"])
    wait_until(lambda: "short-lived" not in run("--describe", "--group", "left-over").out, "the offsets go with the topic")
    assert run("--reset-offsets", "--group", "left-over", "--all-topics", "--to-latest", "--execute").code == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--describe", "--group", "absent"), "due to Group absent not found."),
        (("--delete", "--group", "absent"), "* Group 'absent' could not be deleted due to: GROUP_ID_NOT_FOUND"),
        (("--delete-offsets", "--group", "absent", "--topic", "orders"), "GROUP_ID_NOT_FOUND"),
        (("--reset-offsets", "--group", "a", "--topic", "orders:7", "--to-latest"), 'The partitions "orders-7" do not exist'),
        (("--reset-offsets", "--group", "a", "--topic", "absent", "--to-latest"), "there is no topic absent"),
        (
            ("--reset-offsets", "--group", "a", "--topic", "orders:0", "--shift-by", "1"),
            "Cannot shift offset for partition orders-0",
        ),
    ],
)
def test_what_does_not_exist_is_named(run: Run, arguments: tuple[str, ...], text: str) -> None:
    ran = run(*arguments)
    assert (ran.code, text in ran.out + ran.err) == (1, True), ran


def test_groups_that_are_all_asked_for_are_named_in_the_file(run: Run, cluster: LocalCluster) -> None:
    commit(cluster, "one", orders=1)
    exported = run("--reset-offsets", "--all-groups", "--topic", "orders:0", "--to-offset", "1", "--export", "--dry-run")
    assert "one,orders,0,1" in exported.lines


def test_a_program_has_the_same_calls_and_follows_a_coordinator(cluster: LocalCluster) -> None:
    key = ("orders", 1)
    with AdminClient(cluster.bootstrap_servers) as admin:
        admin.alter_consumer_group_offsets("program", {key: 5})
        group = admin.describe_consumer_groups(["program"])["program"]
        cluster.kill_node(group.coordinator_id)
        try:
            assert admin.list_consumer_group_offsets("program")[key].offset == 5
            assert admin.list_consumer_group_offsets("program", [("orders", 0)]) == {}
            assert admin.describe_consumer_groups(["program"])["program"].coordinator_id != group.coordinator_id
        finally:
            cluster.start_node(group.coordinator_id)
            cluster.wait_ready()
        admin.delete_consumer_group_offsets("program", [key])
        with pytest.raises(EntriesFailed) as caught:
            admin.describe_consumer_groups(["program", "absent"])
        assert caught.value.failures["group absent"].code is ErrorCode.GROUP_ID_NOT_FOUND
        admin.delete_consumer_groups(["program"])
        assert "program" not in [each.group_id for each in admin.list_consumer_groups(states=["empty"])]
