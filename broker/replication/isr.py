"""The in-sync set as a leader keeps it: who may join, who must leave, how far everyone has come. Pure functions over values.

Theory of operation. The committed ISR is what the metadata log says. A leader that wants another one asks the controller
(AlterPartition) and, until the answer is certain, counts the *maximal* ISR: everyone in the committed set or in the asked-for
one. The high watermark is the smallest log end among them, so that whichever of both sets turns out to be valid, each of its
members holds everything below the high watermark. Therefore a growing set counts at once and a shrinking one only when it is
committed (KIP-497).

A follower is in sync while its log end reached the leader's within the last `replica.lag.time.max.ms`. One fetch cannot show
that under steady writes: the follower asks for what the leader had when the last fetch was answered. So a fetch that reaches
the leader's end *as of the fetch before* proves that it was caught up at that earlier time (KIP-16).

Not decided here: whether the controller accepts a wish, and which of several wishes it saw last.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

import msgspec

from kraftlab.metadata.errors import ErrorCode

NEVER_S = float("-inf")
UNKNOWN_OFFSET = -1


class FollowerProgress(msgspec.Struct, frozen=True):
    """What a leader knows of one follower. Offsets -1: it has not fetched since this leader took over."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = -1
    last_fetch_s: float = NEVER_S
    leader_end_at_last_fetch: int = UNKNOWN_OFFSET
    last_caught_up_s: float = NEVER_S

    def after_fetch(
        self, fetch_offset: int, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_s: float
    ) -> FollowerProgress:
        """The progress once a fetch at `fetch_offset` has come: it says that everything below is held."""
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
    progress: FollowerProgress, high_watermark: int, epoch_start_offset: int, registered_epoch: int | None, is_active: bool
) -> bool:
    """Whether a follower outside the ISR may be proposed (KIP-841, KIP-903).

    `registered_epoch` is the broker epoch in the metadata (None: not registered), `is_active`: neither fenced nor shutting
    down.
    """
    return (
        is_active
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
    """The members to propose for removal, sorted."""
    nothing = FollowerProgress()
    return tuple(
        sorted(
            member
            for member in isr
            if member != leader_id and not progress.get(member, nothing).is_caught_up(leader_end_offset, now_s, lag_time_max_s)
        )
    )


def maximal_isr(committed: Iterable[int], wish: Iterable[int] | None) -> frozenset[int]:
    """Everyone who may be in the ISR, whichever way the pending wish (None: none) turns out."""
    return frozenset(committed) | frozenset(wish or ())


def advance_high_watermark(
    current: int,
    log_start_offset: int,
    log_end_offset: int,
    follower_ends: Iterable[int],
    committed_isr_size: int,
    min_isr_size: int,
) -> int:
    """The leader's next high watermark: monotone and within the log.

    `follower_ends`: log ends (-1 unknown) of every follower that counts: the maximal ISR, and those caught up and allowed to
    join. With fewer members than `min_isr_size` it stays (KIP-966), since what is written now is not yet as safe as was
    promised.
    """
    floor = max(current, log_start_offset)
    if committed_isr_size < min_isr_size:
        return min(floor, log_end_offset)
    reached = min(follower_ends, default=log_end_offset)
    return min(max(floor, reached), log_end_offset)


class Reaction(enum.Enum):
    """What a leader does with the controller's answer for one partition."""

    ADOPT = "adopt the new state"
    RESET = "certainly not applied: go back to the committed ISR"
    WAIT = "outcome not certain: stay pending until the metadata log brings newer state"
    RETRY = "ask again"


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
    """Row for one partition's error code in an AlterPartition answer."""
    return _REACTIONS.get(error, Reaction.RETRY)
