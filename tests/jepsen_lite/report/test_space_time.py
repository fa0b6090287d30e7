"""Events of nodes as arrows: both ends from a trace, only the known end from logs, and nothing that was not recorded."""

from __future__ import annotations

import json
from typing import Any

from jepsen_lite.history import Op
from jepsen_lite.report import content, page
from jepsen_lite.store import RunDirectory
from jepsen_lite.verdicts import Verdict
from kraftlab.checking.facts import Strike
from kraftlab.console.messages import AGAIN, BOOT, COMMIT, SENT, STATE, Event, from_logs, from_trace
from kraftlab.console.space_time import BEFORE_VIOLATION, LEADERS, Diagram, space_time

NAMES = {3000: "controller-3000", 3001: "controller-3001", 0: "broker-0"}


def line(time_us: int, node: int, event: str, **others: Any) -> bytes:
    fields = {"v": 1, "time_us": time_us, "node": node, "event": event, "state": "follower", "epoch": 2, "leader": 3001}
    return json.dumps(fields | {"voted": -1, "end": 4, "hw": 3, "durable": 4, "config": [3000, 3001]} | others).encode()


def vote(time_us: int, node: int, event: str, peer: int, about: str = "Vote(e2 log=4@1)") -> bytes:
    return line(time_us, node, event, peer=peer, message="VoteRequest", about=about)


def test_a_message_has_both_ends_where_both_wrote_it_down() -> None:
    (sent,) = from_trace([vote(10, 3000, "send", 3001), vote(25, 3001, "receive", 3000)])
    assert (sent.kind, sent.node, sent.target, sent.at_us, sent.arrived_us) == (SENT, 3000, 3001, 10, 25)


def test_an_arrival_belongs_to_the_newest_equal_message() -> None:
    lost, sent = from_trace([vote(10, 3000, "send", 3001), vote(50, 3000, "send", 3001), vote(60, 3001, "receive", 3000)])
    assert (lost.arrived_us, sent.arrived_us) == (None, 60)


def test_a_second_arrival_is_not_a_message_of_its_own() -> None:
    lines = [vote(10, 3000, "send", 3001), vote(20, 3001, "receive", 3000), vote(90, 3001, "receive", 3000)]
    assert [(each.kind, each.at_us) for each in from_trace(lines)] == [(SENT, 10), (AGAIN, 90)]


def test_a_message_to_any_node_ends_at_the_node_it_reached() -> None:
    (sent,) = from_trace([vote(10, 0, "send", -1), vote(20, 3001, "receive", 0)])
    assert (sent.peer, sent.target) == (-1, 3001)


def test_a_trace_gives_starts_changes_and_commits_and_a_torn_line_nothing() -> None:
    lines = [
        line(0, 3000, "boot", state="unattached", epoch=0),
        line(0, 3000, "state", state="unattached", epoch=0),
        line(5, 3000, "state", state="unattached", epoch=1, voted=3001, **{"from": "unattached"}),
        line(7, 3000, "state", state="follower", epoch=1, leader=3001, **{"from": "unattached"}),
        line(9, 3000, "commit", hw=12),
        b'{"v":1,"time_us":10,"no',
        b'{"v":1,"time_us":11,"node":3000,"event":"\xff"}',
    ]
    assert [(each.kind, each.text) for each in from_trace(lines)] == [
        (BOOT, "starts, unattached e0"),
        (STATE, "unattached e1, votes for 3001"),
        (STATE, "follower e1 of 3001"),
        (COMMIT, "committed to 12"),
    ]


LOG = """\
2026-01-01 {hour}:00:00,500 INFO kraftlab.quorum: node 3000: state unattached e0: boot
2026-01-01 {hour}:00:01,250 INFO kraftlab.quorum: node 3000: state unattached e0 -> unattached e1: n3001 asks for a vote
2026-01-01 {hour}:00:01,260 INFO kraftlab.quorum: node 3000: state unattached e1 -> unattached e1 V3001: votes for n3001
2026-01-01 {hour}:00:01,300 INFO kraftlab.quorum: node 3000: state unattached e1 V3001 -> follower e1 L3001: BeginQuorumEpoch
2026-01-01 {hour}:00:01,900 INFO kraftlab.controller: snapshot 214@1: 94 records in 0.00 s
2026-01-01 {hour}:00:02,000 INFO kraftlab.quorum: node 3000: state candidate e2 -> leader e2 L3000 [n3001:-1]: majority of votes
"""
NOON_MS = 1_767_268_801_000
"""A second after the log of twelve o'clock UTC begins its minute."""


