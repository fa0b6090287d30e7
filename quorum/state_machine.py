"""What runs on top of the log: the protocol between consensus and a state machine.

The driver's apply task (and the simulator) calls these, one at a time, in log order, without gaps and never for uncommitted
data. On the node that proposed a batch, `apply` is called for it as well, once committed: an active controller has replayed it
already and only moves its offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from .core.types import Endpoint, OffsetAndEpoch


class CommittedBatch(NamedTuple):
    """One committed batch. `body` is the MessagePack array of its records, b"" for a control batch, which takes offsets too."""

    base_offset: int
    end_offset: int
    epoch: int
    append_time_ms: int
    body: bytes


class FrozenState(Protocol):
    """The state at one offset, as it stays however the state machine goes on."""

    def batches(self) -> Iterator[tuple[bytes, int]]:
        """The records that make the state from nothing: (MessagePack array, record count) each. Worker thread."""


class StateMachine(Protocol):
    """Told of commits and of leadership; must not block (it runs on the event loop) and must not raise for good data."""

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        """Committed batches, in order. `high_watermark` is the newest known, at or above the last batch's end."""

    async def leader_changed(self, epoch: int, leader_id: int, endpoints: dict[str, Endpoint]) -> None:
        """Another node leads, or nobody known (-1)."""

    async def became_leader(self, epoch: int) -> None:
        """This node leads and has applied everything of earlier epochs: it may propose in `epoch` from now on."""

    async def resigned(self, epoch: int, reason: str) -> None:
        """This node no longer leads `epoch`; what it proposed and did not see committed may or may not survive."""

    def freeze(self) -> FrozenState | None:
        """The state with exactly what was applied so far, committed data only. Cheap, between two calls of `apply`.

        None: not now (a transaction is open); asked again later.
        """

    def read_snapshot(self, bodies: Iterable[bytes]) -> object:
        """What `load_snapshot` needs, from a snapshot's data batches. Worker thread; touches no state. ValueError: unreadable."""

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: Any) -> None:
        """Replaces all state by `state`, which `read_snapshot` made: everything below `position.offset` is applied now."""
