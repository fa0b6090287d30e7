"""Texts of `metadata-quorum describe` as in Kafka's tool: pure functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..tables import tab_table

if TYPE_CHECKING:
    from kraftlab.client.results import Quorum, QuorumReplica

_ZERO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def shown(number: int | None) -> int:
    """Return -1 for an unknown number, as Kafka's tool shows it."""
    return -1 if number is None else number


def leader_of(quorum: Quorum) -> QuorumReplica | None:
    return next((voter for voter in quorum.current_voters if voter.replica_id == quorum.leader_id), None)


def status_lines(quorum: Quorum) -> list[str]:
    lag, lag_ms = _follower_lag(quorum)
    rows = (
        ("ClusterId:", quorum.cluster_id),
        ("LeaderId:", shown(quorum.leader_id)),
        ("LeaderEpoch:", quorum.leader_epoch),
        ("HighWatermark:", quorum.high_watermark),
        ("MaxFollowerLag:", lag),
        ("MaxFollowerLagTimeMs:", lag_ms),
        ("CurrentVoters:", _replicas(quorum.current_voters, with_endpoints=True)),
        ("CurrentObservers:", _replicas(quorum.observers, with_endpoints=False)),
    )
    return [f"{label:<24}{value}" for label, value in rows]


def _follower_lag(quorum: Quorum) -> tuple[int, int]:
    """Return the lag of the slowest voter as (records, milliseconds); -1 ms if unknown."""
    leader = leader_of(quorum)
    if leader is None:
        return -1, -1
    slowest = min(quorum.current_voters, key=lambda voter: voter.log_end_offset)
    lag = leader.log_end_offset - slowest.log_end_offset
    if slowest.replica_id == leader.replica_id:
        followers = [voter for voter in quorum.current_voters if voter.replica_id != leader.replica_id]
        slowest = min(followers, key=lambda voter: shown(voter.last_caught_up_timestamp), default=leader)
    if slowest.last_caught_up_timestamp is None or leader.last_caught_up_timestamp is None:
        return lag, -1
    return lag, max(leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp, 0)


def _replicas(replicas: Sequence[QuorumReplica], *, with_endpoints: bool) -> str:
    entries = []
    for replica in replicas:
        entry: dict[str, object] = {"id": replica.replica_id, "directoryId": _directory(replica)}
        if replica.endpoints and with_endpoints:
            entry["endpoints"] = _endpoints(replica)
        entries.append(entry)
    return json.dumps(entries)


def _endpoints(replica: QuorumReplica) -> list[str]:
    return [f"{at.name}://{at.host}:{at.port}" for at in replica.endpoints]


def _directory(replica: QuorumReplica) -> str | None:
    return None if replica.replica_directory_id in ("", _ZERO_ID) else replica.replica_directory_id


_HEADER = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")


def replication_lines(quorum: Quorum, now_ms: int | None = None) -> list[str]:
    """Return the table of replicas, leader first. With `now_ms` times are shown as "8 ms ago"."""
    leader = leader_of(quorum)
    end = leader.log_end_offset if leader is not None else 0
    followers = [voter for voter in quorum.current_voters if voter is not leader]
    rows = [("Leader", leader)] if leader is not None else []
    rows += [("Follower", voter) for voter in sorted(followers, key=lambda voter: voter.replica_id)]
    rows += [("Observer", observer) for observer in sorted(quorum.observers, key=lambda observer: observer.replica_id)]
    table = [_HEADER] + [
        (
            str(replica.replica_id),
            replica.replica_directory_id,
            str(replica.log_end_offset),
            str(max(end - replica.log_end_offset, 0)),
            _time(replica.last_fetch_timestamp, now_ms),
            _time(replica.last_caught_up_timestamp, now_ms),
            status,
        )
        for status, replica in rows
    ]
    return tab_table(table)


def _time(timestamp_ms: int | None, now_ms: int | None) -> str:
    if now_ms is None or timestamp_ms is None:
        return str(shown(timestamp_ms))
    return f"{max(now_ms - timestamp_ms, 0)} ms ago"


def document(quorum: Quorum) -> dict[str, object]:
    """Return the quorum for a JSON document; unknown numbers are -1."""
    return {
        "cluster_id": quorum.cluster_id,
        "leader_id": shown(quorum.leader_id),
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [_replica_document(replica) for replica in quorum.current_voters],
        "observers": [_replica_document(replica) for replica in quorum.observers],
        "kraft_version": quorum.kraft_version,
        "log_start_offset": quorum.log_start_offset,
        "generation": quorum.generation,
    }


def _replica_document(replica: QuorumReplica) -> dict[str, object]:
    return {
        "replica_id": replica.replica_id,
        "directory_id": replica.replica_directory_id,
        "log_end_offset": replica.log_end_offset,
        "last_fetch_ms": shown(replica.last_fetch_timestamp),
        "last_caught_up_ms": shown(replica.last_caught_up_timestamp),
        "endpoints": _endpoints(replica),
    }
