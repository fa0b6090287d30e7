"""The life of brokers: registration, heartbeat, fencing, controlled shutdown, directories (KIP-631, KIP-858, KIP-841).

Theory of operation. A broker registers with a new incarnation id per process start. It gets an epoch, the offset of the first
record of its registration, and names that epoch in all later requests. It is fenced until it has applied its own registration.
The table in `heartbeats.py` decides the next state of a broker; this module writes the records of that state. A broker that is
fenced or unregistered leaves every ISR and leadership first and is marked second. A broker that comes back is marked first,
and then considered for partitions without a leader. A controlled shutdown ends when every active broker has applied the
changes that moved its leaderships.

A registration that names the epoch of a clean shutdown proves that the broker has lost nothing, and the broker stays eligible
to lead. Any other known broker leaves ISRs and ELRs first (KIP-966). Heartbeats also report directories: offline ones, whose
replicas leave at once, and cordoned ones, which get no new replicas (KIP-1066).

A registration is one change for readers. Fencing and unregistering change partitions before the broker, in one event and in
several batches if there are many partitions. Any prefix of these batches is consistent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import Uuid, is_reserved, to_text
from kraftlab.metadata.features import KRAFT_VERSION, METADATA_VERSION
from kraftlab.metadata.image import BrokerImage
from kraftlab.metadata.moves import TopicPartition
from kraftlab.metadata.peer_rpc import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from kraftlab.metadata.records import AnyRecord, BrokerRegistrationChange, Listener, RegisterBroker, UnregisterBroker

from ..engine.feature_levels import CORDONED_DIRECTORIES, DIRECTORIES, TRANSACTIONS, metadata_version
from ..engine.state import Context, ControllerState, Outcome, Settings
from ..partitions.partitions import (
    check_broker_epoch,
    with_broker,
    without_broker,
    without_data,
    without_unclean_broker,
)
from .heartbeats import BrokerState, HeartbeatFacts, HeartbeatTable, next_state

logger = logging.getLogger("kraftlab.controller")

ID_MAX = (1 << 31) - 1
PORT_MAX = (1 << 16) - 1
LEVEL_MAX = (1 << 15) - 1
LONG_PARTITIONS = 1000


def is_long(state: ControllerState, broker_id: int) -> bool:
    """Return True if a broker's end or return may change very many partitions."""
    return state.index.concerned_by(broker_id) > LONG_PARTITIONS


def register(
    state: ControllerState, table: HeartbeatTable, request: BrokerRegistrationRequest, context: Context
) -> Outcome[BrokerRegistrationResponse]:
    """Register an incarnation. The same incarnation again is refreshed and keeps its epoch and flags; replicas in a directory
    that it no longer names leave ISRs and leaderships, as after a heartbeat that reports the directory offline, and
    replicas in one that has come back may lead partitions that have no leader.

    ApiError, in this order: INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION (id, listeners, levels),
    DUPLICATE_BROKER_REGISTRATION (another incarnation is alive, and this one does not replace it), INVALID_REGISTRATION
    (directories), UNSUPPORTED_VERSION (features).
    """
    existing = state.image.cluster.brokers.get(request.broker_id)
    _check_registration(state, table, request, existing, context)
    refreshed = existing if existing is not None and existing.incarnation_id == request.incarnation_id else None
    records: list[AnyRecord] = []
    if existing is not None and refreshed is None:
        records += _records_of_replaced(state, existing, request, context.settings)
    if refreshed is not None:
        lost = _partitions_in_lost_directories(state, refreshed, request)
        records += without_data(state, lost, refreshed.broker_id, context.settings)
    epoch = context.next_offset if refreshed is None else refreshed.epoch
    records.append(
        RegisterBroker(
            0,
            request.broker_id,
            request.incarnation_id,
            epoch,
            request.listeners,
            tuple(sorted(request.features)),
            request.rack,
            True if refreshed is None else refreshed.fenced,
            False if refreshed is None else refreshed.in_controlled_shutdown,
            tuple(sorted(request.log_dirs)) if metadata_version(state.image) >= DIRECTORIES else (),
            cordoned_log_dirs=()
            if refreshed is None
            else tuple(each for each in refreshed.cordoned_log_dirs if each in request.log_dirs),
        )
    )
    if refreshed is not None and not refreshed.fenced and not set(request.log_dirs) <= set(refreshed.log_dirs):
        after = state.replay(records, context.next_offset, state.image.provenance)
        records += with_broker(after, after.index.leaderless(), request.broker_id, context.settings)

    def appended(end_offset: int) -> None:
        if refreshed is not None and table.contact(request.broker_id) is not None:
            table.note_contact(request.broker_id, -1, context.now_ms)
        else:
            table.register(request.broker_id, context.now_ms)
            logger.info("broker %d registered with epoch %d", request.broker_id, epoch)

    response = BrokerRegistrationResponse(ErrorCode.NONE, None, epoch)
    # Without transactions a prefix of the changes may be committed alone: the broker stays fenced until its registration is.
    is_one = metadata_version(state.image) >= TRANSACTIONS
    return Outcome(records, response, is_one, appended, "broker registration")


