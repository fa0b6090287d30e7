"""A running broker that has missed much of the metadata and takes one large step, to the image of a snapshot."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from kraftlab.broker.control.metadata_publisher import Publication
from kraftlab.broker.replication.replica_errors import ReplicaError
from kraftlab.metadata.changes import changes_between
from kraftlab.metadata.records import RESOURCE_BROKER, RESOURCE_TOPIC
from kraftlab.metadata.snapshot import ImageSnapshot, image_from

from ...helpers.waiting import eventually
from ..conftest import batch, same_data


async def cut_off(world: Any, broker: Any) -> None:
    """From now on the broker hears nothing of the metadata."""
    world.brokers.pop(broker.broker_id)


async def load_snapshot(world: Any, broker: Any) -> None:
    """The broker gets what it missed as a snapshot would bring it: an image that shares nothing with its own."""
    loaded = image_from(body for body, _ in ImageSnapshot(world.image).batches())
    image = msgspec.structs.replace(loaded, provenance=world.image.provenance)
    before = broker.replicas.image
    world.brokers[broker.broker_id] = broker
    await broker.publish(Publication(before, image, changes_between(before, image), False))


async def test_topics_that_came_and_went_meanwhile(autojump_clock: Any, world: Any) -> None:
    a, b = await world.add_brokers(2)
    gone = await world.create_topic("gone", [0, 1])
    again = await world.create_topic("again", [0, 1])
    await world.create_topic("kept", [0, 1])
    for topic in ("gone", "again", "kept"):
        await a.produce(topic, 0, batch(3))
    await cut_off(world, b)
    await world.delete_topic("gone")
    await world.delete_topic("again")
    renewed = await world.create_topic("again", [0, 1])
    await world.create_topic("new", [0, 1], [1, 0])
    await load_snapshot(world, b)
    for topic_id in (gone, again):
        with pytest.raises(ReplicaError):
            b.replicas.hosted((topic_id, 0))
    assert b.replicas.hosted((renewed, 0)).log.log_end_offset == 0, "nothing of its predecessor of the same name"
    answer = await a.produce("again", 0, batch(2))
    await a.produce("kept", 0, batch(2))
    await b.produce("new", 1, batch(1))
    await eventually(lambda: b.log("again", 0).log_end_offset == answer.log_end_offset, "it follows the renewed topic")
    await eventually(lambda: same_data("kept", 0, [a, b]), "and the one that stayed")
    await eventually(lambda: same_data("new", 1, [a, b]), "and leads a new one")


async def test_replicas_and_leaderships_that_moved_meanwhile(autojump_clock: Any, world: Any) -> None:
    a, b, c = await world.add_brokers(3)
    await world.create_topic("led", [2, 0])
    left = await world.create_topic("left", [2, 0])
    await world.create_topic("joined", [0, 1])
    await c.produce("led", 0, batch(3))
    await c.produce("left", 0, batch(3))
    await a.produce("joined", 0, batch(3))
    await cut_off(world, c)
    await world.change("led", 0, leader=0, isr=(0,))
    await world.change("left", 0, replicas=(0,), isr=(0,), leader=0, directories=(world.state("left", 0).directories[1],))
    await world.change("joined", 0, replicas=(0, 1, 2), directories=(*world.state("joined", 0).directories, bytes(16)))
    await a.produce("led", 0, batch(1), acks=1)
    await load_snapshot(world, c)
    with pytest.raises(ReplicaError):
        c.replicas.hosted((left, 0))
    await eventually(lambda: same_data("led", 0, [a, c]), "the old leader follows")
    await eventually(lambda: same_data("joined", 0, [a, b, c]), "a replica that came is filled")


async def test_configs_that_changed_meanwhile(autojump_clock: Any, world: Any) -> None:
    a = await world.add_broker(0)
    await world.create_topic("t", [0])
    await world.configure(RESOURCE_TOPIC, "t", segment_bytes="2000000")
    await world.configure(RESOURCE_BROKER, "0", **{"leader.replication.throttled.rate": "1000"})
    assert a.configs.leader_gate.is_limited
    await cut_off(world, a)
    await world.configure(RESOURCE_TOPIC, "t", segment_bytes=None)
    await world.configure(RESOURCE_TOPIC, "t", retention_bytes="5000000")
    await world.configure(RESOURCE_BROKER, "0", **{"leader.replication.throttled.rate": None})
    await load_snapshot(world, a)
    assert not a.configs.leader_gate.is_limited
    assert a.configs.topic("t", "segment.bytes") != "2000000"
    assert a.log("t", 0).config.retention_bytes == 5_000_000


async def test_a_broker_that_changed_its_address_meanwhile_is_followed_there(autojump_clock: Any, world: Any) -> None:
    a, b = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await a.produce("t", 0, batch(1))
    await cut_off(world, b)
    a.crash()
    await trio.sleep(1)
    await a.restart()
    await world.change("t", 0, leader=0)
    await a.produce("t", 0, batch(1), acks=1)
    await load_snapshot(world, b)
    assert b.replicas.registered_epoch(0) == a.epoch
    await eventually(lambda: same_data("t", 0, [a, b]), "it follows the new incarnation")
