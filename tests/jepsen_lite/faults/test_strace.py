"""strace is attached to a node during a fault, and never without an entry in the ledger."""

from __future__ import annotations

import subprocess
from typing import Any, cast

import pytest

from jepsen_lite.faults import strace as tracing
from jepsen_lite.faults.ledger import Ledger, Process
from kraftlab.lab import ClusterError


class FullLedger:
    """A ledger that cannot be written."""

    def add_process(self, pid: int, what: str) -> Process:
        raise ClusterError("no space left on device")


async def test_a_tracer_that_cannot_be_recorded_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
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
