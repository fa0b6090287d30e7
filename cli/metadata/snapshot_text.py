"""Texts of `snapshot list`: pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kraftlab.common.sizes import bytes_text

from ..tables import tab_table, utc_text


class SnapshotView(msgspec.Struct, frozen=True):
    """A snapshot. `last_contained_log_ms` is the append time of its last record in milliseconds since 1970, None if unknown."""

    end_offset: int
    epoch: int
    size_bytes: int
    last_contained_log_ms: int | None

    @property
    def name(self) -> str:
        """Name of the snapshot's file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


_HEADER = ("EndOffset", "Epoch", "Size", "LastContainedLogTime", "File")


def snapshot_lines(views: Sequence[SnapshotView]) -> list[str]:
    """Return the table of snapshots in the format of Kafka's tools, oldest first."""
    if not views:
        return ["There are no snapshots."]
    table = [_HEADER] + [
        (str(view.end_offset), str(view.epoch), bytes_text(view.size_bytes), _time(view.last_contained_log_ms), view.name)
        for view in views
    ]
    return tab_table(table)


def _time(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None or timestamp_ms < 0 else utc_text(timestamp_ms)