def _records_of_replaced(
    state: ControllerState, existing: BrokerImage, request: BrokerRegistrationRequest, settings: Settings
) -> list[AnyRecord]:
    """Records that take the old incarnation out of ISRs and leaderships before the new one registers.

    An incarnation that was shut down cleanly in its last epoch has all its data, so it stays where it may become leader. After
    any other end the tails of its logs may be lost, so it leaves ISR and ELR (KIP-966). It leaves them too for replicas in a
    directory that the new incarnation does not name: the broker may create them again, empty, in another directory.
    """
    broker_id = existing.broker_id
    if request.previous_broker_epoch != existing.epoch:
        logger.info("broker %d was not shut down cleanly in epoch %d", broker_id, existing.epoch)
        return [*without_unclean_broker(state, broker_id, settings)]
    lost = _partitions_in_lost_directories(state, existing, request)
    records = without_data(state, lost, broker_id, settings)
    if not existing.fenced:
        kept = sorted({*state.index.partitions_in_isr(broker_id)}.difference(lost))
        records += without_broker(state, kept, broker_id, settings)
    return [*records]


def _partitions_in_lost_directories(
    state: ControllerState, known: BrokerImage, request: BrokerRegistrationRequest
) -> list[TopicPartition]:
    """Partitions with a replica in a directory that the registration no longer names."""
    lost = [directory for directory in known.log_dirs if directory not in request.log_dirs]
    return _partitions_in_directories(state, known.broker_id, lost)


def _partitions_in_directories(state: ControllerState, broker_id: int, directories: Iterable[Uuid]) -> list[TopicPartition]:
    """Partitions whose replica on that broker is in one of the directories. A disk may come from another broker, and then
    replicas of that broker can still be assigned to it.
    """
    topics = state.image.topics.by_id
    return [
        (topic_id, number)
        for directory in directories
        for topic_id, number in state.index.partitions_in_directory(directory)
        if topics[topic_id].partitions[number].directory_of(broker_id) == directory
    ]


def unregister(
    state: ControllerState, request: admin_pb2.UnregisterBrokerRequest, context: Context
) -> Outcome[admin_pb2.UnregisterBrokerResponse]:
    """Remove a broker from the cluster: from every ISR and ELR first, from the registrations last. Replica lists stay.

    ApiError BROKER_ID_NOT_REGISTERED, or STALE_BROKER_EPOCH if the registration is not the expected one.
    """
    broker = state.image.cluster.brokers.get(request.broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered")
    if request.HasField("expected_broker_epoch") and request.expected_broker_epoch != broker.epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {request.broker_id} is registered with epoch {broker.epoch}, not {request.expected_broker_epoch}: it has "
            "registered again. Describe it again before unregistering it.",
        )
    records: list[AnyRecord] = [*without_unclean_broker(state, broker.broker_id, context.settings)]
    records.append(UnregisterBroker(0, broker.broker_id, broker.epoch))
    response = admin_pb2.UnregisterBrokerResponse()
    response.header.error_message = ""
    return Outcome(records, response, atomic=False)


