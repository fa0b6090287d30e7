"""Bugs of replication: positions of replicas, commits, and divergence of logs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from kraftlab.checking.mutant import Table
from kraftlab.quorum.core import leader as leader_module
from kraftlab.quorum.core import leadership
from kraftlab.quorum.core.effects import Reply, Send
from kraftlab.quorum.core.epoch_index import EpochIndex
from kraftlab.quorum.core.fetching import Fetching
from kraftlab.quorum.core.flush_tracker import FlushTracker
from kraftlab.quorum.core.leader import Leader, majority_offset
from kraftlab.quorum.core.leadership import Leadership
from kraftlab.quorum.core.local_log import LocalLog
from kraftlab.quorum.core.messages import Diverging, FetchOutcome, FetchRequest, FetchResponse, Records
from kraftlab.quorum.core.outbox import Outbox
from kraftlab.quorum.core.states import Follower
from kraftlab.quorum.core.types import Standing

from ..options import NetworkOptions, SimulationOptions
from .seeds import Seeds

MUTANTS: Table[Seeds] = Table()


def _two_voters_and_late_messages(options: SimulationOptions) -> SimulationOptions:
    """Two voters and late messages: after an old fetch of a replica has arrived again, no other replica can replace it."""
    return msgspec.structs.replace(
        options,
        voters=2,
        observers=0,
        dynamic_voters=False,
        auto_join=False,
        network=NetworkOptions(replays=200, reordering=True),
        faults=(),
    )


def _old_fetches_and_leaders_that_come_back(options: SimulationOptions) -> SimulationOptions:
    """Every message arrives again, seconds later. A node that leads again, and is cut off, gets fetches of its first reign: each
    echoes a round of reads.
    """
    return msgspec.structs.replace(
        options,
        voters=3,
        observers=0,
        dynamic_voters=False,
        auto_join=False,
        network=NetworkOptions(delay_us=1_000, replays=1_000, reordering=True),
        read_interval_us=50_000,
        fetch_max_bytes=8 * 1024 * 1024,
        clock_drift=False,
        fault_pace=40,
        faults=("isolate", "resign"),
    )


@MUTANTS.row(Outbox, "put", Seeds("S17"))
def fetch_before_flush(put: Callable[..., bool], self: Outbox, message: Send | Reply) -> bool:
    """A fetch acknowledges what is not flushed."""
    is_fetch = isinstance(message, Send) and isinstance(message.request, FetchRequest)
    return is_fetch or put(self, message)


@MUTANTS.row(Outbox, "storage_completed", Seeds("S17"))
def everything_leaves(_: object, self: Outbox, append_id: int) -> list[Send | Reply]:
    """One flush lets every held message go."""
    self._append_id = max(self._append_id, append_id)
    released, self._held = self._held, []
    return released


@MUTANTS.row(leadership, "next_high_watermark", Seeds("S6", "S12", most=300))
def older_epochs_by_counting(_: object, current: int, epoch_start_offset: int, end_offsets: Sequence[int]) -> int:
    """The high watermark may stop at the epoch's start (KAFKA-12619)."""
    reached = majority_offset(end_offsets)
    is_enough = reached > epoch_start_offset or reached == epoch_start_offset > 0
    return reached if is_enough and reached > current else current


