"""Tables and the document of `reassign-partitions --list` beyond Kafka's lines: progress, blockers, the queue and plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2 as pb

from ..tables import aligned, utc_text

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class DirectoryMove(msgspec.Struct, frozen=True):
    """A replica that moves between log directories of its broker. -1 is an unknown number; `error` is why the move stopped, or
    "". The broker's moves share the limit (bytes per second, None without one); `shared_bytes_left` is the rest of all of them.
    """

    topic: str
    partition: int
    broker: int
    log_dir: str | None
    target: str
    bytes_left: int
    bytes_per_second: float
    started_ms: int
    error: str
    limit: int | None = None
    shared_bytes_left: int = 0

    @property
    def eta_ms(self) -> int:
        if self.bytes_left <= 0 or self.error:
            return 0 if self.bytes_left == 0 else -1
        if self.limit:
            return self.shared_bytes_left * 1000 // self.limit
        return int(self.bytes_left / self.bytes_per_second * 1000) if self.bytes_per_second > 0 and self.limit is None else -1


def bytes_text(size: float) -> str:
    """Return a size with a unit: 1536 is 1.5 KiB; "?" for a negative size."""
    if size < 0:
        return "?"
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def time_text(milliseconds: int) -> str:
    """Return a duration as 4s, 3m20s or 2h05m; "?" for a negative duration."""
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


def directory_lines(moves: Sequence[DirectoryMove], width_max: int | None = None) -> list[str]:
    """Return the table of moves between log directories."""
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
            f"{bytes_text(move.limit)}/s" if move.limit is not None else "-",
            move.error or "-",
        )
        for move in moves
    ]
    header = ("REPLICA", "BROKER", "FROM", "TO", "LEFT", "RATE", "ETA", "THROTTLE", "PROBLEM")
    return ["", *aligned([header, *rows], width_max=width_max)]


def detail_lines(response: pb.ListPartitionReassignmentsResponse, width_max: int | None = None) -> list[str]:
    """Return the tables of a listing: moves, blockers, queue and plans. Tables wider than `width_max` are stacked."""
    table = partial(aligned, width_max=width_max)
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
            lines += ["", "Only the active controller knows the progress."]
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
    """Return the listing as a JSON document."""
    return {
        "reassignments": sorted(
            (_moving_document(topic.name, entry) for topic in response.topics for entry in topic.partitions),
            key=lambda move: (move["topic"], move["partition"]),
        ),
        "queued": [
            {"topic": entry.topic, "partition": entry.partition_index, **_fields(entry, _QUEUED_FIELDS)}
            for entry in response.queued
        ],
        "plans": [_fields(plan, _PLAN_FIELDS) for plan in response.plans],
        "directory_moves": [_fields(move, (*_DIRECTORY_MOVE_FIELDS, "eta_ms")) | {"error": move.error or None} for move in moves],
        "metadata_offset": response.header.metadata_offset,
    }


_PLAN_FIELDS = ("plan_id", "created_ms", "initiator", "reason", "partitions", "running", "queued")
_DIRECTORY_MOVE_FIELDS = tuple(field for field in DirectoryMove.__struct_fields__ if field not in ("error", "shared_bytes_left"))
_MOVE_FIELDS = ("move_id", "plan_id", "initiator", "reason")
_QUEUED_FIELDS = ("position", "replicas", "target_replicas", *_MOVE_FIELDS, "queued_ms", "priority", "size_bytes", "waits_for")
_REPLICA_FIELDS = ("replicas", "adding_replicas", "removing_replicas", "original_replicas", "target_replicas")
_THROTTLE_FIELDS = ("throttle", "limit", "throttle_until_ms")
_UNKNOWN_IF_NEGATIVE = ("bytes_done", "bytes_left", "bytes_per_second", "eta_ms", "size_bytes", "started_ms")


def _fields(entry: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return fields of a message or struct by name, None for a field that is not set or not known."""
    return {name: _plain(entry, name) for name in names}


def _plain(entry: Any, name: str) -> Any:
    value = getattr(entry, name)
    if isinstance(entry, Message) and entry.DESCRIPTOR.fields_by_name[name].has_presence and not entry.HasField(name):
        return None
    if name in _UNKNOWN_IF_NEGATIVE and value < 0:
        return None
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _moving_document(topic: str, entry: pb.OngoingPartitionReassignment) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": entry.partition_index,
        **_fields(entry, (*_REPLICA_FIELDS, *_MOVE_FIELDS, "started_ms", *_THROTTLE_FIELDS, "partition_epoch")),
        **_fields(entry, ("bytes_done", "bytes_left")),
        "bytes_per_second": entry.bytes_per_second if entry.bytes_done >= 0 else None,
        **_fields(entry, ("eta_ms",)),
        "progress": [
            {"broker": replica.broker_id, **_fields(replica, ("bytes_done", "bytes_left", "bytes_per_second", "eta_ms"))}
            for replica in entry.progress
        ],
        "blockers": [{"broker": b.broker_id, "state": b.state, "text": b.text} for b in entry.blockers],
    }
