"""The comparison of what kafka-python produced and consumed, and the demo without kafka-python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftlab.demo import kafka_clients
from kraftlab.demo.kafka_clients import compared
from kraftlab.demo.report import StoryReport
from kraftlab.demo.story import Story

SENT = [[b"0", b"2"], [b"1"]]


def test_the_same_records_in_the_order_of_sending_are_what_is_wanted() -> None:
    assert compared(SENT, SENT) == (True, "3 records produced, all consumed once, in order")


@pytest.mark.parametrize(
    "received, text",
    [
        ([b"0"], "1 are missing, 0 came twice"),
        ([b"0", b"0", b"2"], "0 are missing, 1 came twice"),
        ([b"2", b"0"], "another order, or others"),
        ([b"0", b"2", b"3"], "another order, or others"),
    ],
)
def test_a_record_that_is_missing_doubled_reordered_or_strange_is_found(received: list[bytes], text: str) -> None:
    is_right, found = compared(SENT, [received, [b"1"]])
    assert not is_right
    assert found.startswith("partition 0: 2 records produced") and found.endswith(text)


def test_no_record_at_all_is_not_enough() -> None:
    assert not compared([[], []], [[], []])[0]


def test_without_kafka_python_the_demo_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kafka_clients, "is_installed", lambda: False)
    report = StoryReport(as_json=False)
    report.console.width = 200
    story = SimpleNamespace(report=report, clients=None)
    Story.start_kafka_clients(cast(Any, story))
    assert story.clients is None
    [line] = capsys.readouterr().out.splitlines()
    assert "pip install -e '.[demo]'" in line
