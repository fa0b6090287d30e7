"""Errors of record batches."""

from __future__ import annotations


class LogError(Exception):
    """Base of the errors of record batches and of a broker's logs."""


class CorruptBatch(LogError):
    """Invalid bytes in the place of a record batch. `position` is the beginning of the batch in the buffer or file."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"corrupt record batch at position {position}: {reason}")
        self.position = position
        self.reason = reason


class InvalidRecords(LogError):
    """Records that break the rules of their format or topic. `records`: (index in the batch, reason) of some of them."""

    def __init__(self, reason: str, records: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(reason)
        self.records = records


class BatchTooLarge(LogError):
    """A batch larger than max.message.bytes of its topic."""
