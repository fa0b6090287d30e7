"""The queue of moves: caps hold over any history, order and priorities are kept, and the first move in line is not overtaken."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kraftlab.controller.engine.log_writer import prepare_write
from kraftlab.controller.engine.state import EMPTY_STATE, Context, Settings
from kraftlab.controller.reassignment.policy import MOVES_PER_BROKER, MOVES_PER_CLUSTER, MovePolicy
from kraftlab.controller.reassignment.queueing import Load, QueuedTarget, Selection, in_order, select
from kraftlab.controller.reassignment.upkeep import start_waiting
from kraftlab.metadata.features import bootstrap_records
from kraftlab.metadata.image import Provenance
from kraftlab.metadata.moves import QueuedMoveImage
from kraftlab.metadata.records import RESOURCE_BROKER, AnyRecord, Config, Partition, QueueMoves, RegisterBroker, Topic

TOPIC = b"topic of the row"
NOTHING = Load(Counter(), 0)


def policy(per_broker: int = 0, per_cluster: int = 0) -> MovePolicy:
    return MovePolicy(per_broker, per_cluster, "fifo", 20, True)


def waits(number: int, *brokers: int) -> QueuedTarget:
    return QueuedTarget((TOPIC, number), frozenset(brokers))


def queued(offset: int, index: int = 0, priority: int = 0) -> QueuedMoveImage:
    return QueuedMoveImage(offset, index, (1,), "User:a", "", 0, priority=priority)


BROKERS = st.frozensets(st.integers(0, 5), min_size=1, max_size=4)
LOADS = st.builds(
    lambda moves: Load(Counter(broker for move in moves for broker in move), len(moves)), st.lists(BROKERS, max_size=6)
)


@given(st.lists(BROKERS, max_size=30), LOADS, st.integers(0, 4), st.integers(0, 10))
def test_selected_moves_never_exceed_the_caps(moves: list[frozenset[int]], load: Load, per_broker: int, per_cluster: int) -> None:
    taken = select([QueuedTarget((TOPIC, n), brokers) for n, brokers in enumerate(moves)], load, policy(per_broker, per_cluster))
    busy = Counter(load.by_broker)
    for _, number in taken:
        busy.update(moves[number])
    for broker in {broker for _, number in taken for broker in moves[number]}:
        assert not per_broker or busy[broker] <= per_broker
    assert not per_cluster or not taken or load.moves + len(taken) <= per_cluster


@given(st.lists(BROKERS, max_size=30), LOADS, st.integers(1, 4))
def test_skipped_moves_do_not_fit_even_without_later_ones(moves: list[frozenset[int]], load: Load, per_broker: int) -> None:
    """Only moves that ran before, or were taken before it, hold up the first move that is left."""
    taken = {number for _, number in select([QueuedTarget((TOPIC, n), m) for n, m in enumerate(moves)], load, policy(per_broker))}
    left = next((n for n in range(len(moves)) if n not in taken), None)
    if left is not None:
        busy = Counter(load.by_broker)
        for number in range(left):
            busy.update(moves[number])
        assert any(busy[broker] >= per_broker for broker in moves[left])


@given(st.lists(BROKERS, min_size=1, max_size=12), st.integers(1, 3), st.integers(1, 4), st.randoms(use_true_random=False))
def test_every_move_starts_in_any_order_of_ends(
    moves: list[frozenset[int]], per_broker: int, per_cluster: int, source: object
) -> None:
    waiting = [QueuedTarget((TOPIC, n), brokers) for n, brokers in enumerate(moves)]
    running: list[QueuedTarget] = []
    rounds = 0
    while waiting or running:
        load = Load(Counter(broker for move in running for broker in move.brokers), len(running))
        taken = select(waiting, load, policy(per_broker, per_cluster))
        running += [move for move in waiting if move.key in taken]
        waiting = [move for move in waiting if move.key not in taken]
        assert running, "something runs as long as something waits"
        running.remove(source.choice(running))  # type: ignore[attr-defined]
        rounds += 1
    assert rounds == len(moves)


def test_a_busy_broker_does_not_hold_up_the_others() -> None:
    load = Load(Counter({1: 1}), 1)
    assert select([waits(0, 1, 2), waits(1, 3, 4)], load, policy(per_broker=1)) == [(TOPIC, 1)]


def test_the_first_that_does_not_fit_keeps_its_other_brokers_for_itself() -> None:
    load = Load(Counter({1: 1}), 1)
    moves = [waits(0, 1, 2), waits(1, 2, 3), waits(2, 1, 4), waits(3, 4, 5)]
    assert select(moves, load, policy(per_broker=1)) == [(TOPIC, 3)], "2 is kept for the first, 4 for nobody"


def test_without_caps_everything_starts() -> None:
    assert len(select([waits(n, 1, 2) for n in range(50)], NOTHING, policy())) == 50


def test_moves_beyond_the_caps_that_were_not_queued_let_nothing_start() -> None:
    assert select([waits(0, 1)], Load(Counter({1: 5}), 5), policy(per_broker=2)) == []
    assert select([waits(0, 1)], Load(Counter({2: 5}), 5), policy(per_cluster=5)) == []


def test_offering_one_by_one_is_the_same_as_selecting() -> None:
    moves = [waits(0, 1, 2), waits(1, 1, 3), waits(2, 3, 4)]
    selection = Selection(NOTHING, policy(per_broker=1))
    assert [move.key for move in moves if selection.offer(move)] == select(moves, NOTHING, policy(per_broker=1))


def test_order_is_by_priority_then_age_then_place_in_the_request() -> None:
    entries = {
        (TOPIC, 0): queued(20, 0),
        (TOPIC, 1): queued(10, 1),
        (TOPIC, 2): queued(10, 0),
        (TOPIC, 3): queued(30, 0, priority=1),
    }
    assert [key[1] for key, _ in in_order(entries.items(), "fifo", {})] == [3, 2, 1, 0]


def test_order_by_size_puts_the_unknown_last() -> None:
    entries = {(TOPIC, n): queued(n) for n in range(4)}
    sizes = {(TOPIC, 0): 500, (TOPIC, 1): 20, (TOPIC, 3): 100}
    assert [key[1] for key, _ in in_order(entries.items(), "smallest-first", sizes)] == [1, 3, 0, 2]
    assert [key[1] for key, _ in in_order(entries.items(), "largest-first", sizes)] == [0, 3, 1, 2]


def test_moves_that_were_queued_with_very_long_reasons_start_together_all_the_same() -> None:
    """Their initiators and reasons take more room than one batch has."""
    count = 2800
    brokers = (1, 2)
    records: list[AnyRecord] = [
        *bootstrap_records(),
        *(RegisterBroker(0, each, bytes([each]) * 16, each, (), (), fenced=False) for each in brokers),
        Config(0, RESOURCE_BROKER, "", MOVES_PER_CLUSTER, "0"),
        Config(0, RESOURCE_BROKER, "", MOVES_PER_BROKER, "0"),
        Topic(0, "t", TOPIC),
        *(Partition(0, number, TOPIC, (1,), (1,), leader=1) for number in range(count)),
        *(QueueMoves(0, n, "User:a", "\u2014" * 1000, 0, ((TOPIC, n, 0, (2,), ()),)) for n in range(count)),
    ]
    state = EMPTY_STATE.replay(records, 0, Provenance(len(records), 1, 0))
    context = Context(1000, random.Random(1), Settings("c", 1), len(records))
    write = prepare_write(state, len(records), 1, start_waiting(state, {}, context), 1000)
    after = write.batches[-1].after.image
    assert (after.transaction, len(after.moves.queued)) == (None, 0)
    assert len(after.moves.running[TOPIC]) == count
