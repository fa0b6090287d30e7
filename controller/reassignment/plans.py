"""Plans: the state of partitions before a plan, and the rollback to it.

Requests that carry a plan's id make the plan. For each partition that such a request gives a new target, the plan keeps the
previous replicas in their order, with their directories, and the target. If the partition was already moving, the plan keeps
its original replicas. The newest plans are kept (reassignment.plans.kept), whether they are done, running or cancelled.

A rollback requests the previous replicas for every partition of the plan. A partition that now moves to, or has, neither the
plan's target nor its previous replicas was changed by another request. Then nothing is rolled back, and the refusal names the
partition, unless the rollback is forced.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import Uuid, is_reserved
from kraftlab.metadata.image import MetadataImage, PartitionImage
from kraftlab.metadata.moves import MovesImage, PlannedPartition, QueuedMoveImage
from kraftlab.metadata.records import AnyRecord, RemovePlan

from .arithmetic import original_replicas, target_replicas
from .requested_change import RequestedChange

NAMED_MAX = 20
"""Largest number of partitions that a refusal names."""


def planned(requested: RequestedChange, topic_id: Uuid, partition: PartitionImage) -> PlannedPartition:
    """Entry of a plan for a partition that is about to get a new target."""
    before = original_replicas(partition)
    where = dict(zip(partition.replicas, partition.directories, strict=True))
    directories = tuple(where[broker_id] for broker_id in before)
    return PlannedPartition(topic_id, requested.partition_index, requested.topic, before, directories, requested.target or ())


def outdated(moves: MovesImage, newest: str, kept: int) -> list[str]:
    """Plans to forget now that `newest` is written, oldest first. `newest` is one of them if no plan is to be kept."""
    others = sorted((plan for plan in moves.plans.values() if plan.plan_id != newest), key=lambda plan: plan.created_offset)
    if kept <= 0:
        return [*(plan.plan_id for plan in others), newest]
    return [plan.plan_id for plan in others[: max(0, len(others) + 1 - kept)]]


def forget(moves: MovesImage, plan_ids: Iterable[str]) -> list[AnyRecord]:
    """Records that remove the plans. ApiError RESOURCE_NOT_FOUND for an unknown plan."""
    records: list[AnyRecord] = []
    for plan_id in dict.fromkeys(plan_ids):
        if plan_id not in moves.plans:
            raise _unknown_plan(moves, plan_id, "forget")
        records.append(RemovePlan(0, plan_id))
    return records


def _unknown_plan(moves: MovesImage, plan_id: str, verb: str) -> ApiError:
    known = ", ".join(known.plan_id for known in sorted(moves.plans.values(), key=lambda known: known.created_offset))
    return ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"There is no plan {plan_id!r} to {verb}; saved plans: {known or 'none'}.")


def rollback(image: MetadataImage, plan_id: str, force: bool) -> list[tuple[str, Iterable[RequestedChange]]]:
    """Changes that undo a plan, by topic. ApiError RESOURCE_NOT_FOUND, or INVALID_UPDATE_VERSION with the partitions that
    other requests changed.
    """
    plan = image.moves.plans.get(plan_id)
    if plan is None:
        raise _unknown_plan(image.moves, plan_id, "roll back")
    changes: dict[str, list[RequestedChange]] = {}
    changed: list[str] = []
    for key in sorted(plan.partitions, key=lambda key: (plan.partitions[key].topic, key[1], key[0])):
        entry = plan.partitions[key]
        partition = image.topics.partition(*key)
        problem = _moved_on(entry, partition, image.moves.waiting(*key))
        if problem is not None:
            changed.append(f"{entry.topic}:{entry.partition} {problem}")
        changes.setdefault(entry.topic, []).append(_change_back(image, entry, partition))
    if changed and not force:
        more = f" and {len(changed) - NAMED_MAX} more" if len(changed) > NAMED_MAX else ""
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Nothing was rolled back: since plan {plan_id} {', '.join(changed[:NAMED_MAX])}{more}. Use force to "
            "roll back all partitions that still exist.",
        )
    return list(changes.items())


def _moved_on(entry: PlannedPartition, partition: PartitionImage | None, waiting: QueuedMoveImage | None) -> str | None:
    """Text for a partition that another request changed or deleted, otherwise None. A queued target counts as its target."""
    if partition is None:
        return "was deleted"
    now = target_replicas(partition) if waiting is None else waiting.target
    if now in (entry.target, entry.replicas):
        return None
    is_going = partition.is_reassigning or waiting is not None
    return f"{'goes' if is_going else 'went'} to [{','.join(map(str, now))}]"


def _change_back(image: MetadataImage, entry: PlannedPartition, partition: PartitionImage | None) -> RequestedChange:
    """Change back to the previous replicas. A target of the plan that is still queued is only taken off the queue."""
    if partition is None:
        return RequestedChange(entry.topic, entry.partition, entry.replicas, is_rollback=True, is_gone=True)
    is_waiting = image.moves.waiting(entry.topic_id, entry.partition) is not None
    if is_waiting and partition.replicas == entry.replicas:
        return RequestedChange(entry.topic, entry.partition, None, is_rollback=True)
    directories = {
        broker_id: directory
        for broker_id, directory in zip(entry.replicas, entry.directories, strict=True)
        if not is_reserved(directory)
    }
    return RequestedChange(entry.topic, entry.partition, entry.replicas, directories, is_rollback=True)
