"""`reassign-partitions --move`: mistakes are answered with what there is, before a broker is asked to move anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli import main
from kraftlab.cli.reassign.plan import PlanError, parse_partition
from kraftlab.client import ClusterUnreachable
from kraftlab.client.entries import read
from kraftlab.client.log_dirs import LogDirCalls
from kraftlab.client.results import topics_of

STORAGE_ERROR = 56


class Cluster(LogDirCalls):
    """Stands in for the client. `a-1-0` is on brokers 0, in `/data/d0`, 2, which has no log of it, and 3, which is down."""

    future: str | None = None
    asked: list[tuple[int, dict[tuple[str, int], str]]] = []

    def __init__(self, servers: str, **_: object) -> None: ...

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def describe_topics(self, names: list[str]) -> Any:
        topics = pb.DescribeTopicPartitionsResponse()
        for name in names:
            topic = topics.topics.add(name=name, error_code=0 if name == "a-1" else 3)
            if name == "a-1":
                topic.partitions.add(partition_index=0, replica_nodes=[0, 2, 3])
        return read(topics, topics_of)

    def call_broker(self, broker_id: int, answer: Any, request: Any, *, timeout_ms: int | None = None) -> Any:
        if broker_id == 3:
            raise ClusterUnreachable("broker 3 is down")
        response = pb.DescribeLogDirsResponse(broker_id=broker_id)
        for path in ("/data/d0", "/data/d1", "/x/logs", "/y/logs"):
            result = response.results.add(log_dir=path)
            if broker_id == 0 and path in ("/data/d0", self.future):
                result.topics.add(name="a-1").partitions.add(partition_index=0, is_future_key=path == self.future)
        response.results.add(log_dir="/bad", error_code=STORAGE_ERROR, error_message="bad disk")
        response.results.add(log_dir="/cordoned", is_cordoned=True)
        return response

    def alter_replica_log_dirs(self, broker: int, moves: Mapping[tuple[str, int], str]) -> pb.AlterReplicaLogDirsResponse:
        self.asked.append((broker, dict(moves)))
        return pb.AlterReplicaLogDirsResponse()


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> type[Cluster]:
    monkeypatch.setattr("kraftlab.client.AdminClient", Cluster)
    monkeypatch.setattr(Cluster, "asked", [])
    return Cluster


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main.run(["reassign-partitions", "--bootstrap-server", "127.0.0.1:1", *arguments])
    said = capsys.readouterr()
    return code, said.out + said.err


def move(capsys: pytest.CaptureFixture[str], directory: str, *others: str) -> tuple[int, str]:
    return run(capsys, "--move", "a-1-0", "--broker", "0", "--to", directory, *others)


@pytest.mark.parametrize("directory", ["d1", "d1/", "/data/d1", "/data/d1/"])
def test_a_move_is_started_and_says_how_to_watch_it_and_how_to_take_it_back(
    cluster: type[Cluster], capsys: pytest.CaptureFixture[str], directory: str
) -> None:
    assert move(capsys, directory) == (
        0,
        "Successfully started moving log directory to /data/d1 for replica a-1-0 with broker 0 \n"
        "Watch it: kraftlab log-dirs --moves --watch --partition-list a-1-0 --broker-list 0\n"
        "Cancel it, or move it back: kraftlab reassign-partitions --move a-1-0 --broker 0 --to /data/d0\n",
    )
    assert cluster.asked == [(0, {("a-1", 0): "/data/d1"})]


def test_a_replica_that_is_in_the_directory_is_not_moved(cluster: type[Cluster], capsys: pytest.CaptureFixture[str]) -> None:
    assert move(capsys, "d0") == (0, "Replica a-1-0 on broker 0 is in log directory /data/d0 already.\n")
    assert cluster.asked == []


def test_the_present_directory_cancels_a_move(
    cluster: type[Cluster], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "future", "/data/d1")
    said = "Cancelled the move of replica a-1-0 on broker 0; it stays in log directory /data/d0\n"
    assert move(capsys, "d0") == (0, said)
    assert cluster.asked == [(0, {("a-1", 0): "/data/d0"})]


def test_a_validation_moves_nothing(cluster: type[Cluster], capsys: pytest.CaptureFixture[str]) -> None:
    assert move(capsys, "d1", "--validate-only") == (0, "a-1-0: would be in log directory /data/d1 on broker 0\n")
    assert cluster.asked == []


def test_the_document_names_the_replica_and_both_directories(capsys: pytest.CaptureFixture[str]) -> None:
    states = {directory: json.loads(move(capsys, directory, "--json")[1])["state"] for directory in ("d1", "d0")}
    assert states == {"d1": "started", "d0": "in place"}
    document = json.loads(move(capsys, "d1", "--json", "--validate-only")[1])
    assert document == {"replica": "a-1-0-0", "state": "validated", "from": "/data/d0", "log_dir": "/data/d1"}


@pytest.mark.parametrize(
    ("partition", "broker", "directory", "says"),
    [
        ("a-0", "0", "d1", "Error: there is no topic 'a'; kraftlab topics --list shows all"),
        ("a-1-7", "0", "d1", "Error: topic a-1 has no partition 7; its partitions are 0 to 0"),
        (
            "a-1-0",
            "1",
            "d1",
            "Error: a-1-0 has no replica on broker 1; its brokers are 0,2,3. A move to another",
        ),
        ("a-1-0", "99999999999", "d1", "Error: a-1-0 has no replica on broker 99999999999; its brokers are 0,2,3."),
        ("a-1-0", "3", "d1", "Error: broker 3 does not describe its log directories: broker 3 is down"),
        (
            "a-1-0",
            "2",
            "d1",
            "Error: a-1-0 is in no live log directory of broker 2: it is offline, or being created; see: kraftlab",
        ),
        (
            "a-1-0",
            "0",
            "d9",
            "Error: broker 0: there is no log directory 'd9'; there are /bad, /cordoned, /data/d0, /data/d1, /x",
        ),
        ("a-1-0", "0", "any", "Error: broker 0: there is no log directory 'any'; there are /bad"),
        ("a-1-0", "0", "", "Error: broker 0: there is no log directory ''; there are /bad"),
        ("a-1-0", "0", "logs", "Error: broker 0: 'logs' may be each of /x/logs, /y/logs; give more of the path"),
        ("a-1-0", "0", "bad", "log directory /bad of broker 0 is offline: bad disk"),
        ("a-1-0", "0", "cordoned", "log directory /cordoned of broker 0 is cordoned; choose another directory"),
    ],
)
def test_a_move_that_cannot_be_is_refused(
    cluster: type[Cluster], capsys: pytest.CaptureFixture[str], partition: str, broker: str, directory: str, says: str
) -> None:
    code, said = run(capsys, "--move", partition, "--broker", broker, "--to", directory)
    assert code == 1 and says in said
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--move", "a-1", "--broker", "0"), "--move needs --broker ID and --to DIRECTORY"),
        (("--move", "a-1", "--to", "d1"), "--move needs --broker ID and --to DIRECTORY"),
        (
            ("--move", "orders", "--broker", "0", "--to", "d1"),
            "Error: --move: 'orders' is not TOPIC-PARTITION, for example orders-0",
        ),
        (("--move", "a-1", "--broker", "-1", "--to", "d1"), "Invalid value for '--broker'"),
        (("--list", "--to", "d1"), 'Option "[to]" can\'t be used with action "[list]"'),
        (
            ("--move", "a-1", "--broker", "0", "--to", "d1", "--throttle", "5"),
            'Option "[throttle]" can\'t be used with action "[move]"',
        ),
    ],
)
def test_wrong_use_is_refused(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str) -> None:
    code, said = run(capsys, *arguments)
    assert code == 64 and says in said


@pytest.mark.parametrize(("name", "partition"), [("big-0", ("big", 0)), ("a-1-0", ("a-1", 0)), ("a--1", ("a-", 1))])
def test_the_last_number_of_a_name_is_the_partition(name: str, partition: tuple[str, int]) -> None:
    assert parse_partition(name) == partition


@pytest.mark.parametrize("name", ["", "-", "-3", "big", "big-", "big-x", "big-0 ", "big-0.5", "big-٣", f"big-{'9' * 5000}"])
def test_a_name_without_a_number_is_no_partition(name: str) -> None:
    with pytest.raises(PlanError, match="is not TOPIC-PARTITION, for example orders-0"):
        parse_partition(name)
