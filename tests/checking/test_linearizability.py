"""Both searches agree with a search of all orders and with each other, also on histories of the literature."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.checking import depth_first, just_in_time
from kraftlab.checking.calls import NEVER, Model, Operation, RefusedOutput, by_key
from kraftlab.checking.contradiction import contradiction
from kraftlab.checking.linearizability import decide
from kraftlab.checking.models import AppendModel, Register, digest
from kraftlab.checking.partial_orders import picture

MISMATCH = "MISMATCH"
REGISTER = Register(frozenset({MISMATCH}))


def in_some_order(calls: list[Operation], model: Model[Any]) -> bool:
    """The definition: an order of all calls that returned and some of the others, in which calls that do not overlap keep their
    order.
    """
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
        calls.append(Operation("x", invoked, returned, input_, RefusedOutput(MISMATCH) if kind == "refused" else None))
    return calls


@settings(max_examples=150, deadline=None)
@given(register_calls())
def test_both_searches_agree_with_trying_all_orders(calls: list[Operation]) -> None:
    legal = in_some_order(calls, REGISTER)
    assert depth_first.check(calls, REGISTER).legal is legal
    assert just_in_time.check(calls, REGISTER).legal is legal


@settings(max_examples=150, deadline=None)
@given(register_calls())
def test_an_order_that_was_found_works_and_the_contradiction_is_illegal(calls: list[Operation]) -> None:
    answer = just_in_time.check(calls, REGISTER)
    state = REGISTER.initial()
    for number in answer.order:
        following = REGISTER.step(state, calls[number])
        assert following is not None
        state = following
    if answer.legal:
        return
    found = contradiction(calls, REGISTER)
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
def test_what_is_left_out_of_the_contradiction_does_not_matter(calls: list[Operation]) -> None:
    """The part contradicts itself even if the other calls happened at any other time or never."""
    if just_in_time.check(calls, REGISTER).legal is not False:
        return
    found = contradiction(calls, REGISTER)
    rest = [
        call._replace(returned=NEVER, output=None)
        for number, call in enumerate(calls)
        if number not in found.numbers and call.input[0] != "get" and not isinstance(call.output, RefusedOutput)  # type: ignore[index]
    ]
    assert not in_some_order([*found.calls, *rest], REGISTER)


def write(value: int, invoked: int, returned: int = NEVER) -> Operation:
    return Operation("x", invoked, returned, ("set", value))


def read(value: int | None, invoked: int, returned: int) -> Operation:
    return Operation("x", invoked, returned, ("get", None), value)


LEGAL = {
    "one after the other": [write(1, 0, 1), read(1, 2, 3), write(2, 4, 5), read(2, 6, 7)],
    "overlapping calls may come in either order": [write(1, 0, 10), write(2, 1, 9), read(1, 11, 12)],
    "a read may already see a write that has not returned": [write(1, 0, 10), read(1, 2, 3), read(1, 4, 5)],
    "a write of unknown outcome may take effect long after": [write(1, 0), read(None, 2, 3), read(1, 9, 10)],
    "or never": [write(1, 0), write(2, 2, 3), read(2, 4, 5), read(2, 8, 9)],
}
ILLEGAL = {
    "a stale read": [write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)],
    "a lost write": [write(1, 0, 1), read(None, 2, 3)],
    "two reads that see two writes in different orders": [
        write(1, 0, 10),
        write(2, 0, 10),
        read(1, 11, 12),
        read(2, 13, 14),
        read(1, 15, 16),
    ],
    "a value that nobody wrote": [write(1, 0, 1), read(7, 2, 3)],
    "a value seen before it is written": [read(1, 0, 1), write(1, 2, 3)],
    "a write seen, then gone again": [write(1, 0, 10), read(1, 2, 3), read(None, 4, 5)],
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal(name: str) -> None:
    verdict = depth_first.check(LEGAL[name], REGISTER)
    assert verdict.legal
    assert just_in_time.check(LEGAL[name], REGISTER).legal
    assert verdict.explanation() == ""


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal(name: str) -> None:
    verdict = depth_first.check(ILLEGAL[name], REGISTER)
    assert verdict.legal is False
    assert just_in_time.check(ILLEGAL[name], REGISTER).legal is False
    assert "can be ordered, none such that Operation(" in verdict.explanation()


def final(*values: int) -> tuple[int, int]:
    state = 0
    for value in values:
        state = digest(state, value)
    return len(values), state


def append(value: int, invoked: int, returned: int = NEVER) -> Operation:
    return Operation("list", invoked, returned, ("append", value))


def read_list(invoked: int, returned: int, *values: int) -> Operation:
    return Operation("list", invoked, returned, ("read",), final(*values))


def test_appends_are_placed_as_the_list_ends() -> None:
    history = [append(1, 0, 5), append(2, 1, 4), read_list(6, 7, 2, 1), append(3, 8), read_list(9, 10, 2, 1, 3)]
    assert depth_first.check(history, AppendModel([2, 1, 3])).legal
    assert depth_first.check(history, AppendModel([1, 2, 3])).legal is False, "the first read saw another order"
    assert depth_first.check([*history, read_list(11, 12, 2, 1)], AppendModel([2, 1, 3])).legal is False, "a stale read"


def test_many_calls_of_unknown_outcome_cost_little() -> None:
    history = [append(value, value) for value in range(200)]
    history += [read_list(300 + length, 301 + length, *range(length)) for length in range(0, 200, 10)]
    verdict = depth_first.check(history, AppendModel(list(range(200))))
    assert verdict.legal
    assert verdict.steps < 150_000


def hard(count: int) -> list[Operation]:
    """Many overlapping writes, and a read of a value that was never written."""
    return [Operation("x", 0, 100, ("set", value)) for value in range(count)] + [Operation("x", 101, 102, ("get", None), -1)]


def test_just_in_time_decides_histories_that_take_the_other_search_too_long() -> None:
    calls = hard(12)
    assert depth_first.check(calls, REGISTER, steps_max=5_000).legal is None
    assert just_in_time.check(calls, REGISTER, steps_max=1_000_000).legal is False
    waiting = [Operation("x", value, NEVER, ("set", value)) for value in range(60)]
    reads = [Operation("x", 100 + 2 * value, 101 + 2 * value, ("get", None), value) for value in range(60)]
    wrong = [*waiting, *reads, Operation("x", 500, 501, ("get", None), 3)]
    answer = just_in_time.check(wrong, REGISTER, steps_max=100_000)
    assert answer.legal is False
    assert answer.configurations_max <= 2
    assert answer.stuck_at == 120


def test_a_history_that_neither_search_decides_stays_undecided() -> None:
    decision = decide(hard(14), REGISTER, steps_max=2_000)
    assert (decision.legal, decision.algorithm) == (None, "jit")


def test_keys_are_checked_by_themselves() -> None:
    history = [Operation("a", 0, 1, ("write", 1)), Operation("b", 2, 3, ("read",), None), Operation("a", 4, 5, ("read",), 1)]
    assert {key: len(operations) for key, operations in by_key(history).items()} == {"a": 2, "b": 1}
