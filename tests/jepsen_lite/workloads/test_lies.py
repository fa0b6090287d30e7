"""Every workload accepts an honest cluster and finds each lie about its own requests."""

from __future__ import annotations

import pytest

WITNESS, LINEARIZABLE = {"witness"}, {"witness", "linearizable"}
LISTS, BLOCKS, IMAGES = {"witness", "list-append"}, {"witness", "blocks"}, {"images agree"}
LIES = {
    "registers": {
        "stale read": LINEARIZABLE,
        "false offset": LINEARIZABLE,
        "goes back": WITNESS,
        "lost write": LINEARIZABLE,
        "half a write": LINEARIZABLE,
        "ignored expectation": LINEARIZABLE,
        "answer before the end": WITNESS,
    },
    "topics": {
        "stale read": LINEARIZABLE,
        "false offset": LINEARIZABLE,
        "goes back": WITNESS,
        "lost write": LINEARIZABLE,
        "half a write": LINEARIZABLE,
        "half a topic": LINEARIZABLE,
        "resurrected topic": {"linearizable", "lives of topics"},
    },
    "snapshot-reads": {
        "stale read": LINEARIZABLE,
        "torn read": LINEARIZABLE,
        "goes back": WITNESS,
        "false past": {"time travel"},
        "another past": {"time travel"},
        "half a write": LINEARIZABLE,
    },
    "list-append": {
        "stale read": LISTS,
        "false offset": LISTS,
        "torn read": LISTS,
        "lost write": LISTS,
        "half a write": LISTS,
    },
    "reassignments": {"stale read": WITNESS, "ignored expectation": WITNESS, "lost write": WITNESS, "goes back": WITNESS},
    "brokers": {"epoch not asked for": {"witness", "lives of brokers"}, "lost write": WITNESS, "stale read": WITNESS},
    "producer-ids": {"lost write": BLOCKS, "block again": BLOCKS, "answer before the end": WITNESS},
    "agreement": {"other image": IMAGES, "disk behind": IMAGES},
    "deltas": {"other image": IMAGES, "disk behind": IMAGES},
    "elections": {"other leader": {"lives of the quorum"}},
    "exactly-once": {
        "forgotten request": {"witness", "exactly-once", "blocks"},
        "other answer to a retry": {"witness", "exactly-once"},
        "lost write": {"witness", "blocks", "set-full", "exactly-once"},
        "answer before the end": {"witness", "exactly-once"},
        "stale read": {"witness", "set-full"},
    },
}
"""Workload → lie → checkers that see it."""
RATES = {"snapshot-reads": 0.4, "reassignments": 0.5, "brokers": 0.4, "agreement": 0.4, "deltas": 0.4, "elections": 0.1}
"""Share of the answers that are lies; 0.3 for all others."""
ALL = {"ok", "fail", "info"}


def _sendings(run):
    found: dict[str, list[str]] = {}
    for op in run.history:
        if op.request_id:
            found.setdefault(op.request_id, []).append(op.outcome)
    return found.values()


MET = {
    "registers": lambda run, verdicts: (
        {op.outcome for op in run.history} == ALL
        and {op.key.partition("/")[0] for op in run.history if op.outcome == "ok"} == {"values", "replicas", "lists"}
        and verdicts["witness"].details["resolved"] > 0
    ),
    "topics": lambda run, verdicts: (
        {op.outcome for op in run.history} == ALL
        and {"TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"} <= {op.error for op in run.history}
    ),
    "reassignments": lambda run, verdicts: {op.outcome for op in run.history} == ALL,
    "brokers": lambda run, verdicts: {op.outcome for op in run.history} == ALL,
    "snapshot-reads": lambda run, verdicts: (
        len({op.node for op in run.history if op.f == "peek" and op.outcome == "ok"}) == 7
        and verdicts["time travel"].details["reads"] > 20
    ),
    "list-append": lambda run, verdicts: verdicts["list-append"].details["edges"] > 500,
    "producer-ids": lambda run, verdicts: verdicts["blocks"].details["numbers_given"] > 50_000,
    "exactly-once": lambda run, verdicts: (
        any(outcomes.count("ok") > 2 for outcomes in _sendings(run))
        and any("info" in outcomes and "ok" in outcomes for outcomes in _sendings(run))
        and "DUPLICATE_SEQUENCE_NUMBER" in {op.error for op in run.history}
    ),
}
"""Workload → what an honest run must have met, so that its verdicts mean something."""


@pytest.mark.parametrize("name", [*LIES, "voters", "availability"])
def test_an_honest_cluster_is_found_to_be_one(played, name):
    _, run, verdicts = played(name, time_s=3.0)
    assert {name: verdict.reason for name, verdict in verdicts.items() if verdict.valid is not True} == {}
    assert name not in MET or MET[name](run, verdicts)


@pytest.mark.parametrize(("name", "lie"), [(name, lie) for name, lies in LIES.items() for lie in lies])
def test_a_lie_is_seen(played, name, lie):
    """The checkers that find a lie depend on its subject, so several seeds are played if needed."""
    seen: set[str] = set()
    for seed in ("1", "2", "3"):
        cluster, _, verdicts = played(name, lie, rate=RATES.get(name, 0.3), seed=seed, time_s=1.8)
        assert cluster.lies_told
        found = {name for name, verdict in verdicts.items() if verdict.valid is False}
        assert found
        seen |= found
        if seen == LIES[name][lie]:
            return
    assert seen == LIES[name][lie]
