"""The state machine as the simulation knows it: the protocol of quorum/state_machine.py, and a digest to compare nodes by."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Coroutine
from typing import Protocol

from ..core.types import Endpoint
from ..state_machine import CommittedBatch, StateMachine

_POSITION = struct.Struct(">QQQQ")


class SimulatedStateMachine(StateMachine, Protocol):
    """Its coroutines must end without ever waiting: virtual time stands still while they run."""

    def digest(self) -> int:
        """Equal on all nodes that have applied the same batches."""


class HashingStateMachine:
    """The default: chains a crc over everything it is told to apply."""

    def __init__(self) -> None:
        self._digest = 0
        self.end_offset = 0
        self.active_epoch = -1

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        for batch in batches:
            if batch.base_offset != self.end_offset or batch.end_offset > high_watermark:
                raise AssertionError(
                    f"{batch.base_offset}..{batch.end_offset} applied behind {self.end_offset}, hw {high_watermark}"
                )
            position = _POSITION.pack(batch.base_offset, batch.end_offset, batch.epoch, batch.append_time_ms)
            self._digest = zlib.crc32(position + batch.body, self._digest)
            self.end_offset = batch.end_offset

    async def leader_changed(self, epoch: int, leader_id: int, endpoints: dict[str, Endpoint]) -> None:
        """Nothing depends on it."""

    async def became_leader(self, epoch: int) -> None:
        if epoch <= self.active_epoch:
            raise AssertionError(f"told to lead epoch {epoch} after epoch {self.active_epoch}")
        self.active_epoch = epoch

    async def resigned(self, epoch: int, reason: str) -> None:
        """Nothing depends on it."""

    def digest(self) -> int:
        return self._digest


def run_at_once(coroutine: Coroutine[object, None, None]) -> None:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AssertionError("a state machine waited inside the simulation")
