"""The high watermark as a pure function of what each voter holds (KIP-595; Raft §5.4.2).

A leader may count replicas only for records of its own epoch: an older record is committed by being below a newer one. The record
that opens the epoch stands *at* `epoch_start_offset`, so the high watermark must lie strictly above it: an offset equal to the
epoch's start proves only that a majority holds everything *before* that record. (`>=` was KAFKA-12619.)
"""

from __future__ import annotations

from collections.abc import Sequence


def majority_offset(end_offsets: Sequence[int]) -> int:
    """The largest offset that a majority of `end_offsets` has reached. At least one voter."""
    return sorted(end_offsets)[(len(end_offsets) - 1) // 2]


def next_high_watermark(current: int, epoch_start_offset: int, end_offsets: Sequence[int]) -> int:
    """The leader's high watermark, given the voters' durable end offsets (-1: unknown). Never below `current` (-1: unknown)."""
    reached = majority_offset(end_offsets)
    return reached if reached > epoch_start_offset and reached > current else current
