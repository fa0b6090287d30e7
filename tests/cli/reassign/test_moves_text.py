"""Lines of --list --details, --progress, --rollback and --cancel."""

from __future__ import annotations

import msgspec
import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli.reassign import moves_text, text
from kraftlab.cli.reassign.text import OngoingReassignment, Progress, ReplicaState
from kraftlab.cli.tables import time_text
from kraftlab.cli.topics.text import NOT_THE_LAST, factor_lines
from kraftlab.client.results import (
    LogDirMove,
    LogDirMoves,
    LogDirReplica,
    MoveBlocker,
    Reassignments,
    ReplicaProgress,
    reassignments_of,
)
from kraftlab.common.sizes import bytes_text


@pytest.mark.parametrize(
    ("size", "shown"),
    [(None, "?"), (-1, "?"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 1024**3, "5.0 GiB"), (1024**5, "1.0 PiB")],
)
def test_bytes_are_shown_in_the_unit_that_reads_best(size: float, shown: str) -> None:
    assert bytes_text(size) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"), [(None, "?"), (0, "0s"), (1, "1s"), (59_000, "59s"), (200_000, "3m20s"), (7_500_000, "2h05m")]
)
def test_times_are_shown_in_two_units_at_most(milliseconds: int, shown: str) -> None:
    assert time_text(milliseconds) == shown


def listing() -> Reassignments:
    response = pb.ListPartitionReassignmentsResponse(has_progress=True)
    response.header.metadata_offset = 77
    moving = response.topics.add(name="t").partitions.add(
        partition_index=3,
        replicas=[2, 1],
        adding_replicas=[2],
        removing_replicas=[1],
        original_replicas=[1],
        target_replicas=[2],
        move_id="70.0",
        initiator="User:a",
        bytes_done=1024,
        bytes_left=2048,
        bytes_per_second=1024,
        eta_ms=2000,
        limit=1024,
    )
    moving.blockers.add(broker_id=2, state="THROTTLED", text="broker 2 copies within its throttle, 2.0 KiB to go")
    response.queued.add(
        topic="t", partition_index=4, position=1, move_id="70.1", replicas=[1], target_replicas=[2], size_bytes=-1
    )
    response.queued[0].waits_for = "its turn"
    response.plans.add(plan_id="friday", created_ms=0, partitions=2, running=1, queued=1, initiator="User:a")
    return reassignments_of(response)


def test_details_are_tables_of_moves_blockers_queue_and_plans() -> None:
    assert moves_text.detail_lines(listing()) == [
        "",
        "PARTITION  MOVE  FROM  TO  DONE     LEFT     RATE       ETA  THROTTLE   BY      REASON",
        "t-3        70.0  1     2   1.0 KiB  2.0 KiB  1.0 KiB/s  2s   1.0 KiB/s  User:a  -",
        "",
        "WAITS FOR  BROKER  STATE      WHY",
        "t-3        2       THROTTLED  broker 2 copies within its throttle, 2.0 KiB to go",
        "",
        "QUEUE  PARTITION  MOVE  FROM  TO  SIZE  PRIORITY  WAITS FOR",
        "1      t-4        70.1  1     2   ?     0         its turn",
        "",
        "PLAN    CREATED                   PARTITIONS  RUNNING  QUEUED  BY",
        "friday  1970-01-01T00:00:00.000Z  2           1        1       User:a",
    ]


def test_a_replica_without_an_answer_does_not_hide_the_others() -> None:
    (moving,) = listing().running
    known = ReplicaProgress(2, 1024, 512, 256.0, None)
    unknown = ReplicaProgress(3, None, None, None, None)
    part = msgspec.structs.replace(moving, bytes_done=None, bytes_left=None, eta_ms=None, progress=(known, unknown))
    none = msgspec.structs.replace(part, progress=(unknown,))
    rows = moves_text.detail_lines(msgspec.structs.replace(listing(), running=(part, none), queued=(), plans=()))
    assert rows[2].split("2  ", 1)[1].split()[:7] == ["≥1.0", "KiB", "≥512", "B", "≥256", "B/s", "?"]
    assert rows[3].split("2  ", 1)[1].split()[:4] == ["?", "?", "?", "?"]


def test_a_move_that_waits_for_a_fenced_broker_has_neither_rate_nor_eta() -> None:
    (moving,) = listing().running
    stuck = msgspec.structs.replace(
        moving,
        bytes_per_second=None,
        eta_ms=None,
        progress=(ReplicaProgress(2, 1024, 2048, None, None),),
        blockers=(MoveBlocker(2, "FENCED", "broker 2 is fenced; start it, or choose another target"),),
    )
    lines = moves_text.detail_lines(msgspec.structs.replace(listing(), running=(stuck,), queued=(), plans=()))
    assert lines == [
        "",
        "PARTITION  MOVE  FROM  TO  DONE     LEFT     RATE  ETA  THROTTLE   BY      REASON",
        "t-3        70.0  1     2   1.0 KiB  2.0 KiB  -     -    1.0 KiB/s  User:a  -",
        "",
        "WAITS FOR  BROKER  STATE   WHY",
        "t-3        2       FENCED  broker 2 is fenced; start it, or choose another target",
    ]


