"""The wait of acks=all: an append counts once the high watermark covers it."""

from __future__ import annotations

import trio

from kraftlab.common.errors import ErrorCode

from .partition import LeaderRole, Partition


async def replicated(partition: Partition, end_offset: int, leader_epoch: int, timeout_ms: int) -> ErrorCode:
    """Wait until the high watermark covers an append of that leader epoch.

    NOT_LEADER_OR_FOLLOWER if the epoch ends before, NOT_ENOUGH_REPLICAS_AFTER_APPEND if it is covered by too few replicas,
    REQUEST_TIMED_OUT if it is not covered in time; without any time left, it has to be covered already.
    """
    with trio.move_on_after(max(0, timeout_ms) / 1000):
        while True:
            changed = trio.Event()
            with partition.watched_by(changed):
                log = partition.log
                if not isinstance(partition.role, LeaderRole) or partition.role.epoch != leader_epoch or log is None:
                    return ErrorCode.NOT_LEADER_OR_FOLLOWER
                if log.high_watermark >= end_offset:
                    return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if partition.is_below_min_isr() else ErrorCode.NONE
                await changed.wait()
    return ErrorCode.REQUEST_TIMED_OUT
