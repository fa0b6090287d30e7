"""Metrics of a broker: its replicas, log directories, moves, traffic and groups, and whether it is ready."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from kraftlab.metrics.exposition import Exposition
from kraftlab.metrics.pages import Write
from kraftlab.node.health import NodeHealth
from kraftlab.node.metrics import write_disk_bytes
from kraftlab.quorum.driver.raft_driver import RaftDriver

from .control.lifecycle import BrokerState, Lifecycle
from .control.metadata_publisher import MetadataPublisher

BROKER_STATES = {
    BrokerState.NOT_RUNNING: 0,
    BrokerState.STARTING: 1,
    BrokerState.RECOVERY: 2,
    BrokerState.RUNNING: 3,
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: 6,
    BrokerState.SHUTTING_DOWN: 7,
}
"""Kafka's number of each state."""


class PartsWithNumbers(NamedTuple):
    """The parts of a broker that its metrics are about."""

    lifecycle: Lifecycle


class BrokerMetrics:
    """The source of one broker, and its health: an unfenced broker with loaded logs is ready.

    It has few numbers until the broker's parts are built and given to it.
    """

    def __init__(self, node_id: int, driver: RaftDriver, publisher: MetadataPublisher) -> None:
        self._node_id = node_id
        self._driver = driver
        self._publisher = publisher
        self.health = NodeHealth(driver, lambda: publisher.offset, self._faults)
        self.parts: PartsWithNumbers | None = None

    def _faults(self) -> Iterator[str]:
        state = self._state()
        if state in (BrokerState.NOT_RUNNING, BrokerState.STARTING, BrokerState.RECOVERY):
            yield f"the broker is starting: {state.value}"
        elif state is not BrokerState.RUNNING:
            yield f"the broker is stopping: {state.value}"
        me = self._publisher.image.cluster.brokers.get(self._node_id)
        if me is None:
            yield "the broker is not registered"
        elif me.fenced:
            yield "the controller has fenced this broker"

    def _state(self) -> BrokerState:
        return self.parts.lifecycle.state if self.parts is not None else BrokerState.NOT_RUNNING

    def snapshot(self) -> Write:
        """Take the values, on the event loop."""
        state, applied = self._state(), self._publisher.image.provenance

        def write(page: Exposition) -> None:
            write_disk_bytes(page, "kafkaserver")
            page.add("kafka_server_kafkaserver_brokerstate", BROKER_STATES[state])
            lag_ms = max(0, int(time.time() * 1000 - applied.append_time_ms)) if applied.offset > 0 else 0
            for name, value in (
                ("last_applied_record_offset", applied.offset - 1),
                ("last_applied_record_lag_ms", lag_ms),
                ("metadata_load_error_count", 0),
            ):
                page.add(f"kafka_server_brokermetadatametrics_{name}", value)

        return write
