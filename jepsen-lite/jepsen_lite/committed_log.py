"""The committed metadata log of a run, decoded: what checkers compare histories with.

An entry is one record. The name of the request that wrote it stands beside the records in their batch, so that every record of
a named request carries that name here.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """One record. `kind` is its type ("Topic", "PartitionChange", …), `record` its fields as JSON values; `batch_end` is one past
    the last offset of its batch, which is what the answer to its request reflects. `request_id` as in `history.Op`.
    """

    offset: int
    batch_end: int
    epoch: int
    append_time_ms: int
    kind: str
    record: dict[str, Any]
    request_id: str = ""


class CommittedLog(msgspec.Struct, frozen=True):
    """Entries by offset, from `start` (0 unless the log was cleaned) up to the high watermark `end` when the run was over."""

    entries: tuple[Entry, ...]
    start: int = 0
    end: int = 0
