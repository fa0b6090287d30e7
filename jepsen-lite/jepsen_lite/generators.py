"""Generators of invocations as pure data: values that return an invocation and the generator for the next call.

As in Jepsen, `next(context)` returns an invocation for the free process, `Pending` if there is one only later, or None if there
are no more for anybody. A generator has no clock and no random generator of its own: the context carries the time, the free
process and the random generator. Random numbers are drawn only when an invocation is returned, so how often workers wake does not
change the invocations.

A parameter of type *source* accepts a generator, an invocation (returned once), a function of the context (called each time; None
ends it), or a sequence of sources, one after the other.

    mix(read, write, weights=(2, 1))                  one of them, at random
    limit(n) · repeat                                 at most n · the first forever
    stagger(s) · delay(s)                             s seconds apart: on average · exactly
    time_limit(s) · until_ok(a)                       until then · until one has ended as ok
    any_of(a, b) · mapped(f, a)                       the first that has one · each changed by f
    independent(key_of, source_of, group=5)           groups of workers, each at one key after the other
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, cast

import msgspec
from immutables import Map

_NS = 1_000_000_000
_BEHIND_MAX = 10
"""At most so many missed intervals are caught up after a time in which no worker was free."""


class Invocation(NamedTuple):
    """An operation to perform."""

    f: str
    key: str = ""
    value: object = None


class Context(NamedTuple):
    """The time and the worker for which an invocation is requested. `process` is free; `worker` is its index among the `workers`.
    `succeeded` counts the operations of this worker that ended as ok.
    """

    now_ns: int
    process: int
    worker: int
    workers: int
    random: random.Random
    succeeded: int = 0


class Pending(NamedTuple):
    """No invocation yet. The next call is due when an operation ends, or at `until_ns` if it is set and comes first."""

    until_ns: int | None = None


class Generator(Protocol):
    """Immutable. `next` returns the generator for the next call with its answer."""

    def next(self, context: Context) -> Answer: ...


Answer = tuple[Invocation | Pending, Generator] | None
Source: TypeAlias = "Generator | Invocation | Callable[[Context], Invocation | None] | Sequence[Source]"


def generator(source: Source) -> Generator:
    """Return the generator of a source."""
    if isinstance(source, Invocation):
        return _Once(source)
    if isinstance(source, Sequence):
        return _InOrder(tuple(generator(part) for part in cast("Sequence[Source]", source)))
    return source if hasattr(source, "next") else _Calls(source)


class _Once(msgspec.Struct, frozen=True):
    invocation: Invocation

    def next(self, context: Context) -> Answer:
        return self.invocation, NOTHING


class _Calls(msgspec.Struct, frozen=True):
    function: Callable[[Context], Invocation | None]

    def next(self, context: Context) -> Answer:
        invocation = self.function(context)
        return None if invocation is None else (invocation, self)


class _InOrder(msgspec.Struct, frozen=True):
    parts: tuple[Generator, ...]

    def next(self, context: Context) -> Answer:
        for place, part in enumerate(self.parts):
            answer = part.next(context)
            if answer is not None:
                return answer[0], _InOrder((answer[1], *self.parts[place + 1 :]))
        return None


NOTHING: Generator = _InOrder(())


# -- limits and repetition -----------------------------------------------------------------------------------------------------


class _Limit(msgspec.Struct, frozen=True):
    left: int
    inner: Generator

    def next(self, context: Context) -> Answer:
        answer = self.inner.next(context) if self.left > 0 else None
        if answer is None:
            return None
        return answer[0], _Limit(self.left - isinstance(answer[0], Invocation), answer[1])


def limit(count: int, source: Source) -> Generator:
    """At most `count` invocations."""
    return _Limit(count, generator(source))


class _Repeat(msgspec.Struct, frozen=True):
    inner: Generator

    def next(self, context: Context) -> Answer:
        answer = self.inner.next(context)
        return None if answer is None else (answer[0], self)


def repeat(source: Source, count: int | None = None) -> Generator:
    """The first invocation of the source over and over, at most `count` times."""
    endless = _Repeat(generator(source))
    return endless if count is None else _Limit(count, endless)


class _PacedGenerator(msgspec.Struct, frozen=True):
    interval_ns: int
    is_random: bool
    inner: Generator
    due_ns: int | None = None

    def next(self, context: Context) -> Answer:
        now, due = context.now_ns, self.due_ns
        if due is not None and now < due:
            return Pending(due), self
        answer = self.inner.next(context)
        if answer is None:
            return None
        if isinstance(answer[0], Invocation):
            earliest = now if due is None else max(due, now - _BEHIND_MAX * self.interval_ns)
            due = earliest + (int(context.random.uniform(0, 2 * self.interval_ns)) if self.is_random else self.interval_ns)
        return answer[0], _PacedGenerator(self.interval_ns, self.is_random, answer[1], due)


def stagger(seconds: float, source: Source) -> Generator:
    """Invocations of all workers together, `seconds` apart on average (0 to twice that)."""
    return _PacedGenerator(int(seconds * _NS), True, generator(source))


def delay(seconds: float, source: Source) -> Generator:
    """Invocations of all workers together, `seconds` apart."""
    return _PacedGenerator(int(seconds * _NS), False, generator(source))


class _TimeLimit(msgspec.Struct, frozen=True):
    limit_ns: int
    inner: Generator
    end_ns: int | None = None

    def next(self, context: Context) -> Answer:
        end = context.now_ns + self.limit_ns if self.end_ns is None else self.end_ns
        answer = self.inner.next(context) if context.now_ns < end else None
        if answer is None:
            return None
        what, after = answer
        if isinstance(what, Pending):
            what = Pending(end if what.until_ns is None else min(end, what.until_ns))
        return what, _TimeLimit(self.limit_ns, after, end)


def time_limit(seconds: float, source: Source) -> Generator:
    """No invocation later than `seconds` after the first request."""
    return _TimeLimit(int(seconds * _NS), generator(source))


class _UntilOk(msgspec.Struct, frozen=True):
    inner: Generator
    before: Map[int, int] = Map()
    """Worker → its successes at its first request."""

    def next(self, context: Context) -> Answer:
        worker, before = context.worker, self.before
        if context.succeeded > before.get(worker, context.succeeded):
            return None
        answer = self.inner.next(context)
        before = before if worker in before else before.set(worker, context.succeeded)
        return None if answer is None else (answer[0], _UntilOk(answer[1], before))


def until_ok(source: Source) -> Generator:
    """End when a worker that has asked here has since had an operation end as ok."""
    return _UntilOk(generator(source))


# -- one of several ------------------------------------------------------------------------------------------------------------


class _Mix(msgspec.Struct, frozen=True):
    parts: tuple[Generator, ...]
    weights: tuple[float, ...]
    chosen: int | None = None

    def next(self, context: Context) -> Answer:
        parts, weights, chosen = self.parts, self.weights, self.chosen
        while parts:
            if chosen is None:
                chosen = context.random.choices(range(len(parts)), weights)[0]
            answer = parts[chosen].next(context)
            if answer is not None:
                parts = (*parts[:chosen], answer[1], *parts[chosen + 1 :])
                return answer[0], _Mix(parts, weights, None if isinstance(answer[0], Invocation) else chosen)
            parts, weights = parts[:chosen] + parts[chosen + 1 :], weights[:chosen] + weights[chosen + 1 :]
            chosen = None
        return None


def mix(*sources: Source, weights: Sequence[float] | None = None) -> Generator:
    """One of the sources each time, at random by weight. Sources that have ended are left out."""
    if weights is not None and len(weights) != len(sources):
        raise ValueError(f"{len(sources)} sources and {len(weights)} weights; give one weight per source")
    return _Mix(tuple(generator(source) for source in sources), tuple(weights or (1.0,) * len(sources)))


class _AnyOf(msgspec.Struct, frozen=True):
    parts: tuple[Generator, ...]

    def next(self, context: Context) -> Answer:
        parts, soonest, waits = list(self.parts), None, False
        for place, part in enumerate(self.parts):
            answer = part.next(context)
            if answer is None:
                parts[place] = NOTHING
                continue
            parts[place] = answer[1]
            if isinstance(answer[0], Invocation):
                return answer[0], _AnyOf((*parts[place + 1 :], *parts[: place + 1]))
            waits, until = True, answer[0].until_ns
            if until is not None:
                soonest = until if soonest is None else min(soonest, until)
        return (Pending(soonest), _AnyOf(tuple(parts))) if waits else None


def any_of(*sources: Source) -> Generator:
    """The sources in turn, skipping those that have no invocation now."""
    return _AnyOf(tuple(generator(source) for source in sources))


# -- transformations ------------------------------------------------------------------------------------------------------------


class _MappedGenerator(msgspec.Struct, frozen=True):
    function: Callable[[Invocation], Invocation]
    inner: Generator

    def next(self, context: Context) -> Answer:
        answer = self.inner.next(context)
        if answer is None:
            return None
        what = answer[0]
        return self.function(what) if isinstance(what, Invocation) else what, _MappedGenerator(self.function, answer[1])


def mapped(function: Callable[[Invocation], Invocation], source: Source) -> Generator:
    """Each invocation of the source as changed by the function."""
    return _MappedGenerator(function, generator(source))


# -- keys ----------------------------------------------------------------------------------------------------------------------


class _Independent(msgspec.Struct, frozen=True):
    key_of: Callable[[int], str]
    source_of: Callable[[str], Source]
    group: int
    next_key: int = 0
    current: Map[int, tuple[str, Generator]] = Map()
    """Group of workers → its key and the rest of that key's source."""

    def next(self, context: Context) -> Answer:
        place, next_key = context.worker // self.group, self.next_key
        members = range(place * self.group, min((place + 1) * self.group, context.workers))
        inside = context._replace(worker=context.worker - members.start, workers=len(members))
        key, inner = self.current.get(place, ("", NOTHING))
        while True:
            answer = inner.next(inside)
            if answer is not None:
                what, after = answer
                what = what._replace(key=key) if isinstance(what, Invocation) else what
                current = self.current.set(place, (key, after))
                return what, _Independent(self.key_of, self.source_of, self.group, next_key, current)
            key, next_key = self.key_of(next_key), next_key + 1
            inner = generator(self.source_of(key))


def independent(key_of: Callable[[int], str], source_of: Callable[[str], Source], *, group: int) -> Generator:
    """Divide workers into groups of `group`. Each group works on one key until the source of that key ends, then takes the next
    key. `key_of` gives the keys by number, without end.

    Checkers search key by key: short histories of few processes keep the search cheap.
    """
    if group < 1:
        raise ValueError(f"a group of {group} workers; give at least one")
    return _Independent(key_of, source_of, group)
