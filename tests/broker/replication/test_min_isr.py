"""The high watermark and produce requests while the in-sync set is small (KIP-966)."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import UNASSIGNED
from kraftlab.metadata.peer_rpc import ProduceRequest
from kraftlab.metadata.records import RESOURCE_BROKER, RESOURCE_TOPIC, Config, FeatureLevel

from ...helpers.waiting import eventually
from ..conftest import batch

NOT_ENOUGH_REPLICAS = 19
MOVING_TO_3 = {
    "replicas": (3, 0, 1),
    "directories": (bytes(16),) * 3,
    "adding_replicas": (3,),
    "removing_replicas": (0, 1),
    "original_replicas": (0, 1),
    "target_replicas": (3,),
}


@pytest.fixture
async def trio_of(world: Any) -> Any:
    """Topic `t` on brokers 0 (leader), 1 and 2, which broker 0's own configuration would let write to one replica."""
    for broker_id in (0, 1, 2):
        await world.add_broker(broker_id, min_insync_replicas="1")
    await world.create_topic("t", [0, 1, 2])
    return world


async def shrink_to_leader(world: Any) -> None:
    world.unreachable.add(0)
    await world.change("t", 0, isr=(0,))


@pytest.mark.parametrize(
    ("resource_type", "name"), [(RESOURCE_TOPIC, "t"), (RESOURCE_BROKER, "")], ids=["topic", "default of the cluster"]
)
async def test_the_high_watermark_does_not_move_while_the_isr_is_below_the_replicated_minimum(
    autojump_clock: Any, trio_of: Any, resource_type: int, name: str
) -> None:
    await trio_of.commit(FeatureLevel(0, "eligible.leader.replicas.version", 1))
    await trio_of.configure(resource_type, name, min_insync_replicas="2")
    await trio_of.configure(RESOURCE_BROKER, "0", min_insync_replicas="1")
    leader = trio_of.brokers[0]
    assert (await leader.produce("t", 0, batch())).error == 0
    await shrink_to_leader(trio_of)
    assert (await leader.produce("t", 0, batch())).error == NOT_ENOUGH_REPLICAS
    assert (await leader.produce("t", 0, batch(), acks=1)).error == 0
    await trio.sleep(0.5)
    assert (leader.log("t", 0).high_watermark, leader.log("t", 0).log_end_offset) == (1, 2)
    await trio_of.configure(resource_type, name, min_insync_replicas="1")
    await leader.produce("t", 0, batch(), acks=1)
    assert leader.log("t", 0).high_watermark == 3


async def test_a_smaller_isr_counts_with_the_minimum_of_its_place_in_the_log(autojump_clock: Any, trio_of: Any) -> None:
    """The controller's answer may come before the metadata, in which the minimum was raised just before."""
    await trio_of.commit(FeatureLevel(0, "eligible.leader.replicas.version", 1))
    leader = trio_of.brokers[0]
    await eventually(lambda: UNASSIGNED not in leader.partition("t", 0).state.directories, "every replica has its directory")
    async with trio_of.hold_publications():
        trio_of.append(Config(0, RESOURCE_TOPIC, "t", "min.insync.replicas", "3"))
        trio_of.unreachable.add(0)
        assert (await leader.produce("t", 0, batch(), acks=1)).error == 0
        await eventually(lambda: trio_of.state("t", 0).isr == (0,), "the controller has dropped the others")
        await trio.sleep(0.1)
        assert leader.log("t", 0).high_watermark == 0
    await eventually(lambda: leader.partition("t", 0).state.isr == (0,), "the metadata has arrived")
    assert leader.log("t", 0).high_watermark == 0


async def test_without_eligible_leader_replicas_the_brokers_own_configuration_counts(autojump_clock: Any, trio_of: Any) -> None:
    await trio_of.configure(RESOURCE_BROKER, "", min_insync_replicas="3")
    await trio_of.configure(RESOURCE_BROKER, "0", min_insync_replicas="1")
    await shrink_to_leader(trio_of)
    assert (await trio_of.brokers[0].produce("t", 0, batch())).error == 0


async def test_replicas_that_are_being_added_do_not_raise_the_minimum(autojump_clock: Any, trio_of: Any) -> None:
    """The set that a move began with counts, also if the move has replaced another."""
    await trio_of.add_broker(3)
    await trio_of.create_topic("u", [0, 1])
    await trio_of.configure(RESOURCE_TOPIC, "u", min_insync_replicas="5")
    await trio_of.fence(3, fenced=True)
    trio_of.unreachable.add(3)
    await trio_of.change("u", 0, **MOVING_TO_3)
    assert (await trio_of.brokers[0].produce("u", 0, batch())).error == 0
    trio_of.unreachable.add(0)
    await trio_of.change("u", 0, isr=(0,))
    assert (await trio_of.brokers[0].produce("u", 0, batch())).error == NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("timeout_ms", [-(2**63), -(2**31), -1, 0])
async def test_a_produce_without_time_is_written_and_times_out(autojump_clock: Any, trio_of: Any, timeout_ms: int) -> None:
    """As in Kafka: the wait for the in-sync replicas ends at once, unless they have the records already."""
    leader = trio_of.brokers[0]
    topic_id = trio_of.image.topics.by_name["t"]
    answer = await leader.data_plane.produce(ProduceRequest(topic_id, 0, -1, timeout_ms, batch()))
    assert (answer.error, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    await eventually(lambda: leader.log("t", 0).high_watermark == 1, "the record is replicated")