@MUTANTS.row(leader_module, "majority_offset", Seeds("S8"))
def minority_commits(_: object, end_offsets: Sequence[int]) -> int:
    """Fewer than a majority commit."""
    return sorted(end_offsets, reverse=True)[max(0, len(end_offsets) // 2 - 1)]


@MUTANTS.row(Leadership, "advance_high_watermark", Seeds("S8"))
def unsynced_counts(advance: Callable[..., None], self: Leadership, leader: Leader, *arguments: int) -> None:
    """The leader counts its own unsynced log."""
    flushes = self._log.flushes
    durable_end_offset = flushes.durable_end_offset
    flushes.durable_end_offset = self._log.view.end_offset
    advance(self, leader, *arguments)
    flushes.durable_end_offset = durable_end_offset


@MUTANTS.row(Leadership, "advance_high_watermark", Seeds("S8", "L2"))
def observers_count(advance: Callable[..., None], self: Leadership, leader: Leader, *arguments: int) -> None:
    """Observers count for the high watermark."""
    voters = leader.voters
    leader.voters = {**{key.node_id: progress for key, progress in leader.observers.items()}, **voters}
    advance(self, leader, *arguments)
    leader.voters = voters


@MUTANTS.row(Leadership, "on_fetch", Seeds("S16", weather=_old_fetches_and_leaders_that_come_back))
def older_fetches_count(
    on_fetch: Callable[..., None], self: Leadership, correlation: int, request: FetchRequest, standing: Standing, now_ms: int
) -> None:
    """A leader takes a fetch of an older epoch for one of its own."""
    if request.epoch < self._quorum.epoch and isinstance(self._quorum.state, Leader):
        request = msgspec.structs.replace(request, epoch=self._quorum.epoch)
    on_fetch(self, correlation, request, standing, now_ms)


@MUTANTS.row(leadership, "next_high_watermark", Seeds("S16", weather=_two_voters_and_late_messages))
def high_watermark_follows_late_fetches(_: object, current: int, epoch_start_offset: int, end_offsets: Sequence[int]) -> int:
    """A fetch that was overtaken by a newer one takes the high watermark back."""
    reached = majority_offset(end_offsets)
    return reached if reached > epoch_start_offset else current


@MUTANTS.row(Leadership, "_mismatch", Seeds("S0", "S8", "S9", "L1", "L2"))
def no_divergence(_: object, self: object, request: FetchRequest) -> FetchOutcome | None:
    """The leader does not compare logs."""
    return None


@MUTANTS.row(Leadership, "_mismatch", Seeds("S8", "S0"))
def divergence_is_progress(
    mismatch: Callable[..., FetchOutcome | None], self: Leadership, request: FetchRequest
) -> FetchOutcome | None:
    """The leader counts a fetch that it answers with a divergence."""
    outcome, leader = mismatch(self, request), self._quorum.state
    voter = leader.voters.get(request.replica.node_id) if isinstance(leader, Leader) else None
    if voter is not None and isinstance(outcome, Diverging):
        voter.end_offset = max(voter.end_offset, min(request.fetch_offset, self._log.view.end_offset))
    return outcome


@MUTANTS.row(Fetching, "_take", Seeds("S11", "S7"))
def own_end_is_committed(
    take: Callable[..., bool], self: Fetching, state: Follower, response: FetchResponse, now_ms: int
) -> bool:
    """A follower commits all it has."""
    taken = take(self, state, response, now_ms)
    if taken and isinstance(response.outcome, Records):
        self._log.commit(self._log.view.end_offset)
    return taken


@MUTANTS.row(Fetching, "_take", Seeds("LogTruncationRefused", "S0", "S9"))
def committed_before_truncated(
    take: Callable[..., bool], self: Fetching, state: Follower, response: FetchResponse, now_ms: int
) -> bool:
    """The high watermark moves before the logs agree (KAFKA-14704)."""
    if response.high_watermark > 0 < self._log.view.end_offset:
        self._log.commit(min(self._log.view.end_offset, response.high_watermark))
    return take(self, state, response, now_ms)


@MUTANTS.row(Fetching, "_truncate", Seeds("LogTruncationRefused", "S9"))
def truncates_the_whole_epoch(truncate: Callable[..., bool], self: Fetching, diverging: Diverging) -> bool:
    """A follower cuts more than differs."""
    end_offset, _ = self._log.view.end_offset_for_epoch(max(0, diverging.epoch - 1))
    return truncate(self, Diverging(diverging.epoch, end_offset))


@MUTANTS.row(Fetching, "_truncate", Seeds("L1", "L2"))
def never_truncates(_: object, self: Fetching, diverging: Diverging) -> bool:
    """A follower keeps a tail that its leader does not have."""
    return False


@MUTANTS.row(LocalLog, "truncate", Seeds("InvariantViolation", "L2"))
def truncated_in_memory_alone(truncate: Callable[..., None], self: LocalLog, to_offset: int) -> None:
    """A truncation is not sent to storage."""
    truncate(self, to_offset)
    self._out.pop()


@MUTANTS.row(FlushTracker, "completed", Seeds("S8", "S17"))
def one_flush_is_all(completed: Callable[..., bool], self: FlushTracker, append_id: int) -> bool:
    """One flush makes everything staged durable."""
    if self._pending:
        newest = self._pending[-1][1]
        self._pending = deque((number, newest) for number, _ in self._pending)
    return completed(self, append_id)


@MUTANTS.row(EpochIndex, "truncate", Seeds("InvariantViolation", "S17"))
def epoch_outlives_its_records(_: object, self: EpochIndex, to_offset: int) -> None:
    """A truncation leaves an epoch in the index that has no records."""
    keep = sum(start <= to_offset for start in self._starts)
    del self._epochs[keep:]
    del self._starts[keep:]
