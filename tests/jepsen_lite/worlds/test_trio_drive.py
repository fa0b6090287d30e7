"""The interpreter under trio, on a real or a mock clock."""

from __future__ import annotations

import weakref

import pytest
import trio

from jepsen_lite.worlds.trio_drive import TrioDrive


class Port:
    controllers, brokers = (1,), ()

    async def sleep(self, seconds):
        await trio.sleep(seconds)

    def now_ns(self):
        return 0


async def test_a_bell_wakes_its_waiters_and_time_the_others(autojump_clock):
    drive = TrioDrive(lambda process: Port(), 2)
    bell, woken = drive.bell(), []

    async def wait(name, until_ns):
        await bell.wait(until_ns)
        woken.append((name, drive.now_ns()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "soon", 1_000_000_000)
        nursery.start_soon(wait, "late", 9_000_000_000)
        nursery.start_soon(wait, "never", None)
        await trio.sleep(5)
        bell.ring()
    assert sorted(woken) == [("late", 5_000_000_000), ("never", 5_000_000_000), ("soon", 1_000_000_000)]


async def test_a_time_that_has_passed_is_not_waited_for(autojump_clock):
    drive = TrioDrive(lambda process: Port(), 2)
    await trio.sleep(3)
    drive.begin()
    assert drive.now_ns() == 0
    await trio.sleep(2)
    await drive.bell().wait(1_000_000_000)
    assert drive.now_ns() == 2_000_000_000


async def test_what_one_task_raises_ends_all_and_comes_alone(autojump_clock):
    drive, ended = TrioDrive(lambda process: Port(), 2), []

    async def fail():
        await trio.sleep(1)
        raise LookupError("nothing there")

    async def wait():
        try:
            await trio.sleep_forever()
        finally:
            ended.append(True)

    with pytest.raises(LookupError, match="nothing there"):
        await drive.together([fail, wait, wait])
    assert ended == [True, True]


async def test_the_port_of_a_process_goes_with_it():
    """A port can hold connections open, and every operation with an unknown outcome ends a process."""
    drive = TrioDrive(lambda process: Port(), 2)
    ports = {process: weakref.ref(drive.port(process)) for process in (-1, 0, 1, 2, 4)}
    assert [process for process, port in ports.items() if port() is not None] == [-1, 1, 4]
    assert drive.port(1) is ports[1]()
