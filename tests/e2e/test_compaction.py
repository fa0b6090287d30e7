"""Compaction on a real broker that is killed in the middle of it: the last acknowledged record of each key is always there."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from kraftlab.demo.lab import wait_until
from kraftlab.records.record_batch import Record, build_batch, decode_records, validate

KEYS = 20
IN_A_BATCH, BATCHES = 100, 12
"""Together more than two segments of the smallest size."""
RATE = 20_000_000
"""Bytes per second of the cleaner: a compaction takes about as long as a batch."""


class Writer:
    """Writes records to a compacted topic; knows the last acknowledged value of each key."""

    def __init__(self, lab: Any, seed: int) -> None:
        self.last: dict[bytes, bytes] = {}
        self._lab, self._chance, self._count = lab, random.Random(seed), 0

    def write(self) -> None:
        records = []
        for _ in range(IN_A_BATCH):
            self._count += 1
            key = b"key-%d" % self._chance.randrange(KEYS)
            records.append(Record(key, b"%d " % self._count + os.urandom(1000).hex().encode(), 1_700_000_000_000))
        self._lab.data.produce("compacted", 0, build_batch(records))
        self.last.update((record.key or b"", record.value or b"") for record in records)


def read_all(lab: Any) -> dict[bytes, bytes]:
    """The last record of each key, as a consumer from the first offset on finds them."""
    offset, end = lab.data.bounds("compacted", 0)
    found: dict[bytes, bytes] = {}
    while offset < end:
        fetched = lab.data.fetch("compacted", 0, offset)
        found.update((record.key, record.value) for record in decode_records(fetched.records))
        offset = validate(bytes(fetched.records))[-1][1].end_offset
    return found


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.nightly)])
def test_no_acknowledged_record_is_lost_when_a_broker_is_killed_while_it_compacts(
    quorum_clusters: Callable[..., Any], kills: int
) -> None:
    settings = {"log_cleaner_backoff_ms": "10", "log_cleaner_io_max_bytes_per_second": str(RATE)}
    with quorum_clusters(1, 1, **settings) as lab:
        configs = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
        lab.create_topic("compacted", [0], configs=configs)
        writer = Writer(lab, kills)
        writer.write()  # the broker has made the partition's directory once it has acknowledged a record
        [directory] = lab.cluster.directory.glob("**/compacted-0")

        def has_begun() -> bool:
            return any(path.name.endswith((".cleaned", ".swap", ".deleted")) for path in directory.iterdir())

        for _ in range(kills):
            for _ in range(BATCHES):
                writer.write()
            wait_until("a compaction has begun", has_begun)
            lab.cluster.kill_node(0)
            lab.cluster.start_node(0)
            writer.write()
            assert read_all(lab) == writer.last
        wait_until("the log is compacted", lambda: sum(path.stat().st_size for path in directory.glob("*.log")) < 2 << 20)
        assert read_all(lab) == writer.last
