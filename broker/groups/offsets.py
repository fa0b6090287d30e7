"""Committed offsets of one group: which commits are taken, and when offsets expire.

An offset expires `offsets.retention.minutes` after the group became empty; in a group without a protocol (a client that only
commits), after the commit. While consumers are subscribed, offsets of other topics expire after their commit. A commit of an old
client can bring its own expiry time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import Uuid

from .group import CONSUMER, Group, State

NO_EPOCH = -1

Place = tuple[str, int]
"""Topic and partition number."""


class CommittedOffset(NamedTuple):
    """A committed offset. `expires_at_ms`: None without a time of its own. `topic_id`: None in records of old versions."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    committed_at_ms: int = 0
    expires_at_ms: int | None = None
    topic_id: Uuid | None = None


_NOTE_BYTES_MAX = 32_767
"""Bytes of the longest note that every version of OffsetFetch can answer."""


def metadata_fault(metadata: str, length_max: int) -> ErrorCode:
    """Return OFFSET_METADATA_TOO_LARGE if a client's note is longer than offset.metadata.max.bytes, or too long to be answered.

    In spite of its name, Kafka compares the key with the length of a Java string: units of UTF-16, not bytes of UTF-8.
    """
    length = len(metadata.encode("utf-16-le")) // 2
    too_large = length > length_max or len(metadata.encode()) > _NOTE_BYTES_MAX
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE


def subscribed_topics(group: Group | None) -> frozenset[str] | None:
    """Topics to which the members are subscribed; None if the members' metadata cannot be read, or are not those of consumers."""
    if group is None or not group.members:
        return frozenset()
    if group.protocol_type != CONSUMER or group.protocol_name is None:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        found = _topics_of(member.metadata(group.protocol_name))
        if found is None:
            return None
        topics.update(found)
    return frozenset(topics)


def is_subscribed(group: Group | None, topic: str, subscribed: frozenset[str] | None) -> bool:
    """Return True if offsets of the topic are in use. Consumers whose subscription cannot be read count as subscribed to all."""
    if subscribed is None:
        return group is not None and group.protocol_type == CONSUMER
    return topic in subscribed


def _topics_of(metadata: bytes) -> list[str] | None:
    """Read the topics from a consumer's subscription: version i16, number of topics i32, names with their length i16."""
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        at, topics = 6, []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, at)
            name = metadata[at + 2 : at + 2 + length]
            if length < 0 or len(name) != length:
                return None
            topics.append(name.decode())
            at += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics


def expired(group: Group | None, offsets: Mapping[Place, CommittedOffset], now_ms: int, retention_ms: int) -> list[Place]:
    """Places with expired offsets."""
    subscribed = subscribed_topics(group)
    found = []
    for place, committed in offsets.items():
        since_ms = _unused_since_ms(group, place[0], committed, subscribed)
        if since_ms is None:
            continue
        end_ms = since_ms + retention_ms if committed.expires_at_ms is None else committed.expires_at_ms
        if end_ms <= now_ms:
            found.append(place)
    return found


def _unused_since_ms(
    group: Group | None, topic: str, committed: CommittedOffset, subscribed: frozenset[str] | None
) -> int | None:
    """Start of an offset's retention, None while the offset is in use."""
    if group is None or group.protocol_type is None:
        return committed.committed_at_ms
    if group.state is State.EMPTY:
        return max(group.since_ms, committed.committed_at_ms)
    is_idle = group.state is State.STABLE and subscribed is not None and topic not in subscribed
    return committed.committed_at_ms if is_idle else None


def of_topics(offsets: Mapping[Place, CommittedOffset], topics: Iterable[str]) -> list[Place]:
    """Places of these topics."""
    wanted = frozenset(topics)
    return [place for place in offsets if place[0] in wanted]
