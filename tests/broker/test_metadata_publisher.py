"""Published images: never an old prefix, merged when late, in order, and comparable across nodes."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel

from kraftlab.broker.metadata_publisher import MetadataPublisher, Publication
from kraftlab.metadata import codec
from kraftlab.metadata.codec import UnknownRecord
from kraftlab.metadata.records import RESOURCE_BROKER, Config
from kraftlab.quorum.state_machine import CommittedBatch


def batch(offset: int, value: str = "", records: int = 1) -> CommittedBatch:
    body, _ = codec.encode([Config(0, RESOURCE_BROKER, "", f"key.{offset}.{index}", value) for index in range(records)])
    return CommittedBatch(offset, offset + records, 1, 0, body)


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


def publisher_with(*publishers: tuple[str, Any], **settings: Any) -> MetadataPublisher:
    return MetadataPublisher(publishers, lambda: None, **settings)


async def test_nothing_is_published_before_the_high_watermark_known_at_the_start(
    autojump_clock: Any, nursery: trio.Nursery
) -> None:
    seen = Seen()
    publisher = publisher_with(("seen", seen.publish))
    nursery.start_soon(publisher.run)
    for offset in range(5):
        await publisher.apply([batch(offset)], high_watermark=5)
        await trio.sleep(0.1)
        assert seen.offsets == ([5] if offset == 4 else [])
    [first] = seen.publications
    assert first.is_first
    assert first.before.provenance.offset == 0
    assert first.changes.configs == {(RESOURCE_BROKER, "")}


async def test_what_comes_while_publishers_work_becomes_one_publication(autojump_clock: Any, nursery: trio.Nursery) -> None:
    seen = Seen()
    publisher = publisher_with(("seen", seen.publish))
    nursery.start_soon(publisher.run)
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
