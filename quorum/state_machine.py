"""The protocol between consensus and the state machine on top of the log.

The driver's apply task (or the simulator) calls these methods, one at a time, in log order, without gaps and never for
uncommitted data. On the node that proposed a batch, `apply` is called for it as well, once committed: an active controller has
replayed it before and only moves its offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from kraftlab.common.endpoint import Endpoint

from .core.types import OffsetAndEpoch


class CommittedBatch(NamedTuple):
    """One committed batch. `body` is the MessagePack array of its records, b"" for a control batch, which takes offsets too."""

    base_offset: int
    end_offset: int
    epoch: int
    append_time_ms: int
    body: bytes


class FrozenState(Protocol):
    """The state at one offset. It does not change when the state machine does."""

    def batches(self) -> Iterator[tuple[bytes, int]]:
        """Yield the records that make the state from nothing: (MessagePack array, record count) each. Worker thread."""


class StateMachine(Protocol):
    """Receives commits and leadership notices. Must not block (it runs on the event loop) and must not raise for good data."""

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        """Apply committed batches, in order. `high_watermark` is the newest known, at or above the last batch's end."""

    async def leader_changed(self, epoch: int, leader_id: int, endpoints: dict[str, Endpoint]) -> None:
        """Note another leader; -1: unknown."""

    async def became_leader(self, epoch: int) -> None:
        """Note that this node leads and has applied everything of earlier epochs: it may propose in `epoch` from now on."""

    async def resigned(self, epoch: int, reason: str) -> None:
        """Note that this node no longer leads `epoch`. Its proposals that were not seen as committed may survive or not."""

    def freeze(self) -> FrozenState | None:
        """Return the state with exactly the batches applied so far. Cheap, between two calls of `apply`.

        None: not now (a transaction is open); called again later.
        """

    def read_snapshot(self, bodies: Iterable[bytes]) -> object:
        """Return the state for `load_snapshot` from a snapshot's data batches.

        Worker thread; changes nothing. ValueError: unreadable.
        """

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: Any) -> None:
        """Replace the whole state by `state` from `read_snapshot`: everything below `position.offset` is applied now."""
