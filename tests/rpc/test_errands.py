from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from kraftlab.rpc.errands import Errands


def test_errands_before_the_loop_wakes_up_share_its_wake_up() -> None:
    wakes: list[Callable[[], None]] = []
    done: list[int] = []
    errands = Errands(wakes.append)
    for number in range(3):
        errands.put(partial(done.append, number))
    assert (len(wakes), done) == (1, [])
    wakes.pop()()
    assert done == [0, 1, 2]
    errands.put(partial(done.append, 3))
    wakes.pop()()
    assert done == [0, 1, 2, 3]


def test_an_errand_put_by_an_errand_is_done() -> None:
    wakes: list[Callable[[], None]] = []
    done: list[str] = []
    errands = Errands(wakes.append)
    errands.put(partial(errands.put, partial(done.append, "second")))
    wakes[0]()
    assert done == ["second"]


def test_every_errand_of_any_thread_is_done() -> None:
    wakes: list[Callable[[], None]] = []
    done: list[int] = []
    errands = Errands(wakes.append)

    def put_many() -> None:
        for _ in range(5000):
            errands.put(partial(done.append, 1))

    threads = [threading.Thread(target=put_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or wakes:
        if wakes:
            wakes.pop()()
    assert len(done) == 20_000
