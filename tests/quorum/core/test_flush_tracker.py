"""The durable end of the log, compared with a twin disk that carries out every operation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.errors import InvariantViolation
from kraftlab.quorum.core.flush_tracker import FlushTracker


def common_prefix(left: list[int], right: list[int]) -> int:
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


@given(st.lists(st.tuples(st.sampled_from(["append", "truncate", "install", "complete"]), st.integers(1, 5)), max_size=60))
def test_the_durable_end_is_the_common_prefix_of_disk_and_memory(steps: list[tuple[str, int]]) -> None:
    tracker = FlushTracker(0)
    memory: list[int] = []
    disk: list[int] = []
    pending: list[tuple[int, list[int]]] = []
    record = 0
    for kind, number in steps:
        if kind == "append":
            for _ in range(number):
                record += 1
                memory.append(record)
            pending.append((tracker.appended(len(memory)), list(memory)))
        elif kind == "truncate":
            memory = memory[: max(0, len(memory) - number)]
            pending.append((tracker.truncated(len(memory)), list(memory)))
        elif kind == "install":
            committed = max(0, len(memory) - number)
            record += 1
            memory = memory[:committed] + [record] * (number + 2)
            pending.append((tracker.installed(len(memory), committed), list(memory)))
        elif pending:
            done, pending = pending[:number], pending[number:]
            disk = done[-1][1]
            tracker.completed(done[-1][0])
        assert tracker.durable_end_offset == common_prefix(disk, memory)


def test_a_late_completion_does_not_count_overwritten_records() -> None:
    tracker = FlushTracker(5)
    first = tracker.appended(10)
    tracker.truncated(6)
    last = tracker.appended(12)
    tracker.completed(first)
    assert tracker.durable_end_offset == 6
    tracker.completed(last)
    assert tracker.durable_end_offset == 12


def test_a_completion_of_something_never_asked_for_is_refused() -> None:
    with pytest.raises(InvariantViolation, match="storage completed operation 3"):
        FlushTracker(0).completed(3)
