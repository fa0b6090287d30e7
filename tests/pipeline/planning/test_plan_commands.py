"""`kraftlab pipeline plan` on files, and one plan from a real cluster through `reassign-partitions --execute` to `--verify`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli import main
from kraftlab.cluster import LocalCluster
from kraftlab.pipeline.planning.documents import ClusterDocument, encode_cluster

DEADLINE_S = 60.0
MakeCluster = Callable[..., ClusterDocument]


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Ran:
        code = main.run(list(arguments))
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call


@pytest.fixture
def plan(run: Run) -> Run:
    return lambda *arguments: run("pipeline", "plan", *arguments)


@pytest.fixture
def cluster_file(make_cluster: MakeCluster, tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_bytes(encode_cluster(make_cluster(1, brokers=8, racks=4, new=1)))
    return str(path)


def test_a_plan_goes_from_a_file_through_all_commands(plan: Run, cluster_file: str, tmp_path: Path) -> None:
    file = str(tmp_path / "plan.json")

    proposed = plan("propose", "--input", cluster_file, "--drain", "3", "--balance", "--output", file)
    checked = plan("check", file)
    waves = plan("waves", file, "--per-broker", "2", "--throttle", "10MB", "--output", file, "--json")
    exported = plan("export", file, "--wave", "1")
    move = json.loads(exported.out)["partitions"][0]
    explained = plan("explain", file, "--topic", move["topic"], "--partition", str(move["partition"]))

    assert proposed.code == 0 and "RackAwareGoal" in proposed.out
    assert checked.code == 0 and "0 failed" in checked.out
    assert len(waves.json["waves"]) > 1 and waves.json["seconds"] > 0
    assert explained.code == 0 and "wave 1" in explained.out and "broker" in explained.out
    assert plan("explain", file, "--json").json["moves"][0]["sentences"]


def test_json_of_a_proposal_is_the_plan(plan: Run, cluster_file: str, tmp_path: Path) -> None:
    proposed = plan("propose", "--input", cluster_file, "--json")
    (tmp_path / "plan.json").write_text(proposed.out)

    assert proposed.json["format"] == "kraftlab-plan"
    assert plan("check", str(tmp_path / "plan.json"), "--json").json["findings"] == []


def test_a_reassignment_file_of_somebody_else_is_checked_too(plan: Run, cluster_file: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"version":1,"partitions":[{"topic":"t0","partition":0,"replicas":[1,2]}]}')

    without = plan("check", str(bad))
    checked = plan("check", str(bad), "--input", cluster_file, "--json")

    assert without.code == 2 and "name exactly one of" in without.err
    assert checked.code == 1
    assert "replication_factor" in {finding["check"] for finding in checked.json["findings"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("propose",), "name exactly one of --bootstrap-server, --input and --lake"),
        (("propose", "--input", "CLUSTER", "--rf", "t0"), "write --rf TOPIC=N"),
        (("propose", "--input", "CLUSTER", "--replace", "1:x"), "'x' is no number"),
        (("propose", "--input", "CLUSTER", "--max-bytes", "many"), "write it like 50TB"),
        (("propose", "--input", "CLUSTER", "--goals", "cpucapacity"), "no CPU load is measured"),
        (("propose", "--input", "/nowhere.json"), "cannot read /nowhere.json"),
        (("waves", "CLUSTER"), "is no plan"),
        (("explain", "CLUSTER", "--partition", "1"), "of which topic?"),
    ],
)
def test_wrong_use_ends_with_2_and_the_next_step(plan: Run, cluster_file: str, arguments: tuple[str, ...], said: str) -> None:
    ran = plan(*(cluster_file if word == "CLUSTER" else word for word in arguments))

    assert ran.code == 2
    assert said in ran.err


def test_goals_that_are_not_done_are_named(plan: Run) -> None:
    shown = plan("explain")

    assert shown.code == 0
    assert "CpuCapacityGoal" in shown.out and "no traffic is measured" in shown.out


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("lab"), 1, 4, 2) as running:
        yield running


def test_a_plan_from_a_live_cluster_is_executed_and_verified(lab: LocalCluster, run: Run, plan: Run, tmp_path: Path) -> None:
    server = str(lab.node(0).grpc)
    with lab.admin() as admin:
        brokers = sorted(broker.broker_id for broker in admin.describe_cluster().brokers)
        skewed = [pb.CreatableReplicaAssignment(partition_index=at, broker_ids=brokers[:2]) for at in range(8)]
        admin.create_topics([pb.CreatableTopic(name="skewed", num_partitions=-1, replication_factor=-1, assignments=skewed)])
        admin.describe_topics(["skewed"], linearizable=True)
    file, kafka = str(tmp_path / "plan.json"), tmp_path / "reassignment.json"

    proposed = plan("propose", "--bootstrap-server", server, "--goals", "count,leader", "--output", file)
    kafka.write_text(plan("export", file).out)
    checked = plan("check", file, "--bootstrap-server", server)
    executed = run("reassign-partitions", "--bootstrap-server", server, "--execute", "--reassignment-json-file", str(kafka))
    verified = _verified(run, server, kafka)

    assert proposed.code == checked.code == executed.code == 0, (proposed, checked, executed)
    assert "is completed" in verified.out and "still in progress" not in verified.out
    with lab.admin() as admin:
        (topic,) = admin.describe_topics(["skewed"], linearizable=True).topics
        held = [broker for entry in topic.partitions for broker in entry.replica_nodes]
        leads = [entry.replica_nodes[0] for entry in topic.partitions]
    assert all(3 <= held.count(broker) <= 5 for broker in brokers), proposed.out
    assert all(1 <= leads.count(broker) <= 3 for broker in brokers), proposed.out
    again = plan("propose", "--bootstrap-server", server, "--goals", "count,leader", "--json")
    assert again.json["moves"] == []


def _verified(run: Run, server: str, kafka: Path) -> Ran:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        ran = run("reassign-partitions", "--bootstrap-server", server, "--verify", "--reassignment-json-file", str(kafka))
        if "still in progress" not in ran.out or time.monotonic() > deadline:
            return ran
