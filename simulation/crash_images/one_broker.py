"""The broker whose partition moves, and the leaders that it follows in a script.

Without a leader the broker is alone: no other broker holds a copy of its records. A leader is a whole broker, with a log that no
crash touches. A script can replace a leader whose last records no other broker had by one that has other records in their place.
Then the replica has to truncate its log, and the copy that is being made of it too. None of these records was committed: a third
replica, which is in sync on another broker, had none of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import trio
from trio.testing import MockClock

from kraftlab.broker.log.log_config import LogConfig
from kraftlab.broker.log.log_manager import LogManager
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.log.startup import AssignedReplica
from kraftlab.broker.replication.partition import Partition
from kraftlab.common.causes import first_cause
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.uuids import UNASSIGNED, Uuid
from kraftlab.metadata.peer_rpc import ReplicaFetchRequest
from kraftlab.metadata.records import Config, PartitionChange, Topic
from kraftlab.metadata.records import Partition as PartitionRecord
from kraftlab.records.record_batch import Record, build_batch
from kraftlab.wire.parts import InMemory
from kraftlab.wire.transport import ANY_NODE

from .world import STEP_S, Broker, World, broker_config, format_disks, open_logs

BROKER_ID = 0
THIRD = 9
"""Id of the broker with the third replica, which does not run here."""
TOPIC, TOPIC_ID, NUMBER = "t", b"crash-images-t-0", 0
PLAIN_NAME = f"{TOPIC}-{NUMBER}"
LOG_CONFIG = LogConfig(segment_bytes=300)
_MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_RESOURCE_TOPIC, _RESOURCE_BROKER = 2, 4
_LAG_TIME_MAX_MS = "3600000"
"""In-sync sets do not shrink."""
_SETTLED_WITHIN_S = 60.0
_PATIENT_AFTER_S, _PATIENT_STEP_S = 2.0, 0.1
"""After so long, `until` checks its condition less often."""


class NotSettled(Exception):
    """A move or a directory assignment did not end in time; the text says which."""


def start_logs(disks: Sequence[Path], assigned: Uuid) -> LogManager:
    """Open the logs and apply the start-up plan, with metadata that places the replica in `assigned`. LogError."""
    logs = open_logs(disks, config=LOG_CONFIG)
    try:
        logs.start([AssignedReplica(TOPIC, TOPIC_ID, NUMBER, assigned, is_counted_on=True)], 0)
    except BaseException:
        logs.abandon()
        raise
    return logs


class _World(World):
    """Notes with each fetch how far the follower's log agrees with the leader's, which counts as "acked"."""

    async def request(
        self, endpoint: Endpoint, api: int, body: bytes, *, timeout_ms: int, channel: int = 0, node_id: int = ANY_NODE
    ) -> InMemory:
        leader = self.brokers.get(endpoint.port - 1)
        if leader is not None:
            log = leader.replicas.partitions[TOPIC_ID, NUMBER].online_log()
            for wanted in msgspec.msgpack.decode(body, type=ReplicaFetchRequest).partitions:
                _, end = log.end_offset_for(wanted.last_fetched_epoch)
                self.note("acked", min(wanted.fetch_offset, end))
        return await super().request(endpoint, api, body, timeout_ms=timeout_ms)


class OneBroker(Broker):
    """Made by `run`. LogError. `note`: see `World`."""

    def __init__(
        self,
        nursery: trio.Nursery,
        disks: Sequence[Path],
        assigned: Uuid,
        leader_epoch: int,
        note: Callable[[str, object], None],
    ) -> None:
        config = broker_config(BROKER_ID, tuple(disks), replica_lag_time_max_ms=_LAG_TIME_MAX_MS)
        super().__init__(_World(nursery, note), config, LOG_CONFIG)
        self.world.append(
            self.world.registration(self),
            Topic(0, TOPIC, TOPIC_ID),
            Config(0, _RESOURCE_TOPIC, TOPIC, "segment.bytes", str(LOG_CONFIG.segment_bytes)),
            PartitionRecord(
                *(0, NUMBER, TOPIC_ID, (BROKER_ID,), (BROKER_ID,)),
                leader=BROKER_ID,
                leader_epoch=leader_epoch,
                partition_epoch=leader_epoch,
                directories=(assigned,),
            ),
        )

    async def start(self) -> None:
        await self.world.publish()
        await super().start()

    @property
    def assigned(self) -> Uuid:
        """Directory in which the metadata places the replica."""
        state = self.world.image.topics.partition(TOPIC_ID, NUMBER)
        assert state is not None
        return state.directories[0]

    # -- what clients and operators do ------------------------------------------------------------------------------------------

    @property
    def partition(self) -> Partition:
        return self.replicas.partitions[TOPIC_ID, NUMBER]

    @property
    def log(self) -> PartitionLog | None:
        """The log that is served, None while the replica is offline."""
        return self.partition.log

    async def produce(self, value: str, leader: Broker | None = None) -> tuple[int, bytes]:
        """Append one record, here or on a leader: (end offset, the batch as stored). LogError, ReplicaError."""
        partition = (leader or self).replicas.partitions[TOPIC_ID, NUMBER]
        batch = build_batch([Record(b"key", value.encode(), 1000)])
        appended, _ = await partition.append_as_leader(batch)
        return appended.end_offset, partition.online_log().read(appended.base_offset, len(batch))

    async def new_leader_epoch(self) -> None:
        await self.world.commit(PartitionChange(0, NUMBER, TOPIC_ID, leader=BROKER_ID))

    async def follow(self, leader_id: int, directory: Path, batches: Sequence[bytes]) -> Broker:
        """Let a broker lead that has these batches, in a new directory; former leaders become unreachable. The third replica has
        the batches too and gets no more, so they are committed.
        """
        for former in self.world.made[1:]:
            former.crash()
        disks = (directory / "d0",)
        format_disks(disks, leader_id)
        leader = Broker(self.world, broker_config(leader_id, disks, replica_lag_time_max_ms=_LAG_TIME_MAX_MS))
        leader.logs.start([], 0)
        log = leader.logs.get_or_create(TOPIC, TOPIC_ID, NUMBER)
        if batches:
            log.append_as_follower(b"".join(batches))
        replicas = (BROKER_ID, leader_id, THIRD)
        async with self.world.hold_publications():
            self.world.append(
                self.world.registration(leader),
                PartitionChange(
                    *(0, NUMBER, TOPIC_ID, replicas, leader_id, replicas),
                    directories=(self.assigned, log.directory_id, UNASSIGNED),
                ),
            )
            await leader.start()
            leader.replicas.partitions[TOPIC_ID, NUMBER].follower_fetched(THIRD, log.log_end_offset, 0, 0)
        return leader

    async def limit_moves(self, bytes_per_second: int) -> None:
        await self.world.commit(Config(0, _RESOURCE_BROKER, "", _MOVE_RATE, str(bytes_per_second)))

    async def disk_failed(self) -> None:
        """Take log directories offline whose failures were reported."""
        while self.failed:
            await self.give_up(self.failed.pop())

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds. NotSettled."""
        patient_from = trio.current_time() + _PATIENT_AFTER_S
        with trio.move_on_after(_SETTLED_WITHIN_S) as scope:
            while not holds():  # noqa: ASYNC110 - virtual time, and no event for what is waited for
                await trio.sleep(STEP_S if trio.current_time() < patient_from else _PATIENT_STEP_S)
        if scope.cancelled_caught:
            raise NotSettled(f"{what}: not within {_SETTLED_WITHIN_S:g} s")

    async def settle(self) -> None:
        """Wait until moves have ended and the metadata names the replica's directory. NotSettled."""
        await self.until(self._is_settled, f"moves {list(self.mover.moves.values())}, {self.assignments.pending} assignments")

    def _is_settled(self) -> bool:
        log = self.log
        is_named = log is None or self.assigned == log.directory_id
        return not self.mover.moves and not self.assignments.pending and is_named


def run(
    disks: Sequence[Path],
    assigned: Uuid,
    leader_epoch: int,
    note: Callable[[str, object], None],
    work: Callable[[OneBroker], Awaitable[None]],
) -> None:
    """Run a broker on virtual time while the work goes on, then end it as by kill -9. Errors of both are raised."""
    worlds: list[World] = []

    async def with_broker() -> None:
        async with trio.open_nursery() as nursery:
            broker = OneBroker(nursery, disks, assigned, leader_epoch, note)
            worlds.append(broker.world)
            await broker.start()
            await work(broker)
            nursery.cancel_scope.cancel()

    try:
        trio.run(with_broker, clock=MockClock(autojump_threshold=0))
    except BaseExceptionGroup as group:
        raise first_cause(group) from group
    finally:
        for world in worlds:
            world.close()
