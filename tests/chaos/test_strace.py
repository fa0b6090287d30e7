"""strace is attached to a node for as long as a fault lasts, and never longer than its harness knows of it."""

from __future__ import annotations

import subprocess
from typing import Any, cast

import pytest

from jepsen_lite.faults import strace as tracing
from jepsen_lite.faults.ledger import Ledger, Process
from kraftlab.lab import ClusterError


class FullLedger:
    """Cannot be written."""

    def add_process(self, pid: int, what: str) -> Process:
        raise ClusterError("no space left on device")


async def test_a_tracer_that_nobody_can_write_down_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[str]] = []

    def start(words: list[str]) -> subprocess.Popen[str]:
        begun.append(subprocess.Popen(["sleep", "600"], stderr=subprocess.PIPE, text=True))
        return begun[0]

    monkeypatch.setattr(tracing, "start_strace", start)
    with pytest.raises(ClusterError, match="no space left"):
        async with tracing.kept_injected(1, ["fsync:error=EIO"], cast(Ledger, cast(Any, FullLedger()))):
            pytest.fail("it was attached")
    tracer = begun[0]
    was_left = tracer.poll() is None
    tracer.kill()
    tracer.communicate()
    assert not was_left
