"""Every recording of what Apache Kafka answers, run against a cluster of ours."""

from __future__ import annotations

from kraftlab.checking.recorded_cases.documents import Document
from kraftlab.checking.recorded_cases.judgement import Outcome
from kraftlab.checking.recorded_cases.runner import summary


def test_answers_as_recorded(recording: Document, outcome: Outcome) -> None:
    assert not outcome.failures, f"{recording.shows}\n{summary(outcome)}"
