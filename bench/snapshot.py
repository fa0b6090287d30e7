"""A snapshot of a large cluster's metadata: rates of writing and loading, memory, and the pauses of the node's event loop, which
has to answer peers within a few hundred milliseconds.

The state is a controller's: 1,000,000 partitions with three replicas each, in topics of 100. The process that holds the state
writes the snapshot, a new process loads it; both in a worker thread, as on a node, beside an event loop with a tick of 10 ms.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

import click
import msgspec
import trio

from kraftlab.controller.engine.state import EMPTY_STATE, ControllerState
from kraftlab.metadata.index import index_of
from kraftlab.metadata.snapshot import ImageSnapshot, image_digest, image_from
from kraftlab.quorum.core.batch import SnapshotHeader
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.driver.garbage_collection import loading_state, tame_interpreter
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.identity import LogIdentity, partition_directory
from kraftlab.quorum.storage.snapshot_file import read_summary, snapshot_name
from kraftlab.quorum.storage.snapshot_store import SnapshotStore

from .large_metadata import memory_mib, records, reset_peak, state_of
from .measure import Report, in_process, measurement, percentile, table

T = TypeVar("T")
IDENTITY = LogIdentity("bench", bytes(16))
TICK_S = 0.01


class PhaseResult(msgspec.Struct, frozen=True):
    """`pause` are the event loop's delays beyond its tick; memory is the process's: before the phase, and the peak during it."""

    records: int
    seconds: float
    size_mib: float
    before_mib: float
    peak_mib: float
    pause_p99_ms: float
    pause_max_ms: float


class SnapshotResult(msgspec.Struct, frozen=True):
    written: PhaseResult
    loaded: PhaseResult


async def beside_an_event_loop(work: Callable[[], T]) -> tuple[T, list[float]]:
    """Run the work in a thread; return its result, and the delay of each tick of the loop in ms."""
    late: list[float] = []

    async def tick() -> None:
        while True:
            due = time.perf_counter() + TICK_S
            await trio.sleep(TICK_S)
            late.append((time.perf_counter() - due) * 1000)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        result = await trio.to_thread.run_sync(work)
        nursery.cancel_scope.cancel()
    return result, late


def phase(work: Callable[[], tuple[int, float]]) -> PhaseResult:
    """Measure `work`, which returns (records, MiB of the file)."""
    before = memory_mib("VmRSS")
    reset_peak()
    started = time.perf_counter()
    (count, size_mib), late = trio.run(beside_an_event_loop, work)
    seconds = time.perf_counter() - started
    pauses = late or [0.0]
    return PhaseResult(count, seconds, size_mib, before, memory_mib("VmHWM"), percentile(pauses, 99), max(pauses))


def write(directory: str, partitions: int) -> None:
    """Run in a process of its own: make the state, write its snapshot, print the result."""
    image = state_of(records(partitions)).image
    tame_interpreter()
    store = SnapshotStore(RealFileSystem(), partition_directory(directory), IDENTITY)
    position = OffsetAndEpoch(image.provenance.offset, 1)

    def work() -> tuple[int, float]:
        writer = store.writer(position, [SnapshotHeader(0, IDENTITY.cluster_id, 0, 0, 0)])
        count = 0
        for body, records_in_body in ImageSnapshot(image).batches():
            writer.append(body, records_in_body)
            count += records_in_body
        writer.finish()
        return count, store.infos()[0].size_bytes / 1024 / 1024

    print(msgspec.json.encode((position.offset, phase(work), image_digest(image).hex())).decode())


def load(directory: str, offset: int, digest: str) -> None:
    """Run in a process of its own: load the snapshot as a controller does, print the result."""
    file_system, partition, position = RealFileSystem(), partition_directory(directory), OffsetAndEpoch(offset, 1)
    file = file_system.open(f"{partition}/{snapshot_name(position)}")
    store = SnapshotStore(file_system, partition, IDENTITY, [read_summary(file, position)])
    tame_interpreter()
    loaded = [EMPTY_STATE]

    def work() -> tuple[int, float]:
        with loading_state():
            image = image_from(store.reader(position).bodies())
            loaded[0] = ControllerState(image, index_of(image))
        return offset, file.size() / 1024 / 1024

    result = phase(work)
    if image_digest(loaded[0].image).hex() != digest:
        raise AssertionError("the loaded snapshot differs from the written one")
    print(msgspec.json.encode(result).decode())


def measure(partitions: int) -> SnapshotResult:
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory:
        RealFileSystem().make_directory(partition_directory(directory))
        printed = in_process("bench.snapshot", tuple[int, PhaseResult, str], "write", directory, partitions)
        offset, written, digest = printed
        return SnapshotResult(written, in_process("bench.snapshot", PhaseResult, "load", directory, offset, digest))


def render(result: SnapshotResult) -> str:
    rows = [["snapshot", "records", "file", "time", "rate", "memory before", "peak", "loop late p99", "max"]]
    for name, phase in (("written", result.written), ("loaded", result.loaded)):
        rows.append(
            [
                name,
                f"{phase.records:,}",
                f"{phase.size_mib:.0f} MiB",
                f"{phase.seconds:.2f} s",
                f"{phase.records / phase.seconds:,.0f}/s",
                f"{phase.before_mib:,.0f} MiB",
                f"{phase.peak_mib:,.0f} MiB",
                f"{phase.pause_p99_ms:.1f} ms",
                f"{phase.pause_max_ms:.0f} ms",
            ]
        )
    return table(rows)


@measurement("snapshot", __doc__, quick="50,000 partitions.")
@click.option("--partitions", type=int, help="Number of partitions (default 1,000,000).")
def main(quick: bool, partitions: int | None) -> Report:
    result = measure(partitions or (50_000 if quick else 1_000_000))
    return Report([{"snapshot": result}], render(result))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], int(sys.argv[3]))
    else:
        load(sys.argv[2], int(sys.argv[3]), sys.argv[4])
