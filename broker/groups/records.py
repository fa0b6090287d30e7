"""Groups and offsets as records of `__consumer_offsets`, in the format of Kafka, and back.

A group's record holds its last stable or empty state; a record without a value is a tombstone. Records of other types, which
Kafka writes for other kinds of groups, are skipped.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftlab.common.uuids import ZERO
from kraftlab.messages.generated.group_metadata_key import GroupMetadataKey
from kraftlab.messages.generated.group_metadata_value import GroupMetadataValue, MemberMetadata
from kraftlab.messages.generated.offset_commit_key import OffsetCommitKey
from kraftlab.messages.generated.offset_commit_value import OffsetCommitValue
from kraftlab.records.record_batch import Record

from . import log_records
from .group import Group, Member, Protocol, State
from .offsets import CommittedOffset, Place

OFFSET_VERSION = 4
OFFSET_VERSION_WITH_EXPIRY = 1
"""The newest version with a time of its own to expire."""
GROUP_VERSION = 3
NO_TIME = -1


class OffsetEntry(NamedTuple):
    """A committed offset, or None for its tombstone."""

    group_id: str
    place: Place
    committed: CommittedOffset | None


class GroupEntry(NamedTuple):
    """A group as it was written, or None for its tombstone."""

    group_id: str
    group: Group | None


Entry = OffsetEntry | GroupEntry


def offset_record(group_id: str, place: Place, committed: CommittedOffset | None, timestamp_ms: int) -> Record:
    key = log_records.encode_key(OffsetCommitKey(group_id, *place))
    if committed is None:
        return Record(key, None, timestamp_ms)
    value = OffsetCommitValue(
        committed.offset,
        committed.leader_epoch,
        committed.metadata,
        committed.committed_at_ms,
        NO_TIME if committed.expires_at_ms is None else committed.expires_at_ms,
        committed.topic_id or ZERO,
    )
    version = OFFSET_VERSION if committed.expires_at_ms is None else OFFSET_VERSION_WITH_EXPIRY
    return Record(key, log_records.encode_value(value, version), timestamp_ms)


def group_record(group: Group, timestamp_ms: int) -> Record:
    members = tuple(
        MemberMetadata(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            each.rebalance_timeout_ms,
            each.session_timeout_ms,
            each.metadata(group.protocol_name),
            each.assignment,
        )
        for each in group.members.values()
    )
    value = GroupMetadataValue(
        group.protocol_type or "", group.generation, group.protocol_name, group.leader, group.since_ms, members
    )
    key = log_records.encode_key(GroupMetadataKey(group.group_id))
    return Record(key, log_records.encode_value(value, GROUP_VERSION), timestamp_ms)


def group_tombstone(group_id: str, timestamp_ms: int) -> Record:
    return Record(log_records.encode_key(GroupMetadataKey(group_id)), None, timestamp_ms)


def decode(key: bytes | None, value: bytes | None, now_ms: int) -> Entry | None:
    """Return what a record says, None for records of other kinds. Sessions begin at `now_ms`. ValueError for malformed bytes."""
    decoded = log_records.decode_key(key or b"")
    if isinstance(decoded, OffsetCommitKey):
        place = decoded.topic, decoded.partition
        return OffsetEntry(decoded.group, place, None if value is None else _committed(log_records.decode_offset_value(value)))
    if isinstance(decoded, GroupMetadataKey):
        read = None if value is None else _group(decoded.group, log_records.decode_group_value(value), now_ms)
        return GroupEntry(decoded.group, read)
    return None


def _committed(value: OffsetCommitValue) -> CommittedOffset:
    expires_at_ms = None if value.expire_timestamp == NO_TIME else value.expire_timestamp
    topic_id = None if value.topic_id == ZERO else value.topic_id
    return CommittedOffset(value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, expires_at_ms, topic_id)


def _group(group_id: str, value: GroupMetadataValue, now_ms: int) -> Group:
    members = {
        each.member_id: Member(
            member_id=each.member_id,
            instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            session_timeout_ms=each.session_timeout,
            rebalance_timeout_ms=each.session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout,
            protocols=(Protocol(value.protocol or "", each.subscription),),
            assignment=each.assignment,
            expires_at_ms=now_ms + each.session_timeout,
            has_synced=True,
        )
        for each in value.members
    }
    return Group(
        group_id=group_id,
        state=State.STABLE if members else State.EMPTY,
        since_ms=now_ms if value.current_state_timestamp < 0 else value.current_state_timestamp,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol if members else None,
        leader=value.leader if members else None,
        members=members,
    )
