"""Linearizable reads: the leader answers only when a majority has echoed a round that began after the read was asked."""

import pytest

from kraftlab.common.errors import ErrorCode
from kraftlab.quorum.core import ElectionState
from kraftlab.quorum.core.effects import Effect, ReadIndexReady, ReadIndexRefused, Reply
from kraftlab.quorum.core.events import ElectionStateStored, ReadIndexAsked, RequestReceived, ResignAsked, ShutdownAsked
from kraftlab.quorum.core.messages import BeginQuorumEpochRequest, FetchRequest, FetchResponse, LeaderView, Records
from kraftlab.quorum.core.read_index import ReadIndex


def fetch(node, key, *, read_round=0, epoch=None, offset=None, last_epoch=None, high_watermark=None) -> FetchRequest:
    """Return the fetch of a follower, by default of one that has everything."""
    core = node.node
    return FetchRequest(
        core.epoch if epoch is None else epoch,
        key,
        core.log_end_offset if offset is None else offset,
        core.log.last_epoch if last_epoch is None else last_epoch,
        core.leader_high_watermark if high_watermark is None else high_watermark,
        100,
        1 << 20,
        read_round,
    )


def answers(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, ReadIndexReady | ReadIndexRefused)]


def ready(effects: list[Effect]) -> list[tuple[int, int]]:
    return [(effect.token, effect.offset) for effect in effects if isinstance(effect, ReadIndexReady)]


def round_named(effects: list[Effect]) -> list[int]:
    replies = [effect.response for effect in effects if isinstance(effect, Reply)]
    return [response.read_round for response in replies if isinstance(response, FetchResponse)]


@pytest.fixture
def leading(driven, key_of):
    """`leading()` makes a leader that has committed in its epoch; with `commits=False` it has not. No fetch is parked."""

    def make(commits=True, **options):
        node = driven(**options)
        node.win()
        node.flush()
        if commits:
            node.request(2, fetch(node, key_of(2)))
            assert node.node.leader_high_watermark == node.node.log_end_offset
            node.tick(after_ms=150)
        return node

    return make


# One leader by hand


def test_parked_fetches_of_voters_are_answered_with_the_round(leading, key_of) -> None:
    node = leading()
    assert node.request(2, fetch(node, key_of(2))) is None, "nothing to tell: parked"
    assert round_named(node.step(ReadIndexAsked(1))) == [1]


def test_observers_neither_hear_of_rounds_early_nor_count(leading, key_of) -> None:
    node = leading()
    assert node.request(9, fetch(node, key_of(9))) is None
    assert round_named(node.step(ReadIndexAsked(1))) == []
    node.request(9, fetch(node, key_of(9), read_round=1))
    assert answers(node.effects) == []


def test_an_echo_of_another_epoch_or_of_a_round_that_never_was_does_not_count(leading, key_of) -> None:
    node = leading()
    node.step(ReadIndexAsked(1))
    node.request(2, fetch(node, key_of(2), read_round=1, epoch=node.node.epoch - 1, last_epoch=0))
    assert answers(node.effects) == []
    node.request(2, fetch(node, key_of(2), read_round=5))
    assert answers(node.effects) == []
    assert node.node.is_leader


def test_an_echo_counts_even_if_the_logs_differ(leading, key_of) -> None:
    node = leading(log=((1, 3),), election=ElectionState(1, -1, None))
    node.step(ReadIndexAsked(1))
    node.request(2, fetch(node, key_of(2), read_round=1, offset=9, last_epoch=1))
    assert ready(node.effects) == [(1, node.node.high_watermark)]


def test_a_sole_voter_answers_at_once_when_it_has_committed(driven) -> None:
    node = driven(voters=(1,))
    node.tick_until("candidate")
    node.step(ElectionStateStored(1))
    assert node.node.is_leader
    assert answers(node.step(ReadIndexAsked(1))) == []
    assert ready(node.flush()) == [(1, 1)]
    assert ready(node.step(ReadIndexAsked(2))) == [(2, 1)]


