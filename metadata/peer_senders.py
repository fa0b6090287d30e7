"""Requests to the active controller and between brokers, and who may send them (`wire/senders.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from kraftlab.wire.senders import BROKER, CLIENT, CONTROLLER, SenderRule

from .peer_rpc import Api

PEER_SENDERS: Mapping[int, SenderRule] = {
    Api.ALTER_PARTITION: SenderRule(BROKER, "broker_id"),
    Api.ENVELOPE: SenderRule(BROKER, "broker.node_id"),
    Api.BROKER_REGISTRATION: SenderRule(BROKER, "broker_id"),
    Api.BROKER_HEARTBEAT: SenderRule(BROKER, "broker_id"),
    Api.MOVE_PROGRESS: SenderRule(BROKER, "broker_id"),
    Api.ASSIGN_REPLICAS_TO_DIRS: SenderRule(BROKER, "broker_id"),
    Api.ALLOCATE_PRODUCER_IDS: SenderRule(BROKER, "broker_id"),
    Api.CONTROLLER_REGISTRATION: SenderRule(CONTROLLER, "controller_id"),
    Api.PRODUCE: SenderRule(CLIENT),
    Api.LIST_OFFSETS: SenderRule(CLIENT),
    Api.OFFSET_FOR_LEADER_EPOCH: SenderRule(CLIENT),
    Api.LOG_DIGEST: SenderRule(CLIENT),
    Api.REPLICA_FETCH: SenderRule(CLIENT, "replica_id"),
}
"""A fetch of records as replica -1 is a consumer's."""
