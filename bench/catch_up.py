"""Time of a node that lags 1,000,000 records behind to catch up: from the leader's log, and from its snapshot.

The records are the life of a cluster of 100,000 partitions: they are created, then their leaders change, nine times each on
average. So the snapshot is a tenth of the log. Two processes run on loopback: a sole voter that has committed all records, and an
observer with an empty disk, which holds the metadata image as a broker does. The time is from the observer's start until it has
applied all records. Only in the second run does the leader take a snapshot, and clean its log, before the observer starts.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

import click
import msgspec
import trio

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.snapshot import ImageSnapshot, image_from
from kraftlab.quorum.core.raft_config import RaftConfig
from kraftlab.quorum.core.types import OffsetAndEpoch, Voter, VoterSet
from kraftlab.quorum.driver.driver_config import DriverConfig
from kraftlab.quorum.driver.errors import Overloaded
from kraftlab.quorum.driver.garbage_collection import tame_interpreter
from kraftlab.quorum.driver.raft_driver import RaftDriver
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.wire.transport import PeerServer

from .large_metadata import history, memory_mib
from .measure import Leadership, Report, free_ports, in_process, measurement, table

LEADER, OBSERVER = 0, 1
NEVER_BYTES = 1 << 40
RECORDS_PER_PARTITION = 10


class CatchUpResult(msgspec.Struct, frozen=True):
    """`peak_mib` is the observer's peak of memory, `fetched_mib` the size of the leader's log or of its snapshot."""

    way: str
    records: int
    seconds: float
    peak_mib: float
    fetched_mib: float


class Images(Leadership):
    """A state machine that holds the image."""

    def __init__(self) -> None:
        super().__init__()
        self.image: MetadataImage = EMPTY
        self.bytes = 0

    async def apply(self, batches: list[CommittedBatch], high_watermark: int) -> None:
        delta = MetadataDelta(self.image)
        for batch in batches:
            self.bytes += len(batch.body)
            if batch.body:
                delta.replay_all(codec.decode(batch.body, batch.base_offset), batch.base_offset)
        last = batches[-1]
        self.image = delta.apply(Provenance(last.end_offset, last.epoch, last.append_time_ms))

    def freeze(self) -> ImageSnapshot:
        return ImageSnapshot(self.image)

    def read_snapshot(self, bodies: Iterable[bytes]) -> MetadataImage:
        return image_from(bodies)

    async def load_snapshot(self, position: OffsetAndEpoch, append_time_ms: int, state: MetadataImage) -> None:
        self.image = msgspec.structs.replace(state, provenance=Provenance(position.offset, position.epoch, append_time_ms))


def driver_of(node_id: int, port: int, directory: str, images: Images) -> RaftDriver:
    """Create a node of a quorum whose only voter is the leader, on that port."""
    voters = VoterSet.of([Voter(ReplicaKey(LEADER), {"CONTROLLER": Endpoint("127.0.0.1", port)})])
    raft = RaftConfig(node_id=node_id, directory_id=bytes([node_id + 1]) * 16, voters=voters, snapshots_kept=1)
    config = DriverConfig(
        cluster_id="bench",
        directory=f"{directory}/{node_id}",
        raft=raft,
        snapshot_max_new_bytes=NEVER_BYTES,
        snapshot_max_interval_ms=0,
    )
    return RaftDriver(config, images)


async def lead(port: int, directory: str, total: int, by_snapshot: bool) -> None:
    """Run the leader's process: commit the records, take a snapshot if wanted, print the end offset, and serve until stdin
    closes.
    """
    images = Images()
    driver = driver_of(LEADER, port, directory, images)
    async with trio.open_nursery() as nursery:
        await nursery.start(driver.run)
        await nursery.start(PeerServer(driver.identity, driver.handlers()).serve, "127.0.0.1", port)
        await images.leads.wait()
        tame_interpreter()
        end_offset = await commit(driver, images, total)
        size_bytes = images.bytes
        if by_snapshot:
            await driver.take_snapshot()
            size_bytes = driver.snapshots()[-1].size_bytes
        print(msgspec.json.encode((end_offset, size_bytes / 1024 / 1024)).decode(), flush=True)
        await trio.to_thread.run_sync(sys.stdin.buffer.read)
        nursery.cancel_scope.cancel()


async def commit(driver: RaftDriver, images: Images, total: int) -> int:
    """Commit the records and return the end offset."""
    end_offset = 0
    for batch in history(total // RECORDS_PER_PARTITION, total):
        body, count = codec.encode(batch)
        while True:
            try:
                _, end_offset = driver.propose(images.epoch, body, count)
                break
            except Overloaded:
                await trio.sleep(0.01)
    while images.image.provenance.offset < end_offset:  # noqa: ASYNC110 - there is no event to wait on
        await trio.sleep(0.01)
    return end_offset


async def follow(port: int, directory: str, end_offset: int) -> None:
    """Run the observer's process: start with an empty disk, apply all records, and print time and peak of memory."""
    images = Images()
    driver = driver_of(OBSERVER, port, directory, images)
    tame_interpreter()
    started = time.perf_counter()
    async with trio.open_nursery() as nursery:
        await nursery.start(driver.run)
        while driver.applied_offset < end_offset:  # noqa: ASYNC110 - there is no event to wait on
            await trio.sleep(0.01)
        print(msgspec.json.encode((time.perf_counter() - started, memory_mib("VmHWM"))).decode(), flush=True)
        nursery.cancel_scope.cancel()


def measure(total: int, way: str) -> CatchUpResult:
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="kraftlab-bench-") as directory:
        lead_command = [sys.executable, "-m", "bench.catch_up", "lead", str(port), directory, str(total), way]
        with subprocess.Popen(lead_command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as leader:
            assert leader.stdin is not None
            assert leader.stdout is not None
            try:
                end_offset, size_mib = msgspec.json.decode(leader.stdout.readline(), type=tuple[int, float])
                seconds, peak_mib = in_process("bench.catch_up", tuple[float, float], "follow", port, directory, end_offset)
            finally:
                leader.stdin.close()
    return CatchUpResult(way, end_offset, seconds, peak_mib, size_mib)


def render(results: list[CatchUpResult]) -> str:
    rows = [["catching up", "by", "records", "fetched", "time", "rate", "peak memory"]]
    for result in results:
        rate = f"{result.records / result.seconds:,.0f}/s"
        fetched, memory = f"{result.fetched_mib:,.0f} MiB", f"{result.peak_mib:,.0f} MiB"
        rows.append(["observer", result.way, f"{result.records:,}", fetched, f"{result.seconds:.2f} s", rate, memory])
    return table(rows)


@measurement("catch-up", __doc__, quick="50,000 records.")
@click.option("--records", type=int, help="Number of records (default 1,000,000).")
def main(quick: bool, records: int | None) -> Report:
    total = records or (50_000 if quick else 1_000_000)
    results = [measure(total, way) for way in ("log", "snapshot")]
    return Report([{"catch-up": results}], render(results))


if __name__ == "__main__":
    if sys.argv[1] == "lead":
        trio.run(lead, int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5] == "snapshot")
    else:
        trio.run(follow, int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
