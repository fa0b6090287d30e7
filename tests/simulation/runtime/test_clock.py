"""Clocks of machines: the time on wrong clocks, and the calls to their followers."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kraftlab.simulation.runtime.clock import MachineClocks, Skew
from kraftlab.simulation.runtime.machine import STARTED_S


async def test_clocks_run_at_the_rate_that_all_faults_want_together(autojump_clock: MockClock) -> None:
    clock = MachineClocks()
    with clock.wrong(Skew(rate=2)):
        await trio.sleep(1)
        with clock.wrong(Skew(rate=0.25)):
            await trio.sleep(2)
        await trio.sleep(1)
        assert clock.now_s() == pytest.approx(2 + 1 + 2)
    await trio.sleep(1)
    assert clock.now_s() == pytest.approx(6), "how long it has run is not corrected"
    assert clock.wall_s() == pytest.approx(STARTED_S + 5), "the time of day is"


async def test_a_jump_is_one_of_both_clocks_and_another_time_of_day_of_one(autojump_clock: MockClock) -> None:
    clock = MachineClocks()
    with clock.wrong(Skew(jump_s=20)), clock.wrong(Skew(set_s=-3600)):
        assert (clock.now_s(), clock.wall_s()) == (20, STARTED_S + 20 - 3600)
    assert (clock.now_s(), clock.wall_s()) == (20, STARTED_S)


async def test_a_wait_for_a_time_ends_when_the_clock_shows_that_time(
    autojump_clock: MockClock,
) -> None:
    clock = MachineClocks()
    alarm = trio.CancelScope(deadline=clock.at(10))
    clock.follow(lambda: setattr(alarm, "deadline", clock.at(10)))
    shown: list[float] = []

    async def waiting() -> None:
        with alarm:
            await trio.sleep_forever()
        shown.append(clock.now_s())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting)
        await trio.sleep(2)
        with clock.wrong(Skew(rate=0.5)):
            await trio.sleep(4)
            with clock.wrong(Skew(jump_s=1)):
                await trio.sleep(2)
        assert not shown
    assert shown == [pytest.approx(10, abs=1e-4)]
    assert shown[0] >= 10
    assert trio.current_time() == pytest.approx(12, abs=1e-4)


async def test_dead_followers_are_not_called(autojump_clock: MockClock) -> None:
    clock, told = MachineClocks(), list[str]()
    clock.follow(lambda: told.append("first life"))
    clock.boot()
    clock.follow(lambda: told.append("second life"))
    with clock.wrong(Skew(rate=2)):
        pass
    assert told == ["second life"] * 2
