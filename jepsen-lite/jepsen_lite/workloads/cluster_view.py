"""Brokers as DescribeCluster shows them: their epochs are what requests about brokers have to name."""

from __future__ import annotations

from typing import NamedTuple

from kraftlab.admin.v1 import admin_pb2 as pb

from ..workload import Port, Reply
from .admin import Caller


class SeenBrokers(NamedTuple):
    """`epochs` has every registered broker; `fenced` those of them that are."""

    reply: Reply
    epochs: dict[int, int]
    fenced: tuple[int, ...]


async def seen_brokers(caller: Caller, port: Port, *, local: bool = False) -> SeenBrokers:
    """What a cluster has for brokers, fenced ones included. CallFailed."""
    request = pb.DescribeClusterRequest(include_fenced_brokers=True)
    reply = await caller.read(port, "DescribeCluster", request, local=local)
    brokers = reply.response.brokers
    epochs = {broker.broker_id: broker.broker_epoch for broker in brokers}
    return SeenBrokers(reply, epochs, tuple(sorted(broker.broker_id for broker in brokers if broker.is_fenced)))
