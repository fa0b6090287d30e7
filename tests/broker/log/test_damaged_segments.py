"""A segment that is damaged below the recovery point costs readers the damaged records only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import FetchPartition, ReplicaFetchRequest
from kraftlab.metadata.records import RESOURCE_TOPIC

from ..conftest import Broker

BATCHES = 12
FIRST_OF = (0, 4, 8)
"""Base offsets of the segments, which have four batches each."""


def zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 5 // 8])


def foreign(file: Path) -> None:
    file.write_bytes(b"\xffthis is a file of another program\n" * 20)


async def fetch(broker: Broker, topic_id: bytes, offsets: dict[int, int]) -> list[tuple[int, ErrorCode, int]]:
    """Partition, error and bytes of each answer to one large fetch."""
    wanted = tuple(FetchPartition(topic_id, number, -1, offset, -1, -1, 1 << 20) for number, offset in offsets.items())
    response = await broker.fetches.fetch(ReplicaFetchRequest(-1, -1, 0, 1, 50 << 20, wanted))
    return [(found.partition, ErrorCode(found.error), len(found.records)) for found in response.partitions]


@pytest.mark.parametrize("damage", [zeroed, cut, foreign])
async def test_one_large_fetch_gets_everything_but_the_damaged_records(
    autojump_clock: Any, world: Any, damage: Callable[[Path], None]
) -> None:
    broker = await world.add_broker(0, log_dirs=1)
    topic_id = await world.create_topic("t", [0], [0], [0])
    await world.configure(RESOURCE_TOPIC, "t", segment_bytes="1000")
    for number in range(3):
        await world.fill(BATCHES, 170, number, acks=1)
    directory = broker.log("t", 1).directory
    files = sorted(directory.glob("*.log"))
    sizes = [file.stat().st_size for file in files]
    assert tuple(int(file.stem) for file in files) == FIRST_OF
    for number in range(3):
        broker.log("t", number).flush()
    broker.logs.write_checkpoints()
    broker.crash()
    damage(files[1])
    await broker.restart()
    whole = sum(sizes)
    before = sizes[0] + (sizes[1] // 2 if damage is cut else 0)
    sound = [(0, ErrorCode.NONE, whole), (2, ErrorCode.NONE, whole)]
    assert await fetch(broker, topic_id, {1: 0, 0: 0, 2: 0}) == [(1, ErrorCode.NONE, before), *sound]
    assert await fetch(broker, topic_id, {1: 7, 0: 0, 2: 0}) == [(1, ErrorCode.CORRUPT_MESSAGE, 0), *sound]
    assert await fetch(broker, topic_id, {1: 8, 0: 0, 2: 0}) == [(1, ErrorCode.NONE, sizes[2]), *sound]
