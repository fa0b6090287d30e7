"""The body of DescribeQuorum answers: the quorum as one node knows it (KIP-595, KIP-836)."""

from __future__ import annotations

import msgspec

from kraftlab.common.endpoint import Endpoint

from ..core.raft_node import RaftNode, ReplicaStatus

DESCRIBE_QUORUM = 55
"""Api number of DescribeQuorum. Any node answers from its own view; the request body is empty."""


class ReplicaDescription(msgspec.Struct, frozen=True, array_like=True):
    """One replica of the metadata log. Only the leader knows offsets and times of other replicas; -1: unknown.

    Times are wall clock in ms: of the last Fetch, and of the last moment when the replica had everything the leader had.
    """

    node_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_time_ms: int
    last_caught_up_time_ms: int
    endpoints: dict[str, Endpoint]


class QuorumDescription(msgspec.Struct, frozen=True, array_like=True):
    """`leader_id` -1: unknown. `high_watermark` -1: unknown. `observers` is empty on nodes that do not lead.

    The fields from `kraft_version` on describe this node's own log. `voters_offset` is that of the voters record in force, -1 if
    there is none. The log holds the offsets from start to end. While it is being repaired the node does not vote.
    """

    node_id: int
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[ReplicaDescription]
    observers: list[ReplicaDescription]
    kraft_version: int = 0
    voters_offset: int = -1
    log_start_offset: int = 0
    log_end_offset: int = 0
    is_repairing: bool = False


def describe_quorum(core: RaftNode, now_ms: int) -> QuorumDescription:
    """Return this node's knowledge at `now_ms`. A node that does not lead knows only the voters and its own log."""

    def describe(replica: ReplicaStatus) -> ReplicaDescription:
        voter = core.voters.get(replica.key.node_id)
        return ReplicaDescription(
            replica.key.node_id,
            replica.key.directory_id,
            replica.end_offset,
            replica.last_fetch_ms,
            replica.last_caught_up_ms,
            voter.endpoints if voter is not None else {},
        )

    voters = core.voter_progress(now_ms)
    if not voters:
        own = core.config.key
        voters = [
            ReplicaStatus(own, core.log_end_offset, -1, -1) if own.matches(voter.key) else ReplicaStatus(voter.key, -1, -1, -1)
            for voter in core.voters.voters
        ]
    return QuorumDescription(
        core.config.node_id,
        core.leader_id,
        core.epoch,
        core.high_watermark,
        [describe(voter) for voter in voters],
        [describe(observer) for observer in core.observer_progress()],
        core.kraft_version,
        core.voters_offset,
        core.log.start_offset,
        core.log_end_offset,
        core.is_repairing,
    )
