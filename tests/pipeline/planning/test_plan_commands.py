"""`kraftlab pipeline plan` on files and lakes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.planning.documents import ClusterDocument, encode_cluster
from kraftlab.pipeline.storage.schemas import arrow_schema

MakeCluster = Callable[..., ClusterDocument]
Run = Callable[..., Any]


@pytest.fixture
def cluster_file(make_cluster: MakeCluster, tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_bytes(encode_cluster(make_cluster(1, brokers=8, racks=4, new=1, partitions=4)))
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


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (("--add-brokers", "8"), {"add_brokers": [8]}),
        (("--drain-dir", "3:/d0"), {"drain_dirs": [[3, "/d0"]]}),
        (("--replace", "1:8", "--balance"), {"replace": [[1, 8]], "balance": True}),
        (("--exclude-broker", "8", "--exclude-broker", "1"), {"exclude_brokers": [8, 1]}),
        (("--exclude-topic", "t*1"), {"exclude_topics": ["t*1"]}),
        (("--eps", "0.4", "--goals", "disk,logdir"), {"eps": 0.4}),
    ],
)
def test_a_plan_has_the_options_it_was_made_with(
    plan: Run, cluster_file: str, flags: tuple[str, ...], options: dict[str, Any]
) -> None:
    found = plan("propose", "--input", cluster_file, *flags, "--json").json["options"]

    assert found | options == found


@pytest.mark.parametrize(
    ("emptied", "kept"),
    [
        (("--drain", "1"), ("--exclude-topic", "t0")),
        (("--drain", "1"), ("--max-bytes", "1")),
        (("--replace", "1:8"), ("--exclude-topic", "t0")),
        (("--replace", "1:8"), ("--max-bytes", "1")),
        (("--drain-dir", "1:/d0"), ("--exclude-topic", "t0")),
    ],
)
def test_what_a_plan_does_not_empty_is_reported_by_propose_and_check(
    plan: Run, cluster_file: str, tmp_path: Path, emptied: tuple[str, str], kept: tuple[str, str]
) -> None:
    file = str(tmp_path / "plan.json")
    whole = plan("propose", "--input", cluster_file, *emptied)
    proposed = plan("propose", "--input", cluster_file, *emptied, *kept, "--output", file)
    checked = plan("check", file)

    assert whole.code == 0
    assert "not_empty" in checked.out
    assert proposed.code == checked.code == 1
    assert " stay " in proposed.out


def test_a_replication_factor_that_a_budget_does_not_allow_is_reported(plan: Run, cluster_file: str) -> None:
    whole = plan("propose", "--input", cluster_file, "--rf", "t0=4")
    short = plan("propose", "--input", cluster_file, "--rf", "t0=4", "--max-bytes", "1")

    assert (whole.code, short.code) == (0, 1)
    assert "--max-bytes is too small for the required moves" in short.out


def test_caps_bound_every_wave(plan: Run, cluster_file: str, tmp_path: Path) -> None:
    file = str(tmp_path / "plan.json")
    plan("propose", "--input", cluster_file, "--output", file)
    caps = ("--cluster", "3", "--per-broker", "3", "--per-broker-intra", "1", "--leaders", "1")
    waves = plan("waves", file, *caps, "--output", file, "--json").json["waves"]
    moving = Counter(
        move["wave"] for move in json.loads(Path(file).read_text())["moves"] if {*move["before"]} != {*move["after"]}
    )

    assert max(moving.values()) == 3
    assert max(wave["leader_changes"] for wave in waves) == 1
    assert len(waves) > len(plan("waves", file, "--json").json["waves"])


def test_all_moves_are_explained_where_all_are_asked_for(plan: Run, make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster, file = tmp_path / "cluster.json", str(tmp_path / "plan.json")
    cluster.write_bytes(encode_cluster(make_cluster(1, brokers=8, racks=4, new=1)))
    moves = plan("propose", "--input", str(cluster), "--output", file, "--json").json["moves"]
    explained = plan("explain", file, "--all").out

    assert all(f"{move['topic']}-{move['partition']}: " in explained for move in moves)
    assert "more partitions" in plan("explain", file).out and "more partitions" not in explained


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

    assert without.code == 1 and "give --bootstrap-server, or a file with --input" in without.err
    assert checked.code == 1
    assert "replication_factor" in {finding["check"] for finding in checked.json["findings"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("propose", "--input", "CLUSTER", "--bootstrap-server", "h:1"), "give at most one of --bootstrap-server, --input and"),
        (("propose", "--input", "CLUSTER", "--rf", "t0"), "write --rf TOPIC=N"),
        (("propose", "--input", "CLUSTER", "--replace", "1:x"), "'x' is not a number"),
        (("propose", "--input", "CLUSTER", "--max-bytes", "many"), "expected e.g. 50TB"),
        (("propose", "--input", "CLUSTER", "--max-bytes", "9" * 400), "is more than any disk has"),
        (("propose", "--input", "CLUSTER", "--max-bytes", "9224P"), "is more than any disk has"),
        (("propose", "--input", "CLUSTER", "--goals", "cpucapacity"), "no CPU load is measured"),
        (("propose", "--input", "/nowhere.json"), "cannot read /nowhere.json"),
        (("propose", "--input", "CLUSTER", "--rf", "t0=1", "--rf", "t0=2"), "a topic is named twice in --rf"),
        (("waves", "CLUSTER"), "is not a plan"),
        (("waves", "CLUSTER", "--throttle", "0"), "would stop all moves"),
        (("explain", "CLUSTER", "--partition", "1"), "needs --topic"),
    ],
)
def test_wrong_use_ends_with_64_and_the_next_step(plan: Run, cluster_file: str, arguments: tuple[str, ...], said: str) -> None:
    ran = plan(*(cluster_file if word == "CLUSTER" else word for word in arguments))

    assert ran.code == 64
    assert said in ran.err


def test_goals_that_are_not_done_are_named(plan: Run) -> None:
    shown = plan("explain")

    assert shown.code == 0
    assert "CpuCapacityGoal" in shown.out and "no traffic is measured" in shown.out


def test_what_ifs_are_a_line_each(plan: Run, cluster_file: str) -> None:
    swept = plan("sweep", "--input", cluster_file, "--json").json["scenarios"]

    assert [one["scenario"] for one in swept] == [
        "eps 5%",
        "eps 10%",
        "eps 20%",
        *(f"lose r{rack}" for rack in range(4)),
        "add 1",
        "add 3",
    ]
    assert all(one["problem"] == "" and one["bytes_moved"] > 0 for one in swept)


def _lake(path: Path) -> Lake:
    """Three brokers, one unregistered again and one new; four partitions; two samples, of which the later counts."""
    lake = Lake(str(path))
    states = [
        {"topic": "t", "partition": at, "replicas": [1], "isr": [1], "leader": 1, "directories": ["dir-1"], "topic_id": "T"}
        for at in range(4)
    ]
    brokers = [
        {"broker_id": id, "rack": "a", "fenced": False, "offset": id, "idx_in_batch": 0, "op": "register"} for id in (1, 2, 3)
    ] + [{"broker_id": 3, "offset": 9, "idx_in_batch": 0, "op": "unregister"}]
    sample = {"topic": "t", "is_future": False, "dir_total_bytes": 10**12, "dir_usable_bytes": 10**11, "offset_lag": 0}
    samples = [
        sample | {"sampled_ms": ms, "broker_id": 1, "dir_id": "dir-1", "path": "/d1", "partition": at, "size_bytes": size}
        for ms, size in ((1, 5), (2, 1000))
        for at in range(4)
    ] + [
        {"sampled_ms": 2, "broker_id": 2, "dir_id": "dir-2", "path": "/d2", "dir_total_bytes": 10**12, "dir_usable_bytes": 10**11}
    ]
    with lake.writing():
        for table, rows in (("silver.partition_state", states), ("silver.brokers", brokers), ("silver.log_dir_samples", samples)):
            lake.commit_arrow(pa.Table.from_pylist(rows, schema=arrow_schema(table)), table, 0, 40)
    return lake


def test_a_plan_is_made_from_a_lake_and_saved_into_it(plan: Run, tmp_path: Path) -> None:
    lake = _lake(tmp_path / "lake")

    first = plan("propose", "--lake", lake.uri, "--save", "--json")
    again = plan("propose", "--lake", lake.uri, "--save", "--json")
    other = plan("propose", "--lake", lake.uri, "--save", "--drain", "1", "--json")

    assert first.code == again.code == other.code == 0, first.err
    assert first.json["as_of_offset"] == 39
    assert {broker["id"] for broker in first.json["cluster"]["brokers"]} == {1, 2}
    assert (first.json["bytes_moved"], other.json["bytes_moved"]) == (2000, 4000)
    assert {path for move in first.json["moves"] for path in move["dirs"]} == {"/d2"}
    saved = lake.arrow("gold.plans").to_pylist()
    assert [row["plan_id"] for row in saved] == [first.json["plan_id"], other.json["plan_id"]]
    assert [row["bytes_moved"] for row in saved] == [2000, 4000]
    assert lake.arrow("gold.plan_moves").num_rows == 6
    assert lake.arrow("gold.plan_checks").num_rows == 0


def test_a_lake_without_states_is_an_error_with_the_next_step(plan: Run, tmp_path: Path) -> None:
    ran = plan("propose", "--lake", str(tmp_path))

    assert ran.code == 64 and "kraftlab pipeline build gold" in ran.err


def test_partitions_that_a_log_without_its_beginning_does_not_describe_are_left_out(plan: Run, tmp_path: Path) -> None:
    lake = _lake(tmp_path / "lake")
    known = {"topic": "t", "partition": 0, "replicas": [1, 2], "topic_id": "T", "directories": ["dir-1"]}
    states = [known, known | {"topic": None}, known | {"partition": 1, "replicas": None}]
    with lake.writing():
        lake.commit_arrow(
            pa.Table.from_pylist(states, schema=arrow_schema("silver.partition_state")), "silver.partition_state", 0, 40
        )

    made = plan("propose", "--lake", lake.uri, "--output", str(tmp_path / "plan.json"))

    assert made.code == 0 and "2 partitions with unknown topic or replicas are left out" in made.err
    assert plan("check", str(tmp_path / "plan.json")).code == 0
