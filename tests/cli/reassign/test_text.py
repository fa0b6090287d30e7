"""Lines are compared with recorded runs of Kafka's tool. Where it prints sets in no order, ours are sorted."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest

from kraftlab.cli.output import CommandFailed
from kraftlab.cli.reassign import text
from kraftlab.cli.reassign.command import check_usage
from kraftlab.cli.reassign.plan import Plan, parse_plan
from kraftlab.cli.reassign.text import Answer, LogDirMoveState, OngoingReassignment, PartitionState, Progress

BROKERS = (0, 1, 2, 3)


def plan_of(captured, name: str) -> Plan:
    return parse_plan(captured(name))


def unordered(lines: list[str]) -> list[str]:
    """Kafka prints the topics of the last line in no order."""
    head, _, topics = lines[-1].rpartition(" ")
    return [*lines[:-1], f"{head} {','.join(sorted(topics.split(',')))}"]


def current_replicas(captured) -> dict[tuple[str, int], tuple[int, ...]]:
    return parse_plan(captured("assignment.json")).targets()


def test_verify_of_a_plan_that_was_never_executed(transcript, captured) -> None:
    plan = plan_of(captured, "plan.json")
    current = current_replicas(captured)
    states = {key: PartitionState(current[key], target, False) for key, target in plan.targets().items()}
    lines = text.verify_lines(states, {}) + text.cleared_lines(BROKERS, plan.topics())
    assert lines == unordered(transcript("021").stdout)
    assert text.overall(states.values()) is Progress.WRONG


def test_verify_of_a_plan_that_runs(transcript, captured) -> None:
    plan = plan_of(captured, "plan-dirs.json")
    recorded = transcript("026").stdout
    running = {line.split()[3] for line in recorded if line.startswith("Reassignment of partition") and "progress" in line}
    states = {key: PartitionState(target, target, text.name(key) in running) for key, target in plan.targets().items()}
    moving = {line.split()[3] for line in recorded if line.startswith("Reassignment of replica") and "progress" in line}
    moves = {
        replica: LogDirMoveState(path, "/elsewhere", path)
        if "-".join(map(str, replica)) in moving
        else LogDirMoveState(path, path)
        for replica, path in plan.moves().items()
    }
    assert text.verify_lines(states, moves) == recorded
    assert text.overall([*states.values(), *moves.values()]) is Progress.RUNNING


def test_verify_of_a_plan_that_is_done(transcript, captured) -> None:
    plan = plan_of(captured, "plan-dirs.json")
    states = {key: PartitionState(target, target, False) for key, target in plan.targets().items()}
    moves = {replica: LogDirMoveState(path, path) for replica, path in plan.moves().items()}
    lines = text.verify_lines(states, moves) + text.cleared_lines(BROKERS, plan.topics())
    assert lines == unordered(transcript("036").stdout)
    assert text.overall([*states.values(), *moves.values()]) is Progress.DONE


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (LogDirMoveState("/d1", "/d2", "/d3"), "Partition t-0 on broker 2 is being moved to log dir /d3 instead of /d1."),
        (LogDirMoveState("/d1", "/d2"), "Partition t-0 on broker 2 is not being moved from log dir /d2 to /d1."),
        (
            LogDirMoveState("/d1"),
            "Partition t-0 is not found in any live log dir on broker 2. There is likely an offline log directory on the broker.",
        ),
        (
            LogDirMoveState("/d1", answer=Answer.UNREGISTERED),
            "Partition t-0 cannot be found in any live log directory on broker 2.",
        ),
    ],
)
def test_every_other_state_of_a_move_has_its_line(state: LogDirMoveState, line: str) -> None:
    assert text.move_state_line(("t", 0, 2), state) == line


def test_order_of_replicas_matters() -> None:
    assert PartitionState((1, 2), (2, 1), False).progress is Progress.WRONG


def test_execute_prints_kafkas_lines(transcript, captured) -> None:
    plan = plan_of(captured, "plan-dirs.json")
    recorded = transcript("022").stdout
    lines = text.rollback_lines(recorded[2]) + text.throttle_lines(40000, 20000)
    lines += [text.started_line(list(plan.targets()))]
    lines += [text.move_line(replica, path) for replica, path in plan.moves().items()]
    assert lines == recorded


def test_one_partition_is_started_in_the_singular(transcript) -> None:
    assert text.started_line([("single", 0)]) == transcript("049").stdout[-1]


def test_without_throttles_there_are_no_lines_about_throttles() -> None:
    assert text.throttle_lines(-1, -1) == []
    assert text.throttle_lines(45000, -1) == [text.THROTTLE_WARNING, "The inter-broker throttle limit was set to 45000 B/s"]


def test_errors_of_the_controller_follow_the_rollback(transcript) -> None:
    errors = {("single", 0): "The replication factor is changed from 1 to 3"}
    recorded = transcript("048").stdout
    assert text.rollback_lines(recorded[2]) + text.error_lines("Error reassigning partition(s):", errors) == recorded


def test_a_second_execution_is_refused(transcript) -> None:
    assert transcript("027").stdout == [text.RUNNING_REFUSAL]


def test_throttled_replicas_are_those_of_the_recorded_run(transcript, captured) -> None:
    moves = text.partition_moves(plan_of(captured, "plan-dirs.json"), current_replicas(captured), {})
    lists = text.throttled_replicas(moves)["orders"]
    recorded = " ".join(transcript("031").stdout)
    for key in (text.LEADER_LIST_KEY, text.FOLLOWER_LIST_KEY):
        assert f"  {key}={lists[key]} sensitive" in recorded
    assert text.throttled_brokers(moves) == BROKERS


def test_moves_that_run_keep_their_throttle_and_their_sources() -> None:
    plan = parse_plan(b'{"partitions":[{"topic":"t","partition":0,"replicas":[4,5]}]}')
    running = {("t", 0): OngoingReassignment((3, 1, 2), (3,), (2,)), ("u", 1): OngoingReassignment((9, 8), (9,), ())}
    moves = text.partition_moves(plan, {("t", 0): (3, 1, 2)}, running)
    assert moves[("t", 0)] == text.ByteFlow((1, 2), (4, 5))
    assert moves[("u", 1)] == text.ByteFlow((8,), (9,))


def test_list_of_running_reassignments(transcript) -> None:
    recorded = transcript("023").stdout
    ongoing = {}
    for line in recorded[1:]:
        match = re.fullmatch(r"(.+)-(\d+): replicas: ([\d,]+)\.(?: adding: ([\d,]+)\.)?(?: removing: ([\d,]+)\.)?", line)
        assert match is not None
        replicas, adding, removing = (tuple(map(int, (group or "").split(","))) if group else () for group in match.groups()[2:])
        ongoing[match[1], int(match[2])] = OngoingReassignment(replicas, adding, removing)
    assert text.list_lines(ongoing) == recorded
    assert text.list_lines({}) == transcript("035").stdout
    assert text.list_lines({("t", 0): OngoingReassignment((1, 2), (), (2,))})[1] == "t-0: replicas: 1,2. removing: 2."


def test_cancelled_moves_are_not_said_to_be_started() -> None:
    assert text.cancelled_move_lines({("t", 1, 2): "any", ("t", 0, 1): "/d0"}) == [
        "Cancelled the move of replica t-0 on broker 1; it stays in log directory /d0",
        "Cancelled the move of replica t-1 on broker 2.",
    ]


def test_a_preview_shows_the_log_directories_of_the_plan() -> None:
    assert text.preview_lines({("t", 0): OngoingReassignment((1,), (), ())}, {("t", 0, 1): "/d1"}) == [
        "t-0: would be replicas: 1.",
        "t-0: would be in log directory /d1 on broker 1",
    ]


def test_cancel_prints_kafkas_lines_with_one_more_line_break(transcript) -> None:
    cancelled = [("clicks", number) for number in (1, 3, 5, 7)]
    lines = [text.cancelled_line(cancelled), *text.cancelled_move_lines({}), *text.cleared_lines(BROKERS, ["clicks"])]
    recorded = transcript("032").stdout
    assert lines == [recorded[0], *recorded[1].replace("active.Clearing", "active.\nClearing").split("\n"), *recorded[2:]]
    assert text.cancelled_line([]) == "None of the specified partition reassignments are active."


def test_generate_frames_its_two_plans(transcript) -> None:
    recorded = transcript("018").stdout
    assert text.generate_lines(recorded[1], recorded[4]) == recorded


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"),
        ({"list": True, "cancel": True}, "Command must include exactly one action"),
        (
            {"list": True, "bootstrap-server": "h:1", "additional": True},
            'Option "[additional]" can\'t be used with action "[list]"',
        ),
        ({"execute": True, "bootstrap-server": "h:1"}, 'Missing required argument "[reassignment-json-file]"'),
        (
            {"list": True, "bootstrap-server": "h:1", "bootstrap-controller": "h:2"},
            "Please don't specify both --bootstrap-server and --bootstrap-controller",
        ),
        (
            {"execute": True, "bootstrap-controller": "h:1", "reassignment-json-file": "f"},
            'Option "[bootstrap-controller]" can\'t be used with action "[execute]"',
        ),
        (
            {"generate": True, "bootstrap-server": "h:1", "broker-list": "1"},
            'Missing required argument "[topics-to-move-json-file]"',
        ),
        ({"cancel", "bootstrap-server", "all", "topic"}, "Give one of"),
        ({"execute", "bootstrap-server", "reassignment-json-file", "throttle-expires"}, "--throttle-ends-with-move and"),
        (
            {"execute", "bootstrap-server", "reassignment-json-file", "watch"},
            'Option "[watch]" can\'t be used with action "[execute]"',
        ),
        ({"rollback", "bootstrap-server", "additional"}, 'Option "[additional]" can\'t be used with action "[rollback]"'),
        ({"progress", "bootstrap-server"}, 'Missing required argument "[reassignment-json-file]"'),
        ({"rollback", "bootstrap-server", "list"}, "Command must include exactly one action"),
    ],
)
def test_options_that_do_not_go_together_are_refused(given: Collection[str], said: str) -> None:
    with pytest.raises(CommandFailed) as raised:
        check_usage(given)
    assert raised.value.text.startswith(said)
    assert raised.value.exit_code == (1 if said.startswith(("Command must", "Missing required")) else 64)


def test_usage_refusals_are_those_of_kafka(transcript) -> None:
    for name, given in (("051", {"reassignment-json-file": "f"}), ("052", {"execute": True, "bootstrap-server": "h:1"})):
        with pytest.raises(CommandFailed) as raised:
            check_usage(given)
        recorded = transcript(name)
        assert (raised.value.text.splitlines()[0], raised.value.exit_code) == (recorded.stderr[0], recorded.exit_code)


def test_without_throttled_topics_no_topic_is_named() -> None:
    assert text.cleared_lines(BROKERS, ()) == ["Clearing broker-level throttles on brokers 0,1,2,3"]
