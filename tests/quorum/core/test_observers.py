"""Observers: they find the leader, pull the log, follow it through elections, and are forgotten when they are gone for long."""

import pytest

from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.effects import Append
from kraftlab.quorum.core.events import ResponseReceived
from kraftlab.quorum.core.messages import FetchRequest, FetchResponse, LeaderView, Records


def test_an_observer_may_discover_and_append_in_one_fetch(driven, batches_of) -> None:
    node = driven(node_id=9)
    node.tick(20)
    send = node.sent(FetchRequest)[0]
    node.answer(send, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, LeaderView(4, 2), -1, 0, 0, Records(b"")))
    assert (node.node.state_name, node.node.leader_id) == ("follower", 2)
    node.tick_until("unattached")
    node.tick_until("unattached")
    while not node.sent(FetchRequest):
        node.tick(20)
    send = node.sent(FetchRequest)[0]
    response = FetchResponse(ErrorCode.NONE, LeaderView(4, send.destination), 1, 0, 0, Records(batches_of(((4, 1),))[0]))
    if send.destination == 2:
        node.answer(send, response)
        assert node.only(Append).end_offset == 1


def test_an_observer_without_any_voter_asks_a_bootstrap_endpoint(driven) -> None:
    node = driven(node_id=9, voters=())
    node.tick(20)
    assert node.sent(FetchRequest)[0].destination == -1


def test_an_anonymous_observer_may_read_but_is_not_remembered(driven) -> None:
    node = driven()
    node.win()
    node.flush()
    request = FetchRequest(1, ReplicaKey(-1), 1, 1, -1, 0, 1000)
    assert node.request(5, request).error is ErrorCode.NONE
    assert node.node.observer_progress() == []


def test_a_reader_with_a_name_and_no_node_id_is_remembered_and_never_votes(driven) -> None:
    """Readers of other names are others; the high watermark waits for voters."""
    node = driven()
    node.win()
    node.flush()
    before = node.node.high_watermark
    readers = [ReplicaKey(-1, letter * 16) for letter in (b"a", b"b")]
    for reader in readers:
        assert node.request(5, FetchRequest(1, reader, 1, 1, -1, 0, 1000)).error is ErrorCode.NONE
    assert [progress.key for progress in node.node.observer_progress()] == readers
    assert node.node.high_watermark == before


def test_an_observer_gone_for_long_is_forgotten(driven, key_of) -> None:
    node = driven(voters=(1,))
    node.tick()
    node.flush()
    node.request(9, FetchRequest(1, key_of(9), 1, 1, 1, 100, 1000))
    assert len(node.node.observer_progress()) == 1
    node.tick(299_000)
    assert len(node.node.observer_progress()) == 1
    node.tick(2_000)
    assert node.node.observer_progress() == []


@pytest.mark.parametrize("directory", [b"another disk 16.", b"yet another one."])
def test_a_voters_id_with_an_unknown_directory_is_the_voter_while_voters_are_static(driven, directory) -> None:
    node = driven()
    node.win()
    node.flush()
    node.request(2, FetchRequest(1, ReplicaKey(2, directory), 1, 1, -1, 100, 1000))
    assert node.node.high_watermark == 1


def test_an_answer_from_somebody_else_than_the_leader_is_not_asked_for_again_at_once(driven) -> None:
    """An endpoint of another node: asking it again as fast as it answers would keep both nodes busy."""
    node = driven(node_id=9)
    node.tick(20)
    node.answer(
        node.sent(FetchRequest)[0], FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, LeaderView(4, 2), -1, 0, 0, Records(b""))
    )
    send = node.sent(FetchRequest)[-1]
    assert send.destination == 2
    node.step(ResponseReceived(send.correlation, 3, FetchResponse(ErrorCode.NONE, LeaderView(4, 2), -1, 0, 0, Records(b""))))
    assert not node.sent(FetchRequest)
    node.tick(20)
    assert node.sent(FetchRequest)
