"""Shared fixtures of the harness's tests: a cluster that is one function, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from jepsen_lite.faults import capabilities, ledger
from jepsen_lite.faults.networks.back_ends import NETNS
from jepsen_lite.history import Op
from jepsen_lite.scheduler import Interpreter
from jepsen_lite.workload import CallFailed, Completion, Options, Reply, Workload
from jepsen_lite.worlds.trio_drive import TrioDrive

Answerer = Callable[[str, Any, int], Reply]


class VirtualCluster:
    """A cluster that is one function, in virtual time: the port of each process and the drive of an interpreter. Each call takes
    10 ms and is answered by `answer`, from the API's name, the request and the time. Without `answer` no call is answered.
    """

    controllers = (1,)
    brokers = (10, 11)

    def __init__(self, answer: Answerer | None = None) -> None:
        self._answer = answer
        self.asked: list[tuple[str, Any, int]] = []
        self.now_ns: Callable[[], int] = lambda: 0

    def run(self, workload: Workload, options: Options, use: Callable[[Interpreter], Awaitable[object]]) -> Interpreter:
        """Run the workload as `use` does with its interpreter. The same seed gives the same run."""

        async def main() -> Interpreter:
            drive = TrioDrive(lambda process: self, options.concurrency)
            self.now_ns = drive.now_ns
            interpreter = Interpreter(workload, options, drive, self.ended.append)
            try:
                await use(interpreter)
            finally:
                self.ops = sorted(interpreter.ops, key=lambda op: op.index)
            return interpreter

        self.ended: list[Op] = []
        # The next task among those that can go on is random, too; pytest-trio seeds it in this way.
        trio._core._run._r.seed(options.seed)  # type: ignore[attr-defined]
        return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def call(self, api: str, request: Any, *, node: int | None = None, timeout_ms: int | None = None) -> Reply:
        self.asked.append((api, request, self.now_ns()))
        await self.sleep(0.01)
        if self._answer is None:
            raise CallFailed("info", "nobody answers")
        return self._answer(api, request, self.now_ns())


class SlowClient:
    """A client whose operations last `seconds` and end with `outcome`, both functions of the invocation."""

    def __init__(self, seconds: Callable[[Any], float], outcome: Callable[[Any], str]) -> None:
        self._seconds, self._outcome = seconds, outcome

    async def invoke(self, invocation: Any, port: Any) -> Completion:
        await port.sleep(self._seconds(invocation))
        return Completion(self._outcome(invocation), invocation.value)


@pytest.fixture(scope="session")
def virtual_cluster() -> type[VirtualCluster]:
    return VirtualCluster


@pytest.fixture(scope="session")
def played() -> Callable[..., list[Op]]:
    """Play a source with clients that do nothing but take time; return the operations by index."""

    def play(
        source: Any, *, workers: int = 3, seconds: Any = lambda _: 0.01, outcome: Any = lambda _: "ok", seed: str = "0"
    ) -> Any:
        options = Options(concurrency=workers, seed=seed)
        workload = Workload("made-up", lambda *_: SlowClient(seconds, outcome), lambda _: (), lambda _: source, lambda _: ())
        cluster = VirtualCluster()
        cluster.run(workload, options, Interpreter.final)
        return cluster.ops

    return play


@pytest.fixture(scope="session")
def netns() -> str:
    """The back end that makes a network for the run. Skips if this machine does not support it."""
    (found,) = capabilities.probe((NETNS,))
    if not found.is_on:
        pytest.skip(f"{found.detail}; {found.install}")
    return NETNS


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory of ledgers, which only the test has."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return ledger.state_directory()
