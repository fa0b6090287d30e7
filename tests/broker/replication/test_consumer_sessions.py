"""Fetch sessions of Kafka clients: incremental answers say the same as whole ones, and partitions without news cost nothing."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
import trio

from kraftlab.broker.replication.fetch_sessions import FetchSession, FetchSessions, SessionRefused
from kraftlab.broker.replication.readers import Consumer
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import Uuid
from kraftlab.gateway.data import ReadableTopics
from kraftlab.metadata.peer_rpc import FetchPartition, ReplicaFetchRequest, ReplicaFetchResponse

from ...helpers.waiting import eventually
from ..conftest import Broker, batch

COUNT = 6
BY_NAME = ReadableTopics(False, None, lambda named: named)
BY_ID = ReadableTopics(True, None, lambda named: named)


def position(number: int, offset: int = 0, *, last_epoch: int = -1, name: bytes = b"t") -> FetchPartition:
    return FetchPartition(name, number, -1, offset, last_epoch, -1, 1 << 20)


def request(session_id: int, epoch: int, *positions: FetchPartition, **fields: Any) -> ReplicaFetchRequest:
    wanted = ReplicaFetchRequest(-1, -1, 0, 1, 50 << 20, positions, session_id=session_id, session_epoch=epoch)
    return msgspec.structs.replace(wanted, **fields)


class Client:
    """A Kafka client with a session at one broker, as the Kafka listener translates its fetches."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.session_id = self.epoch = 0
        self.view = "rights"
        self.refused: set[bytes] = set()
        """Topics that the client may not read."""
        self.looks = 0
        """Number of times that the broker looked for a topic."""

    def find(self, named: bytes) -> Uuid | ErrorCode:
        self.looks += 1
        if named in self.refused:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic_id: Uuid | None = self.broker.replicas.image.topics.by_name.get(named.decode())
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_id is None else topic_id

    async def fetch(self, *positions: FetchPartition, **fields: Any) -> dict[int, Any]:
        """Send the next fetch of the session and return the answers, by partition."""
        response = await self.ask(request(self.session_id, self.epoch, *positions, **fields))
        assert response.error == ErrorCode.NONE
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        return {part.partition: part for part in response.partitions}

    async def ask(self, asked: ReplicaFetchRequest) -> ReplicaFetchResponse:
        topics = ReadableTopics(False, self.view, self.find)
        return await self.broker.fetches.fetch(asked, topics=topics)


@pytest.fixture
async def broker(world: Any) -> Any:
    """A broker that leads all partitions of topic t."""
    found = await world.add_broker(0)
    await world.create_topic("t", *([0] for _ in range(COUNT)))
    return found


# --- the same as without a session -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
async def test_a_consumer_learns_the_same_as_without_sessions(seed: int, autojump_clock: Any, world: Any) -> None:
    """The twin sees every wanted partition each time; the consumer keeps what it saw last."""
    rng = random.Random(seed)
    leader = await world.add_broker(0)
    await world.add_broker(1)
    await world.create_topic("t", *([0, 1] for _ in range(COUNT)))
    client, known, offsets = Client(leader), dict[int, Any](), dict.fromkeys(range(COUNT), 0)
    changed, forgotten = set(offsets), set[int]()
    for _ in range(60):
        number = rng.randrange(COUNT)
        match rng.choice(["produce", "produce", "delete", "lead", "read", "forget", "nothing"]):
            case "produce":
                await leader.produce("t", number, batch(rng.randint(1, 3)))
            case "delete" if world.state("t", number).leader == 0:
                await leader.partition("t", number).delete_records_before(-1)
            case "lead":
                await world.change("t", number, leader=1 - world.state("t", number).leader)
            case "read":
                offsets[number] = rng.randint(0, leader.log("t", number).log_end_offset + 1)
                changed.add(number)
            case "forget" if number in offsets and len(offsets) > 1:
                del offsets[number]
                known.pop(number, None)
                changed.discard(number)
                forgotten.add(number)
        sent = [position(at, offsets[at]) for at in sorted(changed)]
        shown = await client.fetch(*sent, forgotten=tuple((b"t", at) for at in forgotten - changed))
        twin = await client.ask(request(0, -1, *(position(at, offset) for at, offset in offsets.items())))
        changed, forgotten = set(), set()
        known |= {at: part for at, part in shown.items() if at in offsets}
        whole = {part.partition: part for part in twin.partitions}
        assert {at: told(part) for at, part in known.items()} == {at: told(part) for at, part in whole.items()}
        news = {at for at, part in whole.items() if part.records or part.error}
        assert {at: (part.error, bytes(part.records)) for at, part in shown.items() if part.records or part.error} == {
            at: (whole[at].error, bytes(whole[at].records)) for at in news
        }


def told(part: Any) -> tuple[int, int, int]:
    return part.error, part.high_watermark, part.log_start_offset


