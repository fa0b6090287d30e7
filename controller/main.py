"""A controller process: a replica of the metadata quorum, with the replicated state machine and two ports.

Theory of operation. The most useful part starts first. The log is recovered and the port for peers opened, so that an election
can happen; the admin server comes last, since importing grpc takes longer than an election. The active controller writes the
registration record of each controller. SIGTERM and SIGINT stop the process gracefully: a leader informs the other voters, and
appended batches are flushed. An error that the process cannot repair ends it with one line that names the fault and the next
step.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import trio
from google.protobuf.message import Message

from kraftlab.access.refusals import CONTROLLERS
from kraftlab.common.decoding import Decoder
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.peer_name import PeerName
from kraftlab.common.uuids import Uuid, to_text
from kraftlab.config import bootstrap_levels, bootstrap_scram, meta_properties
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.config.models import CONTROLLER_LISTENER, KAFKA_LISTENER, ControllerConfig
from kraftlab.config.topic_configs import BROKER_KEYS
from kraftlab.metadata.features import supported_features
from kraftlab.metadata.image import ClusterImage
from kraftlab.metadata.peer_rpc import Api, ControllerRegistrationRequest, ControllerRegistrationResponse
from kraftlab.metadata.records import Listener
from kraftlab.node.doors import Doors
from kraftlab.node.log_lines import show_position
from kraftlab.node.metadata_digests import MetadataDigests
from kraftlab.node.metrics import NodeMetrics
from kraftlab.node.process import run_to_end, through_generations, watch_signals
from kraftlab.node.replica import driver_config
from kraftlab.node.service_manager import serve_ready
from kraftlab.node.snapshots import SnapshotCalls
from kraftlab.node.time_travel import TimeTravel
from kraftlab.quorum.core.messages import LeaderView
from kraftlab.quorum.core.types import Standing
from kraftlab.quorum.driver.environment import Environment, this_machine
from kraftlab.quorum.driver.garbage_collection import tame_interpreter
from kraftlab.quorum.driver.quorum_description import QuorumDescription
from kraftlab.quorum.driver.raft_driver import RaftDriver
from kraftlab.quorum.storage.election_mark import check_votes_are_kept, mark_elections
from kraftlab.quorum.storage.errors import StorageFull
from kraftlab.quorum.storage.file_system import FileSystem, RealFileSystem
from kraftlab.quorum.storage.identity import LogIdentity
from kraftlab.rpc import api_versions
from kraftlab.rpc.calls import CONTROLLER_OFFERS, NODE, check_handlers
from kraftlab.wire.senders import CONTROLLER as CONTROLLER_ROLE
from kraftlab.wire.transport import PeerError, PeerPool, PeerRequest, PeerServer, PeerTimeout, PeerUnreachable, merged_handlers

from .api.apis import HANDLERS
from .api.service import ControllerService
from .api.waits import Waits
from .cluster import controllers
from .configs import policies
from .engine.queue import NEVER_MS
from .engine.quorum_controller import Offload, QuorumController
from .engine.state import CONTROLLER, QuorumFacts, Settings, fresh_uuid
from .engine.worker_threads import on_a_thread
from .metrics import ControllerMetrics
from .quorum_operations import QuorumOperations

logger = logging.getLogger("kraftlab.controller")

PROBE_TIMEOUT_S = 0.5
"""Time for a try to connect to a broker's port. A port on a living machine refuses at once."""
REGISTRATION_TIMEOUT_MS = 2000
REGISTRATION_RETRY_S = 0.02
REGISTRATION_RETRY_MAX_S = 0.5
_encode = msgspec.msgpack.Encoder().encode
_registration_response = Decoder(ControllerRegistrationResponse)


async def run(config: ControllerConfig) -> None:
    """Run a controller until a signal stops it. ConfigError for a wrong directory; SystemExit with a message for fatal errors."""
    policies.check_loadable(config.values)
    directory = meta_properties.verify((config.metadata_log_dir,), config.node_id, config.source)[config.metadata_log_dir]
    metadata_dir = str(config.metadata_log_dir)

    async def serve() -> None:
        await trio.to_thread.run_sync(check_votes_are_kept, RealFileSystem(), metadata_dir, directory.directory_id)
        identity = LogIdentity(directory.cluster_id, directory.directory_id)
        await through_generations(lambda: ControllerNode(config, directory).run(), identity, metadata_dir)

    await run_to_end(metadata_dir, serve)


