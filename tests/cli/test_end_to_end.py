"""The commands against a real cluster of one controller and three brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kraftlab.cli import main
from kraftlab.client import AdminClient, ClusterUnreachable, DataClient
from kraftlab.lab import LocalCluster
from kraftlab.records.record_batch import Record, build_batch

pytestmark = pytest.mark.cluster

CAPTURE = Path(__file__).parents[2] / "examples" / "capture"
DEADLINE_S = 20.0

ASK = """
source <(kraftlab completion bash)
COMP_LINE=$1 COMP_POINT=${#1} COMP_CWORD=1
_kraftlab_completion kraftlab
echo "${COMPREPLY[*]}"
"""

Run = Callable[..., Any]
CLUSTER = (1, 3, 2)


def plan_file(directory: Path, *partitions: dict[str, object]) -> str:
    path = directory / "partitions.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def replicas(run: Run, topic: str) -> list[list[int]]:
    described = run("topics", "--describe", "--topic", topic, "--json").json
    return [partition["replicas"] for partition in described["topics"][0]["partitions"]]


def reply_of_bash(line: str) -> list[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    asking = ["bash", "--norc", "-c", ASK, "bash", line]
    return subprocess.run(asking, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout.split()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def verify_until_done(run: Run, path: str) -> Any:
    ran = []

    def is_done() -> bool:
        ran.append(run("reassign-partitions", "--verify", "--reassignment-json-file", path))
        return bool(ran[-1].code != 2)

    wait_for(is_done)
    return ran[-1]


def test_bash_completes_the_topics_of_a_cluster(run: Run, cluster: LocalCluster) -> None:
    run("topics", "--create", "--topic", "completed", "--partitions", "1")
    line = f"kraftlab topics --bootstrap-server {cluster.node(0).grpc} --describe --topic compl"
    wait_for(lambda: reply_of_bash(line) == ["completed"])


def test_topics_are_created_listed_described_and_deleted(run: Run) -> None:
    assert run("topics", "--create", "--topic", "life", "--replica-assignment", "0:1,1:2", "--config", "retention.ms=5000") == (
        0,
        "Created topic life.\n",
        "",
    )
    assert "life\n" in run("topics", "--list").out
    described = run("topics", "--describe", "--topic", "life").out.splitlines()
    assert "PartitionCount: 2\tReplicationFactor: 2" in described[0]
    assert "retention.ms=5000" in described[0]
    assert described[1].startswith("\tTopic: life\tPartition: 0\tLeader: 0\tReplicas: 0,1\t")
    assert run("topics", "--delete", "--topic", "life") == (0, "", "")
    assert "life" not in run("topics", "--list").out


def test_an_existing_topic_is_refused_without_if_not_exists(run: Run) -> None:
    run("topics", "--create", "--topic", "twice", "--partitions", "1", "--replication-factor", "1")
    again = run("topics", "--create", "--topic", "twice")
    assert (again.code, again.out) == (1, "Error while executing topic command : Topic 'twice' already exists.\n")
    assert run("topics", "--create", "--topic", "twice", "--if-not-exists") == (0, "", "")


def test_unknown_topics_are_refused(run: Run) -> None:
    for action in ("--describe", "--delete"):
        ran = run("topics", action, "--topic", "nope")
        assert (ran.code, ran.out) == (1, "Error while executing topic command : Topic 'nope' does not exist as expected\n")


def test_a_reassignment_is_executed_into_chosen_directories_and_verified(run: Run, cluster: LocalCluster, tmp_path: Path) -> None:
    run("topics", "--create", "--topic", "move", "--replica-assignment", "0:1")
    directories = [str(cluster.log_dirs(broker)[1]) for broker in (2, 1)]
    path = plan_file(tmp_path, {"topic": "move", "partition": 0, "replicas": [2, 1], "log_dirs": directories})
    assert run("reassign-partitions", "--verify", "--reassignment-json-file", path).code == 1
    started = run("reassign-partitions", "--execute", "--reassignment-json-file", path, "--throttle", "1000000")
    assert started.code == 0, started
    lines = started.out.splitlines()
    assert lines[0] == "Current partition replica assignment"
    assert json.loads(lines[2])["partitions"][0]["replicas"] == [0, 1]
    assert lines[-3:] == [
        "Successfully started partition reassignment for move-0",
        f"Successfully started moving log directory to {directories[1]} for replica move-0 with broker 1 ",
        f"Successfully started moving log directory to {directories[0]} for replica move-0 with broker 2 ",
    ]
    done = verify_until_done(run, path)
    assert done.code == 0, done
    assert "Clearing broker-level throttles on brokers 0,1,2" in done.out
    held = run("log-dirs", "--describe", "--broker-list", "2", "--topic-list", "move", "--json").json
    assert {d["logDir"]: len(d["partitions"]) for d in held["brokers"][0]["logDirs"]}[directories[0]] == 1
    assert run("reassign-partitions", "--list").out == "No partition reassignments found.\n"
    assert run("configs", "--describe", "--broker", "2").out == "Dynamic configs for broker 2 are:\n"


@pytest.mark.parametrize(
    ("partition", "said"),
    [
        ({"topic": "nope", "partition": 0, "replicas": [0]}, "Error: Topic nope not found.\n"),
        ({"topic": "refuse", "partition": 9, "replicas": [0]}, "Error: Unable to find partition: refuse-9\n"),
        ({"topic": "refuse", "partition": 0, "replicas": [0, 8]}, "Error: Unknown broker id 8\n"),
    ],
)
def test_plans_that_do_not_fit_the_cluster_are_refused(run: Run, tmp_path: Path, partition: dict[str, object], said: str) -> None:
    run("topics", "--create", "--topic", "refuse", "--replica-assignment", "0", "--if-not-exists")
    path = plan_file(tmp_path, partition)
    assert run("reassign-partitions", "--execute", "--reassignment-json-file", path) == (1, said, "")


def test_a_changed_replication_factor_can_be_disallowed(run: Run, tmp_path: Path) -> None:
    run("topics", "--create", "--topic", "factor", "--replica-assignment", "0")
    path = plan_file(tmp_path, {"topic": "factor", "partition": 0, "replicas": [0, 1, 2]})
    arguments = ("--execute", "--reassignment-json-file", path, "--disallow-replication-factor-change")
    ran = run("reassign-partitions", *arguments)
    assert ran.code == 1
    assert ran.out.splitlines()[-2:] == [
        "Error reassigning partition(s):",
        "factor-0: The replication factor is changed from 1 to 3",
    ]


def test_an_unknown_directory_is_refused_before_the_reassignment(run: Run, tmp_path: Path) -> None:
    run("topics", "--create", "--topic", "nodir", "--replica-assignment", "0")
    path = plan_file(tmp_path, {"topic": "nodir", "partition": 0, "replicas": [1], "log_dirs": ["/nowhere"]})
    for options in ((), ("--validate-only",), ("--queue",)):
        ran = run("reassign-partitions", "--execute", "--reassignment-json-file", path, *options)
        assert ran.code == 1
        assert ran.out.startswith("Error: Failed to alter dir for nodir-0-1: '/nowhere' is not a log directory of broker 1; it ")
        assert len(ran.out.splitlines()) == 1
    assert "Replicas: 0\t" in run("topics", "--describe", "--topic", "nodir").out


def test_a_throttled_reassignment_is_seen_guarded_and_cancelled(run: Run, cluster: LocalCluster, tmp_path: Path) -> None:
    run("topics", "--create", "--topic", "orders", "--replica-assignment", "0:1")
    segments = tmp_path / "segments" / "orders-0"
    segments.mkdir(parents=True)
    (source,) = (CAPTURE / "segments" / "orders-0").glob("*.log")
    (segments / source.name).write_bytes(source.read_bytes())
    assert run("import", "--directory", str(segments.parent)).code == 0
    path = plan_file(tmp_path, {"topic": "orders", "partition": 0, "replicas": [2, 1]})
    file = ("--reassignment-json-file", path)
    assert run("reassign-partitions", "--execute", *file, "--throttle", "10000").code == 0
    listed = run("reassign-partitions", "--list")
    assert listed.out == "Current partition reassignments:\norders-0: replicas: 2,1,0. adding: 2. removing: 0.\n"
    assert run("reassign-partitions", "--list", "--json").json["reassignments"][0]["original_replicas"] == [0, 1]
    again = run("reassign-partitions", "--execute", *file)
    assert (again.code, again.out.split(".")[0]) == (1, "Cannot execute because there is an existing partition assignment")
    assert run("reassign-partitions", "--verify", *file).code == 2
    assert run("reassign-partitions", "--verify", *file, "--kafka-exit-code").code == 0
    raised = run("reassign-partitions", "--execute", "--additional", *file, "--throttle", "11000")
    assert json.loads(raised.out.splitlines()[2])["partitions"][0]["replicas"] == [0, 1], (
        "the rollback names the original replicas"
    )
    cancelled = run("reassign-partitions", "--cancel", *file)
    assert cancelled.out.splitlines() == [
        "Successfully cancelled partition reassignments for: orders-0",
        "None of the specified partition moves are active.",
        "Clearing broker-level throttles on brokers 0,1,2",
        "Clearing topic-level throttles on topic orders",
    ]
    described = run("topics", "--describe", "--topic", "orders").out
    assert "Replicas: 0,1\tIsr: 0,1\tElr" in described
    assert "throttled" not in described


def test_cancel_without_anything_to_cancel(run: Run, tmp_path: Path) -> None:
    run("topics", "--create", "--topic", "calm", "--replica-assignment", "0")
    path = plan_file(tmp_path, {"topic": "calm", "partition": 0, "replicas": [1]})
    ran = run("reassign-partitions", "--cancel", "--reassignment-json-file", path)
    assert ran.code == 0
    assert ran.out.splitlines()[:2] == [
        "None of the specified partition reassignments are active.",
        "None of the specified partition moves are active.",
    ]


def test_everything_that_runs_can_be_cancelled_at_once(run: Run, tmp_path: Path) -> None:
    run("topics", "--create", "--topic", "all", "--replica-assignment", "0:1,1:0")
    segments = tmp_path / "segments" / "all-1"
    segments.mkdir(parents=True)
    (source,) = (CAPTURE / "segments" / "orders-0").glob("*.log")
    (segments / source.name).write_bytes(source.read_bytes())
    assert run("import", "--directory", str(segments.parent)).code == 0
    path = plan_file(tmp_path, {"topic": "all", "partition": 1, "replicas": [1, 2]})
    assert run("reassign-partitions", "--execute", "--reassignment-json-file", path, "--throttle", "10000").code == 0
    assert run("reassign-partitions", "--cancel", "--all", "--json").json["cancelled"] == ["all-1"]
    assert run("reassign-partitions", "--list").out == "No partition reassignments found.\n"


def test_generate_proposes_the_same_again(run: Run, tmp_path: Path) -> None:
    run("topics", "--create", "--topic", "spread", "--replica-assignment", "0:1,0:1,0:1")
    topics = tmp_path / "topics.json"
    topics.write_text('{"version":1,"topics":[{"topic":"spread"}]}')
    arguments = ("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "0,1,2,7")
    first = run("reassign-partitions", *arguments)
    assert first.out.splitlines()[3] == "Proposed partition reassignment configuration"
    proposed = json.loads(first.out.splitlines()[4])["partitions"]
    assert [len(set(entry["replicas"])) for entry in proposed] == [2, 2, 2]
    assert run("reassign-partitions", *arguments).out.splitlines()[4] == first.out.splitlines()[4]


def test_captured_segments_are_imported_with_their_offsets(run: Run) -> None:
    run("topics", "--create", "--topic", "single", "--replica-assignment", "2:1")
    ran = run("import", "--directory", str(CAPTURE / "segments"), "--topic", "single", "--json")
    assert ran.code == 0, ran
    manifest = json.loads((CAPTURE / "manifest.json").read_text())
    (recorded,) = [entry for entry in manifest["partitions"] if entry["topic"] == "single"]
    (imported,) = ran.json["partitions"]
    assert imported["size_bytes"] == recorded["log_bytes"]
    assert imported["records"] == sum(file["records"] for file in recorded["files"])
    assert imported["log_end_offset"] == recorded["files"][-1]["last_offset"] + 1
    again = run("import", "--directory", str(CAPTURE / "segments"), "--topic", "single")
    assert again.code == 1
    assert again.err.count("\n") == 1


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Gives a command these lines to read."""
    with ExitStack() as opened:

        def give(text: str) -> None:
            path = tmp_path / "lines"
            path.write_text(text)
            monkeypatch.setattr("sys.stdin", opened.enter_context(path.open()))

        yield give


def test_lines_are_written_to_a_topic_and_read_from_it(run: Run, type_in: Callable[[str], None]) -> None:
    assert run("topics", "--create", "--topic", "lines", "--partitions", "2", "--replication-factor", "2").code == 0
    type_in("one\ntwo\n")
    assert run("console-producer", "--topic", "lines", "--partition", "1").out == "2 records to lines-1, offsets 0 to 1\n"
    type_in("k:three\n")
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    assert run("console-producer", "--topic", "lines", "--partition", "1", *keyed, "--json").json == {
        "topic": "lines",
        "records": 1,
        "partitions": [{"partition": 1, "records": 1, "base_offset": 2, "end_offset": 3}],
    }
    shown = ("--property", "print.key=true", "--property", "print.offset=true", "--max-messages", "3")
    read = run("console-consumer", "--topic", "lines", "--from-beginning", *shown)
    assert read.out == "Offset:0\tnull\tone\nOffset:1\tnull\ttwo\nOffset:2\tk\tthree\n"
    assert read.err == "Processed a total of 3 messages\n"
    last = run("console-consumer", "--topic", "lines", "--partition", "1", "--offset", "2", "--max-messages", "1", "--json").json
    assert (last["key"], last["value"], last["offset"]) == ("k", "three", 2)
    assert run("console-consumer", "--topic", "lines", "--timeout-ms", "50").out == ""


def test_a_failed_producer_reports_the_offsets_written_before(
    run: Run, type_in: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("topics", "--create", "--topic", "half", "--partitions", "1", "--replication-factor", "1").code == 0
    produce, written = DataClient.produce, []

    def give_up(data: DataClient, *arguments: Any, **options: Any) -> Any:
        if written:
            raise ClusterUnreachable("nobody answers")
        written.append(arguments)
        return produce(data, *arguments, **options)

    monkeypatch.setattr(DataClient, "produce", give_up)
    type_in("one\ntwo\n")
    ran = run("console-producer", "--topic", "half", "--batch-size", "1")
    assert (ran.code, ran.err) == (1, "Error: nobody answers; written before: half-0 up to offset 0\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("console-producer", "--topic", "absent"), "Topic absent does not exist; create it with kraftlab topics --create"),
        (("console-consumer", "--topic", "absent"), "Topic absent does not exist"),
        (("console-consumer", "--topic", "any", "--offset", "3"), "the partition is required when --offset is given"),
        (("console-consumer", "--topic", "any", "--partition", "0", "--offset", "x"), "that is not negative, earliest or latest"),
        (("console-consumer", "--topic", "any", "--partition", "0", "--offset", "9" * 20), "of at most 18 digits"),
        (
            ("console-consumer", "--topic", "any", "--partition", "0", "--offset", "3", "--from-beginning"),
            "--from-beginning and --offset exclude each other",
        ),
        (("console-consumer", "--topic", "any", "--property", "x=1"), "there is no property 'x'"),
    ],
)
def test_consoles_refuse_wrong_arguments(run: Run, arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.code == (1 if "does not exist" in said else 64)
    assert said in result.err


def test_an_invalid_line_ends_the_producer_after_the_lines_before(run: Run, type_in: Callable[[str], None]) -> None:
    assert run("topics", "--create", "--topic", "keyed", "--partitions", "1", "--replication-factor", "1").code == 0
    type_in("a:1\nbad\n")
    refused = run("console-producer", "--topic", "keyed", "--property", "parse.key=true", "--property", "key.separator=:")
    assert refused.code == 1
    assert "No key separator found on line number 2: 'bad'" in refused.err
    assert "written before: keyed-0 up to offset 0" in refused.err


def test_the_quorum_is_shown(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    server = ["metadata-quorum", "--bootstrap-server", str(cluster.node(3000).grpc), "describe"]
    assert main.run([*server, "--status"]) == 0
    assert "LeaderId:               3000\n" in capsys.readouterr().out
    assert main.run([*server, "--replication", "--human-readable"]) == 0
    assert [line.split("\t")[-2].strip() for line in capsys.readouterr().out.splitlines()] == ["Status", "Leader"] + 3 * [
        "Observer"
    ]
    assert main.run(server) == 64
    assert capsys.readouterr().err == "One of --status or --replication must be specified with describe sub-command\n"


def test_log_dirs_of_a_topic_that_does_not_exist_are_refused(run: Run) -> None:
    ran = run("log-dirs", "--describe", "--topic-list", "nope")
    assert (ran.code, ran.err) == (1, "ERROR: The given topics do not exist from --topic-list: nope\n")


def test_configs_are_set_and_removed(run: Run) -> None:
    key = "leader.replication.throttled.rate"
    assert (
        run("configs", "--alter", "--broker", "1", "--add-config", f"{key}=7").out == "Completed updating config for broker 1.\n"
    )
    assert f"  {key}=7 sensitive=false" in run("configs", "--describe", "--broker", "1").out
    assert run("configs", "--alter", "--broker", "1", "--delete-config", key).code == 0
    assert run("configs", "--describe", "--broker", "1").out == "Dynamic configs for broker 1 are:\n"
    ran = run("configs", "--alter", "--broker", "1", "--add-config", f"{key}=-7")
    assert (ran.code, ran.err) == (1, f"Error: Invalid value -7 for configuration {key}: Value must be at least 0\n")


def test_topics_and_moves_of_znodes_are_imported(run: Run, tmp_path: Path) -> None:
    topics, admin = tmp_path / "brokers" / "topics", tmp_path / "admin"
    topics.mkdir(parents=True)
    admin.mkdir()
    clicks = topics / "z-clicks.json"
    clicks.write_text('{"version": 1, "partitions": {"0": [0, 1]}}')
    moving = {"partitions": {"0": [0, 2, 1], "1": [2, 1, 0]}, "adding_replicas": {"0": [2], "1": [2]}}
    (topics / "z-orders.json").write_text(json.dumps({"version": 2, **moving, "removing_replicas": {"1": [0]}}))
    plan_file(admin, {"topic": "z-orders", "partition": 1, "replicas": []})
    (admin / "partitions.json").rename(admin / "reassign_partitions")
    words = ("import-znode", "--directory", str(tmp_path))

    checked = run(*words, "--validate-only", "--json").json
    assert (checked["created"], checked["moved"]) == (["z-clicks", "z-orders"], ["z-orders-0"])
    assert checked["partitions"][1]["target"] == [0, 2, 1]
    summary = run(*words, "--validate-only").out.splitlines()[-1]
    assert summary == "2 topics would be created, 0 exist already, 1 reassignment would be started."
    assert "z-" not in run("topics", "--list").out
    assert run(*words).code == 0
    wait_for(lambda: run("reassign-partitions", "--list").out == "No partition reassignments found.\n")
    assert (replicas(run, "z-orders"), replicas(run, "z-clicks")) == ([[0, 2, 1], [1, 0]], [[0, 1]])
    again = run(*words, "--json").json
    assert (again["created"], again["existing"]) == ([], ["z-clicks", "z-orders"])
    clicks.write_text('{"version": 1, "partitions": {"0": [2]}}')
    refused = run(*words)
    assert refused.code == 1
    assert "z-clicks-0 exists with replicas [0, 1], its znode has [2]" in refused.err


# --- more partitions, elections, deleted records


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
    plan = plan_file(tmp_path, {"topic": "led", "partition": 0, "replicas": [1, 0]})
    assert run("reassign-partitions", "--execute", "--reassignment-json-file", plan).code == 0
    path = plan_file(tmp_path, {"topic": "led", "partition": 0}, {"topic": "led", "partition": 1})
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


def test_a_failed_election_names_its_partition_and_ends_with_one(run: Run) -> None:
    ran = run("leader-election", "--election-type", "UNCLEAN", "--topic", "nope", "--partition", "0")
    said = "Error completing leader election (UNCLEAN) for partition: nope-0: UNKNOWN_TOPIC_OR_PARTITION: No such topic as nope\n"
    assert ran == (1, said, "")
    ran = run("leader-election", "--election-type", "unclean", "--topic", "nope", "--partition", "0", "--json")
    failed = [{"partition": "nope-0", "error": "UNKNOWN_TOPIC_OR_PARTITION", "message": "No such topic as nope"}]
    assert ran.json == {"election_type": "UNCLEAN", "elected": [], "not_needed": [], "failed": failed}


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
    assert ran.code == 64
    assert ran.err.endswith("See: kraftlab leader-election --help\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "write it like this"),
        ('{"partitions":[]}', "the list of partitions is empty"),
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
    path = plan_file(
        tmp_path,
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
    everything = plan_file(tmp_path, {"topic": "old", "partition": 0, "offset": -1})
    ran = run("delete-records", "--offset-json-file", everything, "--json")
    row = {"topic": "old", "partition": 0, "low_watermark": 6, "error": None, "message": None}
    assert (ran.code, ran.json) == (0, {"partitions": [row]})


def test_a_file_without_an_offset_deletes_nothing(run: Run, tmp_path: Path) -> None:
    ran = run("delete-records", "--offset-json-file", plan_file(tmp_path, {"topic": "t", "partition": 0}))
    assert ran.code == 1
    assert "t-0 has no offset" in ran.err


# --- without a cluster


def test_an_unreachable_address_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, new_port: Callable[[], int]
) -> None:
    port = new_port()
    defaults = AdminClient.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "timeout_ms", 200)
    assert main.run(["topics", "--bootstrap-server", f"127.0.0.1:{port}", "--list"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"127.0.0.1:{port}: connection refused" in error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topics", "--bootstrap-server", "nonsense", "--list"], "'nonsense' is not host:port"),
        (
            ["topics", "--bootstrap-server", "h:1"],
            "Command must include exactly one action: --create, --list, --describe, --delete",
        ),
        (
            ["topics", "--bootstrap-server", "h:1", "--create", "--topic", "t", "--linearizable"],
            'Option "[linearizable]" can\'t be used with option "[create]"',
        ),
        (["nonsense"], "No such command 'nonsense'"),
        (["reassign-partitions", "--bootstrap-server", "h:1", "--nonsense"], "No such option"),
    ],
)
def test_usage_errors_end_with_code_64(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert main.run(arguments) == 64
    assert said in capsys.readouterr().err


def test_without_a_cluster_a_command_ends_with_code_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["topics", "--list"]) == 1
    assert "no cluster is up on this machine; start one" in capsys.readouterr().err


def test_errors_are_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["storage", "info", "--config", "/nope", "--json"]) == 1
    printed = capsys.readouterr()
    assert "there is no file /nope" in json.loads(printed.out)["error"]["message"]
    assert printed.err == ""


def test_a_consumer_prints_the_records_before_a_damaged_batch_and_names_the_next_step(run: Run, cluster: LocalCluster) -> None:
    run("topics", "--create", "--topic", "rotten", "--replica-assignment", "1")
    with AdminClient(str(cluster.node(1).grpc)) as admin, DataClient(admin) as data:
        for value in (b"first", b"second", b"third"):
            data.produce("rotten", 0, build_batch([Record(None, value, 1)]))
    [segment] = [path for log_dir in cluster.log_dirs(1) for path in log_dir.glob("rotten-0/*.log")]
    content = bytearray(segment.read_bytes())
    content[content.index(b"second")] ^= 0xFF
    with open(segment, "r+b") as file:
        file.write(content)
    words = ("console-consumer", "--topic", "rotten", "--timeout-ms", "1000")
    ran = run(*words, "--from-beginning")
    assert (ran.code, ran.out) == (1, "first\n")
    processed, error = ran.err.splitlines()
    assert processed == "Processed a total of 1 message"
    assert error.startswith("Error: rotten-0: the batch at offset 1 is damaged (crc is ")
    assert "read on after it with --partition 0 --offset 2, " in error
    assert run(*words, "--partition", "0", "--offset", "2").out == "third\n"