async def test_partitions_without_news_are_left_out_and_not_looked_at(autojump_clock: Any, broker: Any) -> None:
    client = Client(broker)
    assert set(await client.fetch(*map(position, range(COUNT)))) == set(range(COUNT))
    client.looks = 0
    assert await client.fetch() == await client.fetch() == {}
    assert client.looks == 0
    await broker.produce("t", 2, batch())
    assert set(await client.fetch()) == set(await client.fetch()) == {2}, "the same records, until another position comes"
    assert client.looks == 2
    assert await client.fetch(position(2, 1)) == {}


async def test_a_newer_log_start_is_told_but_wakes_nobody(autojump_clock: Any, broker: Any) -> None:
    client = Client(broker)
    await broker.produce("t", 0, batch())
    await client.fetch(position(0, 1))

    async def delete() -> None:
        await trio.sleep(1)
        await broker.partition("t", 0).delete_records_before(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete)
        began = trio.current_time()
        shown = await client.fetch(max_wait_ms=3000)
        assert trio.current_time() - began == pytest.approx(3)
    assert {at: part.log_start_offset for at, part in shown.items()} == {0: 1}
    assert await client.fetch() == {}


async def test_records_end_the_wait(autojump_clock: Any, broker: Any) -> None:
    client = Client(broker)
    await client.fetch(*map(position, range(COUNT)))

    async def produce() -> None:
        await trio.sleep(1)
        await broker.produce("t", 4, batch())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        began = trio.current_time()
        assert set(await client.fetch(max_wait_ms=3000)) == {4}
        assert trio.current_time() - began < 1.5


async def test_an_answer_is_in_the_order_of_the_request(autojump_clock: Any, broker: Any) -> None:
    client = Client(broker)
    await broker.produce("t", 3, batch())
    assert list(await client.fetch(position(5), position(9), position(3), position(1))) == [5, 9, 3, 1]


async def test_partitions_with_records_are_read_last_the_next_time(autojump_clock: Any, broker: Any) -> None:
    client = Client(broker)
    for number in (0, 1):
        await broker.produce("t", number, batch(1, 1000))
    shown = [await client.fetch(position(0), position(1), max_bytes=1), await client.fetch(max_bytes=1)]
    assert [[at for at, part in each.items() if part.records] for each in shown] == [[0], [1]]


# --- what a resting partition must not miss ----------------------------------------------------------------------------------


async def test_a_partition_with_an_error_is_in_every_answer_and_nobody_waits_for_it(autojump_clock: Any, broker: Any) -> None:
    client, began = Client(broker), trio.current_time()
    for _ in range(3):
        shown = await client.fetch(position(0), position(COUNT), max_wait_ms=10_000)
        assert shown[COUNT].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert trio.current_time() == began


async def test_a_consumer_that_loses_its_rights_is_refused(autojump_clock: Any, broker: Any) -> None:
    client = Client(broker)
    await client.fetch(*map(position, range(COUNT)))
    client.view, client.refused = "fewer rights", {b"t"}
    assert {part.error for part in (await client.fetch()).values()} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    client.view, client.refused = "rights", set()
    assert {at: part.error for at, part in (await client.fetch()).items()} == dict.fromkeys(range(COUNT), 0)
    assert await client.fetch() == {}


async def test_a_topic_that_is_created_again_is_read_by_its_name(autojump_clock: Any, broker: Any, world: Any) -> None:
    client = Client(broker)
    await broker.produce("t", 0, batch())
    await client.fetch(position(0, 1))
    await world.delete_topic("t")
    assert (await client.fetch())[0].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await world.create_topic("t", [0])
    await broker.produce("t", 0, batch(3))
    assert (await client.fetch(position(0, 0)))[0].high_watermark == 3


