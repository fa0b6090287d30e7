"""Counts of elections that a controller has written, for its metrics."""

from __future__ import annotations

from collections.abc import Iterable

from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import NO_LEADER, RECOVERING, AnyRecord, PartitionChange


class ElectionCounts:
    """`unclean`: leaders that may lack records. `from_eligible`: leaders that were eligible and not in sync (KIP-966)."""

    def __init__(self) -> None:
        self.unclean = self.from_eligible = 0

    def add(self, before: MetadataImage, records: Iterable[AnyRecord]) -> None:
        """Count the elections in records for the image `before`."""
        for record in records:
            if not isinstance(record, PartitionChange) or record.leader in (None, NO_LEADER):
                continue
            if record.leader_recovery_state == RECOVERING:
                self.unclean += 1
            elif record.eligible_leader_replicas is not None:
                state = before.topics.partition(record.topic_id, record.partition_id)
                self.from_eligible += state is not None and record.leader in state.elr
