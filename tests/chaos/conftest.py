"""What tests of the harness share: a world without a cluster, in which time is a number and coroutines are driven by a heap."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Coroutine, Generator, Sequence
from itertools import count
from typing import Any

import pytest

from jepsen_lite.faults import capabilities
from jepsen_lite.faults.networks.back_ends import NETNS, NFT
from jepsen_lite.history import Op
from jepsen_lite.scheduler import Interpreter
from jepsen_lite.workload import CallFailed, Completion, Options, Reply, Workload

Answerer = Callable[[str, Any, int], Reply]


class Moment:
    """Awaiting it gives control back to the heap until `wake` is called."""

    def __init__(self) -> None:
        self.is_over = False
        self.then: Callable[[], None] = lambda: None

    def wake(self) -> None:
        self.then()

    def __await__(self) -> Generator[Moment, None, None]:
        yield self


class Heap:
    """Drives coroutines by a heap of times; a small `Drive`, and the port of all its processes."""

    controllers = (1,)
    brokers = (10, 11)

    def __init__(self, answer: Answerer | None = None) -> None:
        self._answer, self._events, self._order, self._now = answer, [], count(), 0
        self.asked: list[tuple[str, Any, int]] = []

    # -- the loop ------------------------------------------------------------------------------------------------------

    def at(self, when_ns: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(when_ns, self._now), next(self._order), what))

    def _resume(self, coroutine: Coroutine[Any, Any, None], ended: Callable[[], None]) -> None:
        try:
            moment = coroutine.send(None)
        except StopIteration:
            return ended()
        moment.then = lambda: self._resume(coroutine, ended)
        return None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        over: list[bool] = []
        self._resume(coroutine, lambda: over.append(True))
        while self._events and not over:
            self._now, _, what = heapq.heappop(self._events)
            what()
        assert over, "nothing happens any more, and the coroutine has not ended"

    async def together(self, tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        moment, left = Moment(), [len(tasks)]

        def ended() -> None:
            left[0] -= 1
            if not left[0]:
                self.at(self._now, moment.wake)

        for task in tasks:
            self.at(self._now, lambda task=task: self._resume(task(), ended))
        await moment

    # -- time ----------------------------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        return self._now

    async def sleep(self, seconds: float) -> None:
        moment = Moment()
        self.at(self._now + int(seconds * 1e9), moment.wake)
        await moment

    def bell(self) -> HeapBell:
        return HeapBell(self)

    # -- the port ------------------------------------------------------------------------------------------------------

    def port(self, process: int) -> Heap:
        return self

    async def call(self, api: str, request: Any, *, node: int | None = None, timeout_ms: int | None = None) -> Reply:
        self.asked.append((api, request, self._now))
        await self.sleep(0.01)
        if self._answer is None:
            raise CallFailed("info", "nobody answers")
        return self._answer(api, request, self._now)


class HeapBell:
    def __init__(self, heap: Heap) -> None:
        self._heap, self._waiting = heap, []

    async def wait(self, until_ns: int | None) -> None:
        moment = Moment()
        self._waiting.append(moment)
        if until_ns is not None:
            self._heap.at(until_ns, lambda: self._wake(moment))
        await moment

    def _wake(self, moment: Moment) -> None:
        if not moment.is_over:
            moment.is_over = True
            if moment in self._waiting:
                self._waiting.remove(moment)
            moment.wake()

    def ring(self) -> None:
        waiting, self._waiting = self._waiting, []
        for moment in waiting:
            self._heap.at(self._heap.now_ns(), lambda moment=moment: self._wake(moment))


class SlowClient:
    """Each operation takes as long as `seconds` says and ends as `outcome` says, from the invocation."""

    def __init__(self, seconds: Callable[[Any], float], outcome: Callable[[Any], str]) -> None:
        self._seconds, self._outcome = seconds, outcome

    async def invoke(self, invocation: Any, port: Any) -> Completion:
        await port.sleep(self._seconds(invocation))
        return Completion(self._outcome(invocation), invocation.value)


@pytest.fixture(scope="session")
def heap() -> type[Heap]:
    return Heap


@pytest.fixture(scope="session")
def played() -> Callable[..., list[Op]]:
    """Plays a source on the heap with clients that do nothing but take time; gives the operations by index."""

    def play(
        source: Any, *, workers: int = 3, seconds: Any = lambda _: 0.01, outcome: Any = lambda _: "ok", seed: str = "0"
    ) -> Any:
        options = Options(concurrency=workers, seed=seed)
        workload = Workload("made-up", lambda *_: SlowClient(seconds, outcome), lambda _: (), lambda _: source, lambda _: ())
        world = Heap()
        interpreter = Interpreter(workload, options, world)
        world.run(interpreter.final())
        return sorted(interpreter.ops, key=lambda op: op.index)

    return play


@pytest.fixture(scope="session")
def networks_that_are_off() -> dict[str, str]:
    """What the doctor says of those that cannot be had here, by name."""
    found = capabilities.probe((NETNS, NFT))
    return {row.name: f"{row.detail}; {row.install}" for row in found if not row.is_on}


@pytest.fixture(params=(NETNS, NFT))
def net(request: pytest.FixtureRequest, networks_that_are_off: dict[str, str]) -> str:
    """A net that makes a network for the run, where that works."""
    if request.param in networks_that_are_off:
        pytest.skip(networks_that_are_off[request.param])
    return str(request.param)
