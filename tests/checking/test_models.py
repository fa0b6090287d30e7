"""Models accept the real behaviour of every kind of object, and refuse one impossible answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kraftlab.checking.calls import NEVER, NamedModel, Operation, RefusedOutput
from kraftlab.checking.linearizability import decide
from kraftlab.checking.models import AppendList, Counter, Register

MISMATCH = "MISMATCH"


class Done(NamedTuple):
    """One call that took effect: its name, value, result, and error if it was refused."""

    f: str
    value: Any = None
    result: Any = None
    error: str = ""


class RegisterObject:
    model = Register(frozenset({MISMATCH}))

    def __init__(self) -> None:
        self.value: Any = None

    def do(self, chance: random.Random, index: int) -> Done:
        f = chance.choice(["get", "get", "set", "cas"])
        if f == "get":
            return Done("get", None, self.value)
        if f == "set":
            self.value = index
            return Done("set", index)
        expected, found = chance.choice([self.value, -1]), self.value
        if expected != found:
            return Done("cas", (expected, index), error=MISMATCH)
        self.value = index
        return Done("cas", (expected, index))


class ListObject:
    model = AppendList()

    def __init__(self) -> None:
        self.values: list[int] = []

    def do(self, chance: random.Random, index: int) -> Done:
        f = chance.choice(["append", "remove", "get", "get"])
        if f == "get":
            return Done(f, None, tuple(self.values))
        value = chance.choice([index, *self.values])
        if f == "append":
            self.values += [value] if value not in self.values else []
        else:
            self.values = [item for item in self.values if item != value]
        return Done(f, value, chance.choice([None, tuple(self.values)]))


class CounterObject:
    model = Counter()

    def __init__(self) -> None:
        self.sum = 0

    def do(self, chance: random.Random, index: int) -> Done:
        if chance.random() < 0.5:
            return Done("get", None, self.sum)
        value = chance.choice([1, 10, -3])
        self.sum += value
        return Done("add", value, chance.choice([None, self.sum]))


OBJECTS: dict[str, Callable[[], Any]] = {
    "register": RegisterObject,
    "list": ListObject,
    "counter": CounterObject,
}


def simulated(make: Callable[[], Any], seed: int, count: int) -> list[Operation]:
    """Clients that overlap: each call takes effect at one moment of its interval. Some answers are lost; of those calls some take
    effect only after many others, and some never.
    """
    chance = random.Random(seed)
    subject = make()
    model: NamedModel[Any] = subject.model
    calls: list[Operation] = []
    at = 0
    for index in range(count):
        at += chance.randrange(1, 8)
        begun, ended = at - chance.randrange(20), at + chance.randrange(1, 20)
        fate = chance.choices(["answered", "lost", "late"], [8, 1, 1])[0]
        done = subject.do(chance, index + 1)
        asked = (done.f, done.value)
        if fate == "answered":
            calls.append(Operation("k", begun, ended, asked, RefusedOutput(done.error) if done.error else done.result))
        elif done.f not in model.reads:
            calls.append(Operation("k", begun - 100 * (fate == "late"), NEVER, asked))
    for number in range(chance.randrange(3)):
        lost = make().do(chance, 1_000 + number)
        if lost.f not in model.reads and not lost.error:
            calls.append(Operation("k", at, NEVER, (lost.f, lost.value)))
    return calls


@pytest.mark.parametrize("name", OBJECTS)
def test_what_an_object_did_is_accepted(name: str) -> None:
    for seed in range(40):
        calls = simulated(OBJECTS[name], seed, 12 + seed)
        decision = decide(calls, OBJECTS[name]().model)
        assert decision.legal or (decision.legal is None and seed > 20), (seed, decision)


@pytest.mark.parametrize("name", OBJECTS)
def test_one_answer_that_cannot_be_is_refused(name: str) -> None:
    for seed in range(8):
        calls: list[Any] = simulated(OBJECTS[name], seed, 14)
        places = [place for place, call in enumerate(calls) if call.input[0] == "get" and not call.is_unknown]
        place = random.Random(seed).choice(places)
        calls[place] = calls[place]._replace(output=-5)
        assert decide(calls, OBJECTS[name]().model).legal is False, (seed, name)
