"""State machines of the simulation: the protocol of quorum/state_machine.py, with a digest to compare nodes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, Protocol

import msgspec

from kraftlab.common.endpoint import Endpoint
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.state_machine import CommittedBatch, StateMachine

_POSITION = struct.Struct(">QQQQ")
_ENDED = object()


class SimulatedStateMachine(StateMachine, Protocol):
    """A state machine whose coroutines never wait: virtual time stands still while they run."""

    def digest(self) -> int:
        """Return a digest that is equal on all nodes that have applied the same batches."""


class FrozenHash:
    """The chain at one offset, as one record."""

    def __init__(self, digest: int, end_offset: int) -> None:
        self._body = msgspec.msgpack.encode([(digest, end_offset)])

    def batches(self) -> Iterator[tuple[bytes, int]]:
        yield self._body, 1


class HashingStateMachine:
    """Chains a crc over all applied batches."""

    def __init__(self) -> None:
        self._digest = 0
        self.end_offset = 0
        self.active_epoch = -1

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        for base_offset, end_offset, epoch, append_time_ms, body in batches:
            if base_offset != self.end_offset or end_offset > high_watermark:
                raise AssertionError(f"{base_offset}..{end_offset} applied after {self.end_offset}, hw {high_watermark}")
            position = _POSITION.pack(base_offset, end_offset, epoch, append_time_ms)
            self._digest = zlib.crc32(position + body, self._digest)
            self.end_offset = end_offset

    async def leader_changed(self, epoch: int, leader_id: int, endpoints: dict[str, Endpoint]) -> None:
        """Do nothing."""

    async def became_leader(self, epoch: int) -> None:
        if epoch <= self.active_epoch:
            raise AssertionError(f"leads epoch {epoch} after epoch {self.active_epoch}")
        self.active_epoch = epoch

    async def resigned(self, epoch: int, reason: str) -> None:
        """Do nothing."""

    def freeze(self) -> Any:
        return FrozenHash(self._digest, self.end_offset)

    def read_snapshot(self, bodies: Iterable[bytes]) -> Any:
        """Return the digest and its offset."""
        [body] = bodies
        [state] = msgspec.msgpack.decode(body, type=list[tuple[int, int]])
        return state

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: Any) -> None:
        digest, end_offset = state
        if end_offset != position.offset or end_offset < self.end_offset:
            raise AssertionError(f"a snapshot of {end_offset} is loaded as {position}, after {self.end_offset}")
        self._digest, self.end_offset = digest, end_offset

    def digest(self) -> int:
        return self._digest


def run_at_once(coroutine: Coroutine[object, None, None]) -> None:
    """Run a coroutine that never waits."""
    if next(coroutine.__await__(), _ENDED) is not _ENDED:
        coroutine.close()
        raise AssertionError("a state machine waited inside the simulation")