def _check_registration(
    state: ControllerState,
    table: HeartbeatTable,
    request: BrokerRegistrationRequest,
    existing: BrokerImage | None,
    context: Context,
) -> None:
    if request.cluster_id != context.settings.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Broker {request.broker_id} belongs to cluster {request.cluster_id}, this controller to "
            f"{context.settings.cluster_id}. "
            "Check controller.quorum.voters and the cluster.id in the broker's meta.properties.",
        )
    check_node(request.broker_id, request.listeners, request.features)
    if existing is not None and existing.incarnation_id != request.incarnation_id:
        alive = not existing.fenced and table.has_valid_session(request.broker_id, context.now_ms)
        if alive and not _replaces_dead_incarnation(existing, request):
            raise ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker with id {request.broker_id} is alive, or its session of "
                f"{context.settings.session_timeout_ms} ms has not ended yet. Stop it, or retry until then.",
            )
    if metadata_version(state.image) >= DIRECTORIES:
        _check_directories(state, request)
    check_features(state, request.broker_id, request.features, context)


def check_node(node_id: int, listeners: tuple[Listener, ...], features: tuple[tuple[str, int, int], ...]) -> None:
    """ApiError INVALID_REGISTRATION if a node's id, listeners or feature levels do not fit the protocol's responses."""

    def refuse(reason: str) -> ApiError:
        return ApiError(ErrorCode.INVALID_REGISTRATION, f"Node {node_id} {reason}")

    if not 0 <= node_id <= ID_MAX:
        raise refuse(f"has an invalid id: ids are numbers from 0 to {ID_MAX}. Set another node.id.")
    if len({listener.name for listener in listeners}) < len(listeners):
        raise refuse("names a listener twice. Give each of advertised.listeners a name of its own.")
    for listener in listeners:
        if not 0 <= listener.port <= PORT_MAX:
            raise refuse(f"advertises {listener!r}: ports are numbers up to {PORT_MAX}. Correct advertised.listeners.")
    for name, lowest, highest in features:
        if not 0 <= lowest <= highest <= LEVEL_MAX:
            raise refuse(f"supports {name} from level {lowest} to {highest}: levels rise, from 0 to {LEVEL_MAX}.")


def _replaces_dead_incarnation(existing: BrokerImage, request: BrokerRegistrationRequest) -> bool:
    """Return True if the new incarnation holds every directory and every endpoint of the old one.

    A process locks its directories and keeps its ports while it runs, so the old incarnation has ended. Waiting for its
    session to end would only slow down a restart after a crash. Copied directories on another machine do not pass: its
    endpoints differ.
    """
    has_directories = bool(existing.log_dirs) and set(existing.log_dirs) <= set(request.log_dirs)
    return has_directories and existing.listeners == request.listeners


def _check_directories(state: ControllerState, request: BrokerRegistrationRequest) -> None:
    def refuse(reason: str) -> ApiError:
        return ApiError(ErrorCode.INVALID_REGISTRATION, f"Broker {request.broker_id} {reason}")

    if not request.log_dirs:
        raise refuse("registers no log directory; give it log.dirs and format them.")
    if len(set(request.log_dirs)) < len(request.log_dirs):
        raise refuse("registers a directory id twice; was one log directory copied from another?")
    for directory in request.log_dirs:
        if is_reserved(directory):
            raise refuse(f"registers the reserved directory id {to_text(directory)}; format that log directory again.")
        owner = state.index.broker_of_directory(directory)
        if owner is not None and owner != request.broker_id:
            raise refuse(
                f"registers directory id {to_text(directory)}, which belongs to broker {owner}; was it copied from there?"
            )


