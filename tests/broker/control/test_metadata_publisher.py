"""Published images: never an old prefix, merged when late, in order, and comparable across nodes."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel

from kraftlab.broker.control.metadata_publisher import MetadataPublisher, Publication
from kraftlab.metadata import codec
from kraftlab.metadata.codec import UnknownRecord
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage
from kraftlab.metadata.records import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    AnyRecord,
    BeginTransaction,
    BrokerRegistrationChange,
    Config,
    Partition,
    PartitionChange,
    RegisterBroker,
    RemoveTopic,
    Topic,
)
from kraftlab.metadata.snapshot import ImageSnapshot
from kraftlab.quorum.core.types import OffsetAndEpoch
from kraftlab.quorum.state_machine import CommittedBatch


def batch(offset: int, value: str = "", records: int = 1) -> CommittedBatch:
    body, _ = codec.encode([Config(0, RESOURCE_BROKER, "", f"key.{offset}.{index}", value) for index in range(records)])
    return CommittedBatch(offset, offset + records, 1, 0, body)


def batch_of(offset: int, *records: AnyRecord) -> CommittedBatch:
    body, count = codec.encode(list(records))
    return CommittedBatch(offset, offset + count, 1, 0, body)


def bodies_of(*batches: CommittedBatch) -> list[bytes]:
    """The snapshot of who has applied these."""
    delta = MetadataDelta(EMPTY)
    for batch in batches:
        delta.replay_all(codec.decode(batch.body), batch.base_offset)
    return [body for body, _ in ImageSnapshot(delta.apply(EMPTY.provenance)).batches()]


class Seen:
    """A publisher that notes what it was given, and may be slow."""

    def __init__(self) -> None:
        self.publications: list[Publication] = []
        self.gate = trio.Event()
        self.gate.set()

    async def publish(self, publication: Publication) -> None:
        await self.gate.wait()
        self.publications.append(publication)

    @property
    def offsets(self) -> list[int]:
        return [publication.after.provenance.offset for publication in self.publications]


@pytest.fixture
async def seen() -> Seen:
    return Seen()


@pytest.fixture
async def publisher(seen: Seen, nursery: trio.Nursery, autojump_clock: Any) -> MetadataPublisher:
    """It runs, and publishes to `seen`."""
    made = publisher_with(("seen", seen.publish))
    nursery.start_soon(made.run)
    return made


def publisher_with(*publishers: tuple[str, Any], **settings: Any) -> MetadataPublisher:
    return MetadataPublisher(publishers, lambda: None, **settings)


async def test_nothing_is_published_before_the_high_watermark_known_at_the_start(
    autojump_clock: Any, publisher: MetadataPublisher, seen: Seen
) -> None:
    for offset in range(5):
        await publisher.apply([batch(offset)], high_watermark=5)
        await trio.sleep(0.1)
        assert seen.offsets == ([5] if offset == 4 else [])
    [first] = seen.publications
    assert first.is_first
    assert first.before.provenance.offset == 0
    assert first.changes.configs == {(RESOURCE_BROKER, "")}


async def test_waiting_for_an_offset_lasts_until_publishers_are_done_with_it(
    autojump_clock: Any, publisher: MetadataPublisher, seen: Seen
) -> None:
    seen.gate = trio.Event()
    await publisher.apply([batch(0)], high_watermark=1)
    with trio.move_on_after(1) as waited:
        await publisher.wait_for(1)
    assert (waited.cancelled_caught, publisher.offset) == (True, 0)
    seen.gate.set()
    await publisher.wait_for(1)
    assert (seen.offsets, publisher.offset) == ([1], 1)


async def test_what_comes_while_publishers_work_becomes_one_publication(
    autojump_clock: Any, publisher: MetadataPublisher, seen: Seen
) -> None:
    await publisher.apply([batch(0)], 1)
    await trio.sleep(0.1)
    seen.gate = trio.Event()
    for offset in range(1, 6):
        await publisher.apply([batch(offset)], offset + 1)
        await trio.sleep(0.1)
    seen.gate.set()
    await publisher.wait_for(6)
    await trio.sleep(0.1)
    assert seen.offsets == [1, 2, 6]
    assert [publication.is_first for publication in seen.publications] == [True, False, False]
    for before, after in zip(seen.publications, seen.publications[1:], strict=False):
        assert after.before is before.after


async def test_publishers_run_in_order_and_a_fault_of_one_does_not_stop_the_next(
    autojump_clock: Any, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    order = []

    async def first(publication: Publication) -> None:
        order.append("first")
        raise RuntimeError("out of order")

    async def second(publication: Publication) -> None:
        order.append("second")

    publisher = publisher_with(("first", first), ("second", second))
    nursery.start_soon(publisher.run)
    await publisher.apply([batch(0)], 1)
    await publisher.wait_for(1)
    await trio.lowlevel.checkpoint()
    assert order == ["first", "second"]
    assert "to first failed" in caplog.text


async def test_a_fault_that_is_fatal_ends_publishing(autojump_clock: Any) -> None:
    async def refuse(publication: Publication) -> None:
        raise LookupError("two directories contradict each other")

    publisher = publisher_with(("refuse", refuse), fatal=(LookupError,))
    await publisher.apply([batch(0)], 1)
    with pytest.raises(LookupError):
        await publisher.run()


async def test_a_record_that_this_broker_does_not_know_ends_it(autojump_clock: Any) -> None:
    publisher = publisher_with()
    body = b"\x91\x92\xcd\x03\xe7\x00"
    await publisher.apply([CommittedBatch(0, 1, 1, 0, body)], 1)
    with pytest.raises(UnknownRecord, match="type 999"):
        await publisher.run()


async def test_images_are_found_by_the_offset_at_which_they_were_published(autojump_clock: Any, nursery: trio.Nursery) -> None:
    publisher = publisher_with()
    nursery.start_soon(publisher.run)
    for offset in (0, 3, 6):
        await publisher.apply([batch(offset, records=3)], offset + 3)
        await publisher.wait_for(offset + 3)
    found = publisher.image_at(6)
    assert found is not None
    assert found.provenance.offset == 6
    assert publisher.image_at(5) is None
    assert publisher.image_at(9) is publisher.image


# --- snapshots ---------------------------------------------------------------------------------------------------------------


async def load(publisher: MetadataPublisher, offset: int, bodies: list[bytes]) -> MetadataImage:
    state = publisher.read_snapshot(bodies)
    await publisher.load_snapshot(OffsetAndEpoch(offset, 1), 0, state)
    return state


async def test_a_snapshot_in_a_running_broker_is_published_as_what_it_changes(
    autojump_clock: Any, publisher: MetadataPublisher, seen: Seen
) -> None:
    gone, kept, new = (bytes([n]) * 16 for n in (1, 2, 3))
    broker = RegisterBroker(0, 7, bytes(16), 0)
    start = batch_of(
        0,
        broker,
        Topic(0, "gone", gone),
        Partition(0, 0, gone, (7,), (7,), leader=7),
        Topic(0, "kept", kept),
        *(Partition(0, number, kept, (7, 8), (7, 8), leader=7) for number in range(3)),
        Config(0, RESOURCE_TOPIC, "gone", "retention.ms", "1"),
        Config(0, RESOURCE_BROKER, "", "x", "1"),
        Config(0, RESOURCE_BROKER, "7", "y", "1"),
    )
    missed = batch_of(
        start.end_offset,
        RemoveTopic(0, gone),
        Topic(0, "gone", new),
        Partition(0, 0, new, (8,), (8,), leader=8),
        PartitionChange(0, 1, kept, leader=8),
        BrokerRegistrationChange(0, 7, 0, fenced=False),
        Config(0, RESOURCE_BROKER, "", "x", None),
    )
    await publisher.apply([start], start.end_offset)
    await publisher.wait_for(start.end_offset)
    await load(publisher, 100, bodies_of(start, missed))
    await publisher.wait_for(100)
    first, second = seen.publications
    assert second.before is first.after
    assert (first.is_first, second.is_first) == (True, False)
    assert second.changes.created_topics == {new}
    assert second.changes.deleted_topics == {gone}
    assert second.changes.partitions == {gone: {0}, new: {0}, kept: {1}}
    assert second.changes.brokers == {7}
    assert second.changes.configs == {(RESOURCE_BROKER, ""), (RESOURCE_TOPIC, "gone")}
    assert second.after.provenance.offset == 100
    await publisher.apply([batch(100)], 101)
    await publisher.wait_for(101)
    assert seen.publications[2].changes.configs == {(RESOURCE_BROKER, "")}
    assert publisher.image_at(start.end_offset) is first.after
    assert publisher.image_at(50) is None


async def test_what_waited_below_a_snapshot_is_part_of_it_and_what_follows_is_published_with_it(
    autojump_clock: Any, publisher: MetadataPublisher, seen: Seen
) -> None:
    await publisher.apply([batch(0)], 1)
    await publisher.wait_for(1)
    await publisher.apply([batch(1)], 2)
    await load(publisher, 3, bodies_of(batch(0), batch(1), batch(2)))
    await publisher.apply([batch(3)], 4)
    await publisher.wait_for(4)
    assert seen.offsets == [1, 4]
    assert len(publisher.image.configs[RESOURCE_BROKER, ""]) == 4


async def test_a_snapshot_at_the_start_is_not_published_before_the_high_watermark_is_known_and_reached(
    autojump_clock: Any, publisher: MetadataPublisher, seen: Seen
) -> None:
    await load(publisher, 1, bodies_of(batch(0)))
    await trio.sleep(1)
    assert not seen.offsets
    await publisher.apply([batch(1)], 3)
    await trio.sleep(1)
    assert not seen.offsets
    await publisher.apply([batch(2)], 3)
    await trio.sleep(1)
    [first] = seen.publications
    assert first.is_first
    assert (first.before.provenance.offset, first.after.provenance.offset) == (0, 3)


async def test_a_snapshot_is_taken_of_what_was_applied_published_or_not(autojump_clock: Any) -> None:
    publisher = publisher_with()
    await publisher.apply([batch(0), batch(1)], 2)
    frozen = publisher.freeze()
    assert frozen is not None
    await publisher.apply([batch(2)], 3)
    assert [body for body, _ in frozen.batches()] == bodies_of(batch(0), batch(1))
    await publisher.apply([batch_of(3, BeginTransaction(0, None))], 4)
    assert publisher.freeze() is None
