"""Texts of `consumer-groups` as in Kafka's tool: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from kraftlab.client.groups import CommittedOffset, ConsumerGroup, GroupMember, ListedGroup

TopicPartition = tuple[str, int]
_NONE = "-"
_EMPTY, _REBALANCING = "Empty", ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


class PartitionLag(msgspec.Struct, frozen=True):
    """A partition that a group reads or has read. Without a committed offset, or without a leader, there is no lag."""

    topic: str
    partition: int
    leader_epoch: int | None
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None


def lags(
    group: ConsumerGroup, committed: Mapping[TopicPartition, CommittedOffset], ends: Mapping[TopicPartition, int | None]
) -> list[PartitionLag]:
    """Return the partitions of each member, the member with most partitions first, then those of no member."""
    members = sorted(group.members, key=lambda member: -len(member.assignment))
    rows = [_lag(key, committed, ends, member) for member in members for key in member.assignment]
    owned = {key for member in members for key in member.assignment}
    return rows + [_lag(key, committed, ends, None) for key in sorted({*committed} - owned)]


def _lag(
    key: TopicPartition,
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int | None],
    member: GroupMember | None,
) -> PartitionLag:
    found, end = committed.get(key), ends.get(key)
    owner = (None, None, None) if member is None else (member.member_id, member.host, member.client_id)
    if found is None:
        return PartitionLag(*key, None, None, end, None, *owner)
    return PartitionLag(*key, found.leader_epoch, found.offset, end, None if end is None else end - found.offset, *owner)


def list_lines(groups: Sequence[ListedGroup], *, types: bool, states: bool) -> list[str]:
    if not types and not states:
        return [group.group_id for group in groups]
    rows = [("GROUP", "TYPE", "STATE"), *((group.group_id, group.group_type.capitalize(), group.state) for group in groups)]
    shown = (0, *([1] if types else []), *([2] if states else []))
    return _table([[row[column] for column in shown] for row in rows], (25, 20, 20)[: len(shown)])


def state_note(group: ConsumerGroup) -> list[str]:
    """Return the note on stderr about a group that is not stable."""
    if group.state == _EMPTY:
        return ["", f"Consumer group '{group.group_id}' has no active members."]
    is_rebalancing = group.state in _REBALANCING
    return ["", f"Warning: Consumer group '{group.group_id}' is rebalancing."] if is_rebalancing else []


def offset_lines(group_id: str, rows: Sequence[PartitionLag], *, verbose: bool) -> list[str]:
    header = "GROUP TOPIC PARTITION LEADER-EPOCH CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    table = [header.split(), *([group_id, *(_cell(value) for value in msgspec.structs.astuple(row))] for row in rows)]
    widths = (15, 15, 10, 15, 15, 15, 15, 15, 15, 0)
    return _table(table, widths, without=() if verbose else (3,))


def member_lines(group: ConsumerGroup, *, verbose: bool) -> list[str]:
    header = "GROUP CONSUMER-ID GROUP-INSTANCE-ID HOST CLIENT-ID #PARTITIONS CURRENT-EPOCH CURRENT-ASSIGNMENT TARGET-EPOCH"
    rows = [
        [
            *(group.group_id, member.member_id, member.group_instance_id or "", member.host, member.client_id),
            *(str(len(member.assignment)), _NONE, assignment_text(member.assignment), _NONE, _NONE),
        ]
        for member in sorted(group.members, key=lambda member: -len(member.assignment))
    ]
    has_instances = any(member.group_instance_id for member in group.members)
    without = (*(() if has_instances else (2,)), *(() if verbose else (6, 7, 8, 9)))
    widths = (15, 15, 17, 15, 15, 15, 15, 20, 15, 20)
    return _table([[*header.split(), "TARGET-ASSIGNMENT"], *rows], widths, without=without)


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as `orders:0,1;sales:2`, "-" for none."""
    topics: dict[str, list[str]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(str(number))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items()) or _NONE


def state_lines(group: ConsumerGroup, *, verbose: bool) -> list[str]:
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
    coordinator = f"{group.coordinator}  ({group.coordinator_id})"
    row = [group.group_id, coordinator, group.assignor or _NONE, group.state, _NONE, _NONE, str(len(group.members))]
    return _table([header, row], (15, 25, 20, 20, 15, 25, 0), without=() if verbose else (4, 5))


def reset_lines(resets: Mapping[str, Mapping[TopicPartition, int]]) -> list[str]:
    rows = [
        [group, topic, str(number), str(offset)]
        for group, offsets in resets.items()
        for (topic, number), offset in sorted(offsets.items())
    ]
    return ["", *_table([["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], *rows], (15, 15, 10, 0))]


def status_lines(statuses: Mapping[tuple[str, int | None], str]) -> list[str]:
    """Return the outcome of each partition of `--delete-offsets`."""
    rows = [[topic, _cell(number), status] for (topic, number), status in statuses.items()]
    return ["", *_table([["TOPIC", "PARTITION", "STATUS"], *rows], (15, 10, 15))]


def _cell(value: object) -> str:
    return _NONE if value is None else str(value)


def _table(rows: Sequence[Sequence[str]], widths: Sequence[int], *, without: Sequence[int] = ()) -> list[str]:
    """Return the lines of rows, each column at least as wide as in `widths`."""
    shown = [column for column in range(len(widths)) if column not in without]
    fits = {column: max(widths[column], *(len(row[column]) for row in rows)) for column in shown}
    return [" ".join(row[column].ljust(fits[column]) for column in shown).rstrip() for row in rows]
