"""The builder of partition changes: the rows of the reference for every trigger, and a naive twin of the election."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.uuids import MIGRATING, UNASSIGNED, Uuid
from kraftlab.controller.partitions.election import Candidates, Election, ElectionResult, elect
from kraftlab.controller.partitions.partition_change import build_change
from kraftlab.controller.reassignment.arithmetic import Reassignment, cancel
from kraftlab.metadata.image import PartitionImage
from kraftlab.metadata.records import NO_LEADER, RECOVERING, PartitionChange

MakePartition = Callable[..., PartitionImage]
DirectoryOf = Callable[[int], Uuid]
TOPIC_ID = b"partition-change"


@pytest.fixture(scope="session")
def build(directory_of: DirectoryOf) -> Callable[..., PartitionChange | None]:
    """`build_change` for partition 0 of a topic where all brokers but `dead` are acceptable, each with one directory."""

    def make(before: PartitionImage, *, dead: set[int] | None = None, **wanted: Any) -> PartitionChange | None:
        return build_change(
            before,
            0,
            TOPIC_ID,
            accepts=lambda _, broker_id: broker_id not in (dead or set()),
            **{"default_directory": directory_of, "min_isr": None, **wanted},
        )

    return make


Build = Callable[..., PartitionChange | None]


def change(**fields: Any) -> PartitionChange:
    return PartitionChange(0, 0, TOPIC_ID, **fields)


def at_rest(*replicas: int) -> Reassignment:
    return Reassignment(replicas)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param({}, None, id="nothing"),
        pytest.param({"election": Election.PREFERRED}, {"leader": 2}, id="preferred leader takes over"),
        pytest.param({"election": Election.ONLINE}, None, id="a valid leader stays"),
        pytest.param({"target_isr": (2, 3)}, {"isr": (2, 3), "leader": 2}, id="leader leaves the ISR"),
        pytest.param({"target_isr": (2, 1)}, {"isr": (2, 1)}, id="ISR shrink leaves the leader epoch alone"),
        pytest.param(
            {"target_isr": (2, 1), "shrink_raises_epoch": True},
            {"isr": (2, 1), "leader": 1},
            id="ISR shrink raises the leader epoch below metadata.version 12",
        ),
        pytest.param({"target_isr": (1, 2, 3)}, {"isr": (1, 2, 3)}, id="another order of the ISR is a change"),
        pytest.param({"target_isr": (3,)}, {"isr": (3,), "leader": NO_LEADER}, id="only a dead replica left"),
        pytest.param({"target_isr": ()}, {"leader": NO_LEADER}, id="the last member of the ISR stays"),
        pytest.param(
            {"target_isr": (3,), "election": Election.UNCLEAN},
            {"isr": (2,), "leader": 2, "leader_recovery_state": RECOVERING},
            id="unclean",
        ),
        pytest.param({"reassign": at_rest(3, 2, 1)}, {"replicas": (3, 2, 1)}, id="reorder moves no leader"),
        pytest.param(
            {"reassign": at_rest(2, 1), "target_isr": (2, 1)},
            {"replicas": (2, 1), "isr": (2, 1), "leader": 1},
            id="a dropped replica is fenced by the leader epoch",
        ),
        pytest.param(
            {"reassign": at_rest(2, 1, 3, 4), "target_isr": (4,), "election": Election.UNCLEAN},
            {"replicas": (2, 1, 3, 4), "isr": (4,), "leader": 4},
            id="a valid replica makes an unclean election clean",
        ),
        pytest.param({"recovery_state": RECOVERING}, {"leader_recovery_state": RECOVERING}, id="recovery state alone"),
    ],
)
def test_changes_of_a_partition_with_a_dead_third_replica(
    partition: MakePartition, directory_of: DirectoryOf, build: Build, wanted: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    before = partition([2, 1, 3], [2, 1, 3], 1)
    record = build(before, dead={3}, **wanted)
    if expected is not None and "replicas" in expected:
        expected = {**expected, "directories": tuple(map(directory_of, expected["replicas"]))}
    assert record == (None if expected is None else change(**expected))


def test_isr_enlargement_completes_a_reassignment(partition: MakePartition, directory_of: DirectoryOf, build: Build) -> None:
    before = partition([1, 2, 3, 4], [1, 2, 3], 1, [4], [1], [1, 2, 3])
    assert build(before, dead={3}, target_isr=(1, 2, 3, 4)) == change(
        replicas=(2, 3, 4),
        isr=(2, 3, 4),
        leader=2,
        directories=tuple(map(directory_of, (2, 3, 4))),
        adding_replicas=(),
        removing_replicas=(),
        original_replicas=(),
        target_replicas=(),
    )


def test_cancelling_raises_the_leader_epoch_of_a_leader_that_stays(
    partition: MakePartition, directory_of: DirectoryOf, build: Build
) -> None:
    before = partition([1, 2, 3, 4], [1, 2, 3], 1, [4], [1], [1, 2, 3])
    going_back = cancel(before, "bar:0", unclean_allowed=False)
    assert build(before, dead={3}, reassign=going_back.reassignment, target_isr=going_back.isr) == change(
        replicas=(1, 2, 3),
        leader=1,
        directories=tuple(map(directory_of, (1, 2, 3))),
        adding_replicas=(),
        removing_replicas=(),
        original_replicas=(),
        target_replicas=(),
    )


def test_a_disjoint_replica_set_has_a_new_leader_epoch(partition: MakePartition, directory_of: DirectoryOf, build: Build) -> None:
    record = build(partition([2, 1, 3], [2, 1, 3], 1), reassign=at_rest(4), target_isr=(4,))
    assert record == change(replicas=(4,), isr=(4,), leader=4, directories=(directory_of(4),))


@pytest.mark.parametrize("shrink_raises_epoch", [False, True])
def test_an_isr_that_grows_leaves_the_leader_epoch_alone(
    partition: MakePartition, build: Build, shrink_raises_epoch: bool
) -> None:
    before = partition([2, 1, 3], [2, 1], 1)
    assert build(before, target_isr=(2, 1, 3), shrink_raises_epoch=shrink_raises_epoch) == change(isr=(2, 1, 3))


def test_an_isr_that_becomes_empty_without_a_leader_leaves_the_leader_epoch_alone(partition: MakePartition, build: Build) -> None:
    record = build(partition([2, 1], [2], NO_LEADER), dead={1, 2}, target_isr=(), min_isr=1)
    assert record == change(isr=(), eligible_leader_replicas=(2,), last_known_elr=(2,))


def test_an_isr_change_that_moves_the_leader_is_one_record(partition: MakePartition, build: Build) -> None:
    record = build(partition([2, 1, 3], [2, 1, 3], 1), dead={1}, target_isr=(2, 3))
    assert record == change(isr=(2, 3), leader=2)


def test_a_leader_chosen_later_keeps_the_recovery_state(partition: MakePartition, build: Build) -> None:
    record = build(partition([1, 2], [2], NO_LEADER), dead={1})
    assert record == change(leader=2)


def test_a_leader_dropped_from_the_isr_and_elected_again_uncleanly_is_the_whole_isr(
    partition: MakePartition, build: Build
) -> None:
    record = build(partition([1, 2], [1, 2], 1), dead={2}, target_isr=(2,), election=Election.UNCLEAN)
    assert record == change(isr=(1,), leader=1, leader_recovery_state=RECOVERING)


class TestDirectories:
    def test_survivors_keep_theirs_and_newcomers_get_their_brokers_default(self, build: Build, partition: MakePartition) -> None:
        before = partition([1, 2], [1, 2], 1)
        defaults = {3: b"the only one of3", 4: UNASSIGNED}
        record = build(
            before, reassign=Reassignment((3, 4, 1, 2), (3, 4), (1, 2), (1, 2), (3, 4)), default_directory=defaults.__getitem__
        )
        assert record is not None
        assert record.directories == (b"the only one of3", UNASSIGNED, *before.directories)

    def test_an_explicit_one_wins_and_is_written_alone(self, build: Build, partition: MakePartition) -> None:
        before = partition([1, 2], [1, 2], 1)
        assert build(before, directories={2: b"another dir of 2"}) == change(
            directories=(before.directories[0], b"another dir of 2")
        )

    def test_a_reorder_among_equal_ones_writes_replicas_alone(self, build: Build) -> None:
        before = PartitionImage((1, 2), (MIGRATING, MIGRATING), (1, 2), 1)
        assert build(before, reassign=at_rest(2, 1)) == change(replicas=(2, 1))


def naive_election(mode: Election, candidates: Candidates, leader: int, alive: set[int]) -> ElectionResult:
    """Naive twin: the rules, one sentence at a time."""
    replicas = candidates.replicas
    holds_everything = candidates.isr if candidates.isr else candidates.elr
    valid = [replica for replica in replicas if replica in holds_everything and replica in alive]
    if mode is Election.PREFERRED and replicas[0] in valid:
        return ElectionResult(replicas[0])
    if leader in valid:
        return ElectionResult(leader)
    if valid:
        return ElectionResult(valid[0])
    if not candidates.isr and not candidates.elr and len(candidates.last_known) == 1 and candidates.last_known[0] in alive:
        return ElectionResult(candidates.last_known[0], unclean=True)
    reachable = [replica for replica in replicas if replica in alive]
    if mode is Election.UNCLEAN and reachable:
        return ElectionResult(reachable[0], unclean=True)
    return ElectionResult(NO_LEADER)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5, unique=True), st.sampled_from(Election), st.data())
def test_election_agrees_with_its_rules(replicas: list[int], mode: Election, data: st.DataObject) -> None:
    isr = data.draw(st.lists(st.sampled_from(replicas), unique=True))
    elr = sorted(data.draw(st.sets(st.sampled_from(replicas))) - set(isr))
    last_known = data.draw(st.lists(st.sampled_from(replicas), max_size=2, unique=True))
    leader = data.draw(st.sampled_from([NO_LEADER, *isr]))
    alive = data.draw(st.sets(st.integers(0, 5)))
    candidates = Candidates(tuple(replicas), tuple(isr), tuple(elr), tuple(last_known))
    assert elect(mode, candidates, leader, alive.__contains__) == naive_election(mode, candidates, leader, alive)
