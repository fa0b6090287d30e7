"""Nodes of the simulated runtime: the batches that they report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.simulation.runtime.nodes import report_committed


class _StateMachine:
    def __init__(self) -> None:
        self.applied: list[int] = []

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        self.applied += [batch.base_offset for batch in batches]


async def test_a_batch_that_a_snapshot_has_replaced_before_it_is_applied_is_not_reported() -> None:
    machine, reported = _StateMachine(), list[bytes]()
    in_log = {7: b"the batch as it is in the log"}
    driver: Any = SimpleNamespace(committed=lambda start, max_bytes: in_log.get(start, b""))
    report_committed(driver, machine, reported.append)
    await machine.apply([CommittedBatch(offset, offset + 1, 1, 0, b"") for offset in (6, 7)], 8)
    assert reported == [in_log[7]]
    assert machine.applied == [6, 7]
