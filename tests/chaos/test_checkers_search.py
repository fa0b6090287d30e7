"""The two searches agree with trying all orders and with each other, and accept what every kind of object really did."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jepsen_lite.checkers import just_in_time
from jepsen_lite.checkers.linearizable import Linearizable, check_calls
from jepsen_lite.checkers.partial_orders import picture
from jepsen_lite.checkers.smallest import smallest
from jepsen_lite.committed_log import CommittedLog
from jepsen_lite.history import History, Op
from jepsen_lite.models.allocator import Allocator
from jepsen_lite.models.counter import Counter
from jepsen_lite.models.lists import AppendList
from jepsen_lite.models.model import NEVER, Model, Operation, Refused, as_call, frozen
from jepsen_lite.models.register import Register, VersionedRegister
from jepsen_lite.models.sets import ValueSet
from jepsen_lite.models.topics import TopicName
from jepsen_lite.verdicts import UNKNOWN
from jepsen_lite.workload import Options, Run
from kraftlab.checking import linearizability

MISMATCH = "MISMATCH"
REGISTER = Register(frozenset({MISMATCH}))


def in_some_order(calls: list[Operation], model: Model[Any]) -> bool:
    """The definition: all calls that returned and some of the others, in an order that keeps those apart that do not overlap."""
    known = [call for call in calls if not call.is_unknown]
    unknown = [call for call in calls if call.is_unknown]
    for mask in range(1 << len(unknown)):
        chosen = known + [call for number, call in enumerate(unknown) if mask >> number & 1]
        for order in permutations(chosen):
            if any(late.returned < early.invoked for at, early in enumerate(order) for late in order[at + 1 :]):
                continue
            state = model.initial()
            for call in order:
                state = model.step(state, call)
                if state is None:
                    break
            if state is not None:
                return True
    return False


@st.composite
def register_calls(draw: st.DrawFn) -> list[Operation]:
    calls = []
    small = st.sampled_from([1, 2])
    for _ in range(draw(st.integers(1, 6))):
        invoked = draw(st.integers(0, 12))
        returned = invoked + draw(st.integers(0, 6))
        kind = draw(st.sampled_from(["get", "get", "set", "cas", "refused"]))
        if kind == "get":
            calls.append(Operation("x", invoked, returned, ("get", None), draw(st.sampled_from([None, 1, 2]))))
            continue
        if kind != "refused" and draw(st.integers(0, 3)) == 0:
            returned = NEVER
        input_ = ("set", draw(small)) if kind == "set" else ("cas", (draw(small), draw(small)))
        calls.append(Operation("x", invoked, returned, input_, Refused(MISMATCH) if kind == "refused" else None))
    return calls


@settings(max_examples=150, deadline=None)
@given(register_calls())
def test_both_searches_agree_with_trying_all_orders(calls: list[Operation]) -> None:
    legal = in_some_order(calls, REGISTER)
    assert linearizability.check(calls, REGISTER).legal is legal
    assert just_in_time.check(calls, REGISTER).legal is legal


@settings(max_examples=150, deadline=None)
@given(register_calls())
def test_an_order_that_was_found_works_and_the_least_part_is_illegal(calls: list[Operation]) -> None:
    answer = just_in_time.check(calls, REGISTER)
    state = REGISTER.initial()
    for number in answer.order:
        following = REGISTER.step(state, calls[number])
        assert following is not None
        state = following
    if answer.legal:
        return
    found = smallest(calls, REGISTER)
    assert not in_some_order(list(found.calls), REGISTER)
    assert len(found.calls) <= len(calls)
    drawn = picture(found.calls, REGISTER)
    assert all(len(partial.order) < len(found.calls) for partial in drawn.partials)
    assert all(
        partial.refused or not partial.order or _all_unknown_left(partial.order, found.calls) for partial in drawn.partials
    )


def _all_unknown_left(order: tuple[int, ...], calls: tuple[Operation, ...]) -> bool:
    return all(call.is_unknown for number, call in enumerate(calls) if number not in order)


@settings(max_examples=60, deadline=None)
@given(register_calls())
def test_what_is_left_out_of_the_least_part_does_not_matter(calls: list[Operation]) -> None:
    """The rest may have happened at any time or never: the part contradicts itself all the same."""
    if just_in_time.check(calls, REGISTER).legal is not False:
        return
    found = smallest(calls, REGISTER)
    rest = [
        call._replace(returned=NEVER, output=None)
        for number, call in enumerate(calls)
        if number not in found.numbers and call.input[0] != "get" and not isinstance(call.output, Refused)  # type: ignore[index]
    ]
    assert not in_some_order([*found.calls, *rest], REGISTER)


# -- what objects really did ---------------------------------------------------------------------------------------------


class Done(NamedTuple):
    """One call that took effect: its name, value, result, and error if it was refused."""

    f: str
    value: Any = None
    result: Any = None
    error: str = ""


class RegisterObject:
    model = REGISTER

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
            return Done("cas", [expected, index], error=MISMATCH)
        self.value = index
        return Done("cas", [expected, index])


class VersionedObject:
    model = VersionedRegister(frozenset({MISMATCH}))

    def __init__(self) -> None:
        self.value: Any = None
        self.version = 0

    def do(self, chance: random.Random, index: int) -> Done:
        f = chance.choice(["get", "get", "set", "cas"])
        if f == "get":
            return Done("get", None, [self.value, self.version])
        expected = chance.choice([self.version, self.version + 1])
        if f == "cas" and expected != self.version:
            return Done("cas", [expected, index], error=MISMATCH)
        self.value, self.version = index, self.version + 1
        return Done(f, index if f == "set" else [expected, index], chance.choice([None, self.version]))


class TopicObject:
    model = TopicName()

    def __init__(self) -> None:
        self.topic: dict[str, Any] | None = None

    def do(self, chance: random.Random, index: int) -> Done:
        f = chance.choice(["create", "delete", "describe", "describe"])
        if f == "describe":
            return Done(f, None, self.topic and dict(self.topic))
        if f == "create":
            if self.topic:
                return Done(f, {"tag": index}, error="TOPIC_ALREADY_EXISTS")
            self.topic = {"id": f"id-{index}", "tag": index}
            return Done(f, {"tag": index}, f"id-{index}")
        if not self.topic:
            return Done(f, None, error="UNKNOWN_TOPIC_OR_PARTITION")
        value = chance.choice([None, {"id": self.topic["id"]}])
        self.topic = None
        return Done(f, value)


class ListObject:
    model = AppendList(once=True)

    def __init__(self) -> None:
        self.values: list[int] = []

    def do(self, chance: random.Random, index: int) -> Done:
        f = chance.choice(["append", "subtract", "get", "get"])
        if f == "get":
            return Done(f, None, list(self.values))
        value = chance.choice([index, *self.values])
        if f == "append":
            self.values += [value] if value not in self.values else []
        else:
            self.values = [item for item in self.values if item != value]
        return Done(f, value, chance.choice([None, list(self.values)]))


class SetObject:
    model = ValueSet()

    def __init__(self) -> None:
        self.values: set[int] = set()

    def do(self, chance: random.Random, index: int) -> Done:
        f = chance.choice(["add", "remove", "get", "get"])
        if f == "get":
            return Done(f, None, sorted(self.values, reverse=True))
        value = chance.choice([index, *sorted(self.values)])
        (self.values.add if f == "add" else self.values.discard)(value)
        return Done(f, value)


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


class AllocatorObject:
    model = Allocator()

    def __init__(self) -> None:
        self.next = 0

    def do(self, chance: random.Random, index: int) -> Done:
        length = chance.choice([1, 5])
        start, self.next = self.next, self.next + length
        return Done("allocate", length, [start, length])


OBJECTS: dict[str, type[Any]] = {
    "register": RegisterObject,
    "versioned": VersionedObject,
    "topic": TopicObject,
    "list": ListObject,
    "set": SetObject,
    "counter": CounterObject,
    "allocator": AllocatorObject,
}


def simulated(make: Callable[[], Any], seed: int, count: int) -> list[Op]:
    """Clients that overlap: each call takes effect at one moment of its time. Of some the answer is lost; of those, some take
    effect only after many others, and some never.
    """
    chance = random.Random(seed)
    subject = make()
    ops: list[Op] = []
    at = 0
    for index in range(count):
        at += chance.randrange(1, 8)
        begun, ended = at - chance.randrange(20), at + chance.randrange(1, 20)
        fate = chance.choices(["answered", "lost", "late"], [8, 1, 1])[0]
        if fate == "late":
            begun -= 100
        done = subject.do(chance, index + 1)
        fields: dict[str, Any] = {"key": "k", "f": done.f, "value": done.value, "invoked_ns": begun, "ended_ns": ended}
        if fate != "answered":
            fields |= {"outcome": "info", "error": "UNAVAILABLE", "ended_ns": begun + 1}
        elif done.error:
            fields |= {"outcome": "fail", "error": done.error}
        else:
            fields |= {"outcome": "ok", "result": done.result}
        ops.append(Op(index=index, process=index, **fields))
    for number in range(chance.randrange(3)):
        lost = subject.__class__().do(chance, 1_000 + number)
        if lost.f not in subject.model.reads and not lost.error:
            ops.append(
                Op(
                    index=count + number,
                    process=0,
                    key="k",
                    f=lost.f,
                    value=lost.value,
                    outcome="info",
                    invoked_ns=at,
                    ended_ns=at,
                )
            )
    return ops


@pytest.mark.parametrize("name", OBJECTS)
def test_what_an_object_did_is_accepted(name: str) -> None:
    for seed in range(40):
        ops = simulated(OBJECTS[name], seed, 12 + seed)
        verdict = Linearizable(lambda key: OBJECTS[name].model).check(Run(options=Options(), history=History(ops)))
        assert verdict.valid is True or (verdict.valid == UNKNOWN and seed > 20), (seed, verdict.reason)


def other_answer(name: str, result: Any) -> Any:
    """What the object cannot have said, whatever the order."""
    if name == "topic":
        return {"id": "id-never", "tag": -5}
    if name in ("list", "set"):
        return [*result, -5]
    if name == "versioned":
        return [-5, result[1]]
    return [result[0], result[1] + 1] if name == "allocator" else -5


@pytest.mark.parametrize("name", OBJECTS)
def test_one_answer_that_cannot_be_is_refused(name: str) -> None:
    for seed in range(8):
        ops = simulated(OBJECTS[name], seed, 14)
        chance = random.Random(seed)
        asked = "allocate" if name == "allocator" else "describe" if name == "topic" else "get"
        places = [place for place, op in enumerate(ops) if op.f == asked and op.outcome == "ok"]
        place = chance.choice(places)
        ops[place] = msgspec.structs.replace(ops[place], result=other_answer(name, ops[place].result))
        verdict = Linearizable(lambda key: OBJECTS[name].model).check(Run(options=Options(), history=History(ops)))
        assert verdict.valid is False, (seed, name)
        assert ops[place].index in verdict.ops


# -- budgets -------------------------------------------------------------------------------------------------------------


def hard(count: int) -> list[Operation]:
    """Many overlapping writes, and a read of what nobody wrote."""
    return [Operation("x", 0, 100, ("set", value)) for value in range(count)] + [Operation("x", 101, 102, ("get", None), -1)]


def test_just_in_time_decides_what_takes_the_other_search_too_long() -> None:
    calls = hard(12)
    assert linearizability.check(calls, REGISTER, steps_max=5_000).legal is None
    assert just_in_time.check(calls, REGISTER, steps_max=1_000_000).legal is False
    waiting = [Operation("x", value, NEVER, ("set", value)) for value in range(60)]
    reads = [Operation("x", 100 + 2 * value, 101 + 2 * value, ("get", None), value) for value in range(60)]
    wrong = [*waiting, *reads, Operation("x", 500, 501, ("get", None), 3)]
    answer = just_in_time.check(wrong, REGISTER, steps_max=100_000)
    assert answer.legal is False
    assert answer.configurations_max <= 2
    assert answer.stuck_at == 120


def test_what_neither_decides_is_unknown_and_says_why() -> None:
    answer = check_calls(hard(14), REGISTER, steps_max=2_000)
    assert (answer.valid, answer.algorithm) == (UNKNOWN, "jit")
    ops = [Op(index=n, process=n, f="set", key="x", value=n, outcome="ok", invoked_ns=0, ended_ns=100) for n in range(14)]
    ops.append(Op(index=14, process=14, f="get", key="x", outcome="ok", result=-1, invoked_ns=101, ended_ns=102))
    checker = Linearizable(lambda key: REGISTER, steps_max=2_000)
    verdict = checker.check(Run(options=Options(), history=History(ops)))
    assert verdict.valid == UNKNOWN
    assert verdict.reason.startswith("1 of 1 keys could not be decided, 'x' for one: given up after ")


def test_calls_that_the_log_does_not_have_are_not_searched() -> None:
    ops = [
        Op(index=n, process=n, f="set", key="x", value=n, outcome="info", request_id=f"a:{n}", invoked_ns=0, ended_ns=1)
        for n in range(30)
    ]
    ops.append(Op(index=30, process=30, f="get", key="x", outcome="ok", result=None, invoked_ns=5, ended_ns=6))
    checker = Linearizable(lambda key: REGISTER)
    assert checker.check(Run(options=Options(), history=History(ops))).details["checked"] == 31
    verdict = checker.check(Run(options=Options(), history=History(ops), log=CommittedLog(())))
    assert (verdict.valid, verdict.details["checked"]) == (True, 1)


def test_a_request_that_was_sent_again_is_one_call() -> None:
    def sent(index: int, outcome: str, invoked_ns: int, ended_ns: int, value: int, request_id: str) -> Op:
        fields: dict[str, Any] = {"outcome": outcome, "request_id": request_id, "invoked_ns": invoked_ns, "ended_ns": ended_ns}
        return Op(index=index, process=index, f="set", key="x", value=value, **fields)

    first, other = sent(0, "info", 0, 1, 1, "a:1"), sent(1, "ok", 2, 3, 2, "a:2")
    again, failed = sent(2, "ok", 4, 5, 1, "a:1"), sent(3, "fail", 6, 7, 1, "a:1")
    read = Op(index=4, process=4, f="get", key="x", outcome="ok", result=2, invoked_ns=8, ended_ns=9)
    checker = Linearizable(lambda key: REGISTER)
    assert checker.check(Run(options=Options(), history=History([first, other, again, failed, read]))).valid is True
    assert checker.check(Run(options=Options(), history=History([other, again, read]))).valid is False


def test_values_of_calls_can_be_hashed() -> None:
    assert frozen({"b": [1, {"c": 2}], "a": None}) == (("a", None), ("b", (1, (("c", 2),))))
    read = Op(index=0, process=0, f="get", outcome="ok", result=[1], invoked_ns=0, ended_ns=1)
    call = as_call(read, REGISTER)
    assert call is not None
    assert call.output == (1,)
