"""Metadata transactions as a broker sees them: not at all, and then as a whole."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.broker.control.metadata_publisher import MetadataPublisher, Publication
from kraftlab.metadata import codec
from kraftlab.metadata.changes import changes_between
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage
from kraftlab.metadata.records import (
    RESOURCE_BROKER,
    AbortTransaction,
    AnyRecord,
    BeginTransaction,
    Config,
    EndTransaction,
    NoOp,
)
from kraftlab.metadata.replay_error import ReplayError
from kraftlab.metadata.snapshot import ImageSnapshot
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.state_machine import CommittedBatch

BEGIN, END, ABORT, IDLE = BeginTransaction(0, "large"), EndTransaction(0), AbortTransaction(0), NoOp(0)


def key(value: int) -> Config:
    return Config(0, RESOURCE_BROKER, "", "key", str(value))


class World:
    """A publisher that is handed one batch after the other, and what it published: (offset, value of the key)."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.published: list[tuple[int, str | None]] = []
        self.publications: list[Publication] = []
        self.publisher = MetadataPublisher((("seen", self._publish),), lambda: None)
        self.end_offset = 0
        nursery.start_soon(self.publisher.run)

    async def _publish(self, publication: Publication) -> None:
        assert publication.changes.configs <= changes_between(publication.before, publication.after).configs | {
            (RESOURCE_BROKER, "")
        }
        self.publications.append(publication)
        self.published.append((publication.after.stable_offset, value_in(publication.after)))

    async def apply(self, *batches: list[AnyRecord]) -> None:
        """Hands all of them over at once and lets the publisher work."""
        made = []
        for records in batches:
            body, count = codec.encode(records)
            made.append(CommittedBatch(self.end_offset, self.end_offset + count, 1, 0, body))
            self.end_offset += count
        await self.publisher.apply(made, self.end_offset)
        await trio.sleep(1)


def value_in(image: MetadataImage) -> str | None:
    return image.config(RESOURCE_BROKER, "", "key")


@pytest.fixture
async def world(nursery: trio.Nursery, autojump_clock: Any) -> World:
    return World(nursery)


async def test_an_aligned_transaction_is_published_at_its_end_as_one_step(autojump_clock: Any, world: World) -> None:
    await world.apply([key(1)])
    await world.apply([BEGIN])
    await world.apply([key(2)])
    await world.apply([key(3)])
    assert world.published == [(1, "1")]
    assert world.publisher.freeze() is None, "no snapshot in the middle"
    await world.apply([END])
    assert world.published == [(1, "1"), (5, "3")]
    assert world.publications[1].changes.configs == {(RESOURCE_BROKER, "")}
    assert world.publisher.freeze() is not None


@pytest.mark.parametrize(
    ("batches", "published"),
    [
        ([[BEGIN, key(1), END]], (3, "1")),
        ([[BEGIN, key(1), END, IDLE, BEGIN, IDLE, key(2), END, IDLE]], (9, "2")),
        ([[key(1)], [BEGIN], [key(2)], [key(3), END], [IDLE]], (6, "3")),
    ],
)
async def test_whole_transactions_that_come_together_are_one_step(
    autojump_clock: Any, world: World, batches: list[list[AnyRecord]], published: tuple[int, str]
) -> None:
    await world.apply(*batches)
    assert world.published == [published]


async def test_what_comes_before_a_begin_in_its_batch_is_published_and_the_rest_is_not(autojump_clock: Any, world: World) -> None:
    await world.apply([key(1)])
    await world.apply([key(2), BEGIN, key(3)])
    assert world.published == [(1, "1"), (2, "2")]
    assert world.publisher.freeze() is None
    await world.apply([key(4), END])
    assert world.published[-1] == (6, "4")


async def test_an_abort_publishes_nothing_of_it(autojump_clock: Any, world: World) -> None:
    await world.apply([key(1)])
    await world.apply([BEGIN, key(2)])
    await world.apply([key(3)])
    await world.apply([ABORT])
    assert world.published == [(1, "1"), (5, "1")]
    assert world.publications[-1].changes.configs == frozenset()


