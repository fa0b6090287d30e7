"""Turns records into batches of the log, and keeps the state after each batch.

Theory of operation. A write is prepared as a whole before any of it is proposed. Its records are cut into batches, encoded,
and replayed batch by batch into the states that will hold after each. So records that are too large, or that cannot be
replayed, never reach the log. A change of one batch is proposed at once. A change of several batches is either not atomic, and
then any prefix of its batches is consistent, or it becomes a metadata transaction (KIP-868): Begin before its first record and
End after its last. Until End, every reader sees the state before the transaction, this controller included.

The state after each batch in flight is kept by its end offset, until the batch is committed or the leadership is lost. The log
may take the first batches of a change and then no more for the moment. Then the rest is kept, and nothing else may be written
before it: a writer calls `finish` first. Only the quorum itself may write in between, when its voters change. Then the rest
moves after that record, and answers that wait for the rest wait for its new end. If the leadership is lost in the middle, the
rest is dropped, and the next leader aborts the transaction.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, NamedTuple, Protocol

import msgspec

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata import codec
from kraftlab.metadata.image import Provenance
from kraftlab.metadata.records import AnyRecord, BeginTransaction, EndTransaction
from kraftlab.quorum.core.batch import MAX_BATCH_BYTES, MAX_RECORDS
from kraftlab.quorum.driver.errors import NotLeader, Overloaded

from .feature_levels import TRANSACTIONS, metadata_version
from .queue import NotNow
from .state import ControllerState, Outcome

logger = logging.getLogger("kraftlab.controller")

BODY_BYTES_MAX = MAX_BATCH_BYTES - 1024
"""Largest body of a batch; the remaining bytes are for its header."""


class MetadataQuorum(Protocol):
    """The log, as the controller uses it (`RaftDriver`)."""

    @property
    def end_offset(self) -> int: ...

    def propose(self, epoch: int, body: bytes, record_count: int) -> tuple[int, int]: ...

    async def read_index(self) -> int: ...


class LostLeadership(Exception):
    """The log takes no more writes from this node."""


class Misplaced(Exception):
    """A batch has another offset than it was replayed for. This node's memory is wrong."""


class _Batch(NamedTuple):
    body: bytes
    record_count: int
    base_offset: int
    after: ControllerState

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.record_count


class PreparedWrite(NamedTuple):
    """Batches of an outcome, valid for one epoch and one base offset."""

    outcome: Outcome[object]
    epoch: int
    batches: list[_Batch]

    def holds(self, outcome: Outcome[object], epoch: int, base_offset: int) -> bool:
        return self.outcome is outcome and self.epoch == epoch and self.batches[0].base_offset == base_offset


