"""Generators of invocations as pure data: values that answer with an invocation and the generator that follows.

In the manner of Jepsen: `next(context)` answers with an invocation for the process that is free, with `Pending` if there is one
only later, or with None when nobody gets one any more. Nothing here reads a clock or rolls a die of its own: time, the free
process and chance come with the context. Chance is drawn when an invocation is given, not each time somebody asks, so that what
is asked does not depend on how often workers wake.

Wherever a generator is wanted, a *source* will do: an invocation (given once), a function of the context (called each time; it
ends by answering None), or a sequence of sources, one after the other.

    mix(read, write, weights=(2, 1))                  one of them, at random
    limit(n) · repeat                                 at most n · the first for ever
    stagger(s) · delay(s)                             s seconds apart: on average · exactly
    time_limit(s) · until_ok(a)                       until then · until one has ended as ok
    any_of(a, b) · mapped(f, a)                       whichever has something · each as f makes it
    independent(key_of, source_of, group=5)           workers in groups, each at one key after the other
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, cast

import msgspec
from immutables import Map

_NS = 1_000_000_000
_BEHIND_MAX = 10
"""Intervals that are made up for after a time in which nobody was free."""


class Invocation(NamedTuple):
    """An operation to carry out."""

    f: str
    key: str = ""
    value: object = None


class Context(NamedTuple):
    """When and for whom an invocation is asked. `process` is free, `worker` its place among the `workers`. `succeeded` counts the
    operations of this worker that have ended as ok.
    """

    now_ns: int
    process: int
    worker: int
    workers: int
    random: random.Random
    succeeded: int = 0


class Pending(NamedTuple):
    """Nothing yet; ask again at `until_ns`, or when another operation has ended if that is sooner or `until_ns` is None."""

    until_ns: int | None = None


class Generator(Protocol):
    """Immutable. What it answers goes with the generator that is to be asked next time."""

    def next(self, context: Context) -> Answer: ...


Answer = tuple[Invocation | Pending, Generator] | None
Source: TypeAlias = "Generator | Invocation | Callable[[Context], Invocation | None] | Sequence[Source]"


def generator(source: Source) -> Generator:
    """The generator that a source stands for."""
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


# -- how many, how often -------------------------------------------------------------------------------------------------------


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
    """The first invocation of the source again and again, `count` times at most."""
    endless = _Repeat(generator(source))
    return endless if count is None else _Limit(count, endless)


class _Paced(msgspec.Struct, frozen=True):
    interval_ns: int
    by_chance: bool
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
            due = earliest + (int(context.random.uniform(0, 2 * self.interval_ns)) if self.by_chance else self.interval_ns)
        return answer[0], _Paced(self.interval_ns, self.by_chance, answer[1], due)


def stagger(seconds: float, source: Source) -> Generator:
    """Invocations of all workers together are `seconds` apart on average, from nothing to twice that."""
    return _Paced(int(seconds * _NS), True, generator(source))


def delay(seconds: float, source: Source) -> Generator:
    """Invocations of all workers together are `seconds` apart."""
    return _Paced(int(seconds * _NS), False, generator(source))


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
    """Nothing later than `seconds` after the first time that somebody asked."""
    return _TimeLimit(int(seconds * _NS), generator(source))


class _UntilOk(msgspec.Struct, frozen=True):
    inner: Generator
    before: Map[int, int] = Map()
    """By worker, its successes when it first asked."""

    def next(self, context: Context) -> Answer:
        worker, before = context.worker, self.before
        if context.succeeded > before.get(worker, context.succeeded):
            return None
        answer = self.inner.next(context)
        before = before if worker in before else before.set(worker, context.succeeded)
        return None if answer is None else (answer[0], _UntilOk(answer[1], before))


def until_ok(source: Source) -> Generator:
    """Ends when a worker that asked here has had an operation end as ok since."""
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
    """Each time one of the sources, by chance and weight; those that have ended are left out."""
    if weights is not None and len(weights) != len(sources):
        raise ValueError(f"{len(sources)} sources have {len(weights)} weights; give one to each")
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
    """Whichever has an invocation now; they take turns."""
    return _AnyOf(tuple(generator(source) for source in sources))


# -- changed on the way --------------------------------------------------------------------------------------------------------


class _Mapped(msgspec.Struct, frozen=True):
    function: Callable[[Invocation], Invocation]
    inner: Generator

    def next(self, context: Context) -> Answer:
        answer = self.inner.next(context)
        if answer is None:
            return None
        what = answer[0]
        return self.function(what) if isinstance(what, Invocation) else what, _Mapped(self.function, answer[1])


def mapped(function: Callable[[Invocation], Invocation], source: Source) -> Generator:
    """Each invocation as the function makes it."""
    return _Mapped(function, generator(source))


# -- keys ----------------------------------------------------------------------------------------------------------------------


class _Independent(msgspec.Struct, frozen=True):
    key_of: Callable[[int], str]
    source_of: Callable[[str], Source]
    group: int
    next_key: int = 0
    current: Map[int, tuple[str, Generator]] = Map()
    """By group of workers: its key, and the rest of its source."""

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
    """Put workers into groups of `group`; each group works on a key until its source has ended, and goes on to the next key.
    `key_of` gives the keys by number, without end.

    Checkers search key by key: short histories of few processes keep that cheap.
    """
    if group < 1:
        raise ValueError(f"a group of {group} workers does nothing; give one at least")
    return _Independent(key_of, source_of, group)
