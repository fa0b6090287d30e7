"""From records to batches in the log, and the states that go with them.

Theory of operation. What an operation decided is planned as a whole before any of it is proposed: cut into batches, encoded,
and replayed batch by batch into the states that will hold after each; so records that do not fit, or that nobody could read
again, never reach the log. A change of one batch is proposed at once. One that needs several is either not atomic, and then
any prefix of its batches makes sense, or a metadata transaction (KIP-868): Begin before its first record and End after the
last, between which every reader, this controller included, sees the state as it was before.

The state after each batch in flight is kept by its end offset, until the batch is committed or the leadership lost. If the
log takes the first batches of a change and then no more for the moment, the rest is kept, and nothing else may be written
before it: who wants to write calls `finish` first. Only the quorum itself may, when its voters change; then the rest moves behind
that, and whoever waits for it waits for its new end. If the leadership is lost in the middle, the rest is dropped; the next
leader aborts the transaction.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, NamedTuple, Protocol

import msgspec

from kraftlab.metadata import codec
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.image import Provenance
from kraftlab.metadata.records import AnyRecord, BeginTransaction, EndTransaction
from kraftlab.quorum.core.batch import MAX_BATCH_BYTES, MAX_RECORDS
from kraftlab.quorum.driver.errors import NotLeader, Overloaded

from .feature_levels import TRANSACTIONS, metadata_version
from .queue import NotNow
from .state import ControllerState, Outcome

logger = logging.getLogger("kraftlab.controller")

BODY_BYTES_MAX = MAX_BATCH_BYTES - 1024
"""The longest body of a batch: the rest is for its header."""


class MetadataQuorum(Protocol):
    """What a controller needs of the log (`RaftDriver` is one)."""

    @property
    def end_offset(self) -> int: ...

    def propose(self, epoch: int, body: bytes, record_count: int) -> tuple[int, int]: ...

    async def read_index(self) -> int: ...


class LostLeadership(Exception):
    """The log does not take writes from this node any more."""


class Misplaced(Exception):
    """A batch lies elsewhere than it was replayed for: this node's memory cannot be trusted any more."""


class _Batch(NamedTuple):
    body: bytes
    record_count: int
    base_offset: int
    after: ControllerState

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.record_count


class Plan(NamedTuple):
    """What an outcome comes to in the log, if it begins where `batches` do, in that epoch."""

    outcome: Outcome[object]
    epoch: int
    batches: list[_Batch]

    def holds(self, outcome: Outcome[object], epoch: int, base_offset: int) -> bool:
        return self.outcome is outcome and self.epoch == epoch and self.batches[0].base_offset == base_offset


class LogWriter:
    """`newest` is the state that the next operation starts from: committed, or with what is in flight. The owner sets it
    while nothing is (`reset_to`).
    """

    def __init__(self, state: ControllerState) -> None:
        self.newest = state
        self.batches_written = 0
        self._in_flight: deque[tuple[int, ControllerState]] = deque()
        self._rest: deque[_Batch] = deque()
        self._epoch = -1

    @property
    def in_flight(self) -> int:
        """Batches that are in the log and not committed."""
        return len(self._in_flight)

    @property
    def has_rest(self) -> bool:
        """A change of several batches is not in the log as a whole."""
        return bool(self._rest)

    @property
    def end_offset(self) -> int | None:
        """Where the newest state stands; None if nothing is in flight."""
        return self._in_flight[-1][0] if self._in_flight else None

    @property
    def planned_end_offset(self) -> int:
        """Where the last change will have ended, its rest included; -1 if nothing is in flight."""
        return self._rest[-1].end_offset if self._rest else self._in_flight[-1][0] if self._in_flight else -1

    def write(self, quorum: MetadataQuorum, epoch: int, outcome: Outcome[Any], now_ms: int, plan: Plan | None = None) -> int:
        """Plans, unless that was done before, and proposes; the end offset of the last batch, which may still belong to the rest.

        NotNow, ApiError (too large), and what replay raises: nothing was appended. LostLeadership, Misplaced: what was not
        appended is dropped.
        """
        assert not self._rest, "finish comes first"
        if plan is None or not plan.holds(outcome, epoch, quorum.end_offset):
            plan = plan_of(self.newest, quorum.end_offset, epoch, outcome, now_ms)
        planned = plan.batches
        self._epoch = epoch
        self._propose(quorum, planned[0])
        self._rest.extend(planned[1:])
        try:
            self.finish(quorum)
        except NotNow:
            logger.info("the log takes no more for now; %d batches of a change wait", len(self._rest))
        return self.planned_end_offset

    def finish(self, quorum: MetadataQuorum) -> None:
        """Proposes what is left of the last change. NotNow while the log does not take it, LostLeadership, Misplaced."""
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
        """The quorum wrote something of its own in between (who votes, say): the rest is replayed for where it will stand."""
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
        """The state after a batch that is committed now; None if it is not the oldest in flight."""
        if self._in_flight and self._in_flight[0][0] == end_offset:
            return self._in_flight.popleft()[1]
        return None

    def reset_to(self, state: ControllerState) -> None:
        """Forget what is in flight, and go on from `state`."""
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
            raise Misplaced(f"the batch was expected at offset {batch.base_offset} and lies at {base_offset}")
        self.newest = batch.after
        self._in_flight.append((end_offset, batch.after))
        self.batches_written += 1


def plan_of(state: ControllerState, base_offset: int, epoch: int, outcome: Outcome[Any], now_ms: int) -> Plan:
    """What the outcome comes to after `state`. Looks at nothing else. ApiError (too large), and what replay raises."""
    bodies = _encoded(list(outcome.records))
    if len(bodies) > 1 and outcome.atomic:
        bodies = _encoded(_as_transaction(state, outcome))
    planned: list[_Batch] = []
    for body, records in bodies:
        end_offset = base_offset + len(records)
        state = state.replay(records, base_offset, Provenance(end_offset, epoch, now_ms))
        planned.append(_Batch(body, len(records), base_offset, state))
        base_offset = end_offset
    return Plan(outcome, epoch, planned)


def _as_transaction(state: ControllerState, outcome: Outcome[Any]) -> list[AnyRecord]:
    if outcome.transaction is None or metadata_version(state.image) < TRANSACTIONS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"The change has {len(outcome.records)} metadata records; at most {MAX_RECORDS} records and {BODY_BYTES_MAX} "
            "bytes fit one atomic batch. Nothing was changed. Split the request.",
        )
    return [BeginTransaction(0, outcome.transaction), *outcome.records, EndTransaction(0)]


def _encoded(records: list[AnyRecord]) -> list[tuple[bytes, list[AnyRecord]]]:
    """(body, records) of as few batches as hold them. ApiError POLICY_VIOLATION if a single record is too long for one."""
    if len(records) <= MAX_RECORDS:
        body, _ = codec.encode(records)
        if len(body) <= BODY_BYTES_MAX:
            return [(body, records)]
        if len(records) == 1:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"A metadata record of {len(body)} bytes does not fit one batch of {BODY_BYTES_MAX}; nothing was changed.",
            )
        return _encoded(records[: len(records) // 2]) + _encoded(records[len(records) // 2 :])
    return [batch for start in range(0, len(records), MAX_RECORDS) for batch in _encoded(records[start : start + MAX_RECORDS])]