def test_a_node_that_does_not_lead_refuses_at_once_and_names_the_leader(driven, key_of) -> None:
    node = driven()
    node.tick()
    assert answers(node.step(ReadIndexAsked(1))) == [ReadIndexRefused(1, -1, 0)]


@pytest.mark.parametrize(
    "end", [lambda epoch: ResignAsked(epoch, "test"), lambda epoch: ShutdownAsked()], ids=["asked to resign", "shut down"]
)
def test_the_end_of_the_leadership_refuses_waiting_reads(leading, end) -> None:
    node = leading()
    epoch = node.node.epoch
    node.step(ReadIndexAsked(1))
    node.step(ReadIndexAsked(2))
    assert answers(node.step(end(epoch))) == [ReadIndexRefused(1, -1, epoch), ReadIndexRefused(2, -1, epoch)]
    assert answers(node.step(ReadIndexAsked(3))) == [ReadIndexRefused(3, -1, epoch)]


def test_a_voter_that_fetches_in_a_higher_epoch_ends_the_reads_too(leading, key_of) -> None:
    node = leading()
    node.step(ReadIndexAsked(1))
    higher = node.node.epoch + 1
    node.request(2, fetch(node, key_of(2), read_round=1, epoch=higher))
    assert answers(node.effects) == [ReadIndexRefused(1, -1, higher)]


def test_too_many_reads_are_refused_as_overload(leading, key_of) -> None:
    node = leading(waiting_reads_max=2)
    for token in (1, 2):
        assert answers(node.step(ReadIndexAsked(token))) == []
    assert answers(node.step(ReadIndexAsked(3))) == [ReadIndexRefused(3, 1, node.node.epoch, overloaded=True)]
    assert node.node.statistics().waiting_reads == 2


def test_a_follower_echoes_the_newest_round_of_its_leader_only(driven, key_of) -> None:
    node = driven()
    node.tick()
    node.request(2, BeginQuorumEpochRequest(5, 2, key_of(1), {}))
    ask = node.sent(FetchRequest)[0]
    node.answer(ask, FetchResponse(ErrorCode.NONE, LeaderView(5, 2), -1, 0, 4, Records(b"")))
    echo = node.sent(FetchRequest)[0]
    assert echo.request.read_round == 4
    node.answer(echo, FetchResponse(ErrorCode.NONE, LeaderView(6, 3), -1, 0, 9, Records(b"")))
    assert node.sent(FetchRequest)[0].request.read_round == 0, "the rounds of another leader are its own"


def test_of_five_voters_two_must_echo(quorum) -> None:
    nodes = quorum(5)
    leader_id = nodes.settle()
    nodes.run(30)
    nodes.isolate(leader_id, 2)
    nodes.do(leader_id, ReadIndexAsked(1))
    nodes.run(100)
    assert not nodes.seen(leader_id, ReadIndexReady)
    nodes.cuts.clear()
    nodes.run_until(lambda: nodes.seen(leader_id, ReadIndexReady))


def test_read_index_takes_only_confirmed_reads_in_order() -> None:
    reads = ReadIndex()
    reads.ask(1, 10)
    reads.is_named = True
    reads.ask(2, 20)
    assert reads.take_confirmed(0, 30) == []
    assert reads.take_confirmed(1, -1) == [], "nothing is known to be committed"
    assert reads.take_confirmed(1, 30) == [(1, 10)]
    assert reads.take_all() == [2]
    assert reads.take_all() == []


def test_a_fetch_on_its_way_since_before_the_vote_deceives_nobody(leading, key_of) -> None:
    """Node 2 fetched from node 1, then voted for node 3, which has committed since. Its fetch arrives after the read."""
    node = leading()
    late = RequestReceived(900, key_of(2), fetch(node, key_of(2)))
    node.step(ReadIndexAsked(1))
    assert answers(node.step(late)) == []
    later = RequestReceived(901, key_of(3), fetch(node, key_of(3)))
    assert answers(node.step(later)) == []
