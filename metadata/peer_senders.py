"""Requests to the active controller and between brokers, and who may send them (`wire/senders.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from kraftlab.wire.senders import BROKER, CLIENT, CONTROLLER, UNNAMED, SenderRule, nobody_named

from .peer_rpc import Api, EnvelopeRequest


def _broker_of(request: EnvelopeRequest) -> int:
    return UNNAMED if request.broker is None else request.broker.node_id


PEER_SENDERS: Mapping[int, SenderRule] = {
    Api.ALTER_PARTITION: SenderRule(BROKER, lambda request: request.broker_id),
    Api.ENVELOPE: SenderRule(BROKER, _broker_of),
    Api.BROKER_REGISTRATION: SenderRule(BROKER, lambda request: request.broker_id),
    Api.BROKER_HEARTBEAT: SenderRule(BROKER, lambda request: request.broker_id),
    Api.MOVE_PROGRESS: SenderRule(BROKER, lambda request: request.broker_id),
    Api.ASSIGN_REPLICAS_TO_DIRS: SenderRule(BROKER, lambda request: request.broker_id),
    Api.ALLOCATE_PRODUCER_IDS: SenderRule(BROKER, lambda request: request.broker_id),
    Api.CONTROLLER_REGISTRATION: SenderRule(CONTROLLER, lambda request: request.controller_id),
    Api.PRODUCE: SenderRule(CLIENT, nobody_named),
    Api.LIST_OFFSETS: SenderRule(CLIENT, nobody_named),
    Api.OFFSET_FOR_LEADER_EPOCH: SenderRule(CLIENT, nobody_named),
    Api.LOG_DIGEST: SenderRule(CLIENT, nobody_named),
    Api.REPLICA_FETCH: SenderRule(CLIENT, lambda request: request.replica_id),
}
"""A fetch of records as replica -1 is a consumer's."""
