"""Lanes of a follower's fetches, and the settings of fetching that act there."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest
import trio

from kraftlab.metadata.peer_rpc import Api, ReplicaFetchRequest, ReplicaFetchResponse
from kraftlab.metadata.records import RESOURCE_BROKER

from ...helpers.waiting import eventually
from ..conftest import same_data


class Fetch(NamedTuple):
    request: ReplicaFetchRequest
    channel: int
    timeout_ms: int
    asked_at: float


class Fetches:
    """Every fetch between brokers. Those on a channel in `held` get no answer."""

    def __init__(self, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[Fetch] = []
        self.sizes: list[int] = []
        """Bytes of records in each answer."""
        self.held: set[int] = set()
        self._real = world.request
        monkeypatch.setattr(world, "request", self._request)

    async def _request(self, endpoint: Any, api: int, body: bytes, *, timeout_ms: int, channel: int = 0, **_: int) -> bytes:
        if api == Api.REPLICA_FETCH:
            request = msgspec.msgpack.decode(body, type=ReplicaFetchRequest)
            self.seen.append(Fetch(request, channel, timeout_ms, trio.current_time()))
            if channel in self.held:
                await trio.sleep_forever()
        answer: bytes = await self._real(endpoint, api, body, timeout_ms=timeout_ms)
        if api == Api.REPLICA_FETCH:
            found = msgspec.msgpack.decode(answer, type=ReplicaFetchResponse)
            self.sizes.append(sum(len(part.records) for part in found.partitions))
        return answer

    def channels_of(self, number: int) -> set[int]:
        """Channels on which positions of that partition were sent."""
        return {each.channel for each in self.seen if number in {part.partition for part in each.request.partitions}}


@pytest.fixture
def fetches(world: Any, monkeypatch: pytest.MonkeyPatch) -> Fetches:
    return Fetches(world, monkeypatch)


async def test_a_replica_is_filled_on_a_connection_of_its_own(autojump_clock: Any, world: Any, fetches: Fetches) -> None:
    await world.add_brokers(2)
    await world.create_topic("t", [0], [0, 1])
    await world.fill(3, 1000)
    await world.add_replica(0, 1)
    await eventually(lambda: 1 in world.state("t", 0).isr, "the new replica is in sync")
    await world.fill(1, 1000)
    assert fetches.channels_of(1) == {0}
    assert fetches.channels_of(0) == {1, 0}, "filled on the second connection, then kept in sync on the first"


async def test_a_fetch_that_fills_a_replica_delays_none_in_sync(autojump_clock: Any, world: Any, fetches: Fetches) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0], [0, 1])
    await world.fill(3, 1000)
    fetches.held.add(1)
    await world.add_replica(0, 1)
    await eventually(lambda: fetches.channels_of(0) == {1}, "the new replica is being filled")
    begun = trio.current_time()
    await world.fill(3, 1000, number=1)
    assert trio.current_time() - begun < 0.5
    assert same_data("t", 1, brokers)


async def test_the_number_of_fetchers_changes_while_replicas_are_copied(
    autojump_clock: Any, world: Any, fetches: Fetches
) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", *([0, 1] for _ in range(6)))
    await trio.sleep(1)
    assert {each.channel for each in fetches.seen} == {0}
    for count, channels in (("3", {0, 2, 4}), ("1", {0})):
        await world.configure(RESOURCE_BROKER, "", num_replica_fetchers=count)
        await trio.sleep(1)
        fetches.seen.clear()
        for number in range(6):
            await world.fill(2, 100, number=number)
        assert {each.channel for each in fetches.seen} == channels
        assert all(len(fetches.channels_of(number)) == 1 for number in range(6)), "a partition has one fetcher"
    assert all(same_data("t", number, brokers) for number in range(6))


async def test_the_bytes_of_a_partition_and_of_an_answer_are_bounded(autojump_clock: Any, world: Any, fetches: Fetches) -> None:
    await world.add_broker(0)
    await world.add_broker(1, replica_fetch_max_bytes="3000", replica_fetch_response_max_bytes="20000")
    await world.create_topic("t", [0], [0], [0, 1])
    for number in (0, 1):
        await world.fill(60, 1000, number=number)
    for number in (0, 1):
        await world.add_replica(number, 1)
    await eventually(lambda: all(1 in world.state("t", number).isr for number in (0, 1)), "all are in sync")
    await world.fill(1, 1000)
    positions = {(each.channel, part.max_bytes) for each in fetches.seen for part in each.request.partitions}
    assert positions == {(0, 3000), (1, 3000)}
    assert {each.request.max_bytes for each in fetches.seen} == {20_000}
    assert 15_000 < max(fetches.sizes) <= 20_000, "two partitions share the answer"


async def test_a_partition_takes_more_than_its_bytes_only_if_few_have_records(
    autojump_clock: Any, world: Any, fetches: Fetches
) -> None:
    await world.add_broker(0)
    await world.add_broker(1, replica_fetch_max_bytes="2000", replica_fetch_response_max_bytes="100000")
    await world.create_topic("t", [0])
    await world.fill(100, 1000)
    await world.add_replica(0, 1)
    await eventually(lambda: 1 in world.state("t", 0).isr, "it is in sync")
    assert 15_000 < max(fetches.sizes) <= 20_000, "ten times as many"


async def test_a_leader_waits_for_enough_bytes_but_not_longer_than_asked(autojump_clock: Any, world: Any) -> None:
    await world.add_broker(0)
    await world.add_broker(1, replica_fetch_min_bytes="5000", replica_fetch_wait_max_ms="2000")
    await world.create_topic("t", [0, 1])
    await trio.sleep(5)
    begun = trio.current_time()
    await world.fill(1, 1000)
    assert 0.5 < trio.current_time() - begun < 2.5, "a small batch waits until the fetch's time is over"
    begun = trio.current_time()
    await world.fill(1, 6000)
    assert trio.current_time() - begun < 0.2


async def test_a_parked_fetch_waits_as_long_as_configured(autojump_clock: Any, world: Any, fetches: Fetches) -> None:
    await world.add_broker(0)
    await world.add_broker(1, replica_fetch_wait_max_ms="1500")
    await world.create_topic("t", [0, 1])
    await trio.sleep(2)
    fetches.seen.clear()
    await trio.sleep(15)
    assert 9 <= len(fetches.seen) <= 11
    assert {each.request.max_wait_ms for each in fetches.seen} == {1500}


async def test_a_fetch_is_given_up_after_the_sockets_timeout(autojump_clock: Any, world: Any, fetches: Fetches) -> None:
    await world.add_broker(0)
    await world.add_broker(1, replica_socket_timeout_ms="7000")
    await world.create_topic("t", [0, 1])
    await trio.sleep(2)
    assert {each.timeout_ms for each in fetches.seen} == {7000}


@pytest.mark.parametrize("backoff_ms", [200, 1000])
async def test_pauses_after_errors_grow_up_to_the_configured_one(
    autojump_clock: Any, world: Any, fetches: Fetches, backoff_ms: int
) -> None:
    await world.add_broker(0)
    await world.add_broker(1, replica_fetch_backoff_ms=str(backoff_ms))
    await world.create_topic("t", [0, 1])
    await trio.sleep(1)
    world.unreachable.add(0)
    await trio.sleep(10)
    fetches.seen.clear()
    await trio.sleep(20)
    pauses = [after.asked_at - before.asked_at for before, after in zip(fetches.seen, fetches.seen[1:], strict=False)]
    assert pauses
    assert all(backoff_ms / 1000 <= pause <= backoff_ms / 1000 + 0.1 for pause in pauses)
