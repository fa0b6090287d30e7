"""Plans: what partitions were before, and the way back.

A plan is made by requests that carry its id. Of each partition that such a request gives another target, it keeps the replicas
in their order with their directories as they were (of a partition that was moving: those from before that move), and the
target. The last plans are kept (reassignment.plans.kept), whether they are done, run or were cancelled.

A rollback asks for what was before, of every partition of the plan. One that goes neither where the plan sent it nor where it
came from has moved on since: then nothing is rolled back, and the refusal names it, unless the rollback is forced.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage, PartitionImage
from kraftlab.metadata.moves import MovesImage, PlannedPartition, QueuedMoveImage
from kraftlab.metadata.uuids import Uuid, is_reserved

from .arithmetic import original_replicas, target_replicas
from .requested_change import Wish

NAMED_MAX = 20
"""How many partitions a refusal names."""


def planned(wish: Wish, topic_id: Uuid, partition: PartitionImage) -> PlannedPartition:
    """What a plan keeps of a partition that it is about to give the wish's target."""
    before = original_replicas(partition)
    where = dict(zip(partition.replicas, partition.directories, strict=True))
    directories = tuple(where[broker_id] for broker_id in before)
    return PlannedPartition(topic_id, wish.partition_index, wish.topic, before, directories, wish.target or ())


def outdated(moves: MovesImage, newest: str, kept: int) -> list[str]:
    """The plans to forget now that `newest` is written, oldest first; it is itself one of them if none is to be kept."""
    others = sorted((plan for plan in moves.plans.values() if plan.plan_id != newest), key=lambda plan: plan.created_offset)
    if kept <= 0:
        return [*(plan.plan_id for plan in others), newest]
    return [plan.plan_id for plan in others[: max(0, len(others) + 1 - kept)]]


def rollback(image: MetadataImage, plan_id: str, force: bool) -> list[tuple[str, Iterable[Wish]]]:
    """The wishes that undo a plan, by topic. ApiError RESOURCE_NOT_FOUND, or INVALID_UPDATE_VERSION with what has moved on."""
    plan = image.moves.plans.get(plan_id)
    if plan is None:
        known = ", ".join(known.plan_id for known in sorted(image.moves.plans.values(), key=lambda known: known.created_offset))
        raise ApiError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"There is no plan {plan_id!r} to roll back; the plans that are kept: {known or 'none'}.",
        )
    wishes: dict[str, list[Wish]] = {}
    changed: list[str] = []
    for key in sorted(plan.partitions, key=lambda key: (plan.partitions[key].topic, key[1], key[0])):
        entry = plan.partitions[key]
        partition = image.topics.partition(*key)
        problem = _moved_on(entry, partition, image.moves.waiting(*key))
        if problem is not None:
            changed.append(f"{entry.topic}:{entry.partition} {problem}")
        wishes.setdefault(entry.topic, []).append(_wish_back(image, entry, partition))
    if changed and not force:
        more = f" and {len(changed) - NAMED_MAX} more" if len(changed) > NAMED_MAX else ""
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Nothing was rolled back: since plan {plan_id} {', '.join(changed[:NAMED_MAX])}{more}. Ask with force to "
            "roll back all that is still there.",
        )
    return list(wishes.items())


def _moved_on(entry: PlannedPartition, partition: PartitionImage | None, waiting: QueuedMoveImage | None) -> str | None:
    """What became of the partition if the plan had nothing to do with it. What waits for it is where it goes."""
    if partition is None:
        return "was deleted"
    now = target_replicas(partition) if waiting is None else waiting.target
    if now in (entry.target, entry.replicas):
        return None
    is_going = partition.is_reassigning or waiting is not None
    return f"{'goes' if is_going else 'went'} to [{','.join(map(str, now))}]"


def _wish_back(image: MetadataImage, entry: PlannedPartition, partition: PartitionImage | None) -> Wish:
    """Back to what was; a target of the plan that still waits is just taken off the queue."""
    if partition is None:
        return Wish(entry.topic, entry.partition, entry.replicas, is_rollback=True, is_gone=True)
    is_waiting = image.moves.waiting(entry.topic_id, entry.partition) is not None
    if is_waiting and partition.replicas == entry.replicas:
        return Wish(entry.topic, entry.partition, None, is_rollback=True)
    directories = {
        broker_id: directory
        for broker_id, directory in zip(entry.replicas, entry.directories, strict=True)
        if not is_reserved(directory)
    }
    return Wish(entry.topic, entry.partition, entry.replicas, directories, is_rollback=True)
