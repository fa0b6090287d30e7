"""Leaders and in-sync sets: changes when brokers come and go, and AlterPartition requests of leaders.

Theory of operation. `partition_change.build_change` builds every change of a partition, and needs to know which brokers may
lead it. `Eligibility` answers that for the state that an operation sees, with the brokers that the operation removes or adds.
Fencing walks the partitions with the broker in their ISR, unfencing those without a leader. Both lists come from the index, so
the cost is that of the broker's share.

AlterPartition is a leader's request to change its ISR. Its checks are one table, and the first match wins. The leader logs the
text of an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import MIGRATING, UNASSIGNED, Uuid
from kraftlab.metadata.eligible_leaders import min_isr_if_on
from kraftlab.metadata.image import BrokerImage, PartitionImage
from kraftlab.metadata.moves import TopicPartition
from kraftlab.metadata.partitions import partition_after
from kraftlab.metadata.peer_rpc import AlterPartitionRequest, AlterPartitionResponse, IsrChange, IsrChangeResult
from kraftlab.metadata.records import NO_LEADER, RECOVERED, RECOVERING, PartitionChange

from ..configs.description import unclean_election_enabled
from ..engine.feature_levels import shrink_raises_epoch
from ..engine.state import Context, ControllerState, Outcome, Settings
from .election import Election
from .partition_change import build_change, plain_change, plain_leader

NOT_CHECKED = -1
"""Broker epoch in an ISR that the controller does not check (KIP-841)."""


class Eligibility:
    """Brokers that may lead: `removed` counts as unregistered, `added` as unfenced, whatever the image says. Results are
    cached, so make one per operation.
    """

    __slots__ = ("_added", "_brokers", "_online", "removed")

    def __init__(self, brokers: Mapping[int, BrokerImage], removed: int | None = None, added: int | None = None) -> None:
        self.removed = removed
        self._brokers = brokers
        self._added = added
        self._online: dict[int, Collection[Uuid] | None] = {}

    def accepts(self, partition: PartitionImage, broker_id: int) -> bool:
        """Return True if a broker is active and its directory for this partition is online (KIP-858)."""
        try:
            online = self._online[broker_id]
        except KeyError:
            online = self._online_directories(broker_id)
        if online is None:
            return False
        directory = partition.directory_of(broker_id)
        return directory is None or directory in online or self._brokers[broker_id].has_online(directory)

    def _online_directories(self, broker_id: int) -> Collection[Uuid] | None:
        """Online directories of this broker, None if it is not active."""
        broker = None if broker_id == self.removed else self._brokers.get(broker_id)
        is_unfenced = broker is not None and (not broker.fenced or broker_id == self._added)
        online = broker.log_dirs if broker is not None and is_unfenced and not broker.in_controlled_shutdown else None
        self._online[broker_id] = online
        return online


def default_directory(brokers: Mapping[int, BrokerImage]) -> Callable[[int], Uuid]:
    """Return a function for the directory of a new replica (KIP-858): the broker's only directory, otherwise the broker
    chooses one and reports it.
    """

    def directory_for(broker_id: int) -> Uuid:
        broker = brokers.get(broker_id)
        if broker is None:
            return UNASSIGNED
        if not broker.log_dirs:
            return MIGRATING
        return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED

    return directory_for


def without_broker(
    state: ControllerState, keys: Iterable[TopicPartition], broker_id: int, settings: Settings
) -> list[PartitionChange]:
    """Remove a broker from the ISR and the leadership of these partitions."""
    eligibility = Eligibility(state.image.cluster.brokers, removed=broker_id)
    return _updates(state, keys, eligibility, settings)


def with_broker(
    state: ControllerState, keys: Iterable[TopicPartition], broker_id: int, settings: Settings
) -> list[PartitionChange]:
    """Elect leaders of these partitions after a broker has come back."""
    eligibility = Eligibility(state.image.cluster.brokers, added=broker_id)
    return _updates(state, keys, eligibility, settings)


def without_unclean_broker(state: ControllerState, broker_id: int, settings: Settings) -> list[PartitionChange]:
    """Remove a broker that stopped uncleanly from every ISR and ELR: its disk may have lost acknowledged records (KIP-966). It
    stays known as the last leader where it was.
    """
    index = state.index
    keys = sorted({*index.partitions_in_isr(broker_id), *index.partitions_in_elr(broker_id)})
    return without_data(state, keys, broker_id, settings)


def without_data(
    state: ControllerState, keys: Iterable[TopicPartition], broker_id: int, settings: Settings
) -> list[PartitionChange]:
    """Remove a broker from the ISR, the ELR and the leadership of these partitions, whose logs it has lost or may have lost."""
    eligibility = Eligibility(state.image.cluster.brokers, removed=broker_id)
    return _updates(state, keys, eligibility, settings, uncleanly_stopped=(broker_id,))


def _updates(
    state: ControllerState,
    keys: Iterable[TopicPartition],
    eligibility: Eligibility,
    settings: Settings,
    uncleanly_stopped: tuple[int, ...] = (),
) -> list[PartitionChange]:
    image = state.image
    directory_for = default_directory(image.cluster.brokers)
    raises_epoch = shrink_raises_epoch(image)
    smaller: dict[tuple[int, ...], tuple[int, ...]] = {}
    accepts = eligibility.accepts
    records = []
    for topic_id, same_topic in groupby(keys, key=itemgetter(0)):
        topic = image.topics.by_id[topic_id]
        unclean = unclean_election_enabled(image, topic.name, settings)
        election = Election.UNCLEAN if unclean else Election.ONLINE
        min_isr = min_isr_if_on(image, topic.name)
        partitions = topic.partitions
        for _, number in same_topic:
            partition = partitions[number]
            isr = smaller.get(partition.isr)
            if isr is None:
                isr = tuple(member for member in partition.isr if member != eligibility.removed)
                smaller[partition.isr] = isr
            leader = plain_leader(partition, isr, min_isr, election, accepts)
            if leader != NO_LEADER:
                record = plain_change(partition, number, topic_id, isr, leader, raises_epoch)
            else:
                record = build_change(
                    partition,
                    number,
                    topic_id,
                    accepts=accepts,
                    default_directory=directory_for,
                    min_isr=min_isr,
                    target_isr=isr,
                    election=election,
                    uncleanly_stopped=uncleanly_stopped,
                    shrink_raises_epoch=raises_epoch,
                )
            if record is not None:
                records.append(record)
    return records


def check_broker_epoch(state: ControllerState, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Return the sender's registration. ApiError STALE_BROKER_EPOCH if it has none or another epoch."""
    broker = state.image.cluster.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        known = "is not registered" if broker is None else f"is registered with epoch {broker.epoch}"
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} {known}; the request has epoch {broker_epoch}. Register again."
        )
    return broker


