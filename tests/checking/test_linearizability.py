"""The search for an order of calls agrees with trying all orders, and knows the histories of the literature."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.checking import linearizability
from kraftlab.checking.linearizability import NEVER, AppendModel, Operation, by_key, check, digest


class RegisterModel:
    """A register. Inputs: ("write", value), ("read",). A read's output is the value, None before the first write."""

    def initial(self) -> tuple[Hashable, ...]:
        return ()

    def step(self, state: tuple[Hashable, ...], operation: Operation) -> tuple[Hashable, ...] | None:
        match operation.input:
            case ("write", value):
                return (value,)
            case ("read",):
                value = state[0] if state else None
                return state if operation.is_unknown or operation.output == value else None
        raise ValueError(f"{operation!r} is no call of a register")


def write(value: int, invoked: int, returned: int = NEVER) -> Operation:
    return Operation("x", invoked, returned, ("write", value))


def read(value: int | None, invoked: int, returned: int) -> Operation:
    return Operation("x", invoked, returned, ("read",), value)


def try_all_orders(operations: list[Operation]) -> bool:
    """The definition: some of the unknown calls, all others, in an order that keeps those apart that do not overlap."""
    known = [o for o in operations if not o.is_unknown]
    unknown = [o for o in operations if o.is_unknown]
    for mask in range(1 << len(unknown)):
        chosen = known + [o for number, o in enumerate(unknown) if mask >> number & 1]
        for order in permutations(chosen):
            if any(late.returned < early.invoked for at, early in enumerate(order) for late in order[at + 1 :]):
                continue
            state: tuple[object, ...] | None = ()
            for operation in order:
                state = RegisterModel().step(state, operation) if state is not None else None
            if state is not None:
                return True
    return False


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    operations = []
    for _ in range(draw(st.integers(1, 5))):
        invoked = draw(st.integers(0, 12))
        returned = invoked + draw(st.integers(1, 6))
        if draw(st.booleans()):
            operations.append(read(draw(st.sampled_from([None, 1, 2])), invoked, returned))
        else:
            operations.append(write(draw(st.sampled_from([1, 2])), invoked, NEVER if draw(st.integers(0, 3)) == 0 else returned))
    return operations


@settings(max_examples=400, deadline=None)
@given(histories())
def test_the_search_agrees_with_trying_all_orders(operations: list[Operation]) -> None:
    assert check(operations, RegisterModel()).legal is try_all_orders(operations)


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
    verdict = check(LEGAL[name], RegisterModel())
    assert verdict.legal
    assert verdict.explanation() == ""


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal(name: str) -> None:
    verdict = check(ILLEGAL[name], RegisterModel())
    assert verdict.legal is False
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
    assert check(history, AppendModel([2, 1, 3])).legal
    assert check(history, AppendModel([1, 2, 3])).legal is False, "the first read saw another order"
    assert check([*history, read_list(11, 12, 2, 1)], AppendModel([2, 1, 3])).legal is False, "a stale read"


def test_many_calls_of_unknown_outcome_cost_little() -> None:
    history = [append(value, value) for value in range(200)]
    history += [read_list(300 + length, 301 + length, *range(length)) for length in range(0, 200, 10)]
    verdict = check(history, AppendModel(list(range(200))))
    assert verdict.legal
    assert verdict.steps < 150_000


def test_a_search_that_takes_too_long_is_given_up() -> None:
    history = [write(value, 0, 100) for value in range(14)] + [read(99, 101, 102)]
    assert check(history, RegisterModel(), steps_max=10_000).legal is None


def test_keys_are_checked_by_themselves() -> None:
    history = [Operation("a", 0, 1, ("write", 1)), Operation("b", 2, 3, ("read",), None), Operation("a", 4, 5, ("read",), 1)]
    assert {key: len(operations) for key, operations in by_key(history).items()} == {"a": 2, "b": 1}


def test_the_checker_knows_nothing_of_what_it_checks() -> None:
    with open(linearizability.__file__) as source:
        assert not [line for line in source if line.startswith(("from .", "from kraftlab", "import kraftlab"))]
