"""Changes of a partition, a topic, a broker or the quorum, in words: pure functions from batches of the metadata log.

The state before the first batch comes from an image; each record is compared with the state before it. A change that a move
caused has the initiator, plan and reason of the move. A change in the same batch as a broker's registration has that as its
reason. Records of an aborted metadata transaction do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from kraftlab.common.sizes import bytes_text
from kraftlab.common.uuids import Uuid, to_text
from kraftlab.config.secrets import is_secret
from kraftlab.metadata import records as r
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.moves import TopicPartition, move_id_text
from kraftlab.metadata.record_text import HIDDEN, record_type_name
from kraftlab.quorum.core.batch import ControlRecord, ForcedStandalone, KRaftVersion, KRaftVoters, LeaderChange

from .history import LoggedBatch

NAMES_SHOWN = 20
"""Number of existing names in the error for an unknown one."""

_SETS = {"replicas": "replicas", "isr": "isr", "adding_replicas": "adding", "removing_replicas": "removing"}
_MEMBERS = ("replicas", "isr")
_SETS |= {"eligible_leader_replicas": "elr", "last_known_elr": "last known elr"}


class Subject(NamedTuple):
    """Kind "quorum", "broker" with its id, or "topic" with a name that may be that of a topic or of a partition."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return self.name if self.kind == "topic" else f"{self.kind} {self.name}".rstrip()


class SubjectChange(msgspec.Struct, frozen=True):
    """One record that changed the subject. Initiator, plan, move and reason are None where the log does not tell them."""

    offset: int
    epoch: int
    append_time_ms: int
    type: str
    change: str
    initiator: str | None = None
    plan_id: str | None = None
    move_id: str | None = None
    reason: str | None = None


class _Why(NamedTuple):
    initiator: str | None = None
    plan_id: str | None = None
    move_id: str | None = None
    reason: str | None = None


def subject_changes(subject: Subject, before: MetadataImage, batches: Iterable[LoggedBatch]) -> list[SubjectChange]:
    """Return the changes of a subject, oldest first. LookupError if neither the image nor a batch knows the subject."""
    if subject.kind == "quorum":
        return [change for found in batches for change in _quorum_changes(found)]
    logged = list(batches)
    if subject.kind == "broker":
        changes = [change for found in logged for change in _broker_changes(int(subject.name), found)]
        if not changes and int(subject.name) not in before.cluster.brokers:
            raise LookupError(f"no broker {subject.name} is registered")
        return changes
    return _TopicHistory(subject.name, before, logged).changes(logged)


def _change(found: LoggedBatch, offset: int, record: r.Record | ControlRecord, text: str, why: _Why = _Why()) -> SubjectChange:
    name = record_type_name(type(record)) if isinstance(record, r.Record) else type(record).__name__
    return SubjectChange(offset, found.epoch, found.append_time_ms, name, text, *why)


# The quorum


def _quorum_changes(found: LoggedBatch) -> Iterator[SubjectChange]:
    for offset, control in enumerate(found.control, found.base_offset):
        match control:
            case LeaderChange():
                granted = f", elected by {_list(control.granting_voters)} of voters {_list(control.voters)}"
                yield _change(found, offset, control, f"controller {control.leader_id} leads epoch {found.epoch}{granted}")
            case KRaftVoters():
                yield _change(found, offset, control, f"voters {_list(voter.key.node_id for voter in control.voters.voters)}")
            case KRaftVersion():
                yield _change(found, offset, control, f"kraft.version {control.kraft_version}")
            case ForcedStandalone():
                text = f"without a majority from here on: controller {control.voter.node_id} votes alone"
                yield _change(found, offset, control, text)
    for offset, record in enumerate(found.records, found.base_offset):
        if isinstance(record, r.RegisterController):
            text = f"controller {record.controller_id} registers {', '.join(map(repr, record.listeners))}"
            yield _change(found, offset, record, text)


# A broker


def _broker_changes(broker_id: int, found: LoggedBatch) -> Iterator[SubjectChange]:
    for offset, record in enumerate(found.records, found.base_offset):
        match record:
            case r.RegisterBroker() | r.UnregisterBroker() | r.BrokerRegistrationChange() if record.broker_id == broker_id:
                yield _change(found, offset, record, _broker_text(record))
            case r.Config(resource_type=r.RESOURCE_BROKER) if record.resource_name == str(broker_id):
                yield _change(found, offset, record, _config_text(record))


