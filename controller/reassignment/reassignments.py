"""Reassignments: start, replace, queue, cancel and roll back (KIP-455, KIP-860, and more).

Theory of operation. Every entry is judged against the state before the request. Entries that fail do not stop the others, and
all records of a request form one atomic change. A partition that a request names twice is refused in each entry, since only
one entry could take effect. The arithmetic is `arithmetic.py`: a new target over a running reassignment replaces it, and a
cancel restores the stored original set exactly.

Options beyond Kafka's:

* *Identity.* One StartMoves record has the initiator, reason, time, plan and throttle of all reassignments that the request
  starts. A move's id is the offset of the request and the index of its entry. There is no record at the end: replay drops a
  move together with its reassignment (`metadata/moves.py`). A repeated target is the same move.
* *Preconditions.* An entry may name the replicas or the partition epoch that it expects. If they differ, the entry is refused.
* *Guards.* A change of the replication factor is refused if the request (KIP-860) or the cluster's policy forbids it. A cancel
  that leaves a partition without the leader that it has is refused unless it is forced.
* *Queue.* `queueing.py` judges queued targets at once, together with the whole queue. Targets that may not start become a
  QueueMoves record, and `upkeep.py` starts them when slots get free.
* *Plans.* A request with a plan id keeps the previous state of its partitions (`plans.py`). A rollback turns that state into
  targets, which are handled like any others. CancelReassignments and RollbackPlan become lists of entries as well.
* *Throttles* belong to the move. Brokers read them from the image; no config is written, so none is left behind.

With `validate_only` all of this is judged and answered, and no record is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kraftlab.access.refusals import set_error
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import to_text
from kraftlab.metadata.eligible_leaders import min_isr_if_on
from kraftlab.metadata.image import PartitionImage, TopicImage
from kraftlab.metadata.moves import QueuedMoveImage
from kraftlab.metadata.partitions import partition_after
from kraftlab.metadata.records import NO_LEADER, AnyRecord, PartitionChange
from kraftlab.quorum.core.batch import MAX_RECORDS

from ..configs.description import unclean_election_enabled
from ..engine.state import Context, ControllerState, Outcome
from ..partitions.partition_change import build_cancel, build_change
from ..partitions.partitions import Eligibility, default_directory
from . import arithmetic, plans
from .options import MoveRequest, ReassignmentOptions
from .policy import SIZE_CHANGE, MovePolicy, policy_of
from .record_draft import Draft, Slots
from .requested_change import RequestedChange

TRANSACTION = "partition reassignments"
LONG_PARTITIONS = 250
"""More entries take longer than the quorum should wait for its leader: about 50 µs each, and more on a busy machine."""


def alter(
    state: ControllerState, request: admin_pb2.AlterPartitionReassignmentsRequest, context: Context
) -> Outcome[admin_pb2.AlterPartitionReassignmentsResponse]:
    """Start and cancel reassignments. ApiError for the whole request: POLICY_VIOLATION for too many entries, INVALID_REQUEST for
    an invalid option.
    """
    options = ReassignmentOptions.of_request(request)._replace(allows_size_change=allows_size_change(request))
    _check_entries(request)
    response = admin_pb2.AlterPartitionReassignmentsResponse(allow_replication_factor_change=options.allows_size_change)
    return Outcome(_judge(state, options, context, _entries(request), response), response, transaction=TRANSACTION)


def cancel(
    state: ControllerState, request: admin_pb2.CancelReassignmentsRequest, context: Context
) -> Outcome[admin_pb2.CancelReassignmentsResponse]:
    """Cancel the reassignments of topics, or all. ApiError UNKNOWN_TOPIC_OR_PARTITION for the whole request."""
    names = list(dict.fromkeys(request.topics.names)) if request.HasField("topics") else None
    options = ReassignmentOptions(force=request.force, validate_only=request.validate_only)
    response = admin_pb2.CancelReassignmentsResponse()
    return Outcome(_judge(state, options, context, list(_cancels(state, names)), response), response, transaction=TRANSACTION)


def roll_back(
    state: ControllerState, request: admin_pb2.RollbackPlanRequest, context: Context
) -> Outcome[admin_pb2.RollbackPlanResponse]:
    """Restore the placement before a plan. ApiError for the whole request: RESOURCE_NOT_FOUND for an unknown plan,
    INVALID_UPDATE_VERSION for a plan that cannot be rolled back, INVALID_REQUEST for an invalid option.
    """
    options = ReassignmentOptions.of_request(request)
    response = admin_pb2.RollbackPlanResponse()
    changes = plans.rollback(state.image, request.rollback_plan_id, options.force)
    return Outcome(_judge(state, options, context, changes, response), response, transaction=TRANSACTION)


def forget_plans(
    state: ControllerState, request: admin_pb2.ForgetPlansRequest, context: Context
) -> Outcome[admin_pb2.ForgetPlansResponse]:
    """Forget all of these plans or none. ApiError RESOURCE_NOT_FOUND."""
    records = plans.forget(state.image.moves, request.plan_ids)
    return Outcome(records, admin_pb2.ForgetPlansResponse(), transaction=TRANSACTION)


def _judge(
    state: ControllerState,
    options: ReassignmentOptions,
    context: Context,
    requested_changes: Iterable[tuple[str, Iterable[RequestedChange]]],
    response: admin_pb2.AlterPartitionReassignmentsResponse
    | admin_pb2.CancelReassignmentsResponse
    | admin_pb2.RollbackPlanResponse,
) -> list[AnyRecord]:
    """Answer the requested changes, topic by topic, and return their records."""
    policy = policy_of(state.image, context.settings)
    draft = Draft(options, policy, context, Slots(state.image, policy))
    judge = _Judge(state, options, policy, draft, context)
    for topic_name, changes in requested_changes:
        answers = response.responses.add(name=topic_name)
        for requested in changes:
            judge.answer(requested, answers.partitions.add(partition_index=requested.partition_index))
    return [] if options.validate_only else draft.records(state.image.moves)


def allows_size_change(request: admin_pb2.AlterPartitionReassignmentsRequest) -> bool:
    """KIP-860's flag, true if it is absent."""
    return not request.HasField("allow_replication_factor_change") or request.allow_replication_factor_change


