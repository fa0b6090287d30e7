"""The arithmetic of reassignment: start, replace, complete, cancel, refusals; rows and naive twins."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.reassignment import arithmetic as reassignment
from kraftlab.controller.reassignment.arithmetic import Reassignment
from kraftlab.metadata.image import PartitionImage

MakePartition = Callable[..., PartitionImage]


@pytest.mark.parametrize(
    ("replicas", "target", "removing", "adding", "merged"),
    [
        ([3, 2, 1], [3, 2, 1], [], [], [3, 2, 1]),
        ([3, 2, 1], [3, 6, 2, 1, 5], [], [5, 6], [3, 6, 2, 1, 5]),
        ([3, 2, 1, 0], [3, 1], [0, 2], [], [3, 1, 0, 2]),
        ([3, 2, 1, 0], [7, 3, 1, 9], [0, 2], [7, 9], [7, 3, 1, 9, 0, 2]),
        ([3, 2, 1, 0], [0, 1, 3, 2], [], [], [0, 1, 3, 2]),
    ],
)
def test_start(
    partition: MakePartition, replicas: list[int], target: list[int], removing: list[int], adding: list[int], merged: list[int]
) -> None:
    started = reassignment.start(partition(replicas, replicas, replicas[0]), tuple(target))
    assert (list(started.replicas), list(started.adding), list(started.removing)) == (merged, adding, removing)
    moving = bool(adding or removing)
    assert (started.original, started.target) == ((tuple(replicas), tuple(target)) if moving else ((), ()))


@pytest.mark.parametrize(
    ("original", "target", "isr", "expected"),
    [
        pytest.param([0, 1, 2], [3, 4, 5], [0, 1, 2, 3, 4], None, id="an adding replica is missing"),
        pytest.param([0, 1, 2], [3, 4, 5], [0, 1, 2, 3, 4, 5], ([3, 4, 5], [3, 4, 5]), id="all are in sync"),
        pytest.param([0, 1, 2], [0, 1, 3], [0, 1, 2, 3], ([0, 1, 3], [0, 1, 3]), id="some are new"),
        pytest.param([0, 1, 2], [0, 1, 3], [3], ([0, 1, 3], [3]), id="kept replicas lag, the set does not shrink"),
        pytest.param([0, 1, 2], [0, 1, 2], [0, 1, 2], None, id="none runs"),
        pytest.param([1, 2, 3, 4], [1, 2, 3], [1, 2, 4], None, id="a shrink waits for all of the target"),
        pytest.param([1, 2, 3, 4], [1, 2, 4], [1, 2, 4], ([1, 2, 4], [1, 2, 4]), id="a shrink whose target is in sync"),
        pytest.param([0, 1, 2], [0, 1, 2, 3], [0, 1, 3], ([0, 1, 2, 3], [0, 1, 3]), id="a growth with a kept one out"),
        pytest.param([0, 1, 2], [2, 3, 4], [0, 1, 3, 4], ([2, 3, 4], [3, 4]), id="a move with a kept one out"),
        pytest.param([0, 1], [2, 3], [], None, id="empty in-sync set"),
    ],
)
def test_completion(
    partition: MakePartition, original: list[int], target: list[int], isr: list[int], expected: tuple[list[int], list[int]] | None
) -> None:
    running = reassignment.start(partition(original, original, original[0]), tuple(target))
    completed = reassignment.complete(running, tuple(isr))
    assert (completed and tuple(map(list, completed))) == expected


@pytest.mark.parametrize(
    ("replicas", "isr", "adding", "removing", "original", "expected_isr", "forced"),
    [
        ([3, 2, 1], [3, 2], [], [2, 1], [3, 2, 1], [3, 2], False),
        ([4, 5, 3, 2, 1], [4, 5, 2], [4, 5], [], [3, 2, 1], [2], False),
        ([4, 5, 3, 2, 1], [4, 5, 2], [4, 5], [2], [3, 2, 1], [2], False),
        ([4, 5, 3, 2, 1], [4, 5], [4, 5], [2], [3, 2, 1], [3], True),
        ([1, 2, 4], [1, 4], [2], [4], [4, 1], [1, 4], False),
    ],
)
def test_cancel_restores_the_original_set_and_its_order(
    partition: MakePartition,
    replicas: list[int],
    isr: list[int],
    adding: list[int],
    removing: list[int],
    original: list[int],
    expected_isr: list[int],
    forced: bool,
) -> None:
    moving = partition(replicas, isr, isr[0], adding, removing, original)
    cancelled = reassignment.cancel(moving, "foo:0", unclean_allowed=True)
    assert cancelled == (Reassignment(tuple(original)), tuple(expected_isr), forced)


def test_cancel_without_a_reassignment_is_refused_without_a_text(partition: MakePartition) -> None:
    with pytest.raises(ApiError) as refused:
        reassignment.cancel(partition([1, 2], [1], 1), "foo:0", unclean_allowed=True)
    assert (refused.value.code, refused.value.message) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)


def test_cancel_that_would_need_an_unclean_election_is_refused(partition: MakePartition) -> None:
    moving = partition([4, 5, 3, 2, 1], [4, 5], 4, [4, 5], [2], [3, 2, 1])
    with pytest.raises(ApiError) as refused:
        reassignment.cancel(moving, "foo:0", unclean_allowed=False)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused.value.message == (
        "Unable to revert partition assignment for foo:0 because it would require an unclean leader election."
    )


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([], "The manual partition assignment includes an empty replica list."),
        ([1, 99, 98], "The manual partition assignment includes broker 98, but no such broker is registered."),
        ([-1, 1], "The manual partition assignment includes broker -1, but no such broker is registered."),
        ([99, 99], "The manual partition assignment includes broker 99, but no such broker is registered."),
        ([-1, -1], "The manual partition assignment includes broker -1, but no such broker is registered."),
        ([2, 1, 2], "The manual partition assignment includes the broker 2 more than once."),
        ([2, 99, 2], "The manual partition assignment includes the broker 2 more than once."),
    ],
)
def test_a_target_must_name_registered_brokers_once(target: list[int], message: str) -> None:
    with pytest.raises(ApiError) as refused:
        reassignment.check_target(tuple(target), {1, 2, 3}.__contains__)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


@pytest.mark.parametrize(
    ("moving", "target", "message"),
    [
        (False, [4, 5, 6], None),
        (False, [4, 5], "The replication factor is changed from 3 to 2"),
        (True, [7, 8], None),
        (True, [1, 2, 3], "The replication factor is changed from 2 to 3"),
    ],
)
def test_a_changed_replication_factor_is_measured_against_the_set_being_moved_to(
    partition: MakePartition, moving: bool, target: list[int], message: str | None
) -> None:
    at_rest = partition([1, 2, 3], [1, 2, 3], 1)
    in_motion = partition([4, 5, 1, 2, 3], [1, 2, 3], 1, [4, 5], [1, 2, 3], [1, 2, 3])
    subject = in_motion if moving else at_rest
    if message is None:
        reassignment.check_replication_factor(subject, tuple(target))
        return
    with pytest.raises(ApiError) as refused:
        reassignment.check_replication_factor(subject, tuple(target))
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REPLICATION_FACTOR, message)


replica_sets = st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True).map(tuple)


def moved(partition: PartitionImage, running: Reassignment) -> PartitionImage:
    """The partition with those lists. Directories do not matter."""
    return PartitionImage(
        running.replicas,
        (b"",) * len(running.replicas),
        partition.isr,
        partition.leader,
        adding=running.adding,
        removing=running.removing,
        original=running.original,
        target=running.target,
    )


@given(replica_sets, st.lists(replica_sets, min_size=1, max_size=5), st.data())
def test_any_run_of_targets_keeps_its_original_and_last_target(
    original: tuple[int, ...], targets: list[tuple[int, ...]], data: st.DataObject
) -> None:
    """Naive twin: keep the original list and every broker that was ever named. Everything else follows from these and the
    target.
    """
    partition = PartitionImage(original, (b"",) * len(original), original, original[0])
    began, named = original, set(original)
    for target in targets:
        running = reassignment.start(partition, target)
        named |= set(target)
        assert set(running.adding) == {broker for broker in target if broker not in began}
        assert set(running.removing) == {broker for broker in named if broker not in target}
        assert running.replicas[: len(target)] == target
        assert set(running.replicas) == named
        assert not set(running.adding) & set(running.removing)
        if not running.is_running:
            began, named = target, set(target)
        partition = moved(partition, running)
        assert reassignment.original_replicas(partition) == began
        assert reassignment.target_replicas(partition) == target
    if partition.is_reassigning:
        isr = data.draw(st.sets(st.sampled_from(partition.replicas), min_size=1).map(tuple))
        going_back = reassignment.cancel(moved_isr(partition, isr), "t:0", unclean_allowed=True)
        assert going_back.reassignment == Reassignment(began)
        assert going_back.isr and set(going_back.isr) <= set(began)
        assert going_back.forced == set(isr).isdisjoint(began)


def moved_isr(partition: PartitionImage, isr: tuple[int, ...]) -> PartitionImage:
    return PartitionImage(
        partition.replicas,
        partition.directories,
        isr,
        isr[0],
        adding=partition.adding,
        removing=partition.removing,
        original=partition.original,
        target=partition.target,
    )


@given(replica_sets, replica_sets, st.data())
def test_completion_agrees_with_its_definition(original: tuple[int, ...], target: tuple[int, ...], data: st.DataObject) -> None:
    partition = PartitionImage(original, (b"",) * len(original), original, original[0])
    running = reassignment.start(partition, target)
    isr = tuple(data.draw(st.lists(st.sampled_from(running.replicas), unique=True)))
    wanted = set(target)
    in_sync = [broker for broker in isr if broker in wanted]
    is_moving = set(original) != wanted
    new_are_in = all(broker in in_sync for broker in target if broker not in original)
    all_are_in = all(broker in in_sync for broker in target)
    expected = is_moving and bool(in_sync) and new_are_in and (all_are_in or len(target) >= len(original))
    assert reassignment.complete(running, isr) == ((target, tuple(in_sync)) if expected else None)
