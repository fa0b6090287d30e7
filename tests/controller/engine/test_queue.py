from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.engine.queue import NEVER_MS, Event, EventQueue, NotNow


class Recorder:
    def __init__(self) -> None:
        self.now_ms = 100
        self.log: list[str] = []
        self.queue = EventQueue(lambda: self.now_ms)

    def event(self, name: str, deadline_ms: int = NEVER_MS) -> Event:
        return Event(
            name, lambda: self.log.append(name), lambda error: self.log.append(f"{name}: {error.code.name}"), deadline_ms
        )


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def test_an_event_runs_at_once_when_nothing_holds_the_queue(recorder: Recorder) -> None:
    recorder.queue.append(recorder.event("a"))
    assert recorder.log == ["a"]


def test_an_event_that_adds_events_finishes_before_they_run(recorder: Recorder) -> None:
    def outer() -> None:
        recorder.queue.append(recorder.event("inner"))
        recorder.log.append("outer")

    recorder.queue.append(Event("outer", outer, lambda error: None))
    assert recorder.log == ["outer", "inner"]


def test_held_events_keep_their_order(recorder: Recorder) -> None:
    recorder.queue.hold()
    for name in "abc":
        recorder.queue.append(recorder.event(name))
    assert recorder.log == []
    recorder.queue.resume()
    assert recorder.log == ["a", "b", "c"]


def test_a_prepended_event_runs_before_all_that_wait(recorder: Recorder) -> None:
    recorder.queue.hold()
    recorder.queue.append(recorder.event("client"))
    recorder.queue.prepend(recorder.event("activation"))
    assert recorder.log == ["activation", "client"]


def test_a_prepended_event_runs_before_due_events_and_again_if_it_could_not_run(recorder: Recorder) -> None:
    recorder.queue.pause()
    recorder.queue.schedule("due", 100, lambda: recorder.log.append("due"))
    recorder.queue.append(recorder.event("client"))
    attempts = iter((True, False))

    def not_at_first() -> None:
        if next(attempts):
            raise NotNow
        recorder.log.append("worked out")

    recorder.queue.unpause(Event("worked out", not_at_first, lambda error: None))
    assert recorder.log == []
    recorder.queue.resume()
    assert recorder.log == ["worked out", "due", "client"]


def test_an_event_whose_deadline_passes_in_the_queue_times_out_and_never_runs(recorder: Recorder) -> None:
    recorder.queue.hold()
    recorder.queue.append(recorder.event("early", deadline_ms=150))
    recorder.queue.append(recorder.event("late", deadline_ms=1000))
    assert recorder.queue.next_deadline_ms() == 150
    recorder.now_ms = 150
    recorder.queue.run_due()
    assert recorder.log == ["early: REQUEST_TIMED_OUT"]
    recorder.queue.resume()
    assert recorder.log == ["early: REQUEST_TIMED_OUT", "late"]
    assert recorder.queue.statistics()["timed_out"] == 1


def test_an_event_that_cannot_run_now_stays_at_the_head(recorder: Recorder) -> None:
    full = True

    def propose() -> None:
        if full:
            raise NotNow
        recorder.log.append("proposed")

    recorder.queue.append(Event("propose", propose, lambda error: None))
    recorder.queue.append(recorder.event("next"))
    assert recorder.log == []
    full = False
    recorder.queue.resume()
    assert recorder.log == ["proposed", "next"]


def test_a_deferred_event_that_cannot_run_now_holds_the_queue_and_is_tried_again(recorder: Recorder) -> None:
    attempts = 0

    def fence() -> None:
        nonlocal attempts
        attempts += 1
        assert attempts < 10, "tried again without a pause"
        if attempts == 1:
            raise NotNow
        recorder.log.append("fenced")

    recorder.queue.schedule("fence", recorder.now_ms, fence)
    recorder.queue.append(recorder.event("next"))
    assert (attempts, recorder.log) == (1, [])
    recorder.now_ms = recorder.queue.next_deadline_ms()
    recorder.queue.run_due()
    assert recorder.log == ["fenced", "next"]


def test_deferred_events_run_when_due_and_before_queued_ones(recorder: Recorder) -> None:
    recorder.queue.schedule("fence", 200, lambda: recorder.log.append("fence"))
    recorder.queue.append(recorder.event("a"))
    assert recorder.log == ["a"]
    assert recorder.queue.next_deadline_ms() == 200
    recorder.now_ms = 200
    recorder.queue.append(recorder.event("b"))
    assert recorder.log == ["a", "fence", "b"]


