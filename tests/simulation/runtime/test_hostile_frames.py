"""Real drivers, controllers and brokers on a mock clock, and a stranger's frames at every port: the cluster goes on as it was."""

from __future__ import annotations

import random

import trio

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.endpoint import Endpoint
from kraftlab.simulation.runtime.cluster import RuntimeCluster
from kraftlab.simulation.runtime.hostile_frames import VICTIM, Target, frames_for_broker, frames_for_controller
from kraftlab.simulation.runtime.machine import Machine, run_seed
from kraftlab.simulation.runtime.memory_network import Place

READY_WITHIN_S = 30.0
ROUNDS = 2


async def until_ready(cluster: RuntimeCluster) -> None:
    with trio.fail_after(READY_WITHIN_S):
        while cluster.lacking():  # noqa: ASYNC110 - what is waited for happens in the nodes
            await trio.sleep(0.05)


async def send(place: Place, at: Endpoint, frame: bytes) -> None:
    """Send one frame over a connection of its own, and wait for an answer or the end of the connection."""
    wire = await place.connect(at)
    try:
        wire.send(frame)
        with trio.move_on_after(1):
            await wire.wait_readable()
    finally:
        wire.close()


async def create(cluster: RuntimeCluster, name: str) -> pb.CreateTopicsResponse:
    topic = pb.CreatableTopic(name=name, num_partitions=1, replication_factor=2)
    response: pb.CreateTopicsResponse = await cluster.ask_leader("CreateTopics", pb.CreateTopicsRequest(topics=[topic]), 5_000)
    return response


async def attacked(machine: Machine) -> None:
    cluster = RuntimeCluster(3, 2, {}, lambda name: random.Random(f"hostile/{name}"), machine.held, machine.directory)
    with cluster.log_dir_disks.watching():
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.run)
            await until_ready(cluster)
            leader = cluster.leader()
            assert leader is not None
            place = Place(cluster.network, -1, random.Random("stranger"))
            target = Target(cluster.cluster_id, cluster.controller_ids, cluster.broker_ids, leader.epoch)
            for number in range(ROUNDS):
                for node in cluster.node_ids:
                    frames = frames_for_controller if node in cluster.controller_ids else frames_for_broker
                    for frame in frames(target, node):
                        await send(place, Endpoint("127.0.0.1", 10_000 + node), frame)
                assert (await create(cluster, f"round-{number}")).topics[0].error_code == 0
            await until_ready(cluster)
            assert cluster.exits == []
            assert cluster.leader() == leader
            created = await create(cluster, VICTIM)
            assert created.topics[0].error_code == 0, "no stranger has created it"
            nursery.cancel_scope.cancel()


def test_a_stranger_at_every_port_ends_no_node_and_changes_no_epoch() -> None:
    run_seed("hostile", attacked)
