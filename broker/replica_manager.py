"""All replicas of this broker. Published metadata alone creates and removes them and changes their roles.

Theory of operation. `apply` is a publisher of the step between two images: removals first, then leaders, then
followers. Most of it is done at once; work that has to wait, for a disk or for the lock of a log, runs beside the rest. A replica
whose log is not available (its directory is offline, its disk full) is kept without a log and answers KAFKA_STORAGE_ERROR. Every
change of the set of logs (by this publisher, by requests to move replicas, by the failure of a directory) is made under
`state_lock`.

A replica leads only for this incarnation of the broker: as long as the metadata knows the broker by its last incarnation,
partitions that that one led have no leader here. Its log may lack records that were not yet on the disk when the machine stopped,
and its followers would truncate theirs to match (KIP-841, KIP-966). For the same reason a replica that lost its log with a
directory is not created again in another one.

After each step, and when a replica has got its log late, its real directory is compared with the metadata. If they differ, the
controller is informed, unless a move is about to make it true; also about a replica whose log may lie in a directory that was
offline from the start.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import LOST, UNASSIGNED, is_reserved
from kraftlab.metadata.changes import LocalChanges, local_changes
from kraftlab.metadata.image import EMPTY, MetadataImage, PartitionImage
from kraftlab.metadata.peer_rpc import IsrChange
from kraftlab.metadata.records import NO_LEADER
from kraftlab.records.errors import LogError

from .control.alter_partition import AlterPartitionManager
from .control.directory_assignments import DirectoryAssignments
from .control.dynamic_configs import DynamicConfigs
from .control.metadata_publisher import Publication
from .log.creating import NewReplica
from .log.disks import Disks, one_turn
from .log.ending import LogEnded
from .log.errors import LogDirFailed, LogDirUnusable, ReplicaConflict, ReplicaOffline
from .log.loading import ReturningDir
from .log.log_manager import LogManager
from .log.partition_log import PartitionLog
from .log.startup import Action, AssignedReplica
from .moves.move_throttles import MoveThrottles
from .moves.mover import Mover
from .replication.byte_gate import ByteGate
from .replication.fetcher import Fetchers, Gates
from .replication.isr import NEVER_S
from .replication.leadership import leads
from .replication.partition import Partition, ReplicaId
from .replication.replica_errors import ReplicaError
from .replication.traffic import Traffic

logger = logging.getLogger("kraftlab.broker.replicas")

PEER_LISTENER = "PEER"
RETRY_PLACING_S = 5.0
CREATED_AT_ONCE = 1000
"""Number of new logs that are made durable together."""
ROLE_CHANGES_PER_YIELD = 200
"""Replicas that become leader or follower before other tasks get the event loop."""
LOGGED_INDIVIDUALLY_MAX = 100
"""If more replicas change their roles at once, the log has one line with their number, and each of them at level DEBUG only."""


class LostLog(NamedTuple):
    """A log that was lost with its directory, and its end then."""

    log_dir: Path
    log_end_offset: int


def is_counted_on(state: PartitionImage, broker_id: int) -> bool:
    """Return True if other nodes rely on the records of the broker's replica. A new partition has none yet."""
    return state.partition_epoch > 0 and broker_id in (*state.isr, *state.elr, *state.last_known_elr)


def may_be_filled(state: PartitionImage, broker_id: int) -> bool:
    """Return True if another broker should lead, by this image, and nobody counts on the records of the broker's replica."""
    counted = (*state.isr, *state.elr, *state.last_known_elr)
    return state.leader not in (NO_LEADER, broker_id) and broker_id not in counted


def assigned_replicas(image: MetadataImage, broker_id: int) -> list[AssignedReplica]:
    """The replicas that the metadata gives to the broker, by name."""
    assigned = [
        AssignedReplica(
            *(topic.name, topic_id, number, state.directory_of(broker_id) or UNASSIGNED),
            is_counted_on=is_counted_on(state, broker_id),
            has_changed=state.partition_epoch > 0,
        )
        for topic_id, topic in image.topics.by_id.items()
        for number, state in topic.partitions.items()
        if broker_id in state.replicas
    ]
    return sorted(assigned, key=lambda replica: (replica.topic, replica.partition))


