"""Whole reassignments, step by step, as rows: the step and the partition afterwards.

A row is `step -> R / ISR / leader / AR / RR, le+n`. Steps: `target a,b`, `cancel`, `cancel unclean`, `isr a,b`, `preferred`,
`fence n` (removes it from the ISR), `dead a,b` (not acceptable from now on; `dead` alone: all are back). `le+n` is the rise of
the leader epoch; `-` in place of a state: no record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.errors import ApiError
from kraftlab.common.uuids import Uuid
from kraftlab.controller.partitions.election import Election
from kraftlab.controller.partitions.partition_change import build_cancel, build_change
from kraftlab.controller.reassignment import arithmetic
from kraftlab.metadata.image import PartitionImage
from kraftlab.metadata.invariants import check_partition
from kraftlab.metadata.partitions import partition_after
from kraftlab.metadata.records import NO_LEADER, RECOVERING, PartitionChange

TOPIC_ID = b"reassignment-row"


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.strip("[] ").split(",") if word)


class Flow:
    """A partition that steps change, as a controller does."""

    def __init__(self, partition: PartitionImage, directory_of: Callable[[int], Uuid]) -> None:
        self.partition = partition
        self.dead: set[int] = set()
        self.directory_of = directory_of

    def step(self, text: str) -> PartitionChange | None:
        """Do one step and return its record, None if it wrote none. ApiError as the controller answers."""
        verb, _, argument = text.partition(" ")
        record = self.build(verb, argument)
        if record is not None:
            self.partition = partition_after(self.partition, record)
        return record

    def build(self, verb: str, argument: str) -> PartitionChange | None:
        def change(target_isr: tuple[int, ...] | None = None, **wanted: Any) -> PartitionChange | None:
            return build_change(
                self.partition,
                0,
                TOPIC_ID,
                accepts=self.accepts,
                default_directory=self.directory_of,
                min_isr=None,
                target_isr=target_isr,
                **wanted,
            )

        match verb:
            case "target":
                return change(reassign=arithmetic.start(self.partition, numbers(argument)))
            case "cancel":
                return build_cancel(
                    self.partition,
                    0,
                    TOPIC_ID,
                    "foo:0",
                    accepts=self.accepts,
                    default_directory=self.directory_of,
                    min_isr=None,
                    unclean_allowed=argument == "unclean",
                )
            case "isr":
                return change(numbers(argument))
            case "preferred":
                return change(election=Election.PREFERRED)
            case "fence":
                self.dead.add(int(argument))
                return change(tuple(member for member in self.partition.isr if member != int(argument)))
            case "dead":
                self.dead = set(numbers(argument))
                return None
        raise ValueError(f"no such step: {verb}")

    def accepts(self, partition: PartitionImage, broker_id: int) -> bool:
        return broker_id not in self.dead

    def show(self) -> str:
        state = self.partition
        lists = (state.replicas, state.isr, state.leader, state.adding, state.removing)
        return " / ".join(f"{list(part) if isinstance(part, tuple) else part}".replace(" ", "") for part in lists)


FLOWS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "A basic move with overlap": (
        "[1,2,3] / [1,2,3] / 1",
        [
            ("target 4,3,2", "[4,3,2,1] / [1,2,3] / 1 / [4] / [1] le+0"),
            ("isr 1,2,3,4", "[4,3,2] / [2,3,4] / 4 / [] / [] le+1"),
        ],
    ),
    "B full replacement, then cancel": (
        "[1,2,3] / [1,2,3] / 1",
        [
            ("target 3,4,5", "[3,4,5,1,2] / [1,2,3] / 1 / [4,5] / [1,2] le+0"),
            ("isr 1,2,3,4", "[3,4,5,1,2] / [1,2,3,4] / 1 / [4,5] / [1,2] le+0"),
            ("cancel", "[1,2,3] / [1,2,3] / 1 / [] / [] le+1"),
        ],
    ),
    "C cancel": (
        "[3,2,1] / [3,2,1] / 3",
        [
            ("target 0,2,1", "[0,2,1,3] / [3,2,1] / 3 / [0] / [3] le+0"),
            ("cancel", "[3,2,1] / [3,2,1] / 3 / [] / [] le+1"),
        ],
    ),
    "C completion": (
        "[3,2,1] / [3,2,1] / 3",
        [
            ("target 0,2,1", "[0,2,1,3] / [3,2,1] / 3 / [0] / [3] le+0"),
            ("isr 3,0,2,1", "[0,2,1] / [0,2,1] / 0 / [] / [] le+1"),
        ],
    ),
    "D shrink by the replica that is out": (
        "[1,2,3,4] / [1,2,4] / 1",
        [("dead 3", "-"), ("target 1,2,4", "[1,2,4] / [1,2,4] / 1 / [] / [] le+1")],
    ),
    "D shrink waits for all of the target": (
        "[1,2,3,4] / [1,2,4] / 1",
        [("dead 3", "-"), ("target 1,2,3", "[1,2,3,4] / [1,2,4] / 1 / [] / [4] le+0")],
    ),
    "D shrink to one that is out": (
        "[1,2,3,4] / [1,2,4] / 1",
        [("dead 3", "-"), ("target 3", "[3,1,2,4] / [1,2,4] / 1 / [] / [1,2,4] le+0")],
    ),
    "D shrink at once": ("[1,2,3] / [1,2,3] / 1", [("target 2", "[2] / [2] / 2 / [] / [] le+1")]),
    "D shrink to one that cannot lead": (
        "[1,2,3] / [1,2,3] / 1",
        [("dead 2", "-"), ("target 2", "[2] / [2] / -1 / [] / [] le+1")],
    ),
    "D shrink away from the leader": ("[1,2,3,4] / [1,2,3,4] / 1", [("target 2,3", "[2,3] / [2,3] / 2 / [] / [] le+1")]),
    "E reorder, then preferred election": (
        "[0,1,2,3] / [0,1,2] / 0",
        [
            ("target 1,2,3,0", "[1,2,3,0] / [0,1,2] / 0 / [] / [] le+0"),
            ("preferred", "[1,2,3,0] / [0,1,2] / 1 / [] / [] le+1"),
        ],
    ),
    "F cancel with a wide target": (
        "[4,3,2] / [4,2] / 4",
        [
            ("dead 3", "-"),
            ("target 1,2,3,4,0", "[1,2,3,4,0] / [4,2] / 4 / [0,1] / [] le+0"),
            ("isr 4,1,2", "[1,2,3,4,0] / [4,1,2] / 4 / [0,1] / [] le+0"),
            ("cancel", "[4,3,2] / [4,2] / 4 / [] / [] le+1"),
        ],
    ),
    "F completes although a kept one is out": (
        "[4,3,2] / [4,2] / 4",
        [
            ("dead 3", "-"),
            ("target 1,2,3,4,0", "[1,2,3,4,0] / [4,2] / 4 / [0,1] / [] le+0"),
            ("isr 4,1,2,0", "[1,2,3,4,0] / [4,1,2,0] / 4 / [] / [] le+0"),
        ],
    ),
    "G replacing an ongoing one": (
        "[0,1] / [0,1] / 0",
        [
            ("target 2,3", "[2,3,0,1] / [0,1] / 0 / [2,3] / [0,1] le+0"),
            ("isr 0,1,2", "[2,3,0,1] / [0,1,2] / 0 / [2,3] / [0,1] le+0"),
            ("preferred", "[2,3,0,1] / [0,1,2] / 2 / [2,3] / [0,1] le+1"),
            ("target 4,5", "[4,5,0,1,2,3] / [0,1,2] / 2 / [4,5] / [0,1,2,3] le+0"),
            ("isr 0,1,2,3,4,5", "[4,5] / [4,5] / 4 / [] / [] le+1"),
        ],
    ),
    "H same target again": (
        "[0,1] / [0,1] / 0",
        [("target 2,3", "[2,3,0,1] / [0,1] / 0 / [2,3] / [0,1] le+0"), ("target 2,3", "-")],
    ),
    "H cancel after a replacement": (
        "[0,1] / [0,1] / 0",
        [
            ("target 2,3", "[2,3,0,1] / [0,1] / 0 / [2,3] / [0,1] le+0"),
            ("target 4,5", "[4,5,0,1,2,3] / [0,1] / 0 / [4,5] / [0,1,2,3] le+0"),
            ("cancel", "[0,1] / [0,1] / 0 / [] / [] le+1"),
        ],
    ),
    "H back to the original set": (
        "[0,1] / [0,1] / 0",
        [
            ("target 2,3", "[2,3,0,1] / [0,1] / 0 / [2,3] / [0,1] le+0"),
            ("target 0,1", "[0,1] / [0,1] / 0 / [] / [] le+1"),
            ("cancel", "85"),
        ],
    ),
    "H back to the original set, half of it in sync": (
        "[0,1] / [0] / 0",
        [
            ("target 2,3", "[2,3,0,1] / [0] / 0 / [2,3] / [0,1] le+0"),
            ("target 0,1", "[0,1] / [0] / 0 / [] / [] le+1"),
        ],
    ),
    "H five replicas, then cancel": (
        "[1,2,3] / [1,2,3] / 1",
        [
            ("target 3,4,5", "[3,4,5,1,2] / [1,2,3] / 1 / [4,5] / [1,2] le+0"),
            ("target 3,4,6", "[3,4,6,1,2,5] / [1,2,3] / 1 / [4,6] / [1,2,5] le+0"),
            ("cancel", "[1,2,3] / [1,2,3] / 1 / [] / [] le+1"),
        ],
    ),
    "H the merged set as target": (
        "[0,1] / [0,1] / 0",
        [
            ("target 2,3", "[2,3,0,1] / [0,1] / 0 / [2,3] / [0,1] le+0"),
            ("target 0,1,2,3", "[0,1,2,3] / [0,1] / 0 / [2,3] / [] le+0"),
            ("isr 0,1,2,3", "[0,1,2,3] / [0,1,2,3] / 0 / [] / [] le+0"),
        ],
    ),
    "I growth": (
        "[1,2,3] / [1,2,3] / 1",
        [
            ("target 1,2,3,4", "[1,2,3,4] / [1,2,3] / 1 / [4] / [] le+0"),
            ("isr 1,2,3,4", "[1,2,3,4] / [1,2,3,4] / 1 / [] / [] le+0"),
        ],
    ),
    "I growth taken back": (
        "[1,2,3] / [1,2,3] / 1",
        [
            ("target 1,2,3,4", "[1,2,3,4] / [1,2,3] / 1 / [4] / [] le+0"),
            ("target 1,2,3", "[1,2,3] / [1,2,3] / 1 / [] / [] le+1"),
        ],
    ),
    "I growth with a kept one out": (
        "[0,1,2] / [0,1] / 0",
        [
            ("target 0,1,2,3", "[0,1,2,3] / [0,1] / 0 / [3] / [] le+0"),
            ("isr 0,1,3", "[0,1,2,3] / [0,1,3] / 0 / [] / [] le+0"),
        ],
    ),
    "I move with a kept one out": (
        "[0,1,2] / [0,1] / 0",
        [
            ("target 2,3,4", "[2,3,4,0,1] / [0,1] / 0 / [3,4] / [0,1] le+0"),
            ("isr 0,1,3,4", "[2,3,4] / [3,4] / 3 / [] / [] le+1"),
        ],
    ),
    "I replace one with a kept one out": (
        "[0,1,4] / [0,1] / 0",
        [
            ("target 0,3,4", "[0,3,4,1] / [0,1] / 0 / [3] / [1] le+0"),
            ("isr 0,1,3", "[0,3,4] / [0,3] / 0 / [] / [] le+1"),
        ],
    ),
    "J forced cancel refused": (
        "[3,2,1] / [3] / 3",
        [
            ("target 4,5,3,1", "[4,5,3,1,2] / [3] / 3 / [4,5] / [2] le+0"),
            ("isr 3,4", "[4,5,3,1,2] / [3,4] / 3 / [4,5] / [2] le+0"),
            ("fence 3", "[4,5,3,1,2] / [4] / 4 / [4,5] / [2] le+1"),
            ("cancel", "39"),
        ],
    ),
    "J forced cancel": (
        "[3,2,1] / [3] / 3",
        [
            ("target 4,5,3,1", "[4,5,3,1,2] / [3] / 3 / [4,5] / [2] le+0"),
            ("isr 3,4", "[4,5,3,1,2] / [3,4] / 3 / [4,5] / [2] le+0"),
            ("fence 3", "[4,5,3,1,2] / [4] / 4 / [4,5] / [2] le+1"),
            ("dead", "-"),
            ("cancel unclean", "[3,2,1] / [3] / 3 / [] / [] le+1 RECOVERING"),
        ],
    ),
    "J forced cancel with the first one dead": (
        "[3,2,1] / [3] / 3",
        [
            ("target 4,5,3,1", "[4,5,3,1,2] / [3] / 3 / [4,5] / [2] le+0"),
            ("isr 3,4", "[4,5,3,1,2] / [3,4] / 3 / [4,5] / [2] le+0"),
            ("fence 3", "[4,5,3,1,2] / [4] / 4 / [4,5] / [2] le+1"),
            ("cancel unclean", "[3,2,1] / [2] / 2 / [] / [] le+1 RECOVERING"),
        ],
    ),
    "J cancel moves the leader back": (
        "[0,1] / [0,1] / 0",
        [
            ("target 2,3", "[2,3,0,1] / [0,1] / 0 / [2,3] / [0,1] le+0"),
            ("isr 0,1,2", "[2,3,0,1] / [0,1,2] / 0 / [2,3] / [0,1] le+0"),
            ("preferred", "[2,3,0,1] / [0,1,2] / 2 / [2,3] / [0,1] le+1"),
            ("cancel", "[0,1] / [0,1] / 0 / [] / [] le+1"),
        ],
    ),
    "J cancel that leaves no leader": (
        "[0,1] / [0,1] / 0",
        [
            ("target 2,3", "[2,3,0,1] / [0,1] / 0 / [2,3] / [0,1] le+0"),
            ("isr 0,1,2", "[2,3,0,1] / [0,1,2] / 0 / [2,3] / [0,1] le+0"),
            ("preferred", "[2,3,0,1] / [0,1,2] / 2 / [2,3] / [0,1] le+1"),
            ("dead 0,1", "-"),
            ("cancel", "[0,1] / [0,1] / -1 / [] / [] le+1"),
        ],
    ),
    "K the leader dies": (
        "[1,2,3] / [1,2,3] / 1",
        [
            ("target 4,3,2", "[4,3,2,1] / [1,2,3] / 1 / [4] / [1] le+0"),
            ("fence 1", "[4,3,2,1] / [2,3] / 3 / [4] / [1] le+1"),
            ("isr 2,3,4", "[4,3,2] / [2,3,4] / 3 / [] / [] le+1"),
        ],
    ),
    "K an adding replica dies and comes back": (
        "[1,2] / [1,2] / 1",
        [
            ("target 4,5", "[4,5,1,2] / [1,2] / 1 / [4,5] / [1,2] le+0"),
            ("isr 1,2,4", "[4,5,1,2] / [1,2,4] / 1 / [4,5] / [1,2] le+0"),
            ("fence 4", "[4,5,1,2] / [1,2] / 1 / [4,5] / [1,2] le+0"),
            ("dead", "-"),
            ("isr 1,2,4,5", "[4,5] / [4,5] / 4 / [] / [] le+1"),
        ],
    ),
    "K completes with nobody acceptable": (
        "[0,1] / [0,1] / 0",
        [
            ("target 2,3", "[2,3,0,1] / [0,1] / 0 / [2,3] / [0,1] le+0"),
            ("dead 0,1,2,3", "-"),
            ("isr 0,1,2,3", "[2,3] / [2,3] / -1 / [] / [] le+1"),
        ],
    ),
    "a replaced adding replica that is down": (
        "[0,1,2] / [0,1,2] / 0",
        [
            ("dead 4", "-"),
            ("target 0,3,4", "[0,3,4,1,2] / [0,1,2] / 0 / [3,4] / [1,2] le+0"),
            ("isr 0,1,2,3", "[0,3,4,1,2] / [0,1,2,3] / 0 / [3,4] / [1,2] le+0"),
            ("target 0,3,1", "[0,3,1] / [0,1,3] / 0 / [] / [] le+1"),
        ],
    ),
    "back, then forward again": (
        "[0,1,2] / [0,1,2] / 0",
        [
            ("target 0,3,4", "[0,3,4,1,2] / [0,1,2] / 0 / [3,4] / [1,2] le+0"),
            ("target 0,1,2", "[0,1,2] / [0,1,2] / 0 / [] / [] le+1"),
            ("target 0,3,4", "[0,3,4,1,2] / [0,1,2] / 0 / [3,4] / [1,2] le+0"),
            ("isr 0,1,2,3,4", "[0,3,4] / [0,3,4] / 0 / [] / [] le+1"),
        ],
    ),
    "a refused cancel, then the original set as target, then one that is in sync": (
        "[1] / [1] / 1",
        [
            ("target 2,4", "[2,4,1] / [1] / 1 / [2,4] / [1] le+0"),
            ("isr 1,2", "[2,4,1] / [1,2] / 1 / [2,4] / [1] le+0"),
            ("fence 1", "[2,4,1] / [2] / 2 / [2,4] / [1] le+1"),
            ("cancel", "39"),
            ("target 1", "[1,2,4] / [2] / 2 / [] / [2,4] le+0"),
            ("target 2", "[2] / [2] / 2 / [] / [] le+1"),
            ("cancel", "85"),
        ],
    ),
    "dropping one adding replica, then forward": (
        "[0,1,2] / [0,1,2] / 0",
        [
            ("target 0,3,4", "[0,3,4,1,2] / [0,1,2] / 0 / [3,4] / [1,2] le+0"),
            ("target 0,1,3", "[0,1,3,2,4] / [0,1,2] / 0 / [3] / [2,4] le+0"),
            ("isr 0,1,2,3", "[0,1,3] / [0,1,3] / 0 / [] / [] le+1"),
        ],
    ),
    "a cancel restores the old order": (
        "[4,1,2] / [4,1,2] / 4",
        [
            ("target 3,1,2", "[3,1,2,4] / [4,1,2] / 4 / [3] / [4] le+0"),
            ("fence 4", "[3,1,2,4] / [1,2] / 1 / [3] / [4] le+1"),
            ("cancel", "[4,1,2] / [1,2] / 1 / [] / [] le+1"),
        ],
    ),
}


@pytest.mark.parametrize("name", FLOWS)
def test_flow(name: str, partition: Callable[..., PartitionImage], directory_of: Callable[[int], Uuid]) -> None:
    beginning, steps = FLOWS[name]
    replicas, isr, leader = beginning.split(" / ")
    flow = Flow(partition(list(numbers(replicas)), list(numbers(isr)), int(leader)), directory_of)
    for text, expected in steps:
        before = flow.partition
        try:
            record = flow.step(text)
        except ApiError as refused:
            assert f"{refused.code.value}" == expected
            continue
        if expected == "-":
            assert record is None
            continue
        state, _, rest = expected.partition(" le+")
        raised, _, recovering = rest.partition(" ")
        assert flow.show() == state, text
        assert flow.partition.leader_epoch - before.leader_epoch == int(raised), text
        assert flow.partition.partition_epoch == before.partition_epoch + 1
        assert (flow.partition.leader_recovery_state == RECOVERING) == (recovering == "RECOVERING")


def test_preferred_election_completes_a_reassignment_that_waits_for_any_change(
    partition: Callable[..., PartitionImage], directory_of: Callable[[int], Uuid]
) -> None:
    flow = Flow(partition([4, 3, 2, 1], [2, 3, 4], 2, [4], [1], [1, 2, 3]), directory_of)
    flow.step("preferred")
    assert flow.show() == "[4,3,2] / [2,3,4] / 4 / [] / []"


BROKERS = 6
broker_sets = st.lists(st.integers(0, BROKERS - 1), min_size=1, max_size=4, unique=True)


@given(broker_sets, st.data())
def test_in_any_history_a_partition_keeps_its_invariants_and_a_cancel_restores(replicas: list[int], data: st.DataObject) -> None:
    directories = tuple((1000 + replica).to_bytes(16, "big") for replica in replicas)
    start = PartitionImage(tuple(replicas), directories, tuple(replicas), replicas[0])
    flow = Flow(start, lambda broker_id: (1000 + broker_id).to_bytes(16, "big"))
    original = tuple(replicas)
    for _ in range(data.draw(st.integers(1, 12))):
        before = flow.partition
        verb = data.draw(st.sampled_from(["target", "cancel", "cancel unclean", "isr", "preferred", "fence", "dead"]))
        argument = ""
        if verb in ("target", "dead"):
            argument = ",".join(map(str, data.draw(broker_sets)))
        elif verb == "isr":
            members = {before.leader, *data.draw(st.sets(st.sampled_from(before.replicas)))} - {NO_LEADER}
            alive = members - flow.dead if before.leader_recovery_state != RECOVERING else {before.leader} - {NO_LEADER}
            argument = ",".join(map(str, alive))
        elif verb == "fence":
            argument = str(data.draw(st.integers(0, BROKERS - 1)))
        try:
            record = flow.step(f"{verb} {argument}".strip())
        except ApiError:
            assert flow.partition is before
            continue
        after = flow.partition
        assert check_partition(after) == ()
        if verb.startswith("cancel"):
            assert after.replicas == original and not after.is_reassigning
        if record is not None and not set(before.replicas) <= set(after.replicas):
            assert after.leader_epoch == before.leader_epoch + 1
        original = after.original if after.is_reassigning else after.replicas
        if before.is_reassigning and after.is_reassigning:
            assert after.original == before.original
        assert after.directories == tuple(flow.directory_of(replica) for replica in after.replicas)
