"""DeleteRecords and retention: where logs begin, on the leader, on its followers, and after a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kraftlab.admin.v1 import admin_pb2
from kraftlab.broker.api.delete_records import DeleteRecordsApi
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.upkeep.retention import Retention
from kraftlab.metadata.records import RESOURCE_TOPIC

from ...helpers.waiting import eventually
from ..conftest import batch


@pytest.fixture
async def pair(world: Any) -> Any:
    """Topic `t` on brokers 0 (leader) and 1, with ten records; broker 2 has no replica."""
    await world.add_brokers(3)
    await world.create_topic("t", [0, 1], [1, 0])
    for _ in range(5):
        assert (await world.brokers[0].produce("t", 0, batch(2))).error == 0
    return world


async def delete(world: Any, broker_id: int, *asked: tuple[str, int, int], timeout_ms: int = 5000) -> list[tuple[int, int]]:
    """(low watermark, code) per entry."""
    broker = world.brokers[broker_id]
    request = admin_pb2.DeleteRecordsRequest()
    request.header.timeout_ms = timeout_ms
    for topic, number, offset in asked:
        request.topics.add(name=topic).partitions.add(partition_index=number, offset=offset)
    response: Any = await DeleteRecordsApi(broker.replicas, broker.configs).delete(request)
    assert [topic.name for topic in response.topics] == [topic for topic, _, _ in asked]
    return [(entry.low_watermark, entry.error_code) for topic in response.topics for entry in topic.partitions]


def starts(world: Any) -> list[int]:
    return [world.brokers[broker_id].log("t", 0).log_start_offset for broker_id in (0, 1)]


async def answer_after(
    pair: Any, happens: Callable[..., Awaitable[None]], *arguments: Any, **options: Any
) -> list[tuple[int, int]]:
    """Answers of a deletion up to offset 3, which waits until the event has happened."""
    answers: list[list[tuple[int, int]]] = []

    async def ask() -> None:
        answers.append(await delete(pair, 0, ("t", 0, 3)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.1)
        assert answers == []
        await happens(*arguments, **options)
    return answers[0]


async def test_the_start_of_the_log_moves_on_every_replica_before_the_answer(autojump_clock: Any, pair: Any) -> None:
    assert await delete(pair, 0, ("t", 0, 3)) == [(3, 0)]
    assert starts(pair) == [3, 3]
    assert await delete(pair, 0, ("t", 0, 2)) == [(3, 0)], "it never moves back"
    assert await delete(pair, 0, ("t", 0, 3)) == [(3, 0)]
    assert await delete(pair, 0, ("t", 0, -1)) == [(10, 0)], "-1 is the high watermark"
    assert starts(pair) == [10, 10]


@pytest.mark.parametrize(
    ("asked", "broker_id", "code"),
    [
        (("t", 0, 1000), 0, 1),
        (("t", 0, 11), 0, 1),
        (("t", 0, -2), 0, 1),
        (("t", 1, 0), 0, 6),
        (("t", 0, 1), 1, 6),
        (("t", 0, 1), 2, 6),
        (("t", 9, 0), 0, 3),
        (("u", 0, 0), 0, 3),
        (("a b", 0, 0), 0, 3),
        (("__consumer_offsets", 0, 0), 0, 3),
    ],
)
async def test_a_refused_deletion_has_a_code_and_changes_nothing(
    autojump_clock: Any, pair: Any, asked: tuple[str, int, int], broker_id: int, code: int
) -> None:
    assert await delete(pair, broker_id, asked) == [(-1, code)]
    assert starts(pair) == [0, 0]


async def test_records_of_internal_topics_stay(autojump_clock: Any, pair: Any) -> None:
    await pair.create_topic("__consumer_offsets", [0, 1])
    assert await delete(pair, 0, ("__consumer_offsets", 0, 0)) == [(-1, 17)]


async def test_records_of_compacted_topics_stay(autojump_clock: Any, pair: Any) -> None:
    await pair.configure(RESOURCE_TOPIC, "t", cleanup_policy="compact")
    assert await delete(pair, 0, ("t", 0, 1)) == [(-1, 44)]
    await pair.configure(RESOURCE_TOPIC, "t", cleanup_policy="compact,delete")
    assert await delete(pair, 0, ("t", 0, 1)) == [(1, 0)]


async def test_entries_are_answered_one_by_one(autojump_clock: Any, pair: Any) -> None:
    assert await delete(pair, 0, ("t", 0, 4), ("u", 0, 0), ("t", 1, 0)) == [(4, 0), (-1, 3), (-1, 6)]


async def test_a_live_replica_that_does_not_follow_in_time_is_waited_for_no_longer(autojump_clock: Any, pair: Any) -> None:
    pair.unreachable.add(0)
    assert await delete(pair, 0, ("t", 0, 3), timeout_ms=1000) == [(-1, 7)]
    assert starts(pair) == [3, 0], "on the leader they are gone"


async def test_a_replica_whose_broker_is_fenced_follows_when_it_is_back(autojump_clock: Any, pair: Any) -> None:
    pair.unreachable.add(0)
    await pair.fence(1, fenced=True)
    assert await delete(pair, 0, ("t", 0, 3)) == [(3, 0)]
    pair.unreachable.clear()
    await pair.fence(1, fenced=False)
    await eventually(lambda: starts(pair) == [3, 3], "the follower's log begins where the leader's does")


async def test_a_replica_whose_broker_is_fenced_meanwhile_is_waited_for_no_longer(autojump_clock: Any, pair: Any) -> None:
    """It is not in sync, so that nothing of the partition changes."""
    pair.unreachable.add(0)
    await pair.change("t", 0, isr=(0,))
    assert await answer_after(pair, pair.fence, 1, fenced=True) == [(3, 0)]


async def test_a_deposed_leader_answers_that_it_does_not_lead(autojump_clock: Any, pair: Any) -> None:
    pair.unreachable.add(0)
    assert await answer_after(pair, pair.change, "t", 0, leader=1) == [(-1, 6)]


async def test_what_was_deleted_does_not_come_back_with_a_crash(autojump_clock: Any, pair: Any) -> None:
    await delete(pair, 0, ("t", 0, 3))
    broker = pair.brokers[0]
    broker.log("t", 0).flush()
    broker.crash()
    await broker.restart()
    assert broker.log("t", 0).log_start_offset == 3


def segments(log: PartitionLog) -> list[str]:
    """The files' names."""
    return sorted(path.stem for path in log.directory.glob("*.log"))


