"""Where two logs part, by leader epochs (KIP-101, KIP-279, KIP-595). Pure.

A follower says with each fetch which epoch its last record has. If the leader's log does not hold that epoch up to the fetch
offset, it answers with the largest epoch that it knows at or below, and where that one ends. The follower cuts its log to the
smaller of both ends; if it does not know that epoch itself, to the end of its largest smaller epoch, and asks again. Every
round drops at least one epoch, so it ends.
"""

from __future__ import annotations

from collections.abc import Callable

EndOffsetFor = Callable[[int], tuple[int, int]]
"""epoch → (largest epoch <= it in a log, where that one ends); (-1, start of what is known) if there is none."""

NO_EPOCH = -1


def leader_answer(
    fetch_offset: int, last_fetched_epoch: int, log_end_offset: int, latest_epoch: int, end_offset_for: EndOffsetFor
) -> tuple[int, int] | None:
    """(epoch, end offset) for a follower whose log is no prefix of the leader's, None if it may fetch on."""
    if last_fetched_epoch == NO_EPOCH or (last_fetched_epoch == latest_epoch and fetch_offset <= log_end_offset):
        return None
    epoch, end_offset = end_offset_for(last_fetched_epoch)
    if epoch == last_fetched_epoch and fetch_offset <= end_offset:
        return None
    return epoch, end_offset


def truncation_offset(diverging: tuple[int, int], log_end_offset: int, end_offset_for: EndOffsetFor) -> int:
    """Where a follower cuts its log after the leader's answer; its log end if nothing has to go."""
    epoch, end_offset = diverging
    known_epoch, known_end = end_offset_for(epoch)
    cut = min(end_offset, known_end) if known_epoch == epoch else known_end
    return min(cut, log_end_offset)