async def test_a_consumer_whose_records_are_truncated_meanwhile_is_told(autojump_clock: Any, world: Any) -> None:
    """It reads from a follower, and its fetch is parked when the follower truncates its log."""
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    await brokers[0].produce("t", 0, batch())
    await brokers[0].produce("t", 0, batch())
    await eventually(lambda: brokers[1].log("t", 0).high_watermark == 2, "the follower knows the high watermark")
    client = Client(brokers[1])
    await client.fetch(position(0, 2), any_replica=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: client.fetch(any_replica=True, max_wait_ms=1000))
        await trio.sleep(0.5)
        await brokers[1].partition("t", 0).truncate(0, 1)
    assert (await client.fetch(any_replica=True))[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_fetch_that_may_not_read_from_followers_is_refused_there(autojump_clock: Any, world: Any) -> None:
    brokers = await world.add_brokers(2)
    await world.create_topic("t", [0, 1])
    client = Client(brokers[1])
    await eventually(lambda: bool(brokers[1].replicas.partitions), "the follower is there")
    assert (await client.fetch(position(0), any_replica=True))[0].error == ErrorCode.NONE
    assert (await client.fetch())[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("last_epoch", "code"), [(0, ErrorCode.NONE), (4, ErrorCode.OFFSET_OUT_OF_RANGE)])
async def test_an_epoch_that_is_newer_than_the_log_is_out_of_range(
    last_epoch: int, code: ErrorCode, autojump_clock: Any, broker: Any
) -> None:
    await broker.produce("t", 0, batch())
    assert (await Client(broker).fetch(position(0, 1, last_epoch=last_epoch)))[0].error == code


# --- beginning, continuing and ending ----------------------------------------------------------------------------------------


def session_of(
    sessions: FetchSessions, asked: ReplicaFetchRequest, now_s: float, topics: ReadableTopics = BY_NAME
) -> FetchSession:
    replicas: Any = None
    return sessions.session_of(asked, Consumer(replicas, asked, topics), now_s)


@pytest.mark.parametrize(
    ("session_is_known", "epoch", "topics", "code"),
    [
        (True, 1, BY_NAME, None),
        (True, 2, BY_NAME, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (True, 1, BY_ID, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        (False, 1, BY_NAME, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_only_the_next_fetch_continues_a_session(
    session_is_known: bool, epoch: int, topics: ReadableTopics, code: ErrorCode | None
) -> None:
    sessions = FetchSessions()
    begun = session_of(sessions, request(0, 0, position(0)), 0.0)
    asked = request(begun.id if session_is_known else begun.id ^ 1, epoch)
    if code is None:
        assert session_of(sessions, asked, 1.0, topics) is begun
        return
    with pytest.raises(SessionRefused) as raised:
        session_of(sessions, asked, 1.0, topics)
    assert raised.value.code == code


def test_a_session_ends_with_epoch_minus_1_or_its_last_partition() -> None:
    sessions = FetchSessions()
    begun = session_of(sessions, request(0, 0, position(0)), 0.0)
    assert session_of(sessions, request(begun.id, -1), 1.0).id == 0
    begun = session_of(sessions, request(0, 0, position(0)), 2.0)
    assert session_of(sessions, request(begun.id, 1, forgotten=((b"t", 0),)), 3.0).id == 0
    assert len(sessions) == 0


def test_the_session_that_was_not_used_for_longest_goes_first() -> None:
    sessions = FetchSessions(sessions_max=2)
    first, second = (session_of(sessions, request(0, 0, position(0)), float(time)) for time in (0, 1))
    session_of(sessions, request(first.id, 1), 2.0)
    session_of(sessions, request(0, 0, position(0)), 3.0)
    assert len(sessions) == 2
    with pytest.raises(SessionRefused):
        session_of(sessions, request(second.id, 1), 4.0)


async def test_a_fetch_that_wants_nothing_is_answered_at_once(autojump_clock: Any, broker: Any) -> None:
    client, began = Client(broker), trio.current_time()
    assert await client.fetch(max_wait_ms=10_000) == {}
    await client.fetch(position(0))
    assert await client.fetch(forgotten=((b"t", 0),), max_wait_ms=10_000) == {}
    assert (client.session_id, trio.current_time()) == (0, began)


async def test_consumers_and_followers_do_not_reach_each_others_sessions(autojump_clock: Any, broker: Any) -> None:
    follower = ReplicaFetchRequest(7, 1, 0, 1, 1 << 20, (), session_epoch=0)
    session_id = (await broker.fetches.fetch(follower)).session_id
    client = Client(broker)
    assert (await client.ask(request(session_id, 1))).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    await client.ask(request(session_id, -1))
    following = msgspec.structs.replace(follower, session_id=session_id, session_epoch=1)
    assert (await broker.fetches.fetch(following)).error == ErrorCode.NONE, "the consumer has not ended it"
    await client.fetch(position(0))
    await broker.fetches.fetch(request(client.session_id, -1))
    assert await client.fetch() == {}, "a client by peer frames has not ended it"


async def test_a_newer_fetch_of_a_session_ends_a_parked_one_and_says_the_same(autojump_clock: Any, broker: Any) -> None:
    client = Client(broker)
    await client.fetch(position(0))
    parked = request(client.session_id, 1, position(1), max_wait_ms=10_000)
    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(client.ask, parked)
        await trio.sleep(1)
        client.epoch = 2
        assert set(await client.fetch(max_wait_ms=1000)) == {1}
    assert trio.current_time() - began == pytest.approx(2)


async def test_a_session_that_has_ended_watches_no_partition(
    autojump_clock: Any, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, partition, left = Client(broker), broker.partition("t", 0), list[Any]()
    await client.fetch(position(0))
    monkeypatch.setattr(partition, "unwatch", left.append)
    await client.ask(request(client.session_id, -1))
    assert [watch.partition for watch in left] == [partition]
