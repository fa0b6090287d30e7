"""The metadata log of a real Kafka cluster against what was done to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kraftlab.pipeline.audits.life_cycles import Reassignment, all_life_cycles

A_REQUEST_TAKES_MS = 1000


@pytest.fixture(scope="module")
def found(kafka: Any) -> list[Reassignment]:
    return all_life_cycles(kafka.rows, kafka.deletions)


@pytest.fixture(scope="module")
def requests(recorded_text: Callable[[str], bytes]) -> list[tuple[int, int]]:
    """(ms after the answer, partitions named) of each request; the one for 4 partitions cancels, the others set targets."""
    history = json.loads(recorded_text("history.json"))
    return [(int(entry["t"] * 1000), entry["n"]) for entry in history if entry["op"] == "reassign"]


def _begun_by(found: list[Reassignment], answered_ms: int) -> list[Reassignment]:
    return [cycle for cycle in found if cycle.start_ms and answered_ms - A_REQUEST_TAKES_MS < cycle.start_ms <= answered_ms]


def test_every_reassignment_was_begun_by_a_request_and_each_request_in_one_batch(
    found: list[Reassignment], requests: list[tuple[int, int]]
):
    begun = [_begun_by(found, answered_ms) for answered_ms, _ in requests]
    assert sum(map(len, begun)) == len(found) == 916
    assert [len({cycle.start_ms for cycle in cycles}) for cycles in begun] == [1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    for cycles, (_, named) in zip(begun, requests, strict=True):
        assert 0.8 * named <= len(cycles) <= named or named == 4, "a target equal to the list changes nothing and is no record"
        assert len({(cycle.topic, cycle.partition) for cycle in cycles}) == len(cycles)


def test_what_was_cancelled_is_what_the_cancelling_request_named(found: list[Reassignment], requests: list[tuple[int, int]]):
    cancelled = [cycle for cycle in found if cycle.status == "cancelled"]
    ((answered_ms, named),) = [request for request in requests if request[1] == 4]
    assert 0 < len(cancelled) <= named
    for cycle in cancelled:
        assert cycle.end_ms is not None
        assert answered_ms - A_REQUEST_TAKES_MS < cycle.end_ms <= answered_ms
        assert cycle.target is not None and 3 in cycle.target, "broker 3 was dead"


def test_what_was_overtaken_was_overtaken_by_a_later_request(found: list[Reassignment]):
    by_id = {cycle.reassignment_id: cycle for cycle in found}
    overtaken = [cycle for cycle in found if cycle.status == "superseded"]
    assert len(overtaken) == 37
    for cycle in overtaken:
        assert cycle.superseded_by is not None
        assert by_id[cycle.superseded_by].start_offset == cycle.end_offset
        assert by_id[cycle.superseded_by].orig == cycle.orig


def test_how_all_of_them_ended(found: list[Reassignment]):
    assert Counter(cycle.status for cycle in found) == {
        "completed": 716, "instant": 154, "superseded": 37, "open": 7, "cancelled": 2,
    }  # fmt: skip


def test_a_completed_one_has_all_of_its_new_replicas_in_sync_and_nothing_else_of_it_is_left(
    found: list[Reassignment], kafka: Any
):
    lists = {change.offset: change for _, change in kafka.rows}
    for cycle in found:
        if cycle.status != "completed":
            continue
        assert all(row.caught_up_offset is not None for row in cycle.replicas if row.role == "adding")
        end = lists[cycle.end_offset or -1]
        assert (end.replicas or cycle.target) == cycle.target
        assert not cycle.clock_skew
        assert cycle.duration_ms is not None and cycle.duration_ms < 60_000


def test_the_open_ones_are_still_in_the_final_state(found: list[Reassignment], recorded_text: Callable[[str], bytes]):
    state = json.loads(recorded_text("final-state.json"))
    replicas = {
        (topic["name"], partition["partition_index"]): partition["replica_nodes"]
        for topic in state["topics"]
        for partition in topic["partitions"]
    }
    for cycle in found:
        if cycle.status == "open":
            assert set(replicas[cycle.topic, cycle.partition]) == {*cycle.target, *cycle.removing, *cycle.adding}
