"""ISR request and directory assignments: one request in flight, the newest counts, permanent errors end it."""

from __future__ import annotations

from typing import Any

import immutables
import msgspec
import trio

from kraftlab.broker.control.alter_partition import AlterPartitionManager
from kraftlab.broker.control.directory_assignments import ASSIGNMENTS_MAX, DirectoryAssignments
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import UNASSIGNED, Uuid, random_uuid
from kraftlab.metadata.image import MetadataImage, PartitionImage, TopicImage, TopicsImage
from kraftlab.metadata.peer_rpc import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    Api,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssignmentResult,
    IsrChange,
    IsrChangeResult,
)
from kraftlab.wire.transport import PeerTimeout

TOPIC = random_uuid()


class Controller:
    """Takes a second for every answer; `errors` by partition, `failures` requests get no answer."""

    def __init__(self) -> None:
        self.isr_requests: list[AlterPartitionRequest] = []
        self.assign_requests: list[AssignReplicasToDirsRequest] = []
        self.times: list[float] = []
        self.errors: dict[int, int] = {}
        self.failures = 0
        self.in_flight = 0

    async def request(self, api: int, body: bytes, *, timeout_ms: int) -> bytes:
        assert self.in_flight == 0, "one request at a time"
        self.in_flight += 1
        self.times.append(trio.current_time())
        await trio.sleep(1)
        self.in_flight -= 1
        if self.failures:
            self.failures -= 1
            raise PeerTimeout("no answer in time")
        if api == Api.ALTER_PARTITION:
            request = msgspec.msgpack.decode(body, type=AlterPartitionRequest)
            self.isr_requests.append(request)
            results = tuple(
                IsrChangeResult(change.topic_id, change.partition, self.errors.get(change.partition, 0))
                for change in request.changes
            )
            return msgspec.msgpack.encode(AlterPartitionResponse(0, None, results))
        request = msgspec.msgpack.decode(body, type=AssignReplicasToDirsRequest)
        self.assign_requests.append(request)
        answers = tuple(
            DirectoryAssignmentResult(each.topic_id, each.partition, self.errors.get(each.partition, 0))
            for each in request.assignments
        )
        return msgspec.msgpack.encode(AssignReplicasToDirsResponse(0, None, answers))


def isr_change(partition: int, epoch: int = 0) -> IsrChange:
    return IsrChange(TOPIC, partition, 0, ((1, 1),), 0, epoch)


async def test_isr_changes_that_come_during_a_request_go_together_next(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller, answers = Controller(), []
    manager = AlterPartitionManager(controller, 1, lambda: 7)
    nursery.start_soon(manager.run)

    def settled(result: IsrChangeResult) -> bool:
        answers.append(result.partition)
        return True

    manager.submit(isr_change(0), settled)
    await trio.sleep(0.5)
    for partition in (1, 2, 3):
        manager.submit(isr_change(partition), settled)
    await trio.sleep(5)
    assert [[change.partition for change in request.changes] for request in controller.isr_requests] == [[0], [1, 2, 3]]
    assert answers == [0, 1, 2, 3]
    assert controller.isr_requests[0].broker_epoch == 7


async def test_an_answer_to_an_isr_change_that_was_replaced_or_withdrawn_is_ignored(
    autojump_clock: Any, nursery: trio.Nursery
) -> None:
    controller, answers = Controller(), []
    manager = AlterPartitionManager(controller, 1, lambda: 7)
    nursery.start_soon(manager.run)

    def settled(result: IsrChangeResult) -> bool:
        answers.append((result.partition, trio.current_time() - begun > 1.5))
        return True

    begun = trio.current_time()
    manager.submit(isr_change(0), settled)
    manager.submit(isr_change(1), settled)
    await trio.sleep(0.5)
    manager.submit(isr_change(0, epoch=1), settled)
    manager.withdraw(TOPIC, 1)
    await trio.sleep(5)
    assert answers == [(0, True)]


async def test_an_isr_change_is_sent_again_after_50_ms_until_it_is_settled(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller, answers = Controller(), []
    controller.failures = 2
    manager = AlterPartitionManager(controller, 1, lambda: 7)
    nursery.start_soon(manager.run)

    def settled(result: IsrChangeResult) -> bool:
        answers.append(result.error)
        return result.error == 0

    controller.errors[0] = ErrorCode.UNKNOWN_SERVER_ERROR
    manager.submit(isr_change(0), settled)
    await trio.sleep(3.5)
    controller.errors.clear()
    await trio.sleep(5)
    assert answers == [-1, 0]
    assert [round(after - before, 3) for before, after in zip(controller.times, controller.times[1:], strict=False)] == [1.05] * 3


def image_with(directories: dict[int, Uuid]) -> MetadataImage:
    partitions = immutables.Map(
        {number: PartitionImage((1,), (directory,), (1,), 1) for number, directory in directories.items()}
    )
    topics = TopicsImage(immutables.Map({TOPIC: TopicImage("t", TOPIC, partitions)}), immutables.Map({"t": TOPIC}))
    return MetadataImage(topics=topics)


async def test_assignments_go_in_requests_of_bounded_size_and_the_newest_counts(
    autojump_clock: Any, nursery: trio.Nursery
) -> None:
    controller, old, new = Controller(), random_uuid(), random_uuid()
    image = image_with(dict.fromkeys(range(3000), UNASSIGNED))
    assignments = DirectoryAssignments(controller, 1, lambda: 7, lambda: image)
    for number in range(3000):
        assignments.assign(TOPIC, number, old)
        assignments.assign(TOPIC, number, new)
    nursery.start_soon(assignments.run)
    await trio.sleep(5)
    assert [len(request.assignments) for request in controller.assign_requests] == [ASSIGNMENTS_MAX, 3000 - ASSIGNMENTS_MAX]
    assert {item.directory_id for request in controller.assign_requests for item in request.assignments} == {new}
    assert assignments.pending == 0


async def test_what_the_metadata_says_already_or_knows_no_more_is_not_sent(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller, here = Controller(), random_uuid()
    image = image_with({0: here, 1: UNASSIGNED})
    assignments = DirectoryAssignments(controller, 1, lambda: 7, lambda: image)
    for number in (0, 1, 2):
        assignments.assign(TOPIC, number, here)
    nursery.start_soon(assignments.run)
    await trio.sleep(5)
    assert [[item.partition for item in request.assignments] for request in controller.assign_requests] == [[1]]


async def test_permanent_errors_drop_an_assignment_and_others_are_sent_again_with_growing_pauses(
    autojump_clock: Any, nursery: trio.Nursery
) -> None:
    controller = Controller()
    image = image_with(dict.fromkeys(range(3), UNASSIGNED))
    controller.errors = {0: ErrorCode.NOT_LEADER_OR_FOLLOWER, 1: ErrorCode.UNKNOWN_SERVER_ERROR}
    assignments = DirectoryAssignments(controller, 1, lambda: 7, lambda: image)
    for number in range(3):
        assignments.assign(TOPIC, number, random_uuid())
    nursery.start_soon(assignments.run)
    await trio.sleep(20)
    assert [[item.partition for item in request.assignments] for request in controller.assign_requests][:3] == [
        [0, 1, 2],
        [1],
        [1],
    ]
    gaps = [after - before for before, after in zip(controller.times, controller.times[1:], strict=False)]
    assert [round(gap - 1, 2) for gap in gaps[:5]] == [0.1, 0.2, 0.4, 0.8, 1.6]
