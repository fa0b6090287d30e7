"""Streams of the console: the state first, then what is new, gathered; a slow reader loses its own stream only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.console.streams import GATHER_S, QUEUE_CHUNKS, REST_S, Streams, event

Events = list[tuple[str, dict[str, object]]]
NAMES = ("quorum", "brokers", "moves")


class Reader:
    """A stream that was opened. `read` returns the events that have come, and waits for the first of them."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    async def read(self) -> Events:
        return events_of(await anext(self._chunks))


def events_of(chunk: bytes) -> Events:
    found = []
    for text in chunk.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in text.splitlines())
        if "event" in lines:
            found.append((lines["event"], msgspec.json.decode(lines["data"], type=dict[str, object])))
    return found


def nothing() -> list[bytes]:
    return []


@asynccontextmanager
async def opened(streams: Streams, missed: Callable[[], list[bytes]] = nothing) -> AsyncIterator[Reader]:
    async with aclosing(streams.open(missed)) as chunks:
        yield Reader(chunks)


def play(scene: Callable[[Streams], Awaitable[None]], *tasks: str) -> None:
    """Play a scene on a clock that jumps over rests, with the tasks of the streams that it names."""

    async def run() -> None:
        streams = Streams()
        async with trio.open_nursery() as nursery:
            for name in tasks:
                nursery.start_soon(getattr(streams, name))
            await scene(streams)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def values(parts: object) -> dict[str, tuple[object, str]]:
    """Return the value and the fault of each part."""
    found = msgspec.convert(parts, dict[str, dict[str, object]])
    return {name: (part["value"], str(part["fault"])) for name, part in found.items()}


async def arrived() -> None:
    """Wait until what was put is with the event loop."""
    await trio.testing.wait_all_tasks_blocked()


def test_a_stream_begins_with_the_state_and_with_what_was_missed() -> None:
    async def scene(streams: Streams) -> None:
        streams.put("quorum", {"leader_id": 3000})
        await arrived()
        async with opened(streams, lambda: [event("change", b'{"offset":7}', 7)]) as reader:
            (first, state), *others = await reader.read()
        assert (first, values(state["parts"])) == ("state", {"quorum": ({"leader_id": 3000}, "")})
        assert others == [("change", {"offset": 7})]

    play(scene)


def test_a_value_is_sent_when_it_is_new_and_equal_values_are_not_sent_again() -> None:
    async def scene(streams: Streams) -> None:
        async with opened(streams) as reader:
            await reader.read()
            for value in (1, 1, 2):
                streams.put("quorum", value)
                await trio.sleep(2 * GATHER_S)
            sent = [await reader.read(), await reader.read()]
            with trio.move_on_after(10 * GATHER_S) as quiet:
                await reader.read()
        assert [values(parts) for ((_, parts),) in sent] == [{"quorum": (1, "")}, {"quorum": (2, "")}]
        assert quiet.cancelled_caught

    play(scene, "flush")


def test_the_first_message_goes_at_once_and_what_follows_soon_goes_together() -> None:
    async def scene(streams: Streams) -> None:
        async with opened(streams) as reader:
            await reader.read()
            began = trio.current_time()
            streams.send(event("change", b'{"offset":1}', 1))
            first = await reader.read()
            at_once = trio.current_time() - began
            for number in range(2, 200):
                streams.put("quorum", number)
                streams.send(event("change", b'{"offset":%d}' % number, number))
            together = await reader.read()
        assert (first, at_once) == ([("change", {"offset": 1})], 0)
        assert [name for name, _ in together] == ["change"] * 198 + ["part"]
        assert values(together[-1][1]) == {"quorum": (199, "")}
        assert trio.current_time() - began <= GATHER_S

    play(scene, "flush")


