"""More partitions, elections and deleted records by command, against a cluster of real processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlab.broker.log.record_batch import Record, build_batch
from kraftlab.client import AdminClient, DataClient
from kraftlab.lab.local import LocalCluster

Run = Callable[..., Any]
CLUSTER = (1, 3, 1)


def write(path: Path, *partitions: dict[str, object]) -> str:
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def replicas(run: Run, topic: str) -> list[list[int]]:
    document = json.loads(run("topics", "--describe", "--topic", topic, "--json").out)
    return [partition["replicas"] for partition in document["topics"][0]["partitions"]]


def test_partitions_are_added_silently(run: Run) -> None:
    run("topics", "--create", "--topic", "grow", "--replica-assignment", "0:1")
    assert run("topics", "--alter", "--topic", "grow", "--partitions", "3") == (0, "", "")
    assert len(replicas(run, "grow")) == 3
    again = run("topics", "--alter", "--topic", "grow", "--partitions", "3")
    assert (again.code, again.out) == (1, "Error while executing topic command : Topic already has 3 partition(s).\n")


def test_partitions_are_added_as_assigned_and_those_there_keep_their_replicas(run: Run) -> None:
    run("topics", "--create", "--topic", "assigned", "--replica-assignment", "0:1")
    alter = ("topics", "--alter", "--topic", "assigned", "--partitions", "3", "--replica-assignment")
    assert run(*alter, "2:1,1:2,2:0") == (0, "", "")
    assert replicas(run, "assigned") == [[0, 1], [1, 2], [2, 0]]
    wrong = run("topics", "--alter", "--topic", "assigned", "--partitions", "5", "--replica-assignment", "0:1,0:1,0:1,0:1")
    assert wrong.code == 1
    assert "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified." in wrong.out


def test_preferred_leaders_are_elected(run: Run, tmp_path: Path) -> None:
    run("topics", "--create", "--topic", "led", "--replica-assignment", "0:1,1:0")
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"led","partition":0,"replicas":[1,0]}]}')
    assert run("reassign-partitions", "--execute", "--reassignment-json-file", str(plan)).code == 0
    path = write(tmp_path / "led.json", {"topic": "led", "partition": 0}, {"topic": "led", "partition": 1})
    assert run("leader-election", "--election-type", "preferred", "--path-to-json-file", path) == (
        0,
        "Successfully completed leader election (PREFERRED) for partitions led-0\n"
        "Valid replica already elected for partitions led-1\n",
        "",
    )
    assert run("leader-election", "--election-type", "preferred", "--all-topic-partitions") == (
        0,
        "No partition needs an election (PREFERRED)\n",
        "",
    )


def test_an_election_that_fails_says_which_and_ends_with_one(run: Run) -> None:
    ran = run("leader-election", "--election-type", "UNCLEAN", "--topic", "nope", "--partition", "0")
    said = "Error completing leader election (UNCLEAN) for partition: nope-0: UNKNOWN_TOPIC_OR_PARTITION: No such topic as nope\n"
    assert ran == (1, said, "")
    ran = run("leader-election", "--election-type", "unclean", "--topic", "nope", "--partition", "0", "--json")
    failed = [{"partition": "nope-0", "error": "UNKNOWN_TOPIC_OR_PARTITION", "message": "No such topic as nope"}]
    assert json.loads(ran.out) == {"election_type": "UNCLEAN", "elected": [], "not_needed": [], "failed": failed}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--topic", "t"],
        ["--partition", "0", "--all-topic-partitions"],
        ["--topic", "t", "--partition", "0", "--all-topic-partitions"],
    ],
)
def test_elections_need_one_way_to_say_of_which_partitions(run: Run, arguments: list[str]) -> None:
    ran = run("leader-election", "--election-type", "preferred", *arguments)
    assert ran.code == 1
    assert ran.err.endswith("See: kraftlab leader-election --help\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "write it like this"),
        ('{"partitions":[]}', "it names no partition"),
        ('{"version":2,"partitions":[{"topic":"t","partition":0}]}', "Not supported version field value 2"),
        ('{"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":0}]}', "it names t-0 twice"),
        ('{"partitions":[{"topic":"t"}]}', "partition"),
        ('{"x":' + "[" * 5_000, "write it like this"),
        ('{"partitions":[{"topic":"\udcff"}]}', "write it like this"),
    ],
)
def test_files_that_name_no_partitions_are_refused(run: Run, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "partitions.json"
    path.write_text(text, errors="surrogateescape")
    ran = run("leader-election", "--election-type", "preferred", "--path-to-json-file", str(path))
    assert ran.code == 1
    assert said in ran.err and str(path) in ran.err


def test_records_are_deleted_up_to_an_offset(run: Run, cluster: LocalCluster, tmp_path: Path) -> None:
    run("topics", "--create", "--topic", "old", "--replica-assignment", "1:0,2:0")
    with AdminClient(str(cluster.node(0).grpc)) as admin, DataClient(admin) as data:
        for _ in range(3):
            batch = build_batch([Record(None, b"value", 1_700_000_000_000)] * 2)
            assert data.produce("old", 0, batch).error == 0
    path = write(
        tmp_path / "offsets.json",
        {"topic": "old", "partition": 0, "offset": 4},
        {"topic": "old", "partition": 1, "offset": 1},
        {"topic": "nope", "partition": 0, "offset": 1},
    )
    ran = run("delete-records", "--offset-json-file", path)
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[:3] == [
        "Executing records delete operation",
        "Records delete operation completed:",
        "partition: old-0\tlow_watermark: 4",
    ]
    assert lines[3].startswith("partition: old-1\terror: OFFSET_OUT_OF_RANGE: offset 1 is not within 0 and the high watermark 0")
    assert lines[4] == "partition: nope-0\terror: UNKNOWN_TOPIC_OR_PARTITION: there is no partition nope-0"
    everything = write(tmp_path / "all.json", {"topic": "old", "partition": 0, "offset": -1})
    ran = run("delete-records", "--offset-json-file", everything, "--json")
    row = {"topic": "old", "partition": 0, "low_watermark": 6, "error": None, "message": None}
    assert (ran.code, json.loads(ran.out)) == (0, {"partitions": [row]})


def test_a_file_without_an_offset_deletes_nothing(run: Run, tmp_path: Path) -> None:
    ran = run("delete-records", "--offset-json-file", write(tmp_path / "o.json", {"topic": "t", "partition": 0}))
    assert ran.code == 1
    assert "t-0 has no offset" in ran.err
