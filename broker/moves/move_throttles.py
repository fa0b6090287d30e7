"""Throttles that belong to moves: read from the metadata, gone with the move (KIP-73's limits, without its configuration).

The moves of one request share their throttle: each broker takes in at most that many bytes per second for all replicas that those
moves add to it. Replicas in sync are never throttled, nor is a replica that fell out of sync for another reason, since it is not
being added. No configs are written, so none are left when the move completes, is cancelled, or its throttle expires: the next
image does not have the throttle. Where the broker's own throttle covers the replica as well, both hold.
"""

from __future__ import annotations

from kraftlab.metadata.moves import TopicPartition

from ..control.metadata_publisher import Publication
from ..replication.byte_gate import ByteGate

Limit = tuple[int, int]
"""(offset of the request, bytes per second)."""


class MoveThrottles:
    """The gates of one broker, by limit."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._gates: dict[Limit, ByteGate] = {}
        self._limits: dict[TopicPartition, Limit] = {}

    def update(self, publication: Publication) -> bool:
        """Take over the throttles of the new image; True if they changed for this broker's replicas."""
        before, after = publication.before, publication.after
        if after.moves.running is before.moves.running and not self._limits:
            return False
        limits: dict[TopicPartition, Limit] = {}
        for topic_id, moves in after.moves.running.items():
            for number, move in moves.items():
                if move.throttle is None:
                    continue
                partition = after.topics.partition(topic_id, number)
                if partition is not None and self._broker_id in partition.adding:
                    limits[topic_id, number] = (move.request_offset, move.throttle)
        if limits == self._limits:
            return False
        self._limits = limits
        self._gates = {limit: self._gates.get(limit) or _gate(limit) for limit in set(limits.values())}
        return True

    @property
    def has_any(self) -> bool:
        return bool(self._limits)

    def gate_of(self, replica: TopicPartition) -> ByteGate | None:
        """The throttle of that replica's copy, None if its move has none."""
        limit = self._limits.get(replica)
        return None if limit is None else self._gates[limit]


def _gate(limit: Limit) -> ByteGate:
    gate = ByteGate()
    gate.set_rate(float(limit[1]))
    return gate
