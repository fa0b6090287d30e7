"""Settings of one partition's log, from the topic's configuration keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kraftlab.records.recompression import Compression

NO_LIMIT = 2**63 - 1
DAY_MS = 24 * 3600 * 1000


class LogConfig(msgspec.Struct, frozen=True):
    """Settings of a topic that its logs obey. Fields are named after the topic keys; times are in milliseconds.

    -1 means no limit for `retention_bytes` and `retention_ms`; NO_LIMIT means never for intervals and lags.
    """

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    flush_messages: int = NO_LIMIT
    flush_ms: int = NO_LIMIT
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    is_deleted: bool = True
    """`cleanup.policy` contains delete."""
    is_compacted: bool = False
    """`cleanup.policy` contains compact."""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NO_LIMIT
    delete_retention_ms: int = DAY_MS
    uses_append_time: bool = False
    """`message.timestamp.type` is LogAppendTime: the leader sets the timestamps."""
    message_timestamp_before_max_ms: int = NO_LIMIT
    message_timestamp_after_max_ms: int = 3_600_000
    compression: Compression | None = None
    """`compression.type` with its level; None: as producers compress."""

    @classmethod
    def of(cls, value_of: Callable[[str], str]) -> LogConfig:
        """Build the settings from the texts of the topic keys; `value_of` returns the effective value of a key."""
        policies = {policy.strip() for policy in value_of("cleanup.policy").split(",")}
        return cls(
            is_deleted="delete" in policies,
            is_compacted="compact" in policies,
            uses_append_time=value_of("message.timestamp.type") == "LogAppendTime",
            compression=_compression(value_of("compression.type"), value_of),
            **{name: convert(value_of(key)) for name, (key, convert) in _NUMBERS.items()},
        )


_NUMBERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    field.name: (field.name.replace("_", "."), field.type)
    for field in msgspec.structs.fields(LogConfig)
    if field.type in (int, float)
}
"""Field with a number → the topic's key, and the type that reads its text."""


def _compression(type_: str, value_of: Callable[[str], str]) -> Compression | None:
    has_levels = type_ in ("gzip", "zstd")
    return Compression.of(type_, value_of(f"compression.{type_}.level") if has_levels else None)
