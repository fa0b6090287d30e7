"""Writes of the active controller about moves: queued moves start, and throttles end.

Both are ordinary writes, decided from the newest state. So a failover in between loses nothing: the next active controller
sees the same queue and the same times. A change of the state schedules the next check after `PAUSE_MS`, so many completions
together cost one check.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftlab.common.uuids import UNASSIGNED
from kraftlab.metadata.eligible_leaders import min_isr_if_on
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.moves import QueuedMoveImage, TopicPartition
from kraftlab.metadata.partitions import partition_after
from kraftlab.metadata.records import AnyRecord, ChangeMoveThrottles, DequeueMoves

from ..engine.state import Context, ControllerState, Outcome
from ..partitions.partition_change import build_change
from ..partitions.partitions import Eligibility, default_directory
from .arithmetic import start
from .policy import policy_of
from .queueing import current_load, in_order, select, waiting_for
from .record_draft import start_queued

PAUSE_MS = 20
MOVES_MAX = 4000
"""Largest number of moves that one check starts. With their initiators they fit one batch, unless very many have very long
reasons.
"""


def start_waiting(state: ControllerState, sizes: Mapping[TopicPartition, int], context: Context) -> Outcome[None]:
    """Start the queued moves that have free slots, in the order of the queue."""
    image = state.image
    queued: dict[TopicPartition, QueuedMoveImage] = {
        (topic_id, number): move for topic_id, inner in image.moves.queued.items() for number, move in inner.items()
    }
    if not queued:
        return Outcome([], None)
    policy = policy_of(image, context.settings)
    ordered = in_order(queued.items(), policy.order, sizes)
    waiting = [waits for key, move in ordered if (waits := waiting_for(image, key, move.target)) is not None]
    chosen = select(waiting, current_load(image), policy)[:MOVES_MAX]
    records: list[AnyRecord] = []
    started: list[tuple[TopicPartition, QueuedMoveImage]] = []
    finished: list[TopicPartition] = []
    for key in chosen:
        if _begin(image, key, queued[key], records):
            started.append((key, queued[key]))
        else:
            finished.append(key)
    records += start_queued(started, context.now_ms)
    if finished:
        records.append(DequeueMoves(0, tuple(finished)))
    return Outcome(records, None, transaction="queued moves")


def _begin(image: MetadataImage, key: TopicPartition, move: QueuedMoveImage, records: list[AnyRecord]) -> bool:
    """Add the record that starts the move. Return True if the partition is being reassigned then."""
    topic = image.topics.by_id[key[0]]
    partition = topic.partitions[key[1]]
    brokers = image.cluster.brokers
    new_directories = {
        broker_id: directory
        for broker_id, directory in zip(move.target, move.directories, strict=False)
        if directory != UNASSIGNED and broker_id not in partition.replicas and brokers[broker_id].has_online(directory)
    }
    record = build_change(
        partition,
        key[1],
        key[0],
        accepts=Eligibility(brokers).accepts,
        default_directory=default_directory(brokers),
        min_isr=min_isr_if_on(image, topic.name),
        reassign=start(partition, move.target),
        directories=new_directories,
    )
    if record is None:
        return False
    records.append(record)
    return partition_after(partition, record).is_reassigning


def next_expiry_ms(image: MetadataImage) -> int | None:
    """Time of the next end of a throttle, None if there is none."""
    return min(
        (
            move.throttle_until_ms
            for inner in image.moves.running.values()
            for move in inner.values()
            if move.throttle_until_ms is not None
        ),
        default=None,
    )


def end_throttles(state: ControllerState, context: Context) -> Outcome[None]:
    """Remove the throttles whose time has passed. The moves go on."""
    over = sorted(
        (topic_id, number)
        for topic_id, inner in state.image.moves.running.items()
        for number, move in inner.items()
        if move.throttle_until_ms is not None and move.throttle_until_ms <= context.now_ms
    )
    return Outcome([ChangeMoveThrottles(0, tuple(over))] if over else [], None)
