"""Linearizable reads: the leader answers only when a majority has echoed a round that began after the read was asked."""

import pytest

from kraftlab.quorum.core import ElectionState, ErrorCode
from kraftlab.quorum.core.effects import Apply, Effect, ReadIndexReady, ReadIndexRefused, Reply
from kraftlab.quorum.core.events import ElectionStateStored, ReadIndexAsked, RequestReceived, ResignAsked, ShutdownAsked
from kraftlab.quorum.core.messages import BeginQuorumEpochRequest, FetchRequest, FetchResponse, LeaderView, Records
from kraftlab.quorum.core.read_index import ReadIndex


def fetch(node, key, *, read_round=0, epoch=None, offset=None, last_epoch=None, high_watermark=None) -> FetchRequest:
    """A fetch of a follower that has everything, unless told otherwise."""
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
    """`leading()` leads and has committed in its epoch; `leading(commits=False)` has not yet. No fetch is parked."""

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


def test_the_arrival_of_a_fetch_confirms_nothing_its_echo_does(leading, key_of) -> None:
    node = leading()
    assert answers(node.step(ReadIndexAsked(7))) == []
    reply = node.request(2, fetch(node, key_of(2)))
    assert answers(node.effects) == []
    assert reply is not None and reply.read_round == 1, "a fetch sent before the read is answered at once, with the round"
    node.request(2, fetch(node, key_of(2), read_round=1))
    assert ready(node.effects) == [(7, node.node.high_watermark)]


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


def test_reads_share_a_round_that_no_answer_has_named(leading, key_of) -> None:
    node = leading()
    for token in (1, 2, 3):
        node.step(ReadIndexAsked(token))
    node.request(2, fetch(node, key_of(2)))
    node.step(ReadIndexAsked(4))
    node.request(2, fetch(node, key_of(2), read_round=1))
    assert [token for token, _ in ready(node.effects)] == [1, 2, 3], "the fourth was asked after the round was named"
    node.request(2, fetch(node, key_of(2), read_round=2))
    assert [token for token, _ in ready(node.effects)] == [4]


def test_a_new_leader_waits_until_it_has_committed_in_its_epoch(leading, key_of) -> None:
    node = leading(commits=False, log=((1, 3),), election=ElectionState(1, -1, None))
    node.step(ReadIndexAsked(1))
    node.request(2, fetch(node, key_of(2), read_round=1, offset=3, last_epoch=1))
    assert answers(node.effects) == [], "the round is confirmed, but what is committed is not known yet"
    node.request(2, fetch(node, key_of(2), read_round=1))
    kinds = [type(effect) for effect in node.effects if isinstance(effect, Apply | ReadIndexReady)]
    assert kinds == [Apply, ReadIndexReady], "in this order"
    assert ready(node.effects) == [(1, node.node.log_end_offset)]


def test_a_sole_voter_answers_at_once_when_it_has_committed(driven) -> None:
    node = driven(voters=(1,))
    node.tick_until("candidate")
    node.step(ElectionStateStored(1))
    assert node.node.is_leader
    assert answers(node.step(ReadIndexAsked(1))) == []
    assert ready(node.flush()) == [(1, 1)]
    assert ready(node.step(ReadIndexAsked(2))) == [(2, 1)]


def test_who_does_not_lead_refuses_at_once_and_says_who_does(driven, key_of) -> None:
    node = driven()
    node.tick()
    assert answers(node.step(ReadIndexAsked(1))) == [ReadIndexRefused(1, -1, 0)]


@pytest.mark.parametrize(
    "end", [lambda epoch: ResignAsked(epoch, "test"), lambda epoch: ShutdownAsked()], ids=["asked to resign", "shut down"]
)
def test_the_end_of_the_leadership_refuses_what_waits(leading, end) -> None:
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


def test_of_five_voters_two_must_echo(world) -> None:
    cluster = world((1, 2, 3, 4, 5)).start()
    leader = cluster.leader()
    cluster.settle().run(30)
    others = [node_id for node_id in cluster.hosts if node_id != leader.config.node_id]
    cluster.cut(leader.config.node_id, others[0])
    leader.step(ReadIndexAsked(1))
    cluster.run(100)
    assert outcome(leader, 1) is None
    cluster.heal()
    cluster.run_until(lambda: outcome(leader, 1))


