"""A seed as a document: its steps tell the same run as the trace, and messages have both their ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest

from kraftlab.console import seeds
from kraftlab.console.seeds import SeedDocument, seed_document
from kraftlab.simulation.consensus.runner import run_seed
from kraftlab.simulation.consensus.steps import VARIABLES, Step

SEEDS = (0, 2, 9, 13, 17, 22)
"""Short runs, with restarts, lost and doubled messages, new disks, snapshots, and changes of the voters."""
OF_OPERATORS = {"AddVoterRequest", "RemoveVoterRequest", "TransferLeadershipRequest"}
NOT_IN_TRACE = ("strike", "note", "verdict")


def trace_of(seed: int, faults: Iterable[str] | None = None) -> list[dict[str, Any]]:
    lines: list[str] = []
    run_seed(seed, faults=faults, trace=lines.append)
    return [msgspec.json.decode(line) for line in lines]


def folded(document: SeedDocument) -> Iterator[tuple[Step, dict[str, object]]]:
    """Each step of a node, with the node's variables after it."""
    nodes: dict[int, dict[str, object]] = {}
    for step in document.steps:
        if step.event not in NOT_IN_TRACE:
            nodes[step.node] = {**nodes.get(step.node, {}), **step.changed}
            yield step, nodes[step.node]


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_fold_to_the_variables_that_the_trace_has(seed: int) -> None:
    found = [(step.time_us, step.node, step.event, node) for step, node in folded(seed_document(seed))]
    expected = [
        (line["time_us"], line["node"], line["event"], {name: line[name] for name in VARIABLES}) for line in trace_of(seed)
    ]
    assert found == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_fold_to_logs_that_end_where_their_nodes_say(seed: int) -> None:
    logs: dict[int, list[int]] = {}
    wrong = []
    for step, node in folded(seed_document(seed)):
        ends = [end for _, end, _, _ in step.batches]
        log = logs.get(step.node, [0])
        match step.event:
            case "boot":
                log = [step.start or 0, *ends]
            case "append":
                log = [*log, *ends]
            case "truncate" | "install":
                assert step.offset is not None
                log = [step.offset] if step.event == "install" else [end for end in log if end <= step.offset]
        logs[step.node] = log
        if log[-1] != node["end"]:
            wrong.append((step, log[-1]))
    assert wrong == []


@pytest.mark.parametrize("seed", SEEDS)
def test_every_receipt_names_the_step_that_sent_the_message(seed: int) -> None:
    document = seed_document(seed)
    receipts = [step for step in document.steps if step.event in ("receive", "answer")]
    lines = [line for line in trace_of(seed) if line["event"] in ("receive", "answer")]
    assert receipts
    for step, line in zip(receipts, lines, strict=True):
        if line["message"] in OF_OPERATORS:
            assert (step.sent_in, step.message, step.text) == (None, line["message"], line["about"])
            continue
        assert step.sent_in is not None, step
        sent = document.steps[step.sent_in]
        assert sent.event == {"receive": "send", "answer": "reply"}[step.event]
        assert (sent.node, sent.message, sent.text) == (line["peer"], line["message"], line["about"])
        assert sent.peer in (step.node, -1)
        assert sent.time_us <= step.time_us


def test_lost_and_doubled_messages_can_be_told_from_others() -> None:
    document = seed_document(22, faults=())
    receipts = Counter(step.sent_in for step in document.steps if step.sent_in is not None)
    times = Counter(receipts[number] for number, step in enumerate(document.steps) if step.event in ("send", "reply"))
    assert document.options.network.response_loss and document.options.network.duplicates
    assert times[0] and times[1] and times[2]


def test_a_message_over_a_cut_link_never_arrives() -> None:
    document = seed_document(195, faults=("partition", "isolate", "broken-link"))
    arrived = {step.sent_in for step in document.steps}
    cut: tuple[tuple[int, int], ...] = ()
    over = []
    for number, step in enumerate(document.steps):
        cut = cut if step.weather is None else step.weather.cut
        if step.event in ("send", "reply") and (step.node, step.peer) in cut:
            over.append(number)
    strikes = [step for step in document.steps if step.event == "strike"]
    assert {step.fault for step in strikes} == {"isolate", "broken-link"}
    assert all(step.weather is None or step.weather.cut for step in strikes)
    assert over
    assert arrived.isdisjoint(over)


def test_a_node_without_power_is_down_until_it_starts() -> None:
    document = seed_document(195, faults=("kill", "power-cut"))
    down: tuple[int, ...] = ()
    have_lost_power, have_started = Counter[int](), Counter[int]()
    for step in document.steps:
        down = down if step.weather is None else step.weather.down
        if step.event == "strike" and "loses power" in step.text:
            assert set(step.hit) <= set(down)
            have_lost_power.update(step.hit)
        elif step.event not in NOT_IN_TRACE:
            assert step.node not in down
            have_started[step.node] += step.event == "boot"
    assert have_lost_power
    assert have_started == have_lost_power + Counter(range(5))


def test_a_planted_bug_ends_in_the_broken_rule() -> None:
    document = seed_document(70, faults=(), mutant="pre-votes-count")
    assert document.violation.startswith("S4 ")
    assert document.rule == "equal offset and epoch mean an equal batch with an equal log before it"
    assert (document.steps[-1].event, document.steps[-1].text) == ("verdict", document.violation)
    leaders = [(node["epoch"], step.node) for step, node in folded(document) if step.changed.get("state") == "leader"]
    assert leaders == [(1, 1), (1, 4)]


def test_without_a_bug_all_rules_hold() -> None:
    document = seed_document(70, faults=())
    assert (document.violation, document.rule, document.steps[-1].event) == ("", "", "verdict")


def test_long_runs_are_cut_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = seed_document(2)
    monkeypatch.setattr(seeds, "STEPS_MAX", 100)
    cut = seed_document(2)
    assert cut.steps == whole.steps[:100]
    assert cut.total == whole.total == len(whole.steps)


def test_the_same_seed_is_the_same_document() -> None:
    first, second = (msgspec.json.encode(seed_document(9)) for _ in range(2))
    assert first == second


def test_unknown_names_are_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"^there is no fault 'flood'; choose from: kill, power-cut, "):
        seed_document(1, faults=("kill", "flood"))
    with pytest.raises(ValueError, match=r"^there is no planted bug 'gremlin'; choose from: vote-before-store, "):
        seed_document(1, mutant="gremlin")