def check_features(state: ControllerState, node_id: int, features: tuple[tuple[str, int, int], ...], context: Context) -> None:
    """Require support for every finalized level, the quorum's own included. A feature that the node does not name is supported
    at level 0 only (metadata.version: at level 1).
    """
    ranges = {name: (lowest, highest) for name, lowest, highest in features}
    finalized = {**state.image.features, KRAFT_VERSION: context.quorum().kraft_version}
    for name, level in sorted(finalized.items()):
        lowest, highest = ranges.get(name, (1, 1) if name == METADATA_VERSION else (0, 0))
        if not lowest <= level <= highest:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register node {node_id} because it supports {name} {lowest} to {highest}, and the cluster's level is "
                f"{level}. Run a version of kraftlab that supports it.",
            )


def heartbeat_facts(
    state: ControllerState, table: HeartbeatTable, request: BrokerHeartbeatRequest, broker: BrokerImage
) -> tuple[BrokerState, HeartbeatFacts]:
    """Current state of the broker, and the facts that its next state depends on."""
    current = table.state_of(request.broker_id, broker.fenced)
    leads = shutdown_seen = False
    if request.want_shutdown or current is BrokerState.CONTROLLED_SHUTDOWN:
        leads = state.index.leads_any(request.broker_id)
    if current is BrokerState.CONTROLLED_SHUTDOWN:
        contact = table.contact(request.broker_id)
        assert contact is not None
        shutdown_seen = contact.controlled_shutdown_offset <= table.lowest_offset(_active_brokers(state))
    caught_up = request.current_metadata_offset > broker.registration_offset
    serves_nothing = broker.fenced and not broker.log_dirs and metadata_version(state.image) >= DIRECTORIES
    wants_fence = request.want_fence or serves_nothing
    return current, HeartbeatFacts(wants_fence, request.want_shutdown, caught_up, leads, shutdown_seen)


def _active_brokers(state: ControllerState) -> list[int]:
    return [broker_id for broker_id, broker in state.image.cluster.brokers.items() if broker.is_active]


