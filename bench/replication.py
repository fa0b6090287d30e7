"""Bytes between brokers: a 2 GiB replica to another broker, and producing to one partition with one and with three replicas.

A controller and three brokers are processes of their own on loopback. Records have 64 KiB; batches are just below 1 MiB, as many
as fit into a request of 4 MiB, and a client keeps a few requests in flight. The replica moves by a reassignment, from the request
until no move is listed. In the same run, on the same disk: `loopback` sends a file of that size from the page cache to another
process; `disk` writes as many bytes and makes them durable; `append` writes the produced requests to a file without waiting for
the disk, as brokers do by default. Processor time is that of all brokers together.

Many virtual machines get their memory from the host when it is first touched, which takes longer than all that is measured here.
So the page cache is filled before, and freed little by little while a work goes on.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, DataClient
from kraftlab.lab import LocalCluster
from kraftlab.records.record_batch import Record, build_batch

from .large_metadata import stat_of
from .measure import NoResult, Report, measurement, table

MIB = 1024 * 1024
BROKERS = 3
RECORD_BYTES = 64 * 1024
RECORDS_PER_BATCH = 15
BATCHES_PER_REQUEST = 4
IN_FLIGHT = 3
PIECE_BYTES = 8 * MIB
DONE_WITHIN_S = 300.0
POLL_S = 0.02
MEMORY_PIECE_BYTES = 16 * MIB
MEMORY_AHEAD_BYTES = 256 * MIB


class Timing(msgspec.Struct, frozen=True):
    """Bytes and seconds of one piece of work. `processor_s` -1: not measured."""

    work: str
    mib: float
    seconds: float
    processor_s: float = -1

    @property
    def mib_per_second(self) -> float:
        return self.mib / self.seconds


class Brokers:
    """A running cluster and a client of it."""

    def __init__(self, cluster: LocalCluster, admin: AdminClient, memory: Memory) -> None:
        self._memory = memory
        self._cluster = cluster
        self._admin = admin
        self._pids = [cluster.pid(broker_id) or 0 for broker_id in cluster.broker_ids]

    def create(self, topic: str, replicas: list[int]) -> None:
        wanted = pb.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1)
        wanted.assignments.append(pb.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas))
        self._admin.create_topics([wanted])

    def processor_seconds(self) -> float:
        return sum(int(ticks) for pid in self._pids for ticks in stat_of(pid)[11:13]) / os.sysconf("SC_CLK_TCK")

    def produce(self, work: str, topic: str, request: bytes, total_bytes: int, replicas: int) -> Timing:
        """Produce the same batches until `total_bytes`, with acks=all, from IN_FLIGHT connections."""
        count = total_bytes // len(request)
        numbers, lock, failures = iter(range(count)), threading.Lock(), []

        def run() -> None:
            try:
                with DataClient(self._admin) as data:
                    while True:
                        with lock:
                            number = next(numbers, None)
                        if number is None:
                            return
                        with lock:
                            self._memory.use(len(request) * replicas)
                        data.produce(topic, 0, request)
            except Exception as error:
                failures.append(error)

        with DataClient(self._admin) as data:
            data.produce(topic, 0, request)  # until the leader is known and ready
        threads = [threading.Thread(target=run) for _ in range(IN_FLIGHT)]
        before, started = self.processor_seconds(), time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        if failures:
            raise NoResult(f"{work}: {failures[0]}")
        return Timing(work, count * len(request) / MIB, seconds, self.processor_seconds() - before)

    def move(self, work: str, topic: str, target: int) -> Timing:
        """Move the topic's replica to another broker."""
        [end] = self._cluster.log_dirs(target)

        def arrived() -> int:
            return sum(path.stat().st_size for path in end.glob(f"{topic}-0/*.log"))

        seen = 0
        before, started = self.processor_seconds(), time.perf_counter()
        self._admin.alter_partition_reassignments({(topic, 0): [target]})
        while self._admin.list_partition_reassignments().running:
            if time.perf_counter() - started > DONE_WITHIN_S:
                raise NoResult(f"{work}: the move has not ended after {DONE_WITHIN_S:g} s")
            time.sleep(POLL_S)
            self._memory.use(arrived() - seen)
            seen = arrived()
        seconds = time.perf_counter() - started
        return Timing(work, arrived() / MIB, seconds, self.processor_seconds() - before)


