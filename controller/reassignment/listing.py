"""ListPartitionReassignments: running moves with their progress and blockers, queued moves, and plans that can be rolled back.

The sets come from committed state, with the full intermediate replica set and the stored original and target. Progress comes
from the active controller's memory (`progress.py`); a standby lists the same moves without progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from kraftlab.admin.v1 import admin_pb2
from kraftlab.metadata.image import MetadataImage, PartitionImage, TopicImage
from kraftlab.metadata.moves import MoveImage, TopicPartition

from ..engine.state import ControllerState, Settings
from .blockers import blocker, holding_up
from .limits import Limits
from .policy import policy_of
from .progress import MoveProgressTable, ReplicaReport
from .queueing import UNKNOWN_SIZE, current_load, in_order, reason_to_wait

LONG_FROM_MOVES = 1000
"""Listing this many takes a few hundredths of a second."""


def is_long(state: ControllerState, request: admin_pb2.ListPartitionReassignmentsRequest) -> bool:
    """Return True for a listing of very many moves, or of a long queue that has to be sorted."""
    queued = sum(map(len, state.image.moves.queued.values()))
    if request.HasField("topics"):
        listed = sum(len(topic.partition_indexes) for topic in request.topics.topics)
    else:
        listed = sum(map(len, state.image.topics.reassigning.values()))
    return listed + queued >= LONG_FROM_MOVES


class Observer(NamedTuple):
    """The answering controller: its progress table (None on a standby), clock and settings."""

    progress: MoveProgressTable | None
    now_ms: int
    settings: Settings


def listing(
    state: ControllerState, request: admin_pb2.ListPartitionReassignmentsRequest, observer: Observer
) -> admin_pb2.ListPartitionReassignmentsResponse:
    """All reassignments, sorted, or the requested ones in the order of the request.

    Unknown names and partitions, and partitions that are not being reassigned, are left out.
    """
    response = admin_pb2.ListPartitionReassignmentsResponse(has_progress=observer.progress is not None)
    image = state.image
    topics = image.topics
    limits = Limits(image, observer.progress, observer.now_ms)
    if not request.HasField("topics"):
        moving = sorted((topics.by_id[topic_id] for topic_id in topics.reassigning), key=lambda topic: topic.name)
        for topic in moving:
            _list_topic(response, image, topic, topics.reassigning[topic.topic_id], observer, limits)
        _list_queue(response, image, None, observer)
        _list_plans(response, image)
        return response
    wanted: set[TopicPartition] = set()
    for requested in request.topics.topics:
        known = topics.get(requested.name)
        if known is not None:
            _list_topic(response, image, known, requested.partition_indexes, observer, limits)
            wanted.update((known.topic_id, index) for index in requested.partition_indexes)
    if wanted:
        _list_queue(response, image, wanted, observer)
    return response


def _list_topic(
    response: admin_pb2.ListPartitionReassignmentsResponse,
    image: MetadataImage,
    topic: TopicImage,
    partition_indexes: Iterable[int],
    observer: Observer,
    limits: Limits,
) -> None:
    ongoing = [
        _ongoing(image, (topic.topic_id, index), partition, observer, limits)
        for index in partition_indexes
        for partition in [topic.partitions.get(index)]
        if partition is not None and partition.is_reassigning
    ]
    if ongoing:
        response.topics.add(name=topic.name, partitions=ongoing)


def _ongoing(
    image: MetadataImage, key: TopicPartition, partition: PartitionImage, observer: Observer, limits: Limits
) -> admin_pb2.OngoingPartitionReassignment:
    described = admin_pb2.OngoingPartitionReassignment(
        partition_index=key[1],
        replicas=partition.replicas,
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
        original_replicas=partition.original,
        target_replicas=partition.target,
        partition_epoch=partition.partition_epoch,
        bytes_done=-1,
        bytes_left=-1,
        eta_ms=-1,
    )
    move = image.moves.move(*key)
    if move is not None:
        _describe_move(described, move)
    _describe_progress(described, image, key, partition, observer, limits)
    return described


def _describe_move(described: admin_pb2.OngoingPartitionReassignment, move: MoveImage) -> None:
    described.move_id = move.move_id
    described.initiator = move.initiator
    described.reason = move.reason
    described.started_ms = move.started_ms
    if move.plan_id is not None:
        described.plan_id = move.plan_id
    if move.throttle is not None:
        described.throttle = move.throttle
    if move.throttle_until_ms is not None:
        described.throttle_until_ms = move.throttle_until_ms


def _describe_progress(
    described: admin_pb2.OngoingPartitionReassignment,
    image: MetadataImage,
    key: TopicPartition,
    partition: PartitionImage,
    observer: Observer,
    limits: Limits,
) -> None:
    table = observer.progress
    reports: list[ReplicaReport] = []
    rates: list[float] = []
    etas: list[int] = []
    lowest: list[int] = []
    age_ms = max(observer.now_ms - described.started_ms, 0)
    for broker_id in holding_up(partition):
        report = None if table is None else table.of(key, broker_id, observer.now_ms)
        why = blocker(image.cluster, partition, broker_id, report, knows_reports=table is not None, age_ms=age_ms)
        limit = limits.into(key, partition, broker_id)
        if limit is not None:
            lowest.append(limit.bytes_per_second)
        described.blockers.add(broker_id=broker_id, state=why.state.value, text=why.text)
        if report is not None:
            reports.append(report)
            rates.append(report.bytes_per_second if why.state.has_rate else -1)
            etas.append(limits.eta_ms(report, limit) if why.state.has_rate else -1)
            described.progress.add(
                broker_id=broker_id,
                bytes_done=report.bytes_done,
                bytes_left=report.bytes_left,
                bytes_per_second=rates[-1],
                eta_ms=etas[-1],
                reported_ms=report.reported_ms,
            )
    if lowest:
        described.limit = min(lowest)
    if reports and len(reports) == len(described.blockers):
        described.bytes_done = sum(report.bytes_done for report in reports)
        described.bytes_per_second = -1 if -1 in rates else sum(rates)
        if all(report.bytes_left >= 0 for report in reports):
            described.bytes_left = sum(report.bytes_left for report in reports)
        if all(eta >= 0 for eta in etas):
            # Copies to several brokers run at the same time; their sum at the limit of one is the cautious estimate.
            at_limit_ms = described.bytes_left * 1000 // described.limit if described.limit else 0
            described.eta_ms = max(*etas, at_limit_ms)


def _list_queue(
    response: admin_pb2.ListPartitionReassignmentsResponse,
    image: MetadataImage,
    wanted: Collection[TopicPartition] | None,
    observer: Observer,
) -> None:
    """Queued moves in their order. Positions count the whole queue."""
    if not image.moves.queued:
        return
    policy = policy_of(image, observer.settings)
    sizes = {} if observer.progress is None else observer.progress.sizes(observer.now_ms)
    load = current_load(image)
    queued = [((topic_id, number), move) for topic_id, inner in image.moves.queued.items() for number, move in inner.items()]
    for position, (key, move) in enumerate(in_order(queued, policy.order, sizes), 1):
        topic = image.topics.by_id[key[0]]
        if wanted is not None and key not in wanted:
            continue
        entry = response.queued.add(
            topic=topic.name,
            partition_index=key[1],
            position=position,
            move_id=move.move_id,
            replicas=topic.partitions[key[1]].replicas,
            target_replicas=move.target,
            initiator=move.initiator,
            reason=move.reason,
            queued_ms=move.queued_ms,
            priority=move.priority,
            size_bytes=sizes.get(key, UNKNOWN_SIZE),
            waits_for=reason_to_wait(image, key, move.target, load, policy),
        )
        if move.plan_id is not None:
            entry.plan_id = move.plan_id
        if move.throttle is not None:
            entry.throttle = move.throttle


def _list_plans(response: admin_pb2.ListPartitionReassignmentsResponse, image: MetadataImage) -> None:
    plans = image.moves.plans
    if not plans:
        return
    running = Counter(move.plan_id for inner in image.moves.running.values() for move in inner.values())
    queued = Counter(move.plan_id for inner in image.moves.queued.values() for move in inner.values())
    for plan in sorted(plans.values(), key=lambda plan: plan.created_offset):
        response.plans.add(
            plan_id=plan.plan_id,
            created_ms=plan.created_ms,
            initiator=plan.initiator,
            reason=plan.reason,
            partitions=len(plan.partitions),
            running=running[plan.plan_id],
            queued=queued[plan.plan_id],
        )
