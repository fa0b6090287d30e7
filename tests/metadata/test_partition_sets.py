"""Sets of partitions as bits, which equal plain sets."""

from __future__ import annotations

import immutables
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY
from kraftlab.metadata.partition_sets import (
    EMPTY_SET,
    PARTITIONS_PER_TOPIC_MAX,
    FamilyChanges,
    SetChanges,
    bits_of,
    members,
    numbers_of,
)
from kraftlab.metadata.records import Partition, Topic
from kraftlab.metadata.replay_error import ReplayError

TOPICS = (b"a" * 16, b"b" * 16, b"c" * 16)
NUMBERS = st.sets(st.integers(0, 40) | st.integers(0, 5000), max_size=30)
STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(TOPICS), NUMBERS, st.booleans()), max_size=12)


@given(NUMBERS)
def test_numbers_survive_as_bits(numbers: set[int]) -> None:
    assert bits_of(list(numbers)) == sum(1 << number for number in numbers)
    assert numbers_of(bits_of(list(numbers))) == sorted(numbers)


@given(STEPS, STEPS)
def test_a_family_of_sets_is_a_dict_of_sets(
    first: list[tuple[int, bytes, set[int], bool]], second: list[tuple[int, bytes, set[int], bool]]
) -> None:
    naive: dict[int, set[tuple[bytes, int]]] = {}
    family: immutables.Map[int, immutables.Map[bytes, int]] = immutables.Map()
    for steps in (first, second):
        changes = FamilyChanges(family)
        for key, topic_id, numbers, is_member in steps:
            keys = {(topic_id, number) for number in numbers}
            known = naive.setdefault(key, set())
            known |= keys
            if not is_member:
                known -= keys
            left, joined = ({}, {key: list(numbers)}) if is_member else ({key: list(numbers)}, {})
            changes.replace(topic_id, left, joined)
        family = changes.finish()
    assert {key: members(each) for key, each in family.items()} == {key: sorted(each) for key, each in naive.items() if each}


def test_a_set_in_which_nothing_changed_is_the_same_object() -> None:
    changes = SetChanges(EMPTY_SET)
    changes.replace(TOPICS[0], [], [0, 2])
    before = changes.finish()
    again = SetChanges(before)
    again.replace(TOPICS[0], [2], [])
    again.replace(TOPICS[0], [], [2])
    assert again.finish() is before


@pytest.mark.parametrize("number", [-1, PARTITIONS_PER_TOPIC_MAX])
def test_a_record_with_an_impossible_partition_number_is_not_replayed(number: int) -> None:
    delta = MetadataDelta(EMPTY)
    delta.replay(Topic(0, "foo", TOPICS[0]), 0)
    with pytest.raises(ReplayError, match="partition numbers lie between 0 and"):
        delta.replay(Partition(0, number, TOPICS[0], (1,), (1,), leader=1), 1)
