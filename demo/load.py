"""A producer that appends continuously, and remembers exactly the acknowledged records."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kraftlab.client import DataClient
from kraftlab.client.errors import ClusterUnreachable
from kraftlab.common.clock import wall_clock_ms
from kraftlab.common.errors import ApiError
from kraftlab.lab import LocalCluster
from kraftlab.records.record_batch import Record, build_batch, decode_records

from .lab import TopicPartition

RECORDS_PER_BATCH = 20
VALUE_BYTES = 200
PAUSE_S = 0.04
"""Pause between batches."""
BYTES_PER_S_MAX = int(RECORDS_PER_BATCH * (VALUE_BYTES + 20) / PAUSE_S)
"""Maximum rate of one producer: a throttled copy has to be faster to catch up."""


class Producer:
    """Appends batches with acks=all to some partitions, one thread each, until stopped.

    `acknowledged` maps a partition to {value: offset}: every value is unique. A batch with a lost answer is not in it, and may or
    may not be in the log.
    """

    def __init__(self, cluster: LocalCluster, partitions: Sequence[TopicPartition]) -> None:
        self.acknowledged: dict[TopicPartition, dict[bytes, int]] = {partition: {} for partition in partitions}
        self.failures: list[str] = []
        self._cluster = cluster
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(partition,), daemon=True) for partition in partitions]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after the batches in flight."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout=30)

    @property
    def records(self) -> int:
        return sum(len(values) for values in self.acknowledged.values())

    def _run(self, partition: TopicPartition) -> None:
        topic, index = partition
        acknowledged = self.acknowledged[partition]
        with self._cluster.admin() as admin, DataClient(admin) as data:
            number = 0
            while not self._stopping.is_set():
                values = [b"%s-%d-%d." % (topic.encode(), index, number + n) for n in range(RECORDS_PER_BATCH)]
                values = [value.ljust(VALUE_BYTES, b".") for value in values]
                number += RECORDS_PER_BATCH
                now_ms = wall_clock_ms()
                try:
                    answer = data.produce(topic, index, build_batch([Record(None, value, now_ms) for value in values]))
                except (ApiError, ClusterUnreachable) as error:
                    self.failures.append(f"{topic}-{index}: {error}")
                    continue
                acknowledged.update((value, answer.base_offset + n) for n, value in enumerate(values))
                self._stopping.wait(PAUSE_S)


def missing(data: DataClient, partition: TopicPartition, acknowledged: dict[bytes, int]) -> int:
    """Count the acknowledged values that are not at their offset when read back from the leader."""
    if not acknowledged:
        return 0
    topic, index = partition
    left = dict(acknowledged)
    offset, end = min(left.values()), max(left.values()) + 1
    while offset < end:
        fetched = data.fetch(topic, index, offset)
        if not fetched.records:
            break
        for record in decode_records(fetched.records):
            if record.value is not None and left.get(record.value) == record.offset:
                del left[record.value]
            offset = record.offset + 1
    return len(left)
