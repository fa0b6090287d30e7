"""Large batches between real processes: to the log, to the other replicas, to a reader and to a new replica, byte by byte."""

from __future__ import annotations

from typing import Any

from kraftlab.demo.lab import wait_until
from kraftlab.records.record_batch import Record, build_batch, decode_records

VALUES = [bytes([65 + number]) * 60_000 for number in range(12)]


def test_large_batches_reach_every_replica_and_reader_as_they_were_produced(lab: Any) -> None:
    first, second, third = lab.cluster.broker_ids
    lab.create_topic("large", [first, second])
    for _ in range(4):
        lab.data.produce("large", 0, build_batch([Record(None, value, 1) for value in VALUES]))
    lab.reassign({("large", 0): [first, third]})
    wait_until("the new replica is in sync", lambda: not lab.reassigning())
    wait_until("the replicas are equal", lambda: lab.replicas_are_equal("large"))
    found = lab.data.fetch("large", 0, 0, max_bytes=8 << 20)
    assert len(found.records) > 4 * sum(map(len, VALUES))
    assert [record.value for record in decode_records(found.records)] == 4 * VALUES
