"""The quorum's requests, and who may send them (`wire/senders.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from kraftlab.wire.senders import CLIENT, CONTROLLER, NODE, SenderRule

from ..core.messages import RaftApi
from .quorum_description import DESCRIBE_QUORUM

QUORUM_SENDERS: Mapping[int, SenderRule] = {
    RaftApi.FETCH: SenderRule(NODE, "replica.node_id"),
    RaftApi.FETCH_SNAPSHOT: SenderRule(NODE, "replica.node_id"),
    RaftApi.VOTE: SenderRule(CONTROLLER, "candidate.node_id"),
    RaftApi.BEGIN_QUORUM_EPOCH: SenderRule(CONTROLLER, "leader_id"),
    RaftApi.END_QUORUM_EPOCH: SenderRule(CONTROLLER, "leader_id"),
    RaftApi.PROBE_VOTER: SenderRule(CONTROLLER),
    RaftApi.ADD_VOTER: SenderRule(CONTROLLER, "voter.key.node_id"),
    RaftApi.UPDATE_VOTER: SenderRule(CONTROLLER, "voter.key.node_id"),
    RaftApi.REMOVE_VOTER: SenderRule(CONTROLLER, "voter.node_id"),
    RaftApi.TRANSFER_LEADERSHIP: SenderRule(CONTROLLER, None),
    DESCRIBE_QUORUM: SenderRule(CLIENT),
}
"""A fetch as replica -1 names a reader and no node, and any sender may send it. Voters are added and removed at
their own request here; operators use the admin API.
"""
