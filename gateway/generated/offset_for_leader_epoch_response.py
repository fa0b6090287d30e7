"""Values of Kafka's OffsetForLeaderEpochResponse."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class EpochEndOffset(msgspec.Struct):
    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


class OffsetForLeaderTopicResult(msgspec.Struct):
    topic: str = ""
    partitions: Sequence[EpochEndOffset] = ()


class OffsetForLeaderEpochResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    topics: Sequence[OffsetForLeaderTopicResult] = ()