def test_a_fault_keeps_the_last_value_with_its_time() -> None:
    async def scene(streams: Streams) -> None:
        streams.put("disks", ["a"])
        await arrived()
        before = msgspec.json.decode(streams.state())["parts"]["disks"]
        streams.put("disks", None, "broker 2 does not answer")
        streams.put("moves", None, "never asked")
        await arrived()
        after = msgspec.json.decode(streams.state())["parts"]
        assert after["disks"] == {**before, "fault": "broker 2 does not answer"}
        assert after["moves"] == {"as_of_ms": 0, "fault": "never asked", "value": None}

    play(scene)


def test_a_slow_reader_loses_its_stream_and_the_others_go_on() -> None:
    async def scene(streams: Streams) -> None:
        async with opened(streams) as slow, opened(streams) as quick:
            await slow.read()
            await quick.read()
            for number in range(QUEUE_CHUNKS + 2):
                streams.send(event("change", b'{"offset":%d}' % number, number))
                assert await quick.read() == [("change", {"offset": number})]
            assert streams.count == 1
            late = [await slow.read() for _ in range(QUEUE_CHUNKS)]
            assert late[-1] == [("change", {"offset": QUEUE_CHUNKS - 1})]
            with pytest.raises(StopAsyncIteration):
                await slow.read()

    play(scene, "flush")


def test_streams_are_watched_while_one_is_open_and_for_a_rest_after_it() -> None:
    async def scene(streams: Streams) -> None:
        seen = [streams.watched.is_set()]
        async with opened(streams) as reader:
            await reader.read()
            await trio.sleep(10 * REST_S)
            seen.append(streams.watched.is_set())
        await trio.sleep(REST_S / 2)
        seen.append(streams.watched.is_set())
        await trio.sleep(2 * REST_S)
        seen.append(streams.watched.is_set())
        streams.touch()
        seen.append(streams.watched.is_set())
        await trio.sleep(3 * REST_S)
        seen.append(streams.watched.is_set())
        assert seen == [False, True, True, False, True, False]

    play(scene, "tick")


def test_a_tick_tells_the_time_and_the_age_of_each_part() -> None:
    async def scene(streams: Streams) -> None:
        async with opened(streams) as reader:
            await reader.read()
            streams.put("quorum", 1)
            await reader.read()
            ((name, tick),) = await reader.read()
        assert (name, [*msgspec.convert(tick["as_of_ms"], dict[str, int])]) == ("tick", ["quorum"])

    play(scene, "flush", "tick")


def test_the_end_ends_every_stream() -> None:
    async def scene(streams: Streams) -> None:
        async with opened(streams) as reader:
            await reader.read()
            streams.end()
            with pytest.raises(StopAsyncIteration):
                await reader.read()
        assert streams.count == 0

    play(scene)


puts = st.tuples(st.sampled_from(NAMES), st.integers(0, 2), st.sampled_from(["", "", "silent"]))
steps = st.lists(st.one_of(puts, st.sampled_from(["open", "close", "wait"])), max_size=40)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_whoever_opens_when_sees_what_a_new_page_sees(plan: list[tuple[str, int, str] | str]) -> None:
    """Open and close streams between values; fold the events of each as a page does; compare with the state at the end."""

    async def scene(streams: Streams) -> None:
        pages: list[tuple[dict[str, tuple[object, str]], trio.CancelScope]] = []

        async def page() -> None:
            shown: dict[str, tuple[object, str]] = {}
            with trio.CancelScope() as scope:
                pages.append((shown, scope))
                async with opened(streams) as reader:
                    while True:
                        for name, data in await reader.read():
                            shown.update(values(data["parts"] if name == "state" else data))

        async with trio.open_nursery() as nursery:
            for step in plan:
                match step:
                    case "open":
                        nursery.start_soon(page)
                    case "close" if pages:
                        pages.pop(0)[1].cancel()
                    case "wait" | "close":
                        await trio.sleep(GATHER_S)
                    case (name, value, fault):
                        streams.put(name, None if fault else value, fault)
            await trio.sleep(3 * GATHER_S)
            new = values(msgspec.json.decode(streams.state())["parts"])
            assert [shown for shown, _ in pages] == [new] * len(pages)
            nursery.cancel_scope.cancel()
        assert streams.count == 0

    play(scene, "flush")
