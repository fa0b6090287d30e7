"""The METRICS listener of a node: the numbers of every node, and who may see them. Controllers and brokers add their own."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Callable, Sequence

import trio

from kraftlab.access.authorizer import Authorizer, Rights
from kraftlab.access.logins import TOKEN_HEADER, Login
from kraftlab.access.users import PASSWORD_HEADER, USER_HEADER, AuthenticationFailed
from kraftlab.common.audit import PEERS, AuditLog, failed_logins
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError
from kraftlab.common.version import VERSION
from kraftlab.config.models import CONTROLLER_LISTENER, PEER_LISTENER, NodeConfig
from kraftlab.metadata.acls import Operation
from kraftlab.metadata.features import METADATA_VERSION
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.topic_names import METADATA_TOPIC
from kraftlab.metrics import process
from kraftlab.metrics.answers import Caller
from kraftlab.metrics.event_loop import EventLoop
from kraftlab.metrics.exposition import Exposition
from kraftlab.metrics.pages import AccessRefused, Admit, Pages, Readiness, Source, Write
from kraftlab.metrics.recent import RecentRate
from kraftlab.quorum.driver.driver_config import DriverStatistics
from kraftlab.quorum.driver.raft_driver import RaftDriver
from kraftlab.quorum.storage.snapshot_store import SnapshotInfo

from .doors import Doors

LEADER = "leader"
RAFT, CHANNEL = "kafka_server_raftmetrics", "kafka_server_raftchannelmetrics"
IDLE = (
    f"{RAFT}_poll_idle_ratio_avg",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
)
"""Kafka's gauges of idle threads: a node has one event loop."""
CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"
PEER_LISTENERS = (CONTROLLER_LISTENER, PEER_LISTENER)
BASIC = 'Basic realm="kraftlab"'


def admission(login: Login, rights: Callable[[str, str], Rights]) -> Admit:
    """Return what admits callers: who logs in as the listener wants, and may describe the cluster."""
    audit = AuditLog()

    def admit(caller: Caller) -> None:
        try:
            principal = asyncio.run(login.principal(_headers(caller.authorization), caller.certificate))
        except AuthenticationFailed as error:
            if caller.authorization or caller.certificate is not None:  # browsers ask first without
                reason = str(error).partition(";")[0]  # what follows is advice for callers of gRPC
                audit.login_failed("METRICS", caller.host, reason)
            raise AccessRefused(401, "log in as a user of the cluster, with a password or a token", BASIC) from error
        try:
            if not rights(principal, caller.host).allow_on_cluster(Operation.DESCRIBE):
                raise AccessRefused(403, f"{principal} has no right to DESCRIBE on the cluster")
        except ApiError as error:
            raise AccessRefused(503, str(error)) from error

    return admit


def _headers(authorization: str) -> dict[str, str]:
    """Return what HTTP's header says, as the headers of a gRPC call. A header that cannot be read says nothing."""
    kind, _, value = authorization.partition(" ")
    if kind.lower() != "basic":
        return {TOKEN_HEADER: authorization} if authorization else {}
    try:
        user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return {}
    return {USER_HEADER: user, PASSWORD_HEADER: password} if colon else {}


