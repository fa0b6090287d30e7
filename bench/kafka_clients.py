"""Existing Kafka clients on three controllers and three brokers, beside Apache Kafka 4.3 on the same machine where it can run.

- create, alter, describe: one call after the other by kafka-python's admin client; median.
- changes: IncrementalAlterConfigs of one key with 64 in flight, each on a connection of its own, over all brokers.
- produce, consume: confluent-kafka, records of 1 KiB without compression, 3 partitions with 3 replicas, acks=all.
- idle: growth of one broker's memory with 500 connections that have sent one request, and of its share of a processor.

The clients run on the same processors as the nodes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
import trio

from kraftlab.gateway.client_codec import encode_request
from kraftlab.lab import LocalCluster
from kraftlab.messages.generated import incremental_alter_configs_request as kafka

from . import real_kafka
from .measure import Report, measurement, percentile, table

CONTROLLERS, BROKERS = 3, 3
IN_FLIGHT = 64
RECORD = b"x" * 1024
PARTITIONS = 3
WARM_UP_RECORDS = 20_000
IDLE_CONNECTIONS = 500
TOPIC_TIMEOUT_S = 30


class ClientsResult(msgspec.Struct, frozen=True):
    """Figures of one system. Times are milliseconds, rates MiB/s; `idle_mib` and `idle_processor` (a share) of a broker."""

    system: str
    create_ms: float
    alter_ms: float
    describe_ms: float
    changes_per_s: float
    produce_mib_per_s: float
    consume_mib_per_s: float
    idle_mib: float | None = None
    idle_processor: float | None = None


def measure(system: str, bootstrap: str, calls: int, seconds: float, records: int) -> ClientsResult:
    create_ms, alter_ms, describe_ms = _admin_calls(bootstrap, calls)
    changes = trio.run(_changes, bootstrap, seconds)
    produced, consumed = _data(bootstrap, records)
    return ClientsResult(system, create_ms, alter_ms, describe_ms, changes, produced, consumed)


# --- admin calls ----------------------------------------------------------------------------------------------------------


def _admin_calls(bootstrap: str, calls: int) -> tuple[float, float, float]:
    """Median time of creating, altering and describing a topic."""
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        _created(admin, NewTopic("warm-up", 1, 3))

        def alter(number: int) -> None:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "warm-up", {"retention.ms": str(10**6 + number)})])

        return (
            _median_ms(calls, lambda number: admin.create_topics([NewTopic(f"created-{number}", 1, 3)])),
            _median_ms(calls, alter),
            _median_ms(calls, lambda number: admin.describe_topics(["warm-up"])),
        )
    finally:
        admin.close()


def _created(admin: Any, topic: Any) -> None:
    """Create a topic, again and again while too few brokers are there."""
    deadline = time.monotonic() + TOPIC_TIMEOUT_S
    while True:
        try:
            admin.create_topics([topic])
            return
        except Exception:  # kafka-python raises a class for each code
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _median_ms(calls: int, call: Callable[[int], object]) -> float:
    times = []
    for number in range(calls):
        began = time.perf_counter()
        call(number)
        times.append((time.perf_counter() - began) * 1000)
    return percentile(times, 50)


# --- changes in flight ----------------------------------------------------------------------------------------------------


async def _changes(bootstrap: str, seconds: float) -> float:
    """Committed changes per second, over one connection for each change in flight."""
    done = 0
    servers = itertools.cycle(bootstrap.split(","))
    deadline = trio.current_time() + seconds

    async def run(number: int, server: str) -> None:
        nonlocal done
        host, _, port = server.rpartition(":")
        stream = await trio.open_tcp_stream(host, int(port))
        buffer = bytearray()
        for value in itertools.count():
            await stream.send_all(_change(10**6 + number * 10**6 + value))
            while len(buffer) < 4 or len(buffer) < 4 + struct.unpack(">i", buffer[:4])[0]:
                buffer += await stream.receive_some(65536)
            buffer.clear()
            if trio.current_time() > deadline:
                return
            done += 1

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(IN_FLIGHT):
            nursery.start_soon(run, number, next(servers))
    return done / (trio.current_time() - began)


def _change(value: int) -> bytes:
    """Return a request that sets one key of one topic, with its length."""
    config = kafka.AlterableConfig(name="retention.ms", config_operation=0, value=str(value))
    resource = kafka.AlterConfigsResource(resource_type=2, resource_name="warm-up", configs=(config,))
    return encode_request(1, "bench", kafka.IncrementalAlterConfigsRequest(resources=(resource,)), 1)


# --- data -----------------------------------------------------------------------------------------------------------------


def _data(bootstrap: str, records: int) -> tuple[float, float]:
    """MiB/s of producing and of consuming."""
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    _created(admin, NewTopic("records", PARTITIONS, 3))
    admin.close()
    options = {"bootstrap.servers": bootstrap}
    produce(options, "records", WARM_UP_RECORDS)
    produced = records / 1024 / produce(options, "records", records)
    total = WARM_UP_RECORDS + records
    return produced, total / 1024 / consume(options, "records", total)


def produce(options: Mapping[str, str], topic: str, records: int, record: bytes = RECORD, partitions: int = PARTITIONS) -> float:
    """Produce records and wait until all are acknowledged; return the seconds. Options are those of confluent-kafka."""
    from confluent_kafka import Producer

    failures: list[object] = []

    def note(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({**options, "acks": "all", "linger.ms": 5, "batch.size": 1_000_000})
    began = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, record, partition=number // 1000 % partitions, on_delivery=note)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()
    assert not failures, f"{len(failures)} records were not acknowledged: {failures[0]}"
    return time.perf_counter() - began


def consume(options: Mapping[str, str], topic: str, total: int, partitions: int = PARTITIONS) -> float:
    """Read so many records from the beginning; return the seconds."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**options, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    read, began = 0, time.perf_counter()
    while read < total:
        read += sum(not message.error() for message in consumer.consume(10_000, 1.0))
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


