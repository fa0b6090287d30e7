"""Offsets of a group: which are in use, and when they expire."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.broker.groups.group import Group, Member, Protocol, State
from kraftlab.broker.groups.offsets import CommittedOffset, expired, is_subscribed, subscribed_topics
from kraftlab.broker.groups.records import GroupEntry, OffsetEntry, decode, group_record, group_tombstone, offset_record

HOUR_MS = 3_600_000
TO_T = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff" + b"\0\0\0\0"


def group(state: State, *metadata: bytes, protocol_type: str = "consumer") -> Group:
    members = {
        f"m{number}": Member(
            member_id=f"m{number}",
            session_timeout_ms=1,
            rebalance_timeout_ms=1,
            expires_at_ms=5,
            protocols=(Protocol("range", each),),
            assignment=b"x",
            has_synced=True,
        )
        for number, each in enumerate(metadata)
    }
    leader = next(iter(members), None)
    return Group(
        group_id="g",
        state=state,
        since_ms=1000,
        generation=3,
        protocol_type=protocol_type,
        protocol_name="range" if members else None,
        leader=leader,
        members=members,
    )


def test_topics_are_read_from_the_metadata_of_consumers() -> None:
    assert subscribed_topics(group(State.STABLE, TO_T)) == {"t"}
    assert subscribed_topics(group(State.EMPTY)) == frozenset()
    assert subscribed_topics(None) == frozenset()


@pytest.mark.parametrize("metadata", [b"", b"\1\2", TO_T[:8], b"\0\0\0\0\0\1\xff\xff", b"\0\0\0\0\0\1\0\1\xff"])
def test_consumers_with_unreadable_metadata_use_every_topic(metadata: bytes) -> None:
    unreadable = group(State.STABLE, TO_T, metadata)
    assert subscribed_topics(unreadable) is None
    assert is_subscribed(unreadable, "any", None)


def test_members_of_other_protocols_use_no_topic() -> None:
    workers = group(State.STABLE, TO_T, protocol_type="connect")
    assert not is_subscribed(workers, "t", subscribed_topics(workers))


@pytest.mark.parametrize(
    ("owner", "first_expired_ms"),
    [
        (None, 500 + HOUR_MS),
        (group(State.EMPTY), 1000 + HOUR_MS),
        (group(State.STABLE, b"\0\0\0\0\0\0"), 500 + HOUR_MS),
        (group(State.STABLE, TO_T), None),
        (group(State.STABLE, b""), None),
        (group(State.PREPARING, b"\0\0\0\0\0\0"), None),
    ],
)
def test_an_offset_expires_when_it_is_not_in_use(owner: Group | None, first_expired_ms: int | None) -> None:
    offsets = {("t", 0): CommittedOffset(7, committed_at_ms=500)}
    if first_expired_ms is None:
        assert expired(owner, offsets, 100 * HOUR_MS, HOUR_MS) == []
        return
    assert expired(owner, offsets, first_expired_ms - 1, HOUR_MS) == []
    assert expired(owner, offsets, first_expired_ms, HOUR_MS) == [("t", 0)]


def test_a_commit_can_bring_its_own_time_to_expire() -> None:
    offsets = {("t", 0): CommittedOffset(7, committed_at_ms=500, expires_at_ms=600)}
    assert expired(None, offsets, 599, HOUR_MS) == []
    assert expired(None, offsets, 600, HOUR_MS) == [("t", 0)]


commits = st.builds(
    CommittedOffset,
    offset=st.integers(-(2**63), 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=20),
    committed_at_ms=st.integers(0, 2**62),
    expires_at_ms=st.none(),
    topic_id=st.one_of(st.none(), st.binary(min_size=16, max_size=16).filter(any)),
)


@given(commits, st.text(max_size=10))
def test_an_offset_reads_back_from_its_record(committed: CommittedOffset, group_id: str) -> None:
    record = offset_record(group_id, ("t", 5), committed, 1)
    assert decode(record.key, record.value, 0) == OffsetEntry(group_id, ("t", 5), committed)
    record = offset_record(group_id, ("t", 5), None, 1)
    assert decode(record.key, record.value, 0) == OffsetEntry(group_id, ("t", 5), None)


def test_an_offset_with_a_time_to_expire_keeps_it() -> None:
    committed = CommittedOffset(7, expires_at_ms=99)
    record = offset_record("g", ("t", 5), committed, 1)
    assert decode(record.key, record.value, 0) == OffsetEntry("g", ("t", 5), committed)


@pytest.mark.parametrize("written", [group(State.STABLE, TO_T, b"\0"), group(State.EMPTY)])
def test_a_group_reads_back_from_its_record_with_fresh_sessions(written: Group) -> None:
    record = group_record(written, 1)
    read = decode(record.key, record.value, 4)
    assert read == GroupEntry("g", written)
    tombstone = group_tombstone("g", 1)
    assert decode(tombstone.key, tombstone.value, 4) == GroupEntry("g", None)


def test_records_of_other_kinds_of_groups_are_skipped() -> None:
    assert decode(b"\0\3\0\1g", b"\0\0", 0) is None


@given(st.sampled_from((b"\0\0", b"\0\1", b"\0\2", b"")), st.binary(max_size=40), st.one_of(st.none(), st.binary(max_size=80)))
def test_any_bytes_are_an_entry_or_malformed(kind: bytes, key: bytes, value: bytes | None) -> None:
    with suppress(ValueError):
        decode(kind + key, value, 0)


@given(st.binary(max_size=100), st.integers(0, 4))
def test_any_value_of_a_group_is_read_or_malformed(value: bytes, version: int) -> None:
    key = group_tombstone("g", 1).key
    with suppress(ValueError):
        decode(key, bytes([0, version]) + value, 0)
