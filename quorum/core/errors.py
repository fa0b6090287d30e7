"""Errors that travel in peer frames (Kafka's numbers), and the three that never do."""

from __future__ import annotations

import enum


class ErrorCode(enum.IntEnum):
    """The codes consensus itself answers with. `metadata/errors.py` has the whole table; a test compares them."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    INCONSISTENT_CLUSTER_ID = 104
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    STALE_GENERATION = 1000


class InvariantViolation(AssertionError):
    """A bug of ours: the state machine was about to break one of its own rules. Never caught; the node ends."""


class LogTruncationRefused(Exception):
    """The leader lacks records that this node knows as committed: a majority of the disks has lost them. Says what each holds and
    the next step; the node ends with its log as it was.
    """


class CorruptBatch(ValueError):
    """Bytes that should be a batch are not: bad magic, length, crc or chain. Says where and what was found."""
