"""Questions of the console: asked while somebody looks, an error keeps the last answer, and threads end."""

from __future__ import annotations

import io
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kraftlab.client import ClusterUnreachable
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.console import questions
from kraftlab.console.questions import Question, Questions
from kraftlab.console.streams import Streams
from kraftlab.lab.cluster_plan import ClusterError, ClusterPlan, NodePlan

PATIENCE_S = 10.0


class Noted(Streams):
    """Notes what is put, instead of sending it."""

    def __init__(self) -> None:
        self.watched = threading.Event()
        self.noted: list[tuple[str, object, str]] = []

    def put(self, name: str, value: object, fault: str = "") -> None:
        self.noted.append((name, value, fault))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it has not happened"
        threading.Event().wait(0.01)


@pytest.fixture
def streams() -> Noted:
    return Noted()


@pytest.fixture
def started(streams: Noted) -> Iterator[Callable[[Callable[[], object]], Question]]:
    threads: list[Question] = []

    def start(ask: Callable[[], object]) -> Question:
        threads.append(Question(streams, "disks", 0.0, ask))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.stop()
        thread.join(PATIENCE_S)


Start = Callable[[Callable[[], object]], Question]


def test_nothing_is_asked_while_nobody_looks(streams: Noted, started: Start) -> None:
    asked = threading.Event()
    started(asked.set)
    assert not asked.wait(0.7)
    streams.watched.set()
    assert asked.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ApiError(ErrorCode.NOT_CONTROLLER, "controller 3001 leads"), "controller 3001 leads"),
        (ClusterUnreachable("no node could answer"), "no node could answer"),
        (ClusterError("no controller of this cluster leads"), "no controller of this cluster leads"),
        (ZeroDivisionError("oops"), "ZeroDivisionError; the console's log has the reason"),
    ],
)
def test_an_error_is_the_fault_of_the_part_and_asking_goes_on(streams: Noted, started: Start, error: Exception, why: str) -> None:
    answers = iter([1, error, 2])

    def ask() -> object:
        answer = next(answers, 2)
        if isinstance(answer, Exception):
            raise answer
        return answer

    started(ask)
    streams.watched.set()
    wait_for(lambda: len(streams.noted) >= 3)
    (_, first, _), (_, kept, fault), (_, later, _) = streams.noted[:3]
    assert (first, kept, later) == (1, None, 2)
    assert why in fault


def test_a_thread_ends_soon_whether_somebody_looks_or_not(streams: Noted, started: Start) -> None:
    resting = started(lambda: 1)
    resting.stop()
    resting.join(PATIENCE_S)
    streams.watched.set()
    busy = started(lambda: 1)
    busy.stop()
    busy.join(PATIENCE_S)
    assert not resting.is_alive()
    assert not busy.is_alive()


def test_an_error_of_a_client_that_was_closed_at_the_end_is_not_told(
    streams: Noted, started: Start, caplog: pytest.LogCaptureFixture
) -> None:
    asking, closed = threading.Event(), threading.Event()

    def ask() -> object:
        asking.set()
        closed.wait(PATIENCE_S)
        raise ValueError("the channel is closed")

    question = started(ask)
    streams.watched.set()
    asking.wait(PATIENCE_S)
    question.stop()
    closed.set()
    question.join(PATIENCE_S)
    assert (streams.noted, caplog.text) == ([], "")


def test_a_value_that_is_put_after_the_end_of_the_event_loop_is_dropped() -> None:
    async def made() -> Streams:
        return Streams()

    streams = trio.run(made)
    streams.put("quorum", 1)
    assert streams.count == 0


def test_times_to_commit_are_those_of_the_newest_commits_until_there_are_others(
    streams: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = NodePlan(3000, "controller", 1, 2, metrics_port=3)
    monkeypatch.setattr(questions, "load", lambda data: ClusterPlan("id", (node,)))
    monkeypatch.setattr(questions, "Question", lambda streams, name, interval_s, ask: (name, ask))
    client: Any = SimpleNamespace(speaks_kafka=True, security=SimpleNamespace(tls=False))
    asked = Questions(client, streams, lambda: None, Path("lab"), False)
    cluster: Any = SimpleNamespace(leader_id=3000)
    asked.cluster = cluster
    threads: Any = asked.threads
    ask = dict(threads)["commits"]

    def told(fast: int, slow: int) -> tuple[object, ...]:
        counts = {"0.005": fast, "0.1": fast + slow, "+Inf": fast + slow}
        text = "\n".join(f'kraftlab_commit_duration_seconds_bucket{{le="{le}"}} {count}' for le, count in counts.items())
        monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: io.BytesIO(text.encode()))
        found = ask()
        return found["commits"], found["p50_ms"], found["p99_ms"]

    assert told(0, 0) == (0, None, None)
    assert told(2, 0) == (2, 5, 5)
    assert told(2, 3) == (3, 100, 100)
    assert told(2, 3) == (3, 100, 100), "nothing was committed since"
    assert told(1, 0) == (1, 5, 5), "the process was started again"