def test_read_index_takes_in_order_and_only_what_is_confirmed() -> None:
    reads = ReadIndex()
    reads.ask(1, 10)
    reads.is_named = True
    reads.ask(2, 20)
    assert reads.take_confirmed(0, 30) == []
    assert reads.take_confirmed(1, -1) == [], "nothing is known to be committed"
    assert reads.take_confirmed(1, 30) == [(1, 10)]
    assert reads.take_all() == [2]
    assert reads.take_all() == []


# Clusters


def outcome(host, token) -> ReadIndexReady | ReadIndexRefused | None:
    """How a read has ended on a host, if it has."""
    return next((e for kind in (ReadIndexReady, ReadIndexRefused) for e in host.seen(kind) if e.token == token), None)


def test_a_leader_answers_within_a_round_trip(world) -> None:
    cluster = world((1, 2, 3)).start()
    leader = cluster.leader()
    proposed = leader.propose()
    cluster.settle().run(50)
    asked_ms = cluster.now_ms
    leader.step(ReadIndexAsked(1))
    cluster.run_until(lambda: outcome(leader, 1))
    assert outcome(leader, 1) == ReadIndexReady(1, proposed.end_offset)
    assert cluster.now_ms - asked_ms <= 3


def test_a_deposed_leader_that_is_cut_off_never_answers(world) -> None:
    cluster = world((1, 2, 3)).start()
    old = cluster.leader()
    cluster.settle().run(30)
    cluster.cut(old.config.node_id)
    old.step(ReadIndexAsked(1))
    others = [host for host in cluster.hosts.values() if host is not old]
    cluster.run_until(lambda: any(h.node.leader_high_watermark >= 0 for h in others))
    new = next(h for h in others if h.node.is_leader)
    written = new.propose()
    if old.node.is_leader:
        old.step(ReadIndexAsked(2))
    cluster.run_until(lambda: new.node.high_watermark >= written.end_offset)
    cluster.run_until(lambda: isinstance(outcome(old, 1), ReadIndexRefused))
    cluster.heal()
    cluster.settle()
    assert not old.seen(ReadIndexReady)
    new = cluster.leader()
    new.step(ReadIndexAsked(3))
    cluster.run_until(lambda: outcome(new, 3))
    assert outcome(new, 3).offset >= written.end_offset


def test_a_fetch_on_its_way_since_before_the_vote_deceives_nobody(leading, key_of) -> None:
    """Node 2 fetched from node 1, then voted for node 3, which has committed since; its fetch arrives after the asking."""
    node = leading()
    late = RequestReceived(900, key_of(2), fetch(node, key_of(2)))
    node.step(ReadIndexAsked(1))
    assert answers(node.step(late)) == []
    later = RequestReceived(901, key_of(3), fetch(node, key_of(3)))
    assert answers(node.step(later)) == []


def test_a_lost_answer_only_delays_the_round(world) -> None:
    cluster = world((1, 2, 3)).start()
    leader = cluster.leader()
    cluster.settle().run(30)
    followers = [node_id for node_id in cluster.hosts if node_id != leader.config.node_id]
    cluster.cuts |= {(leader.config.node_id, follower) for follower in followers}
    leader.step(ReadIndexAsked(1))
    cluster.run(20)
    assert outcome(leader, 1) is None
    cluster.heal()
    cluster.run_until(lambda: outcome(leader, 1))


def test_every_read_ends_over_crashes_and_elections(world) -> None:
    cluster = world((1, 2, 3, 4, 5), seed=3).start()
    for number in range(6):
        leader = cluster.leader()
        token = 100 + number
        leader.step(ReadIndexAsked(token))
        floor = max(host.node.high_watermark for host in cluster.up())
        if number % 2:
            leader.crash()
            cluster.leader()
            leader.start()
            cluster.settle()
            continue
        cluster.run_until(lambda host=leader, token=token: outcome(host, token))
        answer = outcome(leader, token)
        assert isinstance(answer, ReadIndexRefused) or answer.offset >= floor
