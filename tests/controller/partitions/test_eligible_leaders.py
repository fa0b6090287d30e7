"""Eligible leader replicas (KIP-966): the rows of the reference, histories of steps, and rules that hold after each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.common.errors import ApiError
from kraftlab.common.uuids import MIGRATING, Uuid
from kraftlab.controller.partitions.election import Election
from kraftlab.controller.partitions.partition_change import build_cancel, build_change
from kraftlab.controller.reassignment import arithmetic
from kraftlab.metadata.eligible_leaders import partition_min_isr
from kraftlab.metadata.image import PartitionImage
from kraftlab.metadata.invariants import check_partition
from kraftlab.metadata.partitions import partition_after
from kraftlab.metadata.records import NO_LEADER, RECOVERED, RECOVERING, PartitionChange

TOPIC_ID = b"eligible-leaders"


def partition(
    isr: tuple[int, ...],
    leader: int,
    elr: tuple[int, ...] = (),
    last_known: tuple[int, ...] = (),
    replicas: tuple[int, ...] = (1, 2, 3, 4),
) -> PartitionImage:
    return PartitionImage(replicas, (MIGRATING,) * len(replicas), isr, leader, elr=elr, last_known_elr=last_known)


def build(
    before: PartitionImage, *, dead: set[int] | None = None, min_isr: int | None = 3, **wanted: Any
) -> PartitionChange | None:
    return build_change(
        before,
        0,
        TOPIC_ID,
        accepts=lambda _, broker_id: broker_id not in (dead or set()),
        default_directory=lambda broker_id: MIGRATING,
        min_isr=min_isr,
        **wanted,
    )


def after(before: PartitionImage, **wanted: Any) -> PartitionImage:
    record = build(before, **wanted)
    return before if record is None else partition_after(before, record)


def show(state: PartitionImage) -> str:
    recovering = " recovering" if state.leader_recovery_state == RECOVERING else ""
    return f"ISR{list(state.isr)} L{state.leader} ELR{list(state.elr)} known{list(state.last_known_elr)}{recovering}"


ALL = {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("before", "wanted", "expected"),
    [
        pytest.param(
            partition((1, 2, 3, 4), 1), {"target_isr": (1, 2)}, "ISR[1, 2] L1 ELR[3, 4] known[]", id="shrinks below the minimum"
        ),
        pytest.param(
            partition((1, 2), 1, (3,), (4,)),
            {"target_isr": (1, 2, 3)},
            "ISR[1, 2, 3] L1 ELR[] known[]",
            id="grows to the minimum",
        ),
        pytest.param(
            partition((1,), 1, (3,)),
            {"target_isr": (1, 4)},
            "ISR[1, 4] L1 ELR[3] known[]",
            id="a member that was not eligible joins",
        ),
        pytest.param(
            partition((1, 2, 3, 4), 1),
            {"target_isr": (1,), "uncleanly_stopped": (2,)},
            "ISR[1] L1 ELR[3, 4] known[]",
            id="who stopped uncleanly is not eligible",
        ),
        pytest.param(
            partition((1,), 1, (3,)),
            {"target_isr": (), "dead": {1}},
            "ISR[3] L3 ELR[1] known[]",
            id="an eligible replica is elected, cleanly",
        ),
        pytest.param(
            partition((1, 2, 3, 4), 1),
            {"target_isr": (), "dead": ALL},
            "ISR[] L-1 ELR[1, 2, 3, 4] known[1]",
            id="the ISR becomes empty",
        ),
        pytest.param(
            partition((), NO_LEADER, (), (1,)), {}, "ISR[1] L1 ELR[] known[] recovering", id="the last known leader is elected"
        ),
        pytest.param(
            partition((), NO_LEADER, (), (1,)), {"dead": {1}}, "ISR[] L-1 ELR[] known[1]", id="the last known leader is dead"
        ),
        pytest.param(
            partition((), NO_LEADER, (), (1, 2)),
            {},
            "ISR[] L-1 ELR[] known[1, 2]",
            id="several who led before, of whom none is last",
        ),
        pytest.param(
            partition((), NO_LEADER, (3,), (1,)), {"dead": {3}}, "ISR[] L-1 ELR[3] known[1]", id="somebody is eligible, but dead"
        ),
        pytest.param(partition((), NO_LEADER, (3,), (1,)), {}, "ISR[3] L3 ELR[] known[]", id="somebody is eligible, and alive"),
        pytest.param(
            partition((), NO_LEADER, (3,), (1,)),
            {"dead": {3}, "election": Election.UNCLEAN},
            "ISR[1] L1 ELR[] known[] recovering",
            id="an unclean election forgets who was eligible",
        ),
        pytest.param(
            partition((), NO_LEADER, (3, 4)),
            {"election": Election.PREFERRED},
            "ISR[3] L3 ELR[4] known[]",
            id="the preferred replica is not eligible",
        ),
        pytest.param(
            partition((), NO_LEADER, (3, 4)),
            {"min_isr": 1},
            "ISR[3] L3 ELR[] known[]",
            id="one in-sync replica is enough: the others may miss what it commits",
        ),
        pytest.param(
            partition((1, 2), 1, (2,), replicas=(1, 2)),
            {"min_isr": 5},
            "ISR[1, 2] L1 ELR[] known[]",
            id="the minimum is capped by the replication factor",
        ),
        pytest.param(
            partition((3,), NO_LEADER),
            {"target_isr": (), "dead": {3}},
            "ISR[] L-1 ELR[3] known[3]",
            id="a sole member without leader",
        ),
    ],
)
def test_rows_of_min_isr_3(before: PartitionImage, wanted: dict[str, Any], expected: str) -> None:
    assert show(after(before, **wanted)) == expected


def test_unclean_restarts_of_all_brokers_leave_the_last_known_leader() -> None:
    state = after(partition((1,), 1, replicas=(1, 2)), dead={1, 2}, target_isr=(), min_isr=1)
    state = after(state, dead={1, 2}, uncleanly_stopped=(1,), min_isr=1)
    assert show(state) == "ISR[] L-1 ELR[] known[1]"
    assert show(after(state, dead={2}, min_isr=1)) == "ISR[1] L1 ELR[] known[] recovering"


class TestReassignments:
    def moving(self, before: PartitionImage, *target: int, min_isr: int = 3) -> PartitionImage:
        return after(before, min_isr=min_isr, reassign=arithmetic.start(before, target))

    def cancel(self, before: PartitionImage, *, dead: set[int], unclean: bool) -> PartitionImage:
        record = build_cancel(
            before,
            0,
            TOPIC_ID,
            "foo:0",
            accepts=lambda _, broker_id: broker_id not in dead,
            default_directory=lambda broker_id: MIGRATING,
            min_isr=2,
            unclean_allowed=unclean,
        )
        assert record is not None
        return partition_after(before, record)

    def test_replicas_that_are_dropped_are_not_eligible(self) -> None:
        state = self.moving(partition((1, 2, 3), 1, replicas=(1, 2, 3)), 1)
        assert (state.replicas, show(state)) == ((1,), "ISR[1] L1 ELR[] known[]")

    def test_a_kept_replica_that_lags_stays_eligible_when_the_move_completes(self) -> None:
        state = self.moving(partition((1, 2), 1, (3,), replicas=(1, 2, 3)), 1, 3, 4)
        state = after(state, target_isr=(1, 2, 4))
        assert (state.replicas, show(state)) == ((1, 3, 4), "ISR[1, 4] L1 ELR[3] known[]")

    def test_replicas_that_are_being_added_do_not_raise_the_minimum(self) -> None:
        state = self.moving(partition((1,), 1, replicas=(1,)), 1, 2, 3)
        assert partition_min_isr(state, 3) == 1
        assert show(after(state, dead={1}, target_isr=())) == "ISR[] L-1 ELR[1] known[1]"

    def test_a_cancel_without_an_original_in_sync_elects_an_eligible_replica(self) -> None:
        moving = PartitionImage((4, 1, 2), (MIGRATING,) * 3, (4,), 4, 0, 1, (4,), (), (1, 2), (4, 1, 2), elr=(2,))
        state = self.cancel(moving, dead=set(), unclean=True)
        assert (state.replicas, show(state)) == ((1, 2), "ISR[2] L2 ELR[] known[]")

    def test_a_cancel_without_an_eligible_original_leaves_no_leader(self) -> None:
        moving = PartitionImage((4, 1, 2), (MIGRATING,) * 3, (4,), 4, 0, 1, (4,), (), (1, 2), (4, 1, 2))
        state = self.cancel(moving, dead={1, 2}, unclean=True)
        assert (state.replicas, show(state)) == ((1, 2), "ISR[] L-1 ELR[] known[]")


class TestSwitchedOff:
    def test_leftovers_go_with_the_next_change(self) -> None:
        assert show(after(partition((1,), 1, (3,)), min_isr=None)) == "ISR[1] L1 ELR[] known[]"

    def test_the_last_member_of_the_isr_stays(self) -> None:
        assert show(after(partition((1,), 1), min_isr=None, dead={1}, target_isr=())) == "ISR[1] L-1 ELR[] known[]"

    def test_an_eligible_replica_still_leads_a_partition_with_an_empty_isr(self) -> None:
        state = after(partition((), NO_LEADER, (3, 4), (1,)), min_isr=None, dead={3, 4})
        assert show(state) == "ISR[] L-1 ELR[3, 4] known[1]"
        assert show(after(state, min_isr=None, dead={3})) == "ISR[4] L4 ELR[] known[]"


REPLICAS = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(tuple)


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, Any]:
    kind = draw(st.sampled_from(["isr", "die", "return", "preferred", "unclean", "restart", "target", "cancel", "minimum"]))
    match kind:
        case "isr" | "target":
            return kind, draw(REPLICAS)
        case "die" | "return" | "restart":
            return kind, draw(st.integers(0, 5))
        case "cancel":
            return kind, draw(st.booleans())
        case "minimum":
            return kind, draw(st.integers(1, 4))
    return kind, None


class History:
    """One partition and its brokers, changed as a controller changes them."""

    def __init__(self, replicas: tuple[int, ...], min_isr: int | None) -> None:
        self.state = partition(replicas, replicas[0], replicas=replicas)
        self.dead: set[int] = set()
        self.min_isr = min_isr

    def take(self, kind: str, argument: Any) -> PartitionChange | None:
        state = self.state
        match kind:
            case "isr":
                wanted = tuple(m for m in dict.fromkeys((state.leader, *argument)) if m in state.replicas and m not in self.dead)
                if state.leader == NO_LEADER:
                    return None
                return self.build(target_isr=wanted, recovery_state=RECOVERED)
            case "die":
                self.dead.add(argument)
                return self.build(target_isr=tuple(member for member in state.isr if member != argument))
            case "restart":
                self.dead.add(argument)
                isr = tuple(member for member in state.isr if member != argument)
                return self.build(target_isr=isr, uncleanly_stopped=(argument,))
            case "return":
                self.dead.discard(argument)
                return self.build()
            case "preferred":
                return self.build(election=Election.PREFERRED)
            case "unclean":
                return self.build(election=Election.UNCLEAN)
            case "target":
                return self.build(reassign=arithmetic.start(state, argument))
            case "cancel":
                return self.move(build_cancel, "foo:0", unclean_allowed=argument)
            case "minimum":
                self.change_minimum(argument)
        return None

    def build(self, **wanted: Any) -> PartitionChange | None:
        return build(self.state, dead=self.dead, min_isr=self.min_isr, **wanted)

    def move(self, builder: Callable[..., PartitionChange | None], *arguments: Any, **options: Any) -> PartitionChange | None:
        def accepts(partition: PartitionImage, broker_id: int) -> bool:
            return broker_id not in self.dead

        def directory(broker_id: int) -> Uuid:
            return MIGRATING

        rules = {"accepts": accepts, "default_directory": directory, "min_isr": self.min_isr}
        try:
            return builder(self.state, 0, TOPIC_ID, *arguments, **rules, **options)
        except ApiError:
            return None

    def change_minimum(self, minimum: int) -> None:
        """Clear the eligible replicas, as ClearElr does in the same batch."""
        if self.min_isr is not None:
            self.min_isr = minimum
            if self.state.isr:
                self.state = msgspec.structs.replace(self.state, elr=(), last_known_elr=())


@given(REPLICAS, st.sampled_from([None, 1, 2, 3]), st.lists(steps(), max_size=25))
@settings(max_examples=300)
def test_any_history_keeps_the_rules(replicas: tuple[int, ...], min_isr: int | None, history: list[tuple[str, Any]]) -> None:
    world = History(replicas, min_isr)
    for kind, argument in history:
        record = world.take(kind, argument)
        if record is not None:
            before = world.state
            world.state = partition_after(before, record)
            check(world, before, record)


def check(world: History, before: PartitionImage, record: PartitionChange) -> None:
    state = world.state
    assert check_partition(state) == ()
    assert state.leader not in world.dead, "a broker that is gone leads nothing"
    if world.min_isr is None:
        assert state.isr and not state.elr and not state.last_known_elr
    elif len(state.isr) >= partition_min_isr(state, world.min_isr):
        assert not state.elr, "while the ISR is large enough it alone holds what is committed"
    elif record.leader_recovery_state != RECOVERING:
        left = set(before.isr) - set(state.isr)
        lost = left & set(state.replicas) - set(state.elr)
        assert len(lost) <= 1, "who leaves a small ISR becomes eligible, unless it stopped uncleanly"
    assert not state.elr or state.leader_recovery_state == RECOVERED or before.leader_recovery_state == RECOVERING
    again = world.build()
    assert again is None or state.is_reassigning, f"{again} would follow by itself"
