"""Records of a large cluster's metadata."""

from __future__ import annotations

import random
from collections.abc import Iterator

from kraftlab.metadata.records import AnyRecord, FeatureLevel, Partition, RegisterBroker, Topic

REPLICAS = 3


def records(partitions: int, *, brokers: int = 30, directories: int = 4, topic_size: int = 100) -> Iterator[list[AnyRecord]]:
    """Yield batches of records: the brokers, then a batch per topic of `topic_size` partitions with three replicas each."""
    source = random.Random(1)
    log_dirs = {broker: [source.randbytes(16) for _ in range(directories)] for broker in range(brokers)}
    yield [
        FeatureLevel(0, "metadata.version", 30),
        *(
            RegisterBroker(0, broker, source.randbytes(16), broker, fenced=False, log_dirs=tuple(sorted(owned)))
            for broker, owned in log_dirs.items()
        ),
    ]
    for number in range(-(-partitions // topic_size)):
        topic_id = source.randbytes(16)
        batch: list[AnyRecord] = [Topic(0, f"topic-{number:06}", topic_id)]
        for partition in range(min(topic_size, partitions - number * topic_size)):
            replicas = tuple(source.sample(range(brokers), REPLICAS))
            where = tuple(log_dirs[broker][source.randrange(directories)] for broker in replicas)
            batch.append(Partition(0, partition, topic_id, replicas, replicas, leader=replicas[0], directories=where))
        yield batch