class _IsrRequest(NamedTuple):
    """One change with the facts that its checks look at."""

    sender: int
    change: IsrChange
    partition: PartitionImage
    isr: tuple[int, ...]
    brokers: Mapping[int, BrokerImage]

    def ineligible(self) -> bool:
        eligibility = Eligibility(self.brokers)
        for broker_id, epoch in self.change.isr:
            broker = self.brokers.get(broker_id)
            if broker is None or not broker.is_active or epoch not in (NOT_CHECKED, broker.epoch):
                return True
            if broker_id not in self.partition.isr and not eligibility.accepts(self.partition, broker_id):
                # A follower may have fetched once more while its directory was failing.
                return True
        return False


ALTER_PARTITION_CHECKS: tuple[tuple[str, Callable[[_IsrRequest], bool], ErrorCode], ...] = (
    (
        "leader epoch ahead of this controller",
        lambda a: a.change.leader_epoch > a.partition.leader_epoch,
        ErrorCode.NOT_CONTROLLER,
    ),
    (
        "partition epoch ahead of this controller",
        lambda a: a.change.partition_epoch > a.partition.partition_epoch,
        ErrorCode.NOT_CONTROLLER,
    ),
    ("leader epoch is over", lambda a: a.change.leader_epoch < a.partition.leader_epoch, ErrorCode.FENCED_LEADER_EPOCH),
    ("sender does not lead", lambda a: a.sender != a.partition.leader, ErrorCode.INVALID_REQUEST),
    (
        "partition epoch is over",
        lambda a: a.change.partition_epoch < a.partition.partition_epoch,
        ErrorCode.INVALID_UPDATE_VERSION,
    ),
    (
        "ISR has duplicates, or members without a replica",
        lambda a: len(set(a.isr)) < len(a.isr) or not set(a.isr) <= set(a.partition.replicas),
        ErrorCode.INVALID_REQUEST,
    ),
    ("ISR lacks the leader", lambda a: a.partition.leader not in a.isr, ErrorCode.INVALID_REQUEST),
    (
        "unknown recovery state",
        lambda a: a.change.leader_recovery_state not in (RECOVERED, RECOVERING),
        ErrorCode.INVALID_REQUEST,
    ),
    (
        "recovering with more than the leader in sync",
        lambda a: a.change.leader_recovery_state == RECOVERING and len(a.isr) > 1,
        ErrorCode.INVALID_REQUEST,
    ),
    (
        "recovered leaders do not recover again",
        lambda a: a.change.leader_recovery_state == RECOVERING and a.partition.leader_recovery_state == RECOVERED,
        ErrorCode.INVALID_REQUEST,
    ),
    ("a member is not active, has restarted, or has lost its directory", _IsrRequest.ineligible, ErrorCode.INELIGIBLE_REPLICA),
)
"""Condition → error for one partition of an AlterPartition request (KIP-497, KIP-841), in the order of the checks."""


