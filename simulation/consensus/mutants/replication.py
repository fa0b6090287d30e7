"""Bugs of replication: who holds what, what is committed, where logs part."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from kraftlab.checking.mutant import Mutant
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

from ..options import NetworkOptions, SimulationOptions


def _fetch_before_flush(put: Callable[[Outbox, Send | Reply], bool]) -> Callable[[Outbox, Send | Reply], bool]:
    def mutated(self: Outbox, message: Send | Reply) -> bool:
        is_fetch = isinstance(message, Send) and isinstance(message.request, FetchRequest)
        return True if is_fetch else put(self, message)

    return mutated


def _everything_leaves(_original: object) -> Callable[[Outbox, int], list[Send | Reply]]:
    def mutated(self: Outbox, append_id: int) -> list[Send | Reply]:
        self._append_id = max(self._append_id, append_id)
        released, self._held = self._held, []
        return released

    return mutated


def _older_epochs_by_counting(_original: object) -> Callable[[int, int, Sequence[int]], int]:
    def mutated(current: int, epoch_start_offset: int, end_offsets: Sequence[int]) -> int:
        reached = majority_offset(end_offsets)
        is_enough = reached > epoch_start_offset or reached == epoch_start_offset > 0
        return reached if is_enough and reached > current else current

    return mutated


def _minority_commits(_original: object) -> Callable[[Sequence[int]], int]:
    def mutated(end_offsets: Sequence[int]) -> int:
        return sorted(end_offsets, reverse=True)[max(0, len(end_offsets) // 2 - 1)]

    return mutated


def _unsynced_counts(advance: Callable[..., None]) -> Callable[..., None]:
    def mutated(self: Leadership, leader: Leader, *arguments: int) -> None:
        flushes = self._log.flushes
        durable_end_offset = flushes.durable_end_offset
        flushes.durable_end_offset = self._log.view.end_offset
        advance(self, leader, *arguments)
        flushes.durable_end_offset = durable_end_offset

    return mutated


def _observers_count(advance: Callable[..., None]) -> Callable[..., None]:
    def mutated(self: Leadership, leader: Leader, *arguments: int) -> None:
        voters = leader.voters
        leader.voters = {**{key.node_id: progress for key, progress in leader.observers.items()}, **voters}
        advance(self, leader, *arguments)
        leader.voters = voters

    return mutated


def _older_fetches_count(on_fetch: Callable[..., None]) -> Callable[[Leadership, int, FetchRequest, int], None]:
    def mutated(self: Leadership, correlation: int, request: FetchRequest, now_ms: int) -> None:
        if request.epoch < self._quorum.epoch and isinstance(self._quorum.state, Leader):
            request = msgspec.structs.replace(request, epoch=self._quorum.epoch)
        on_fetch(self, correlation, request, now_ms)

    return mutated


def _a_late_fetch_takes_it_back(_original: object) -> Callable[[int, int, Sequence[int]], int]:
    def mutated(current: int, epoch_start_offset: int, end_offsets: Sequence[int]) -> int:
        reached = majority_offset(end_offsets)
        return reached if reached > epoch_start_offset else current

    return mutated


def _two_voters_and_late_messages(options: SimulationOptions) -> SimulationOptions:
    """Nobody else has what a replica seems to lack, once a fetch of its past has come in again."""
    return msgspec.structs.replace(
        options,
        voters=2,
        observers=0,
        dynamic_voters=False,
        auto_join=False,
        network=NetworkOptions(replays=200, reordering=True),
        faults=(),
    )


def _no_divergence(_original: object) -> Callable[[object, FetchRequest], FetchOutcome | None]:
    def mutated(self: object, request: FetchRequest) -> FetchOutcome | None:
        return None

    return mutated


def _divergence_is_progress(mismatch: Callable[..., FetchOutcome | None]) -> Callable[..., FetchOutcome | None]:
    def mutated(self: Leadership, request: FetchRequest) -> FetchOutcome | None:
        outcome, leader = mismatch(self, request), self._quorum.state
        voter = leader.voters.get(request.replica.node_id) if isinstance(leader, Leader) else None
        if voter is not None and isinstance(outcome, Diverging):
            voter.end_offset = max(voter.end_offset, min(request.fetch_offset, self._log.view.end_offset))
        return outcome

    return mutated


def _own_end_is_committed(take: Callable[..., bool]) -> Callable[..., bool]:
    def mutated(self: Fetching, state: Follower, response: FetchResponse, now_ms: int) -> bool:
        taken = take(self, state, response, now_ms)
        if taken and isinstance(response.outcome, Records):
            self._log.commit(self._log.view.end_offset)
        return taken

    return mutated


def _committed_before_truncated(take: Callable[..., bool]) -> Callable[..., bool]:
    def mutated(self: Fetching, state: Follower, response: FetchResponse, now_ms: int) -> bool:
        if response.high_watermark > 0 < self._log.view.end_offset:
            self._log.commit(min(self._log.view.end_offset, response.high_watermark))
        return take(self, state, response, now_ms)

    return mutated


def _truncates_the_whole_epoch(truncate: Callable[..., bool]) -> Callable[[Fetching, Diverging], bool]:
    def mutated(self: Fetching, diverging: Diverging) -> bool:
        end_offset, _ = self._log.view.end_offset_for_epoch(max(0, diverging.epoch - 1))
        return truncate(self, Diverging(diverging.epoch, end_offset))

    return mutated


def _never_truncates(_original: object) -> Callable[[Fetching, Diverging], bool]:
    def mutated(self: Fetching, diverging: Diverging) -> bool:
        return False

    return mutated


def _truncated_in_memory_alone(truncate: Callable[[LocalLog, int], None]) -> Callable[[LocalLog, int], None]:
    def mutated(self: LocalLog, to_offset: int) -> None:
        truncate(self, to_offset)
        self._out.pop()

    return mutated


def _one_flush_is_all(completed: Callable[[FlushTracker, int], bool]) -> Callable[[FlushTracker, int], bool]:
    def mutated(self: FlushTracker, append_id: int) -> bool:
        if self._pending:
            newest = self._pending[-1][1]
            self._pending = deque((number, newest) for number, _ in self._pending)
        return completed(self, append_id)

    return mutated


def _epoch_outlives_its_records(_original: object) -> Callable[[EpochIndex, int], None]:
    def mutated(self: EpochIndex, to_offset: int) -> None:
        keep = sum(start <= to_offset for start in self._starts)
        del self._epochs[keep:]
        del self._starts[keep:]

    return mutated


MUTANTS = (
    Mutant("fetch-before-flush", "a fetch acknowledges what is not flushed", Outbox, "put", _fetch_before_flush, rules=("S17",)),
    Mutant(
        "everything-leaves",
        "one flush lets every held message go",
        Outbox,
        "storage_completed",
        _everything_leaves,
        rules=("S17",),
    ),
    Mutant(
        "older-epochs-by-counting",
        "the high watermark may stop at the epoch's start (KAFKA-12619)",
        leadership,
        "next_high_watermark",
        _older_epochs_by_counting,
        rules=("S6", "S12"),
        seeds_max=300,
    ),
    Mutant(
        "minority-commits", "fewer than a majority commit", leader_module, "majority_offset", _minority_commits, rules=("S8",)
    ),
    Mutant(
        "unsynced-counts",
        "the leader counts its own unsynced log",
        Leadership,
        "advance_high_watermark",
        _unsynced_counts,
        rules=("S8",),
    ),
    Mutant(
        "observers-count",
        "observers count for the high watermark",
        Leadership,
        "advance_high_watermark",
        _observers_count,
        rules=("S8", "L2"),
    ),
    Mutant(
        "older-fetches-count",
        "a leader takes a fetch of an older epoch for one of its own",
        Leadership,
        "on_fetch",
        _older_fetches_count,
        rules=("S19",),
        refine=True,
    ),
    Mutant(
        "high-watermark-follows-late-fetches",
        "a fetch that was overtaken by a newer one takes the high watermark back",
        leadership,
        "next_high_watermark",
        _a_late_fetch_takes_it_back,
        rules=("S16", "S19"),
        weather=_two_voters_and_late_messages,
    ),
    Mutant(
        "no-divergence",
        "the leader does not compare logs",
        Leadership,
        "_mismatch",
        _no_divergence,
        rules=("S0", "S8", "S9", "L1", "L2"),
    ),
    Mutant(
        "divergence-is-progress",
        "the leader counts a fetch that it answers with a divergence",
        Leadership,
        "_mismatch",
        _divergence_is_progress,
        rules=("S8", "S0"),
    ),
    Mutant(
        "own-end-is-committed", "a follower commits all it has", Fetching, "_take", _own_end_is_committed, rules=("S11", "S7")
    ),
    Mutant(
        "committed-before-truncated",
        "the high watermark moves before the logs agree (KAFKA-14704)",
        Fetching,
        "_take",
        _committed_before_truncated,
        rules=("LogTruncationRefused", "S0", "S9"),
    ),
    Mutant(
        "truncates-the-whole-epoch",
        "a follower cuts more than differs",
        Fetching,
        "_truncate",
        _truncates_the_whole_epoch,
        rules=("LogTruncationRefused", "S9"),
    ),
    Mutant(
        "never-truncates",
        "a follower keeps a tail that its leader does not have",
        Fetching,
        "_truncate",
        _never_truncates,
        rules=("L1", "L2"),
    ),
    Mutant(
        "truncated-in-memory-alone",
        "a truncation is not sent to storage",
        LocalLog,
        "truncate",
        _truncated_in_memory_alone,
        rules=("InvariantViolation", "L2"),
    ),
    Mutant(
        "one-flush-is-all",
        "one flush makes everything staged durable",
        FlushTracker,
        "completed",
        _one_flush_is_all,
        rules=("S8", "S17"),
    ),
    Mutant(
        "epoch-outlives-its-records",
        "a truncation leaves an epoch in the index that has no records",
        EpochIndex,
        "truncate",
        _epoch_outlives_its_records,
        rules=("InvariantViolation", "S17"),
    ),
)
