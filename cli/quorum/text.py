"""Texts of `metadata-quorum describe` as in Kafka's tool: pure functions."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from ..tables import tab_table

_ZERO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class ReplicaView(msgspec.Struct, frozen=True):
    """One voter or observer. Timestamps are in milliseconds since 1970, -1 if unknown."""

    replica_id: int
    directory_id: str
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    endpoints: tuple[str, ...] = ()


class QuorumView(msgspec.Struct, frozen=True):
    """The quorum as its leader sees it. `log_start_offset` is of the leader's log; `generation` counts forced majorities."""

    cluster_id: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaView, ...]
    observers: tuple[ReplicaView, ...]
    kraft_version: int = 0
    log_start_offset: int = 0
    generation: int = 0

    @property
    def leader(self) -> ReplicaView | None:
        return next((voter for voter in self.voters if voter.replica_id == self.leader_id), None)


def status_lines(view: QuorumView) -> list[str]:
    lag, lag_ms = _follower_lag(view)
    rows = (
        ("ClusterId:", view.cluster_id),
        ("LeaderId:", view.leader_id),
        ("LeaderEpoch:", view.leader_epoch),
        ("HighWatermark:", view.high_watermark),
        ("MaxFollowerLag:", lag),
        ("MaxFollowerLagTimeMs:", lag_ms),
        ("CurrentVoters:", _replicas(view.voters, with_endpoints=True)),
        ("CurrentObservers:", _replicas(view.observers, with_endpoints=False)),
    )
    return [f"{label:<24}{value}" for label, value in rows]


def _follower_lag(view: QuorumView) -> tuple[int, int]:
    """Return the lag of the slowest voter as (records, milliseconds); -1 ms if unknown."""
    leader = view.leader
    if leader is None:
        return -1, -1
    slowest = min(view.voters, key=lambda voter: voter.log_end_offset)
    lag = leader.log_end_offset - slowest.log_end_offset
    if slowest.replica_id == leader.replica_id:
        followers = [voter for voter in view.voters if voter.replica_id != leader.replica_id]
        slowest = min(followers, key=lambda voter: voter.last_caught_up_ms, default=leader)
    if slowest.last_caught_up_ms < 0 or leader.last_caught_up_ms < 0:
        return lag, -1
    return lag, max(leader.last_caught_up_ms - slowest.last_caught_up_ms, 0)


def _replicas(replicas: Sequence[ReplicaView], *, with_endpoints: bool) -> str:
    shown = []
    for replica in replicas:
        entry: dict[str, object] = {"id": replica.replica_id, "directoryId": _directory(replica)}
        if replica.endpoints and with_endpoints:
            entry["endpoints"] = list(replica.endpoints)
        shown.append(entry)
    return json.dumps(shown)


def _directory(replica: ReplicaView) -> str | None:
    return None if replica.directory_id in ("", _ZERO_ID) else replica.directory_id


_HEADER = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")


def replication_lines(view: QuorumView, now_ms: int | None = None) -> list[str]:
    """Return the table of replicas, leader first. With `now_ms` times are shown as "8 ms ago"."""
    leader = view.leader
    end = leader.log_end_offset if leader is not None else 0
    followers = [voter for voter in view.voters if voter is not leader]
    rows = [("Leader", leader)] if leader is not None else []
    rows += [("Follower", voter) for voter in sorted(followers, key=lambda voter: voter.replica_id)]
    rows += [("Observer", observer) for observer in sorted(view.observers, key=lambda observer: observer.replica_id)]
    table = [_HEADER] + [
        (
            str(replica.replica_id),
            replica.directory_id,
            str(replica.log_end_offset),
            str(max(end - replica.log_end_offset, 0)),
            _time(replica.last_fetch_ms, now_ms),
            _time(replica.last_caught_up_ms, now_ms),
            status,
        )
        for status, replica in rows
    ]
    return tab_table(table)


def _time(timestamp_ms: int, now_ms: int | None) -> str:
    if now_ms is None or timestamp_ms < 0:
        return str(timestamp_ms)
    return f"{max(now_ms - timestamp_ms, 0)} ms ago"
