"""Consumer groups with their lag, asked for by pages about groups and shared by all who ask within TTL_S.

A page gets some groups, filtered, sorted and cut here, and the members and partitions of one. What is unknown has its reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import msgspec

from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.cluster_offsets import ClusterOffsets, look
from kraftlab.client.groups import ConsumerGroup, TopicPartition
from kraftlab.common.errors import ApiError, ErrorCode

from .rows import page

TTL_S = 3.0
CALLS_MS = 8000
HIDDEN = "__"
"""Start of names that tools give to groups of their own, as they do to internal topics."""


class PartitionLag(msgspec.Struct, frozen=True):
    """The committed offset of a group in a partition, None before the first commit. Where `lag` is None, `unknown` says why."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    unknown: str


class Group(msgspec.Struct, frozen=True):
    """A group with its members and partitions. Where its coordinator does not describe it, `unknown` says why."""

    group_id: str
    state: str
    group_type: str
    described: ConsumerGroup | None
    unknown: str
    lags: tuple[PartitionLag, ...]
    silent: dict[int, str]


class Groups:
    """The groups of one cluster. Thread-safe; its methods block, and raise ApiError and ClusterUnreachable."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._found = ClusterOffsets({}, {}, {}, {})
        self._at = float("-inf")

    def newest(self) -> ClusterOffsets:
        """Return the offsets of all groups and partitions, and the brokers that did not answer."""
        with self._lock:
            if time.monotonic() - self._at > TTL_S:
                self._found = look(self._client.group_calls(CALLS_MS), lambda name: True, lambda name: True)
                self._at = time.monotonic()
            return self._found

    def some(self, text: str, topic: str, internal: bool, sort: str, start: int, limit: int) -> dict[str, object]:
        """Return some groups with the text in their name and offsets in the topic. `lag` counts what is known."""
        offsets = self.newest()
        found = [
            (name, group, _lags(offsets, group.committed, topic))
            for name, group in offsets.groups.items()
            if text in name and (internal or not name.startswith(HIDDEN))
        ]
        rows: list[dict[str, object]] = [
            {
                "group_id": name,
                "state": group.state,
                "group_type": group.group_type,
                "members": group.members,
                "partitions": len(lags),
                "lag": sum(each.lag or 0 for each in lags) if any(each.lag is not None for each in lags) else None,
                "unknown": sum(each.lag is None for each in lags),
            }
            for name, group, lags in found
            if lags or not topic
        ]
        most = max((lag for row in rows if isinstance(lag := row["lag"], int)), default=0)
        return {"silent": offsets.silent, "most": most, **page(rows, sort, ("group_id",), start, limit)}

    def one(self, group_id: str) -> Group:
        """Return a group. ApiError if no broker that answers has it."""
        offsets = self.newest()
        group = offsets.groups.get(group_id)
        if group is None:
            missing = f", and {', '.join(map(str, offsets.silent))} did not answer" if offsets.silent else ""
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"no broker has a group {group_id!r}{missing}; look at /groups")
        described, unknown, assigned = None, "", list[TopicPartition]()
        try:
            described = self._client.describe_consumer_groups([group_id], timeout_ms=CALLS_MS)[group_id]
        except (ApiError, ClusterUnreachable) as error:
            unknown = str(error)
        else:
            assigned = [key for member in described.members for key in member.assignment]
        lags = _lags(offsets, dict.fromkeys(assigned) | dict(group.committed), "")
        state = group.state if described is None else described.state
        return Group(group_id, state, group.group_type, described, unknown, lags, dict(offsets.silent))


def _lags(offsets: ClusterOffsets, committed: Mapping[TopicPartition, int | None], topic: str) -> tuple[PartitionLag, ...]:
    return tuple(_lag(offsets, key, offset) for key, offset in sorted(committed.items()) if not topic or key[0] == topic)


def _lag(offsets: ClusterOffsets, key: TopicPartition, committed: int | None) -> PartitionLag:
    log = offsets.partitions.get(key)
    end = None if log is None else log.end
    if end is not None and committed is not None:
        return PartitionLag(*key, committed, end, max(0, end - committed), "")
    if end is not None:
        unknown = "the group has not committed here yet"
    elif log is None:
        unknown = "the partition does not exist"
    elif log.leader < 0:
        unknown = "the partition has no leader"
    else:
        unknown = f"broker {log.leader} leads and does not answer: {offsets.silent.get(log.leader, 'try again')}"
    return PartitionLag(*key, committed, end, None, unknown)
