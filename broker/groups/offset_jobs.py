"""Decisions about offsets and whole groups, for the owner of a shard: what to write, how the state changes, what to answer.

Each function reads the shard and changes nothing; the returned `Change` does, once its records are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.errors import ErrorCode

from . import offsets
from .group import CONSUMER, Group, State, Token
from .offsets import CommittedOffset, Place
from .rebalance import can_commit, touched
from .records import group_tombstone, offset_record
from .shard import Change, Shard


class Codes(NamedTuple):
    """One error code for each entry of a request. If the whole request failed, `error` says why, and no entry has a code."""

    codes: Sequence[ErrorCode] = ()
    error: ErrorCode = ErrorCode.NONE


class Commit(NamedTuple):
    """An OffsetCommit. `without_group`: the answer to a member of a group that is gone."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    entries: Sequence[tuple[Place, CommittedOffset]]
    without_group: ErrorCode


def known(shard: Shard, group_id: str) -> Group | None:
    """The group; one without members if only its offsets are known, None without those."""
    return shard.groups.get(group_id) or (Group(group_id=group_id) if group_id in shard.offsets else None)


def commit(shard: Shard, request: Commit, metadata_length_max: int, token: Token) -> Change:
    """Commit offsets. Answer: `Codes`."""
    group = known(shard, request.group_id)
    fault = can_commit(group, request.member_id, request.instance_id, request.generation, without_group=request.without_group)
    if fault:
        return Change(answers=((token, Codes([fault] * len(request.entries))),))
    codes = [offsets.metadata_fault(committed.metadata, metadata_length_max) for _, committed in request.entries]
    taken = [entry for entry, code in zip(request.entries, codes, strict=True) if not code]
    now_ms = wall_clock_ms()
    records = [offset_record(request.group_id, place, committed, now_ms) for place, committed in taken]

    def apply() -> None:
        if taken:
            shard.keep_offsets(request.group_id, taken)
        member_group = shard.groups.get(request.group_id)
        if member_group is not None and member_group.state in (State.STABLE, State.PREPARING):
            shard.put_group(touched(member_group, request.member_id, shard.now_ms()), sets_alarm=False)

    return Change(records, apply, ((token, Codes(codes)),))


def fetch(shard: Shard, group_id: str, token: Token) -> Change:
    """Answer: a dict of the group's offsets by place."""
    return Change(answers=((token, dict(shard.offsets.get(group_id, {}))),))


def delete_offsets(shard: Shard, group_id: str, places: Sequence[Place], token: Token) -> Change:
    """Delete offsets of topics to which no member is subscribed. Answer: `Codes`."""
    group = known(shard, group_id)
    fault = ErrorCode.NONE
    if group is None:
        fault = ErrorCode.GROUP_ID_NOT_FOUND
    elif group.state is not State.EMPTY and group.protocol_type != CONSUMER:
        fault = ErrorCode.NON_EMPTY_GROUP
    if fault:
        return Change(answers=((token, Codes(error=fault)),))
    subscribed = offsets.subscribed_topics(group)
    in_use = {topic: offsets.is_subscribed(group, topic, subscribed) for topic, _ in places}
    codes = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use[topic] else ErrorCode.NONE for topic, _ in places]
    found = shard.offsets.get(group_id, {})
    change = _without(shard, {group_id: [place for place in places if place in found and not in_use[place[0]]]})
    return change._replace(answers=((token, Codes(codes)),))


def delete_group(shard: Shard, group_id: str, token: Token) -> Change:
    """Delete a group without members, with its offsets. Answer: an ErrorCode."""
    group = known(shard, group_id)
    if group is None:
        return Change(answers=((token, ErrorCode.GROUP_ID_NOT_FOUND),))
    if group.state is not State.EMPTY:
        return Change(answers=((token, ErrorCode.NON_EMPTY_GROUP),))
    change = _without(shard, {group_id: list(shard.offsets.get(group_id, {}))}, groups=[group_id])
    return change._replace(answers=((token, ErrorCode.NONE),))


def describe(shard: Shard, group_ids: Sequence[str], token: Token) -> Change:
    """Answer: the groups that are known, by id."""
    groups = ((group_id, known(shard, group_id)) for group_id in group_ids)
    return Change(answers=((token, {group_id: group for group_id, group in groups if group is not None}),))


def list_groups(shard: Shard, token: Token) -> Change:
    """Answer: a list of all groups."""
    return Change(answers=((token, [known(shard, group_id) for group_id in shard.group_ids()]),))


def expire(shard: Shard, retention_ms: int) -> Change:
    """Remove expired offsets, and groups without members that have no offsets."""
    now_ms = shard.now_ms()
    gone: dict[str, list[Place]] = {}
    empty: list[str] = []
    for group_id in shard.group_ids():
        group, found = shard.groups.get(group_id), shard.offsets.get(group_id, {})
        gone[group_id] = offsets.expired(group, found, now_ms, retention_ms)
        is_unused = group is None or (group.state is State.EMPTY and not group.pending)
        if is_unused and len(gone[group_id]) == len(found):
            empty.append(group_id)
    return _without(shard, gone, groups=empty)


def forget_topics(shard: Shard, topics: Iterable[str]) -> Change:
    """Remove the offsets of deleted topics."""
    names = frozenset(topics)
    return _without(shard, {group_id: offsets.of_topics(found, names) for group_id, found in shard.offsets.items()})


def _without(shard: Shard, gone: Mapping[str, Sequence[Place]], groups: Sequence[str] = ()) -> Change:
    """Remove offsets and whole groups, with tombstones."""
    now_ms = wall_clock_ms()
    records = [offset_record(group_id, place, None, now_ms) for group_id, places in gone.items() for place in places]
    records += [group_tombstone(group_id, now_ms) for group_id in groups if group_id in shard.groups]
    return Change(records, partial(_remove, shard, gone, groups))


def _remove(shard: Shard, gone: Mapping[str, Sequence[Place]], groups: Sequence[str]) -> None:
    for group_id, places in gone.items():
        if group_id in shard.offsets:
            shard.keep_offsets(group_id, [(place, None) for place in places])
    for group_id in groups:
        shard.groups.pop(group_id, None)
        shard.offsets.pop(group_id, None)
