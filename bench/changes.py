"""Rates of a controller on one core: partition changes generated, committed and replayed per second; and the costs of size.

*Changes*: a broker is fenced. The active controller generates the changes of all its partitions, replays and encodes them, and
appends them batch by batch to a log on disk, each followed by an fsync; a standby reads the batches from that log, decodes and
replays them. All steps run one after the other in one thread. *Size*: for a controller with a given number of partitions, its
memory, the time of its snapshot, and the time from its election to its first record, which must not depend on the size.
*Listing*: ten thousand running reassignments, listed and encoded.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import click
import msgspec
import trio

from kraftlab.controller.engine.log_writer import LogWriter
from kraftlab.controller.engine.quorum_controller import QuorumController
from kraftlab.controller.engine.state import Context, ControllerState, Outcome, Settings
from kraftlab.controller.partitions.partitions import without_broker
from kraftlab.metadata import codec
from kraftlab.metadata.image import Provenance
from kraftlab.metadata.records import NO_LEADER, AnyRecord, PartitionChange
from kraftlab.metadata.snapshot import ImageSnapshot
from kraftlab.quorum.core import batch
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.driver.garbage_collection import tame_interpreter
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.metadata_log import MetadataLog
from kraftlab.quorum.storage.metadata_store import MetadataStore

from .large_metadata import memory_mib, records, reset_peak, state_of
from .measure import Report, in_process, measurement, table

T = TypeVar("T")
EPOCH = 1
SETTINGS = Settings("bench", 1)


class Fencing(msgspec.Struct, frozen=True):
    """The run with the least processor time. Steps are microseconds per change; `leaders` is the number of changed leaders."""

    cluster: str
    partitions: int
    changes: int
    leaders: int
    generate_us: float
    write_us: float
    """Replay on the active controller, encoding, append and fsync."""
    fsync_us: float
    """The part of `write_us` that fsyncs took."""
    standby_us: float
    """Read, decode and replay."""
    seconds: float
    processor_seconds: float
    runs: int


class Size(msgspec.Struct, frozen=True):
    """One controller with that many partitions. `snapshot_seconds` are processor time; `elected_ms` is the best
    of several runs.
    """

    partitions: int
    memory_mib: float
    bytes_per_partition: float
    snapshot_seconds: float
    elected_ms: float
    peak_mib: float


class Listing(msgspec.Struct, frozen=True):
    """`seconds` are processor time."""

    reassignments: int
    seconds: float
    bytes: int


class ChangesResult(msgspec.Struct, frozen=True):
    fencing: list[Fencing]
    sizes: list[Size]
    listing: Listing
    load: float
    """Load of the machine: one minute's average at the end of the run, on `processors`."""
    processors: int


class LogOnDisk:
    """The quorum of a single controller: proposals are appended to a log on disk, and are thereby committed."""

    def __init__(self, directory: str) -> None:
        self.log: MetadataLog = MetadataStore.open(RealFileSystem(), directory, "bench", bytes(16)).log
        self.fsync_seconds = 0.0
        self._crc = self.log.start_crc

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    def propose(self, epoch: int, body: bytes, record_count: int) -> tuple[int, int]:
        base_offset = self.log.end_offset
        data, self._crc = batch.encode(
            body,
            base_offset=base_offset,
            epoch=epoch,
            record_count=record_count,
            append_time_ms=0,
            high_watermark=base_offset,
            previous_crc=self._crc,
        )
        self.log.append(base_offset, base_offset + record_count, data)
        started = time.perf_counter()
        self.log.flush()
        self.fsync_seconds += time.perf_counter() - started
        return base_offset, base_offset + record_count

    async def read_index(self) -> int:
        return self.log.end_offset


def dense_cluster() -> ControllerState:
    """Return the state of a cluster with few brokers and large topics."""
    return state_of(records(10_000, brokers=4, directories=1, topic_size=1000))


