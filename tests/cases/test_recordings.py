"""Every recording of what Apache Kafka answers, run against a cluster of ours."""

from __future__ import annotations

from case_runner.documents import Document
from case_runner.judgement import Outcome
from case_runner.runner import summary


def test_answers_as_recorded(recording: Document, outcome: Outcome) -> None:
    assert not outcome.failures, f"{recording.shows}\n{summary(outcome)}"
