"""Doors 2 and 3: the admin API over gRPC, one call at a time and pipelined, on three controller processes on loopback.

A small write sets one key of one topic (IncrementalAlterConfigs) to a new value; the large one creates a topic with one partition
less than the wanted records, since the topic is a record too. The client is the one that programs use, in a process of its own
(this one): `AdminClient` with one thread per call in flight, `AdminClient.open_stream` with one.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient
from kraftlab.client.config_parts import config_changes
from kraftlab.client.entries import raise_first_error
from kraftlab.client.stream import CallStream
from kraftlab.config.resources import ResourceType
from kraftlab.lab import LocalCluster

from . import broker_stand_in
from .measure import CommitParameters, CommitResult

SYSTEM = "kraftlab"
UNARY_DOOR = "gRPC unary"
STREAM_DOOR = "gRPC stream"
TOPIC = "bench"
API = "IncrementalAlterConfigs"
ANSWER_TIMEOUT_S = 60.0


def measure_unary(parameters: CommitParameters) -> CommitResult:
    with serving() as client:
        return Workload(client, parameters).run(UNARY_DOOR)


def measure_stream(parameters: CommitParameters) -> CommitResult:
    with serving() as client, client.open_stream() as stream:
        return Workload(client, parameters, stream).run(STREAM_DOOR)


@contextmanager
def serving() -> Iterator[AdminClient]:
    """Yield a client that knows the active controller of three, whose metadata has the topic of the writes."""
    with (
        tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory,
        LocalCluster(directory, 3, 0, 1, overrides=broker_stand_in.SESSION_OVERRIDE) as cluster,
        cluster.admin() as client,
    ):
        leader_id = client.describe_cluster().leader_id
        assert leader_id is not None, "the cluster is ready"
        broker_stand_in.register(cluster, leader_id)
        client.create_topics([_topic(TOPIC, 1)])
        yield client


def _topic(name: str, partitions: int) -> pb.CreatableTopic:
    return pb.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)


class Workload:
    """The measurement itself. With a stream, small writes use the stream, otherwise each is a call of its own."""

    def __init__(self, client: AdminClient, parameters: CommitParameters, stream: CallStream | None = None) -> None:
        self._client = client
        self._parameters = parameters
        self._stream = stream
        self._number = itertools.count(1)

    def small(self) -> pb.IncrementalAlterConfigsRequest:
        resource = config_changes(ResourceType.TOPIC, TOPIC, {"segment.bytes": str(1 << 20 | next(self._number))})
        return pb.IncrementalAlterConfigsRequest(resources=[resource])

    def write(self) -> None:
        """Make one small write and wait until it is committed."""
        request = self.small()
        if self._stream is None:
            response = self._client.call(pb.IncrementalAlterConfigsResponse, request)
        else:
            response = self._stream.submit(API, request).result(ANSWER_TIMEOUT_S)
        raise_first_error(response.responses)

    def timed_ms(self) -> float:
        started = time.perf_counter()
        self.write()
        return (time.perf_counter() - started) * 1000

    def bulk_ms(self) -> float:
        topic = _topic(f"bulk-{next(self._number)}", self._parameters.bulk_records - 1)
        started = time.perf_counter()
        self._client.create_topics([topic])
        return (time.perf_counter() - started) * 1000

    def commits_per_second(self, in_flight: int) -> float:
        return self._threads_per_second(in_flight) if self._stream is None else self._stream_per_second(self._stream, in_flight)

    def _threads_per_second(self, in_flight: int) -> float:
        deadline = time.perf_counter() + self._parameters.seconds
        done: list[int] = []

        def keep_writing() -> None:
            count = 0
            while time.perf_counter() < deadline:
                self.write()
                count += 1
            done.append(count)

        threads = [threading.Thread(target=keep_writing) for _ in range(in_flight)]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(done) / (time.perf_counter() - started)

    def _stream_per_second(self, stream: CallStream, in_flight: int) -> float:
        """Keep `in_flight` calls in flight: this thread submits, the stream's own thread counts the answers."""
        deadline = time.perf_counter() + self._parameters.seconds
        slots = threading.Semaphore(in_flight)
        faults: list[BaseException] = []
        done = 0

        def answered(future: Future[Any]) -> None:
            nonlocal done
            try:
                raise_first_error(future.result().responses)
                done += 1
            except Exception as fault:
                faults.append(fault)
            slots.release()

        started = time.perf_counter()
        while time.perf_counter() < deadline and not faults:
            slots.acquire()
            stream.submit(API, self.small()).add_done_callback(answered)
        for _ in range(in_flight):
            slots.acquire()
        if faults:
            raise faults[0]
        return done / (time.perf_counter() - started)

    def run(self, door: str) -> CommitResult:
        for _ in range(self._parameters.warm_up_commits):
            self.write()
        serial: list[float] = []
        deadline = time.perf_counter() + self._parameters.seconds
        while time.perf_counter() < deadline:
            serial.append(self.timed_ms())
        throughput = {count: self.commits_per_second(count) for count in self._parameters.in_flight}
        bulk = [self.bulk_ms() for _ in range(self._parameters.bulk_runs)]
        return CommitResult.of(SYSTEM, door, serial, throughput, bulk)
