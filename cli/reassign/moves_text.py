"""Tables and the document of `reassign-partitions --list` beyond Kafka's lines: progress, blockers, the queue and plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kraftlab.client.results import LogDirMove, LogDirMoves, QueuedReassignment, Reassignment, Reassignments
from kraftlab.common.sizes import bytes_text

from ..tables import aligned, time_text, utc_text

ONLY_CONTROLLER = "Only the active controller knows the progress."
ONLY_SIZES = "Kafka's brokers do not report progress here; --progress compares the sizes of logs."
_COPYING = {"STARTING", "COPYING", "THROTTLED", "OUT_OF_SYNC"}
"""States of a replica whose rate and time to go are shown, or will be in a moment. In the others it waits for somebody."""
NO_MOVES = LogDirMoves((), {})


def directory_lines(moves: Sequence[LogDirMove], width_max: int | None = None) -> list[str]:
    """Return the table of moves between log directories."""
    if not moves:
        return []
    rows = [
        (
            f"{move.replica.topic}-{move.replica.partition_index}",
            str(move.broker_id),
            move.replica.source_log_dir or "?",
            move.log_dir,
            *progress_cells(move),
            f"{bytes_text(move.limit)}/s" if move.limit is not None else "-",
            move.replica.error or "-",
        )
        for move in moves
    ]
    header = ("REPLICA", "BROKER", "FROM", "TO", "LEFT", "RATE", "ETA", "THROTTLE", "PROBLEM")
    return ["", *aligned([header, *rows], width_max=width_max)]


def progress_cells(move: LogDirMove) -> tuple[str, str, str]:
    """Return bytes left, rate and time to go; "-" for both while an error keeps the move from copying."""
    left, rate = move.replica.bytes_left, move.replica.bytes_per_second
    if move.replica.error:
        return bytes_text(left), "-", "-"
    return (
        bytes_text(left),
        "?" if rate is None else f"{bytes_text(rate)}/s",
        time_text(move.eta_ms),
    )


def detail_lines(listing: Reassignments, width_max: int | None = None) -> list[str]:
    """Return the tables of a listing: moves, blockers, queue and plans. Tables wider than `width_max` are stacked."""
    table = partial(aligned, width_max=width_max)
    lines: list[str] = []
    moving = [(f"{entry.topic}-{entry.partition_index}", entry) for entry in listing.running]
    if moving:
        header = ("PARTITION", "MOVE", "FROM", "TO", "DONE", "LEFT", "RATE", "ETA", "THROTTLE", "BY", "REASON")
        lines += ["", *table([header, *(_moving_row(name, entry) for name, entry in sorted(moving, key=lambda m: m[0]))])]
        blockers = [(name, blocker) for name, entry in moving for blocker in entry.blockers]
        if blockers:
            rows = [(name, str(blocker.broker_id), blocker.state, blocker.text) for name, blocker in blockers]
            lines += ["", *table([("WAITS FOR", "BROKER", "STATE", "WHY"), *rows])]
        if not listing.has_progress:
            lines += ["", ONLY_CONTROLLER if listing.metadata_offset else ONLY_SIZES]
    if listing.queued:
        header_of_queue = ("QUEUE", "PARTITION", "MOVE", "FROM", "TO", "SIZE", "PRIORITY", "WAITS FOR")
        lines += ["", *table([header_of_queue, *map(_queued_row, listing.queued)])]
    if listing.plans:
        plans = [
            (plan.plan_id, utc_text(plan.created_ms), str(plan.partitions), str(plan.running), str(plan.queued), plan.initiator)
            for plan in listing.plans
        ]
        lines += ["", *table([("PLAN", "CREATED", "PARTITIONS", "RUNNING", "QUEUED", "BY"), *plans])]
    return lines


def _ids(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def _at_least(whole: float | None, parts: Iterable[float | None]) -> str:
    """Return a size; without one, at least the sum of the parts that are known. A dead broker does not hide the others."""
    known = [part for part in parts if part is not None]
    return bytes_text(whole) if whole is not None or not known else f"≥{bytes_text(sum(known))}"


def _moving_row(name: str, entry: Reassignment) -> tuple[str, ...]:
    whole_rate = entry.bytes_per_second if entry.bytes_done is not None else None
    rate = _at_least(whole_rate, (replica.bytes_per_second or None for replica in entry.progress))
    waits = any(blocker.state not in _COPYING for blocker in entry.blockers)
    unknown = "-" if waits else "?"
    return (
        name,
        entry.move_id or "-",
        _ids(entry.original_replicas),
        _ids(entry.target_replicas),
        _at_least(entry.bytes_done, (replica.bytes_done for replica in entry.progress)),
        _at_least(entry.bytes_left, (replica.bytes_left for replica in entry.progress)),
        unknown if rate == "?" else f"{rate}/s",
        unknown if entry.eta_ms is None else time_text(entry.eta_ms),
        f"{bytes_text(entry.limit)}/s" if entry.limit is not None else "-",
        entry.initiator or "-",
        entry.reason or "-",
    )


def _queued_row(entry: QueuedReassignment) -> tuple[str, ...]:
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


def document(listing: Reassignments, moves: LogDirMoves) -> dict[str, object]:
    """Return the listing as a JSON document; `moves` are those between directories."""
    return {
        "reassignments": sorted(map(_moving_document, listing.running), key=lambda move: (move["topic"], move["partition"])),
        "queued": [
            {"topic": entry.topic, "partition": entry.partition_index, **_fields(entry, _QUEUED_FIELDS)}
            for entry in listing.queued
        ],
        "plans": [_fields(plan, _PLAN_FIELDS) for plan in listing.plans],
        "directory_moves": [move_document(move) for move in moves.moves],
        "silent_brokers": silent_document(moves.silent),
        "metadata_offset": listing.metadata_offset,
    }


def move_document(move: LogDirMove) -> dict[str, object]:
    """Return a move between log directories, or a replica that is filled from its leader, for a JSON document."""
    replica = move.replica
    return {
        "topic": replica.topic,
        "partition": replica.partition_index,
        "broker": move.broker_id,
        "log_dir": move.replica.source_log_dir,
        "target": move.log_dir,
        "bytes_left": replica.bytes_left,
        "bytes_per_second": replica.bytes_per_second,
        "started_ms": replica.started_ms,
        "limit": move.limit,
        "eta_ms": move.eta_ms,
        "error": replica.error or None,
    }


def silent_document(silent: Mapping[int, str]) -> list[dict[str, object]]:
    """Return the brokers that did not answer, for a JSON document."""
    return [{"broker": broker, "reason": reason} for broker, reason in sorted(silent.items())]


_PLAN_FIELDS = ("plan_id", "created_ms", "initiator", "reason", "partitions", "running", "queued")
_MOVE_FIELDS = ("move_id", "plan_id", "initiator", "reason")
_QUEUED_FIELDS = ("position", "replicas", "target_replicas", *_MOVE_FIELDS, "queued_ms", "priority", "size_bytes", "waits_for")
_REPLICA_FIELDS = ("replicas", "adding_replicas", "removing_replicas", "original_replicas", "target_replicas")
_THROTTLE_FIELDS = ("throttle", "limit", "throttle_until_ms")


def _fields(entry: object, names: Iterable[str]) -> dict[str, Any]:
    """Return fields of a result by name."""
    return {name: getattr(entry, name) for name in names}


def _moving_document(entry: Reassignment) -> dict[str, Any]:
    return {
        "topic": entry.topic,
        "partition": entry.partition_index,
        **_fields(entry, (*_REPLICA_FIELDS, *_MOVE_FIELDS, "started_ms", *_THROTTLE_FIELDS, "partition_epoch")),
        **_fields(entry, ("bytes_done", "bytes_left")),
        "bytes_per_second": entry.bytes_per_second if entry.bytes_done is not None else None,
        **_fields(entry, ("eta_ms",)),
        "progress": [
            {"broker": replica.broker_id, **_fields(replica, ("bytes_done", "bytes_left", "bytes_per_second", "eta_ms"))}
            for replica in entry.progress
        ],
        "blockers": [{"broker": b.broker_id, "state": b.state, "text": b.text} for b in entry.blockers],
    }
