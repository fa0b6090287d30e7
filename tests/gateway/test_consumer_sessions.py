"""Fetch sessions of consumers: incremental answers say the same as whole ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.errors import ErrorCode
from kraftlab.gateway.fetch_sessions import ConsumerSessions, SessionError
from kraftlab.messages.generated.fetch_response import PartitionData

from .conftest import make_request


def body(session_id: int, epoch: int, *indexes: int, forgotten: tuple[int, ...] = (), version: int = 12) -> Any:
    partitions = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1} for index in indexes]
    return make_request(
        *(1, version),
        session_id=session_id,
        session_epoch=epoch,
        topics=[{"topic": "t", "partitions": partitions}] if indexes else [],
        forgotten_topics_data=[{"topic": "t", "partitions": forgotten}] if forgotten else [],
    ).body


marks = st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([b"", b"records"]))
steps = st.lists(
    st.tuples(st.sets(st.integers(0, 3)), st.sets(st.integers(0, 3)), st.tuples(marks, marks, marks, marks)), max_size=8
)


@given(steps)
def test_a_consumer_learns_the_same_as_without_sessions(steps: list[Any]) -> None:
    """The twin sees every wanted partition each time; the consumer keeps what it saw last."""
    sessions = ConsumerSessions()
    session = sessions.session_of(body(0, 0, 0, 1, 2, 3), 12, 0.0)
    wanted = {0, 1, 2, 3}
    known: dict[int, tuple[int, int]] = {}
    for epoch, (added, dropped, state) in enumerate(steps, 1):
        dropped -= added
        fetch = body(session.id, epoch, *sorted(added), forgotten=tuple(sorted(dropped)))
        session = sessions.session_of(fetch, 12, float(epoch))
        wanted = (wanted | added) - dropped
        if not wanted:
            return
        whole = {
            ("t", index): PartitionData(partition_index=index, high_watermark=high, log_start_offset=start, records=records)
            for index, (high, start, records) in enumerate(state)
            if index in wanted
        }
        shown = session.shown(whole)
        for key in shown:
            known[key[1]] = (whole[key].high_watermark, whole[key].log_start_offset)
        assert {index: known[index] for index in wanted} == {index: state[index][:2] for index in wanted}
        assert {key for key, answer in whole.items() if answer.records} <= set(shown)


def test_a_partition_with_an_error_is_in_every_answer() -> None:
    sessions = ConsumerSessions()
    session = sessions.session_of(body(0, 0, 0), 12, 0.0)
    failed = {("t", 0): PartitionData(partition_index=0, error_code=3, high_watermark=-1)}
    assert session.shown(failed) == session.shown(failed) == [("t", 0)]


def test_partitions_with_records_are_read_last_the_next_time() -> None:
    sessions = ConsumerSessions()
    session = sessions.session_of(body(0, 0, 0, 1), 12, 0.0)
    session.shown({("t", 0): PartitionData(partition_index=0, records=b"r"), ("t", 1): PartitionData(partition_index=1)})
    assert list(session.wanted) == [("t", 1), ("t", 0)]


@pytest.mark.parametrize(
    ("session_is_known", "epoch", "version", "code"),
    [
        (True, 1, 12, None),
        (True, 2, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (True, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        (False, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_only_the_next_fetch_continues_a_session(
    session_is_known: bool, epoch: int, version: int, code: ErrorCode | None
) -> None:
    sessions = ConsumerSessions()
    begun = sessions.session_of(body(0, 0, 0), 12, 0.0)
    fetch = body(begun.id if session_is_known else begun.id ^ 1, epoch, version=version)
    if code is None:
        assert sessions.session_of(fetch, version, 1.0) is begun
        return
    with pytest.raises(SessionError) as raised:
        sessions.session_of(fetch, version, 1.0)
    assert raised.value.code == code


def test_a_session_ends_with_epoch_minus_1_or_its_last_partition() -> None:
    sessions = ConsumerSessions()
    begun = sessions.session_of(body(0, 0, 0), 12, 0.0)
    assert sessions.session_of(body(begun.id, -1), 12, 1.0).id == 0
    begun = sessions.session_of(body(0, 0, 0), 12, 2.0)
    assert sessions.session_of(body(begun.id, 1, forgotten=(0,)), 12, 3.0).id == 0
    assert len(sessions) == 0


def test_the_session_that_was_not_used_for_longest_goes_first() -> None:
    sessions = ConsumerSessions(sessions_max=2)
    first, second = (sessions.session_of(body(0, 0, 0), 12, float(time)) for time in (0, 1))
    sessions.session_of(body(first.id, 1), 12, 2.0)
    sessions.session_of(body(0, 0, 0), 12, 3.0)
    assert len(sessions) == 2
    with pytest.raises(SessionError):
        sessions.session_of(body(second.id, 1), 12, 4.0)
