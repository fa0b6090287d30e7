"""The short cut of `build_change` for plain changes agrees with the full builder."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.common.uuids import Uuid
from kraftlab.controller.partitions.election import Election
from kraftlab.controller.partitions.partition_change import build_change, build_change_in_full
from kraftlab.controller.reassignment import arithmetic
from kraftlab.metadata.image import PartitionImage
from kraftlab.metadata.records import NO_LEADER, RECOVERED, RECOVERING

BROKERS = st.integers(0, 5)
SOME = st.lists(BROKERS, max_size=4, unique=True).map(tuple)
REPLICAS = st.lists(BROKERS, min_size=1, max_size=4, unique=True).map(tuple)
RARELY = st.sampled_from([False, False, False, True])


@st.composite
def partitions(draw: st.DrawFn) -> PartitionImage:
    """Mostly partitions that do not move, sometimes any with the right shape."""
    replicas = draw(REPLICAS)
    isr = draw(SOME) if draw(RARELY) else replicas
    directories = tuple(bytes([100 + replica]) * 16 for replica in replicas)
    leader = draw(st.sampled_from([isr[0] if isr else NO_LEADER, NO_LEADER, *replicas]))
    partition = PartitionImage(replicas, directories, isr, leader, 3, 5)
    if draw(RARELY):
        moving = arithmetic.start(partition, draw(REPLICAS))
        directories = tuple(bytes([100 + replica]) * 16 for replica in moving.replicas)
        partition = PartitionImage(moving.replicas, directories, isr, leader, 3, 5, *moving[1:])
    state = draw(st.sampled_from([RECOVERED, RECOVERED, RECOVERING]))
    elr, last_known = (draw(SOME) if draw(RARELY) else () for _ in range(2))
    return PartitionImage(*(getattr(partition, name) for name in PartitionImage.__struct_fields__[:10]), state, elr, last_known)


@st.composite
def changes(draw: st.DrawFn, before: PartitionImage) -> dict[str, Any]:
    dead = draw(SOME)
    return {
        "accepts": lambda _, broker_id: broker_id not in dead,
        "default_directory": lambda broker_id: bytes([100 + broker_id]) * 16,
        "min_isr": draw(st.sampled_from([None, 1, 2, 3, 9])),
        "target_isr": draw(st.none() | SOME | st.just(tuple(member for member in before.isr if member not in dead))),
        "reassign": arithmetic.start(before, draw(REPLICAS)) if draw(RARELY) else None,
        "election": draw(st.sampled_from(Election)),
        "directories": {before.replicas[0]: bytes([99]) * 16} if draw(RARELY) else None,
        "recovery_state": draw(st.sampled_from([None, None, RECOVERED, RECOVERING])),
        "uncleanly_stopped": draw(SOME) if draw(RARELY) else (),
        "shrink_raises_epoch": draw(st.booleans()),
    }


@given(partitions(), st.data())
@settings(max_examples=400)
def test_the_shortcut_and_the_whole_builder_agree(before: PartitionImage, data: st.DataObject) -> None:
    change = data.draw(changes(before))
    topic_id: Uuid = b"plain or in full"
    assert build_change(before, 7, topic_id, **change) == build_change_in_full(before, 7, topic_id, **change)
