"""Exceptions of consensus. They stay in the process."""

from __future__ import annotations


class LogTruncationRefused(Exception):
    """The leader lacks records that this node knows as committed: a majority of the disks has lost them.

    The message says what each node holds and what to do. The node ends and its log stays as it was.
    """


class CorruptBatch(ValueError):
    """The bytes are not a batch: bad magic, length, crc or chain. The message says where, and what was found."""
