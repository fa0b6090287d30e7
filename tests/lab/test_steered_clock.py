"""A node's clock that another process lets run wrong."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.lab import ClusterError
from kraftlab.lab.steered_clock import NOTICED_WITHIN_S, ClockFile, SteeredClock

CHANGES = st.one_of(st.tuples(st.just("rate"), st.floats(0.001, 1000)), st.tuples(st.just("jump"), st.floats(0.001, 1e6)))


class MonotonicTime:
    """In place of the machine's monotonic clock."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clocks") / "controller-3000"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[MonotonicTime]:
    now = MonotonicTime()
    monkeypatch.setattr(time, "monotonic", now)
    yield now


@given(st.lists(st.tuples(CHANGES, st.floats(0, 100)), max_size=12))
@settings(deadline=None)
def test_it_shows_what_rates_and_jumps_add_up_to(path: Path, changes: list[tuple[tuple[str, float], float]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        machine = MonotonicTime()
        patched.setattr(time, "monotonic", machine)
        file = ClockFile(path)
        clock = SteeredClock(path)
        expected, rate = machine.now_s, 1.0
        for (kind, amount), seconds in changes:
            if kind == "rate":
                file.run_at(amount)
                rate = amount
            else:
                file.jump(amount)
                expected += amount
            machine.now_s += seconds
            expected += seconds * rate
            assert clock.current_time() == pytest.approx(expected)
        file.close()


def test_it_never_goes_back_and_is_looked_at_again_soon(path: Path, machine: MonotonicTime) -> None:
    file = ClockFile(path)
    clock = SteeredClock(path)
    file.jump(60.0)
    assert clock.current_time() == 1_060.0
    machine.now_s -= 10.0
    assert clock.current_time() == 1_060.0
    file.run_at(10.0)
    assert clock.deadline_to_sleep_time(float("inf")) == NOTICED_WITHIN_S
    assert clock.deadline_to_sleep_time(1_060.1) == pytest.approx(0.01)
    assert clock.deadline_to_sleep_time(0.0) == 0.0


def test_a_reader_of_an_older_clock_keeps_that_one(path: Path, machine: MonotonicTime) -> None:
    file = ClockFile(path)
    older = SteeredClock(path)
    ClockFile(path).jump(5.0)
    file.jump(1.0)
    assert (older.current_time(), SteeredClock(path).current_time()) == (1_001.0, 1_005.0)


def test_trio_waits_by_it(path: Path) -> None:
    file = ClockFile(path)
    file.run_at(1000.0)

    async def wait() -> float:
        await trio.sleep(60.0)
        return trio.current_time()

    began_s = time.monotonic()
    assert trio.run(wait, clock=SteeredClock(path)) >= began_s + 60.0
    assert time.monotonic() - began_s < 30.0


@pytest.mark.parametrize("rate", [0.0, -1.0, 1001.0, float("nan")])
def test_a_clock_that_does_not_go_on_is_refused(path: Path, rate: float) -> None:
    with pytest.raises(ClusterError, match=r"0\.001 to 1000 times"):
        ClockFile(path).run_at(rate)


@pytest.mark.parametrize("seconds", [0.0, -5.0, 1e7])
def test_a_clock_that_goes_back_is_refused(path: Path, seconds: float) -> None:
    with pytest.raises(ClusterError, match="never goes back"):
        ClockFile(path).jump(seconds)


class Recorded(bytearray):
    """Contents of a file after each eight bytes that are written."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.states = [bytes(self)]

    def __setitem__(self, where: Any, data: Any) -> None:
        start, stop, _ = where.indices(len(self))
        for at in range(start, stop, 8):
            super().__setitem__(slice(at, at + 8), data[at - start : at - start + 8])
            self.states.append(bytes(self))


def test_a_reader_during_a_write_notices_it_or_sees_all_or_nothing_of_it(path: Path) -> None:
    """A reader takes the five fields from the first to the last, and the writer may do something between any two."""
    file = ClockFile(path)
    file.run_at(2.0)
    file.mapped = written = Recorded(file.mapped[:])  # type: ignore[assignment]
    file.run_at(0.5)
    fields = [struct.unpack("<QdddQ", state) for state in written.states]
    whole = {fields[0][1:4], fields[-1][1:4]}
    assert len(fields) == 6 and len(whole) == 2
    for moments in combinations_with_replacement(fields, 5):
        first, *clock, last = (moment[place] for place, moment in enumerate(moments))
        assert first != last or tuple(clock) in whole
