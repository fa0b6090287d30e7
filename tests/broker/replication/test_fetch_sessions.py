"""Fetch sessions (KIP-227): what a leader knows is what its follower wants, whatever is lost on the way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.broker.replication.fetch_sessions import (
    IDLE_S,
    LAST_EPOCH,
    FetchSession,
    FetchSessions,
    SentPositions,
    SessionRefused,
)
from kraftlab.broker.replication.readers import Consumer, Follower
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import UNASSIGNED
from kraftlab.metadata.peer_rpc import Api, FetchPartition, ReplicaFetchRequest, ReplicaFetchResponse

from ...helpers.waiting import eventually
from ..conftest import batch, same_data

TOPIC = b"t" * 16
FOLLOWER, BROKER_EPOCH = 1, 5


def position(number: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(TOPIC, number, 0, offset, -1, 0, 1 << 20)


def fetch(session_id: int, epoch: int, *partitions: FetchPartition, **fields: Any) -> ReplicaFetchRequest:
    request = ReplicaFetchRequest(FOLLOWER, BROKER_EPOCH, 0, 1, 1 << 20, partitions, 0, session_id, epoch)
    return msgspec.structs.replace(request, **fields)


def session_of(sessions: FetchSessions, request: ReplicaFetchRequest, now_s: float) -> FetchSession:
    replicas: Any = None
    reader = Follower(replicas, request) if request.replica_id >= 0 else Consumer(replicas, request)
    return sessions.session_of(request, reader, now_s)


def code_of(sessions: FetchSessions, request: ReplicaFetchRequest) -> ErrorCode:
    with pytest.raises(SessionRefused) as refused:
        session_of(sessions, request, 0.0)
    return refused.value.code


def offsets(session: FetchSession) -> dict[int, int]:
    return {number: wanted.fetch_offset for (_, number), wanted in session.wanted.items()}


# --- the table ---------------------------------------------------------------------------------------------------------------


def test_a_fetch_of_a_session_names_only_what_has_changed() -> None:
    sessions = FetchSessions()
    session = session_of(sessions, fetch(0, 0, position(0), position(1), position(2)), 0.0)
    again = session_of(sessions, fetch(session.id, 1, position(1, 7), position(3), forgotten=((TOPIC, 0),)), 0.0)
    assert again is session
    assert offsets(session) == {1: 7, 2: 0, 3: 0}
    assert session_of(sessions, fetch(session.id, 2), 0.0) is session


def test_a_fetch_without_a_session_leaves_nothing_behind() -> None:
    sessions = FetchSessions()
    session = session_of(sessions, fetch(0, -1, position(0)), 0.0)
    assert (session.id, len(sessions)) == (0, 0)


def test_consumers_by_peer_frames_have_no_sessions() -> None:
    sessions = FetchSessions()
    assert session_of(sessions, fetch(0, 0, position(0), replica_id=-1), 0.0).id == 0
    assert len(sessions) == 0


@pytest.mark.parametrize("epoch", [2, 3, LAST_EPOCH])
def test_a_fetch_that_is_not_the_next_one_is_refused_and_changes_nothing(epoch: int) -> None:
    sessions = FetchSessions()
    session = session_of(sessions, fetch(0, 0, position(0)), 0.0)
    assert code_of(sessions, fetch(session.id, epoch, position(1))) == ErrorCode.INVALID_FETCH_SESSION_EPOCH == 71
    assert offsets(session) == {0: 0}
    session_of(sessions, fetch(session.id, 1), 0.0)
    assert code_of(sessions, fetch(session.id, 1)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH, "it is repeated"


@pytest.mark.parametrize(
    "other", [{"session_id": 12345}, {"session_id": 0}, {"broker_epoch": 6}, {"replica_id": 2}, {"lane": 1}], ids=str
)
def test_a_session_that_is_not_the_followers_own_is_not_found(other: dict[str, int]) -> None:
    sessions = FetchSessions()
    session = session_of(sessions, fetch(0, 0, position(0)), 0.0)
    request = msgspec.structs.replace(fetch(session.id, 1), **other)
    assert code_of(sessions, request) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND == 70


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_fetch_with_all_positions_ends_the_session_it_names(epoch: int) -> None:
    sessions = FetchSessions()
    session = session_of(sessions, fetch(0, 0, position(0)), 0.0)
    session_of(sessions, fetch(session.id, epoch, position(0)), 0.0)
    assert code_of(sessions, fetch(session.id, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == (epoch == 0)


def test_after_the_last_number_comes_one() -> None:
    sessions = FetchSessions()
    session = session_of(sessions, fetch(0, 0), 0.0)
    session.epoch = LAST_EPOCH
    session_of(sessions, fetch(session.id, LAST_EPOCH), 0.0)
    assert session_of(sessions, fetch(session.id, 1), 0.0) is session


def test_the_session_that_was_used_least_recently_makes_room() -> None:
    sessions = FetchSessions(sessions_max=2)
    first, second = (session_of(sessions, fetch(0, 0, replica_id=replica), float(replica)) for replica in (1, 2))
    session_of(sessions, fetch(first.id, 1), 3.0)
    session_of(sessions, fetch(0, 0, replica_id=3), 4.0)
    assert len(sessions) == 2
    assert code_of(sessions, fetch(second.id, 1, replica_id=2)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert session_of(sessions, fetch(first.id, 2), 5.0) is first


def test_sessions_that_nobody_uses_go_when_another_begins() -> None:
    sessions = FetchSessions(idle_s=IDLE_S)
    for lane in range(5):
        session_of(sessions, fetch(0, 0, lane=lane), 0.0)
    session_of(sessions, fetch(0, 0, replica_id=2), IDLE_S + 1)
    assert len(sessions) == 1


# --- the same as telling everything each time --------------------------------------------------------------------------------

STEP = st.one_of(
    st.tuples(st.just("want"), st.integers(0, 5), st.integers(0, 3)),
    st.tuples(st.just("forget"), st.integers(0, 5), st.just(0)),
    st.tuples(
        st.sampled_from(["fetch", "lose request", "lose answer", "give up unsent", "leader restarts"]), st.just(0), st.just(0)
    ),
)


@settings(deadline=None)
@given(st.lists(STEP, max_size=40))
def test_a_leader_that_answers_knows_its_followers_positions(steps: list[tuple[str, int, int]]) -> None:
    """The twin tells everything each time. Requests and answers get lost, leaders forget their sessions."""
    sessions, sent, wanted = FetchSessions(), SentPositions(), dict[int, int]()

    def send(*, arrives: bool, is_answered: bool) -> None:
        begins = sent.is_full
        session_id, epoch, partitions, forgotten = sent.next_fetch()
        if not arrives:
            return
        try:
            session = session_of(sessions, fetch(session_id, epoch, *partitions, forgotten=forgotten), 0.0)
        except SessionRefused:
            sent.start_over()
            return
        assert offsets(session) == wanted
        assert {(TOPIC, partition.partition) for partition in partitions} <= session.due.keys()
        if begins and is_answered:
            sent.began(session.id)

    for name, number, offset in steps:
        match name:
            case "want":
                sent.want(position(number, offset))
                wanted[number] = offset
            case "forget":
                sent.forget((TOPIC, number))
                wanted.pop(number, None)
            case "fetch" | "lose answer":
                send(arrives=True, is_answered=name == "fetch")
            case "lose request":
                send(arrives=False, is_answered=False)
                sent.start_over()
            case "give up unsent":
                send(arrives=False, is_answered=False)
            case _:
                sessions = FetchSessions()
    for _ in range(3):
        send(arrives=True, is_answered=True)
    assert not sent.is_full
    assert sent.next_fetch()[2:] == ((), ())


# --- between brokers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def pair(world: Any) -> Any:
    """Two brokers, and a topic of twenty partitions that broker 0 leads."""
    await world.add_brokers(2)
    await world.create_topic("t", *([0, 1] for _ in range(20)))
    return world


@pytest.fixture
def fetches(world: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[ReplicaFetchRequest, ReplicaFetchResponse]]:
    """Every fetch between brokers that was answered."""
    seen: list[tuple[ReplicaFetchRequest, ReplicaFetchResponse]] = []
    real = world.request

    async def request(endpoint: Any, api: int, body: bytes, *, timeout_ms: int, channel: int = 0, node_id: int = -1) -> bytes:
        answer: bytes = await real(endpoint, api, body, timeout_ms=timeout_ms)
        if api == Api.REPLICA_FETCH:
            seen.append(
                (
                    msgspec.msgpack.decode(body, type=ReplicaFetchRequest),
                    msgspec.msgpack.decode(answer, type=ReplicaFetchResponse),
                )
            )
        return answer

    monkeypatch.setattr(world, "request", request)
    return seen


async def test_idle_partitions_are_not_named_again(autojump_clock: Any, fetches: list[Any], pair: Any) -> None:
    await trio.sleep(2)
    fetches.clear()
    await trio.sleep(5)
    assert fetches
    assert all(not request.partitions and not response.partitions for request, response in fetches)
    fetches.clear()
    assert (await pair.brokers[0].produce("t", 7, batch())).error == 0
    named = {part.partition for request, _ in fetches for part in request.partitions}
    assert named == {7}


async def test_a_follower_that_rests_at_the_end_stays_in_sync_when_an_append_comes_late(autojump_clock: Any, pair: Any) -> None:
    """Its last fetch that named the partition is long ago; that it was heard since counts."""
    leader = pair.brokers[0]
    await trio.sleep(60)
    async with leader.partition("t", 3).lock:
        pass
    pair.unreachable.add(0)
    await trio.sleep(1)
    assert (await leader.produce("t", 3, batch(), acks=1)).error == 0
    leader.replicas.check_lag()
    await trio.sleep(0.1)
    assert pair.state("t", 3).isr == (0, 1), "it had everything a second ago"
    await trio.sleep(5)
    assert pair.state("t", 3).isr == (0,), "but not since"


@pytest.mark.parametrize("what", ["forgets the session", "restarts"])
async def test_replication_goes_on_when_a_leader_knows_the_session_no_more(
    autojump_clock: Any, fetches: list[Any], pair: Any, what: str
) -> None:
    leader, follower = pair.brokers[0], pair.brokers[1]
    assert (await leader.produce("t", 0, batch())).error == 0
    if what == "restarts":
        leader.crash()
        await leader.restart()
    else:
        leader.fetches.sessions = FetchSessions()
    assert (await leader.produce("t", 1, batch())).error == 0
    await eventually(lambda: all(same_data("t", number, (leader, follower)) for number in range(20)), "both hold the same")
    if what == "forgets the session":
        assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND in {response.error for _, response in fetches}


async def test_a_follower_names_a_removed_partition_to_the_leader(autojump_clock: Any, fetches: list[Any], pair: Any) -> None:
    await eventually(lambda: UNASSIGNED not in pair.state("t", 4).directories, "every replica has its directory")
    fetches.clear()
    await pair.change("t", 4, replicas=(0,), isr=(0,), directories=pair.state("t", 4).directories[:1])
    gone = pair.image.topics.by_name["t"], 4
    await eventually(lambda: [gone] in [[*request.forgotten] for request, _ in fetches], "one is forgotten")
