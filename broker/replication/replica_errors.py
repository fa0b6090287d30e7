"""Kafka's error codes for errors of the storage."""

from __future__ import annotations

from kraftlab.common.errors import ErrorCode
from kraftlab.records.errors import BatchTooLarge, CorruptBatch, InvalidRecords, LogError

from ..log.errors import (
    CorruptLog,
    InvalidTimestamps,
    LogClosed,
    LogDirFailed,
    NoSpace,
    NoTransactions,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerIdInUse,
    ReplicaOffline,
    StaleProducerEpoch,
    TooManyOpenFiles,
    TopicNameTooLong,
    UnexpectedOffset,
    UnknownCodec,
)


class ReplicaError(Exception):
    """A request about a replica cannot be served: code and text for its answer."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


_CODES: dict[type[LogError], ErrorCode] = {
    CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    CorruptLog: ErrorCode.CORRUPT_MESSAGE,
    LogClosed: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    LogDirFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    NoSpace: ErrorCode.KAFKA_STORAGE_ERROR,
    TooManyOpenFiles: ErrorCode.KAFKA_STORAGE_ERROR,
    ReplicaOffline: ErrorCode.KAFKA_STORAGE_ERROR,
    OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    UnexpectedOffset: ErrorCode.INVALID_RECORD,
    InvalidRecords: ErrorCode.INVALID_RECORD,
    InvalidTimestamps: ErrorCode.INVALID_TIMESTAMP,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    UnknownCodec: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    NoTransactions: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    StaleProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    ProducerIdInUse: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    TopicNameTooLong: ErrorCode.INVALID_TOPIC_EXCEPTION,
}


def code_of(error: LogError | ReplicaError) -> ErrorCode:
    """Return the code of `error` for an answer."""
    if isinstance(error, ReplicaError):
        return error.code
    return _CODES.get(type(error), ErrorCode.UNKNOWN_SERVER_ERROR)
