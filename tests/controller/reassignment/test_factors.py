"""Plans for another replication factor: few moves, spread over racks and brokers, always with a replica in sync."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import UNASSIGNED
from kraftlab.controller.reassignment.factors import plan
from kraftlab.metadata.image import BrokerImage, PartitionImage


def broker(broker_id: int, rack: str | None = None, fenced: bool = False) -> BrokerImage:
    return BrokerImage(broker_id, broker_id, bytes(16), (), (), rack, fenced, False, (), 0)


def cluster(count: int = 6, racks: int = 3, fenced: tuple[int, ...] = ()) -> dict[int, BrokerImage]:
    return {n: broker(n, f"rack-{n % racks}" if racks else None, n in fenced) for n in range(count)}


def partition(*replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None) -> PartitionImage:
    in_sync = replicas if isr is None else isr
    return PartitionImage(
        replicas, (UNASSIGNED,) * len(replicas), in_sync, (in_sync[0] if in_sync else -1) if leader is None else leader
    )


def planned(brokers: dict[int, BrokerImage], factor: int, *partitions: PartitionImage) -> dict[int, tuple[int, ...]]:
    counts = Counter(replica for entry in partitions for replica in entry.replicas)
    return plan(dict(enumerate(partitions)), factor, brokers, counts)


REPLICAS = st.lists(st.integers(0, 5), min_size=1, max_size=5, unique=True).map(tuple)


@given(st.lists(REPLICAS, min_size=1, max_size=8), st.integers(1, 6), st.integers(0, 3))
def test_a_plan_keeps_replicas_in_their_order_and_has_the_factor(
    replica_lists: list[tuple[int, ...]], factor: int, racks: int
) -> None:
    partitions = [partition(*replicas) for replicas in replica_lists]
    targets = planned(cluster(racks=racks), factor, *partitions)
    for number, before in enumerate(replica_lists):
        after = targets.get(number, before)
        assert len(after) == len(set(after)) == factor
        kept = [replica for replica in before if replica in after]
        assert len(kept) == min(len(before), factor), "nothing is moved that need not be"
        assert [replica for replica in after if replica in before] == kept
        assert (number in targets) == (len(before) != factor)
        assert partitions[number].leader in after


@given(REPLICAS, st.data(), st.integers(1, 4))
def test_a_shrink_keeps_a_replica_in_sync_and_alive_if_there_is_one(
    replicas: tuple[int, ...], data: st.DataObject, factor: int
) -> None:
    isr = tuple(data.draw(st.lists(st.sampled_from(replicas), unique=True, max_size=len(replicas))))
    fenced = tuple(data.draw(st.lists(st.integers(0, 5), unique=True, max_size=5)))
    alive = [replica for replica in isr if replica not in fenced]
    before = partition(*replicas, isr=isr, leader=alive[0] if alive else -1)
    if factor < len(replicas):
        [after] = planned(cluster(fenced=fenced), factor, before).values()
        assert not alive or alive[0] in after, "the leader stays"
        assert not isr or set(isr) & set(after), "or at least one that has the data"


@given(st.lists(REPLICAS, min_size=1, max_size=12), st.integers(2, 4))
def test_growth_uses_a_new_rack_wherever_there_is_one(replica_lists: list[tuple[int, ...]], factor: int) -> None:
    brokers = cluster(count=6, racks=3)
    for number, after in planned(brokers, factor, *(partition(*replicas) for replicas in replica_lists)).items():
        before = replica_lists[number]
        added = [replica for replica in after if replica not in before]
        seen = {brokers[replica].rack for replica in before if replica in after}
        for replica in added:
            assert brokers[replica].rack not in seen or len(seen) == 3
            seen.add(brokers[replica].rack)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(1, 4))
def test_a_factor_that_was_raised_and_is_lowered_again_gives_what_was_there(starts: list[int], factor: int) -> None:
    """Any load of the brokers. The replicas are spread over the racks, as topics are created."""
    brokers = cluster(count=6, racks=3)
    before = [tuple((first + step) % 6 for step in range(factor)) for first in starts]
    raised = planned(brokers, factor + 1, *(partition(*replicas) for replicas in before))
    lowered = planned(brokers, factor, *(partition(*raised[number]) for number in range(len(before))))
    assert lowered == dict(enumerate(before))


def test_new_replicas_go_to_the_least_loaded_brokers_one_after_the_other() -> None:
    partitions = [partition(0), partition(0), partition(0), partition(1)]
    targets = planned(cluster(count=4, racks=0), 2, *partitions)
    assert targets == {0: (0, 2), 1: (0, 3), 2: (0, 1), 3: (1, 2)}


@pytest.mark.parametrize(
    ("before", "fenced", "after"),
    [
        (partition(0, 1, 2, isr=(0, 2)), (), (0, 2)),
        (partition(0, 1, 2), (1,), (0, 2)),
        (partition(0, 3, 1), (), (0, 1)),
        (partition(0, 1, 2, leader=2), (), (0, 2)),
    ],
    ids=["not in sync goes first", "then who is not active", "then a crowded rack", "the leader stays"],
)
def test_replicas_that_a_shrink_drops(before: PartitionImage, fenced: tuple[int, ...], after: tuple[int, ...]) -> None:
    assert planned(cluster(count=6, racks=3, fenced=fenced), 2, before) == {0: after}


def test_a_moving_partition_is_planned_from_its_target() -> None:
    moving = PartitionImage((3, 4, 0), (UNASSIGNED,) * 3, (0,), 0, adding=(3, 4), removing=(0,), original=(0,), target=(3, 4))
    assert planned(cluster(racks=0), 2, moving) == {}
    assert planned(cluster(racks=0), 3, moving)[0][:2] == (3, 4)


@pytest.mark.parametrize("factor", [0, -1, 7])
def test_an_impossible_factor_is_refused_with_the_number_of_brokers(factor: int) -> None:
    with pytest.raises(ApiError) as caught:
        planned(cluster(), factor, partition(0, 1))
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert str(factor) in caught.value.message


def test_fenced_brokers_get_nothing() -> None:
    assert planned(cluster(count=3, racks=0, fenced=(1,)), 2, partition(0)) == {0: (0, 2)}
    with pytest.raises(ApiError, match="only 1 brokers are active"):
        planned(cluster(count=3, racks=0, fenced=(1, 2)), 2, partition(0))
