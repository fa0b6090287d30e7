"""What `reassign-partitions --list` says beyond Kafka's lines: progress, blockers, the queue and plans, as tables and as a
document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb

from ..tables import utc_text

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class DirectoryMove(msgspec.Struct, frozen=True):
    """A replica that moves between directories of its broker. -1: not known; `error`: why it stands still, or ""."""

    topic: str
    partition: int
    broker: int
    log_dir: str | None
    target: str
    bytes_left: int
    bytes_per_second: float
    started_ms: int
    error: str

    @property
    def eta_ms(self) -> int:
        if self.bytes_left == 0:
            return 0
        return int(self.bytes_left / self.bytes_per_second * 1000) if self.bytes_left > 0 and self.bytes_per_second > 0 else -1


def bytes_text(size: float) -> str:
    """1536 → 1.5 KiB; "?" if negative."""
    if size < 0:
        return "?"
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def time_text(milliseconds: int) -> str:
    """How long: 4s, 3m20s, 2h05m; "?" if negative."""
    if milliseconds < 0:
        return "?"
    seconds = (milliseconds + 999) // 1000
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows under a header, two spaces between columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def directory_lines(moves: Sequence[DirectoryMove]) -> list[str]:
    """The moves between directories, for people."""
    if not moves:
        return []
    rows = [
        (
            f"{move.topic}-{move.partition}",
            str(move.broker),
            move.log_dir or "?",
            move.target,
            bytes_text(move.bytes_left),
            f"{bytes_text(move.bytes_per_second)}/s" if move.bytes_per_second >= 0 else "?",
            time_text(move.eta_ms),
            move.error or "-",
        )
        for move in moves
    ]
    return ["", *table([("REPLICA", "BROKER", "FROM", "TO", "LEFT", "RATE", "ETA", "PROBLEM"), *rows])]


def detail_lines(response: pb.ListPartitionReassignmentsResponse) -> list[str]:
    """Everything the listing knows, for people."""
    lines: list[str] = []
    moving = [(f"{topic.name}-{entry.partition_index}", entry) for topic in response.topics for entry in topic.partitions]
    if moving:
        header = ("PARTITION", "MOVE", "FROM", "TO", "DONE", "LEFT", "RATE", "ETA", "THROTTLE", "BY", "REASON")
        lines += ["", *table([header, *(_moving_row(name, entry) for name, entry in sorted(moving, key=lambda m: m[0]))])]
        blockers = [(name, blocker) for name, entry in moving for blocker in entry.blockers]
        if blockers:
            rows = [(name, str(blocker.broker_id), blocker.state, blocker.text) for name, blocker in blockers]
            lines += ["", *table([("WAITS FOR", "BROKER", "STATE", "WHY"), *rows])]
        if not response.has_progress:
            lines += ["", "Progress is known to the active controller only."]
    if response.queued:
        header_of_queue = ("QUEUE", "PARTITION", "MOVE", "FROM", "TO", "SIZE", "PRIORITY", "WAITS FOR")
        lines += ["", *table([header_of_queue, *map(_queued_row, response.queued)])]
    if response.plans:
        plans = [
            (plan.plan_id, utc_text(plan.created_ms), str(plan.partitions), str(plan.running), str(plan.queued), plan.initiator)
            for plan in response.plans
        ]
        lines += ["", *table([("PLAN", "CREATED", "PARTITIONS", "RUNNING", "QUEUED", "BY"), *plans])]
    return lines


def _ids(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def _moving_row(name: str, entry: pb.OngoingPartitionReassignment) -> tuple[str, ...]:
    has_rate = entry.bytes_done >= 0
    return (
        name,
        entry.move_id or "-",
        _ids(entry.original_replicas),
        _ids(entry.target_replicas),
        bytes_text(entry.bytes_done),
        bytes_text(entry.bytes_left),
        f"{bytes_text(entry.bytes_per_second)}/s" if has_rate else "?",
        time_text(entry.eta_ms),
        f"{bytes_text(entry.limit)}/s" if entry.HasField("limit") else "-",
        entry.initiator or "-",
        entry.reason or "-",
    )


def _queued_row(entry: pb.QueuedReassignment) -> tuple[str, ...]:
    return (
        str(entry.position),
        f"{entry.topic}-{entry.partition_index}",
        entry.move_id,
        _ids(entry.replicas),
        _ids(entry.target_replicas),
        bytes_text(entry.size_bytes),
        str(entry.priority),
        entry.waits_for,
    )


def document(response: pb.ListPartitionReassignmentsResponse, moves: Sequence[DirectoryMove]) -> dict[str, object]:
    """The listing for programs."""
    return {
        "reassignments": sorted(
            (_moving_document(topic.name, entry) for topic in response.topics for entry in topic.partitions),
            key=lambda move: (move["topic"], move["partition"]),
        ),
        "queued": [
            {
                "topic": entry.topic,
                "partition": entry.partition_index,
                "position": entry.position,
                "move_id": entry.move_id,
                "replicas": list(entry.replicas),
                "target_replicas": list(entry.target_replicas),
                "plan_id": entry.plan_id if entry.HasField("plan_id") else None,
                "initiator": entry.initiator,
                "reason": entry.reason,
                "queued_ms": entry.queued_ms,
                "priority": entry.priority,
                "size_bytes": _known(entry.size_bytes),
                "waits_for": entry.waits_for,
            }
            for entry in response.queued
        ],
        "plans": [
            {
                "plan_id": plan.plan_id,
                "created_ms": plan.created_ms,
                "initiator": plan.initiator,
                "reason": plan.reason,
                "partitions": plan.partitions,
                "running": plan.running,
                "queued": plan.queued,
            }
            for plan in response.plans
        ],
        "directory_moves": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "broker": move.broker,
                "log_dir": move.log_dir,
                "target": move.target,
                "bytes_left": _known(move.bytes_left),
                "bytes_per_second": move.bytes_per_second if move.bytes_per_second >= 0 else None,
                "eta_ms": _known(move.eta_ms),
                "started_ms": _known(move.started_ms),
                "error": move.error or None,
            }
            for move in moves
        ],
        "metadata_offset": response.header.metadata_offset,
    }


def _known(value: int) -> int | None:
    return None if value < 0 else value


def _moving_document(topic: str, entry: pb.OngoingPartitionReassignment) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": entry.partition_index,
        "replicas": list(entry.replicas),
        "adding_replicas": list(entry.adding_replicas),
        "removing_replicas": list(entry.removing_replicas),
        "original_replicas": list(entry.original_replicas),
        "target_replicas": list(entry.target_replicas),
        "move_id": entry.move_id,
        "plan_id": entry.plan_id if entry.HasField("plan_id") else None,
        "initiator": entry.initiator,
        "reason": entry.reason,
        "started_ms": entry.started_ms,
        "throttle": entry.throttle if entry.HasField("throttle") else None,
        "limit": entry.limit if entry.HasField("limit") else None,
        "throttle_until_ms": entry.throttle_until_ms if entry.HasField("throttle_until_ms") else None,
        "partition_epoch": entry.partition_epoch,
        "bytes_done": _known(entry.bytes_done),
        "bytes_left": _known(entry.bytes_left),
        "bytes_per_second": entry.bytes_per_second if entry.bytes_done >= 0 else None,
        "eta_ms": _known(entry.eta_ms),
        "progress": [
            {
                "broker": replica.broker_id,
                "bytes_done": replica.bytes_done,
                "bytes_left": _known(replica.bytes_left),
                "bytes_per_second": replica.bytes_per_second,
                "eta_ms": _known(replica.eta_ms),
            }
            for replica in entry.progress
        ],
        "blockers": [{"broker": b.broker_id, "state": b.state, "text": b.text} for b in entry.blockers],
    }