# --- idle connections -----------------------------------------------------------------------------------------------------


def _idle(bootstrap: str, pid: int, seconds: float) -> tuple[float, float]:
    """Growth of a broker's memory in MiB with idle connections, and of the share of a processor that it uses."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    alone = _share(pid, seconds)
    versions = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    with contextlib.ExitStack() as stack:
        before = _memory_mib(pid)
        for _ in range(IDLE_CONNECTIONS):
            client = stack.enter_context(socket.create_connection((host, int(port))))
            client.sendall(versions)
            client.recv(65536)
        grown = _memory_mib(pid) - before
        return grown, _share(pid, seconds) - alone


def _share(pid: int, seconds: float) -> float:
    """Processor time of a process over the time that passed."""
    began, used = time.monotonic(), _processor_s(pid)
    time.sleep(seconds)
    return (_processor_s(pid) - used) / (time.monotonic() - began)


def _memory_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- report ---------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _kraftlab() -> Iterator[LocalCluster]:
    with (
        tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory,
        LocalCluster(directory, CONTROLLERS, BROKERS, 1) as cluster,
    ):
        yield cluster


def render(results: list[ClientsResult]) -> str:
    rows = [["", *(result.system for result in results)]]
    for name, text in (
        ("create a topic, p50", "create_ms"),
        ("alter a config, p50", "alter_ms"),
        ("describe a topic, p50", "describe_ms"),
        (f"changes, {IN_FLIGHT} in flight", "changes_per_s"),
        ("produce, acks=all", "produce_mib_per_s"),
        ("consume", "consume_mib_per_s"),
        (f"{IDLE_CONNECTIONS} idle connections", "idle_mib"),
        ("… processor", "idle_processor"),
    ):
        rows.append([name, *(_shown(text, getattr(result, text)) for result in results)])
    return table(rows)


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name == "idle_processor":
        return f"{value:.1%}"
    unit = "ms" if name.endswith("_ms") else "/s" if name.startswith("changes") else "MiB" if name == "idle_mib" else "MiB/s"
    return f"{value:,.1f} {unit}" if unit == "ms" else f"{value:,.0f} {unit}"


@measurement("kafka-clients", __doc__, quick="20 calls, 2 s and 20,000 records.")
@click.option("--calls", type=int, help="Admin calls of each kind (default 100).")
@click.option("--records", type=int, help="Records to produce (default 300,000).")
@click.option("--without-kafka", is_flag=True, help="Leave Apache Kafka out.")
def main(quick: bool, calls: int | None, records: int | None, without_kafka: bool) -> Report:
    sizes = calls or (20 if quick else 100), 2.0 if quick else 10.0, records or (20_000 if quick else 300_000)
    with _kraftlab() as cluster:
        found = measure("kraftlab", cluster.kafka_bootstrap_servers, *sizes)
    with _kraftlab() as cluster:
        pid = cluster.pid(cluster.plan.brokers[0].node_id)
        assert pid is not None
        grown, processor = _idle(cluster.kafka_bootstrap_servers, pid, sizes[1])
    results = [msgspec.structs.replace(found, idle_mib=grown, idle_processor=processor)]
    note = ""
    if without_kafka or not real_kafka.is_available():
        note = "" if without_kafka else f"\n{real_kafka.MISSING}"
    else:
        with real_kafka.running(CONTROLLERS, BROKERS) as bootstrap:
            results.append(measure("Apache Kafka 4.3", bootstrap, *sizes))
    return Report([{"kafka-clients": results}], render(results) + note)
