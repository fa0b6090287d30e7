"""Metrics of a controller: the cluster as its committed state has it, the event queue, brokers and voters.

The image is immutable, so its partitions are counted in the listener's thread, and again only after they have changed.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from kraftlab.metadata.eligible_leaders import min_insync_replicas, partition_min_isr
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import NO_LEADER
from kraftlab.metrics.exposition import Exposition
from kraftlab.metrics.pages import Write
from kraftlab.metrics.recent import RecentValues
from kraftlab.node.health import NodeHealth
from kraftlab.node.metrics import write_disk_bytes
from kraftlab.quorum.driver.raft_driver import RaftDriver

from .engine.quorum_controller import ControllerStatistics, QuorumController

KAFKA = "kafka_controller_kafkacontroller"
REGISTRATION_STATES = {"fenced": 10, "controlled_shutdown": 20, "active": 30}
"""State of a broker, and Kafka's number of it."""


class PartitionCounts(NamedTuple):
    """Numbers of partitions of the whole cluster."""

    partitions: int = 0
    offline: int = 0
    not_preferred: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    reassigning: int = 0


class ControllerMetrics:
    """The source of one controller, and its health: an active leader is ready, and a follower with the committed state."""

    def __init__(self, controller: QuorumController, driver: RaftDriver) -> None:
        self._controller = controller
        self._driver = driver
        self.health = NodeHealth(driver, lambda: controller.applied_offset, self._faults)
        self._counted = MetadataImage(), PartitionCounts()
        """The last image that was counted, and its numbers."""

    def _faults(self) -> Iterator[str]:
        controller = self._controller
        if controller.failure is not None:
            yield f"the controller is stopping: {controller.failure}"
        elif not controller.is_loaded:
            yield "the committed state is being loaded"

    def snapshot(self) -> Write:
        """Take the values, on the event loop."""
        controller, driver = self._controller, self._driver
        image, statistics = controller.committed.image, controller.statistics()
        silences_ms = controller.silences_ms()
        voters = driver.describe().voters if controller.is_active else []
        committed, end_offset = driver.high_watermark, driver.end_offset
        leaders_seen, elections = driver.figures.leaders_seen, controller.elections

        def write(page: Exposition) -> None:
            counts, states = self._counts(image), _states(image)
            write_disk_bytes(page, "controllerserver")
            self._write_cluster(page, image, statistics, counts, committed)
            by_state = Counter(states.values())
            page.add(f"{KAFKA}_activebrokercount", len(states) - by_state["fenced"])
            page.add(f"{KAFKA}_fencedbrokercount", by_state["fenced"])
            page.add(f"{KAFKA}_controlledshutdownbrokercount", by_state["controlled_shutdown"])
            page.add(f"{KAFKA}_newactivecontrollerscount", leaders_seen)
            for broker, state in states.items():
                page.add(f"{KAFKA}_brokerregistrationstate", REGISTRATION_STATES[state], broker=broker)
            for state in REGISTRATION_STATES:
                page.add("kraftlab_brokers", by_state[state], state=state)
            for broker, silent_ms in silences_ms.items():
                page.add(f"{KAFKA}_timesincelastheartbeatreceivedms", silent_ms, broker=broker)
            page.add("kafka_controller_controllerstats_uncleanleaderelections_total", elections.unclean)
            page.add("kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total", elections.from_eligible)
            _write_quantiles(page, "eventqueuetimems", controller.queue.waits)
            _write_quantiles(page, "eventqueueprocessingtimems", controller.queue.durations)
            for voter in voters:
                page.add("kraftlab_voter_lag_records", max(0, end_offset - voter.log_end_offset), voter=voter.node_id)
                silent_s = 0.0 if voter.node_id == driver.config.raft.node_id else _since_s(voter.last_caught_up_time_ms)
                page.add("kraftlab_voter_silence_seconds", silent_s, voter=voter.node_id)

        return write

    def _write_cluster(
        self, page: Exposition, image: MetadataImage, statistics: ControllerStatistics, counts: PartitionCounts, committed: int
    ) -> None:
        applied, now_ms = image.provenance, time.time() * 1000
        running = sum(map(len, image.moves.running.values()))
        queued = sum(map(len, image.moves.queued.values()))
        for name, value in (
            ("activecontrollercount", int(statistics.is_active)),
            ("globaltopiccount", len(image.topics.by_id)),
            ("globalpartitioncount", counts.partitions),
            ("offlinepartitionscount", counts.offline),
            ("preferredreplicaimbalancecount", counts.not_preferred),
            ("metadataerrorcount", 0),
            ("timedoutbrokerheartbeatcount", statistics.heartbeats_timed_out),
            ("lastappliedrecordoffset", applied.offset - 1),
            ("lastcommittedrecordoffset", committed - 1),
            ("lastappliedrecordlagms", 0 if statistics.is_active else max(0, int(now_ms - applied.append_time_ms))),
            ("eventqueueoperationsstartedcount", statistics.queue["started"]),
            ("eventqueueoperationstimedoutcount", statistics.queue["timed_out"]),
        ):
            page.add(f"{KAFKA}_{name}", value)
        page.add("kraftlab_reassignments", counts.reassigning)
        page.add("kraftlab_under_replicated_partitions", counts.under_replicated)
        page.add("kraftlab_under_min_isr_partitions", counts.under_min_isr)
        if statistics.is_active:
            page.add("kraftlab_moves_running", running)
            page.add("kraftlab_moves_queued", queued)

    def _counts(self, image: MetadataImage) -> PartitionCounts:
        before, counts = self._counted
        if before.topics is not image.topics or before.configs is not image.configs:
            counts = count_partitions(image)
        self._counted = image, counts
        return counts


def count_partitions(image: MetadataImage) -> PartitionCounts:
    """Count the partitions of an image."""
    partitions = offline = not_preferred = under_replicated = under_min_isr = reassigning = 0
    for topic in image.topics.by_id.values():
        configured = min_insync_replicas(image, topic.name)
        for state in topic.partitions.values():
            partitions += 1
            offline += state.leader == NO_LEADER
            not_preferred += state.leader != state.replicas[0]
            reassigning += state.is_reassigning
            under_min_isr += len(state.isr) < partition_min_isr(state, configured)
            under_replicated += bool({*state.replicas}.difference(state.isr, state.adding))
    return PartitionCounts(partitions, offline, not_preferred, under_replicated, under_min_isr, reassigning)


def _states(image: MetadataImage) -> dict[int, str]:
    """Return the state of each registered broker."""
    return {
        broker_id: "fenced" if broker.fenced else "controlled_shutdown" if broker.in_controlled_shutdown else "active"
        for broker_id, broker in image.cluster.brokers.items()
    }


def _since_s(time_ms: int) -> float:
    return max(0.0, time.time() - time_ms / 1000) if time_ms >= 0 else math.inf


def _write_quantiles(page: Exposition, name: str, values: RecentValues) -> None:
    for label, value in values.quantiles().items():
        page.add(f"kafka_controller_controllereventmanager_{name}", value, quantile=label)