class LogWriter:
    """`newest` is the state that the next operation starts from: the committed state, or the state after the last batch in
    flight. The owner resets it while nothing is in flight (`reset_to`). A batch gets at most `records_max` records.
    """

    def __init__(self, state: ControllerState, records_max: int = MAX_RECORDS) -> None:
        self.newest = state
        self._records_max = records_max
        self.batches_written = 0
        self._in_flight: deque[tuple[int, ControllerState]] = deque()
        self._rest: deque[_Batch] = deque()
        self._epoch = -1

    @property
    def in_flight(self) -> int:
        """Number of batches in the log that are not committed."""
        return len(self._in_flight)

    @property
    def has_rest(self) -> bool:
        """True while the log has only a part of a change."""
        return bool(self._rest)

    @property
    def end_offset(self) -> int | None:
        """End offset of the newest state; None if nothing is in flight."""
        return self._in_flight[-1][0] if self._in_flight else None

    @property
    def planned_end_offset(self) -> int:
        """End offset of the last change, its rest included; -1 if nothing is in flight."""
        return self._rest[-1].end_offset if self._rest else self._in_flight[-1][0] if self._in_flight else -1

    def write(
        self, quorum: MetadataQuorum, epoch: int, outcome: Outcome[Any], now_ms: int, prepared: PreparedWrite | None = None
    ) -> int:
        """Propose an outcome, prepared now or before, and return the end offset of its last batch. That batch may still be in
        the rest.

        NotNow, ApiError (too large), and exceptions of replay: nothing was appended. LostLeadership, Misplaced: the batches
        that were not appended are dropped.
        """
        assert not self._rest, "finish comes first"
        if prepared is None or not prepared.holds(outcome, epoch, quorum.end_offset):
            prepared = prepare_write(self.newest, quorum.end_offset, epoch, outcome, now_ms, self._records_max)
        batches = prepared.batches
        self._epoch = epoch
        self._propose(quorum, batches[0])
        self._rest.extend(batches[1:])
        try:
            self.finish(quorum)
        except NotNow:
            logger.info("the log takes no more for now; %d batches of a change wait", len(self._rest))
        return self.planned_end_offset

    def finish(self, quorum: MetadataQuorum) -> None:
        """Propose the rest of the last change. NotNow while the log does not take it, LostLeadership, Misplaced."""
        while self._rest:
            if self._rest[0].base_offset != quorum.end_offset:
                self._move_rest(quorum.end_offset)
            try:
                self._propose(quorum, self._rest[0])
            except (LostLeadership, Misplaced):
                self._rest.clear()
                raise
            self._rest.popleft()

    def _move_rest(self, base_offset: int) -> None:
        """Replay the rest at its new offset: the quorum wrote a record of its own in between (a change of voters, for
        example).
        """
        state = self.newest
        moved: deque[_Batch] = deque()
        for batch in self._rest:
            records = codec.decode(batch.body, base_offset, batch.record_count)
            end_offset = base_offset + batch.record_count
            state = state.replay(records, base_offset, msgspec.structs.replace(batch.after.image.provenance, offset=end_offset))
            moved.append(batch._replace(base_offset=base_offset, after=state))
            base_offset = end_offset
        self._rest = moved

    def take(self, end_offset: int) -> ControllerState | None:
        """Return the state after a batch that is now committed. None if the batch is not the oldest in flight."""
        if self._in_flight and self._in_flight[0][0] == end_offset:
            return self._in_flight.popleft()[1]
        return None

    def reset_to(self, state: ControllerState) -> None:
        """Forget the batches in flight, and continue from `state`."""
        self._in_flight.clear()
        self._rest.clear()
        self.newest = state

    def _propose(self, quorum: MetadataQuorum, batch: _Batch) -> None:
        try:
            base_offset, end_offset = quorum.propose(self._epoch, batch.body, batch.record_count)
        except Overloaded as error:
            raise NotNow from error
        except NotLeader as error:
            raise LostLeadership from error
        if base_offset != batch.base_offset:
            raise Misplaced(f"the batch was expected at offset {batch.base_offset} and is at {base_offset}")
        self.newest = batch.after
        self._in_flight.append((end_offset, batch.after))
        self.batches_written += 1


def prepare_write(
    state: ControllerState, base_offset: int, epoch: int, outcome: Outcome[Any], now_ms: int, records_max: int = MAX_RECORDS
) -> PreparedWrite:
    """Prepare an outcome that starts from `state`. A change that needs a batch of its own gets one of up to MAX_RECORDS records,
    whatever `records_max` is. ApiError (too large), and exceptions of replay.
    """
    records_max = MAX_RECORDS if outcome.atomic and outcome.transaction is None else records_max
    bodies = _encoded(list(outcome.records), records_max)
    if len(bodies) > 1 and outcome.atomic:
        bodies = _encoded(_as_transaction(state, outcome, records_max), records_max)
    batches: list[_Batch] = []
    for body, records in bodies:
        end_offset = base_offset + len(records)
        state = state.replay(records, base_offset, Provenance(end_offset, epoch, now_ms))
        batches.append(_Batch(body, len(records), base_offset, state))
        base_offset = end_offset
    return PreparedWrite(outcome, epoch, batches)


def _as_transaction(state: ControllerState, outcome: Outcome[Any], records_max: int) -> list[AnyRecord]:
    if outcome.transaction is None or metadata_version(state.image) < TRANSACTIONS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"The change has {len(outcome.records)} metadata records; at most {records_max} records and {BODY_BYTES_MAX} "
            "bytes fit one atomic batch. Nothing was changed. Split the request.",
        )
    return [BeginTransaction(0, outcome.transaction), *outcome.records, EndTransaction(0)]


def _encoded(records: list[AnyRecord], records_max: int) -> list[tuple[bytes, list[AnyRecord]]]:
    """(body, records) of as few batches as possible. ApiError POLICY_VIOLATION if a single record does not fit a batch."""
    if len(records) <= records_max:
        body, _ = codec.encode(records)
        if len(body) <= BODY_BYTES_MAX:
            return [(body, records)]
        if len(records) == 1:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"A metadata record of {len(body)} bytes does not fit one batch of {BODY_BYTES_MAX}; nothing was changed.",
            )
        half = len(records) // 2
        return _encoded(records[:half], records_max) + _encoded(records[half:], records_max)
    starts = range(0, len(records), records_max)
    return [batch for start in starts for batch in _encoded(records[start : start + records_max], records_max)]