class ReplicaManager:
    """The part of the broker that partitions, fetchers and services see."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        logs: LogManager,
        disks: Disks,
        configs: DynamicConfigs,
        isr_changes: AlterPartitionManager,
        assignments: DirectoryAssignments,
        lag_time_max_s: float,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.disks = disks
        self.configs = configs
        self.logs = logs
        self.lag_time_max_s = lag_time_max_s
        self.traffic = Traffic()
        self.image: MetadataImage = EMPTY
        self.partitions: dict[ReplicaId, Partition] = {}
        self.state_lock = trio.Lock()
        self.move_throttles = MoveThrottles(broker_id)
        self._isr_changes = isr_changes
        self._assignments = assignments
        self._unplaced: set[ReplicaId] = set()
        self._unreported: set[ReplicaId] = set()
        """Replicas out of reach that will be reported once the broker is registered."""
        self._newcomers: set[ReplicaId] = set()
        """Replicas that this broker certainly never had before: an offline directory cannot hold them."""
        self.lost: dict[ReplicaId, LostLog] = {}
        """Replicas that lost their log with a failed directory; they stay offline until it comes back."""
        self._last_fetch_s: dict[int, float] = {}
        self._roles_begun: Counter[str] = Counter()
        """Number of roles, by kind, that have begun in the present step. `_role_log_level`: log level of each of them."""
        self._role_log_level = logging.INFO
        self._fetchers: Fetchers | None = None
        self._mover: Mover | None = None

    def attach(self, fetchers: Fetchers, mover: Mover) -> None:
        """Set the two parts that are made after this manager."""
        self._fetchers, self._mover = fetchers, mover
        self._assignments.on_known = mover.directory_named

    @property
    def fetchers(self) -> Fetchers:
        assert self._fetchers is not None, "attach() comes first"
        return self._fetchers

    @property
    def mover(self) -> Mover:
        assert self._mover is not None, "attach() comes first"
        return self._mover

    # --- for partitions, fetchers and services -------------------------------------------------------------------------------

    def hosted(self, replica: ReplicaId) -> Partition:
        """Return the partition, if this broker hosts it.

        ReplicaError UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION (not in the metadata) or NOT_LEADER_OR_FOLLOWER (on other
        brokers).
        """
        partition = self.partitions.get(replica)
        if partition is not None:
            return partition
        topic = self.image.topics.by_id.get(replica[0])
        if topic is None:
            raise ReplicaError(ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID.message)
        if replica[1] not in topic.partitions:
            raise ReplicaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has no partition {replica[1]}")
        raise ReplicaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.broker_id} hosts no replica of {topic.name}-{replica[1]}"
        )

    def registered_epoch(self, broker_id: int) -> int | None:
        broker = self.image.cluster.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def is_active(self, broker_id: int) -> bool:
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def is_eligible(self, state: PartitionImage, broker_id: int) -> bool:
        broker = self.image.cluster.brokers.get(broker_id)
        directory = state.directory_of(broker_id)
        return broker is not None and broker.is_active and (directory is None or broker.has_online(directory))

    def last_fetch_s(self, broker_id: int) -> float:
        return self._last_fetch_s.get(broker_id, NEVER_S)

    def note_fetch(self, follower_id: int) -> None:
        self._last_fetch_s[follower_id] = trio.current_time()

    def min_insync_replicas(self, topic: str) -> int:
        return self.configs.min_insync_replicas(topic)

    def propose_isr(self, partition: Partition, change: IsrChange) -> None:
        self._isr_changes.submit(change, partition.isr_answered)

    def withdraw_isr(self, partition: Partition) -> None:
        self._isr_changes.withdraw(*partition.id)

    def endpoint_of(self, broker_id: int) -> Endpoint | None:
        broker = self.image.cluster.brokers.get(broker_id)
        listener = broker.listener(PEER_LISTENER) if broker is not None else None
        return None if listener is None else Endpoint(listener.host, listener.port)

    def is_leader_throttled(self, partition: Partition, follower_id: int) -> bool:
        return (
            self.configs.leader_gate.is_limited
            and follower_id not in partition.state.isr
            and self.configs.leader_throttled(partition.topic).covers(partition.number, follower_id)
        )

    def fetchers_per_leader(self) -> int:
        return int(self.configs.broker("num.replica.fetchers") or 1)

    def follower_gates(self, partition: Partition) -> Gates:
        """Throttles of this broker's replica while it is out of sync."""
        is_configured = self.configs.follower_gate.is_limited
        if not (is_configured or self.move_throttles.has_any) or self.broker_id in partition.state.isr:
            return ()
        gates: list[ByteGate] = []
        own = self.move_throttles.gate_of(partition.id)
        if own is not None:
            gates.append(own)
        configs = self.configs
        if is_configured and configs.follower_throttled(partition.topic).covers(partition.number, self.broker_id):
            gates.append(configs.follower_gate)
        return tuple(gates)

    # --- metadata ------------------------------------------------------------------------------------------------------------

    async def apply(self, publication: Publication) -> None:
        """Publisher: bring the replicas in line with the new image."""
        async with self.state_lock:
            self.image = publication.after
            has_other_throttles = self.move_throttles.update(publication)
            await self._note_topics(publication)
            changes = local_changes(publication.changes, publication.before, publication.after, self.broker_id)
            await self._together(partial(self._remove, replica) for replica in changes.deleted)
            gone = (publication.before.topics.by_id[topic_id].name for topic_id in publication.changes.deleted_topics)
            self.traffic.forget(gone)
            if not publication.is_first:
                self._note_newcomers(publication, changes)
            await self._create_logs({**changes.leading, **changes.following})
            self._roles_begun = Counter()
            is_logged_individually = len(changes.leading) + len(changes.following) <= LOGGED_INDIVIDUALLY_MAX
            self._role_log_level = logging.INFO if is_logged_individually else logging.DEBUG
            for group in (changes.leading, changes.following):
                await self._unless_ended()
                await self._host_all(group)
            await self._unless_ended()
            if not is_logged_individually and self._roles_begun:
                what = ", ".join(f"{role} {count}" for role, count in self._roles_begun.items())
                logger.info("in a new leader epoch, as of metadata %d: %s partitions", self.image.provenance.offset, what)
            if publication.is_first:
                self._resume_moves()
            self._compare_directories((*changes.leading, *changes.following))
            if self._unreported and self._is_registered():
                self._report_late()
            if publication.changes.configs:
                self._reconfigure()
        if publication.changes.brokers:
            for partition in self.partitions.values():
                if not publication.changes.brokers.isdisjoint(partition.state.replicas):
                    partition.brokers_changed()
        if publication.changes.brokers or publication.changes.configs or has_other_throttles:
            self.fetchers.reconsider()

    async def _note_topics(self, publication: Publication) -> None:
        """Let the remembered destinations follow the topics. Those of deleted topics must not come back after a crash."""
        destinations, changes = self.logs.destinations, publication.changes
        if changes.created_topics or changes.deleted_topics:
            if len(destinations):
                destinations.topics_changed(publication.after.topics.by_name.get)
            if changes.deleted_topics and not destinations.is_saved:
                await self.disks.run(None, destinations.save)

    async def _unless_ended(self) -> None:
        """Raise Cancelled if the broker ends: a task that was cancelled during disk work must not begin anything more."""
        await trio.lowlevel.checkpoint_if_cancelled()

    def _note_newcomers(self, publication: Publication, changes: LocalChanges) -> None:
        for replica in (*changes.leading, *changes.following):
            before = publication.before.topics.partition(*replica)
            if before is None or self.broker_id not in before.replicas:
                self._newcomers.add(replica)

    async def _together(self, work: Iterable[Callable[[], Awaitable[None]]]) -> None:
        async with trio.open_nursery() as nursery:
            for item in work:
                nursery.start_soon(item)

    async def _remove(self, replica: ReplicaId) -> None:
        """Remove a replica that has left this broker, and its future log."""
        partition = self.partitions.pop(replica, None)
        self._unplaced.discard(replica)
        self._newcomers.discard(replica)
        self.lost.pop(replica, None)
        if partition is None:
            return
        logger.info("%s: removed", partition)
        self.fetchers.forget(replica)
        await self.mover.drop(replica)
        log = partition.log
        await partition.retire()
        if log is not None or self.logs.has_kept(*replica):
            try:
                await self.disks.run(log.log_dir if log else None, self.logs.delete, *replica, wall_clock_ms())
            except LogError as error:
                logger.warning("%s: its files could not be set aside: %s", partition, error)

    async def _create_logs(self, states: Mapping[ReplicaId, PartitionImage]) -> None:
        """Create missing logs, many at once. A replica that gets none here is tried again by itself, which logs its error."""
        missing = [
            NewReplica(
                self.image.topics.by_id[topic_id].name,
                topic_id,
                number,
                state.directory_of(self.broker_id) or UNASSIGNED,
                (topic_id, number) in self._newcomers,
                self.configs.log_config(self.image.topics.by_id[topic_id].name),
                is_counted_on(state, self.broker_id),
            )
            for (topic_id, number), state in states.items()
            if self.logs.get(topic_id, number) is None and (topic_id, number) not in self.lost
        ]
        if len(missing) > 1:
            for start in range(0, len(missing), CREATED_AT_ONCE):
                await self._create_some(missing[start : start + CREATED_AT_ONCE])

    async def _create_some(self, wanted: list[NewReplica]) -> None:
        def create() -> None:
            for error in self.logs.create_together(wanted):
                if isinstance(error, LogDirFailed):
                    raise error

        try:
            await self.disks.run(None, create)
        except LogError as error:
            logger.warning("not all of %d new replicas have a log yet: %s", len(wanted), error)

    async def _host_all(self, states: Mapping[ReplicaId, PartitionImage]) -> None:
        waiting: list[Callable[[], Awaitable[None]]] = []
        for count, (replica, state) in enumerate(states.items(), 1):
            if not self._host_now(replica, state):
                waiting.append(partial(self._host, replica, state))
            if not count % ROLE_CHANGES_PER_YIELD:
                await trio.lowlevel.checkpoint()
        await self._together(waiting)

    def _partition(self, replica: ReplicaId, state: PartitionImage) -> Partition:
        partition = self.partitions.get(replica)
        if partition is None:
            topic = self.image.topics.by_id[replica[0]].name
            partition = self.partitions[replica] = Partition(topic, *replica, state, self)
        return partition

    def _host_now(self, replica: ReplicaId, state: PartitionImage) -> bool:
        """As `_host`, if that need not wait; otherwise return False."""
        partition = self._partition(replica, state)
        if partition.log is None:
            log = self.logs.get(*replica)
            if log is None or partition.lock.locked():
                return False
            partition.state = state
            self._newcomers.discard(replica)
            self._give_log(partition, log)
        self._unplaced.discard(replica)
        try:
            with partition.ending_log():
                is_done = self._take_role_now(partition, state)
        except LogError as error:
            self._role_failed(partition, state, error)
            is_done = True
        return is_done

    async def _host(self, replica: ReplicaId, state: PartitionImage, can_be_filled: bool = False) -> None:
        """Make the replica leader or follower, with a log if one is available. `can_be_filled`: see `NewReplica`."""
        partition = self._partition(replica, state)
        if partition.log is None:
            partition.state = state
            try:
                log = await self._place(partition, state, can_be_filled)
            finally:
                partition.is_being_placed = False
            if log is None:
                return
            self._give_log(partition, log)
        self._unplaced.discard(replica)
        try:
            with partition.ending_log():
                await self._take_role(partition, state)
        except LogError as error:
            self._role_failed(partition, state, error)

    def _give_log(self, partition: Partition, log: PartitionLog) -> None:
        """Attach a log. One that was found at the start was opened before the topic's configuration was known."""
        log.config = self.configs.log_config(partition.topic)
        if log.recovery.reason is not None and not partition.losses:
            partition.losses.recovered(log.recovery.cut_bytes)
        partition.log = log
        partition.is_being_placed = False

    def _role_failed(self, partition: Partition, state: PartitionImage, error: LogError) -> None:
        """Log the error of a failing directory; the other replicas still get their roles."""
        logger.error("%s: cannot become leader or follower in epoch %d: %s", partition, state.leader_epoch, error)

    async def _take_role(self, partition: Partition, state: PartitionImage) -> None:
        state = self._as_this_incarnation(state)
        if state.leader == self.broker_id:
            self.fetchers.forget(partition.id)
            self._role_taken(partition, state, await partition.lead(state))
        else:
            self._role_taken(partition, state, await partition.follow(state))

    def _take_role_now(self, partition: Partition, state: PartitionImage) -> bool:
        """Return False if that has to wait."""
        state = self._as_this_incarnation(state)
        begun = partition.lead_now(state) if state.leader == self.broker_id else partition.follow_now(state)
        if begun is None:
            return False
        if state.leader == self.broker_id:
            self.fetchers.forget(partition.id)
        self._role_taken(partition, state, begun)
        return True

    def _as_this_incarnation(self, state: PartitionImage) -> PartitionImage:
        """Return the state without a leader if an earlier incarnation of this broker led."""
        if state.leader == self.broker_id and not self._is_registered():
            return msgspec.structs.replace(state, leader=NO_LEADER)
        return state

    def _is_registered(self) -> bool:
        """Return True if the metadata knows this incarnation of the broker."""
        return self.registered_epoch(self.broker_id) == self.broker_epoch()

    def _role_taken(self, partition: Partition, state: PartitionImage, begun: bool) -> None:
        """Log the role and start or stop the fetcher. `begun`: the leader epoch or the leader is new."""
        if not begun:
            return
        if state.leader == self.broker_id:
            self._roles_begun["leads"] += 1
            end_offset = partition.online_log().log_end_offset
            logger.log(self._role_log_level, "%s: leads epoch %d from offset %d", partition, state.leader_epoch, end_offset)
            return
        self._roles_begun["follows in"] += 1
        logger.log(self._role_log_level, "%s: follows broker %d in epoch %d", partition, state.leader, state.leader_epoch)
        if state.leader >= 0:
            self.fetchers.follow(partition, state.leader, state.leader_epoch)
        else:
            self.fetchers.forget(partition.id)

    async def _place(self, partition: Partition, state: PartitionImage, can_be_filled: bool) -> PartitionLog | None:
        """Return the replica's log, found or created; None if it is not available now."""
        log = self.logs.get(*partition.id)
        if log is not None:
            self._newcomers.discard(partition.id)
            return log
        if partition.id in self.lost:
            return None
        create = partial(
            self.logs.get_or_create,
            partition.topic,
            partition.topic_id,
            partition.number,
            state.directory_of(self.broker_id),
            is_new=partition.id in self._newcomers,
            is_counted_on=is_counted_on(state, self.broker_id),
            can_be_filled=can_be_filled,
            config=self.configs.log_config(partition.topic),
        )
        try:
            log = await self.disks.run(None, create)
        except ReplicaOffline as error:
            logger.debug("%s: %s", partition, error)
            self._report_lost(partition, state)
            return None
        except LogError as error:
            logger.error("%s: no log can be created: %s; trying again", partition, error)
            self._unplaced.add(partition.id)
            return None
        self._newcomers.discard(partition.id)
        return log

    def _report_lost(self, partition: Partition, state: PartitionImage) -> None:
        """Report a replica as lost whose log is out of reach, if the metadata places it in a real directory.

        Before this incarnation is registered no report is sent. Then the replica may not be counted on and is created again,
        otherwise it is reported.
        """
        assigned = state.directory_of(self.broker_id)
        is_believed = assigned is not None and (is_reserved(assigned) or assigned in self.logs.directory_ids().values())
        if is_believed and self._is_registered():
            self._assignments.assign(*partition.id, LOST)
        elif is_believed:
            self._unreported.add(partition.id)

    def _report_late(self) -> None:
        """Report the replicas that were out of reach before this incarnation was registered, and still are."""
        unreported, self._unreported = self._unreported, set()
        for replica in unreported:
            partition, state = self.partitions.get(replica), self.image.topics.partition(*replica)
            if partition is not None and partition.log is None and state is not None:
                self._report_lost(partition, state)

    def _resume_moves(self) -> None:
        """Resume the moves whose future logs were found, at the start or in a directory that came back."""
        for future in self.logs.futures():
            partition = self.partitions.get((future.topic_id, future.partition))
            if partition is not None and partition.log is not None and partition.id not in self.mover.moves:
                future.config = partition.log.config
                self.mover.begin(partition, future)

    def _compare_directories(self, replicas: Iterable[ReplicaId]) -> None:
        """Report the directories of replicas where the metadata differs, and inform moves of the directory that it names."""
        for replica in replicas:
            partition = self.partitions.get(replica)
            if partition is None or partition.log is None:
                continue
            state = self.image.topics.partition(*replica)
            assigned = state.directory_of(self.broker_id) if state is not None else None
            if assigned is None or self.mover.directory_named(replica, assigned):
                continue
            if assigned != partition.log.directory_id:
                self._assignments.assign(*replica, partition.log.directory_id)

    def _reconfigure(self) -> None:
        for partition in self.partitions.values():
            for log in (partition.log, partition.future):
                if log is not None:
                    log.config = self.configs.log_config(partition.topic)

    # --- upkeep --------------------------------------------------------------------------------------------------------------

    def check_lag(self) -> None:
        for partition in self.partitions.values():
            with suppress(LogEnded), partition.ending_log():
                partition.check_lag()

    async def run_lag_checks(self) -> None:
        """Look for followers that have fallen behind, twice per replica.lag.time.max.ms."""
        while True:
            await trio.sleep(self.lag_time_max_s / 2)
            await one_turn(self._check_lag)

    async def _check_lag(self) -> None:
        self.check_lag()

    async def run_placing(self) -> None:
        """Try again for replicas that got no log, for instance because a disk was full, and fill those that are in doubt."""
        while True:
            await trio.sleep(RETRY_PLACING_S)
            if self._unplaced:
                await one_turn(self._place_again)
            if self._is_registered():
                await one_turn(self._fill_doubtful)

    async def _place_again(self) -> None:
        async with self.state_lock:
            for replica in sorted(self._unplaced):
                state = self.image.topics.partition(*replica)
                if state is not None:
                    self._role_log_level = logging.INFO
                    await self._host(replica, state)
                    self._compare_directories([replica])

    async def _fill_doubtful(self) -> None:
        """Create replicas again whose directory is doubtful or missing, and whose leader answers as such.

        The image alone does not show that: at the start it is old, and it names a leader that has died until that is noticed. An
        empty log that waits for such a leader might be elected.
        """
        for replica in sorted(self.logs.in_doubt()):
            partition, state = self.partitions.get(replica), self.image.topics.partition(*replica)
            if partition is None or partition.log is not None or state is None or not may_be_filled(state, self.broker_id):
                continue
            endpoint = self.endpoint_of(state.leader)
            if endpoint is None or not await leads(self.fetchers.leaders, endpoint, state.leader, replica, state.leader_epoch):
                continue
            async with self.state_lock:
                if self.partitions.get(replica) is partition and self.image.topics.partition(*replica) == state:
                    self._role_log_level = logging.INFO
                    await self._host(replica, state, can_be_filled=True)
                    self._compare_directories([replica])

    async def log_ended(self, error: LogEnded) -> None:
        """Take the replica of an ended log offline, or end the move whose copy has ended. Other replicas go on.

        The report to the controller names the directory as lost: then the replica leaves leadership and ISR.
        """
        log = error.log
        replica = log.topic_id, log.partition
        async with self.state_lock:
            if not self.logs.take_out(log):
                return
            partition = self.partitions.get(replica)
            if partition is None:
                return
            await self.mover.drop(replica, keep_files=True)
            if partition.log is log:
                self.logs.keep_future(*replica)
                self.lost[replica] = LostLog(log.log_dir, log.log_end_offset)
                self.fetchers.forget(replica)
                self._assignments.assign(*replica, LOST)
                await partition.retire(str(error))

    async def directory_failed(self, log_dir: Path) -> None:
        """Take replicas of a failed log directory offline, and end moves to it; the directory is not touched again.

        The directory of each replica is reported, if the controller does not know it: only then does it take the replica out of
        the ISR.
        """
        async with self.state_lock:
            for replica, partition in list(self.partitions.items()):
                if partition.future is not None and partition.future.log_dir == log_dir:
                    await self.mover.drop(replica, keep_files=True)
                if partition.log_dir == log_dir:
                    # The move may just have ended and brought the replica to another directory. Otherwise its copy is kept: it
                    # may be the last one.
                    await self.mover.drop(replica, keep_files=True)
                    self.logs.keep_future(*replica)
                log = partition.log
                if log is not None and log.log_dir == log_dir:
                    logger.warning("%s: offline, its log directory %s failed", partition, log_dir)
                    self.lost[replica] = LostLog(log_dir, log.log_end_offset)
                    self.fetchers.forget(replica)
                    self._assignments.assign(*replica, log.directory_id)
                    await partition.retire()

    def counted_on(self) -> list[str]:
        """Names of replicas without a log that the metadata still counts on.

        A log that has been out of reach may have lost records that it had: as leader in the same epoch, or as a member of the
        ISR, the replica would lose them for all. So no log comes back before the controller has taken the replica out. A replica
        that is the only one that is left is counted on by nobody else.
        """
        found = []
        for replica, partition in self.partitions.items():
            state = self.image.topics.partition(*replica)
            if partition.log is not None or replica in self._unplaced or state is None:
                continue
            counted = {*state.isr, *state.elr}
            if state.leader == self.broker_id or (self.broker_id in counted and len(counted) > 1):
                found.append(str(partition))
        return sorted(found)

    async def take_back(self, returning: ReturningDir) -> list[Action]:
        """Use a log directory that was opened again. Its replicas become followers, with what their logs still hold.

        LogDirUnusable: it stays offline.
        """
        async with self.state_lock:
            if self.counted_on():
                raise LogDirUnusable("the metadata has changed meanwhile; try again")
            before = self.logs.directory_ids().keys()
            try:
                assigned = assigned_replicas(self.image, self.broker_id)
                plan: list[Action] = await self.disks.run(None, self.logs.take_back, returning, assigned, wall_clock_ms())
            finally:
                for path in before - self.logs.directory_ids().keys():
                    self.disks.failed(LogDirFailed(path, OSError(self.logs.offline_dirs[path])))
            self.lost = {replica: lost for replica, lost in self.lost.items() if lost.log_dir != returning.log_dir.path}
            await self._host_those_without_log()
            return plan

    async def promote_copy(self, path: Path) -> PartitionLog:
        """Make a kept copy the log of a replica that has none. LogError."""
        async with self.state_lock:
            topic, number = self.logs.replica_of_copy(path)
            replica = self.image.topics.by_name.get(topic, b""), number
            partition = self.partitions.get(replica)
            if partition is None:
                raise ReplicaConflict(f"{path} is not a copy of a replica that this broker has; it can only be dropped")
            if str(partition) in self.counted_on():
                raise ReplicaConflict(f"the controller still counts on the lost log of {partition}; try again in some seconds")
            state = self.image.topics.partition(*replica)
            directory = state.directory_of(self.broker_id) if state is not None else None
            assigned = AssignedReplica(partition.topic, *replica, directory or UNASSIGNED)
            leader_epoch = state.leader_epoch if state is not None else 0
            log: PartitionLog = await self.disks.run(path.parent, self.logs.promote_copy, path, assigned, leader_epoch)
            self.lost.pop(replica, None)
            await self._host_those_without_log()
            return log

    async def drop_copy(self, path: Path) -> None:
        """Delete a copy that is not served. A replica that was offline only because of it is created again, empty. LogError."""
        async with self.state_lock:
            await self.disks.run(None, self.logs.drop_copy, path, wall_clock_ms())
            await self._host_those_without_log()

    async def _host_those_without_log(self) -> None:
        """Give the logs that have come back, or can be created now, to their replicas. `state_lock` is held."""
        waiting = {
            replica: self.image.topics.partition(*replica) for replica, each in self.partitions.items() if each.log is None
        }
        states = {replica: state for replica, state in waiting.items() if state is not None}
        self._role_log_level = logging.INFO if len(states) <= LOGGED_INDIVIDUALLY_MAX else logging.DEBUG
        await self._host_all(states)
        self._resume_moves()
        self._compare_directories(states)
