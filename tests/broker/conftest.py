"""Brokers in one process (`crash_images/world.py`), with what tests need beside that: topics, ISR changes, restarts, digests.

With `autojump_clock` a test is deterministic and takes no longer than its work.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from kraftlab.broker.log.errors import LogDirFailed
from kraftlab.broker.replication.partition import Partition
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import UNASSIGNED, Uuid, random_uuid
from kraftlab.metadata.image import PartitionImage
from kraftlab.metadata.peer_rpc import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    Api,
    AssignReplicasToDirsRequest,
    IsrChangeResult,
    ProduceRequest,
    ProduceResponse,
)
from kraftlab.metadata.records import BrokerRegistrationChange, Config, PartitionChange, RemoveTopic, Topic
from kraftlab.metadata.records import Partition as PartitionRecord
from kraftlab.records.errors import LogError
from kraftlab.records.record_batch import Record, build_batch
from kraftlab.simulation.crash_images import world as one_process
from kraftlab.simulation.crash_images.world import broker_config, format_disks


@pytest.fixture(scope="module", autouse=True)
def flushes_are_free(disks_without_waiting: None) -> None:
    """Flushes would be most of the time of these tests."""


class World(one_process.World):
    """Its controller decides about ISR changes too, and remembers what it was asked."""

    def __init__(self, tmp_path: Path, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.tmp_path = tmp_path
        self.isr_requests: list[AlterPartitionRequest] = []
        self.directory_requests: list[AssignReplicasToDirsRequest] = []
        self.refuse_isr_with = 0

    async def add_broker(self, broker_id: int, log_dirs: int = 2, **settings: str) -> Broker:
        dirs = tuple(self.tmp_path / f"broker-{broker_id}" / f"d{index}" for index in range(log_dirs))
        format_disks(dirs, broker_id)
        broker = Broker(self, broker_config(broker_id, dirs, **settings))
        await self.register(broker)
        await broker.start()
        return broker

    async def add_brokers(self, count: int) -> list[Broker]:
        return [await self.add_broker(broker_id) for broker_id in range(count)]

    async def register(self, broker: one_process.Broker) -> None:
        await self.commit(self.registration(broker))

    async def create_topic(self, name: str, *assignments: list[int]) -> Uuid:
        topic_id = random_uuid()
        partitions = [
            PartitionRecord(
                *(0, number, topic_id, tuple(replicas), tuple(replicas)),
                leader=replicas[0],
                directories=(UNASSIGNED,) * len(replicas),
            )
            for number, replicas in enumerate(assignments)
        ]
        await self.commit(Topic(0, name, topic_id), *partitions)
        return topic_id

    async def change(self, topic: str, number: int, **fields: Any) -> None:
        await self.commit(PartitionChange(0, number, self.image.topics.by_name[topic], **fields))

    async def add_replica(self, number: int, broker_id: int) -> None:
        """Begin a move that adds a replica to a partition of topic t."""
        state = self.state("t", number)
        await self.change(
            "t",
            number,
            replicas=(*state.replicas, broker_id),
            adding_replicas=(broker_id,),
            removing_replicas=(),
            original_replicas=state.replicas,
            target_replicas=(*state.replicas, broker_id),
            directories=(*state.directories, UNASSIGNED),
        )

    async def fill(self, batches: int, size_bytes: int, number: int = 0, acks: int = -1) -> int:
        """Produce batches of one record to a partition of topic t; return the size of its log."""
        leader = self.brokers[self.state("t", number).leader]
        assert isinstance(leader, Broker)
        for _ in range(batches):
            assert (await leader.produce("t", number, batch(1, size_bytes), acks=acks)).error == ErrorCode.NONE
        size: int = leader.log("t", number).size_bytes
        return size

    async def delete_topic(self, name: str) -> None:
        await self.commit(RemoveTopic(0, self.image.topics.by_name[name]))

    async def configure(self, resource_type: int, resource: str, **values: str | None) -> None:
        await self.commit(*(Config(0, resource_type, resource, name.replace("_", "."), value) for name, value in values.items()))

    async def fence(self, broker_id: int, fenced: bool) -> None:
        await self.commit(BrokerRegistrationChange(0, broker_id, self.brokers[broker_id].epoch, fenced=fenced))

    def state(self, topic: str, number: int) -> PartitionImage:
        state = self.image.topics.partition(self.image.topics.by_name[topic], number)
        assert state is not None
        return state

    async def controller(self, api: int, body: bytes, *, timeout_ms: int) -> bytes:
        if api == Api.ALTER_PARTITION:
            return msgspec.msgpack.encode(await self._alter_partition(msgspec.msgpack.decode(body, type=AlterPartitionRequest)))
        self.directory_requests.append(msgspec.msgpack.decode(body, type=AssignReplicasToDirsRequest))
        return await super().controller(api, body, timeout_ms=timeout_ms)

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        await trio.sleep(0.001)
        await self.controller_answers.wait()
        self.isr_requests.append(request)
        results, records = [], []
        for change in request.changes:
            state = self.image.topics.partition(change.topic_id, change.partition)
            if self.refuse_isr_with or state is None:
                results.append(IsrChangeResult(change.topic_id, change.partition, self.refuse_isr_with or 3))
                continue
            if (change.partition_epoch, change.leader_epoch) != (state.partition_epoch, state.leader_epoch):
                results.append(IsrChangeResult(change.topic_id, change.partition, 95))
                continue
            isr = tuple(member for member, _ in change.isr)
            records.append(PartitionChange(0, change.partition, change.topic_id, isr=isr))
            results.append(
                IsrChangeResult(
                    change.topic_id, change.partition, 0, state.leader, state.leader_epoch, isr, 0, state.partition_epoch + 1
                )
            )
        if records:
            self.append(*records)
            self.nursery.start_soon(self.publish)
        return AlterPartitionResponse(0, None, tuple(results))


class Broker(one_process.Broker):
    """Can be restarted, lose a disk, and take records."""

    world: World

    async def restart(self, *, registers: bool = True) -> None:
        """After `crash`: opens the same directories and registers again, or is refused as long as its old session lives."""
        self.scope = trio.CancelScope()
        self.open()
        self.epoch = -1
        if registers:
            await self.world.register(self)
        await self.start()

    async def lose(self, log_dir: Path) -> None:
        """The disk of a log directory fails."""
        await self.give_up(LogDirFailed(log_dir, OSError(errno.EIO, "bad disk")))

    async def bring_back(self, log_dir: Path) -> list[str]:
        """The disk is repaired; return the plan for its contents."""
        returning = self.logs.open_again(log_dir)
        try:
            return [
                f"{action.verb.value} {action.topic}-{action.partition}" for action in await self.replicas.take_back(returning)
            ]
        except LogError:
            returning.release()
            raise

    def partition(self, topic: str, number: int) -> Partition:
        return self.replicas.partitions[self.world.image.topics.by_name[topic], number]

    def log(self, topic: str, number: int) -> Any:
        return self.partition(topic, number).online_log()

    async def produce(self, topic: str, number: int, records: bytes, acks: int = -1, **fields: Any) -> ProduceResponse:
        topic_id = self.world.image.topics.by_name[topic]
        return await self.data_plane.produce(ProduceRequest(topic_id, number, acks, 5000, records, **fields))

    def other_dir(self, topic: str = "t", number: int = 0) -> Path:
        """A directory in which the replica is not."""
        return next(path for path in self.dirs if path != self.log(topic, number).log_dir)

    def directories(self) -> set[str]:
        """Names of the replicas' directories, with the log directory in front."""
        return {f"{path.parent.name}/{path.name}" for log_dir in self.dirs for path in log_dir.iterdir() if path.is_dir()}


@pytest.fixture
async def world(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[World]:
    """Tests that use it ask for `autojump_clock` themselves, or else time is real."""
    world = World(tmp_path, nursery)
    yield world
    world.close()


def batch(records: int = 1, size_bytes: int = 100) -> bytes:
    """A batch of incompressible records."""
    return build_batch([Record(timestamp_ms=1, key=b"k", value=os.urandom(size_bytes)) for _ in range(records)])


def same_data(topic: str, number: int, brokers: Iterable[Broker]) -> bool:
    """True if all brokers hold the same batches of a partition."""
    digests = {broker.log(topic, number).digest() for broker in brokers}
    return len({(digest.sha256, digest.end_offset) for digest in digests}) == 1
