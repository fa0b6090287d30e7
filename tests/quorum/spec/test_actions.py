"""Traces become actions of the specification, and odd ones are refused in words."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.quorum.spec import actions, reading
from kraftlab.quorum.spec.merge import merged
from kraftlab.quorum.spec.traces import data
from kraftlab.simulation.consensus.traced import traced

MODULES = Path(actions.__file__).parent


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return traced(3, 2400)


def test_every_action_of_a_trace_is_in_the_specification(lines) -> None:
    taken = Counter(action["do"] for action in actions.actions_of(lines))
    trace, specification = (MODULES / "Trace.tla").read_text(), (MODULES / "Kraftlab.tla").read_text()
    assert all(f'x.do = "{do}"' in trace for do in taken)
    of_traces = {"Begin", "Arrive", "Appear", "Forget", "Refuse", "ServeClient"}
    assert not [do for do in taken.keys() - of_traces if f"\n{do}(" not in specification]
    assert len(taken) > 25


def test_a_node_with_a_log_that_knows_no_voters_is_in_no_state_of_the_specification(lines) -> None:
    changed = [{**line, "config": []} for line in lines]
    ends = {action["end"] for action in actions.actions_of(changed) if action.get("voters") == actions.NO_VOTERS}
    assert ends and 0 not in ends
    assert actions.NO_VOTERS not in [action.get("voters") for action in actions.actions_of(lines)]


def test_the_module_of_a_trace_names_each_message_once(lines) -> None:
    module = data([actions.actions_of(lines[:400])])
    definitions = [line.partition(" == ")[2] for line in module.splitlines() if line.startswith("V")]
    assert len(definitions) == len(set(definitions)) > 50


def test_the_files_of_nodes_make_one_trace_in_which_nothing_arrives_before_it_left(lines) -> None:
    files = [[line for line in lines if line["node"] == node] for node in range(5)]
    skewed = [[{**line, "time_us": line["time_us"] + 10_000_000 * node} for line in file] for node, file in enumerate(files)]
    for given_files in (files, skewed):
        again = merged(given_files)
        assert [[line for line in again if line["node"] == node] for node in range(5)] == given_files
        left: set[Any] = set()
        for line in again:
            if line["event"] in ("send", "reply"):
                left.add(actions.message_of(line["m"], line["node"], line["peer"]))
            elif line["event"] in ("receive", "answer") and line["m"]["type"] != "Other" and line.get("asked", 0) is not None:
                message = line["m"]
                ways = {actions.message_of(message, line["peer"], to) for to in (line["node"], -1)}
                assert ways & left, line


def test_an_answer_to_a_client_is_not_taken_for_an_answer_to_a_node() -> None:
    content = {"type": "View", "epoch": 1, "leader": 1}
    to_client, to_node = (
        {"node": 1, "event": "reply", "step": step, "time_us": 10 * step, "peer": peer, "m": content}
        for step, peer in ((1, -1), (2, 2))
    )
    answer = {"node": 2, "event": "answer", "step": 1, "time_us": 15, "peer": 1, "m": content}
    assert merged([[to_client, to_node], [answer]]) == [to_client, to_node, answer]


def test_a_fetch_of_a_client_names_the_round_of_reads_too(lines) -> None:
    leader = next(line for line in lines if line["event"] == "reply" and line["m"]["type"] == "FetchReply")
    boots = [line for line in lines if line["event"] == "boot"][:5]
    *_, last = actions.actions_of([*boots, {**leader, "peer": -1}])
    assert last["do"] == "ServeClient"


@cache
def beginning() -> list[dict[str, Any]]:
    return traced(3, 300)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=4
)


@given(at=st.integers(0, 290), field=st.sampled_from(["node", "step", "event", "m", "id", "batches", "peer", "state"]), value=ODD)
@settings(max_examples=60, deadline=None)
def test_odd_values_are_refused_in_words(at: int, field: str, value: object) -> None:
    odd = [dict(line) for line in beginning()]
    odd[at][field] = value
    try:
        data([actions.actions_of(odd)])
    except actions.BeyondSpecification as error:
        assert str(error)


def test_what_the_specification_does_not_know_is_named(lines) -> None:
    boots = [dict(line) for line in lines if line["event"] == "boot"]
    with pytest.raises(actions.BeyondSpecification, match="repairs a damaged log"):
        actions.actions_of([{**boots[0], "repairing": True}])
    with pytest.raises(actions.BeyondSpecification, match="another disk"):
        actions.actions_of([boots[0], {**boots[0], "directory": "ff"}])
    with pytest.raises(actions.BeyondSpecification, match="must begin on empty disks"):
        actions.actions_of([{**boots[0], "end": 7}])
    with pytest.raises(actions.BeyondSpecification, match="has not booted"):
        actions.actions_of(line for line in lines if line["event"] != "boot")
    with pytest.raises(actions.BeyondSpecification, match="older release"):
        actions.actions_of([{"v": 1, "node": 1}])


def test_files_that_are_no_traces_are_named(tmp_path: Path) -> None:
    whole = json.dumps(beginning()[0])
    for text, words in (
        (f"{whole}\nnothing\n{whole}\n", "line 2 of .* is not a JSON object"),
        (f"{whole}\n{whole[:-9]}\n", "line 2 of .* is not a JSON object"),
        (f"{whole}\n\n", "line 2 of .* is not a JSON object"),
        ("[]\n", "line 1 of .* is not a JSON object"),
        ("", "is empty"),
        ("\0\0", "is empty"),
        ("{}\n", "line 1 of .* is not what a node writes: .* `event`"),
        (whole.replace('"node": 0', '"node": "0"'), "not what a node writes: Expected `int`, got `str` - at `\\$.node`"),
        (whole.replace('"node": 0', '"node": -1'), "not what a node writes: .* >= 0"),
        (whole.replace('"epoch": 0', '"epoch": 1099511627776'), "not what a node writes: .* <= 2147483647"),
    ):
        (tmp_path / "a.ndjson").write_text(text)
        with pytest.raises(actions.BeyondSpecification, match=words):
            reading.read([tmp_path / "a.ndjson"])
    (tmp_path / "b.ndjson.gz").write_bytes(b"\x1f\x8bnothing")
    with pytest.raises(actions.BeyondSpecification, match="damaged"):
        reading.read([tmp_path / "b.ndjson.gz"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(actions.BeyondSpecification, match=r"has no trace in it.*chaos test --trace"):
        reading.read([tmp_path / "empty"])


def test_files_of_other_encodings_and_depths_are_refused_in_words(tmp_path: Path) -> None:
    whole = json.dumps(beginning()[0])
    damaged = bytearray(gzip.compress(whole.encode() * 50))
    damaged[12:40] = b"\xff" * 28
    for written, words in (
        (b"[" * 100_000 + b"\n", "not a JSON object"),
        (b'{"m":' + b"[" * 100_000 + b"\n", "not a JSON object"),
        (whole.encode().replace(b"{", b'{"\xff": 1, ') + b"\n", "not a JSON object"),
        (bytes(damaged), "damaged"),
    ):
        (tmp_path / "a.ndjson").write_bytes(written)
        with pytest.raises(actions.BeyondSpecification, match=words):
            reading.read([tmp_path / "a.ndjson"])
    (tmp_path / "run" / "b.ndjson").mkdir(parents=True)
    with pytest.raises(actions.BeyondSpecification, match=r"cannot read .*b\.ndjson: Is a directory"):
        reading.read([tmp_path / "run"])


def test_a_node_has_one_file(tmp_path: Path, lines) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines if line["node"] == 0))
    with pytest.raises(actions.BeyondSpecification, match=r"a\.ndjson and .*b\.ndjson are both of node 0"):
        reading.read([tmp_path])


def test_a_step_whose_last_line_is_cut_off_is_left_out(tmp_path: Path, lines) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines[:20])
    (tmp_path / "a.ndjson").write_text(text[:-30])
    whole = reading.read([tmp_path / "a.ndjson"])
    assert whole == lines[: len(whole)] and 15 < len(whole) < 20
    assert (lines[len(whole)]["node"], lines[len(whole)]["step"]) != (whole[-1]["node"], whole[-1]["step"])
