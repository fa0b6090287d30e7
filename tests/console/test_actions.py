"""Actions of the pages: the words, the command that does the same, and what is refused. No cluster is changed by a preview."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import click
import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli import main
from kraftlab.cli.output import given_options
from kraftlab.cli.reassign.command import check_usage
from kraftlab.cli.reassign.plan import parse_plan
from kraftlab.client import AdminClient
from kraftlab.client.entries import EntriesFailed
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.console.actions import ACTIONS, Order, Shown, perform
from kraftlab.console.rows import BadQuery

WHERE = ("--bootstrap-server", "127.0.0.1:1")
MOVE = {"name": "orders", "partitions": [{"partition_index": 0, "replicas": {"values": [3, 2]}, "expected_partition_epoch": 7}]}
CANCEL = {"name": "orders", "partitions": [{"partition_index": 0, "expected_replicas": {"values": [1, 2, 3]}}]}
CONFIG = "replica.alter.log.dirs.io.max.bytes.per.second"

CASES: list[tuple[str, dict[str, Any], int | None, str, str]] = [
    (
        "reassign",
        {"topics": [MOVE], "queued": True, "priority": 3, "throttle": 1000000, "plan_id": "friday", "reason": "drain it"},
        None,
        "orders-0 moves to replicas [3, 2] once slots are free, with priority 3, at most 976.6 KiB/s into each broker, "
        "if its partition epoch is still 7",
        "reassign-partitions --execute --reassignment-json-file plan.json --additional --if-unchanged --throttle-ends-with-move "
        "--throttle 1000000 --queue --priority 3 --plan-id friday --reason 'drain it'",
    ),
    (
        "reassign",
        {"topics": [MOVE], "throttle": 0},
        None,
        "orders-0 moves to replicas [3, 2], without a throttle of its own, if its partition epoch is still 7",
        "reassign-partitions --execute --reassignment-json-file plan.json --additional --if-unchanged --throttle-ends-with-move "
        "--throttle 0",
    ),
    (
        "reassign",
        {"topics": [CANCEL], "force": True},
        None,
        "orders-0: the reassignment is cancelled, and the original replicas stay",
        "reassign-partitions --cancel --reassignment-json-file plan.json --preserve-throttles --force",
    ),
    (
        "cancel-all",
        {},
        None,
        "Every running and queued reassignment of the cluster is cancelled; replicas that were being added are removed",
        "reassign-partitions --cancel --all --preserve-throttles",
    ),
    (
        "cancel-all",
        {"topics": {"names": ["a", "b"]}, "force": True},
        None,
        "Every running and queued reassignment of a, b is cancelled; replicas that were being added are removed",
        "reassign-partitions --cancel --topic a --topic b --preserve-throttles --force",
    ),
    (
        "roll-back",
        {"rollback_plan_id": "friday", "throttle": 1024, "queued": True},
        None,
        "The partitions of plan friday get the replicas, order and directories from before the plan once slots are free, "
        "at most 1.0 KiB/s into each broker",
        "reassign-partitions --rollback friday --throttle 1024 --queue",
    ),
    (
        "forget-plan",
        {"plan_ids": ["friday"]},
        None,
        "Plan friday is forgotten and can no longer be rolled back; its moves go on",
        "reassign-partitions --forget friday",
    ),
    (
        "replication-factor",
        {"topics": [{"name": "orders.v1", "replication_factor": 3}], "queued": True, "throttle": 2048, "plan_id": "three"},
        None,
        "Every partition of orders.v1 gets 3 replicas once slots are free, at most 2.0 KiB/s into each broker",
        r"topics --alter --topic 'orders\.v1' --replication-factor 3 --queue --throttle 2048 --plan-id three",
    ),
    (
        "create-topic",
        {"topics": [{"name": "new", "num_partitions": 3, "replication_factor": -1, "configs": [{"name": "k", "value": "v"}]}]},
        None,
        "Topic new is created with 3 partitions, each with the default number of replicas",
        "topics --create --topic new --partitions 3 --config k=v",
    ),
    (
        "add-partitions",
        {"topics": [{"name": "orders", "count": 8}]},
        None,
        "Topic orders has 8 partitions then; keys may go to other partitions",
        "topics --alter --topic orders --partitions 8",
    ),
    (
        "delete-topic",
        {"topics": [{"name": "a.b"}]},
        None,
        "Topic a.b is deleted with all its records, which nothing brings back",
        r"topics --delete --topic 'a\.b'",
    ),
    (
        "elect",
        {"election_type": 1, "topic_partitions": {"values": [{"topic": "orders", "partitions": [2]}]}},
        None,
        "An unclean leader is elected for orders-2",
        "leader-election --election-type unclean --topic orders --partition 2",
    ),
    (
        "elect",
        {},
        None,
        "The preferred replica becomes the leader of every partition that needs one",
        "leader-election --election-type preferred --all-topic-partitions",
    ),
    (
        "configure",
        {"resources": [{"resource_type": 4, "resource_name": "1", "configs": [{"name": CONFIG, "value": "1000"}]}]},
        None,
        f"broker 1: {CONFIG} = 1000",
        f"configs --alter --broker 1 --add-config '{CONFIG}=[1000]'",
    ),
    (
        "configure",
        {"resources": [{"resource_type": 4, "configs": [{"name": CONFIG, "config_operation": 1}]}]},
        None,
        f"all brokers: {CONFIG} is removed",
        f"configs --alter --broker-defaults --delete-config {CONFIG}",
    ),
    (
        "move-directory",
        {"dirs": [{"path": "/data/d1", "topics": [{"name": "orders", "partitions": [0]}]}]},
        1,
        "orders-0 of broker 1 moves to /data/d1; it serves from where it is meanwhile",
        "reassign-partitions --move orders-0 --broker 1 --to /data/d1",
    ),
    (
        "online",
        {"log_dir": "/data/d1"},
        1,
        "Broker 1 opens /data/d1 again; repair and mount the disk first",
        "log-dirs --online /data/d1 --broker 1",
    ),
    (
        "unregister",
        {"broker_id": 4, "expected_broker_epoch": 9},
        None,
        "Broker 4 is no longer registered. Its replicas stay assigned to it; a running broker registers again",
        "cluster unregister --id 4 --expected-epoch 9",
    ),
    (
        "transfer-leadership",
        {"voter_id": 3001},
        None,
        "The leader resigns once controller 3001 has its whole log; no acknowledged write is lost",
        "metadata-quorum transfer-leadership --to 3001",
    ),
    (
        "add-voter",
        {"voter_id": 3003},
        None,
        "Controller 3003 becomes a voter once it has the leader's log",
        "metadata-quorum add-controller --config controller-3003.properties",
    ),
    (
        "remove-voter",
        {"voter_id": 3001, "voter_directory_id": "AAAAAAAAAAAAAAAAAAAAAQ"},
        None,
        "Controller 3001 becomes an observer; a majority of the remaining voters must be up",
        "metadata-quorum remove-controller -i 3001 -d AAAAAAAAAAAAAAAAAAAAAQ",
    ),
    (
        "snapshot",
        {},
        3000,
        "Node 3000 writes a snapshot of the records that it has applied",
        "snapshot create --node 3000",
    ),
]
NAMES = [f"{name}-{place}" for place, (name, *_) in enumerate(CASES)]


class Recorder(AdminClient):
    """A client that records requests in place of sending them, and refuses with `refusal`. A check says that broker 3 is added.
    `told`: directories that a broker was told, with the number of requests before.
    """

    speaks_kafka = False

    def __init__(self, refusal: ApiError | None = None) -> None:
        self.sent: list[Any] = []
        self.told: list[tuple[int, Mapping[Any, str], int]] = []
        self.refusal = refusal

    def call(self, answer: type[Any], request: Any, **options: object) -> Any:
        self.sent.append(request)
        if self.refusal is not None:
            raise self.refusal
        found = answer()
        if isinstance(found, pb.AlterPartitionReassignmentsResponse) and request.validate_only:
            found.responses.add(name="orders").partitions.add(adding_replicas=[3])
        return found

    def alter_replica_log_dirs(self, broker_id: int, moves: Mapping[Any, str], **options: Any) -> Any:
        self.told.append((broker_id, moves, len(self.sent)))

    def incremental_alter_configs(self, resources: Any, **options: Any) -> Any:
        request = pb.IncrementalAlterConfigsRequest(resources=resources, validate_only=options["validate_only"])
        return self.call(pb.IncrementalAlterConfigsResponse, request)


def preview(name: str, request: dict[str, Any], node: int | None = None) -> tuple[Shown, Recorder]:
    client = Recorder()
    return perform(name, Order(request, preview=True, node=node), client, WHERE), client


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], click.Context]:
    """Parse a shown command line as `kraftlab` does, without running it, and return the context of the innermost command."""
    seen: list[click.Context] = []
    monkeypatch.setattr(click.Command, "invoke", lambda command, context: seen.append(context))

    def parse(line: str) -> click.Context:
        name, *arguments = shlex.split(line)
        assert name == "kraftlab"
        main.build().main(arguments, "kraftlab", standalone_mode=False)
        return seen[-1]

    return parse


def test_every_action_has_a_case() -> None:
    assert {name for name, *_ in CASES} == {*ACTIONS}


@pytest.mark.parametrize(("name", "request_", "node", "words", "command"), CASES, ids=NAMES)
def test_an_action_says_what_happens_and_shows_its_command(
    name: str, request_: dict[str, Any], node: int | None, words: str, command: str
) -> None:
    shown, _ = preview(name, request_, node)
    assert shown.words[0] == words
    assert shown.command.splitlines()[-1] == f"kraftlab {command} {shlex.join(WHERE)}"


@pytest.mark.parametrize(("name", "request_", "node", "words", "command"), CASES, ids=NAMES)
def test_the_shown_command_is_one_of_kraftlab(
    parsed: Callable[[str], click.Context],
    name: str,
    request_: dict[str, Any],
    node: int | None,
    words: str,
    command: str,
) -> None:
    context = parsed(preview(name, request_, node)[0].command.splitlines()[-1])
    assert context.command.name in command.split()[:2]
    if context.command.name == "reassign-partitions":
        assert check_usage(given_options(context.params)) in command


@pytest.mark.parametrize(("name", "request_", "node", "words", "command"), CASES, ids=NAMES)
def test_a_preview_asks_for_a_check_or_asks_nothing(
    name: str, request_: dict[str, Any], node: int | None, words: str, command: str
) -> None:
    shown, client = preview(name, request_, node)
    assert [each.validate_only for each in client.sent] == ([True] if shown.checked else [])


UNKNOWN = [{"header": {}}, {"validate_only": True}, {"validateOnly": True}, {"initiator": "User:root"}, {"colour": "blue"}]


@pytest.mark.parametrize("request_", UNKNOWN)
@pytest.mark.parametrize("name", [*ACTIONS])
def test_headers_and_unknown_fields_are_refused(name: str, request_: dict[str, Any]) -> None:
    with pytest.raises(BadQuery, match="a request of the console has no field"):
        preview(name, request_, 1)


@pytest.mark.parametrize(
    ("name", "request_", "why"),
    [
        ("delete-topic", {"topics": [{"name": "a.b"}], "topic_names": ["other"]}, "no field 'topic_names'"),
        ("delete-topic", {"topics": [{"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}]}, "no field 'topic_id'"),
        ("elect", {"election_type": 99}, "0 elects preferred leaders"),
        ("elect", {"topic_partitions": {}}, "names no partition"),
        ("cancel-all", {"topics": {"names": []}}, "names no topic"),
    ],
)
def test_what_the_words_cannot_say_is_refused(name: str, request_: dict[str, Any], why: str) -> None:
    with pytest.raises(BadQuery, match=why):
        preview(name, request_, 1)


@pytest.mark.parametrize(("topic", "replicas"), [(MOVE, [3, 2]), (CANCEL, [1, 2, 3])])
def test_the_file_of_a_move_is_a_plan_that_the_command_reads(topic: dict[str, Any], replicas: list[int]) -> None:
    shown, _ = preview("reassign", {"topics": [topic]})
    found = re.fullmatch(r"cat > plan\.json <<'END'\n(.*)\nEND\nkraftlab .*", shown.command)
    assert found is not None
    assert parse_plan(found[1].encode()).targets() == {("orders", 0): tuple(replicas)}
    assert json.loads(found[1])["version"] == 1


@pytest.mark.parametrize(
    ("name", "request_", "reason"),
    [
        ("reassign", {"topics": [MOVE, CANCEL]}, "two requests"),
        ("reassign", {"topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]}, "expected_replicas"),
        ("reassign", {"topics": [MOVE], "force": True}, "`force` is for cancels"),
        ("forget-plan", {"plan_ids": ["a", "b"]}, "about one thing"),
        ("replication-factor", {"topics": [{"name": "t", "replication_factor": 2}], "reason": "x"}, "no field 'reason'"),
        ("create-topic", {"topics": [{"name": "t", "assignments": [{"partition_index": 0}]}]}, "no field 'assignments'"),
        ("add-partitions", {"topics": [{"name": "t", "count": 2, "assignments": {}}]}, "no field 'assignments'"),
        ("configure", {"resources": [{"resource_type": 8, "configs": [{"name": "k"}]}]}, "a topic .2. or a broker .4."),
        ("configure", {"resources": [{"resource_type": 2, "configs": [{"name": "k", "config_operation": 2}]}]}, "is set .0."),
        ("move-directory", {"dirs": [{"path": "any", "topics": [{"name": "t", "partitions": [0]}]}]}, "ends a move"),
        ("paint", {}, "there is no action 'paint'"),
    ],
)
def test_a_request_that_no_command_does_is_refused(name: str, request_: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadQuery, match=reason):
        preview(name, request_, 1)


def test_a_move_into_directories_tells_them_to_brokers_of_new_replicas_before_it_starts() -> None:
    client = Recorder()
    order = Order({"topics": [MOVE]}, log_dirs={"orders-0": ("/data/d1", "/data/d2")})
    shown = perform("reassign", order, client, WHERE)
    checks, start = (each.validate_only for each in client.sent)
    assert (checks, start) == (True, False)
    assert client.told == [(3, {("orders", 0): "/data/d1"}, 1), (2, {("orders", 0): "/data/d2"}, 2)]
    assert json.loads(shown.command.splitlines()[1])["partitions"][0]["log_dirs"] == ["/data/d1", "/data/d2"]
    assert shown.words[1:] == ["orders-0 on broker 3 goes to /data/d1", "orders-0 on broker 2 goes to /data/d2"]


def test_directories_that_do_not_match_the_replicas_are_refused() -> None:
    for log_dirs, reason in (({"orders-0": ("/d",)}, "2 replicas and 1 log_dirs"),):
        with pytest.raises(BadQuery, match=reason):
            perform("reassign", Order({"topics": [MOVE]}, log_dirs=log_dirs), Recorder(), WHERE)
    with pytest.raises(BadQuery, match="takes no `log_dirs`"):
        perform("cancel-all", Order({}, log_dirs={"t-0": ("/d",)}), Recorder(), WHERE)


def test_apache_kafka_starts_and_cancels_moves_without_a_check_and_without_expectations() -> None:
    client = Recorder()
    client.speaks_kafka = True
    shown = perform("reassign", Order({"topics": [CANCEL]}, preview=True), client, WHERE)
    assert (shown.checked, client.sent) == (False, [])
    perform("reassign", Order({"topics": [CANCEL]}), client, WHERE)
    assert not client.sent[0].topics[0].partitions[0].HasField("expected_replicas")


def test_an_action_at_a_node_needs_the_node() -> None:
    with pytest.raises(BadQuery, match="give its id as `node`"):
        preview("snapshot", {})


@pytest.mark.parametrize(
    ("name", "request_", "typed"),
    [
        ("reassign", {"topics": [CANCEL]}, ""),
        ("reassign", {"topics": [CANCEL], "force": True}, "force"),
        ("cancel-all", {"force": True}, "force"),
        ("roll-back", {"rollback_plan_id": "p", "force": True}, "force"),
        ("roll-back", {"rollback_plan_id": "p"}, ""),
        ("delete-topic", {"topics": [{"name": "a.b"}]}, "a.b"),
        ("elect", {"election_type": 1}, "unclean"),
        ("elect", {}, ""),
        ("unregister", {"broker_id": 4}, "broker 4"),
        ("remove-voter", {"voter_id": 3001}, "controller 3001"),
    ],
)
def test_what_cannot_be_undone_is_typed(name: str, request_: dict[str, Any], typed: str) -> None:
    assert preview(name, request_)[0].typed == typed


def test_one_is_in_the_singular() -> None:
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    assert preview("create-topic", {"topics": [topic]})[0].words == ["Topic t is created with 1 partition with 1 replica"]
    factor = {"topics": [{"name": "t", "replication_factor": 1}]}
    assert preview("replication-factor", factor)[0].words == ["Every partition of t gets 1 replica"]


def test_an_election_for_several_partitions_has_a_file() -> None:
    chosen = {"topic_partitions": {"values": [{"topic": "a", "partitions": [0, 1]}]}}
    shown, _ = preview("elect", chosen)
    assert json.loads(shown.command.splitlines()[1]) == {"partitions": [{"topic": "a", "partition": at} for at in (0, 1)]}
    assert "--election-type preferred --path-to-json-file plan.json " in shown.command


def test_a_refused_preview_names_the_refused_partitions_and_nothing_that_succeeded() -> None:
    refused = EntriesFailed([("orders-0", ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no leader"))], ["orders-1"], None)
    with pytest.raises(ApiError) as raised:
        perform("reassign", Order({"topics": [MOVE]}, preview=True), Recorder(refused), WHERE)
    assert (raised.value.code, raised.value.message) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "orders-0: no leader")
