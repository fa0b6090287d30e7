"""Reads of Kafka clients may be old, but show only what was committed."""

from __future__ import annotations

import pytest

from jepsen_lite.checkers.logged_reads import LoggedReads
from jepsen_lite.committed_log import CommittedLog, Entry
from jepsen_lite.history import OK, History, Op
from jepsen_lite.verdicts import UNKNOWN, Verdict
from jepsen_lite.workload import Options, Run

ENTRIES = (
    ("Topic", {"name": "a", "topic_id": "A"}),
    ("Partition", {"topic_id": "A"}),
    ("Partition", {"topic_id": "A"}),
    ("RemoveTopic", {"topic_id": "A"}),
)
LOG = CommittedLog(tuple(Entry(at, at + 1, 1, 0, kind, record) for at, (kind, record) in enumerate(ENTRIES)), 0, len(ENTRIES))


def judged(f: str, result: object, log: CommittedLog = LOG) -> Verdict:
    op = Op(index=0, process=0, f=f, key="a", outcome=OK, result=result, invoked_ns=0, ended_ns=1)
    return LoggedReads().check(Run(options=Options(), history=History([op]), log=log))


def test_a_topic_that_is_gone_may_still_be_shown() -> None:
    assert judged("describe", ["A", 2]).valid is True
    assert judged("glance", [["a", "A"]]).valid is True


@pytest.mark.parametrize(
    "f, result", [("describe", ["B", 2]), ("peek", ["A", 1]), ("list", [["b", "A"]]), ("glance", [["a", "A"], ["a", "B"]])]
)
def test_a_topic_that_never_was_like_this_is_a_violation(f: str, result: object) -> None:
    assert judged(f, result).details["violations"] == {"never there": 1}


def test_without_the_beginning_of_the_log_nothing_is_known() -> None:
    assert judged("describe", ["A", 2], CommittedLog(LOG.entries, 1, 4)).valid == UNKNOWN
    assert judged("describe", None).valid == UNKNOWN
