"""Tasks of one owner are held while all others go on, and see the passed time afterwards."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kraftlab.simulation.runtime.held_tasks import OWNER, CannotHold, HeldTasks

Seen = list[tuple[float, str]]


def under_trio(main: Callable[[HeldTasks, trio.Nursery], Coroutine[Any, Any, None]]) -> None:
    held = HeldTasks()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await main(held, nursery)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=MockClock(autojump_threshold=0), instruments=[held])


def begin(owner: str, nursery: trio.Nursery, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
    context = copy_context()
    context.run(OWNER.set, owner)
    context.run(nursery.start_soon, task)


async def ticking(seen: Seen, name: str) -> None:
    while True:
        seen.append((round(trio.current_time(), 3), name))
        await trio.sleep(1)


def test_no_task_of_the_owner_makes_a_step_nor_do_those_that_it_has_begun() -> None:
    seen: Seen = []

    async def parent() -> None:
        async with trio.open_nursery() as children:
            children.start_soon(ticking, seen, "child")
            await ticking(seen, "parent")

    async def main(held: HeldTasks, nursery: trio.Nursery) -> None:
        begin("a", nursery, parent)
        nursery.start_soon(ticking, seen, "other")
        await trio.sleep(1.5)
        held.hold("a")
        assert "a" in held and "b" not in held
        await trio.sleep(3)
        held.release("a")
        await trio.sleep(1.2)

    under_trio(main)
    by_name = {name: [at for at, who in seen if who == name] for name in ("parent", "child", "other")}
    assert by_name == {"parent": [0, 1, 4.5, 5.5], "child": [0, 1, 4.5, 5.5], "other": [0, 1, 2, 3, 4, 5]}


def test_a_deadline_that_passes_meanwhile_is_found_to_be_over() -> None:
    seen: Seen = []

    async def waiting() -> None:
        with trio.move_on_after(1):
            await trio.sleep_forever()
        seen.append((trio.current_time(), "too late"))

    async def main(held: HeldTasks, nursery: trio.Nursery) -> None:
        begin("a", nursery, waiting)
        await trio.sleep(0.5)
        held.hold("a")
        await trio.sleep(3)
        assert not seen
        held.release("a")
        await trio.testing.wait_all_tasks_blocked()

    under_trio(main)
    assert seen == [(3.5, "too late")]


def test_a_task_that_is_woken_and_cancelled_while_held_gets_both_afterwards_in_order() -> None:
    seen: Seen = []
    scope = trio.CancelScope()

    async def main(held: HeldTasks, nursery: trio.Nursery) -> None:
        rung = trio.Event()

        async def waiting() -> None:
            with scope:
                await rung.wait()
                seen.append((trio.current_time(), "woken"))
                await trio.sleep_forever()
            seen.append((trio.current_time(), "ended"))

        begin("a", nursery, waiting)
        await trio.testing.wait_all_tasks_blocked()
        held.hold("a")
        rung.set()
        await trio.sleep(1)
        scope.cancel()
        await trio.sleep(1)
        assert not seen
        held.release("a")
        held.release("a")
        await trio.testing.wait_all_tasks_blocked()

    under_trio(main)
    assert seen == [(2, "woken"), (2, "ended")]


def test_a_task_that_is_held_again_at_once_makes_no_step_in_between() -> None:
    seen: Seen = []

    async def main(held: HeldTasks, nursery: trio.Nursery) -> None:
        begin("a", nursery, lambda: ticking(seen, "a"))
        await trio.sleep(0.5)
        held.hold("a")
        await trio.sleep(1)
        held.release("a")
        held.hold("a")
        await trio.sleep(1)
        assert seen == [(0, "a")]
        held.release("a")
        await trio.testing.wait_all_tasks_blocked()

    under_trio(main)
    assert seen == [(0, "a"), (2.5, "a")]


def test_what_a_held_task_raises_and_returns_comes_as_from_any_other() -> None:
    async def failing() -> None:
        await trio.sleep(1)
        raise KeyError("as it is")

    async def parent() -> None:
        with pytest.RaisesGroup(KeyError):
            async with trio.open_nursery() as children:
                children.start_soon(failing)
        assert [frame.f_code.co_name for frame, _ in trio.lowlevel.current_task().iter_await_frames()][:1] == ["parent"]

    async def main(held: HeldTasks, nursery: trio.Nursery) -> None:
        begin("a", nursery, parent)
        await trio.sleep(0.5)
        held.hold("a")
        await trio.sleep(2)
        held.release("a")
        await trio.testing.wait_all_tasks_blocked()

    under_trio(main)


def test_a_trio_that_resumes_tasks_in_another_way_is_named_instead_of_holding_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a trio that keeps the coroutine's method from before the instrument is notified of a task."""
    monkeypatch.setattr(HeldTasks, "task_spawned", lambda held, task: setattr(held, "has_tasks", True))

    async def main(held: HeldTasks, nursery: trio.Nursery) -> None:
        begin("a", nursery, trio.lowlevel.checkpoint)
        await trio.sleep(1)
        with pytest.raises(CannotHold, match=rf"under trio {trio.__version__} nodes cannot be paused: no step"):
            held.hold("a")

    under_trio(main)