async def test_two_transactions_one_after_the_other(autojump_clock: Any, world: World) -> None:
    await world.apply([BEGIN, key(1)])
    await world.apply([END, BEGIN, key(2)])
    assert world.published == [(3, "1")]
    await world.apply([END])
    assert world.published == [(3, "1"), (6, "2")]


@pytest.mark.parametrize("records", [[END], [ABORT], [BEGIN, BEGIN], [BEGIN, END, END]])
async def test_a_marker_where_none_can_be_ends_the_broker(autojump_clock: Any, records: list[AnyRecord]) -> None:
    publisher = MetadataPublisher((), lambda: None)
    body, count = codec.encode(records)
    await publisher.apply([CommittedBatch(0, count, 1, 0, body)], count)
    with pytest.raises(ReplayError, match="this node must stop"):
        await publisher.run()


async def test_a_snapshot_that_comes_while_a_transaction_is_open_takes_its_place(autojump_clock: Any, world: World) -> None:
    await world.apply([key(1)])
    await world.apply([BEGIN, key(2)])
    delta = MetadataDelta(EMPTY)
    delta.replay(key(7), 0)
    bodies = [body for body, _ in ImageSnapshot(delta.apply(EMPTY.provenance)).batches()]
    await world.publisher.load_snapshot(OffsetAndEpoch(50, 2), 0, world.publisher.read_snapshot(bodies))
    world.end_offset = 50
    await world.apply([IDLE])
    assert world.published[-1] == (51, "7")


async def test_waiting_for_the_middle_of_a_transaction_lasts_until_its_end(
    autojump_clock: Any, world: World, nursery: trio.Nursery
) -> None:
    reached = trio.Event()

    async def wait() -> None:
        await world.publisher.wait_for(3)
        reached.set()

    nursery.start_soon(wait)
    await world.apply([key(1), BEGIN, key(2), key(3)])
    assert not reached.is_set()
    await world.apply([END])
    assert reached.is_set()


async def test_an_empty_batch_moves_only_the_offset(autojump_clock: Any, world: World) -> None:
    await world.apply([key(1)])
    await world.publisher.apply([CommittedBatch(1, 2, 1, 0, b"")], 2)
    await trio.sleep(1)
    assert world.published == [(1, "1"), (2, "1")]
    assert world.publications[-1].changes.configs == frozenset()


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=4), st.sampled_from(["plain", "end", "abort"])), max_size=6),
    st.lists(st.integers(1, 5), min_size=1, max_size=20),
)
@settings(max_examples=60, deadline=None)
def test_whatever_way_the_log_is_cut_only_whole_transactions_are_seen(
    parts: list[tuple[list[int], str]], cuts: list[int]
) -> None:
    """Naive twin: the values that stand after each whole part, and after each record outside of transactions."""
    records: list[AnyRecord] = []
    stands: dict[int, str | None] = {0: None}
    value: str | None = None
    for values, kind in parts:
        if kind == "plain":
            for number in values:
                records.append(key(number))
                value = stands[len(records)] = str(number)
            continue
        stands[len(records)] = value
        records += [BEGIN, *map(key, values), END if kind == "end" else ABORT]
        if kind == "end" and values:
            value = str(values[-1])
        stands[len(records)] = value
    batches, position, turn = [], 0, 0
    while position < len(records):
        size = cuts[turn % len(cuts)]
        batches.append(records[position : position + size])
        position, turn = position + size, turn + 1

    async def publish() -> World:
        async with trio.open_nursery() as nursery:
            world = World(nursery)
            for batch in batches:
                await world.apply(batch)
            nursery.cancel_scope.cancel()
        return world

    world = trio.run(publish, clock=trio.testing.MockClock(autojump_threshold=0))
    for offset, published in world.published:
        assert stands[offset] == published
    if records:
        assert world.published[-1] == (len(records), value)
