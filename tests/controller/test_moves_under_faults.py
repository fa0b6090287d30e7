"""A move with one fault at each of its steps and a failover between each two: it continues afterwards, and can be cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.controller.cluster import brokers
from kraftlab.controller.reassignment import reassignments
from kraftlab.controller.reassignment.listing import Observer, listing
from kraftlab.controller.topics.partition_counts import create_partitions

ORIGINAL, TARGET = (0, 1, 2), (2, 3, 4)
Step = Callable[[Any], Awaitable[None]]


async def start(cluster: Any) -> None:
    assert (await cluster.reassign("t", TARGET))[0] == 0


async def first_is_in_sync(cluster: Any) -> None:
    await catch_up(cluster, 3)


async def all_are_in_sync(cluster: Any) -> None:
    await catch_up(cluster, 3, 4)


async def catch_up(cluster: Any, *broker_ids: int) -> None:
    """Replicas that can catch up join the ISR. A change that completes the move may answer NEW_LEADER_ELECTED."""
    state = cluster.partition("t")
    image = cluster.controller.newest.image
    able = [n for n in broker_ids if n in state.replicas and n in image.cluster.brokers and image.cluster.brokers[n].is_active]
    members = tuple(dict.fromkeys((*state.isr, *able)))
    if state.leader >= 0 and members != state.isr:
        assert await cluster.set_isr("t", members) in (0, 108)


STEPS: tuple[Step, ...] = (start, first_is_in_sync, all_are_in_sync)


async def leader_dies(cluster: Any) -> None:
    if cluster.partition("t").leader >= 0:
        await cluster.stop_broker(cluster.partition("t").leader)


async def adder_dies(cluster: Any) -> None:
    await cluster.stop_broker(4)


async def adder_is_unregistered(cluster: Any) -> None:
    await cluster.stop_broker(4)
    await cluster.write(brokers.unregister, admin_pb2.UnregisterBrokerRequest(broker_id=4))


async def directory_of_the_adder_fails(cluster: Any) -> None:
    """It is the broker's only directory."""
    [log_dir] = cluster.broker(4).log_dirs
    await cluster.heartbeat(4, offline_log_dirs=(log_dir,))


async def partitions_are_added(cluster: Any) -> None:
    request = admin_pb2.CreatePartitionsRequest(topics=[{"name": "t", "count": 2}])
    response = await cluster.write(create_partitions, request)
    assert response.results[0].error_code == 0
    assert len(cluster.partition("t", 1).replicas) == 3, "as many as the target has, not as the merged list"


FAULTS: dict[str, tuple[Step, bool]] = {
    "the leader dies": (leader_dies, True),
    "an adder dies": (adder_dies, True),
    "an adder is unregistered": (adder_is_unregistered, False),
    "the directory of an adder fails": (directory_of_the_adder_fails, False),
    "partitions are added": (partitions_are_added, True),
}
"""Fault → its action, and True if it heals when all brokers come back."""


async def fail_over(cluster: Any) -> None:
    await cluster.lose_leadership(survives=True)
    await cluster.lead()


async def play(cluster: Any, fault: Step, at: int) -> None:
    await cluster.create("t", ORIGINAL)
    for index, step in enumerate(STEPS[: at + 1]):
        await step(cluster)
        if index == at:
            await fault(cluster)
        await fail_over(cluster)


@pytest.mark.parametrize("at", range(len(STEPS)))
@pytest.mark.parametrize("name", [name for name, (_, heals) in FAULTS.items() if heals])
async def test_it_goes_on_when_the_fault_is_over(five: Any, name: str, at: int) -> None:
    await play(five, FAULTS[name][0], at)
    for broker_id in range(5):
        if five.broker(broker_id).fenced:
            await five.heartbeat(broker_id)
    for step in STEPS[at + 1 :]:
        await step(five)
        await fail_over(five)
    await all_are_in_sync(five)
    state = five.partition("t")
    assert (state.replicas, state.is_reassigning) == (TARGET, False)
    assert state.leader in TARGET
    assert five.listed() == []


@pytest.mark.parametrize("at", range(len(STEPS) - 1))
@pytest.mark.parametrize("name", FAULTS)
async def test_it_can_be_cancelled_with_the_fault_there(five: Any, name: str, at: int) -> None:
    await play(five, FAULTS[name][0], at)
    assert five.partition("t").is_reassigning
    assert (await five.reassign("t", None))[0] == 0
    state = five.partition("t")
    assert (state.replicas, state.is_reassigning) == (ORIGINAL, False)
    assert state.leader in ORIGINAL
    assert not five.controller.newest.image.moves.running


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("an adder dies", "FENCED"),
        ("an adder is unregistered", "UNREGISTERED"),
        ("the directory of an adder fails", "FENCED"),
    ],
)
async def test_the_listing_names_the_blocker(five: Any, name: str, state: str) -> None:
    await play(five, FAULTS[name][0], 1)
    observer = Observer(None, five.clock.now_ms, five.settings)
    listed = listing(five.controller.committed, admin_pb2.ListPartitionReassignmentsRequest(), observer)
    [blocker] = listed.topics[0].partitions[0].blockers
    assert (blocker.broker_id, blocker.state) == (4, state)


@pytest.mark.parametrize("name", ["an adder is unregistered", "the directory of an adder fails"])
async def test_another_target_gets_it_going_again(five: Any, name: str) -> None:
    await play(five, FAULTS[name][0], 1)
    assert (await five.reassign("t", (2, 3, 0)))[0] == 0
    state = five.partition("t")
    assert (state.replicas, state.is_reassigning) == ((2, 3, 0), False), "all of it was in sync"


async def test_a_retry_after_an_unknown_outcome_does_no_harm(five: Any) -> None:
    await five.create("t", ORIGINAL)
    request = admin_pb2.AlterPartitionReassignmentsRequest()
    entry = request.topics.add(name="t").partitions.add(partition_index=0)
    entry.replicas.values.extend(TARGET)
    answer = five.controller.write("test", lambda state, context: reassignments.alter(state, request, context))
    await five.lose_leadership(survives=True)
    assert answer.error is not None and answer.error.code == 41
    await five.lead()
    epoch = five.partition("t").partition_epoch
    assert (await five.reassign("t", TARGET))[0] == 0
    assert five.partition("t").partition_epoch == epoch, "it was there already"
    assert (await five.reassign("t", None))[0] == 0
    assert (await five.reassign("t", None))[0] == 85