class NodeMetrics:
    """Metrics of one node: those that every node has, and the `sources` of its role (controller or broker).

    `ready` says whether the node is ready, by facts of its role. Made and served on the node's event loop.
    """

    def __init__(self, role: str, config: NodeConfig, cluster_id: str, driver: RaftDriver, doors: Doors) -> None:
        self._role = role
        self._config = config
        self._cluster_id = cluster_id
        self._driver = driver
        self._doors = doors
        self._loop = EventLoop()
        self._begun_s = time.time()
        self._records, self._idle = RecentRate(), RecentRate()
        self._idle.read(self._loop.idle_s, time.monotonic())

    async def serve(
        self,
        at: Endpoint,
        image: Callable[[], MetadataImage],
        sources: Sequence[Source],
        ready: Callable[[], Readiness],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Open the listener and serve in a thread of its own, until cancelled. `image` returns the committed metadata.
        ListenError.
        """
        authorizer = Authorizer(self._config.access)

        def common() -> Write:
            return self._snapshot(image())

        def rights(principal: str, host: str) -> Rights:
            present = image()
            return authorizer.rights(present.acls if present.provenance.offset > 0 else None, principal, host)

        pages = Pages(self._loop, (common, *sources), ready, admission(self._doors.metrics_login(), rights))
        server = self._doors.metrics_server(at, pages.by_path())
        server.start()
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            server.stop()

    def _snapshot(self, image: MetadataImage) -> Write:
        driver, now_s = self._driver, time.monotonic()
        expiries = self._doors.certificate_expiries_s()
        connections = {name: statistics()["connections"] for name, statistics in self._doors.connections.items()}
        of_doors = [take() for take in self._doors.sources]
        idle = self._idle.read(self._loop.idle_s, now_s)
        statistics = driver.statistics() if driver.is_running else None
        observers = driver.describe().observers if statistics is not None else []
        voters = len(driver.describe().voters)
        snapshots = driver.snapshots()
        round_trips = driver.peers.round_trips_s() if statistics is not None else {}
        rate = 0.0 if statistics is None else self._records.read(statistics.core.log_end_offset, now_s)

        def write(page: Exposition) -> None:
            page.add("kraftlab_build_info", 1, version=VERSION)
            labels = {"node": self._config.node_id, "role": self._role, "rack": self._config.rack or ""}
            page.add("kraftlab_node_info", 1, **labels, cluster_id=self._cluster_id)
            process.write(page)
            for name in IDLE:
                page.add(name, idle)
            for listener, at_s in expiries.items():
                page.add("kraftlab_certificate_expiry_timestamp_seconds", at_s, listener=listener)
            for listener in self._config.listeners:
                failed = failed_logins(PEERS if listener in PEER_LISTENERS else listener)
                page.add("kraftlab_login_failures_total", failed, listener=listener)
            for listener, count in connections.items():
                page.add(CONNECTIONS, count, listener=listener, networkProcessor=0)
            for write_door in of_doors:
                write_door(page)
            self._write_metadata(page, image, snapshots)
            if statistics is not None:
                self._write_quorum(page, statistics, rate, voters, len(observers), now_s)
            for peer, round_trip_s in round_trips.items():
                page.add("kraftlab_peer_round_trip_seconds", round_trip_s, peer=_name_of(peer, image))

        return write

    def _write_quorum(
        self, page: Exposition, statistics: DriverStatistics, rate: float, voters: int, observers: int, now_s: float
    ) -> None:
        core, figures, traffic = statistics.core, self._driver.figures, self._driver.peers.traffic
        is_leader = core.state == LEADER
        state = "observer" if core.state == "follower" and not core.is_voter else core.state
        page.add(f"{RAFT}_current_state", 1, current_state=state)
        for name, value in (
            ("current_leader", core.leader_id),
            ("current_vote", core.voted_id),
            ("current_epoch", core.epoch),
            ("high_watermark", core.high_watermark),
            ("log_end_offset", core.log_end_offset),
            ("log_end_epoch", core.last_epoch),
            ("append_records_rate", rate if is_leader else 0.0),
            ("fetch_records_rate", 0.0 if is_leader else rate),
            ("number_of_voters", voters),
            ("number_unknown_voter_connections", 0),
        ):
            page.add(f"{RAFT}_{name}", value)
        if is_leader:
            page.add(f"{RAFT}_number_of_observers", observers)
            page.add(f"{RAFT}_uncommitted_voter_change", int(core.is_changing_voters))
        for name, recent in (("commit", figures.recent_commits), ("election", figures.recent_elections)):
            mean_s, longest_s = recent.mean_and_max(now_s)
            page.add(f"{RAFT}_{name}_latency_avg", mean_s * 1000)
            page.add(f"{RAFT}_{name}_latency_max", longest_s * 1000)
        page.add(f"{CHANNEL}_incoming_byte_total", traffic.bytes_received)
        page.add(f"{CHANNEL}_outgoing_byte_total", traffic.bytes_sent)
        page.add(f"{CHANNEL}_request_total", traffic.requests)
        page.add(f"{CHANNEL}_response_total", traffic.responses)
        page.add("kraftlab_elections_total", core.elections_started)
        page.add("kraftlab_leader_changes_total", figures.leaders_seen)
        page.add_histogram("kraftlab_commit_duration_seconds", figures.commits)
        page.add_histogram("kraftlab_election_duration_seconds", figures.elections)
        page.add_histogram("kraftlab_fsync_duration_seconds", figures.flushes, log="metadata")
        log = {"topic": METADATA_TOPIC, "partition": 0}
        page.add("kafka_log_log_size", statistics.log_bytes, **log)
        page.add("kafka_log_log_logstartoffset", core.log_start_offset, **log)
        page.add("kafka_log_log_logendoffset", core.log_end_offset, **log)
        page.add("kafka_log_log_numlogsegments", statistics.segments, **log)

    def _write_metadata(self, page: Exposition, image: MetadataImage, snapshots: Sequence[SnapshotInfo]) -> None:
        level = image.features.get(METADATA_VERSION, -1)
        page.add("kafka_server_metadataloader_currentcontrollerid", self._driver.leader.leader_id)
        page.add("kafka_server_metadataloader_currentmetadataversion", level)
        for feature, finalized in image.features.items():
            page.add("kafka_server_metadataloader_finalizedlevel", finalized, featureName=_camel_case(feature))
        newest = snapshots[-1] if snapshots else None
        size_bytes = 0 if newest is None else newest.size_bytes
        made_s = self._begun_s if newest is None else newest.append_time_ms / 1000
        page.add("kafka_server_snapshotemitter_latestsnapshotgeneratedbytes", size_bytes)
        page.add("kafka_server_snapshotemitter_latestsnapshotgeneratedagems", max(0, int((time.time() - made_s) * 1000)))


def write_disk_bytes(page: Exposition, server: str) -> None:
    """Write the bytes that the process has had read from and written to disks. `server`: kafkaserver or controllerserver."""
    for name, count in process.disk_bytes().items():
        page.add(f"kafka_server_{server}_linux_disk_{name.replace('bytes', '')}bytes", count)


def _camel_case(feature: str) -> str:
    first, *rest = feature.split(".")
    return first + "".join(map(str.capitalize, rest))


def _name_of(at: Endpoint, image: MetadataImage) -> str:
    """Return the name of the node with a listener there, the address if it is not known."""
    nodes = (("controller", image.cluster.controllers), ("broker", image.cluster.brokers))
    for role, found in nodes:
        for node_id, node in found.items():
            if any((listener.host, listener.port) == (at.host, at.port) for listener in node.listeners):
                return f"{role}-{node_id}"
    return str(at)
