"""A large cluster's metadata: records of many partitions, and the memory of a process that holds them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from kraftlab.controller.engine.state import ControllerState
from kraftlab.experiments.large_metadata import records
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, Provenance
from kraftlab.metadata.index import index_of
from kraftlab.metadata.records import AnyRecord, Partition, PartitionChange


def state_of(batches: Iterable[list[AnyRecord]]) -> ControllerState:
    """Return a controller's state after these batches, in epoch 1."""
    delta, offset = MetadataDelta(EMPTY), 0
    for batch in batches:
        delta.replay_all(batch, offset)
        offset += len(batch)
    image = delta.apply(Provenance(offset, 1, 0))
    return ControllerState(image, index_of(image))


def history(partitions: int, total: int) -> Iterator[list[AnyRecord]]:
    """Yield the batches of `records`, then changes of leaders, topic after topic, up to `total` records."""
    count = 0
    topics: list[list[Partition]] = []
    for batch in records(partitions):
        topics.append([record for record in batch if isinstance(record, Partition)])
        count += len(batch)
        yield batch
    source = random.Random(2)
    while True:
        for topic in topics:
            if count >= total:
                return
            changes: list[AnyRecord] = [
                PartitionChange(0, made.partition_id, made.topic_id, leader=source.choice(made.replicas)) for made in topic
            ]
            if changes:
                count += len(changes)
                yield changes


def reset_peak() -> None:
    """Reset this process's peak of memory."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def memory_mib(which: str, pid: int | str = "self") -> float:
    """Return the memory of a process: `VmRSS` (now) or `VmHWM` (the peak since `reset_peak`)."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(which):
                return int(line.split()[1]) / 1024
    raise LookupError(which)


def stat_of(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on: 1 is the parent, 11 to 14 are ticks of processor time."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()