def loopback(path: Path) -> Timing:
    """Send a file that is in the page cache to another process, which only receives."""
    size = path.stat().st_size
    with socket.create_server(("127.0.0.1", 0)) as listening, open(path, "rb") as file:
        port = listening.getsockname()[1]
        with subprocess.Popen([sys.executable, "-m", "bench.replication", str(port)]) as receiver:
            connected, _ = listening.accept()
            with connected:
                started = time.perf_counter()
                sent = 0
                while sent < size:
                    sent += os.sendfile(connected.fileno(), file.fileno(), sent, PIECE_BYTES)
                connected.shutdown(socket.SHUT_WR)
                receiver.wait()
                return Timing("loopback: sendfile to a process that receives", size / MIB, time.perf_counter() - started)


def receive(port: int) -> None:
    room = bytearray(PIECE_BYTES)
    with socket.create_connection(("127.0.0.1", port)) as connected:
        while connected.recv_into(room):
            pass


def written(path: Path, work: str, data: bytes, total_bytes: int, memory: Memory, *, durably: bool) -> Timing:
    started = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for _ in range(total_bytes // len(data)):
            memory.use(len(data))
            file.write(data)
        if durably:
            os.fdatasync(file.fileno())
    return Timing(work, total_bytes // len(data) * len(data) / MIB, time.perf_counter() - started)


class Memory:
    """Page cache that was filled before, and is given back to the kernel little by little, for the work that goes on."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        piece = bytes(MEMORY_PIECE_BYTES)
        self._files = [directory / f"memory-{number}" for number in range(size_bytes // MEMORY_PIECE_BYTES)]
        for path in self._files:
            with open(path, "wb", buffering=0) as file:
                file.write(piece)
                os.fdatasync(file.fileno())
        self._free_bytes = 0

    def use(self, size_bytes: int) -> None:
        """Note that the work has taken so many bytes more, and free some ahead of it."""
        self._free_bytes -= size_bytes
        while self._free_bytes < MEMORY_AHEAD_BYTES and self._files:
            self._files.pop().unlink()
            self._free_bytes += MEMORY_PIECE_BYTES


def request_of_batches() -> bytes:
    records = [Record(None, os.urandom(RECORD_BYTES), 1_700_000_000_000) for _ in range(RECORDS_PER_BATCH)]
    return build_batch(records) * BATCHES_PER_REQUEST


def measure(replica_bytes: int, produced_bytes: int) -> list[Timing]:
    request = request_of_batches()
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory:
        file = Path(directory) / "file"
        memory = Memory(Path(directory), 3 * replica_bytes + 4 * produced_bytes + 5 * MEMORY_AHEAD_BYTES)
        found = [written(file, "disk: write, then fdatasync", request, replica_bytes, memory, durably=True), loopback(file)]
        file.unlink()
        found.append(written(file, "append: write only", request, produced_bytes, memory, durably=False))
        file.unlink()
        cluster = LocalCluster(str(Path(directory) / "cluster"), 1, BROKERS, 1)
        try:
            cluster.start()
            cluster.wait_ready(60.0)
            first, second, third = cluster.broker_ids
            with cluster.admin() as admin:
                brokers = Brokers(cluster, admin, memory)
                brokers.create("alone", [first])
                found.append(brokers.produce("produce, 1 replica", "alone", request, replica_bytes, 1))
                os.sync()
                found.append(brokers.move("move to another broker", "alone", second))
                brokers.create("copied", [third, first, second])
                found.append(brokers.produce("produce, 3 replicas, acks=all", "copied", request, produced_bytes, BROKERS))
        finally:
            cluster.close()
    return found


def render(found: list[Timing]) -> str:
    rows = [["work", "size", "time", "rate", "processor time of brokers"]]
    for each in found:
        processor = f"{each.processor_s:.1f} s" if each.processor_s >= 0 else "–"
        rows.append([each.work, f"{each.mib:,.0f} MiB", f"{each.seconds:.2f} s", f"{each.mib_per_second:,.0f} MiB/s", processor])
    return table(rows)


@measurement("replication", __doc__, quick="A sixteenth of the bytes.")
def main(quick: bool) -> Report:
    size = 2048 * MIB // (16 if quick else 1)
    found = measure(size, size // 2)
    return Report([{"replication": found}], render(found))


if __name__ == "__main__":
    receive(int(sys.argv[1]))
