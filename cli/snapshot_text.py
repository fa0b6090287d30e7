"""What `snapshot list` says: pure functions."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec


class SnapshotView(msgspec.Struct, frozen=True):
    """A snapshot; `last_contained_log_ms` is when its last record was appended, milliseconds since 1970, None unknown."""

    end_offset: int
    epoch: int
    size_bytes: int
    last_contained_log_ms: int | None

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


_HEADER = ("EndOffset", "Epoch", "Bytes", "LastContainedLogTime", "File")


def snapshot_lines(views: Sequence[SnapshotView]) -> list[str]:
    """A table as Kafka's tools print them, oldest first."""
    if not views:
        return ["There are no snapshots."]
    table = [_HEADER] + [
        (str(view.end_offset), str(view.epoch), str(view.size_bytes), _time(view.last_contained_log_ms), view.name)
        for view in views
    ]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADER))]
    return ["".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in table]


def _time(timestamp_ms: int | None) -> str:
    if timestamp_ms is None or timestamp_ms < 0:
        return "-"
    moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
