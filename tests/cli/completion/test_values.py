"""Completion offers names in the cluster, with the servers and user of the line."""

from __future__ import annotations

from typing import Any

import pytest
from click.shell_completion import BashComplete

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli import main
from kraftlab.client.entries import read
from kraftlab.client.groups import ListedGroup
from kraftlab.client.results import AllLogDirs, BrokerLogDirs, log_dirs_of, topics_of
from kraftlab.client.security import ClientSecurity

AT = "127.0.0.1:9092"


class Cluster:
    """Stands in for the client; knows only alice."""

    def __init__(self, servers: str, *, security: ClientSecurity, timeout_ms: int, **_: object) -> None:
        assert servers == AT and timeout_ms <= 1000
        if (security.user, security.password) != ("alice", "secret"):
            raise PermissionError("who are you?")

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_topics(self) -> Any:
        topics = [pb.DescribedTopic(name=name, partitions=[pb.DescribedPartition()]) for name in ("orders", "clicks", "odd")]
        return read(pb.DescribeTopicPartitionsResponse(topics=topics), topics_of)

    def list_consumer_groups(self) -> Any:
        return [ListedGroup(name, "Empty", "classic") for name in ("readers", "billing")]

    def describe_cluster(self, *, include_fenced_brokers: bool) -> Any:
        return pb.DescribeClusterResponse(brokers=[pb.DescribedBroker(broker_id=broker) for broker in (11, 2)])

    def list_partition_reassignments(self) -> Any:
        return pb.ListPartitionReassignmentsResponse(plans=[pb.ReassignmentPlan(plan_id="friday")])

    def all_log_dirs(self, wanted: Any, *, brokers: list[int] | None = None, timeout_ms: int) -> Any:
        if brokers == [7]:
            return AllLogDirs({}, {7: "there is no such broker"})
        response = pb.DescribeLogDirsResponse(results=[pb.LogDirResult(log_dir=path) for path in ("/data/d1", "/data/d0", "/x")])
        return AllLogDirs({0: BrokerLogDirs(0, log_dirs_of(response), None)}, {})

    def call(self, answer: object, request: object) -> Any:
        return pb.ApiVersionsResponse(supported_features=[pb.SupportedFeature(name="kraft.version")])


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlab.client.AdminClient", Cluster)
    monkeypatch.setenv("KRAFTLAB_PASSWORD", "secret")


def offered(line: str, incomplete: str = "") -> list[str]:
    completion = BashComplete(main.build(), {}, "kraftlab", "_KRAFTLAB_COMPLETE")
    return [item.value for item in completion.get_completions(line.split(), incomplete)]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (f"topics --bootstrap-server {AT} --user alice --topic", ["odd", "orders"]),
        (f"leader-election --user alice --bootstrap-server {AT} --topic", ["odd", "orders"]),
        (f"import --user alice --bootstrap-server {AT} --topic", ["odd", "orders"]),
        (f"reassign-partitions --user alice --bootstrap-server {AT} --cancel --topic", ["odd", "orders"]),
    ],
)
def test_topics_are_offered_by_their_beginning(line: str, names: list[str]) -> None:
    assert offered(line, "o") == names


def test_log_directories_are_offered() -> None:
    for option in ("--describe --dir-list", "--broker 0 --online"):
        assert offered(f"log-dirs --bootstrap-server {AT} --user alice {option}", "/d") == ["/data/d0", "/data/d1"]


def test_partitions_brokers_and_directories_of_a_move_are_offered() -> None:
    line = f"reassign-partitions --bootstrap-server {AT} --user alice --move"
    assert offered(line, "o") == ["odd-0", "orders-0"]
    assert offered(f"{line} orders-0 --broker") == ["2", "11"]
    assert offered(f"{line} orders-0 --broker 2 --to", "d") == ["d0", "d1"]
    assert offered(f"{line} orders-0 --broker 2 --to", "/d") == ["/data/d0", "/data/d1"]
    assert offered(f"{line} orders-0 --broker 7 --to") == []


def test_plans_groups_brokers_and_features_are_offered() -> None:
    assert offered(f"consumer-groups --bootstrap-server {AT} --user alice --group") == ["billing", "readers"]
    assert offered(f"reassign-partitions --bootstrap-server {AT} --user alice --rollback") == ["friday"]
    assert offered(f"cluster unregister --bootstrap-server {AT} --user alice --id") == ["2", "11"]
    assert offered(f"cluster --bootstrap-server {AT} --user alice unregister --id") == ["2", "11"]
    assert offered(f"features disable --bootstrap-server {AT} --user alice --feature") == ["kraft.version"]
    assert offered(f"snapshot create --bootstrap-server {AT} --user alice --node") == ["2", "11"]


def test_nothing_is_offered_without_permission_or_cluster() -> None:
    assert offered(f"topics --bootstrap-server {AT} --topic") == []
    assert offered("topics --topic") == []


@pytest.mark.parametrize(
    "line",
    [
        "up --data",
        "cluster kill leader --data",
        "cluster status --data",
        "chaos test --store",
        "chaos check --store",
        "snapshot list --directory",
    ],
)
def test_directories_are_offered_where_one_is_wanted(line: str) -> None:
    completion = BashComplete(main.build(), {}, "kraftlab", "_KRAFTLAB_COMPLETE")
    assert [item.type for item in completion.get_completions(line.split(), "/tmp/")] == ["file"]


def test_faults_and_planted_bugs_are_offered_also_after_a_comma() -> None:
    assert offered("sim --faults", "kill,po") == ["kill,power-cut", "kill,power-cut-everywhere"]
    assert offered("sim --mutant", "vote-for") == ["vote-forgotten"]
    assert offered("mutants --only", "vote-for") == ["vote-forgotten"]
    assert offered("mutants metadata --only", "answer-") == ["answer-before-commit"]
    assert offered("mutants metadata --only", "vote-for") == []