def name_initiator(request: MoveRequest, principal: str) -> None:
    """Set the initiator of moves to the principal, unless the request names one."""
    if not request.HasField("initiator"):
        request.initiator = principal


def answer_empty_request(
    request: admin_pb2.AlterPartitionReassignmentsRequest, response: admin_pb2.AlterPartitionReassignmentsResponse
) -> None:
    """Repeat the request's flag, with an empty text for its error, as Kafka answers a request without entries."""
    response.allow_replication_factor_change = allows_size_change(request)
    response.header.error_message = ""


def is_long(state: ControllerState, request: admin_pb2.AlterPartitionReassignmentsRequest) -> bool:
    """Return True for a request of many partitions."""
    return sum(len(topic.partitions) for topic in request.topics) > LONG_PARTITIONS


def is_long_cancel(state: ControllerState, request: admin_pb2.CancelReassignmentsRequest) -> bool:
    """Return True if many partitions move or are queued."""
    concerned = (state.image.topics.reassigning, state.image.moves.queued)
    return sum(len(numbers) for each in concerned for numbers in each.values()) > LONG_PARTITIONS


def _check_entries(request: admin_pb2.AlterPartitionReassignmentsRequest) -> None:
    entries = sum(len(topic.partitions) for topic in request.topics)
    if entries > MAX_RECORDS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"The request names {entries} partitions, more than the {MAX_RECORDS} that fit one atomic change; "
            "nothing was changed. Split it.",
        )


def _entries(request: admin_pb2.AlterPartitionReassignmentsRequest) -> Iterator[tuple[str, Iterable[RequestedChange]]]:
    appearances: Counter[tuple[str, int]] = Counter()
    if sum(len(topic.partitions) for topic in request.topics) > 1:
        appearances.update((topic.name, entry.partition_index) for topic in request.topics for entry in topic.partitions)
    for topic in request.topics:
        yield (
            topic.name,
            [
                RequestedChange(
                    topic.name,
                    entry.partition_index,
                    tuple(entry.replicas.values) if entry.HasField("replicas") else None,
                    expected_replicas=tuple(entry.expected_replicas.values) if entry.HasField("expected_replicas") else None,
                    expected_epoch=entry.expected_partition_epoch if entry.HasField("expected_partition_epoch") else None,
                    is_repeated=appearances[topic.name, entry.partition_index] > 1,
                )
                for entry in topic.partitions
            ],
        )


