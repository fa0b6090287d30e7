"""The follower of the metadata log: a page that comes back misses no change, and many changes at once are one message."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.endpoint import Endpoint
from kraftlab.console import follower as module
from kraftlab.console.follower import BATCHES_MAX, Follower, Kept
from kraftlab.console.streams import Streams, event
from kraftlab.metadata.image import MetadataImage, Provenance
from kraftlab.metadata.records import NoOp
from kraftlab.node.history import LoggedBatch

SEEDS = (Endpoint("127.0.0.1", 1),)
PATIENCE_S = 10.0
RESET = event("reset", b"{}")


class Noted(Streams):
    """Notes which messages are sent, instead of sending them."""

    def __init__(self) -> None:
        self.watched = threading.Event()
        self.watched.set()
        self.sent: list[bytes | None] = []
        self.has_log = threading.Event()
        self.offset = 0

    def put(self, name: str, value: object, fault: str = "") -> None:
        if isinstance(value, dict):
            self.offset = value["offset"]
            self.has_log.set()

    def change(self, message: bytes) -> None:
        self.sent.append(message)

    def reset(self, offset: int | None = None) -> None:
        self.sent.append(event("reset", b"{}", offset))


def image_at(offset: int) -> MetadataImage:
    return msgspec.structs.replace(MetadataImage(), provenance=Provenance(offset, 1, 0))


def batch_at(offset: int, count: int = 1) -> LoggedBatch:
    return LoggedBatch(offset, 1, 0, count, (NoOp(0),) * count)


def following(start: int, sizes: Sequence[int]) -> tuple[Follower, int]:
    """Return a follower that has read batches of these sizes from `start` on, and the end of the log."""
    follower = Follower(None, SEEDS, Noted())  # type: ignore[arg-type]
    kept, end = [], start
    for size in sizes:
        batch, before = batch_at(end, size), image_at(end)
        end += size
        kept.append(Kept(batch, before, event("change", b"{}", end)))
    follower.ring, follower.image = tuple(kept), image_at(end)
    return follower, end


@given(st.integers(1, 50), st.lists(st.integers(1, 3), max_size=BATCHES_MAX), st.integers(0, 200))
def test_a_page_gets_exactly_the_changes_after_its_last_one_or_is_told_that_some_are_missing(
    start: int, sizes: list[int], last_id: int
) -> None:
    follower, end = following(start, sizes)
    missed = follower.missed(last_id)
    if start <= last_id <= end:
        assert missed == [kept.message for kept in follower.ring if kept.end > last_id]
    else:
        assert missed == [RESET]


def test_a_new_page_has_missed_nothing() -> None:
    follower, _ = following(5, [1])
    assert follower.missed(None) == []


@pytest.mark.parametrize("last_id", [0, 7, 10**30])
def test_a_page_that_comes_to_a_console_without_an_image_has_missed_something(last_id: int) -> None:
    follower = Follower(None, SEEDS, Noted())  # type: ignore[arg-type]
    assert follower.missed(last_id) == [RESET]


def test_a_page_that_missed_very_many_changes_is_told_once() -> None:
    follower, end = following(0, [1] * (BATCHES_MAX + 1))
    assert follower.missed(0) == [event("reset", b"{}", end)]


@pytest.mark.parametrize("count", [1, BATCHES_MAX, BATCHES_MAX + 1])
def test_batches_are_told_one_by_one_once_they_are_in_the_ring_and_very_many_as_one_reset(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A page may come back between two messages: what it is not sent must be in the ring by then."""
    streams = Noted()
    ends = iter([10 + count])
    rest = threading.Event()

    class Client:
        def call_at(self, *_: object, **__: object) -> object:
            end = next(ends, None)
            if end is None:
                rest.wait(PATIENCE_S)
            return SimpleNamespace(header=SimpleNamespace(metadata_offset=end or 10 + count))

    def batches(client: object, at: Endpoint, start: int, end: int) -> Iterator[LoggedBatch]:
        assert streams.sent == []
        yield from (batch_at(offset) for offset in range(start, end))

    monkeypatch.setattr(module, "image_at", lambda client, at: image_at(10))
    monkeypatch.setattr(module, "batches", batches)
    follower = Follower(Client(), SEEDS, streams)  # type: ignore[arg-type]
    follower.start()
    while streams.offset < 10 + count:
        assert streams.has_log.wait(PATIENCE_S)
    follower.stop()
    rest.set()
    follower.join(PATIENCE_S)
    ring = [kept.message for kept in follower.ring]
    assert len(ring) == count
    assert streams.sent == (ring if count <= BATCHES_MAX else [event("reset", b"{}", 10 + count)])
