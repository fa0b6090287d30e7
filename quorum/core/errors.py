"""Error codes in peer frames (Kafka's numbers), and three exceptions that stay in the process."""

from __future__ import annotations

import enum


class ErrorCode(enum.IntEnum):
    """The error codes of consensus. `metadata/errors.py` has Kafka's whole table; a test compares the two."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    CLUSTER_AUTHORIZATION_FAILED = 31
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
    """The state machine was about to break one of its own rules, by a bug in it. Never caught; the node ends."""


class LogTruncationRefused(Exception):
    """The leader lacks records that this node knows as committed: a majority of the disks has lost them.

    The message says what each node holds and what to do. The node ends and its log stays as it was.
    """


class CorruptBatch(ValueError):
    """The bytes are not a batch: bad magic, length, crc or chain. The message says where, and what was found."""