def test_scheduling_a_tag_again_replaces_it_and_cancelling_forgets_it(recorder: Recorder) -> None:
    recorder.queue.schedule("idle", 150, lambda: recorder.log.append("first"))
    recorder.queue.schedule("idle", 160, lambda: recorder.log.append("second"))
    recorder.queue.schedule("other", 160, lambda: recorder.log.append("other"))
    recorder.queue.cancel("other")
    recorder.now_ms = 300
    recorder.queue.run_due()
    assert recorder.log == ["second"]
    assert recorder.queue.next_deadline_ms() == NEVER_MS


def test_a_closed_queue_fails_waiting_and_later_events(recorder: Recorder) -> None:
    recorder.queue.hold()
    recorder.queue.append(recorder.event("waiting"))
    recorder.queue.close()
    recorder.queue.append(recorder.event("coming"))
    assert recorder.log == ["waiting: REQUEST_TIMED_OUT", "coming: REQUEST_TIMED_OUT"]


def test_timer_is_announced_when_it_changes() -> None:
    changes: list[int] = []
    queue = EventQueue(lambda: 0, lambda: changes.append(queue.next_deadline_ms()))
    queue.schedule("a", 50, lambda: None)
    queue.schedule("b", 20, lambda: None)
    queue.cancel("b")
    queue.hold()
    queue.append(Event("c", lambda: None, lambda error: None, 10))
    assert changes == [50, 20, 50, NEVER_MS, 10]


def test_timer_is_announced_when_a_pause_begins_and_ends_and_for_events_meanwhile() -> None:
    """Otherwise no deferred event would run after a pause until another event is deferred."""
    changes: list[int] = []
    queue = EventQueue(lambda: 0, lambda: changes.append(queue.next_deadline_ms()))
    queue.schedule("fence", 50, lambda: None)
    queue.pause()
    queue.append(Event("waits", lambda: None, lambda error: None, 10))
    queue.unpause()
    assert changes == [50, NEVER_MS, 10, 50]


@pytest.mark.parametrize(
    "end", [EventQueue.resume, lambda queue: queue.prepend(Event("first", lambda: None, lambda error: None))]
)
def test_timer_is_announced_when_a_hold_ends(end: Callable[[EventQueue], None]) -> None:
    changes: list[int] = []
    queue = EventQueue(lambda: 0, lambda: changes.append(queue.next_deadline_ms()))
    queue.schedule("fence", 50, lambda: None)
    queue.hold()
    end(queue)
    assert changes == [50, NEVER_MS, 50]


def test_errors_of_the_queue_say_that_nothing_was_done(recorder: Recorder) -> None:
    errors: list[ApiError] = []
    recorder.queue.hold()
    recorder.queue.append(Event("CreateTopics", lambda: None, errors.append, 100))
    recorder.queue.run_due()
    assert errors[0].code is ErrorCode.REQUEST_TIMED_OUT
    assert "CreateTopics" in errors[0].message
    assert "nothing was done" in errors[0].message


def test_nothing_runs_while_the_queue_is_paused_and_the_end_of_the_pause_comes_first(recorder: Recorder) -> None:
    recorder.queue.append(Event("pause", recorder.queue.pause, lambda error: None))
    recorder.queue.append(recorder.event("waits"))
    recorder.queue.schedule("due", 100, lambda: recorder.log.append("due"))
    recorder.queue.resume()
    recorder.queue.run_due()
    assert recorder.log == []
    assert recorder.queue.next_deadline_ms() == NEVER_MS
    recorder.queue.unpause(recorder.event("first"))
    assert recorder.log == ["first", "due", "waits"]


def test_events_time_out_while_the_queue_is_paused(recorder: Recorder) -> None:
    recorder.queue.pause()
    recorder.queue.append(recorder.event("waits", deadline_ms=150))
    assert recorder.queue.next_deadline_ms() == 150
    recorder.now_ms = 150
    recorder.queue.run_due()
    recorder.queue.unpause()
    assert recorder.log == ["waits: REQUEST_TIMED_OUT"]


def test_a_pause_that_ends_in_a_closed_queue_fails_its_event(recorder: Recorder) -> None:
    recorder.queue.pause()
    recorder.queue.close()
    recorder.queue.unpause(recorder.event("late"))
    assert recorder.log == ["late: REQUEST_TIMED_OUT"]
