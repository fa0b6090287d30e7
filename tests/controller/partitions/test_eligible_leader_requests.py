"""Eligible leader replicas of a running controller (KIP-966): the minimum, fences, elections, and the feature's switch."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.controller.configs import features
from kraftlab.controller.engine.state import QuorumFacts
from kraftlab.metadata import eligible_leaders
from kraftlab.metadata.eligible_leaders import effective_min_isr, min_insync_replicas, partition_min_isr
from kraftlab.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftlab.metadata.records import RESOURCE_BROKER, RESOURCE_TOPIC

SET = 0
MIN_ISR = "min.insync.replicas"


def standing(cluster: Any, name: str = "t") -> tuple[tuple[int, ...], int, tuple[int, ...], tuple[int, ...]]:
    """(ISR, leader, ELR, last known leader)."""
    partition = cluster.partition(name)
    return partition.isr, partition.leader, partition.elr, partition.last_known_elr


@pytest.mark.parametrize(("configured", "factor", "expected"), [(5, 3, 3), (2, 3, 2), (3, 3, 3), (1, 3, 1)])
def test_the_minimum_is_capped_by_the_replication_factor(configured: int, factor: int, expected: int) -> None:
    assert effective_min_isr(configured, tuple(range(factor)), ()) == expected
    assert effective_min_isr(configured, tuple(range(9)), tuple(range(factor))) == expected, "of a move the set it began with"


async def test_the_minimum_comes_from_the_topic_or_else_from_the_clusters_default(five: Any) -> None:
    await five.create("own", (0, 1, 2), min_insync_replicas="5")
    await five.create("other", (0, 1, 2))
    await five.configure(RESOURCE_BROKER, "", (MIN_ISR, SET, "2"))
    image = five.controller.committed.image
    assert (min_insync_replicas(image, "own"), min_insync_replicas(image, "other")) == (5, 2)
    assert partition_min_isr(five.partition("own"), 5) == 3


async def test_a_shrink_below_the_minimum_fills_the_elr_and_growth_clears_it(five: Any) -> None:
    await five.create("t", (0, 1, 2), min_insync_replicas="3")
    assert await five.set_isr("t", (0, 1)) == 0
    assert standing(five) == ((0, 1), 0, (2,), ())
    assert await five.set_isr("t", (0,)) == 0
    assert standing(five) == ((0,), 0, (1, 2), ())
    assert await five.set_isr("t", (0, 1, 2)) == 0
    assert standing(five) == ((0, 1, 2), 0, (), ())


async def test_fences_and_restarts_one_after_the_other(five: Any) -> None:
    await five.create("t", (0, 1, 2, 3), min_insync_replicas="3")
    seen = []
    for broker_id in (2, 3, 1):
        await five.stop_broker(broker_id)
        seen.append(standing(five))
    for broker_id in (3, 0):
        await five.register(broker_id, 2)
        seen.append(standing(five))
    assert seen == [
        ((0, 1, 3), 0, (), ()),
        ((0, 1), 0, (3,), ()),
        ((0,), 0, (1, 3), ()),
        ((0,), 0, (1,), ()),
        ((), -1, (1,), (0,)),
    ]
    await five.heartbeat(0)
    assert standing(five) == ((), -1, (1,), (0,)), "somebody is eligible, and is waited for"
    await five.heartbeat(1)
    assert standing(five) == ((1,), 1, (), ())
    assert five.partition("t").leader_recovery_state == 0


@pytest.mark.parametrize(
    ("resource_type", "name"), [(RESOURCE_TOPIC, "t"), (RESOURCE_BROKER, "")], ids=["of the topic", "of the cluster"]
)
async def test_another_minimum_clears_the_eligible_leader_replicas(five: Any, resource_type: int, name: str) -> None:
    """With a lower minimum the leader may commit records that those replicas do not have."""
    await five.configure(RESOURCE_BROKER, "", (MIN_ISR, SET, "2"))
    await five.create("t", (0, 1))
    await five.create("down", (2,))
    await five.stop_broker(1)
    await five.stop_broker(2)
    assert (standing(five)[2], standing(five, "down")[2]) == ((1,), (2,))
    assert await five.configure(resource_type, name, (MIN_ISR, SET, "1")) == (0, "")
    assert standing(five) == ((0,), 0, (), ())
    assert standing(five, "down") == ((), -1, (2,), (2,)), "nothing is committed there, so nothing is missed"


async def switch_off(cluster: Any) -> None:
    request = admin_pb2.UpdateFeaturesRequest()
    request.feature_updates.add(feature=ELIGIBLE_LEADER_REPLICAS_VERSION, max_version_level=0, upgrade_type=2)
    quorum = QuorumFacts((), 1)
    await cluster.write(
        lambda state, request, context: features.update(state, request, context._replace(quorum=lambda: quorum)), request
    )
    assert not eligible_leaders.are_on(cluster.controller.committed.image)


async def test_switched_off_the_last_member_of_the_isr_stays(five: Any) -> None:
    await five.create("t", (0, 1), min_insync_replicas="2")
    await five.create("down", (2,))
    await five.stop_broker(2)
    await switch_off(five)
    for broker_id in (1, 0):
        await five.stop_broker(broker_id)
    assert standing(five) == ((0,), -1, (), ())
    await five.heartbeat(2)
    assert standing(five, "down") == ((2,), 2, (), ()), "it was eligible when that was switched off"