async def test_retention_looks_for_old_segments_as_often_as_the_file_says(
    autojump_clock: Any, nursery: trio.Nursery, world: Any
) -> None:
    broker = await world.add_broker(0, log_retention_check_interval_ms="7000")
    looks: list[float] = []
    retention = Retention(broker.replicas, broker.configs, broker.config.log_retention_check_interval_ms)

    async def look(log_dir: Path) -> int:
        looks.append(trio.current_time() - begun)
        return 0

    retention.check = look  # type: ignore[method-assign]
    begun = trio.current_time()
    nursery.start_soon(retention.run)
    await trio.sleep(15)
    assert {round(at) for at in looks} == {7, 14}


async def test_segments_that_lie_below_go_from_the_disk(autojump_clock: Any, world: Any) -> None:
    await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await world.configure(RESOURCE_TOPIC, "t", segment_bytes="1048576")
    for _ in range(30):
        assert (await world.brokers[0].produce("t", 0, batch(2, 50_000))).error == 0
    logs = [world.brokers[broker_id].log("t", 0) for broker_id in (0, 1)]
    before = [segments(log) for log in logs]
    assert min(map(len, before)) >= 3
    assert await delete(world, 0, ("t", 0, 45)) == [(45, 0)]
    assert all(set(segments(log)) < set(names) for log, names in zip(logs, before, strict=True))
    assert all(segments(log)[0] > "0" * 20 for log in logs)


class TestRetention:
    @pytest.fixture
    async def grown(self, world: Any) -> Any:
        """Three megabytes in segments of one, on brokers 0 and 1."""
        await world.add_brokers(2)
        await world.create_topic("t", [0, 1])
        await world.configure(RESOURCE_TOPIC, "t", segment_bytes="1048576", retention_ms="-1")
        for _ in range(30):
            assert (await world.brokers[0].produce("t", 0, batch(2, 50_000))).error == 0
        return world

    async def check(self, world: Any, broker_id: int) -> int:
        broker = world.brokers[broker_id]
        retention = Retention(broker.replicas, broker.configs, 1000)
        return sum([await retention.check(log_dir) for log_dir in broker.dirs])

    async def test_by_size_keeps_what_the_limit_covers(self, autojump_clock: Any, grown: Any) -> None:
        assert await self.check(grown, 0) == 0
        await grown.configure(RESOURCE_TOPIC, "t", retention_bytes="2000000")
        assert await self.check(grown, 0) == 1
        log = grown.brokers[0].log("t", 0)
        assert 0 < log.log_start_offset < log.log_end_offset
        await eventually(lambda: starts(grown)[1] == log.log_start_offset, "the follower's log begins there too")

    async def test_by_time_keeps_the_active_segment(self, autojump_clock: Any, grown: Any) -> None:
        """The records are of 1970."""
        await grown.configure(RESOURCE_TOPIC, "t", retention_ms="60000")
        assert await self.check(grown, 0) >= 2
        log = grown.brokers[0].log("t", 0)
        assert (len(segments(log)), log.log_end_offset) == (1, 60)

    async def test_is_not_for_topics_that_are_compacted_only(self, autojump_clock: Any, grown: Any) -> None:
        await grown.configure(RESOURCE_TOPIC, "t", retention_ms="60000", cleanup_policy="compact")
        assert await self.check(grown, 0) == 0

    async def test_runs_at_its_interval(self, autojump_clock: Any, grown: Any, nursery: trio.Nursery) -> None:
        await grown.configure(RESOURCE_TOPIC, "t", retention_ms="60000")
        broker = grown.brokers[0]
        nursery.start_soon(Retention(broker.replicas, broker.configs, 3_000).run)
        await trio.sleep(2.9)
        assert broker.log("t", 0).log_start_offset == 0
        await trio.sleep(0.2)
        assert broker.log("t", 0).log_start_offset > 0

    async def test_goes_on_where_disks_answer_though_one_hangs(
        self, autojump_clock: Any, world: Any, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker = await world.add_broker(0)
        await world.create_topic("t", [0], [0])
        await world.configure(RESOURCE_TOPIC, "t", segment_bytes="1048576", retention_ms="60000")
        for number in (0, 1, 0, 1):
            assert (await broker.produce("t", number, batch(1, 1_000_000))).error == 0
        bad_dir, run, hanging = broker.log("t", 0).log_dir, broker.disks.run, list[Any]()
        assert broker.log("t", 1).log_dir != bad_dir

        async def hangs(log_dir: Any, work: Any, *arguments: Any, **options: Any) -> Any:
            if log_dir == bad_dir:
                hanging.append(work)
                await trio.sleep_forever()
            return await run(log_dir, work, *arguments, **options)

        monkeypatch.setattr(broker.disks, "run", hangs)
        nursery.start_soon(Retention(broker.replicas, broker.configs, 1_000).run)
        await trio.sleep(5)
        assert broker.log("t", 1).log_start_offset > 0
        assert len(hanging) == 1