def _broker_text(record: r.RegisterBroker | r.UnregisterBroker | r.BrokerRegistrationChange) -> str:
    if isinstance(record, r.UnregisterBroker):
        return f"broker {record.broker_id} is unregistered"
    if isinstance(record, r.RegisterBroker):
        parts = [
            "registers",
            *(["in rack " + record.rack] if record.rack else []),
            f"at {', '.join(map(repr, record.listeners))}",
        ]
        return f"broker {record.broker_id} {' '.join(parts)}, {'fenced' if record.fenced else 'unfenced'}"
    parts = [] if record.fenced is None else ["is fenced" if record.fenced else "is unfenced"]
    parts += ["shuts down cleanly"] if record.in_controlled_shutdown else []
    for directories, state in ((record.log_dirs, "online"), (record.cordoned_log_dirs, "cordoned")):
        if directories is not None:
            parts.append(f"has {len(directories)} log {'directory' if len(directories) == 1 else 'directories'} {state}")
    return f"broker {record.broker_id} {', '.join(parts) or 'is unchanged'}"


def _config_text(record: r.Config) -> str:
    if record.value is None:
        return f"config {record.name} is removed"
    return f"config {record.name} = {HIDDEN if is_secret(record.resource_type, record.name) else record.value}"


# A topic or a partition

_State = dict[TopicPartition, dict[str, object]]
_Moves = dict[TopicPartition, _Why]


