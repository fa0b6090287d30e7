"""Findings of the checker of records, and histories that it accepts."""

from __future__ import annotations

import pytest

from jepsen_lite.history import FAIL, INFO, OK, History, Op, Outcome
from jepsen_lite.verdicts import UNKNOWN, Verdict
from jepsen_lite.workload import Options, Run
from jepsen_lite.workloads.records import COMPACTED, EXPIRING, FUTURE, LATEST_MS, OLD_MS, KeptRecords, timestamp_of

TOPIC = "records-0"
Step = tuple[str, object, Outcome, object, str]
AGREE: Step = ("agree", None, OK, {}, "")


def judged(*ops: Step, topic: str = TOPIC, healed_ns: int = 0) -> Verdict:
    """Judge operations of one producer, one after the other: function, value, outcome, result, error."""
    history = [
        Op(
            index=index,
            process=0,
            f=f,
            key=topic,
            value=value,
            outcome=outcome,
            result=result,
            error=error,
            invoked_ns=10 * index,
            ended_ns=10 * index + 5,
        )
        for index, (f, value, outcome, result, error) in enumerate(ops)
    ]
    return KeptRecords().check(Run(options=Options(), history=History(history), healed_ns=healed_ns))


def append(value: str, outcome: Outcome = OK, result: object = None, error: str = "") -> Step:
    return ("append", value, outcome, result, error)


def read(*records: tuple[int, str]) -> Step:
    return ("get", None, OK, [list(record) for record in records], "")


GOOD = (append("1:a", result=0), append("1:b", result=2), append("2:c", INFO), append("2:d", FAIL))


@pytest.mark.parametrize("final", [((0, "1:a"), (2, "1:b")), ((0, "1:a"), (1, "2:c"), (2, "1:b"))])
def test_records_of_unknown_outcome_may_be_there_or_not(final: tuple[tuple[int, str], ...]) -> None:
    assert judged(*GOOD, read(*final), AGREE).valid is True


@pytest.mark.parametrize(
    ("final", "kind"),
    [
        (((0, "1:a"),), "lost"),
        (((0, "1:a"), (3, "1:b")), "moved"),
        (((0, "1:a"), (1, "1:a"), (2, "1:b")), "doubled"),
        (((0, "1:a"), (2, "1:b"), (3, "2:d")), "failed"),
        (((0, "1:a"), (2, "1:b"), (3, "9:x")), "unexpected"),
    ],
)
def test_violations_are_found(final: tuple[tuple[int, str], ...], kind: str) -> None:
    assert kind in judged(*GOOD, read(*final), AGREE).details["violations"]


def test_records_of_one_producer_are_in_its_order() -> None:
    verdict = judged(append("1:a", result=1), append("1:b", result=0), read((0, "1:b"), (1, "1:a")), AGREE)
    assert verdict.details["violations"] == {"reordered": 1}


def test_a_refused_sequence_is_a_violation() -> None:
    verdict = judged(append("1:a", INFO, error="OUT_OF_ORDER_SEQUENCE_NUMBER"), read(), AGREE)
    assert verdict.details["violations"] == {"refused": 1}


def test_a_compacted_record_gives_way_only_to_a_later_one_of_its_key() -> None:
    whole = (append("1:a", result=0), append("2:b", result=1), append("1:c", result=2))
    assert judged(*whole, read((1, "2:b"), (2, "1:c")), AGREE, topic=COMPACTED).valid is True
    assert judged(*whole, read((2, "1:c")), AGREE, topic=COMPACTED).details["violations"] == {"lost": 1}
    assert judged(*whole, read((1, "2:b"), (2, "1:c")), AGREE).details["violations"] == {"lost": 1}


def test_old_records_may_be_gone_below_the_first_that_is_left_and_nowhere_else() -> None:
    whole = (append("1:a", result=0), append("2:b", result=1), append("1:c", result=2))
    assert judged(*whole, read((2, "1:c")), AGREE, topic=EXPIRING).valid is True
    assert judged(*whole, read((1, "2:b")), AGREE, topic=EXPIRING).details["violations"] == {"lost": 1}
    assert judged(*whole, read((0, "1:a"), (2, "1:c")), AGREE, topic=EXPIRING).details["violations"] == {"lost": 1}
    assert judged(*whole, read((2, "1:c")), AGREE).details["violations"] == {"lost": 2}


@pytest.mark.parametrize(("end", "lost"), [(3, {}), (2, {"lost": 1})])
def test_all_old_records_may_be_gone_below_the_end_of_the_log(end: int, lost: dict[str, int]) -> None:
    whole = (append("1:a", result=0), append("2:b", result=2))
    agreed: Step = ("agree", None, OK, {"end": end}, "")
    assert judged(*whole, read(), agreed, topic=EXPIRING).details.get("violations", {}) == lost


def test_old_and_future_timestamps_are_among_the_records() -> None:
    now_ms = 1_700_000_000_000
    times = {topic: {timestamp_of(topic, f"1:{n}", now_ms) for n in range(40)} for topic in (EXPIRING, FUTURE, COMPACTED)}
    assert times == {EXPIRING: {0, now_ms - OLD_MS}, FUTURE: {now_ms, LATEST_MS}, COMPACTED: {now_ms}}


def test_replicas_that_differ_at_the_end_are_a_violation() -> None:
    verdict = judged(append("1:a", result=0), read((0, "1:a")), ("agree", None, FAIL, None, "replicas differ: [(0, 1), (1, 0)]"))
    assert verdict.details["violations"] == {"differ": 1}


def test_without_a_comparison_after_the_faults_nothing_is_known() -> None:
    assert judged(append("1:a", result=0), read((0, "1:a"))).valid == UNKNOWN
    assert judged(append("1:a", result=0), read((0, "1:a")), AGREE, healed_ns=1_000).valid == UNKNOWN
