"""Placement of replicas over racks: the rows of the reference, refusals, and rules for every cluster."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.topics.placement import UsableBroker, place


class NoRandomness(random.Random):
    """Every ring starts at its first element."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0


def brokers(text: str) -> list[UsableBroker]:
    """`A:0 A:1 -:2!` is two brokers in rack A and a fenced one without a rack."""
    usable = []
    for word in text.split():
        rack, _, broker_id = word.partition(":")
        usable.append(UsableBroker(int(broker_id.rstrip("!")), None if rack == "-" else rack, word.endswith("!")))
    return usable


@pytest.mark.parametrize(
    ("cluster", "replication_factor", "expected"),
    [
        ("A:0 A:1 A:2 B:3 B:4 B:5 C:6 C:7 C:8", 3, [(0, 3, 6), (4, 7, 1), (8, 2, 5), (0, 3, 6)]),
        ("-:0 -:1 -:2 -:3", 3, [(0, 1, 2), (1, 2, 3), (2, 3, 0), (3, 0, 1)]),
        ("-:0 -:1! -:2", 3, [(0, 2, 1), (2, 0, 1)]),
        ("1:10 1:11 2:21 2:20! 3:30 3:31", 4, [(10, 21, 30, 11), (21, 31, 11, 20), (30, 10, 21, 31)]),
        ("1:10 1:11 3:30! 3:31!", 2, [(10, 30), (11, 31)]),
        ("A:10 A:11 B:20", 2, [(10, 20), (20, 11), (10, 20)]),
        ("A:10! A:11! B:20", 2, [(20, 10), (20, 11)]),
        ("-:3! -:4 -:5!", 1, [(4,), (4,), (4,)]),
        ("-:3! -:4 -:5!", 2, [(4, 3), (4, 5), (4, 3)]),
        ("A:0 A:1 A:2 B:3", 2, [(0, 3), (3, 1), (2, 3)]),
    ],
)
def test_replicas_are_striped_over_racks(cluster: str, replication_factor: int, expected: list[tuple[int, ...]]) -> None:
    assert place(brokers(cluster), len(expected), replication_factor, NoRandomness()) == expected


@pytest.mark.parametrize(
    ("cluster", "replication_factor", "message"),
    [
        ("A:0", 0, "Replication factor must be larger than 0, or -1 to use the default value."),
        ("A:0", -1, "Replication factor must be larger than 0, or -1 to use the default value."),
        (
            "A:0 A:1!",
            3,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only "
            "2 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        ("A:0! A:1!", 2, "All brokers are currently fenced."),
    ],
)
def test_impossible_placements_are_refused(cluster: str, replication_factor: int, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        place(brokers(cluster), 1, replication_factor, random.Random(1))
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REPLICATION_FACTOR, message)


@st.composite
def clusters(draw: st.DrawFn) -> list[UsableBroker]:
    count = draw(st.integers(1, 10))
    racks = draw(st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=count, max_size=count))
    fenced = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    fenced[draw(st.integers(0, count - 1))] = False
    return [UsableBroker(100 + i, racks[i], fenced[i]) for i in range(count)]


def fairest_rack_loads(sizes: list[int], replication_factor: int) -> list[int]:
    """Naive twin: sorted numbers of replicas per rack if each replica goes to the least loaded rack."""
    loads = [0] * len(sizes)
    for _ in range(replication_factor):
        rack = min((i for i in range(len(sizes)) if loads[i] < sizes[i]), key=lambda i: loads[i])
        loads[rack] += 1
    return sorted(loads)


@given(clusters(), st.integers(1, 30), st.integers(0, 2**32), st.data())
def test_every_partition_is_spread_as_evenly_as_the_racks_allow(
    cluster: list[UsableBroker], count: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(cluster)))
    by_id = {broker.broker_id: broker for broker in cluster}
    sizes = Counter(broker.rack for broker in cluster)
    for replicas in place(cluster, count, factor, random.Random(seed)):
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(by_id)
        assert not by_id[replicas[0]].fenced
        loads = Counter(by_id[replica].rack for replica in replicas)
        assert sorted(loads[rack] for rack in sizes) == fairest_rack_loads(list(sizes.values()), factor)
        for rack in sizes:
            fenced = [replica for replica in replicas if by_id[replica].rack == rack and by_id[replica].fenced]
            unfenced = [replica for replica in replicas if by_id[replica].rack == rack and not by_id[replica].fenced]
            if fenced:
                assert len(unfenced) == sum(broker.rack == rack and not broker.fenced for broker in cluster)


@given(st.integers(1, 8), st.integers(1, 5), st.integers(0, 2**32))
def test_leaders_are_shared_evenly_in_a_cluster_without_racks(broker_count: int, rounds: int, seed: int) -> None:
    cluster = [UsableBroker(i, None, False) for i in range(broker_count)]
    leaders = Counter(replicas[0] for replicas in place(cluster, broker_count * rounds, 1, random.Random(seed)))
    assert set(leaders.values()) == {rounds}


@pytest.mark.parametrize("seed", range(3))
def test_over_many_partitions_every_pair_of_brokers_is_used_about_as_often(seed: int) -> None:
    """Each broker leads its exact share. Its followers are shuffled, so no pair of brokers holds the same partitions."""
    cluster = [UsableBroker(broker_id, None, False) for broker_id in range(5)]
    placed = place(cluster, 5 * 400, 2, random.Random(seed))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {400}
    pairs = Counter(placed)
    assert len(pairs) == 20
    assert all(60 <= count <= 140 for count in pairs.values()), pairs


def test_a_rack_skipped_for_a_whole_cycle_still_deals_afterwards() -> None:
    cluster = brokers("A:0 A:1 B:2!")
    placed = place(cluster, 50, 3, random.Random(3))
    assert all(set(replicas) == {0, 1, 2} for replicas in placed)