def fence(state: ControllerState, directory: str) -> tuple[list[float], int, int, float]:
    """Fence a broker once; return seconds (generating, writing, in fsyncs, on the standby), changes, changed leaders, processor
    seconds.
    """
    quorum = LogOnDisk(directory)
    writer = LogWriter(state)
    processor = time.process_time()
    moments = [time.perf_counter()]
    changes = without_broker(state, state.index.partitions_in_isr(0), 0, SETTINGS)
    moments.append(time.perf_counter())
    writer.write(quorum, EPOCH, Outcome(changes, None, atomic=False), 0)
    moments.append(time.perf_counter())
    standby, position = state, 0
    while position < quorum.end_offset:
        for each in batch.decode_all(quorum.log.read(position, batch.MAX_BATCH_BYTES)):
            header = each.header
            decoded = codec.decode(each.body, header.base_offset, header.record_count)
            provenance = Provenance(header.end_offset, header.epoch, header.append_time_ms)
            standby = standby.replay(decoded, header.base_offset, provenance)
            position = header.end_offset
    moments.append(time.perf_counter())
    processor = time.process_time() - processor
    quorum.log.close()
    if standby.image != writer.newest.image or standby.index != writer.newest.index:
        raise AssertionError("the standby's state differs from the active controller's")
    generating, writing, replaying = (after - before for before, after in pairwise(moments))
    moved = sum(change.leader is not None for change in changes)
    return [generating, writing, quorum.fsync_seconds, replaying], len(changes), moved, processor


def measure_fencing(name: str, state: ControllerState, runs: int) -> Fencing:
    best: tuple[list[float], int, int, float] | None = None
    tame_interpreter()
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory:
            run = fence(state, directory)
        if best is None or run[3] < best[3]:
            best = run
    assert best is not None
    steps, count, moved, processor = best
    generate, write, fsync, standby = (seconds / count * 1e6 for seconds in steps)
    partitions = sum(len(topic.partitions) for topic in state.image.topics.by_id.values())
    whole = steps[0] + steps[1] + steps[3]
    return Fencing(name, partitions, count, moved, generate, write, fsync, standby, whole, processor, runs)


def measure_listing(state: ControllerState, count: int) -> Listing:
    """Start moves of `count` partitions to one more broker, then list all moves."""
    from kraftlab.admin.v1 import admin_pb2
    from kraftlab.controller.reassignment.listing import Observer, listing
    from kraftlab.controller.reassignment.progress import MoveProgressTable

    changes: list[AnyRecord] = []
    brokers = len(state.image.cluster.brokers)
    for topic_id, topic in sorted(state.image.topics.by_id.items()):
        for number, partition in sorted(topic.partitions.items()):
            if len(changes) < count:
                new = next(broker for broker in range(brokers) if broker not in partition.replicas)
                old = partition.replicas
                target = (*old[1:], new)
                changes.append(
                    PartitionChange(
                        0,
                        number,
                        topic_id,
                        replicas=(*target, old[0]),
                        removing_replicas=old[:1],
                        adding_replicas=(new,),
                        directories=(*partition.directories[1:], bytes(16), partition.directories[0]),
                        original_replicas=old,
                        target_replicas=target,
                    )
                )
    moving = state.replay(changes, 0, state.image.provenance)
    observer = Observer(MoveProgressTable(), 0, SETTINGS)

    def run() -> bytes:
        answer = listing(moving, admin_pb2.ListPartitionReassignmentsRequest(), observer)
        assert sum(len(topic.partitions) for topic in answer.topics) == len(changes)
        return answer.SerializeToString()

    seconds, encoded = best_of(5, run)
    return Listing(len(changes), seconds, len(encoded))


def best_of(runs: int, work: Callable[[], T]) -> tuple[float, T]:
    """Return processor seconds of the fastest run, and the result of the last run."""
    fastest = float("inf")
    for _ in range(runs):
        started = time.thread_time()
        result = work()
        fastest = min(fastest, time.thread_time() - started)
    return fastest, result


def measure_size(partitions: int) -> Size:
    """Measure in this process, which holds nothing else."""
    gc.collect()
    before = memory_mib("VmRSS")
    state = state_of(records(partitions))
    tame_interpreter()
    held = memory_mib("VmRSS") - before
    reset_peak()
    seconds, _ = best_of(1, lambda: sum(len(body) for body, _ in ImageSnapshot(state.image).batches()))
    elected = min(trio.run(elect, state) for _ in range(5))
    return Size(partitions, held, held * 1024 * 1024 / partitions, seconds, elected * 1000, memory_mib("VmHWM"))


