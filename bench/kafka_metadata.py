"""Time of a broker to answer Metadata about 10,000 partitions over the Kafka protocol, and the longest pause of its event loop.

The answer is made from an image in memory, and encoded. *first*: no topic was encoded before; *again*: the same request again.
Partitions have three replicas on four brokers with two log directories each. Medians; the pause is the longest of all runs.
"""

from __future__ import annotations

import random
import struct
import time

import click
import immutables
import msgspec
import trio

from kraftlab.access.authorizer import AccessSettings, Rights
from kraftlab.gateway.codec import decode_request, encode_response
from kraftlab.gateway.metadata import MetadataCalls
from kraftlab.metadata.image import BrokerImage, ClusterImage, MetadataImage, PartitionImage, TopicImage, TopicsImage
from kraftlab.metadata.records import Listener
from kraftlab.rpc.caller import Caller
from kraftlab.wire.parts import part_bytes

from .measure import Report, measurement, percentile, table

PARTITIONS, BROKERS = 10_000, 4
TOPICS = (1, 100, 2_500)
REQUEST = struct.pack(">hhih", 3, 12, 1, -1) + b"\0" + b"\0\1\0\0"
"""Metadata version 12 about all topics."""


class MetadataResult(msgspec.Struct, frozen=True):
    """Milliseconds of one number of topics."""

    topics: int
    answer_bytes: int
    first_ms: float
    again_ms: float
    pause_ms: float


def measure(topics: int, runs: int) -> MetadataResult:
    return trio.run(_measure, topics, runs)


async def _measure(topics: int, runs: int) -> MetadataResult:
    image = _image(topics)
    request = decode_request(REQUEST)
    first, again, pauses, size = [], [], [], 0
    for _ in range(runs):
        calls = MetadataCalls(
            *(0, "bench", lambda: image), lambda user, host: Rights(user, host, AccessSettings(), None), lambda: None
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, pauses)
            await trio.lowlevel.checkpoint()
            for times in (first, again):
                began = time.perf_counter()
                answer = encode_response(request.header, await calls.metadata(request, Caller("User:ANONYMOUS", "127.0.0.1")))
                times.append((time.perf_counter() - began) * 1000)
                size = part_bytes(answer)
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    return MetadataResult(topics, size, percentile(first, 50), percentile(again, 50), max(pauses))


async def _watch(pauses: list[float]) -> None:
    """Note the time between two turns of the event loop."""
    while True:
        began = time.perf_counter()
        await trio.lowlevel.checkpoint()
        pauses.append((time.perf_counter() - began) * 1000)


def _image(topics: int) -> MetadataImage:
    chance = random.Random(1)
    directories = {broker: [bytes([broker, directory]) * 8 for directory in (1, 2)] for broker in range(BROKERS)}

    def partition() -> PartitionImage:
        replicas = tuple(chance.sample(range(BROKERS), 3))
        return PartitionImage(replicas, tuple(chance.choice(directories[each]) for each in replicas), replicas, replicas[0], 3)

    named = [
        TopicImage(
            f"topic-{number:05}",
            number.to_bytes(16, "big"),
            immutables.Map({index: partition() for index in range(PARTITIONS // topics)}),
        )
        for number in range(topics)
    ]
    brokers = {
        broker: BrokerImage(
            *(broker, 1, bytes(16), (Listener("KAFKA", "127.0.0.1", 9000 + broker),), (), None, False, False),
            *(tuple(directories[broker]), 1),
        )
        for broker in range(BROKERS)
    }
    by_id = immutables.Map({topic.topic_id: topic for topic in named})
    by_name = immutables.Map({topic.name: topic.topic_id for topic in named})
    return MetadataImage(cluster=ClusterImage(brokers=immutables.Map(brokers)), topics=TopicsImage(by_id, by_name))


def render(results: list[MetadataResult]) -> str:
    rows = [["topics", "answer", "first", "again", "longest pause"]]
    rows += [
        [
            str(result.topics),
            f"{result.answer_bytes / 1000:.0f} kB",
            *(f"{value:.1f} ms" for value in (result.first_ms, result.again_ms, result.pause_ms)),
        ]
        for result in results
    ]
    return table(rows)


@measurement("kafka-metadata", __doc__, quick="3 runs.")
@click.option("--runs", type=int, help="Number of runs (default 15).")
def main(quick: bool, runs: int | None) -> Report:
    results = [measure(topics, runs or (3 if quick else 15)) for topics in TOPICS]
    return Report([{"kafka-metadata": results}], render(results))
