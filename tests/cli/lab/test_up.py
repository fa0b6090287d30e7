"""Output of `kraftlab up` while its cluster runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kraftlab.cli.lab import up
from kraftlab.lab import ClusterError


class Cluster:
    """A cluster whose broker ends, is started again, and ends again."""

    def __init__(self) -> None:
        self.seen = [{1: 3}, {1: 3}, {}, {1: 3}, {1: 3, 2: -9}]
        self.directory = Path("/lab")

    def exited(self) -> dict[int, int]:
        return self.seen.pop(0)

    def node(self, node_id: int) -> SimpleNamespace:
        return SimpleNamespace(name=f"broker-{node_id}")

    def last_words(self, node_id: int) -> str:
        return "no space"

    def wait(self, timeout_s: float) -> bool:
        return not self.seen


def test_each_end_of_a_node_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    up.watch(cluster, cluster, allow_chaos=True)  # type: ignore[arg-type]
    assert capsys.readouterr().err.splitlines() == [
        *["broker-1 ended with code 3: no space", "  start it again: kraftlab cluster restart broker-1"] * 2,
        "broker-2 was killed by SIGKILL",
        "  start it again: kraftlab cluster restart broker-2",
    ]


def test_a_cluster_that_takes_no_orders_is_started_again_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    up.watch(cluster, cluster, allow_chaos=False)  # type: ignore[arg-type]
    assert "  start it again: Ctrl-C, then kraftlab up --data /lab\n" in capsys.readouterr().err


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_cluster_is_closed_also_if_its_output_is_closed(is_heard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kraftlab up 2>&1 | head`: the reader has gone before Ctrl-C comes."""
    done: list[str] = []

    def start() -> None:
        raise ClusterError("no ports")

    def echo(*_: object, **__: object) -> None:
        if not is_heard:
            raise BrokenPipeError

    cluster = SimpleNamespace(start=start, close=lambda: done.append("closed"))
    monkeypatch.setattr("kraftlab.lab.LocalCluster", lambda *_, **__: cluster)
    monkeypatch.setattr(up.click, "echo", echo)
    monkeypatch.setattr(up.signal, "signal", lambda *_: None)
    with pytest.raises(ClusterError if is_heard else BrokenPipeError):
        up.up.main(["--data", "lab"], standalone_mode=False)
    assert done == ["closed"]


STORM = """
import signal
from kraftlab.cli.lab.up import StopRequest

for _ in range(1000):
    stop = StopRequest()
    signal.signal(signal.SIGALRM, lambda *_: stop.set())
    signal.setitimer(signal.ITIMER_REAL, 0.00005, 0.00005)
    while not stop.wait(0.5) or not stop.is_set():
        pass
    signal.setitimer(signal.ITIMER_REAL, 0)
print("stopped")
"""


def test_several_signals_at_once_stop_a_cluster() -> None:
    """`timeout` sends two, and people press Ctrl-C more than once."""
    ended = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "stopped\n"
