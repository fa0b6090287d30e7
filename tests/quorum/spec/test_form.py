"""Lines that no node writes are refused, also where the specification would not look."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from kraftlab.quorum.spec.form import Form
from kraftlab.simulation.consensus.traced import traced

Lines = list[dict[str, Any]]


@cache
def trace() -> Lines:
    return traced(3, 1500)


def read(lines: Lines) -> Lines:
    form = Form()
    return [form.read(line) for line in lines]


def place(event: str, **having: Any) -> int:
    """Return the place of the first line of an event after the boots, with these fields."""
    found = (at for at, line in enumerate(trace()) if line["event"] == event and having.items() <= line.items())
    return next(at for at in found if at > 20)


def test_traces_of_nodes_are_read_as_they_are() -> None:
    for lines in (trace(), traced(7, 600)):
        assert read(lines) == lines


@pytest.mark.parametrize("name", ["epoch", "leader", "voted", "end", "hw", "durable", "state"])
@pytest.mark.parametrize("event", ["send", "reply", "receive", "answer", "store", "stored", "ask", "ready"])
def test_a_variable_changes_by_an_event_of_it_only(event: str, name: str) -> None:
    lines = deepcopy(trace())
    line = lines[place(event)]
    line[name] = "resigned" if name == "state" else line[name] + 1
    with pytest.raises(ValueError, match=f"`{name}` has changed from .*, which .* does not do"):
        read(lines)


@pytest.mark.parametrize("event", ["receive", "answer", "append", "store", "commit", "state"])
def test_a_line_is_there_once(event: str) -> None:
    lines = list(trace())
    at = place(event)
    lines.insert(at + 1, lines[at])
    with pytest.raises(ValueError, match=r"there twice|not the offsets"):
        read(lines)


@pytest.mark.parametrize("asker, answer", [("receive", "reply"), ("send", "answer")])
def test_an_answer_has_a_request_before_it_with_the_same_content(asker: str, answer: str) -> None:
    lines = deepcopy(trace())
    at = next(at for at, line in enumerate(lines) if line["event"] == answer and line["peer"] >= 0 and line["asked"])
    assert any(line["event"] == asker and line["m"] == lines[at]["asked"] for line in lines[:at])
    lines[at]["asked"]["epoch"] = lines[at]["asked"].get("epoch", 0) + 1
    with pytest.raises(ValueError, match=r"an answer to a request .* that is not before it"):
        read(lines)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"v": 2}, "2 - at `\\$.v`"),
        ({"event": "comit"}, "'comit'"),
        ({"step": 0}, "boots in its step 0"),
        ({"config": []}, "`config` has changed"),
        ({"m": {"type": 'a" \\* '}}, "Invalid value"),
        ({"m": {"type": "Fetch", "epoch": True}}, "Expected `int`"),
    ],
)
def test_odd_fields_are_named(changes: dict[str, Any], words: str) -> None:
    lines = deepcopy(trace())
    lines[place("send")] |= changes
    with pytest.raises(ValueError, match=words):
        read(lines)


def test_an_append_ends_where_its_batches_end() -> None:
    lines = deepcopy(trace())
    lines[place("append")]["batches"][-1][1] += 1
    with pytest.raises(ValueError, match=r"not the offsets of the operation"):
        read(lines)


def test_a_completed_operation_has_begun() -> None:
    lines = deepcopy(trace())
    lines[place("durable")]["id"] += 1000
    with pytest.raises(ValueError, match=r"`durable` .* has not begun"):
        read(lines)


def test_fields_that_came_later_are_left_out_of_messages() -> None:
    lines = deepcopy(trace())
    lines[place("send")]["m"]["x |-> 1, y"] = 3
    assert read(lines) == trace()
