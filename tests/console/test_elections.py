"""The picture of an election, from the logs and traces of three controllers: 3001 was killed, and 3002 was elected in epoch 2."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kraftlab.console.elections import CLOCKS, MESSAGES, NO_DIRECTORY, NOTHING, READ_BYTES, STATES, TRACE, Picture, picture
from kraftlab.console.space_time import Diagram
from kraftlab.lab.cluster_plan import FILE_NAME, ClusterPlan, NodePlan

RECORDED = Path(__file__).with_name("election")
IDS = (3000, 3001, 3002)
NAMES = [f"controller-{node_id}" for node_id in IDS]
EARLIER, LATER = b'"epoch":1,"leader":3001,', b'"epoch":9,"leader":3001,'


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """The directory of a cluster with the recorded files."""
    nodes = (*(NodePlan(node_id, "controller", 1, 2) for node_id in IDS), NodePlan(0, "broker", 3, 4))
    plan = ClusterPlan("id", nodes, properties={TRACE: f"{tmp_path}/logs/{{node}}.ndjson"})
    (tmp_path / FILE_NAME).write_bytes(msgspec.json.encode(plan))
    shutil.copytree(RECORDED, tmp_path / "logs")
    return tmp_path


def drawn(found: Picture) -> Diagram:
    assert found.diagram is not None, found.note
    return found.diagram


def lines(found: Picture) -> list[tuple[float, str]]:
    """Return the words of a diagram with their times in ms, by their place."""
    diagram = drawn(found)
    words = sorted([(each.y1, each.whole) for each in diagram.arrows] + [(each.y, each.whole) for each in diagram.marks])
    return [(max((at, at_us) for at, at_us in diagram.times if at <= y)[1] / 1000, whole) for y, whole in words]


def test_traces_tell_every_message_from_the_candidacy_to_the_first_commit(lab: Path) -> None:
    found = picture(lab, 2)
    assert [name for _, name in drawn(found).lanes] == NAMES
    assert found.note == MESSAGES
    assert lines(found) == [
        (-3.818, "node 3002: prospective e1: fetch timeout"),
        (-3.818, "node 3002 to node 3000: PreVote(e1 log=22@1); 0.4 ms in transit"),
        (-3.818, "node 3002 to node 3001: PreVote(e1 log=22@1); no record of its arrival"),
        (-3.424, "node 3000 to node 3002: PreVoteReply(yes e1/L3001); 0.4 ms in transit"),
        (-3.04, "node 3002: candidate e2: majority of pre-votes"),
        (-3.04, "node 3002 to node 3000: Vote(e2 log=22@1); 1.4 ms in transit"),
        (-3.04, "node 3002 to node 3001: Vote(e2 log=22@1); no record of its arrival"),
        (-1.623, "node 3000: unattached e2: n3002 asks for a vote"),
        (-1.623, "node 3000: unattached e2, votes for 3002"),
        (-1.623, "node 3000 to node 3002: VoteReply(yes e2/L-); 1.6 ms in transit"),
        (0.0, "node 3002: leader e2: majority of votes"),
        (0.0, "node 3002 to node 3000: Begin(e2 L3002); 1.4 ms in transit"),
        (0.0, "node 3002 to node 3001: Begin(e2 L3002); no record of its arrival"),
        (1.439, "node 3000: follower e2 of 3002"),
        (1.439, "node 3000 to node 3002: BeginReply(e2/L3002); 1.3 ms in transit"),
        (1.439, "node 3000 to node 3002: Fetch(e2 22@1 hw=22); 1.3 ms in transit"),
        (2.856, "node 3002 to node 3000: FetchReply(e2/L3002 hw=-1 72B); 0.3 ms in transit"),
        (3.164, "node 3000 to node 3002: Fetch(e2 23@2 hw=22); 0.5 ms in transit"),
        (3.691, "node 3002: committed to 23"),
    ]


@pytest.mark.parametrize("ahead_us", [-20_000_000, 20_000_000])
def test_clocks_that_differ_are_said(lab: Path, ahead_us: int) -> None:
    path = lab / "logs" / "3000.ndjson"
    shifted = re.sub(rb'"time_us":(\d+)', lambda found: b'"time_us":%d' % (int(found[1]) + ahead_us), path.read_bytes())
    path.write_bytes(shifted)
    assert picture(lab, 2).note == CLOCKS


def test_logs_tell_states_and_what_tells_more(lab: Path) -> None:
    for trace in lab.glob("logs/*.ndjson"):
        trace.unlink()
    found = picture(lab, 2)
    assert found.note == STATES
    assert [name for _, name in drawn(found).lanes] == NAMES, "that of the killed controller too"
    assert {each.look for each in drawn(found).arrows} == {"inferred"}
    assert lines(found) == [
        (-4, "node 3002: prospective e1: fetch timeout"),
        (-3, "node 3002: candidate e2: majority of pre-votes"),
        (-2, "node 3000: unattached e2: n3002 asks for a vote"),
        (-2, "the log of node 3000 names 3002"),
        (-2, "node 3000: unattached e2: votes for n3002"),
        (0, "node 3002: leader e2: majority of votes"),
        (1, "node 3000: follower e2: BeginQuorumEpoch"),
        (1, "the log of node 3000 names 3002"),
    ]


def test_an_old_election_is_found_in_long_traces(lab: Path) -> None:
    expected = picture(lab, 2)
    for trace in lab.glob("logs/*.ndjson"):
        recorded = trace.read_bytes()
        old = next(line for line in recorded.splitlines(keepends=True) if EARLIER in line)
        many = 2 * READ_BYTES // len(old)
        later = old.replace(EARLIER, LATER)
        trace.write_bytes(old * many + recorded + later * many + bytes(READ_BYTES))
    assert picture(lab, 2) == expected


STATE_LINE = b"2026-11-29 18:40:05,965 INFO kraftlab.quorum: node %s: state leader e2"


@pytest.mark.parametrize("cut", range(20))
def test_a_log_of_which_only_a_part_of_the_first_line_is_read_tells_the_rest(lab: Path, cut: int) -> None:
    for trace in lab.glob("logs/*.ndjson"):
        trace.unlink()
    expected = picture(lab, 2)
    log = lab / "logs/controller-3002.log"
    log.write_bytes((STATE_LINE % b"3000")[cut + 1 :] + b"\n" + log.read_bytes())
    assert picture(lab, 2) == expected


@pytest.mark.parametrize("junk", [STATE_LINE % (b"9" * 5000), STATE_LINE.replace(b"-29", b"-31") % b"3000", b"{\n\0", bytes(99)])
def test_lines_of_a_log_that_are_none_are_skipped_and_zeros_before_a_line_too(lab: Path, junk: bytes) -> None:
    for trace in lab.glob("logs/*.ndjson"):
        trace.unlink()
    expected = picture(lab, 2)
    log = lab / "logs/controller-3002.log"
    lines = log.read_bytes().splitlines(keepends=True)
    elected = next(place for place, line in enumerate(lines) if b"leader e2" in line)
    junk += b"" if not any(junk) else b"\n"
    log.write_bytes(b"".join([*lines[:elected], junk, *lines[elected:]]))
    assert picture(lab, 2) == expected


LEADER_LINE = b'{"time_us":%s,"node":%s,"event":"state","state":"leader","epoch":%s,"hw":0,"from":"candidate"}\n'


@pytest.mark.parametrize(
    "junk",
    [
        b'{"v":' + b"[" * 100_000 + b"\n",
        LEADER_LINE % (b"1", b"-5", b"2"),
        LEADER_LINE % (b"9" * 400, b"3000", b"2"),
        LEADER_LINE % (b"1", b"3000", b"9" * 5000),
        b'{"why":"\\ud800"}\n\xff\n\0\n',
    ],
)
def test_lines_of_a_trace_that_no_node_writes_are_skipped(lab: Path, junk: bytes) -> None:
    expected = picture(lab, 2)
    trace = lab / "logs/3002.ndjson"
    trace.write_bytes(junk + trace.read_bytes() + junk)
    assert picture(lab, 2) == expected


def a_directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("put", [a_directory, os.mkfifo, lambda path: path.write_bytes(b"\xff\0\n" * 9), lambda path: None])
def test_files_that_tell_nothing_are_said_and_do_not_block(lab: Path, put: Callable[[Path], object]) -> None:
    for path in (lab / "logs").iterdir():
        path.unlink()
        put(path)
    assert picture(lab, 2) == Picture(None, NOTHING)


def test_without_a_directory_the_option_is_named(tmp_path: Path) -> None:
    assert picture(None, 2) == picture(tmp_path, 2) == Picture(None, NO_DIRECTORY)
