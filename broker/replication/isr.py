"""The in-sync set as a leader keeps it: members that may join or must leave, and the high watermark. Pure functions over values.

Theory of operation. The committed ISR is the one in the metadata log. A leader that wants another set asks the controller
(AlterPartition) and, until the answer is certain, counts the *maximal* ISR: every member of the committed set or of the pending
one. The high watermark is the smallest log end among them. So whichever of both sets turns out to be valid, each of its members
holds all records below the high watermark. Therefore a growing set counts at once and a shrinking one only when it is committed
(KIP-497).

A follower is in sync while its log end reached the leader's within the last `replica.lag.time.max.ms`. Under steady writes, one
fetch cannot show that: its offset is the leader's end at the last fetch. So a fetch that reaches the leader's end *as of the
fetch before* proves that the follower was caught up at that earlier time (KIP-16).

Not decided here: if the controller accepts a pending set, and which of several pending sets it saw last.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

import msgspec

from kraftlab.common.errors import ErrorCode

NEVER_S = float("-inf")
UNKNOWN_OFFSET = -1


class FollowerProgress(msgspec.Struct, frozen=True):
    """Progress of one follower, as its leader knows it. Offsets -1: it has not fetched since this leader took over."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = -1
    last_fetch_s: float = NEVER_S
    leader_end_at_last_fetch: int = UNKNOWN_OFFSET
    last_caught_up_s: float = NEVER_S

    def after_fetch(
        self, fetch_offset: int, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_s: float
    ) -> FollowerProgress:
        """Return the progress after a fetch at `fetch_offset`, which states that all records below are held."""
        if fetch_offset >= leader_end_offset:
            caught_up_s = now_s
        elif self.leader_end_at_last_fetch != UNKNOWN_OFFSET and fetch_offset >= self.leader_end_at_last_fetch:
            caught_up_s = max(self.last_caught_up_s, self.last_fetch_s)
        else:
            caught_up_s = self.last_caught_up_s
        return FollowerProgress(fetch_offset, log_start_offset, broker_epoch, now_s, leader_end_offset, caught_up_s)

    def is_caught_up(self, leader_end_offset: int, now_s: float, lag_time_max_s: float) -> bool:
        return self.log_end_offset == leader_end_offset or now_s - self.last_caught_up_s <= lag_time_max_s


def may_join(
    progress: FollowerProgress, high_watermark: int, epoch_start_offset: int, registered_epoch: int | None, is_eligible: bool
) -> bool:
    """Return True if a follower outside the ISR may be proposed (KIP-841, KIP-903).

    `registered_epoch` is the broker epoch in the metadata (None: not registered), `is_eligible`: neither fenced nor shutting
    down, and with a working directory.
    """
    return (
        is_eligible
        and progress.log_end_offset >= high_watermark
        and progress.log_end_offset >= epoch_start_offset
        and progress.broker_epoch == registered_epoch
    )


def lagging_members(
    isr: Collection[int],
    leader_id: int,
    progress: Mapping[int, FollowerProgress],
    leader_end_offset: int,
    now_s: float,
    lag_time_max_s: float,
) -> tuple[int, ...]:
    """Return the members to propose for removal, sorted."""
    nothing = FollowerProgress()
    return tuple(
        sorted(
            member
            for member in isr
            if member != leader_id and not progress.get(member, nothing).is_caught_up(leader_end_offset, now_s, lag_time_max_s)
        )
    )


def maximal_isr(committed: Iterable[int], pending: Iterable[int] | None) -> frozenset[int]:
    """Return every broker that may be in the ISR, whether the pending set (None: none) is accepted or not."""
    return frozenset(committed) | frozenset(pending or ())


def advance_high_watermark(
    current: int,
    log_start_offset: int,
    log_end_offset: int,
    follower_ends: Iterable[int],
    committed_isr_size: int,
    min_isr_size: int,
) -> int:
    """Return the leader's next high watermark: monotone and within the log.

    `follower_ends`: log ends (-1 unknown) of every follower that counts: the maximal ISR, and followers that are caught up and
    may join. With fewer members than `min_isr_size` the high watermark stays (KIP-966), since a new record is not yet as safe as
    promised.
    """
    floor = max(current, log_start_offset)
    if committed_isr_size < min_isr_size:
        return min(floor, log_end_offset)
    reached = min(follower_ends, default=log_end_offset)
    return min(max(floor, reached), log_end_offset)


class Reaction(enum.Enum):
    """The leader's reaction to the controller's answer for one partition."""

    ADOPT = "adopt the new state"
    RESET = "certainly not applied: go back to the committed ISR"
    WAIT = "outcome not certain: stay pending until the metadata log brings newer state"
    RETRY = "send the request again"


_REACTIONS: dict[int, Reaction] = {
    ErrorCode.NONE: Reaction.ADOPT,
    ErrorCode.INELIGIBLE_REPLICA: Reaction.RESET,
    ErrorCode.OPERATION_NOT_ATTEMPTED: Reaction.RESET,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.WAIT,
    ErrorCode.UNKNOWN_TOPIC_ID: Reaction.WAIT,
    ErrorCode.FENCED_LEADER_EPOCH: Reaction.WAIT,
    ErrorCode.INVALID_UPDATE_VERSION: Reaction.WAIT,
    ErrorCode.INVALID_REQUEST: Reaction.WAIT,
    ErrorCode.NEW_LEADER_ELECTED: Reaction.WAIT,
}


def reaction_to(error: int) -> Reaction:
    """The row for one partition's error code in an AlterPartition answer."""
    return _REACTIONS.get(error, Reaction.RETRY)
