"""Reasons why a replica holds up its move: the first that applies, with a text that names the next step."""

from __future__ import annotations

import immutables
import pytest

from kraftlab.common.uuids import UNASSIGNED
from kraftlab.controller.reassignment.blockers import STARTING_MS, blocker, holding_up
from kraftlab.controller.reassignment.progress import BELIEVED_MS, MoveProgressTable, ReplicaReport
from kraftlab.metadata.image import BrokerImage, ClusterImage, PartitionImage
from kraftlab.metadata.peer_rpc import MoveProgress, MoveProgressRequest, PartitionSize

TOPIC, ONLINE, OFFLINE = (bytes([n]) * 16 for n in (101, 102, 103))


def cluster(fenced: bool = False, shutting_down: bool = False, registered: bool = True) -> ClusterImage:
    broker = BrokerImage(2, 2, bytes(16), (), (), None, fenced, shutting_down, (ONLINE,), 0)
    return ClusterImage(immutables.Map({2: broker} if registered else {}))


def moving(directory: bytes = UNASSIGNED, leader: int = 1) -> PartitionImage:
    return PartitionImage((2, 1), (directory, UNASSIGNED), (1,), leader, adding=(2,), removing=(1,), original=(1,), target=(2,))


def report(left: int, throttled: bool = False, error: str = "") -> ReplicaReport:
    return ReplicaReport(5, left, 1.0, throttled, error, 0)


@pytest.mark.parametrize(
    ("brokers", "partition", "report", "state", "part"),
    [
        (cluster(registered=False), moving(), None, "UNREGISTERED", "choose another target"),
        (cluster(fenced=True), moving(), None, "FENCED", "start it"),
        (cluster(shutting_down=True), moving(), None, "SHUTTING_DOWN", "shutting down"),
        (cluster(), moving(OFFLINE), None, "DIRECTORY_OFFLINE", "repair it"),
        (cluster(), moving(leader=-1), None, "NO_LEADER", "no leader to copy from; bring a replica that may lead back: broker "),
        (cluster(), moving(), None, "NOT_FETCHING", "has not reported a fetch"),
        (cluster(), moving(), report(9, error="disk full"), "NOT_FETCHING", "disk full"),
        (cluster(), moving(ONLINE), report(9), "COPYING", "9 B to go"),
        (cluster(), moving(), report(-1), "COPYING", "starting"),
        (cluster(), moving(), report(9, throttled=True), "THROTTLED", "9 B to go"),
        (cluster(), moving(), report(0), "OUT_OF_SYNC", "waits to join the ISR"),
    ],
)
def test_the_reason(
    brokers: ClusterImage, partition: PartitionImage, report: ReplicaReport | None, state: str, part: str
) -> None:
    why = blocker(brokers, partition, 2, report, knows_reports=True)
    assert (why.broker_id, why.state.value) == (2, state)
    assert part in why.text


def test_a_move_that_has_just_started_is_not_expected_to_have_reports() -> None:
    why = blocker(cluster(), moving(), 2, None, knows_reports=True, age_ms=STARTING_MS - 1)
    assert (why.state.value, "just started" in why.text) == ("STARTING", True)
    assert blocker(cluster(), moving(), 2, report(9), knows_reports=True, age_ms=0).state.value == "COPYING"


def test_without_reports_a_missing_one_means_nothing() -> None:
    assert blocker(cluster(), moving(), 2, None, knows_reports=False).state.value == "OUT_OF_SYNC"


@pytest.mark.parametrize(
    ("original", "target", "isr", "blockers"),
    [
        ((1,), (2, 3), (1, 3), (2,)),
        ((1, 2, 3), (1, 2, 4), (1, 3), (4,)),
        ((1, 2, 3), (1, 2), (1, 3), (2,)),
        ((1, 2), (1, 2, 3), (1,), (3,)),
    ],
    ids=["who is added", "a kept one does not", "unless the set shrinks", "nor when it grows"],
)
def test_replicas_that_hold_up_a_move(
    original: tuple[int, ...], target: tuple[int, ...], isr: tuple[int, ...], blockers: tuple[int, ...]
) -> None:
    adding = tuple(sorted(set(target) - set(original)))
    removing = tuple(sorted(set(original) - set(target)))
    replicas = target + removing
    partition = PartitionImage(replicas, (UNASSIGNED,) * len(replicas), isr, isr[0], 0, 0, adding, removing, original, target)
    assert holding_up(partition) == blockers


def test_a_report_replaces_the_last_one_whole_and_is_believed_for_a_while() -> None:
    table = MoveProgressTable()
    first, second = MoveProgress(TOPIC, 0, 1, 9, 3.0), MoveProgress(TOPIC, 1, 2, 8, 4.0)
    table.report(MoveProgressRequest(2, 7, (first,), (PartitionSize(TOPIC, 5, 50),)), 1000)
    table.report(MoveProgressRequest(2, 7, (second,)), 2000)
    assert table.of((TOPIC, 0), 2, 2000) is None
    found = table.of((TOPIC, 1), 2, 2000)
    assert found is not None and (found.bytes_left, found.eta_ms) == (8, 2000)
    assert table.of((TOPIC, 1), 3, 2000) is None
    assert table.of((TOPIC, 1), 2, 2001 + BELIEVED_MS) is None
    assert table.sizes(2000) == {}


def test_a_copy_that_has_not_begun_lacks_what_its_leader_has() -> None:
    table = MoveProgressTable()
    begun = MoveProgress(TOPIC, 0, 5, 7, 0.0, True)
    waiting = MoveProgress(TOPIC, 1, 5, -1, 0.0, True)
    stuck = MoveProgress(TOPIC, 2, 5, -1, 0.0, True, "full")
    table.report(MoveProgressRequest(2, 7, (begun, waiting, stuck)), 1000)
    assert {key[1]: report.bytes_left for key, _, report in table.replicas(1000)} == {0: 7, 1: -1, 2: -1}
    table.report(MoveProgressRequest(1, 7, (), tuple(PartitionSize(TOPIC, number, 50) for number in range(3))), 1000)
    assert {key[1]: report.bytes_left for key, _, report in table.replicas(1000)} == {0: 7, 1: 45, 2: -1}
    found = table.of((TOPIC, 1), 2, 1000)
    assert found is not None and found.bytes_left == 45


@pytest.mark.parametrize(("left", "rate", "eta_ms"), [(0, 0.0, 0), (-1, 5.0, -1), (10, 0.0, -1), (10, 5.0, 2000)])
def test_time_to_go(left: int, rate: float, eta_ms: int) -> None:
    assert ReplicaReport(0, left, rate, False, "", 0).eta_ms == eta_ms
