"""What can be wrong with a metadata log of Kafka's."""

from __future__ import annotations


class KraftLogError(Exception):
    """Base of this package's errors."""


class UndecodableRecord(KraftLogError):
    """A record's bytes are not what its type and version say, or those are unknown. `type_number` and `version` as far as they
    were read.
    """

    def __init__(self, reason: str, type_number: int | None = None, version: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.type_number = type_number
        self.version = version


class NoSuchLog(KraftLogError):
    """A path given is no metadata log and no directory of one."""
