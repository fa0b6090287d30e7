"""Consumer groups with their lag, asked for by pages about groups and shared by all who ask within TTL_S."""

from __future__ import annotations

import threading
import time

import msgspec

from kraftlab.client import AdminClient
from kraftlab.client.cluster_offsets import look
from kraftlab.client.entries import answer_of
from kraftlab.client.groups import ConsumerGroup, ListedGroup

TTL_S = 3.0
CALLS_MS = 8000


class PartitionLag(msgspec.Struct, frozen=True):
    """The committed offset of a group in a partition. `end` and `lag` are None if the leader did not answer."""

    topic: str
    partition: int
    committed: int
    end: int | None
    lag: int | None


class Group(msgspec.Struct, frozen=True):
    """A group: what its coordinator lists and describes, and the lag of its partitions."""

    listed: ListedGroup
    described: ConsumerGroup | None
    lags: tuple[PartitionLag, ...]


class Groups:
    """The groups of one cluster. Thread-safe; `newest` blocks."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._found: dict[str, object] = {}
        self._at = float("-inf")

    def newest(self) -> dict[str, object]:
        """Return all groups and the brokers that did not answer. ApiError, ClusterUnreachable."""
        with self._lock:
            if time.monotonic() - self._at > TTL_S:
                self._found, self._at = self._ask(), time.monotonic()
            return self._found

    def _ask(self) -> dict[str, object]:
        offsets = look(self._client.group_calls(CALLS_MS), lambda name: True, lambda name: True)
        listed = self._client.list_consumer_groups(timeout_ms=CALLS_MS)
        ids = [each.group_id for each in listed]
        described = answer_of(lambda: self._client.describe_consumer_groups(ids, timeout_ms=CALLS_MS)) if ids else {}
        groups = []
        for each in listed:
            lags = []
            known = offsets.groups.get(each.group_id)
            for (topic, partition), committed in sorted((known.committed if known else {}).items()):
                log = offsets.partitions.get((topic, partition))
                end = None if log is None else log.end
                lags.append(PartitionLag(topic, partition, committed, end, None if end is None else max(0, end - committed)))
            groups.append(Group(each, described.get(each.group_id), tuple(lags)))
        return {"groups": groups, "silent": dict(offsets.silent)}
