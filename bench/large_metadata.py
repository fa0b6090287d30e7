"""A large cluster's metadata: records of many partitions, and what a process needs to hold them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from kraftlab.metadata.records import AnyRecord, FeatureLevel, Partition, PartitionChange, RegisterBroker, Topic

BROKERS = 30
DIRECTORIES = 4
PARTITIONS_PER_TOPIC = 100
REPLICAS = 3


def records(partitions: int) -> Iterator[list[AnyRecord]]:
    """Batches of records, one per topic of 100 partitions, three replicas each, behind one of 30 brokers."""
    source = random.Random(1)
    directories = {broker: [source.randbytes(16) for _ in range(DIRECTORIES)] for broker in range(BROKERS)}
    yield [
        FeatureLevel(0, "metadata.version", 30),
        *(
            RegisterBroker(0, broker, source.randbytes(16), broker, fenced=False, log_dirs=tuple(sorted(owned)))
            for broker, owned in directories.items()
        ),
    ]
    for number in range(-(-partitions // PARTITIONS_PER_TOPIC)):
        topic_id = source.randbytes(16)
        batch: list[AnyRecord] = [Topic(0, f"topic-{number:06}", topic_id)]
        for partition in range(min(PARTITIONS_PER_TOPIC, partitions - number * PARTITIONS_PER_TOPIC)):
            replicas = tuple(source.sample(range(BROKERS), REPLICAS))
            where = tuple(directories[broker][source.randrange(DIRECTORIES)] for broker in replicas)
            batch.append(Partition(0, partition, topic_id, replicas, replicas, leader=replicas[0], directories=where))
        yield batch


def history(partitions: int, total: int) -> Iterator[list[AnyRecord]]:
    """The same, and then changes of leaders, topic after topic, until there are `total` records."""
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
    """Forgets this process' peak of memory."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def memory_mib(which: str) -> float:
    """`VmRSS` (now) or `VmHWM` (the peak since `reset_peak`)."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(which):
                return int(line.split()[1]) / 1024
    raise LookupError(which)
