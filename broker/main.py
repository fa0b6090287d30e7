"""A broker process: an observer of the metadata log that hosts partition data.

Theory of operation. The slow parts of a start run beside each other: the metadata log is opened and followed, the log directories
are opened and recovered, the broker registers. With the first published image, the start-up table decides on the contents of the
log directories, and replicas become leaders and followers. The admin server comes last, since importing grpc takes longer than
all the rest. Then the broker reports that it is ready, and the next heartbeat unfences it.

Publishers, in order: the metadata cache (the publisher's own `image`), throttles and configs, replicas, consumer groups,
lifecycle. Configs come before replicas, so that a replica's throttle holds from its first byte; groups follow the replicas.

SIGTERM and SIGINT ask for a controlled shutdown: leaderships move away first, then logs are flushed, checkpoints and the clean
mark written, and the metadata log closed. A fatal error ends the process with one line that gives the reason and the next step.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from kraftlab.common.causes import only_cause
from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.peer_name import PeerName
from kraftlab.common.uuids import random_uuid
from kraftlab.config import meta_properties
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.config.models import PEER_LISTENER, BrokerConfig
from kraftlab.metadata.features import METADATA_VERSION, supported_features
from kraftlab.metadata.peer_rpc import BrokerRegistrationRequest
from kraftlab.metadata.records import Listener
from kraftlab.node.doors import Doors
from kraftlab.node.log_lines import show_position
from kraftlab.node.metrics import NodeMetrics
from kraftlab.node.process import run_to_end, through_generations, watch_signals
from kraftlab.node.replica import driver_config
from kraftlab.node.service_manager import serve_ready
from kraftlab.quorum.driver.environment import Environment, this_machine
from kraftlab.quorum.driver.errors import GenerationOver
from kraftlab.quorum.driver.garbage_collection import tame_interpreter
from kraftlab.quorum.driver.raft_driver import RaftDriver
from kraftlab.quorum.storage.file_system import FileSystem
from kraftlab.quorum.storage.identity import LogIdentity
from kraftlab.records.errors import LogError
from kraftlab.wire.transport import ListenError, PeerPool, PeerServer

from .api.data_plane import DataPlane
from .control.alter_partition import AlterPartitionManager
from .control.controller_channel import ControllerChannel
from .control.cordons import CORDONED_LOG_DIRS, cordoned_dirs
from .control.directory_assignments import DirectoryAssignments
from .control.dynamic_configs import DynamicConfigs
from .control.lifecycle import Lifecycle, RegistrationFailed
from .control.metadata_publisher import MetadataPublisher, Publication
from .control.producer_ids import ProducerIds
from .groups.coordinator import Coordinator, CreateTopic
from .log.disks import Disks, InThread, in_thread, look_after_each, one_turn
from .log.ending import LogEnded
from .log.errors import LogDirFailed, LogDirInUse, StartupRefused
from .log.log_config import LogConfig
from .log.log_manager import LogManager
from .metrics import BrokerMetrics, PartsWithNumbers
from .moves.mover import Mover
from .replica_manager import ReplicaManager, assigned_replicas
from .replication.fetch_service import FetchService
from .replication.fetcher import Fetchers
from .replication.partition import LeaderRole
from .upkeep.cleaner import Cleaner
from .upkeep.directory_returns import DirectoryReturns
from .upkeep.disk_space import DiskSpace
from .upkeep.flushing import Flusher
from .upkeep.move_reports import MoveReports
from .upkeep.producer_expiry import ProducerExpiry
from .upkeep.retention import Retention

if TYPE_CHECKING:
    from .api.admin_service import AdminService
    from .api.wiring import Parts

logger = logging.getLogger("kraftlab.broker")

EXPIRY_CHECK_MAX_S = 1.0
RECOVERY_THREADS = "num.recovery.threads.per.data.dir"
DIRECTORIES_LEVEL = 17
"""The first metadata.version whose registrations hold log directories (3.7-IV2)."""

FATAL = (LogDirInUse, StartupRefused, RegistrationFailed)
"""Errors that end a broker with one line, beside those that end any node."""


ORDERLY = (GenerationOver, ListenError, *FATAL)
"""Ends after which the logs are intact: a clean shutdown stays clean, and the replicas keep their claim to lead."""


class AllDirectoriesFailed(StartupRefused):
    """No log directory is left, or the metadata directory failed."""


async def run(config: BrokerConfig) -> None:
    """Run a broker until it is stopped. ConfigError for a wrong directory; SystemExit with a message for fatal errors."""
    meta_properties.add_missing_directory_id(config.metadata_log_dir)
    directory = meta_properties.verify((config.metadata_log_dir,), config.node_id, config.source)[config.metadata_log_dir]
    await run_to_end(
        str(config.metadata_log_dir),
        lambda: through_generations(
            lambda: BrokerNode(config, directory).run(),
            LogIdentity(directory.cluster_id, directory.directory_id),
            str(config.metadata_log_dir),
            never_votes=True,
        ),
        FATAL,
    )


class BrokerNode:
    """One broker process.

    `environment`, `file_system` (of the metadata log) and `in_thread` (which works on the log directories) are this machine's
    own by default. With others the same broker runs in another world, without its signals and its gRPC server (`take_part`).
    """

    def __init__(
        self,
        config: BrokerConfig,
        directory: MetaProperties,
        environment: Environment | None = None,
        *,
        file_system: FileSystem | None = None,
        in_thread: InThread = in_thread,
    ) -> None:
        self._config = config
        self._doors = Doors(config, lambda: self.publisher.image)
        self._environment = environment = environment or this_machine(self._doors.network(PEER_LISTENER))
        self._file_system, self._in_thread = file_system, in_thread
        self._cluster_id = directory.cluster_id
        self._ends = trio.Event()
        self._first_published = trio.Event()
        self._failed_dirs: dict[Path, trio.Event] = {}
        """Directories that have failed; each event is set when that is handled."""
        self._has_lost_all = False
        self._failures_in, self._failures = trio.open_memory_channel[LogDirFailed | LogEnded](math.inf)
        self.configs = DynamicConfigs(config)
        self.publisher = MetadataPublisher(
            (
                ("configs", self._publish_configs),
                ("replicas", self.publish_replicas),
                ("groups", self._publish_groups),
                ("lifecycle", self.publish_lifecycle),
            ),
            self._leader_changed,
            fatal=(StartupRefused,),
            in_thread=in_thread,
        )
        self.driver = RaftDriver(driver_config(config, directory), self.publisher, file_system, environment)
        self._channel: ControllerChannel | None = None
        self._topic_creator: CreateTopic | None = None
        self._metrics = BrokerMetrics(config.node_id, self.driver, self.publisher, config.metrics_partitions)
        self.is_built = False

    async def run(self) -> None:
        """Serve until a signal comes or an error ends the broker."""
        show_position(lambda: (self.driver.leader.epoch, self.publisher.offset))
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(watch_signals, self._ends)
                nursery.start_soon(self._doors.run)
                await self._serve_metrics(nursery)
                nursery.start_soon(self._serve, nursery)
                await self._ends.wait()
                await self.leave()
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if isinstance(only_cause(group), ORDERLY):
                await self._close_logs()
            raise
        await self._close_logs()
        logger.info("broker %d stopped", self._config.node_id)

    async def _serve(self, nursery: trio.Nursery) -> None:
        await self.take_part(nursery, self._serve_admin)
        tame_interpreter()
        config = self._config
        kafka = f", Kafka clients on {config.kafka}" if config.kafka is not None else ""
        logger.info("broker %d ready: data on %s, admin API on %s%s", config.node_id, config.peer, config.grpc, kafka)
        nursery.start_soon(serve_ready)

    async def _serve_metrics(self, nursery: trio.Nursery) -> None:
        if self._config.metrics is None:
            return
        common = NodeMetrics("broker", self._config, self._cluster_id, self.driver, self._doors)
        sources, ready = [self._metrics.snapshot], self._metrics.health.readiness
        await nursery.start(common.serve, self._config.metrics, lambda: self.publisher.image, sources, ready)

    async def take_part(self, nursery: trio.Nursery, open_door: Callable[[trio.Nursery, AdminService], Awaitable[None]]) -> None:
        """Start the tasks of a broker; `open_door` serves the admin API, before the broker is unfenced. Return when it is
        unfenced. ListenError, and the errors of `RaftDriver.run`.
        """
        config, network = self._config, self._environment.network
        await nursery.start(self.driver.run)
        self.logs = await self._in_thread(
            None,
            LogManager.open,
            config.log_dirs,
            node_id=config.node_id,
            cluster_id=self._cluster_id,
            config=LogConfig(segment_bytes=config.log_segment_bytes),
            delete_delay_ms=config.log_segment_delete_delay_ms,
            metadata_dir=config.metadata_log_dir,
            recovery_threads=config.num_recovery_threads_per_data_dir,
            config_file=config.source,
        )
        if config.metadata_log_dir in self.logs.offline_dirs:
            raise AllDirectoriesFailed(f"the metadata directory failed: {self.logs.offline_dirs[config.metadata_log_dir]}")
        leader = self.driver.identity, lambda: self.driver.leader, config.voters
        self._channel = ControllerChannel(nursery, *leader, network)
        self._build(nursery)
        for start in (self.fetchers.run, self.mover.run, self.groups.run):
            await nursery.start(start)
        peer_server = PeerServer(self.driver.identity, self.data_plane.handlers(), network, self._is_member)
        await nursery.start(peer_server.serve, config.peer.host, config.peer.port)
        self._doors.connections[PEER_LISTENER] = peer_server.statistics
        tasks = (
            self.publisher.run,
            self._live,
            self.isr_changes.run,
            self.assignments.run,
            self.move_reports.run,
            self.producer_ids.run,
            self.replicas.run_lag_checks,
            self.replicas.run_placing,
            self.handle_failed_directories,
            self.checkpoint_high_watermarks,
            self._remove_expired,
            Cleaner(self.replicas, self.configs).run,
            ProducerExpiry(self.replicas, self.configs).run,
            Flusher(self.logs, self.disks, config.log_flush_scheduler_interval_ms).run,
            Retention(self.replicas, self.configs, config.log_retention_check_interval_ms).run,
        )
        for task in tasks:
            nursery.start_soon(task)
        if config.metrics is not None:
            nursery.start_soon(self._space.run)
        await open_door(nursery, await self._admin_service())
        await self._first_published.wait()
        self.lifecycle.ready()
        await self.lifecycle.running.wait()

    def _is_member(self, peer: PeerName) -> bool:
        return peer.node_id in self.publisher.image.cluster.brokers

    def _build(self, nursery: trio.Nursery) -> None:
        """Make the parts and connect them."""
        config, channel = self._config, self._channel
        assert channel is not None
        registration = BrokerRegistrationRequest(
            config.node_id,
            self._cluster_id,
            random_uuid(),
            tuple(Listener(name, at.host, at.port) for name, at in sorted(config.advertised_listeners.items())),
            supported_features(),
            config.rack,
            tuple(sorted(self.logs.directory_ids().values())),
            self.logs.previous_broker_epoch,
        )
        self.lifecycle = Lifecycle(
            config,
            registration,
            channel,
            lambda: self.publisher.offset,
            self._leaderships,
        )
        self.disks = Disks(self.failed, self._in_thread)
        self.isr_changes = AlterPartitionManager(channel, config.node_id, self.broker_epoch)
        self.assignments = DirectoryAssignments(channel, config.node_id, self.broker_epoch, lambda: self.publisher.image)
        self.producer_ids = ProducerIds(channel, config.node_id, self.broker_epoch)
        self.replicas = ReplicaManager(
            config.node_id,
            self.broker_epoch,
            self.logs,
            self.disks,
            self.configs,
            self.isr_changes,
            self.assignments,
            config.replica_lag_time_max_ms / 1000,
        )
        leaders = PeerPool(nursery, self.driver.identity, self._environment.network)
        self.fetchers = Fetchers(self.replicas, leaders, config)
        threads = config.num_replica_alter_log_dirs_threads or len(config.log_dirs)
        self.mover = Mover(self.disks, self.logs, self.configs.move_gate, self.assignments.assign, threads)
        self.replicas.attach(self.fetchers, self.mover)
        self.returns = DirectoryReturns(
            *(self.logs, self.replicas, self.lifecycle, self.publisher, self._in_thread, self._given_up, self._returned)
        )
        self.groups = Coordinator(self.replicas, config, self._create_offsets_topic)
        fetches = FetchService(self.replicas, self.configs.leader_gate)
        self.data_plane = DataPlane(self.replicas, fetches, config.access)
        self._cordon()
        self.move_reports = MoveReports(channel, self.replicas, self.broker_epoch)
        self._space = DiskSpace(self.logs, self.disks)
        self._metrics.built(PartsWithNumbers(self.lifecycle, self.replicas, self.groups, self.move_reports, self._space))
        self.is_built = True

    def broker_epoch(self) -> int:
        """The epoch of the registration, -1 before it."""
        return self.lifecycle.broker_epoch

    async def _serve_admin(self, nursery: trio.Nursery, service: AdminService) -> None:
        from .api import wiring

        await wiring.serve(nursery, self._parts(), service, self._in_thread)

    async def _admin_service(self) -> AdminService:
        """Make the admin API. Its imports run in a worker thread, so that fetching and heartbeats go on meanwhile."""
        await self._in_thread(None, importlib.import_module, "kraftlab.broker.api.wiring")
        from .api import wiring

        service = wiring.admin_service(self._parts())
        self._topic_creator = wiring.offsets_topic(self._parts(), service)
        return service

    def _parts(self) -> Parts:
        from .api.wiring import Parts

        assert self._channel is not None
        return Parts(
            *(self._config, self._cluster_id, self._environment, self._file_system, self._channel, self.publisher, self.driver),
            *(self.replicas, self.configs, self.groups, self.producer_ids, self.returns, self.data_plane, self._doors),
            self._metrics.health,
        )

    async def _create_offsets_topic(self, partitions: int, replicas: int) -> str | None:
        """Let the active controller create the topic of offsets; return the reason if it does not."""
        assert self._topic_creator is not None, "requests come through the admin service"
        return await self._topic_creator(partitions, replicas)

    # --- publishers ----------------------------------------------------------------------------------------------------------

    async def _publish_configs(self, publication: Publication) -> None:
        self.configs.update(publication)
        self.logs.recovery_threads = int(self.configs.broker(RECOVERY_THREADS) or 1)
        self._cordon()

    def _cordon(self) -> None:
        """Pass the cordoned directories on to the logs, which place replicas here, and to the controller."""
        cordoned = cordoned_dirs(self.configs.broker(CORDONED_LOG_DIRS), self._config.log_dirs)
        self.logs.cordon(cordoned)
        ids = (self.logs.directory_id_of(path) for path in cordoned)
        self.lifecycle.directories_cordoned(tuple(sorted(directory_id for directory_id in ids if directory_id is not None)))

    async def _publish_groups(self, publication: Publication) -> None:
        await self.groups.publish(publication)

    async def publish_replicas(self, publication: Publication) -> None:
        if publication.is_first:
            assigned = assigned_replicas(publication.after, self._config.node_id)
            registered = self.logs.directory_ids()
            await self._in_thread(None, self.logs.start, assigned, wall_clock_ms())
            for path in registered.keys() - self.logs.directory_ids().keys():
                self.directory_failed(LogDirFailed(path, OSError(self.logs.offline_dirs[path])))
        await self.replicas.apply(publication)

    async def publish_lifecycle(self, publication: Publication) -> None:
        me = publication.after.cluster.brokers.get(self._config.node_id)
        if me is not None and me.epoch == self.broker_epoch():
            self.lifecycle.directories_registered(me.log_dirs)
            changes = publication.changes
            is_new = self._config.node_id in changes.brokers or METADATA_VERSION in changes.features
            can_hold = publication.after.features.get(METADATA_VERSION, 0) >= DIRECTORIES_LEVEL
            if is_new and can_hold and self.lifecycle.log_dirs != set(me.log_dirs):
                # It was written before the metadata had directories, or a report of a failure and a return overtook each other.
                self.lifecycle.register_again()
        if publication.is_first:
            self._first_published.set()

    def _leader_changed(self) -> None:
        if self._channel is not None:
            self._channel.leader_changed()

    # --- life ----------------------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """End the broker when its membership ends."""
        await self.lifecycle.run()
        self._ends.set()

    async def leave(self) -> None:
        """Shut down in a controlled way, then write the metadata log to disk."""
        self._metrics.health.stop()
        if self.is_built and self._config.controlled_shutdown_enable and self.broker_epoch() >= 0:
            self.lifecycle.begin_shutdown()
            await self.lifecycle.stopped.wait()
        await self.driver.stop()

    def _leaderships(self) -> int:
        """Number of partitions that the broker leads."""
        return sum(isinstance(partition.role, LeaderRole) for partition in self.replicas.partitions.values())

    async def _close_logs(self) -> None:
        if self.is_built:
            # A broker that did not register has changed no log: a clean shutdown before stays clean.
            epoch = self.broker_epoch() if self.broker_epoch() >= 0 else self.logs.previous_broker_epoch
            await self._in_thread(None, self.logs.close, epoch)

    # --- directories ---------------------------------------------------------------------------------------------------------

    def failed(self, error: LogDirFailed | LogEnded) -> None:
        """Note that a directory has failed, or that an unexpected error has ended a log."""
        if isinstance(error, LogDirFailed):
            self.directory_failed(error)
        else:
            self._failures_in.send_nowait(error)

    def directory_failed(self, error: LogDirFailed) -> None:
        if error.log_dir not in self._failed_dirs and not self.logs.is_over(error):
            self._failed_dirs[error.log_dir] = trio.Event()
            self._failures_in.send_nowait(error)

    async def handle_failed_directories(self) -> None:
        """Handle each failed directory once; report it first, since the rest may wait for a disk that hangs. Also ended logs."""
        async with trio.open_nursery() as nursery:
            async for error in self._failures:
                if isinstance(error, LogEnded):
                    nursery.start_soon(self.replicas.log_ended, error)
                    continue
                directory_id = self.logs.directory_id_of(error.log_dir)
                if directory_id is not None:
                    self.lifecycle.directory_failed(directory_id)
                nursery.start_soon(self._give_up_directory, error)

    async def _give_up_directory(self, error: LogDirFailed) -> None:
        await self._in_thread(None, self.logs.mark_offline, error.log_dir, error)
        if self.logs.directory_ids() and error.log_dir != self._config.metadata_log_dir:
            await self.replicas.directory_failed(error.log_dir)
            self._failed_dirs[error.log_dir].set()
        elif not self._has_lost_all:
            self._has_lost_all = True  # Several directories may have failed at once; they end the broker once.
            which = "last log directory" if not self.logs.directory_ids() else "metadata directory"
            raise AllDirectoriesFailed(f"the {which} failed ({error}); repair its disk, then start the broker again")

    async def _given_up(self, log_dir: Path) -> None:
        if log_dir in self._failed_dirs:
            await self._failed_dirs[log_dir].wait()

    def _returned(self, log_dir: Path) -> None:
        self._failed_dirs.pop(log_dir, None)

    async def checkpoint_high_watermarks(self) -> None:
        async def write(log_dir: Path) -> None:
            try:
                await self._in_thread(None, self.logs.write_checkpoints, log_dir)
            except (LogDirFailed, LogEnded) as error:
                self.failed(error)

        await look_after_each(self.logs.directory_ids, self._config.replica_high_watermark_checkpoint_interval_ms, write)

    async def _remove_expired(self) -> None:
        """Delete abandoned directories once their delay is over."""
        while True:
            expiry_ms = await self._in_thread(None, self.logs.next_expiry_ms)
            due_s = EXPIRY_CHECK_MAX_S if expiry_ms is None else (expiry_ms - wall_clock_ms()) / 1000
            await trio.sleep(min(max(due_s, 0.1), EXPIRY_CHECK_MAX_S))
            await one_turn(self._remove_once)

    async def _remove_once(self) -> None:
        try:
            await self._in_thread(None, self.logs.remove_expired, wall_clock_ms())
        except (LogDirFailed, LogEnded) as error:
            self.failed(error)
        except LogError as error:
            logger.warning("directories that were given up could not be removed: %s", error)
