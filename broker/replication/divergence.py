"""Divergence of two logs, by leader epochs (KIP-101, KIP-279, KIP-595). Pure.

A follower sends with each fetch the epoch of its last record. If the leader's log does not hold that epoch up to the fetch
offset, the leader answers with the largest epoch at or below that it knows, and the end offset of that epoch. The follower
truncates its log to the smaller of both ends; if it does not know that epoch itself, to the end of its largest smaller epoch, and
asks again. Every round drops at least one epoch, so it ends.
"""

from __future__ import annotations

from collections.abc import Callable

EndOffsetFor = Callable[[int], tuple[int, int]]
"""epoch → (largest epoch <= it in a log, its end offset); (-1, start of the known epochs) if there is none."""

NO_EPOCH = -1


def leader_answer(
    fetch_offset: int, last_fetched_epoch: int, log_end_offset: int, latest_epoch: int, end_offset_for: EndOffsetFor
) -> tuple[int, int] | None:
    """Return (epoch, end offset) for a follower whose log diverges from the leader's, None if the follower may fetch on."""
    if last_fetched_epoch == NO_EPOCH or (last_fetched_epoch == latest_epoch and fetch_offset <= log_end_offset):
        return None
    epoch, end_offset = end_offset_for(last_fetched_epoch)
    if epoch == last_fetched_epoch and fetch_offset <= end_offset:
        return None
    return epoch, end_offset


def truncation_offset(diverging: tuple[int, int], log_end_offset: int, end_offset_for: EndOffsetFor) -> int:
    """Return the offset to which a follower truncates after the leader's answer; its log end if it keeps all records."""
    epoch, end_offset = diverging
    known_epoch, known_end = end_offset_for(epoch)
    cut = min(end_offset, known_end) if known_epoch == epoch else known_end
    return min(cut, log_end_offset)
