"""Progress, queue, throttles, plans and replication factors against a real cluster of three controllers and three brokers."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlab.client import AdminClient, DataClient
from kraftlab.common.errors import ApiError
from kraftlab.common.sizes import bytes_text
from kraftlab.lab import LocalCluster
from kraftlab.records.record_batch import Record, build_batch

DOCUMENT = Path(__file__).parents[3] / "docs" / "reassignment.md"
DEADLINE_S = 30.0
RATE = 200_000


Run = Callable[..., Any]
CLUSTER = (3, 3, 2)


@pytest.fixture
def reassign(run: Run) -> Run:
    return lambda *arguments: run("reassign-partitions", *arguments)


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[AdminClient]:
    with cluster.admin() as client:
        yield client


def plan_file(directory: Path, topic: str, targets: dict[int, list[int]], **fields: Any) -> str:
    path = directory / f"{topic}.json"
    partitions = [{"topic": topic, "partition": number, "replicas": replicas} for number, replicas in targets.items()]
    path.write_text(json.dumps({"version": 1, "partitions": [partition | fields for partition in partitions]}))
    return str(path)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.05)


def make_topic(admin: AdminClient, run: Run, name: str, assignment: str, megabytes: float = 0.0) -> None:
    """A topic with about that much data in each partition."""
    assert run("topics", "--create", "--topic", name, "--replica-assignment", assignment).code == 0
    with DataClient(admin) as data:
        for number in range(len(assignment.split(","))):
            for _ in range(int(megabytes * 10)):
                data.produce(name, number, build_batch([Record(timestamp_ms=1, key=b"k", value=os.urandom(100_000))]))


def moves(reassign: Run) -> dict[str, Any]:
    return {f"{move['topic']}-{move['partition']}": move for move in reassign("--list", "--json").json["reassignments"]}


def replicas(admin: AdminClient, topic: str) -> list[list[int]]:
    partitions = admin.describe_topics([topic])[topic].partitions
    return [list(entry.replica_nodes) for entry in sorted(partitions, key=lambda entry: entry.partition_index)]


def test_progress_of_a_throttled_move_is_listed_and_the_throttle_can_be_lifted(
    admin: AdminClient, run: Run, reassign: Run, tmp_path: Path
) -> None:
    make_topic(admin, run, "slow", "0", megabytes=1)
    path = plan_file(tmp_path, "slow", {0: [1]})
    owned = ("--execute", "--reassignment-json-file", path, "--throttle-ends-with-move", "--throttle")
    started = reassign(*owned, str(RATE), "--reason", "test")
    assert started.code == 0
    assert f"limited to {bytes_text(RATE)}/s" in started.out and "You must run --verify" not in started.out
    wait_for(lambda: (moves(reassign).get("slow-0", {}).get("bytes_left") or 0) > 0, "bytes are reported")
    seen: list[dict[str, Any]] = []
    # The first bytes come in one piece, of which a busy machine may make a much higher rate.
    wait_for(
        lambda: seen.append(moves(reassign)["slow-0"]) or 0 < (seen[-1]["bytes_per_second"] or 0) < 2 * RATE,
        "and how fast they come, as limited",
    )
    move = seen[-1]
    assert move["eta_ms"] >= 1000 * move["bytes_left"] // RATE
    assert (move["throttle"], move["initiator"], move["reason"]) == (RATE, "User:ANONYMOUS", "test")
    assert move["blockers"][0]["state"] == "THROTTLED"
    assert 0.8e6 < move["bytes_done"] + move["bytes_left"] < 1.2e6
    details = reassign("--list", "--details").out
    assert details.startswith("Current partition reassignments:\nslow-0: replicas: 1,0. adding: 1. removing: 0.\n")
    assert "THROTTLED" in details and "/s" in details
    topics = tmp_path / "topics.json"
    topics.write_text('{"version":1,"topics":[{"topic":"slow"}]}')
    generated = reassign("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "0", "--json").json
    plans = [generated[name]["partitions"][0]["replicas"] for name in ("current", "proposed")]
    assert plans == [[0], [0]], "the factor is that of the target, without the replica that leaves"
    watched = reassign("--progress", "--reassignment-json-file", path)
    assert watched.code == 2 and "slow   0          1       Behind: " in watched.out
    assert run("configs", "--describe", "--entity-type", "brokers", "--entity-name", "1").out.count("throttled.rate=") == 0
    assert reassign(*owned, "0", "--additional").code == 0
    wait_for(lambda: replicas(admin, "slow") == [[1]], "it is done")
    assert reassign("--list").out == "No partition reassignments found.\n"
    done = reassign("--progress", "--watch", "--reassignment-json-file", path)
    assert (done.code, done.out.splitlines()[-1]) == (0, "slow   0          1       In sync")


def test_queued_moves_run_one_after_the_other_across_a_failover(
    cluster: LocalCluster, admin: AdminClient, run: Run, reassign: Run, tmp_path: Path
) -> None:
    make_topic(admin, run, "queued", "0,0,0,0", megabytes=0.2)
    cap = ("configs", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config")
    assert run(*cap, "reassignment.max.moves.per.broker=1").code == 0
    path = plan_file(tmp_path, "queued", {number: [1] for number in range(4)})
    started = reassign(
        "--execute", "--reassignment-json-file", path, "--queue", "--throttle", str(RATE), "--throttle-ends-with-move"
    )
    assert "Waiting for free slots: queued-1,queued-2,queued-3" in started.out
    document = reassign("--list", "--json").json
    assert [entry["partition"] for entry in document["queued"]] == [1, 2, 3]
    assert "keeps broker" in document["queued"][0]["waits_for"]
    assert reassign("--cancel", "--reassignment-json-file", plan_file(tmp_path, "queued", {3: [1]})).code == 0
    leader = admin.describe_quorum().leader_id
    cluster.kill_node(leader)
    seen: set[str] = set()

    def is_done() -> bool:
        try:
            now = moves(reassign)
        except (json.JSONDecodeError, KeyError):
            return False
        assert len(now) <= 1, "never more than the cap"
        seen.update(now)
        return replicas(admin, "queued") == [[1], [1], [1], [0]]

    wait_for(is_done, "all but the cancelled one are moved")
    assert "queued-2" in seen
    cluster.start_node(leader)
    cluster.wait_ready()
    assert run(*cap, "reassignment.max.moves.per.broker=10").code == 0


def test_a_plan_is_rolled_back_by_its_name_order_and_directories_included(
    cluster: LocalCluster, admin: AdminClient, run: Run, reassign: Run, tmp_path: Path
) -> None:
    make_topic(admin, run, "plan", "0:1,1:0", megabytes=0.2)

    def where(broker: int) -> list[str]:
        return [found.log_dir for found in admin.describe_log_dirs(broker, [("plan", 0)]) if found.replicas]

    [before] = where(1)
    [other] = [str(path) for path in cluster.log_dirs(1) if str(path) != before]
    path = plan_file(tmp_path, "plan", {0: [1, 2], 1: [0, 1]}, log_dirs=["any", "any"])
    document = json.loads(Path(path).read_text())
    document["partitions"][0]["log_dirs"] = [other, "any"]
    Path(path).write_text(json.dumps(document))
    assert reassign("--execute", "--reassignment-json-file", path, "--plan-id", "friday").code == 0
    wait_for(lambda: replicas(admin, "plan") == [[1, 2], [0, 1]] and where(1) == [other], "it is as planned")
    assert "friday" in reassign("--list", "--details").out
    preview = reassign("--rollback", "friday", "--validate-only")
    assert "plan-0: would be replicas: 0,1,2. adding: 0. removing: 2." in preview.out
    assert replicas(admin, "plan") == [[1, 2], [0, 1]]
    done = reassign("--rollback", "friday")
    assert done.out.startswith("Successfully started the rollback of plan friday for partitions plan-0,plan-1\n")
    wait_for(lambda: replicas(admin, "plan") == [[0, 1], [1, 0]] and where(1) == [before], "all is as before")
    again = reassign("--rollback", "friday", "--force")
    assert (again.code, again.out.startswith("Nothing to roll back: all partitions of plan friday are as they were")) == (0, True)
    assert reassign("--forget", "friday").out == "Plan friday is forgotten; its moves go on.\n"
    assert "friday" not in reassign("--list", "--details").out
    gone = reassign("--forget", "friday")
    assert (gone.code, gone.out) == (1, "Error: There is no plan 'friday' to forget; saved plans: none.\n")
    unknown = reassign("--rollback", "monday")
    assert (unknown.code, "There is no plan 'monday' to roll back" in unknown.out) == (1, True)


def test_a_replication_factor_is_previewed_and_changed(admin: AdminClient, run: Run, reassign: Run) -> None:
    make_topic(admin, run, "factor", "0,1")
    alter = ("topics", "--alter", "--topic", "factor", "--replication-factor")
    preview = run(*alter, "2", "--validate-only")
    assert preview.out.startswith("This is the plan; nothing was changed:\nfactor-0: 0 -> 0,")
    assert replicas(admin, "factor") == [[0], [1]]
    assert "Successfully started the change of the replication factor for 2 partitions" in run(*alter, "2").out
    wait_for(lambda: not moves(reassign), "the new replicas are in sync")
    assert [len(entry) for entry in replicas(admin, "factor")] == [2, 2]
    assert run(*alter, "2").out == "Every partition has this replication factor already.\n"
    refused = run(*alter, "9")
    assert (refused.code, "only 3 brokers are active" in refused.out) == (1, True)
    assert run("topics", "--alter", "--topic", "factor", "--partitions", "3") == (0, "", "")
    assert len(replicas(admin, "factor")) == 3


def test_everything_is_cancelled_in_one_call(admin: AdminClient, run: Run, reassign: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_topic(admin, run, name, "0", megabytes=0.3)
        path = plan_file(tmp_path, name, {0: [1]})
        throttle = ("--throttle", "1000", "--throttle-ends-with-move", "--additional")
        assert reassign("--execute", "--reassignment-json-file", path, *throttle).code == 0
    assert "one-0: would be replicas: 0." in reassign("--cancel", "--topic", "one", "--validate-only").out
    assert "cancelled partition reassignments for: one-0\n" in reassign("--cancel", "--topic", "one", "--preserve-throttles").out
    assert list(moves(reassign)) == ["two-0"]
    assert "cancelled partition reassignments for: two-0\n" in reassign("--cancel", "--all", "--preserve-throttles").out
    assert reassign("--list").out == "No partition reassignments found.\n"
    assert replicas(admin, "one") == replicas(admin, "two") == [[0]]


def test_a_wrong_expected_assignment_changes_nothing(admin: AdminClient, run: Run, reassign: Run, tmp_path: Path) -> None:
    make_topic(admin, run, "expect", "0")
    with pytest.raises(ApiError, match=r"^partition expect-0: INVALID_UPDATE_VERSION\(95\): .*\[0\], not \[2\]"):
        admin.alter_partition_reassignments({("expect", 0): [1]}, expected={("expect", 0): [2]})
    with pytest.raises(ApiError, match=r"^partition expect-0: INVALID_REPLICA_ASSIGNMENT\(39\): .*9"):
        admin.alter_partition_reassignments({("expect", 0): [9]})
    with pytest.raises(ApiError, match=r"^topic nope: UNKNOWN_TOPIC_OR_PARTITION\(3\): "):
        admin.delete_topics(["nope"])
    path = plan_file(tmp_path, "expect", {0: [1]})
    preview = reassign("--execute", "--reassignment-json-file", path, "--validate-only", "--if-unchanged")
    assert "expect-0: would be replicas: 1,0. adding: 1. removing: 0." in preview.out
    assert replicas(admin, "expect") == [[0]]
    assert reassign("--execute", "--reassignment-json-file", path, "--if-unchanged").code == 0
    wait_for(lambda: replicas(admin, "expect") == [[1]], "it is done")


def test_moves_between_directories_are_shown_with_their_progress_and_watched_to_their_end(
    cluster: LocalCluster, admin: AdminClient, run: Run
) -> None:
    make_topic(admin, run, "disks", "1", megabytes=1)
    described = {found.log_dir: found.replicas for found in admin.describe_log_dirs(1, [("disks", 0)])}
    [home] = [path for path, found in described.items() if found]
    [target] = described.keys() - {home}
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert run("configs", "--alter", "--broker", "1", "--add-config", f"{rate}={RATE}").code == 0
    wait_for(lambda: admin.all_log_dirs(brokers=[1]).brokers[1].move_limit == RATE, "the broker knows its limit")
    admin.alter_replica_log_dirs(1, {("disks", 0): target})

    def shown() -> Any:
        return run("log-dirs", "--moves", "--topic-list", "disks", "--json").json

    wait_for(lambda: any(move["bytes_per_second"] for move in shown()["moves"]), "the move has a rate")
    [move] = shown()["moves"]
    assert (move["broker"], move["log_dir"], move["target"], move["limit"]) == (1, home, target, RATE)
    assert move["between_log_dirs"] and move["bytes_left"] > 0 and move["eta_ms"] > 0
    [replica] = run("log-dirs", "--replicas", "--partition-list", "disks-0", "--json").json["replicas"]
    assert (replica["current_log_dir"], replica["future_log_dir"]) == (home, target)
    assert f"disks-0  1       {home}" in run("log-dirs", "--describe", "--dir-list", target, "--format", "table").out
    assert run("configs", "--alter", "--broker", "1", "--delete-config", rate).code == 0
    watched = run("log-dirs", "--moves", "--topic-list", "disks", "--watch")
    assert (watched.code, watched.out.splitlines()[-1]) == (0, "No replica is being filled.")
    assert [found.log_dir for found in admin.describe_log_dirs(1, [("disks", 0)]) if found.replicas] == [target]


def test_the_documented_moves_between_directories_go_as_documented(cluster: LocalCluster, run: Run, tmp_path: Path) -> None:
    """The two sections of docs/reassignment.md: each command, and the lines below it. "…" stands for other lines."""
    document = DOCUMENT.read_text().replace("/tmp/lab", str(cluster.directory))
    section = document.partition("## A plan with log directories")[2].partition("## Fields of a request")[0]
    plan = tmp_path / "plan.json"
    plan.write_text(section.partition("```json")[2].partition("```")[0])
    blocks = re.findall(r"^    \$ kraftlab (.+)\n((?:    [^$\n].*\n)*)", section, re.MULTILINE)
    for command, below in blocks:
        ran = run(*command.replace("plan.json", str(plan)).split())
        assert ran.code == 0, ran
        expected = [line.strip() for line in below.splitlines()]
        said = [line.strip() for line in ran.lines]
        if "…" in expected:
            assert {*expected} - {"…"} <= {*said}, ran
        else:
            assert said == expected
    assert len(blocks) == 7


@pytest.mark.nightly
def test_a_move_between_directories_is_in_progress_everywhere_until_it_ends_and_a_dead_broker_keeps_no_throttle(
    cluster: LocalCluster, admin: AdminClient, run: Run, reassign: Run, tmp_path: Path
) -> None:
    make_topic(admin, run, "disk", "2", megabytes=1)
    paths = {str(path) for path in cluster.log_dirs(2)}
    [before] = [found.log_dir for found in admin.describe_log_dirs(2, [("disk", 0)]) if found.replicas]
    [target] = paths - {before}
    file = ("--reassignment-json-file", plan_file(tmp_path, "disk", {0: [2]}, log_dirs=[target]))
    assert reassign("--execute", *file, "--replica-alter-log-dirs-throttle", "20000").code == 0

    progress = reassign("--progress", *file)
    assert progress.code == reassign("--verify", *file).code == 2
    assert f"Moving to {target}: " in progress.out and " left" in progress.out
    assert reassign("--progress", *file, "--json").json["replicas"][0]["bytes_behind"] > 0

    cluster.kill_node(2)
    wait_for(lambda: 2 not in [each.broker_id for each in admin.describe_cluster().brokers], "it is fenced")
    down = reassign("--verify", *file)
    assert (down.code, down.out.splitlines()[-1]) == (
        2,
        "Partition disk-0 on broker 2 cannot be checked: broker 2 does not answer.",
    )
    assert "Broker is down" in (progress := reassign("--progress", *file)).out and progress.code == 2
    cancelled = reassign("--cancel", *file)
    assert cancelled.code == 1 and "Broker 2 does not answer: its moves" in cancelled.out
    assert "Clearing broker-level throttles on brokers 0,1,2" in cancelled.out
    assert run("configs", "--describe", "--entity-type", "brokers", "--entity-name", "2").out.count("max.bytes") == 0

    cluster.start_node(2)
    cluster.wait_ready()
    done = reassign("--progress", "--watch", *file)
    assert (done.code, done.out.splitlines()[-1].split()) == (0, ["disk", "0", "2", "In", "sync"])
    assert reassign("--verify", *file).code == 0