def quick_heartbeat(
    committed: ControllerState, newest: ControllerState, table: HeartbeatTable, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse | None:
    """Answer to a heartbeat that changes nothing and depends on no uncommitted state. None if the heartbeat has to go through
    the queue.
    """
    broker = committed.image.cluster.brokers.get(request.broker_id)
    if (
        broker is None
        or broker.epoch != request.broker_epoch
        or newest.image.cluster.brokers.get(request.broker_id) is not broker
    ):
        return None
    if any(directory in broker.log_dirs for directory in request.offline_log_dirs):
        return None
    if _cordons(broker, request, metadata_version(newest.image)) is not None:
        return None
    current, facts = heartbeat_facts(committed, table, request, broker)
    following = next_state(current, facts)
    return _response(following, facts) if following is current else None


def heartbeat(
    state: ControllerState, table: HeartbeatTable, request: BrokerHeartbeatRequest, context: Context
) -> Outcome[BrokerHeartbeatResponse]:
    """Apply the transition that a heartbeat causes. ApiError STALE_BROKER_EPOCH if the broker has to register first."""
    broker = check_broker_epoch(state, request.broker_id, request.broker_epoch)
    current, facts = heartbeat_facts(state, table, request, broker)
    following = next_state(current, facts)
    records: list[AnyRecord] = []
    appended: Callable[[int], None] | None = None
    if following is not current:
        records, appended = _change_state(state, table, broker, following, context.settings)
    cordoned = _cordons(broker, request, metadata_version(state.image))
    if cordoned is not None:
        records.append(BrokerRegistrationChange(0, broker.broker_id, broker.epoch, cordoned_log_dirs=cordoned))
    offline = tuple(directory for directory in request.offline_log_dirs if directory in broker.log_dirs)
    if offline:
        records = _with_directories_offline(state, broker, records, offline, context)
        if {*offline} == {*broker.log_dirs} and following is not BrokerState.SHUTDOWN_NOW:
            following = BrokerState.FENCED
    return Outcome(records, _response(following, facts), atomic=False, appended=appended)


def _cordons(broker: BrokerImage, request: BrokerHeartbeatRequest, level: int) -> tuple[Uuid, ...] | None:
    """Reported cordoned directories. None if they are known already, or if metadata.version does not have them."""
    if request.cordoned_log_dirs is None or level < CORDONED_DIRECTORIES:
        return None
    reported = tuple(sorted({*request.cordoned_log_dirs}.intersection(broker.log_dirs)))
    return None if reported == broker.cordoned_log_dirs else reported


def _response(following: BrokerState, facts: HeartbeatFacts) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(
        ErrorCode.NONE,
        None,
        is_caught_up=facts.caught_up,
        is_fenced=following in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        should_shutdown=following is BrokerState.SHUTDOWN_NOW,
    )


def _change_state(
    state: ControllerState, table: HeartbeatTable, broker: BrokerImage, following: BrokerState, settings: Settings
) -> tuple[list[AnyRecord], Callable[[int], None]]:
    """Records of a change of state, and a function that updates the table once they are appended."""
    broker_id = broker.broker_id
    if following is BrokerState.UNFENCED:
        unfence: AnyRecord = BrokerRegistrationChange(0, broker_id, broker.epoch, fenced=False)
        elections = with_broker(state, state.index.leaderless(), broker_id, settings)
        return [unfence, *elections], lambda end_offset: logger.info("broker %d is unfenced", broker_id)
    if following is BrokerState.CONTROLLED_SHUTDOWN:
        records: list[AnyRecord] = []
        if not broker.in_controlled_shutdown:
            records.append(BrokerRegistrationChange(0, broker_id, broker.epoch, in_controlled_shutdown=True))
        records += without_broker(state, state.index.partitions_in_isr(broker_id), broker_id, settings)
        return records, lambda end_offset: table.enter_controlled_shutdown(broker_id, end_offset)

    def gone(end_offset: int) -> None:
        table.leave_controlled_shutdown(broker_id)
        logger.info("broker %d fenced at its own request", broker_id)

    return _fence_records(state, broker, settings), gone


def _fence_records(state: ControllerState, broker: BrokerImage, settings: Settings) -> list[AnyRecord]:
    if broker.fenced:
        return []
    changes = without_broker(state, state.index.partitions_in_isr(broker.broker_id), broker.broker_id, settings)
    return [*changes, BrokerRegistrationChange(0, broker.broker_id, broker.epoch, fenced=True)]


def fence(state: ControllerState, table: HeartbeatTable, broker_id: int, context: Context) -> Outcome[None]:
    """Fence a broker whose session has ended, or whose process is dead."""
    broker = state.image.cluster.brokers.get(broker_id)
    records = [] if broker is None else _fence_records(state, broker, context.settings)
    return Outcome(records, None, atomic=False, appended=lambda end_offset: table.leave_controlled_shutdown(broker_id))


def _with_directories_offline(
    state: ControllerState,
    broker: BrokerImage,
    records: list[AnyRecord],
    offline: tuple[bytes, ...],
    context: Context,
) -> list[AnyRecord]:
    """Append the loss of directories to a heartbeat's own records. The replicas there leave ISRs and leaderships first. They
    are not eligible to lead either, since a repaired directory may come back empty.

    A broker that loses its last directory is fenced until it registers others: it cannot serve anything.
    """
    if records:
        state = state.replay(records, context.next_offset, state.image.provenance)
        broker = state.image.cluster.brokers[broker.broker_id]
    remaining = tuple(directory for directory in broker.log_dirs if directory not in offline)
    if remaining:
        keys = _partitions_in_directories(state, broker.broker_id, offline)
    else:
        keys = [*state.index.partitions_in_isr(broker.broker_id), *state.index.partitions_in_elr(broker.broker_id)]
    change = BrokerRegistrationChange(
        0, broker.broker_id, broker.epoch, fenced=None if remaining or broker.fenced else True, log_dirs=remaining
    )
    return [*records, *without_data(state, keys, broker.broker_id, context.settings), change]
