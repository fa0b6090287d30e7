"""Random histories of reassignments of every kind, with brokers that come and go, failovers and changes of configuration.

After every step the image keeps its invariants (the fixture checks them at each commit), the records of moves agree with the
partitions that move, and moves that the queue started are within the caps. In the end every move can be completed or
cancelled, and no move is left.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError
from kraftlab.controller.reassignment import named_changes as kip_179
from kraftlab.controller.reassignment import reassignments
from kraftlab.controller.topics import topics
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.moves import MovesImage
from kraftlab.metadata.snapshot import ImageSnapshot, image_digest, image_from

BROKERS = range(5)
STEPS = 60


class History:
    """One random history. The expected state is kept apart from the controller's: the original set of each run of moves."""

    def __init__(self, cluster: Any, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.originals: dict[tuple[str, int], tuple[int, ...]] = {}
        self.fenced: set[int] = set()
        self.cap = 0
        self.unqueued: set[tuple[bytes, int]] = set()

    @property
    def image(self) -> MetadataImage:
        image: MetadataImage = self.cluster.controller.newest.image
        return image

    async def run(self) -> None:
        for name in ("a", "b"):
            await self.cluster.create(name, *(tuple(self.random.sample(BROKERS, 2)) for _ in range(4)))
        steps = [self.move, self.cancel, self.catch_up, self.fence, self.rollback, self.fail_over, self.configure, self.factor]
        for _ in range(STEPS):
            self.note_originals()
            await self.random.choices(steps, [8, 3, 8, 2, 1, 1, 1, 1])[0]()
            await self.cluster.pass_time(30)
            self.check()

    def some(self) -> tuple[int, ...]:
        return tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))

    def partitions(self) -> list[tuple[str, int]]:
        return sorted((topic.name, number) for topic in self.image.topics.by_id.values() for number in topic.partitions)

    def note_originals(self) -> None:
        """A run of reassignments begins while the partition is not moving."""
        for name, number in self.partitions():
            state = self.cluster.partition(name, number)
            if not state.is_reassigning:
                self.originals[name, number] = state.replicas

    # --- steps ---

    async def move(self) -> None:
        request = admin_pb2.AlterPartitionReassignmentsRequest(queued=self.random.random() < 0.6)
        request.priority = self.random.choice([0, 0, 3])
        if self.random.random() < 0.4:
            request.plan_id = self.random.choice(["p", "q"])
        if self.random.random() < 0.4:
            request.throttle = self.random.choice([0, 1000])
            if request.throttle:
                request.throttle_expires_ms = self.random.choice([40, 10_000])
        for name, number in self.random.sample(self.partitions(), self.random.randint(1, 4)):
            entry = request.topics.add(name=name).partitions.add(partition_index=number)
            entry.replicas.values.extend(self.some())
            if not request.queued:
                self.unqueued.add((self.image.topics.by_name[name], number))
        await self.cluster.write(reassignments.alter, request)

    async def cancel(self) -> None:
        name, number = self.random.choice(self.partitions())
        before = self.cluster.partition(name, number)
        waits = self.image.moves.waiting(self.image.topics.by_name[name], number) is not None
        request = admin_pb2.AlterPartitionReassignmentsRequest()
        request.topics.add(name=name).partitions.add(partition_index=number)
        response = await self.cluster.write(reassignments.alter, request)
        [answer] = response.responses[0].partitions
        if answer.error_code:
            assert self.cluster.partition(name, number) == before
        elif not waits:
            assert self.cluster.partition(name, number).replicas == self.originals[name, number], "exactly what it was"

    async def catch_up(self) -> None:
        """Some replicas join the ISR or leave it."""
        name, number = self.random.choice(self.partitions())
        state = self.cluster.partition(name, number)
        alive = [broker_id for broker_id in state.replicas if broker_id not in self.fenced]
        if state.leader >= 0:
            others = [broker_id for broker_id in alive if broker_id != state.leader and self.random.random() < 0.7]
            await self.cluster.set_isr(name, (state.leader, *others), number)

    async def fence(self) -> None:
        broker_id = self.random.choice(BROKERS)
        if broker_id in self.fenced:
            self.fenced.remove(broker_id)
            await self.cluster.heartbeat(broker_id)
        elif len(self.fenced) < 2:
            self.fenced.add(broker_id)
            await self.cluster.stop_broker(broker_id)

    async def rollback(self) -> None:
        if self.image.moves.plans:
            plan_id = self.random.choice(sorted(self.image.moves.plans))
            self.unqueued.update(self.image.moves.plans[plan_id].partitions)
            force = self.random.random() < 0.5
            request = admin_pb2.RollbackPlanRequest(rollback_plan_id=plan_id, force=force)
            try:
                await self.cluster.write(reassignments.roll_back, request)
            except ApiError as error:
                assert not force, error

    async def fail_over(self) -> None:
        await self.cluster.lose_leadership(survives=True)
        await self.cluster.lead()

    async def configure(self) -> None:
        self.cap = self.random.choice([1, 2, 3])
        await self.cluster.configure(4, "", ("reassignment.max.moves.per.broker", 0, str(self.cap)))
        self.unqueued.update(self.moving())

    async def factor(self) -> None:
        request = admin_pb2.AlterReplicationFactorsRequest(queued=True)
        request.topics.add(name=self.random.choice("ab"), replication_factor=self.random.randint(1, 3))
        await self.cluster.write(kip_179.alter_replication_factors, request)
        self.unqueued.update(self.moving())

    # --- checks ---

    def moving(self) -> set[tuple[bytes, int]]:
        return {(topic_id, number) for topic_id, numbers in self.image.topics.reassigning.items() for number in numbers}

    def check(self) -> None:
        image = self.image
        moving = self.moving()
        listed = {(topic_id, number) for topic_id, inner in image.moves.running.items() for number in inner}
        assert listed == moving, "whatever moves is somebody's move, and nothing else is"
        self.unqueued &= moving
        self.check_caps(moving)
        for topic_id, numbers in image.topics.reassigning.items():
            topic = image.topics.by_id[topic_id]
            for number in numbers:
                assert topic.partitions[number].original == self.originals[topic.name, number]

    def check_caps(self, moving: set[tuple[bytes, int]]) -> None:
        """Moves that the queue started never exceed a broker's cap."""
        if not self.cap:
            return
        busy: Counter[int] = Counter()
        for key in moving - self.unqueued:
            partition = self.image.topics.partition(*key)
            assert partition is not None
            busy.update(partition.adding + partition.removing)
        assert not busy or max(busy.values()) <= self.cap, busy

    async def finish(self) -> None:
        """All brokers come back and catch up. Moves that cannot end are cancelled."""
        for broker_id in sorted(self.fenced):
            await self.cluster.heartbeat(broker_id)
        self.fenced.clear()
        for _ in range(100):
            moving = [(name, n) for name, n in self.partitions() if self.cluster.partition(name, n).is_reassigning]
            if not moving and not self.image.moves.queued:
                break
            for name, number in moving:
                state = self.cluster.partition(name, number)
                await self.cluster.set_isr(name, (state.leader, *(b for b in state.replicas if b != state.leader)), number)
            await self.cluster.pass_time(50)