def test_a_table_that_is_wider_than_the_terminal_is_stacked() -> None:
    lines = moves_text.detail_lines(listing(), 70)
    assert lines[:7] == [
        "",
        "PARTITION",
        "t-3        MOVE 70.0  FROM 1  TO 2  DONE 1.0 KiB  LEFT 2.0 KiB",
        "           RATE 1.0 KiB/s  ETA 2s  THROTTLE 1.0 KiB/s  BY User:a",
        "",
        "WAITS FOR",
        "t-3        BROKER 2  STATE THROTTLED",
    ]
    assert lines[-2:] == moves_text.detail_lines(listing())[-2:], "the plans are narrow enough"
    assert max(map(len, moves_text.detail_lines(listing(), 80))) <= 80
    states = {("clicks", 0, 1): ReplicaState("Behind: 947 messages behind", 947, why="broker 1 copies within its throttle")}
    assert max(map(len, text.progress_table(states, 60))) <= 60
    assert "Status Behind: 947 messages behind" in "\n".join(text.progress_table(states, 60))


def test_nothing_that_moves_has_no_details() -> None:
    assert moves_text.detail_lines(reassignments_of(pb.ListPartitionReassignmentsResponse())) == []
    assert moves_text.directory_lines([]) == []


def move(
    number: int, broker: int, left: int | None, rate: float | None, error: str = "", limit: int | None = None, shared: int = 0
) -> LogDirMove:
    replica = LogDirReplica("t", number, 1, 2, True, left, rate, 5, error, 4, "/a")
    return LogDirMove(broker, "/b", replica, limit, shared)


def test_unknown_values_are_null_in_the_document() -> None:
    document = moves_text.document(listing(), LogDirMoves((move(0, 1, None, None),), {3: "is down"}))
    assert document["silent_brokers"] == [{"broker": 3, "reason": "is down"}]
    assert (document["queued"][0]["size_bytes"], document["queued"][0]["plan_id"]) == (None, None)
    assert (document["directory_moves"][0]["bytes_left"], document["directory_moves"][0]["error"]) == (None, None)
    assert (document["reassignments"][0]["bytes_left"], document["metadata_offset"]) == (2048, 77)
    assert (document["reassignments"][0]["limit"], document["directory_moves"][0]["limit"]) == (1024, None)


def test_directory_moves_have_an_eta_and_their_problem() -> None:
    moves = [
        move(0, 1, 100, 50.0),
        move(1, 1, 9, 0.0, "disk full"),
        move(2, 2, 100, 900.0, "", 20, 300),
        move(3, 2, 200, 0.0, "", 0, 300),
    ]
    assert moves_text.directory_lines(moves) == [
        "",
        "REPLICA  BROKER  FROM  TO  LEFT   RATE     ETA  THROTTLE  PROBLEM",
        "t-0      1       /a    /b  100 B  50 B/s   2s   -         -",
        "t-1      1       /a    /b  9 B    -        -    -         disk full",
        "t-2      2       /a    /b  100 B  900 B/s  15s  20 B/s    -",
        "t-3      2       /a    /b  200 B  0 B/s    ?    0 B/s     -",
    ]


def test_the_table_of_progress_is_that_of_the_kip() -> None:
    states = {
        ("my_topic", 0, 0): ReplicaState("In sync", 0),
        ("my_topic", 0, 1): ReplicaState("Behind: 56 messages behind", 56),
        ("asdf", 0, 1): ReplicaState("Unknown topic"),
    }
    assert text.progress_table(states) == [
        "Topic     Partition  Broker  Status",
        "-" * 55,
        "my_topic  0          0       In sync",
        "my_topic  0          1       Behind: 56 messages behind",
        "asdf      0          1       Unknown topic",
    ]
    assert text.overall(states.values()) is Progress.WRONG


def test_the_table_of_progress_has_rates_and_blockers_during_a_copy() -> None:
    states = {
        ("t", 0, 0): ReplicaState("In sync", 0),
        ("t", 0, 1): ReplicaState("Behind: 56 messages behind", 56, bytes_per_second=2048.0, eta_ms=3000),
        ("t", 0, 2): ReplicaState("Broker is down", waits=True, why="broker 2 is fenced"),
    }
    assert text.progress_table(states) == [
        "Topic  Partition  Broker  Status                      Rate       ETA  Waits for",
        "-" * 88,
        "t      0          0       In sync                     -          -",
        "t      0          1       Behind: 56 messages behind  2.0 KiB/s  3s",
        "t      0          2       Broker is down              -          -    broker 2 is fenced",
    ]
    assert text.overall(states.values()) is Progress.RUNNING, "a broker that is down may come back"


def test_a_preview_shows_each_partition_as_the_list_does() -> None:
    after = {("b", 1): OngoingReassignment((2, 1), (2,), (1,)), ("a", 0): OngoingReassignment((1,), (), ())}
    assert text.preview_lines(after) == [
        "a-0: would be replicas: 1.",
        "b-1: would be replicas: 2,1. adding: 2. removing: 1.",
    ]


def test_factors_are_shown_as_a_plan_or_as_done() -> None:
    plan = {("t", 0): ((1,), (1, 2), False), ("t", 1): ((2,), (2, 3), True)}
    assert factor_lines(plan, True)[0] == "This is the plan; nothing was changed:"
    assert factor_lines(plan, False) == [
        "t-0: 1 -> 1,2",
        "t-1: 2 -> 2,3 (waits for a free slot)",
        "Successfully started the change of the replication factor for 2 partitions",
    ]
    shrinks = {("t", 0): ((1, 2, 3), (1, 2), False), ("t", 1): ((1, 2, 3), (1, 3), False)}
    assert factor_lines({("t", 0): shrinks["t", 0]}, True)[-1] == "t-0: 1,2,3 -> 1,2"
    assert factor_lines(shrinks, True)[-1] == NOT_THE_LAST
    assert factor_lines({}, False) == ["Every partition has this replication factor already."]
