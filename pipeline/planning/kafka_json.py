"""Plans as the file of Kafka's reassignment tool, log directories included (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterable

from kraftlab.cli.reassign.plan import Placement, format_plan

from .plan import PartitionMove


def kafka_json(moves: Iterable[PartitionMove]) -> str:
    """The file's text: compact, sorted by topic and partition."""
    return format_plan(Placement(move.topic, move.partition, move.after, move.dirs) for move in moves)
