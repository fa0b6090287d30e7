"""Findings of the checker of consumer groups, and histories that Kafka allows."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from jepsen_lite.history import FAIL, INFO, OK, History, Op, Outcome
from jepsen_lite.verdicts import UNKNOWN, Verdict
from jepsen_lite.workload import Options, Run
from jepsen_lite.workloads.groups import GroupProgress

TOPIC = "groups-0"
LOG = {0: "a", 1: "b", 2: "c", 3: "d"}


class Poll(NamedTuple):
    """A poll of a member between two moments: the offsets that it got, with values of the log."""

    begin: int
    end: int
    offsets: tuple[int, ...]
    process: int = 0
    generation: int = 1
    is_committed: bool = True
    values: tuple[str, ...] = ()

    def op(self, index: int) -> Op:
        values = self.values or tuple(LOG[offset] for offset in self.offsets)
        records = [[TOPIC, offset, value] for offset, value in zip(self.offsets, values, strict=True)]
        result = [self.generation, records, self.is_committed]
        return made(index, "poll", "", None, OK, result, process=self.process, at=(self.begin, self.end))


def made(
    index: int,
    f: str,
    key: str,
    value: object,
    outcome: Outcome,
    result: object = None,
    *,
    process: int = 9,
    at: tuple[int, int] = (0, 1),
) -> Op:
    return Op(
        index=index,
        process=process,
        f=f,
        key=key,
        value=value,
        outcome=outcome,
        result=result,
        invoked_ns=at[0],
        ended_ns=at[1],
    )


def judged(*polls: Poll, committed: int | None = 4, lost_answer: bool = False) -> Verdict:
    """Judge the polls of a group on a log of four records, whose last committed offset is `committed`."""
    ops = [made(offset, "append", TOPIC, value, OK, offset) for offset, value in LOG.items()]
    ops += [poll.op(10 + number) for number, poll in enumerate(polls)]
    ops.append(made(90, "get", TOPIC, None, OK, [[offset, value] for offset, value in LOG.items()], at=(900, 901)))
    if lost_answer:
        ops.append(made(91, "poll", "", None, INFO, at=(50, 60)))
    outcome: Outcome = FAIL if committed is None else OK
    ops.append(made(99, "committed", "", None, outcome, {TOPIC: committed}, at=(950, 960)))
    return GroupProgress().check(Run(options=Options(), history=History(ops)))


def test_a_group_that_goes_on_where_it_committed_is_valid() -> None:
    assert judged(Poll(10, 20, (0, 1)), Poll(30, 40, (2, 3), process=1, generation=2)).valid is True


def test_records_without_a_confirmed_commit_may_come_again() -> None:
    assert judged(Poll(10, 20, (0, 1), is_committed=False), Poll(30, 40, (0, 1, 2, 3), process=1, generation=2)).valid is True


def test_a_member_that_lost_its_place_may_poll_what_another_one_committed() -> None:
    polls = Poll(10, 20, (0, 1, 2, 3), process=1, generation=2), Poll(30, 40, (0, 1), is_committed=False)
    assert judged(*polls).valid is True


def test_a_commit_that_was_confirmed_after_the_next_member_had_begun_does_not_bind_that_member() -> None:
    late, begins = Poll(10, 50, (0, 1)), Poll(30, 40, (0,), process=1, generation=2)
    assert judged(late, begins, Poll(60, 70, (1, 2, 3), process=1, generation=2)).valid is True


@pytest.mark.parametrize(
    ("polls", "committed", "kind"),
    [
        ((Poll(10, 20, (0, 1)), Poll(30, 40, (1, 2, 3), process=1, generation=2)), 4, "back"),
        ((Poll(10, 20, (0, 1)), Poll(30, 40, (3,))), 4, "skipped"),
        ((Poll(10, 20, (0, 1, 2, 3)),), 2, "commit lost"),
        ((Poll(10, 20, (0, 1, 2, 3), values=("a", "x", "c", "d")),), 4, "strange"),
    ],
)
def test_violations_are_found(polls: tuple[Poll, ...], committed: int, kind: str) -> None:
    assert judged(*polls, committed=committed).details["violations"] == {kind: 1}


def test_what_cannot_be_known_is_unknown() -> None:
    assert judged(Poll(10, 20, (0, 1, 2, 3)), committed=None).valid == UNKNOWN
    assert judged(Poll(10, 20, (0, 1, 2, 3), is_committed=False)).valid == UNKNOWN
    assert judged(Poll(10, 20, (0, 1)), Poll(30, 40, (3,)), lost_answer=True).valid == UNKNOWN