class ControllerNode:
    """All parts of one controller process. `environment`, `file_system`, `offload` and `waits` default to this machine's own.
    With others the same controller runs in a simulation, without signals and without the gRPC server (`take_part`).
    """

    def __init__(
        self,
        config: ControllerConfig,
        directory: MetaProperties,
        environment: Environment | None = None,
        *,
        file_system: FileSystem | None = None,
        offload: Offload | None = on_a_thread,
        waits: Waits | None = None,
    ) -> None:
        self._config = config
        self._doors = Doors(config, lambda: self.controller.committed.image)
        environment = environment or this_machine(self._doors.network(CONTROLLER_LISTENER))
        self._network = environment.network
        self._clock = environment.clock
        self._anchor_ms = self._clock.wall_s() * 1000 - self._clock.now_s() * 1000
        self._alarm = trio.CancelScope()
        self._registered = trio.Event()
        self._incarnation_id = fresh_uuid(environment.chance, {})
        self._refused_with: str | None = None
        self._directory_id = directory.directory_id
        settings = Settings(
            directory.cluster_id,
            config.node_id,
            config.broker_session_timeout_ms,
            config.broker_heartbeat_interval_ms,
            config.metadata_max_idle_interval_ms,
            config.num_partitions,
            config.default_replication_factor,
            config.values,
            config.leader_imbalance_check_interval_seconds * 1000 if config.auto_leader_rebalance_enable else 0,
            config.unclean_leader_election_interval_ms,
            bootstrap_levels.read(config.metadata_log_dir),
            bootstrap_scram.read(config.metadata_log_dir),
        )
        self._tries: trio.Nursery | None = None
        self.controller = QuorumController(
            settings, self._now_ms, environment.chance, self._timer_changed, offload, probe=self._probe
        )
        self.driver = RaftDriver(
            driver_config(config, directory),
            self.controller,
            file_system,
            environment,
            self._standing,
        )
        self.controller.attach(self.driver)
        self._metrics = ControllerMetrics(self.controller, self.driver)
        digests = MetadataDigests(
            config.node_id,
            str(config.metadata_log_dir),
            lambda: self.controller.applied_offset,
            self.controller.image_at,
            environment.threads,
            file_system,
        )
        past = TimeTravel(
            config.node_id, str(config.metadata_log_dir), lambda: self.controller.applied_offset, environment.threads, file_system
        )
        operations = QuorumOperations(directory.cluster_id, self.driver, lambda: self.controller.committed.image)
        snapshots = SnapshotCalls(config.node_id, self.driver)
        local = {
            **operations.calls(),
            **snapshots.calls(),
            **past.calls(),
            "DescribeMetadata": digests.describe,
            "ApiVersions": self._api_versions,
        }
        check_handlers("the controller", [*HANDLERS, *local], lambda row: row.is_replicated or row.place is NODE)
        nodes = config.security.nodes
        self.service = ControllerService(self.controller, self._now_ms, local, config.access, self._quorum_facts, waits, nodes)

    async def run(self) -> None:
        """Serve until a signal comes or the state machine has to stop."""
        config = self._config
        show_position(lambda: (self.driver.leader.epoch, self.controller.applied_offset))
        ends = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(watch_signals, ends)
            nursery.start_soon(_when_set, self.controller.failed, ends)
            await self._serve_metrics(nursery)
            await self.take_part(nursery)
            nursery.start_soon(self._mark_elections)
            nursery.start_soon(self._doors.run)
            service = self.service
            await nursery.start(self._doors.admin_server(service.dispatch, self._metrics.health.present, service.accept).serve)
            if config.kafka is not None:
                await self._serve_kafka(nursery, config.kafka)
            tame_interpreter()
            kafka = f", Kafka's tools on {config.kafka}" if config.kafka is not None else ""
            logger.info("controller %d ready: quorum on %s, admin API on %s%s", config.node_id, config.peer, config.grpc, kafka)
            nursery.start_soon(serve_ready)
            await ends.wait()
            self._metrics.health.stop()
            self.controller.queue.close()
            await self.driver.stop()
            nursery.cancel_scope.cancel()
        if self.controller.failure is not None:
            raise self.controller.failure
        logger.info("controller %d stopped", config.node_id)

    async def _serve_metrics(self, nursery: trio.Nursery) -> None:
        if self._config.metrics is None:
            return
        common = NodeMetrics("controller", self._config, self.controller.settings.cluster_id, self.driver, self._doors)
        await nursery.start(
            common.serve,
            self._config.metrics,
            lambda: self.controller.committed.image,
            [self._metrics.snapshot],
            self._metrics.health.readiness,
        )

    async def _serve_kafka(self, nursery: trio.Nursery, at: Endpoint) -> None:
        """Serve admin calls to Kafka's tools (`--bootstrap-controller`). The imports run in a worker thread."""
        await trio.to_thread.run_sync(importlib.import_module, "kraftlab.gateway.listener")
        from kraftlab.gateway.cluster import ClusterCalls
        from kraftlab.gateway.door import CONTROLLERS_OFFERS, Door
        from kraftlab.gateway.listener import KafkaListener

        async def published(offset: int) -> None:
            """Return at once: a client that reads from this controller reads what it has answered."""

        def cluster() -> ClusterImage:
            return self.controller.committed.image.cluster

        def active_controller() -> int:
            return self.controller.active_controller.leader_id

        def setting(name: str) -> str | None:
            return self._config.static(name) or BROKER_KEYS[name].default

        node_id, cluster_id = self._config.node_id, self.controller.settings.cluster_id
        calls = ClusterCalls(node_id, cluster_id, CONTROLLERS, cluster, self.service.rights, active_controller)
        door = Door(self.service.dispatch, published, {"DescribeCluster": calls.describe}, CONTROLLERS_OFFERS)
        listener = KafkaListener(door, at.host, at.port, setting, self._doors.kafka_entrance())
        await nursery.start(listener.serve)
        self._doors.connections[KAFKA_LISTENER] = listener.statistics
        self._doors.sources.append(door.figures.snapshot)

    async def take_part(self, nursery: trio.Nursery) -> None:
        """Join the quorum: start the driver and the port for peers, and return once that port answers. ListenError, and
        exceptions of `RaftDriver.run`.
        """
        config = self._config
        self._tries = nursery
        await nursery.start(self.driver.run)
        nursery.start_soon(self._run_timer)
        handlers = merged_handlers(self.driver.handlers(), self.service.peer_handlers())
        peer_server = PeerServer(self.driver.identity, handlers, self._network, self._is_member)
        await nursery.start(peer_server.serve, config.peer.host, config.peer.port)
        self._doors.connections[CONTROLLER_LISTENER] = peer_server.statistics
        nursery.start_soon(self._register, nursery)

    def _is_member(self, peer: PeerName) -> bool:
        if peer.role == CONTROLLER_ROLE:
            return any(voter.node_id == peer.node_id for voter in self.driver.describe().voters)
        return peer.node_id in self.controller.committed.image.cluster.brokers

    async def _api_versions(self, request: Any) -> Message:
        image = self.controller.committed.image
        kraft_version = self.driver.describe().kraft_version
        return api_versions.describe(request, CONTROLLER_OFFERS, image.features, kraft_version, image.provenance.offset)

    def _standing(self, request: PeerRequest) -> Standing:
        return self.service.standing(request)

    def _quorum_facts(self) -> QuorumFacts:
        described = self.driver.describe()
        return QuorumFacts(tuple(voter.node_id for voter in described.voters), described.kraft_version)

    # --- time ----------------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        """Current time. Threads call this too, and they have no `trio.current_time`."""
        return int(self._clock.now_s() * 1000 + self._anchor_ms)

    def _timer_changed(self) -> None:
        deadline_ms = self.controller.queue.next_deadline_ms()
        due_s = float("inf") if deadline_ms >= NEVER_MS else (deadline_ms - self._anchor_ms) / 1000
        self._alarm.deadline = self._clock.at(due_s)

    async def _run_timer(self) -> None:
        self._clock.follow(self._timer_changed)
        while True:
            self._alarm = trio.CancelScope()
            self._timer_changed()
            with self._alarm:
                await trio.sleep_forever()
            self.controller.queue.run_due()

    # --- the ports of brokers ------------------------------------------------------------------------------------------------

    def _probe(self, endpoint: Endpoint, tell: Callable[[bool], None]) -> None:
        assert self._tries is not None, "a controller that is active takes part"
        self._tries.start_soon(self._try_port, endpoint, tell)

    async def _try_port(self, endpoint: Endpoint, tell: Callable[[bool], None]) -> None:
        was_refused = False
        with trio.move_on_after(PROBE_TIMEOUT_S):
            try:
                wire = await self._network.connect(endpoint)
            except OSError as error:
                was_refused = isinstance(error, ConnectionRefusedError)
            else:
                wire.close()
        tell(was_refused)

    # --- making itself known -------------------------------------------------------------------------------------------------

    async def _register(self, nursery: trio.Nursery) -> None:
        """Register this controller's endpoints with the active controller, until the committed state has them."""
        config = self._config
        request = ControllerRegistrationRequest(
            config.node_id,
            self._incarnation_id,
            tuple(Listener(name, at.host, at.port) for name, at in sorted(config.advertised_listeners.items())),
            supported_features(),
        )
        pool = PeerPool(nursery, self.driver.identity, self._network)
        pause_s = REGISTRATION_RETRY_S
        while not self._is_registered():
            refusal = await self._ask_to_register(pool, request)
            if refusal is not None:
                logger.debug("controller %d is not registered yet: %s", config.node_id, refusal)
            await trio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, REGISTRATION_RETRY_MAX_S)
        pool.close()
        self._registered.set()
        advice = how_to_vote(config, self._directory_id, self.driver.describe())
        if advice is not None:
            logger.warning("%s", advice)

    async def _mark_elections(self) -> None:
        """Note durably that this controller has taken part in elections, once it is registered."""
        await self._registered.wait()
        metadata_dir = str(self._config.metadata_log_dir)
        try:
            await trio.to_thread.run_sync(mark_elections, RealFileSystem(), metadata_dir, self._directory_id)
        except StorageFull as error:
            logger.warning("%s has no mark of elections: %s", metadata_dir, error)

    def _is_registered(self) -> bool:
        known = self.controller.committed.image.cluster.controllers.get(self._config.node_id)
        return known is not None and known.incarnation_id == self._incarnation_id

    def _endpoint_of(self, leader: LeaderView) -> Endpoint | None:
        voter = self._config.voters.get(leader.leader_id)
        return leader.endpoints.get(CONTROLLER) or (voter.endpoints[CONTROLLER] if voter is not None else None)

    async def _ask_to_register(self, pool: PeerPool, request: ControllerRegistrationRequest) -> str | None:
        """Try once. Return the reason if it did not succeed."""
        leader = self.driver.leader
        try:
            if self.controller.is_active:
                answer = self.controller.write(
                    "ControllerRegistration", lambda state, context: controllers.register(state, request, context)
                )
                await answer.wait()
                return None
            endpoint = self._endpoint_of(leader)
            if endpoint is None or leader.leader_id == self._config.node_id:
                return "no controller is active"
            body = await pool.request(
                endpoint,
                Api.CONTROLLER_REGISTRATION,
                _encode(request),
                timeout_ms=REGISTRATION_TIMEOUT_MS,
                node_id=leader.leader_id,
            )
        except (ApiError, PeerUnreachable, PeerTimeout, PeerError) as error:
            return str(error)
        response = _registration_response.decode(body)
        if response.error == ErrorCode.UNSUPPORTED_VERSION and response.message != self._refused_with:
            self._refused_with = response.message
            logger.warning("controller %d cannot register: %s", self._config.node_id, response.message)
        return None if response.error == ErrorCode.NONE else response.message


def how_to_vote(config: ControllerConfig, directory_id: Uuid, quorum: QuorumDescription) -> str | None:
    """Advice for a controller that follows the quorum without a vote. None if it votes, or joins by itself."""
    voters = {voter.node_id: voter.directory_id for voter in quorum.voters}
    if quorum.kraft_version == 0 or voters.get(config.node_id) == directory_id or config.auto_join:
        return None
    steps = f"kraftlab metadata-quorum … add-controller --config {config.source}"
    if config.node_id not in voters:
        return f"controller {config.node_id} follows the quorum as an observer; to make it a voter: {steps}"
    lost = to_text(voters[config.node_id])
    return (
        f"controller {config.node_id} does not vote: the voter of that id has the directory id {lost}, this disk "
        f"{to_text(directory_id)}. If the other disk is gone: kraftlab metadata-quorum … remove-controller -i {config.node_id} "
        f"-d {lost}, then {steps}"
    )


async def _when_set(event: trio.Event, then: trio.Event) -> None:
    await event.wait()
    then.set()
