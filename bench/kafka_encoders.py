"""Time to encode large responses of the Kafka protocol: by kio, and by the generated encoders of `gateway/generated`.

Both write the same bytes. A partition of Metadata has three replicas on twelve brokers; a fetched partition has 1,000 bytes of
records. *make* is building the objects or values that are then encoded. Times are the best of several runs. The encoders start
each run without lists of replicas that they have encoded before.
"""

from __future__ import annotations

import datetime
import importlib
import io
import itertools
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import click
import msgspec
import trio
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from kraftlab.gateway.generated import fetch_response, metadata_response
from kraftlab.gateway.primitives import COMPACT_INT32_LISTS
from kraftlab.wire.parts import Part, in_memory

from .measure import NoResult, Report, measurement, table

T = TypeVar("T")
TOPIC_ID = bytes(range(16))
REPLICAS = tuple(itertools.permutations(range(12), 3))
METADATA_VERSION, FETCH_VERSION = 12, 17
# kio has types of its own for numbers, which are not worth a conversion each here.
kio_metadata = importlib.import_module(f"kio.schema.metadata.v{METADATA_VERSION}.response")
kio_fetch = importlib.import_module(f"kio.schema.fetch.v{FETCH_VERSION}.response")
RECORDS = bytes(1000)
NO_TIME = datetime.timedelta()


class EncoderResult(msgspec.Struct, frozen=True):
    """Milliseconds for one response, and kio's time as a multiple of the generated encoder's."""

    response: str
    kio_make_ms: float
    kio_ms: float
    generated_make_ms: float
    generated_ms: float
    ratio: float


def kio_metadata_response(partitions: int) -> object:
    def partition(index: int) -> object:
        replicas = REPLICAS[index % len(REPLICAS)]
        return kio_metadata.MetadataResponsePartition(
            error_code=ErrorCode.none,
            partition_index=index,
            leader_id=replicas[0],
            leader_epoch=3,
            replica_nodes=replicas,
            isr_nodes=replicas,
        )

    topic = kio_metadata.MetadataResponseTopic(
        error_code=ErrorCode.none,
        name="orders",
        topic_id=uuid.UUID(bytes=TOPIC_ID),
        partitions=tuple(partition(index) for index in range(partitions)),
    )
    return kio_metadata.MetadataResponse(throttle_time=NO_TIME, brokers=(), topics=(topic,))


def metadata_value(partitions: int) -> metadata_response.MetadataResponse:
    def partition(index: int) -> metadata_response.MetadataResponsePartition:
        replicas = REPLICAS[index % len(REPLICAS)]
        return metadata_response.MetadataResponsePartition(
            partition_index=index, leader_id=replicas[0], leader_epoch=3, replica_nodes=replicas, isr_nodes=replicas
        )

    found = [partition(index) for index in range(partitions)]
    topic = metadata_response.MetadataResponseTopic(name="orders", topic_id=TOPIC_ID, partitions=found)
    return metadata_response.MetadataResponse(topics=(topic,))


def kio_fetch_response(partitions: int) -> object:
    found = tuple(
        kio_fetch.PartitionData(
            partition_index=index,
            error_code=ErrorCode.none,
            high_watermark=100,
            last_stable_offset=100,
            log_start_offset=0,
            aborted_transactions=(),
            records=RECORDS,
        )
        for index in range(partitions)
    )
    topic = kio_fetch.FetchableTopicResponse(topic_id=uuid.UUID(bytes=TOPIC_ID), partitions=found)
    return kio_fetch.FetchResponse(throttle_time=NO_TIME, error_code=ErrorCode.none, responses=(topic,))


def fetch_value(partitions: int) -> fetch_response.FetchResponse:
    found = [
        fetch_response.PartitionData(
            partition_index=index, high_watermark=100, last_stable_offset=100, log_start_offset=0, records=RECORDS
        )
        for index in range(partitions)
    ]
    return fetch_response.FetchResponse(responses=(fetch_response.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=found),))


def by_kio(entity: object) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)  # type: ignore[type-var]
    return buffer.getvalue()


def best_ms(work: Callable[[], object], runs: int) -> float:
    """Return the milliseconds of the fastest of several runs."""
    found = []
    for _ in range(runs):
        COMPACT_INT32_LISTS.clear()
        begun = time.perf_counter()
        work()
        found.append((time.perf_counter() - begun) * 1000)
    return min(found)


def measure(
    name: str, kio_make: Callable[[], object], make: Callable[[], T], encode: Callable[[T], list[Part]], runs: int
) -> EncoderResult:
    """Measure one response. NoResult if both encoders write different bytes."""
    entity, value = kio_make(), make()
    if trio.run(in_memory, encode(value)) != by_kio(entity):
        raise NoResult(f"{name}: the generated encoder and kio write different bytes; run tests/gateway/test_encoders.py")
    works = (kio_make, lambda: by_kio(entity), make, lambda: encode(value))
    kio_make_ms, kio_ms, generated_make_ms, generated_ms = (best_ms(work, runs) for work in works)
    return EncoderResult(name, kio_make_ms, kio_ms, generated_make_ms, generated_ms, kio_ms / generated_ms)


def measure_all(runs: int) -> list[EncoderResult]:
    metadata = [
        measure(
            f"Metadata, {partitions:,} partitions",
            partial(kio_metadata_response, partitions),
            partial(metadata_value, partitions),
            lambda value: metadata_response.encode(value, METADATA_VERSION),
            runs,
        )
        for partitions in (1_000, 10_000)
    ]
    fetch = measure(
        "Fetch, 100 partitions",
        partial(kio_fetch_response, 100),
        partial(fetch_value, 100),
        lambda value: fetch_response.encode(value, FETCH_VERSION),
        runs,
    )
    return [*metadata, fetch]


def render(results: list[EncoderResult]) -> str:
    rows = [["response", "kio: make", "encode", "generated: make", "encode", "kio / generated"]]
    for result in results:
        times = (result.kio_make_ms, result.kio_ms, result.generated_make_ms, result.generated_ms)
        rows.append([result.response, *(f"{each:.2f} ms" for each in times), f"{result.ratio:.1f}"])
    return table(rows)


@measurement("kafka-encoders", __doc__, quick="3 runs of each")
@click.option("--runs", type=int, help="runs of each response (default 20)")
def main(quick: bool, runs: int | None) -> Report:
    results = measure_all(runs or (3 if quick else 20))
    return Report([{"kafka_encoders": result} for result in results], render(results))
