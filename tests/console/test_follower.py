"""The follower's image is that of the log, whatever nodes answer, and a browser gets each batch or is told to read again."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.console.follower import Follower
from kraftlab.console.known import RING_BATCHES, Known, KnownBatch
from kraftlab.console.streams import RESET, Streams
from kraftlab.metadata.image import EMPTY
from kraftlab.metadata.records import NoOp, Topic

from .scripted_log import ScriptedClient, ScriptedLog, ScriptedNode, endpoints

STEPS_MAX = 40


class Followed:
    """A log, three nodes that have it, and a follower of them."""

    def __init__(self) -> None:
        self.log = ScriptedLog()
        self.topic = self.log.topic("orders")
        seeds = endpoints(3)
        self.nodes = [ScriptedNode(self.log) for _ in seeds]
        self.client = ScriptedClient(dict(zip(seeds, self.nodes, strict=True)))
        self.streams = Streams()
        self.follower = Follower(self.client.as_client(), seeds, self.streams)

    def catch_up(self) -> None:
        """Let the follower reach the end of the log."""
        for _ in range(STEPS_MAX):
            if self.follower.image is not None and self.follower.image.provenance.offset == self.log.end:
                return
            self.follower.step()
        raise AssertionError(f"the follower is at {self.follower.image}, the log ends at {self.log.end}")


def on_trio(test: Callable[[Followed], Awaitable[None]]) -> None:
    async def run() -> None:
        await test(Followed())

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


ACTIONS = st.sampled_from(["write", "elect", "step", "down 0", "down 1", "behind 0", "behind 1", "behind 2", "clean", "heal"])


@settings(max_examples=150, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=40))
def test_after_any_answers_and_changes_of_nodes_the_image_is_that_of_the_log(actions: list[str]) -> None:
    async def check(followed: Followed) -> None:
        log, nodes, follower = followed.log, followed.nodes, followed.follower
        for action in actions:
            match action.split():
                case ["write"]:
                    log.shrink(followed.topic, *((0, 1) if log.end % 2 else (1,)))
                case ["elect"]:
                    log.elect(1)
                case ["step"]:
                    follower.step()
                case ["down", which]:
                    nodes[int(which)].is_up = False
                case ["behind", which]:
                    nodes[int(which)].behind += 2
                case ["clean"]:
                    for node in nodes:
                        node.first = log.images[-1].provenance.offset if node.behind == 0 else node.first
                case ["heal"]:
                    for node in nodes:
                        node.is_up, node.behind = True, 0
            if follower.image is not None:
                assert follower.image == log.image_at(follower.image.provenance.offset)
        for node in nodes:
            node.is_up, node.behind = True, 0
        log.append(NoOp(0))
        followed.catch_up()
        assert follower.image == log.images[-1]
        ring = follower.known.ring
        assert [told.before for told in ring] == [log.image_at(told.batch.base_offset) for told in ring]
        assert [told.batch for told in ring] == log.batches[len(log.batches) - len(ring) :]

    on_trio(check)


async def _received(followed: Followed, last_id: int | None, meanwhile: Callable[[], None]) -> tuple[bool, list[int]]:
    """Open a stream that names an id, let things happen, and return if it was reset, and the ids of its batches."""
    async with (
        trio.open_nursery() as nursery,
        aclosing(followed.streams.open(lambda: followed.follower.known.missed(last_id))) as stream,
    ):
        nursery.start_soon(followed.streams.flush)
        text = await anext(stream)
        meanwhile()
        with trio.move_on_after(5):
            async for chunk in stream:
                text += chunk
        nursery.cancel_scope.cancel()
    return RESET in text, [*dict.fromkeys(map(int, re.findall(rb"^id: (\d+)$", text, re.MULTILINE)))]


@settings(max_examples=30, deadline=None)
@given(before=st.integers(0, 6), seen=st.integers(0, 9), later=st.integers(0, 4))
def test_a_browser_that_comes_back_gets_each_batch_or_a_reset(before: int, seen: int, later: int) -> None:
    async def check(followed: Followed) -> None:
        followed.catch_up()
        for _ in range(before):
            followed.log.append(NoOp(0))
            followed.catch_up()
            if followed.log.end <= seen:
                await trio.testing.wait_all_tasks_blocked()  # other messages are on their way while the stream opens

        def write() -> None:
            for _ in range(later):
                followed.log.append(NoOp(0))
                followed.catch_up()

        was_reset, ids = await _received(followed, seen, write)
        ends = [each.base_offset + each.record_count for each in followed.log.batches]
        if was_reset:
            assert seen < 2 or seen > 2 + before, "the ring does not reach the id, or the id is of another log"
        else:
            assert [each for each in ids if each > seen] == [end for end in ends if end > seen]

    on_trio(check)


def test_a_browser_that_comes_back_while_the_follower_begins_again_is_reset() -> None:
    async def check(followed: Followed) -> None:
        was_reset, _ = await _received(followed, 2, lambda: None)
        assert was_reset

    on_trio(check)


def test_a_node_that_is_behind_is_left_after_one_timeout() -> None:
    async def check(followed: Followed) -> None:
        followed.catch_up()
        followed.nodes[0].behind = 1
        followed.log.append(NoOp(0))
        followed.follower.step()
        assert followed.follower.image == followed.log.images[-1]
        assert followed.follower.endpoint == endpoints(3)[1]

    on_trio(check)


def test_batches_that_one_node_has_cleaned_come_from_another_without_a_reset() -> None:
    async def check(followed: Followed) -> None:
        followed.catch_up()
        followed.log.no_ops(5)
        followed.nodes[0].first = followed.log.end
        followed.catch_up()
        assert len(followed.follower.known.ring) == 5

    on_trio(check)


def test_after_a_rest_that_every_log_was_cleaned_in_the_follower_begins_again_with_an_image() -> None:
    async def check(followed: Followed) -> None:
        followed.catch_up()
        followed.log.no_ops(5)
        for node in followed.nodes:
            node.first = followed.log.end
        followed.catch_up()
        assert (followed.follower.image, followed.follower.known.ring) == (followed.log.images[-1], ())

    on_trio(check)


def test_another_log_under_the_same_addresses_replaces_the_image() -> None:
    async def check(followed: Followed) -> None:
        followed.log.no_ops(50)
        followed.catch_up()
        other = ScriptedLog()
        other.topic("payments")
        for node in followed.nodes:
            node.log = other
        for _ in range(STEPS_MAX):
            followed.follower.step()
        assert followed.follower.image == other.images[-1]

    on_trio(check)


def test_another_cluster_with_as_many_records_replaces_the_image_and_pages_are_reset() -> None:
    async def check(followed: Followed) -> None:
        followed.catch_up()
        other = ScriptedLog()
        other.topic("payments")
        other.epoch = followed.log.epoch
        other.no_ops(3)
        for node in followed.nodes:
            node.log, node.cluster_id = other, "another"

        def follow() -> None:
            for _ in range(STEPS_MAX):
                followed.follower.step()

        was_reset, _ = await _received(followed, followed.log.end, follow)
        assert (was_reset, followed.follower.image) == (True, other.images[-1])

    on_trio(check)


@pytest.mark.parametrize("rests", [False, True])
def test_a_longer_log_of_a_cluster_that_was_begun_anew_under_the_same_id_replaces_the_image(rests: bool) -> None:
    async def check(followed: Followed) -> None:
        followed.catch_up()
        other = ScriptedLog()
        other.epoch = followed.log.epoch
        other.no_ops(20)
        other.topic("payments", 2)
        for node in followed.nodes:
            node.log, node.is_up = other, rests
        if rests:
            followed.follower.is_current.clear()
        else:
            followed.follower.step()
        for node in followed.nodes:
            node.is_up = True

        def follow() -> None:
            for _ in range(STEPS_MAX):
                followed.follower.step()

        was_reset, _ = await _received(followed, followed.log.end, follow)
        assert (was_reset, followed.follower.image) == (True, other.images[-1])

    on_trio(check)


def test_a_node_with_another_log_is_left_after_a_failure() -> None:
    async def check(followed: Followed) -> None:
        followed.catch_up()
        followed.nodes[1].is_up = False
        followed.nodes[2].log = ScriptedLog()
        followed.nodes[2].log.no_ops(20)
        followed.log.no_ops(3)
        assert followed.follower.endpoint == endpoints(3)[1]
        followed.catch_up()
        assert len(followed.follower.known.ring) == 3

    on_trio(check)


def test_one_node_of_another_cluster_is_left() -> None:
    async def check(followed: Followed) -> None:
        followed.catch_up()
        followed.nodes[0].cluster_id = "another"
        followed.log.no_ops(3)
        followed.catch_up()
        assert len(followed.follower.known.ring) == 3

    on_trio(check)


def test_batches_that_do_not_fit_the_image_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def check(followed: Followed) -> None:
        followed.catch_up()
        followed.log.no_ops(2)
        del followed.log.batches[-2]
        followed.follower.step()
        assert followed.follower.image is None
        followed.follower.step()
        assert followed.follower.image == followed.log.images[-1]

    on_trio(check)
    assert "cannot read the metadata log" in caplog.text


def test_the_ring_has_a_limit_of_batches_and_of_records() -> None:
    log, known = ScriptedLog(), Known(EMPTY)
    batch = log.append(NoOp(0))
    for number in range(RING_BATCHES + 10):
        known = known.after(KnownBatch(batch._replace(base_offset=number), EMPTY), EMPTY)
    assert (len(known.ring), known.begin) == (RING_BATCHES, 10)
    large = batch._replace(base_offset=RING_BATCHES + 10, record_count=200_000)
    assert known.after(KnownBatch(large, EMPTY), EMPTY).begin == large.base_offset


def test_the_image_is_published_before_pages_are_told() -> None:
    async def check(followed: Followed) -> None:
        followed.catch_up()
        seen: list[bool] = []
        send = followed.streams.send

        def watch(message: bytes) -> None:
            image = followed.follower.image
            seen.append(image is not None and image.topics.get("late") is not None)
            send(message)

        followed.streams.send = watch  # type: ignore[method-assign]
        followed.log.append(Topic(0, "late", bytes(15) + b"\7"))
        followed.catch_up()
        assert seen == [True]

    on_trio(check)


def test_after_a_rest_what_is_known_is_not_current_until_a_node_has_answered() -> None:
    async def check(followed: Followed) -> None:
        followed.catch_up()
        assert followed.follower.is_current.is_set()
        followed.follower.is_current.clear()
        followed.log.append(NoOp(0))
        followed.follower.step()
        assert (followed.follower.is_current.is_set(), followed.follower.image) == (True, followed.log.images[-1])

    on_trio(check)
