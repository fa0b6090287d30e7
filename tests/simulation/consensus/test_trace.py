"""NDJSON traces: every line has the node's variables, and the lines of a node follow each other."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from kraftlab.quorum.core.quorum_state import TRANSITIONS
from kraftlab.quorum.trace import EVENTS, VERSION
from kraftlab.simulation.consensus.runner import run_seed

MORE = {"from", "peer", "message", "about", "offset", "step", "m", "asked", "awaited", "batches", "id", "why"}
MORE |= {"ignored", "start", "crc", "directory", "repairing"}
FIELDS = ["v", "time_us", "node", "event", "state", "epoch", "leader", "voted", "end", "hw", "durable", "config"]
LEGAL = {(row.source.name, row.target.name) for row in TRANSITIONS}


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    written: list[str] = []
    for seed in (3, 9, 16):
        assert run_seed(seed, trace=written.append).ok
        written.append("\n")
    return [json.loads(line) for line in written if line.strip()]


def test_tracing_changes_nothing() -> None:
    assert run_seed(3, trace=lambda line: None).trace_hash == run_seed(3).trace_hash


def test_every_line_has_the_documented_fields_in_their_order(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        assert list(line)[: len(FIELDS)] == FIELDS
        assert line["v"] == VERSION
        assert set(list(line)[len(FIELDS) :]) <= MORE


def test_every_event_occurs_but_those_of_snapshots(lines: list[dict[str, Any]]) -> None:
    assert {line["event"] for line in lines} >= EVENTS.keys() - {"install", "clean"}


def test_states_follow_each_other_as_the_table_says(lines: list[dict[str, Any]]) -> None:
    moves = {(line["from"], line["state"]) for line in lines if "from" in line}
    assert moves <= LEGAL
    assert len(moves) > 8


def test_offsets_make_sense(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        assert -1 <= line["hw"] <= line["end"]
        assert line["durable"] <= line["end"]
        if line["event"] == "append":
            assert line["offset"] < line["end"]
        if line["event"] == "truncate":
            assert line["offset"] == line["end"]


def test_what_leads_was_elected_by_its_own_vote(lines: list[dict[str, Any]]) -> None:
    leading = [line for line in lines if line["event"] == "state" and line["state"] == "leader"]
    assert leading
    assert all(line["leader"] == line["voted"] == line["node"] for line in leading)


def test_epochs_of_a_node_rise_within_one_life(lines: list[dict[str, Any]]) -> None:
    epochs: dict[int, int] = defaultdict(int)
    for line in lines:
        if line["event"] == "boot":
            epochs[line["node"]] = line["epoch"]
        assert line["epoch"] >= epochs[line["node"]]
        epochs[line["node"]] = line["epoch"]