async def elect(state: ControllerState) -> float:
    """Return the seconds from a standby's election until its first record is on disk."""
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory:
        quorum = LogOnDisk(directory)
        controller = QuorumController(SETTINGS, lambda: 0, random.Random(1), lambda: None)
        controller.attach(quorum)
        await controller.load_snapshot(OffsetAndEpoch(0, 0), 0, state)
        started = time.perf_counter()
        await controller.became_leader(EPOCH)
        controller.write("first change", first_change)
        controller.queue.run_due()
        seconds = time.perf_counter() - started
        assert quorum.end_offset > 0, "the first change was refused"
        quorum.log.close()
        return seconds


def first_change(state: ControllerState, context: Context) -> Outcome[None]:
    topic_id = next(iter(state.image.topics.by_id))
    return Outcome([PartitionChange(0, 0, topic_id, leader=NO_LEADER)], None)


def render(result: ChangesResult) -> str:
    rows = [
        [
            "fencing a broker",
            "cluster",
            "changes",
            "changed leaders",
            "generate",
            "replay, append",
            "fsync",
            "standby",
            "rate",
            "per processor s",
        ]
    ]
    for each in result.fencing:
        steps = [f"{step:.1f} µs" for step in (each.generate_us, each.write_us, each.fsync_us, each.standby_us)]
        rates = [f"{each.changes / seconds:,.0f}" for seconds in (each.seconds, each.processor_seconds)]
        rows.append(
            ["best run", each.cluster, f"{each.changes:,}", f"{each.leaders:,}", *steps, f"{rates[0]}/s", f"{rates[1]}/s"]
        )
    sizes = [["a controller with", "", "memory", "bytes each", "snapshot", "elected to first record", "peak memory"]]
    sizes += [
        [
            f"{size.partitions:,} partitions",
            "",
            f"{size.memory_mib:,.0f} MiB",
            f"{size.bytes_per_partition:,.0f}",
            f"{size.snapshot_seconds:.2f} s",
            f"{size.elected_ms:.2f} ms",
            f"{size.peak_mib:,.0f} MiB",
        ]
        for size in result.sizes
    ]
    listed = result.listing
    about = f"{listed.reassignments:,} reassignments listed in {listed.seconds:.3f} s ({listed.bytes / 1024:,.0f} KiB)"
    load = f"load of the machine at the end: {result.load:.1f} on {result.processors} processors"
    return "\n\n".join((table(rows), table(sizes), f"{about}; {load}"))


def measure(partitions: int, runs: int) -> ChangesResult:
    """Measure each part in a process of its own, so that memory is that part's."""
    module = "bench.changes"
    fencing = in_process(module, list[Fencing], "fence", min(partitions, 300_000), runs)
    sizes = [in_process(module, Size, "size", count) for count in (1000, partitions)]
    listed = in_process(module, Listing, "list", 10_000)
    return ChangesResult(fencing, sizes, listed, os.getloadavg()[0], os.cpu_count() or 0)


@measurement("changes", __doc__, quick="30,000 partitions, 3 runs.")
@click.option("--partitions", type=int, help="Number of partitions (default 1,000,000).")
@click.option("--runs", type=int, help="Number of fencings (default 10); the best counts.")
def main(quick: bool, partitions: int | None, runs: int | None) -> Report:
    partitions = partitions or (30_000 if quick else 1_000_000)
    result = measure(partitions, runs or (3 if quick else 10))
    return Report([{"changes": result}], render(result))


def part(name: str, count: int, runs: int) -> object:
    """Measure one part, in a process of its own."""
    if name == "size":
        return measure_size(count)
    if name == "list":
        return measure_listing(dense_cluster(), count)
    large = [measure_fencing("30 brokers, topics of 100", state_of(records(count)), runs)]
    return [measure_fencing("4 brokers, topics of 1,000", dense_cluster(), runs), *large]


if __name__ == "__main__":
    print(msgspec.json.encode(part(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1)).decode())