def _cancels(state: ControllerState, names: list[str] | None) -> Iterator[tuple[str, list[RequestedChange]]]:
    """A cancel for each partition that moves or is queued, of all topics or of the named ones."""
    image = state.image
    if names is None:
        busy = {*image.topics.reassigning, *image.moves.queued}
        names = sorted(image.topics.by_id[topic_id].name for topic_id in busy)
    for name in names:
        topic = image.topics.get(name)
        if topic is None:
            raise _unknown_topic(name)
        numbers = {*image.topics.reassigning.get(topic.topic_id, ()), *image.moves.queued.get(topic.topic_id, ())}
        yield name, [RequestedChange(name, number, None) for number in sorted(numbers)]


def _unknown_topic(name: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")


class _Judge:
    """Judges requested changes one by one, each against the state before the request, and adds their records to the draft."""

    def __init__(
        self, state: ControllerState, options: ReassignmentOptions, policy: MovePolicy, draft: Draft, context: Context
    ) -> None:
        self._image = state.image
        self._options = options
        self._policy = policy
        self._draft = draft
        self._settings = context.settings
        self._eligibility = Eligibility(state.image.cluster.brokers)
        self._default_directory = default_directory(state.image.cluster.brokers)
        self._min_isr: dict[str, int | None] = {}
        self._index = -1

    def answer(self, requested: RequestedChange, answer: admin_pb2.ReassignablePartitionResponse) -> None:
        """Fill in the answer to one entry."""
        self._index += 1
        try:
            if requested.is_repeated:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Partition {requested.name} is named more than once in this request; nothing was changed for it.",
                )
            topic = self._image.topics.get(requested.topic)
            if requested.is_gone:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {requested.name} was deleted since.")
            if topic is None:
                raise _unknown_topic(requested.topic)
            partition = topic.partitions.get(requested.partition_index)
            if partition is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {requested.name}.")
            _check_expectations(requested, partition)
            waiting = self._image.moves.waiting(topic.topic_id, requested.partition_index)
            if requested.target is None:
                after = self._cancel(requested, topic, partition, waiting)
            else:
                after = self._begin(requested, requested.target, topic, partition, waiting, answer)
        except ApiError as error:
            set_error(answer, error)
            return
        _describe(answer, after)
        move = self._image.moves.move(topic.topic_id, requested.partition_index)
        if after.is_reassigning and not answer.move_id and move is not None:
            answer.move_id = move.move_id
        _describe_directories(answer, requested, partition)

    def _cancel(
        self, requested: RequestedChange, topic: TopicImage, partition: PartitionImage, waiting: QueuedMoveImage | None
    ) -> PartitionImage:
        if waiting is not None:
            self._draft.dequeue(topic.topic_id, requested.partition_index)
            return partition
        record = build_cancel(
            partition,
            requested.partition_index,
            topic.topic_id,
            requested.name,
            accepts=self._eligibility.accepts,
            default_directory=self._default_directory,
            min_isr=self._min_isr_of(topic.name),
            unclean_allowed=unclean_election_enabled(self._image, topic.name, self._settings),
        )
        after = partition if record is None else partition_after(partition, record)
        if not self._options.force:
            _check_leader(requested.name, partition, after)
        self._draft.change(record)
        return after

    def _begin(
        self,
        requested: RequestedChange,
        target: tuple[int, ...],
        topic: TopicImage,
        partition: PartitionImage,
        waiting: QueuedMoveImage | None,
        answer: admin_pb2.ReassignablePartitionResponse,
    ) -> PartitionImage:
        arithmetic.check_target(target, self._image.cluster.brokers.__contains__)
        self._check_size(partition, target)
        key = (topic.topic_id, requested.partition_index)
        record = self._build(requested, target, topic, partition)
        after = partition if record is None else partition_after(partition, record)
        if requested.is_rollback and not self._options.force:
            _check_leader(requested.name, partition, after)
        if self._options.plan_id is not None and target != arithmetic.target_replicas(partition):
            self._draft.plan(plans.planned(requested, topic.topic_id, partition))
        begins = after.is_reassigning and not partition.is_reassigning
        if begins and waiting is not None and waiting.target == target and self._options.leaves(waiting):
            answer.move_id, answer.queued = waiting.move_id, True
            return partition
        if begins and self._options.queued and not self._draft.slots.take(key, target, self._options.priority):
            self._draft.queue(key, self._index, target, requested.directories)
            answer.move_id, answer.queued = self._draft.move_id(self._index), True
            return partition
        self._draft.change(record)
        is_same_move = partition.is_reassigning and partition.target == target
        if after.is_reassigning and not is_same_move:
            self._draft.start(key, self._index)
            answer.move_id = self._draft.move_id(self._index)
        elif after.is_reassigning:
            self._draft.throttle(key, self._image.moves.move(*key))
        if waiting is not None and not after.is_reassigning:
            self._draft.dequeue(*key)
        return after

    def _build(
        self, requested: RequestedChange, target: tuple[int, ...], topic: TopicImage, partition: PartitionImage
    ) -> PartitionChange | None:
        brokers = self._image.cluster.brokers
        new_directories = requested.directories and {
            broker_id: directory
            for broker_id, directory in requested.directories.items()
            if broker_id not in partition.replicas and brokers[broker_id].has_online(directory)
        }
        return build_change(
            partition,
            requested.partition_index,
            topic.topic_id,
            accepts=self._eligibility.accepts,
            default_directory=self._default_directory,
            min_isr=self._min_isr_of(topic.name),
            reassign=arithmetic.start(partition, target),
            directories=new_directories,
        )

    def _min_isr_of(self, topic_name: str) -> int | None:
        if topic_name not in self._min_isr:
            self._min_isr[topic_name] = min_isr_if_on(self._image, topic_name)
        return self._min_isr[topic_name]

    def _check_size(self, partition: PartitionImage, target: tuple[int, ...]) -> None:
        if not self._options.allows_size_change:
            arithmetic.check_replication_factor(partition, target)
        elif not self._policy.allows_size_change:
            try:
                arithmetic.check_replication_factor(partition, target)
            except ApiError as error:
                raise ApiError(error.code, f"{error.message}, and the cluster has {SIZE_CHANGE}=false") from None


