"""Errors about Kafka's metadata logs."""

from __future__ import annotations


class KraftLogError(Exception):
    """Base of this package's errors."""


class UndecodableRecord(KraftLogError):
    """Bytes that do not match the record's type and version, or an unknown type or version. `type_number` and `version` are given
    if they could be read.
    """

    def __init__(self, reason: str, type_number: int | None = None, version: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.type_number = type_number
        self.version = version


class NoSuchLog(KraftLogError):
    """A path that is neither a metadata log nor a directory with one."""