@pytest.mark.parametrize("seed", range(25))
async def test_in_any_history_moves_agree_with_moving_partitions_and_can_be_finished(five: Any, seed: int) -> None:
    history = History(five, seed)
    await history.run()
    await history.finish()
    image = history.image
    assert (image.moves.running, image.moves.queued) == (MovesImage().running, MovesImage().queued)
    assert not image.topics.reassigning
    reread = image_from(body for body, _ in ImageSnapshot(image).batches())
    assert image_digest(reread) == image_digest(image)
    for name in ("a", "b"):
        await five.write(topics.delete, admin_pb2.DeleteTopicsRequest(topics=[{"name": name}]))
    assert not history.image.topics.by_id


@pytest.mark.parametrize("seed", range(25, 35))
async def test_in_any_history_all_moves_can_be_cancelled_at_once(five: Any, seed: int) -> None:
    history = History(five, seed)
    await history.run()
    for broker_id in sorted(history.fenced):
        await five.heartbeat(broker_id)
    response = await five.write(reassignments.cancel, admin_pb2.CancelReassignmentsRequest())
    refused = [entry.error_code for topic in response.responses for entry in topic.partitions if entry.error_code]
    assert set(refused) <= {39}
    assert len(refused) == len(history.moving())
    assert not history.image.moves.queued