def alter_partition(state: ControllerState, request: AlterPartitionRequest, context: Context) -> Outcome[AlterPartitionResponse]:
    """Change ISRs on their leaders' request. ApiError STALE_BROKER_EPOCH for the whole request; other errors are per
    partition.

    A change that completes a reassignment may move the leadership: it is made, and the sender gets NEW_LEADER_ELECTED. If a
    partition is named twice, the second entry is refused, since it was computed from state that the first one changes.
    """
    check_broker_epoch(state, request.broker_id, request.broker_epoch)
    records: list[PartitionChange] = []
    results: list[IsrChangeResult] = []
    seen: set[TopicPartition] = set()
    for change in request.changes:
        key = (change.topic_id, change.partition)
        if key in seen:
            results.append(_refused(change, ErrorCode.INVALID_REQUEST))
            continue
        seen.add(key)
        result, record = _alter_one(state, request.broker_id, change, context)
        results.append(result)
        if record is not None:
            records.append(record)
    return Outcome(records, AlterPartitionResponse(ErrorCode.NONE, None, tuple(results)), atomic=False)


def _alter_one(
    state: ControllerState, sender: int, change: IsrChange, context: Context
) -> tuple[IsrChangeResult, PartitionChange | None]:
    image = state.image
    topic = image.topics.by_id.get(change.topic_id)
    if topic is None:
        return _refused(change, ErrorCode.UNKNOWN_TOPIC_ID), None
    partition = topic.partitions.get(change.partition)
    if partition is None:
        return _refused(change, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None
    isr = tuple(broker_id for broker_id, _ in change.isr)
    requested = _IsrRequest(sender, change, partition, isr, image.cluster.brokers)
    for _, applies, code in ALTER_PARTITION_CHECKS:
        if applies(requested):
            return _refused(change, code), None
    unclean = unclean_election_enabled(image, topic.name, context.settings)
    record = build_change(
        partition,
        change.partition,
        change.topic_id,
        accepts=Eligibility(image.cluster.brokers).accepts,
        default_directory=default_directory(image.cluster.brokers),
        min_isr=min_isr_if_on(image, topic.name),
        target_isr=isr,
        election=Election.UNCLEAN if unclean else Election.ONLINE,
        recovery_state=change.leader_recovery_state,
        shrink_raises_epoch=shrink_raises_epoch(image),
    )
    if record is None:
        return _accepted(change, partition), None
    if record.leader is not None and record.leader != sender:
        return _refused(change, ErrorCode.NEW_LEADER_ELECTED), record
    return _accepted(change, partition_after(partition, record)), record


def _refused(change: IsrChange, code: ErrorCode) -> IsrChangeResult:
    return IsrChangeResult(change.topic_id, change.partition, code)


def _accepted(change: IsrChange, partition: PartitionImage) -> IsrChangeResult:
    return IsrChangeResult(
        change.topic_id,
        change.partition,
        ErrorCode.NONE,
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        partition.leader_recovery_state,
        partition.partition_epoch,
    )
