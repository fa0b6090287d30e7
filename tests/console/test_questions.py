"""Questions of the console: asked while somebody looks, an error keeps the last answer, and threads end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import trio

from kraftlab.client import ClusterUnreachable
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.console.questions import Question
from kraftlab.console.streams import Streams
from kraftlab.lab.cluster_plan import ClusterError

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