def test_logs_name_the_cause_of_a_state_change() -> None:
    found = from_logs([LOG.format(hour=12)], NOON_MS)
    assert [(each.at_us, each.kind, each.state, each.epoch, each.peer) for each in found] == [
        (-500_000, "boot", "unattached", 0, -1),
        (250_000, "state", "unattached", 1, 3001),
        (260_000, "state", "unattached", 1, -1),
        (300_000, "state", "follower", 1, 3001),
        (1_000_000, "state", "leader", 2, -1),
    ]
    assert all(each.arrived_us is None for each in found)


def test_logs_of_any_time_zone_give_the_same_times() -> None:
    assert from_logs([LOG.format(hour=17)], NOON_MS) == from_logs([LOG.format(hour=12)], NOON_MS)


def event(at_us: int, node: int, kind: str = COMMIT, **others: Any) -> Event:
    return Event(at_us=at_us, node=node, kind=kind, text=others.pop("text", "so"), **others)


def leader(at_us: int, node: int, epoch: int) -> Event:
    return event(at_us, node, STATE, state="leader", epoch=epoch)


def drawn(*events: Event, **others: Any) -> list[Diagram]:
    return list(space_time(events, NAMES, has_both_ends=True, **others).diagrams)


def test_every_happening_and_every_arrival_has_a_row_of_its_own_in_order_of_time() -> None:
    sent = event(20, 3000, SENT, message="VoteRequest", peer=3001, target=3001, arrived_us=40)
    (diagram,) = drawn(event(10, 3000, STATE), sent, event(30, 3001, STATE), leader(50, 3000, 2))
    (arrow,) = diagram.arrows
    before, between, elected = diagram.marks
    assert before.y < arrow.y1 < between.y < arrow.y2 < elected.y
    assert (arrow.look, elected.look) == ("sent", "leader")
    assert {before.x, elected.x, arrow.x1} == {diagram.lanes[0][0]}
    assert {between.x, arrow.x2} == {diagram.lanes[1][0]}
    assert [at_us for _, at_us in diagram.times] == [10, 20, 30, 40, 50]


def test_controllers_are_left_of_brokers() -> None:
    (diagram,) = drawn(event(1, 0, STATE), event(2, 3001, STATE), leader(3, 3000, 2))
    assert [name for _, name in diagram.lanes] == ["controller-3000", "controller-3001", "broker-0"]


def test_lost_messages_end_between_lanes_and_later_ones_are_not_lost() -> None:
    lost = event(1, 3000, SENT, message="VoteRequest", peer=3001)
    late = event(2, 3000, SENT, message="VoteRequest", peer=3001, target=3001, arrived_us=9_000_000)
    (diagram,) = drawn(lost, late, leader(3, 3001, 2))
    assert [arrow.look for arrow in diagram.arrows] == ["lost", "later"]
    assert all(arrow.x1 < arrow.x2 < diagram.lanes[1][0] for arrow in diagram.arrows)


def test_an_arrow_from_a_log_has_no_time_of_sending() -> None:
    named = event(5, 3000, STATE, peer=3001, state="follower", epoch=2)
    (diagram,) = drawn(named, leader(9, 3001, 2))
    (arrow,) = diagram.arrows
    assert (arrow.look, arrow.y1) == ("inferred", arrow.y2)


def test_all_events_are_drawn_before_a_violation_and_only_election_events_elsewhere() -> None:
    fetched = event(5, 3000, SENT, message="FetchRequest", peer=3001, target=3001, arrived_us=6)
    wrong, elected = drawn(leader(1, 3001, 2), fetched, event(8, 3000), violation_us=7)
    assert (wrong.title, wrong.shown, len(wrong.arrows)) == ("Before the violation at 0.000 s", 2, 1)
    assert (elected.title, len(elected.arrows)) == ("controller-3001 leads epoch 2 at 0.000 s", 0)


def test_the_last_events_before_a_violation_are_drawn_with_their_total() -> None:
    (wrong,) = drawn(*(event(at_us, 3000) for at_us in range(500)), violation_us=10_000)
    assert (wrong.shown, wrong.total, len(wrong.marks)) == (BEFORE_VIOLATION, 500, BEFORE_VIOLATION)


def test_the_elections_that_are_drawn_are_the_first_or_the_last_before_a_violation() -> None:
    elections = [leader(number * 10_000_000, 3000, number) for number in range(20)]
    found = space_time(elections, NAMES, has_both_ends=True)
    assert (found.leaders, len(found.diagrams)) == (20, LEADERS)
    assert "epoch 0 at 0.000 s" in found.diagrams[0].title
    _, *before = drawn(*elections, violation_us=155_000_000)
    assert [diagram.title.split()[3] for diagram in before] == ["10", "11", "12", "13", "14", "15"]