class _TopicHistory:
    """Changes of the topics that ever had a name (a topic that is created again has another id), or of one partition."""

    def __init__(self, name: str, before: MetadataImage, batches: Iterable[LoggedBatch]) -> None:
        ids = {topic_id: topic.name for topic_id, topic in before.topics.by_id.items()}
        ids |= {record.topic_id: record.name for found in batches for record in found.records if isinstance(record, r.Topic)}
        self._partition: int | None = None
        part = re.fullmatch(r"(.+)-([0-9]{1,9})", name)
        if name not in ids.values() and part and part[1] in ids.values():
            name, self._partition = part[1], int(part[2])
        if name not in ids.values():
            known = sorted(set(ids.values()))
            shown = ", ".join([*known[:NAMES_SHOWN], *["…"][: len(known) > NAMES_SHOWN]]) or "no topics"
            raise LookupError(f"no topic {name} is in the log; it has {shown}")
        self._name = name
        self._ids = {topic_id for topic_id, found in ids.items() if found == name}
        self._state: _State = {}
        self._moves: _Moves = {}
        for topic_id in self._ids & set(before.topics.by_id):
            for number, there in before.topics.by_id[topic_id].partitions.items():
                self._state[topic_id, number] = {
                    "replicas": there.replicas,
                    "isr": there.isr,
                    "adding_replicas": there.adding,
                    "removing_replicas": there.removing,
                    "eligible_leader_replicas": there.elr,
                    "last_known_elr": there.last_known_elr,
                    "target_replicas": there.target,
                    "leader": there.leader,
                }
            for number, move in before.moves.running.get(topic_id, {}).items():
                self._moves[topic_id, number] = _Why(move.initiator, move.plan_id, move.move_id, move.reason)
        self._numbers = {number for _, number in self._state}

    def changes(self, batches: Iterable[LoggedBatch]) -> list[SubjectChange]:
        found: list[SubjectChange] = []
        held: tuple[int, _State, _Moves] | None = None
        for batch in batches:
            causes = [
                _broker_text(record)
                for record in batch.records
                if isinstance(record, r.RegisterBroker | r.UnregisterBroker | r.BrokerRegistrationChange)
            ]
            moves = dict(self._moves)
            for record in batch.records:  # a move begins with its batch, whatever the order of its records
                if isinstance(record, r.StartMoves):
                    self._moves |= dict(self._requested(record))
            for offset, record in enumerate(batch.records, batch.base_offset):
                if isinstance(record, r.BeginTransaction):
                    held = len(found), {key: dict(value) for key, value in self._state.items()}, moves
                elif isinstance(record, r.AbortTransaction) and held is not None:
                    count, self._state, self._moves = held
                    del found[count:]
                found += [
                    _change(batch, offset, record, text, why)
                    for text, why in self._texts(record, _Why(reason="; ".join(causes)) if causes else _Why())
                ]
        if self._partition is not None and self._partition not in self._numbers:
            known = ", ".join(map(str, sorted(self._numbers))) or "none"
            raise LookupError(f"topic {self._name} has no partition {self._partition}; it has {known}")
        return found

    def _texts(self, record: r.Record, cause: _Why) -> Iterator[tuple[str, _Why]]:
        match record:
            case r.Topic() if record.topic_id in self._ids:
                yield f"topic {self._name} is created, id {to_text(record.topic_id)}", _Why()
            case r.RemoveTopic() if record.topic_id in self._ids:
                yield f"topic {self._name} is deleted", _Why()
            case r.Config(resource_type=r.RESOURCE_TOPIC) if record.resource_name == self._name and self._partition is None:
                yield _config_text(record), _Why()
            case r.ClearElr() if record.topic_name in ("", self._name):
                yield "eligible leader replicas are cleared, as min.insync.replicas changed", _Why()
            case r.Partition() | r.PartitionChange() if record.topic_id in self._ids:
                self._numbers.add(record.partition_id)
                key = record.topic_id, record.partition_id
                move = self._moves.get(key)
                is_of_move = isinstance(record, r.PartitionChange) and (record.replicas or record.adding_replicas)
                why = cause if move is None or (cause.reason and not is_of_move) else move
                text = self._created(record) if isinstance(record, r.Partition) else self._changed(record)
                yield from self._of((key,), text, why)
            case r.StartMoves() | r.QueueMoves():
                for key, why in self._requested(record):
                    yield from self._of(
                        (key,), "move starts" if isinstance(record, r.StartMoves) else "move waits in the queue", why
                    )
            case r.DequeueMoves():
                yield from self._of(record.partitions, "move leaves the queue", _Why())
            case r.ChangeMoveThrottles():
                limit = "no throttle" if record.throttle is None else f"throttle {bytes_text(record.throttle)}/s"
                yield from self._of(record.partitions, f"move has {limit}", _Why())
            case r.MovePlan():
                why = _Why(record.initiator, record.plan_id, None, record.reason)
                for each in record.partitions:
                    text = f"plan keeps replicas {_list(each.replicas)} for a rollback; target {_list(each.target)}"
                    yield from self._of(((each.topic_id, each.partition),), text, why)

    def _of(self, keys: Iterable[TopicPartition], text: str, why: _Why) -> Iterator[tuple[str, _Why]]:
        """Yield the text for those of the partitions that belong to the subject."""
        for topic_id, number in keys:
            if topic_id in self._ids and self._partition in (None, number):
                yield text if self._partition is not None else f"{self._name}-{number}: {text}", why

    def _requested(self, record: r.StartMoves | r.QueueMoves) -> Iterator[tuple[TopicPartition, _Why]]:
        for topic_id, number, index, *_ in record.moves:
            move_id = move_id_text(record.request_offset, index)
            yield (topic_id, number), _Why(record.initiator, record.plan_id, move_id, record.reason)

    def _created(self, record: r.Partition) -> str:
        fields = (*_SETS, "target_replicas", "leader")
        self._state[record.topic_id, record.partition_id] = {field: getattr(record, field) or () for field in fields[:-1]}
        self._state[record.topic_id, record.partition_id]["leader"] = record.leader
        return f"is created: replicas {_list(record.replicas)}, isr {_list(record.isr)}, leader {record.leader}"

    def _changed(self, record: r.PartitionChange) -> str:
        key: tuple[Uuid, int] = (record.topic_id, record.partition_id)
        known = self._state.setdefault(key, {})
        parts = []
        for field, name in _SETS.items():
            new, old = getattr(record, field), known.get(field, ())
            if new is not None and new != old:
                assert isinstance(old, tuple)
                parts.append(f"{name}: {_list(old)} -> {_list(new)}{_members(old, new) if field in _MEMBERS else ''}")
        if record.leader is not None:
            old_leader = known.get("leader", r.NO_LEADER)
            same = record.leader == old_leader
            parts.append(f"leader: {record.leader}, in a new epoch" if same else f"leader: {old_leader} -> {record.leader}")
        if record.leader_recovery_state is not None:
            parts.append("recovers from an unclean election" if record.leader_recovery_state else "has recovered")
        parts += [] if record.directories is None else ["directories are assigned"]
        was_moving = known.get("adding_replicas") or known.get("removing_replicas")
        ended = was_moving and record.adding_replicas == record.removing_replicas == ()
        if ended:
            reached = (record.replicas or known.get("replicas")) == known.get("target_replicas")
            parts.append("reassignment is complete" if reached else "reassignment is cancelled")
            self._moves.pop(key, None)
        changed = {field: getattr(record, field) for field in (*_SETS, "target_replicas", "leader")}
        known |= {field: value for field, value in changed.items() if value is not None}
        return "; ".join(parts) or "partition epoch rises, nothing else changes"


def _members(old: tuple[int, ...], new: tuple[int, ...]) -> str:
    lost, gained = sorted(set(old) - set(new)), sorted(set(new) - set(old))
    parts = [f"{word} {', '.join(map(str, some))}" for word, some in (("loses", lost), ("gains", gained)) if some]
    return f" ({', '.join(parts)})" if parts else " (order)"


def _list(values: Iterable[int]) -> str:
    return f"[{','.join(map(str, values))}]"
