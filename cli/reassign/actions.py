"""Actions of `reassign-partitions`: they read and change the cluster, and pass states to `text.py` for the output.

Differences from Kafka's tool: a broker learns the log directory of an adding replica before the reassignment starts, and creates
the replica there (KIP-113's intent; Kafka copies it twice). The rollback of a running partition names its original replicas. A
cancel keeps throttles while other reassignments run. Sentences that Kafka prints without a line break have lines of their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable, MoveOptions, OutcomeUnknown, answer_of
from kraftlab.client.config_parts import config_changes
from kraftlab.client.errors import api_error
from kraftlab.client.moves import NO_OPTIONS
from kraftlab.client.results import Reassignments, Topic
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.resources import ResourceType

from . import text
from .directories import (
    ReassignmentFailed,
    alter_directories,
    check_directories,
    directories,
    move_directories,
    move_failures,
)
from .plan import ANY, Placement, Plan, TopicPartition, TopicPartitionReplica, format_plan
from .text import Answer, LogDirMoveState, OngoingReassignment, PartitionState

MovesResponse = pb.AlterPartitionReassignmentsResponse | pb.CancelReassignmentsResponse | pb.RollbackPlanResponse

PrintLines = Callable[[Iterable[str]], None]


def describe(client: AdminClient, topics: Iterable[str]) -> dict[str, Topic]:
    """Return the existing topics by name."""
    return answer_of(lambda: client.describe_topics(topics))


def ongoing(client: AdminClient) -> dict[TopicPartition, OngoingReassignment]:
    """Return every running reassignment."""
    return ongoing_of(client.list_partition_reassignments())


def ongoing_of(listing: Reassignments) -> dict[TopicPartition, OngoingReassignment]:
    """Return the running reassignments of a listing."""
    return {
        (entry.topic, entry.partition_index): OngoingReassignment(
            entry.replicas, entry.adding_replicas, entry.removing_replicas, entry.original_replicas, entry.target_replicas
        )
        for entry in listing.running
    }


def queued_of(listing: Reassignments) -> list[TopicPartition]:
    """Return the partitions of a listing whose targets wait for a slot."""
    return [(entry.topic, entry.partition_index) for entry in listing.queued]


def _replicas_to_add(listing: Reassignments) -> set[TopicPartitionReplica]:
    """Return the replicas that running and queued reassignments will add to their brokers."""
    adding = {(*key, broker) for key, running in ongoing_of(listing).items() for broker in running.adding}
    waiting = {(entry.topic, entry.partition_index, broker) for entry in listing.queued for broker in entry.target_replicas}
    return adding | waiting


def current_placements(client: AdminClient, wanted: Mapping[TopicPartition, Sequence[int]]) -> list[Placement]:
    """Return placements of partitions with their current directories, "any" if a broker does not answer."""
    found, _ = directories(client, ((*partition, broker) for partition, brokers in wanted.items() for broker in brokers))
    return [
        Placement(
            partition[0],
            partition[1],
            tuple(brokers),
            tuple(found.get((*partition, broker), (None, None))[0] or ANY for broker in brokers),
        )
        for partition, brokers in wanted.items()
    ]


def _current_replicas(topics: Mapping[str, Topic], plan: Plan) -> dict[TopicPartition, tuple[int, ...]]:
    current: dict[TopicPartition, tuple[int, ...]] = {}
    for name in plan.topics():
        if name not in topics:
            raise ReassignmentFailed(f"Topic {name} not found.")
    for placement in plan.partitions:
        partitions = {entry.partition_index: entry for entry in topics[placement.topic].partitions}
        if placement.partition not in partitions:
            raise ReassignmentFailed(f"Unable to find partition: {placement.name}")
        current[placement.key] = partitions[placement.partition].replica_nodes
    return current


# -- generate ---------------------------------------------------------------------------------------------------------------


def generate(
    client: AdminClient, names: Sequence[str], brokers: Sequence[int], rack_aware: bool
) -> tuple[list[Placement], list[Placement]]:
    """Return (current, proposed) placements of the topics on the live brokers. The same cluster gives the same proposal.

    A running reassignment counts with its target, and its replicas before are the current ones.
    """
    from kraftlab.controller.topics.placement import UsableBroker, place

    topics = describe(client, names)
    missing = next((name for name in names if name not in topics), None)
    if missing is not None:
        raise ReassignmentFailed(f"Topic {missing} not found.")
    alive = {broker.broker_id: broker for broker in client.describe_cluster().brokers}
    usable = [alive[broker] for broker in brokers if broker in alive]
    with_rack = [broker for broker in usable if broker.rack is not None]
    if rack_aware and with_rack and len(with_rack) != len(usable):
        raise ReassignmentFailed(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment without "
            "rack information."
        )
    candidates = [UsableBroker(broker.broker_id, broker.rack if rack_aware else None, False) for broker in usable]
    current: dict[TopicPartition, Sequence[int]] = {}
    proposed: list[Placement] = []
    running = ongoing_of(client.list_partition_reassignments())
    for name in sorted(names):
        partitions = sorted(topics[name].partitions, key=lambda entry: entry.partition_index)
        for entry in partitions:
            move = running.get((name, entry.partition_index))
            current[name, entry.partition_index] = move.before if move is not None else entry.replica_nodes
        first = running.get((name, partitions[0].partition_index))
        factor = len(first.after if first is not None else partitions[0].replica_nodes)
        placed = place(candidates, len(partitions), factor, random.Random(name))
        proposed += [Placement(name, entry.partition_index, replicas) for entry, replicas in zip(partitions, placed, strict=True)]
    return current_placements(client, current), proposed


# -- execute ----------------------------------------------------------------------------------------------------------------


class Execution:
    """One `--execute`. `rate` and `log_dir_rate` are in bytes/s; a negative rate leaves its config unchanged. If the moves own a
    throttle (`options`), no config is set for it. With `expects_current`, partitions that changed since this run read them are
    refused.
    """

    def __init__(
        self,
        client: AdminClient,
        plan: Plan,
        print_lines: PrintLines,
        *,
        rate: int,
        log_dir_rate: int,
        timeout_ms: int,
        allow_change: bool,
        options: MoveOptions = NO_OPTIONS,
        expects_current: bool = False,
    ) -> None:
        self._client = client
        self._plan = plan
        self._print = print_lines
        self._rate = rate
        self._log_dir_rate = log_dir_rate
        self._timeout_ms = timeout_ms
        self._allow_change = allow_change
        self._options = options
        self._expects_current = expects_current
        self.rollback: list[Placement] = []
        self.started: list[TopicPartition] = []
        self.queued: list[TopicPartition] = []

    def run(self, additional: bool) -> None:
        """Start the plan. ReassignmentFailed with the tool's text; the lines printed before it stay true."""
        self._check_options()
        listing = self._client.list_partition_reassignments()
        running = ongoing_of(listing)
        if (running or listing.queued) and not additional:
            raise ReassignmentFailed(text.RUNNING_REFUSAL)
        alive = {broker.broker_id for broker in self._client.describe_cluster().brokers}
        unknown = [broker for broker in self._plan.broker_ids() if broker not in alive]
        if unknown:
            raise ReassignmentFailed("\n".join(f"Error: Unknown broker id {broker}" for broker in unknown))
        try:
            current = _current_replicas(describe(self._client, self._plan.topics()), self._plan)
        except ReassignmentFailed as error:
            raise ReassignmentFailed(f"Error: {error}") from None
        check_directories(self._client, self._plan.moves())
        before = {key: (running[key].original if key in running else None) or replicas for key, replicas in current.items()}
        self.rollback = current_placements(self._client, before)
        self._print(text.rollback_lines(format_plan(self.rollback)))
        if self._options.validate_only:
            self._preview(current)
            return
        self._set_throttles(current, running)
        new_replicas = {replica: path for replica, path in self._plan.moves().items() if replica[2] not in current[replica[:2]]}
        self.announce_directories(new_replicas)
        self.start(new_replicas, current)
        self._move_directories({replica: path for replica, path in new_replicas.items() if replica[:2] in self.queued})

    def _check_options(self) -> None:
        """Refuse options that this cluster does not have, before throttles are set. ApiError."""
        asked = pb.AlterPartitionReassignmentsRequest()
        self._options.fill(asked)
        if self._expects_current:
            asked.topics.add().partitions.add().expected_replicas.SetInParent()
        self._client.check(asked)

    def _preview(self, current: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Let the controller validate the plan, and show the result."""
        response = self._request(current)
        errors = partition_errors(response)
        if errors:
            raise ReassignmentFailed("\n".join(text.error_lines("Error reassigning partition(s):", errors)))
        self._print(text.preview_lines(after_of(response), self._plan.moves()))

    def _request(self, current: Mapping[TopicPartition, Sequence[int]]) -> pb.AlterPartitionReassignmentsResponse:
        return answer_of(
            lambda: self._client.alter_partition_reassignments(
                self._plan.targets(),
                allow_replication_factor_change=self._allow_change,
                expected=current if self._expects_current else None,
                options=self._options,
            )
        )

    def _set_throttles(
        self, current: Mapping[TopicPartition, Sequence[int]], running: Mapping[TopicPartition, OngoingReassignment]
    ) -> None:
        if self._options.throttle is not None:
            self._print([*text.throttle_lines(-1, self._log_dir_rate), text.own_throttle_line(self._options.throttle)])
            self._rate = -1
        else:
            self._print(text.throttle_lines(self._rate, self._log_dir_rate))
        resources = []
        if self._rate >= 0:
            moves = text.partition_moves(self._plan, current, running)
            resources += [
                config_changes(ResourceType.TOPIC, topic, values) for topic, values in text.throttled_replicas(moves).items()
            ]
        rates: dict[int, dict[str, str]] = {}
        if self._rate >= 0:
            for broker in text.throttled_brokers(moves):
                rates.setdefault(broker, {}).update(dict.fromkeys(text.RATE_KEYS, str(self._rate)))
        if self._log_dir_rate >= 0:
            for _, _, broker in self._plan.moves():
                rates.setdefault(broker, {})[text.LOG_DIR_RATE_KEY] = str(self._log_dir_rate)
        resources += [config_changes(ResourceType.BROKER, str(broker), values) for broker, values in sorted(rates.items())]
        alter_configs(self._client, resources)

    def announce_directories(self, new_replicas: Mapping[TopicPartitionReplica, str]) -> None:
        """Name to brokers the directories of replicas that the reassignment will add. A refusal ends the run before it starts."""
        errors = alter_directories(self._client, new_replicas).items()
        refused = {replica: error for replica, error in errors if error.code is not ErrorCode.REPLICA_NOT_AVAILABLE}
        if refused:
            alter_directories(self._client, dict.fromkeys(new_replicas, ANY))
            raise ReassignmentFailed(move_failures(refused))

    def start(self, new_replicas: Mapping[TopicPartitionReplica, str], current: Mapping[TopicPartition, Sequence[int]]) -> None:
        try:
            response = self._request(current)
        except ApiError as error:
            if not isinstance(error, OutcomeUnknown):
                alter_directories(self._client, dict.fromkeys(new_replicas, ANY))
            raise
        errors = partition_errors(response)
        if errors:
            alter_directories(self._client, {r: ANY for r in new_replicas if r[:2] in errors})
            raise ReassignmentFailed("\n".join(text.error_lines("Error reassigning partition(s):", errors)))
        self.queued = [
            (topic.name, entry.partition_index) for topic in response.responses for entry in topic.partitions if entry.queued
        ]
        self.started = [key for key in self._plan.targets() if key not in self.queued]
        if self.started:
            self._print([text.started_line(self.started)])
        if self.queued:
            self._print([text.queued_line(self.queued)])

    def _move_directories(self, queued: Mapping[TopicPartitionReplica, str]) -> None:
        """Start the moves between log directories. `queued` are replicas of queued targets: they may wait for hours, and their
        brokers know the directory already.
        """
        self._print(text.queued_replica_lines(queued))
        moves = {replica: path for replica, path in self._plan.moves().items() if replica not in queued}
        for replica in move_directories(self._client, moves, self._timeout_ms / 1000):
            self._print([text.move_line(replica, moves[replica])])


def partition_errors(response: MovesResponse) -> dict[TopicPartition, str]:
    """Return the errors of an answer by partition."""
    return {
        (topic.name, entry.partition_index): api_error(entry.error_code, entry.error_message).message or ""
        for topic in response.responses
        for entry in topic.partitions
        if entry.error_code
    }


# -- configs ----------------------------------------------------------------------------------------------------------------


def alter_configs(client: AdminClient, resources: Sequence[pb.AlterConfigsResource]) -> None:
    """Alter configs. ReassignmentFailed with a line for each resource that was refused."""
    if not resources:
        return
    refused = [
        f"Error: cannot change configs of {ResourceType(result.resource_type).name.lower()} {result.resource_name}: "
        f"{api_error(result.error_code, result.error_message).message}"
        for result in answer_of(lambda: client.incremental_alter_configs(resources)).responses
        if result.error_code
    ]
    if refused:
        raise ReassignmentFailed("\n".join(refused))


def clear_throttles(client: AdminClient, topics: Iterable[str], print_lines: PrintLines) -> None:
    """Delete the throttles of all registered brokers, and of the existing topics among these. The active controller changes the
    configs of a broker that is down. ReassignmentFailed names what could not be cleared, after everything else is cleared.
    """
    named = list(topics)
    brokers = sorted(broker.broker_id for broker in client.describe_cluster(include_fenced_brokers=True).brokers)
    print_lines(text.cleared_lines(brokers, named))
    rates = dict.fromkeys((*text.RATE_KEYS, text.LOG_DIR_RATE_KEY))
    parts = [[config_changes(ResourceType.BROKER, str(broker), rates)] for broker in brokers]
    lists = dict.fromkeys((text.LEADER_LIST_KEY, text.FOLLOWER_LIST_KEY))
    parts.append([config_changes(ResourceType.TOPIC, topic, lists) for topic in describe(client, named)])
    failures: list[str] = []
    for part in parts:
        try:
            alter_configs(client, part)
        except ReassignmentFailed as error:
            failures.append(str(error))
        except (ApiError, ClusterUnreachable) as error:
            failures.append(f"Error: cannot clear throttles of broker {part[0].resource_name}: {error}")
    if failures:
        raise ReassignmentFailed("\n".join(failures))


# -- verify -----------------------------------------------------------------------------------------------------------------


class Verification:
    """The state of a plan: its partitions, its log-dir moves, and whether any reassignment runs in the cluster."""

    def __init__(self, client: AdminClient, plan: Plan) -> None:
        listing = client.list_partition_reassignments()
        running = {*ongoing_of(listing), *queued_of(listing)}
        to_add = _replicas_to_add(listing)
        topics = describe(client, plan.topics())
        self.anything_runs = bool(running)
        self.partitions: dict[TopicPartition, PartitionState] = {}
        for placement in plan.partitions:
            entries = topics[placement.topic].partitions if placement.topic in topics else ()
            found = next((entry for entry in entries if entry.partition_index == placement.partition), None)
            replicas = found.replica_nodes if found is not None else ()
            self.partitions[placement.key] = PartitionState(replicas, placement.replicas, placement.key in running)
        moves = plan.moves()
        places, silent = directories(client, moves)
        members = client.describe_cluster(include_fenced_brokers=True).brokers if silent else ()
        registered = {broker.broker_id for broker in members}
        self.moves: dict[TopicPartitionReplica, LogDirMoveState] = {}
        for replica, path in moves.items():
            current, future = places.get(replica, (None, None))
            answer = Answer.of(is_silent=replica[2] in silent, is_registered=replica[2] in registered)
            self.moves[replica] = LogDirMoveState(path, current, future, answer, replica in to_add)

    @property
    def may_clear_throttles(self) -> bool:
        return not self.anything_runs and all(state.progress is not text.Progress.RUNNING for state in self.moves.values())

    def progress(self) -> text.Progress:
        return text.overall((*self.partitions.values(), *self.moves.values()))


# -- cancel -----------------------------------------------------------------------------------------------------------------


class CancelOutcome(msgspec.Struct, frozen=True):
    """Outcome of a cancel: the cancelled partitions, the dropped moves with the directories of their replicas, the reassignments
    that go on, and the brokers of the plan's moves that did not answer, with the reason.
    """

    partitions: list[TopicPartition]
    moves: dict[TopicPartitionReplica, str]
    others: dict[TopicPartition, OngoingReassignment]
    silent: dict[int, str]


def cancel(
    client: AdminClient, plan: Plan | None, topics: Sequence[str] | None = None, options: MoveOptions = NO_OPTIONS
) -> CancelOutcome:
    """Cancel the running and queued reassignments of a plan, of topics, or of all partitions. ReassignmentFailed."""
    response = _request_cancel(client, plan, topics, options)
    errors = {} if response is None else partition_errors(response)
    if errors:
        raise ReassignmentFailed("\n".join(text.error_lines("Error cancelling partition reassignments for:", errors)))
    cancelled = [] if response is None else sorted(after_of(response))
    moves: dict[TopicPartitionReplica, str] = {}
    silent: dict[int, str] = {}
    if plan is not None:
        found, silent = directories(client, plan.moves())
        moves = {
            replica: found[replica][0] or ANY for replica in plan.moves() if replica in found and found[replica][1] is not None
        }
        errors_of_moves = alter_directories(client, dict.fromkeys(moves, ANY)).items()
        refused = {replica: error for replica, error in errors_of_moves if error.code is not ErrorCode.REPLICA_NOT_AVAILABLE}
        if refused:
            raise ReassignmentFailed(move_failures(refused))
        # Brokers forget the directories of replicas that they do not have: a later move must not create them there.
        absent = [replica for replica in plan.moves() if replica not in found and replica[2] not in silent]
        alter_directories(client, dict.fromkeys(absent, ANY))
    return CancelOutcome(cancelled, moves, ongoing(client), silent)


def preview_cancel(
    client: AdminClient, plan: Plan | None, topics: Sequence[str] | None, options: MoveOptions
) -> dict[TopicPartition, OngoingReassignment]:
    """Return the reassignments after a cancel. `options` have validate_only: nothing is cancelled."""
    response = _request_cancel(client, plan, topics, options)
    if response is None:
        return {}
    errors = partition_errors(response)
    if errors:
        raise ReassignmentFailed("\n".join(text.error_lines("Error cancelling partition reassignments for:", errors)))
    return after_of(response)


def _request_cancel(
    client: AdminClient, plan: Plan | None, topics: Sequence[str] | None, options: MoveOptions
) -> MovesResponse | None:
    """Request the cancel; return None if no reassignment of the plan runs or waits."""
    try:
        if plan is None:
            return answer_of(
                lambda: client.cancel_reassignments(topics, validate_only=options.validate_only, force=options.force)
            )
        listing = client.list_partition_reassignments()
        busy = [*ongoing_of(listing), *queued_of(listing)]
        wanted = dict.fromkeys(key for key in busy if key in plan.targets())
        return answer_of(lambda: client.alter_partition_reassignments(wanted, options=options)) if wanted else None
    except ApiError as error:
        raise ReassignmentFailed(f"Error: {error.message or error}") from None


def after_of(response: MovesResponse) -> dict[TopicPartition, OngoingReassignment]:
    """Return the partitions of an answer as they are after the request; as they would be after a validation."""
    return {
        (topic.name, entry.partition_index): OngoingReassignment(
            tuple(entry.replicas), tuple(entry.adding_replicas), tuple(entry.removing_replicas)
        )
        for topic in response.responses
        for entry in topic.partitions
        if not entry.error_code
    }