def test_an_election_begins_when_a_node_stood_after_the_leader_before() -> None:
    def stands(at_us: int, node: int) -> Event:
        return event(at_us, node, STATE, state="candidate", text=f"stands at {at_us}")

    first = [stands(1_000_000, 3000), leader(1_100_000, 3000, 1)]
    second = [event(1_200_000, 3001, STATE), stands(1_600_000, 3001), event(1_650_000, 3000, STATE), leader(1_700_000, 3001, 2)]
    before, after = drawn(*first, *second)
    assert [at_us for _, at_us in before.times] == [1_000_000, 1_100_000, 1_200_000, 1_600_000]
    assert [at_us for _, at_us in after.times] == [1_600_000, 1_650_000, 1_700_000]


def test_an_election_ends_with_the_first_commit_and_shows_fetches_of_controllers_alone() -> None:
    def fetches(at_us: int, node: int) -> Event:
        return event(at_us, node, SENT, message="FetchRequest", peer=3001, target=3001, arrived_us=at_us + 1, epoch=2)

    commits = [event(50, 3000, epoch=2), event(60, 3001, epoch=2), event(90, 3001, epoch=2)]
    (diagram,) = drawn(leader(10, 3001, 2), fetches(20, 3000), fetches(30, 0), *commits, fetches(70, 3000))
    assert [at_us for _, at_us in diagram.times] == [10, 20, 21, 60]


def test_faults_and_named_operations_span_the_diagram() -> None:
    strikes = (
        Strike(kind="kill", begin_ns=2_000, end_ns=4_000, nodes=(3000,)),
        Strike(kind="pause", begin_ns=3_000, end_ns=3_500, error="there was none"),
    )
    op = Op(index=7, process=1, f="get", key="x", outcome="ok", result=1, invoked_ns=3_000, ended_ns=5_000)
    (wrong,) = drawn(event(1, 3000), event(6, 3000), violation_us=6, strikes=strikes, operations=content.operation_rows(op))
    assert [(mark.look, mark.text) for mark in wrong.marks[1:-1]] == [
        ("fault", "kill 3000"),
        ("operation", "operation 7, process 1 begins: get x"),
        ("fault", "over: kill 3000"),
        ("operation", "operation 7, process 1 ends: get x → 1"),
    ]


def test_a_page_draws_the_logs_of_a_real_run(new_run) -> None:
    directory = new_run([], [Verdict(checker="stats", valid=True)], started_at_ms=NOON_MS)
    assert content.gather(directory).space_time.diagrams == ()
    assert 'id="messages"' not in page.render(content.gather(directory))
    (directory.nodes / "controller-3000.log").write_text(LOG.format(hour=12))
    found = content.gather(directory).space_time
    assert (found.has_both_ends, found.leaders) == (False, 1)
    assert "controller-3000 leads epoch 2 at 1.000 s" in page.render(content.gather(directory))


def test_a_violation_is_where_the_first_contradiction_is_complete(illegal_run: RunDirectory, new_run) -> None:
    illegal_run.write_trace([line(74_000, 3000, "commit").decode() + "\n", line(76_000, 3000, "commit").decode() + "\n"])
    (diagram,) = content.gather(illegal_run).space_time.diagrams
    assert (diagram.title, diagram.total) == ("Before the violation at 0.075 s", 1)
    ops = list(illegal_run.run().history)
    named = new_run(ops, [Verdict(checker="witness", valid=False, ops=(0, 1, 5))])
    named.write_trace([line(1_000, 3000, "commit").decode() + "\n"])
    assert content.gather(named).space_time.diagrams[0].title == "Before the violation at 0.045 s"


def test_a_page_draws_the_trace_up_to_what_a_checker_names(new_run) -> None:
    op = Op(index=0, process=0, f="get", key="x", outcome="ok", invoked_ns=30_000, ended_ns=80_000)
    directory = new_run([op], [Verdict(checker="witness", valid=False, ops=(0,))], world="simulated", strikes=())
    directory.write_trace(
        each.decode() + "\n" for each in (vote(10, 3000, "send", 3001), vote(50, 3001, "receive", 3000), line(90, 3000, "commit"))
    )
    (diagram,) = content.gather(directory).space_time.diagrams
    assert [(arrow.look, arrow.text) for arrow in diagram.arrows] == [("sent", "Vote(e2 log=4@1)")]
    assert [mark.look for mark in diagram.marks] == ["operation", "operation"]
    assert "../trace.ndjson.gz" in page.render(content.gather(directory))