def _check_expectations(requested: RequestedChange, partition: PartitionImage) -> None:
    """Compare and set: INVALID_UPDATE_VERSION with both values."""
    if requested.expected_replicas is not None and requested.expected_replicas != partition.replicas:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Partition {requested.name} has the replicas {_ids(partition.replicas)}, not {_ids(requested.expected_replicas)} "
            "as expected; nothing was changed for it. Describe it again before retrying.",
        )
    if requested.expected_epoch is not None and requested.expected_epoch != partition.partition_epoch:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Partition {requested.name} has the partition epoch {partition.partition_epoch}, not {requested.expected_epoch} as "
            "expected; nothing was changed for it. Describe it again before retrying.",
        )


def _check_leader(name: str, before: PartitionImage, after: PartitionImage) -> None:
    """Refuse to leave a partition without the leader that it has."""
    if before.leader != NO_LEADER and after.leader == NO_LEADER:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Going back with {name} to {_ids(after.replicas)} would leave it without a leader: none of its in-sync replicas "
            f"{_ids(after.isr)} is active. Bring one of them back, or use force.",
        )


def _ids(values: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, values)) + "]"


def _describe(answer: admin_pb2.ReassignablePartitionResponse, after: PartitionImage) -> None:
    answer.replicas.extend(after.replicas)
    answer.adding_replicas.extend(after.adding)
    answer.removing_replicas.extend(after.removing)
    answer.partition_epoch = after.partition_epoch


def _describe_directories(
    answer: admin_pb2.ReassignablePartitionResponse, requested: RequestedChange, partition: PartitionImage
) -> None:
    """Name the replicas that stay on their broker, but were in another directory."""
    for broker_id, directory in requested.directories.items():
        now = partition.directory_of(broker_id)
        if now is not None and now != directory:
            answer.directory_moves.add(broker_id=broker_id, directory_id=to_text(directory))
