"""Changes of a partition, a topic, a broker or the quorum, in words: pure functions from batches of the metadata log.

The state before the first batch comes from an image; each record is compared with the state before it. A change that a move
caused has the initiator, plan and reason of the move. A change in the same batch as a broker's registration has that as its
reason. Records of an aborted metadata transaction do not count.

`subject_changes` tells the changes of one subject over many batches, `batch_changes` those of all objects in one batch.
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
from kraftlab.metadata.record_text import HIDDEN, record_document, record_type_name
from kraftlab.quorum.core.batch import ControlRecord, ForcedStandalone, KRaftVersion, KRaftVoters, LeaderChange

from .history import LoggedBatch

NAMES_SHOWN = 20
"""Number of existing names in the error for an unknown one."""
TEXT_CHARACTERS = 500
"""Length of a change that is shown as the fields of its record."""

_SETS = {"replicas": "replicas", "isr": "isr", "adding_replicas": "adding", "removing_replicas": "removing"}
_MEMBERS = ("replicas", "isr")
_SETS |= {"eligible_leader_replicas": "elr", "last_known_elr": "last known elr"}
_FIELDS = {name: name.removesuffix("_replicas") for name in _SETS} | {"eligible_leader_replicas": "elr"}
_FIELDS |= {"target_replicas": "target", "leader": "leader"}
"""Fields of the records of a partition, with the attributes of its image."""


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


class ObjectChange(msgspec.Struct, frozen=True):
    """A change of any object. `kind`: quorum, broker, topic or other. `about`: name of the object, for example orders-3 for
    partition 3 (`partition`) of topic orders.
    """

    kind: str
    about: str
    partition: int | None
    change: SubjectChange


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
    return _topic_changes(subject.name, before, logged)


def batch_changes(before: MetadataImage, batch: LoggedBatch) -> list[ObjectChange]:
    """Return the changes of all objects by a batch, in the order of their offsets. `before` is the image before the batch.

    Records of a metadata transaction belong to the batch in which the transaction ends, since they do not count before.
    """
    records = list(_records_that_count(before, batch))
    found = [ObjectChange("quorum", "quorum", None, each) for each in _quorum_changes(batch)]
    for told in _TopicHistory(before).told([(batch, records)]):
        about = told.name if told.partition is None else f"{told.name}-{told.partition}"
        found.append(ObjectChange("topic", about, told.partition, told.change))
    for offset, record in records:
        of_broker = _of_broker(record)
        if of_broker is not None:
            about = f"broker {of_broker[0]}" if of_broker[0] else "all brokers"
            found.append(ObjectChange("broker", about, None, _change(batch, offset, record, of_broker[1])))
    told_offsets = {each.change.offset for each in found}
    for offset, record in records:
        if offset not in told_offsets and not isinstance(record, _NO_NEWS):
            found.append(_other(before, batch, offset, record))
    return sorted(found, key=lambda each: each.change.offset)


_NO_NEWS = r.NoOp | r.RequestOutcome | r.ForgottenRequests | r.BeginTransaction | r.EndTransaction
"""Records that change nothing that people look for."""


def _records_that_count(before: MetadataImage, batch: LoggedBatch) -> Iterator[tuple[int, r.AnyRecord]]:
    """Yield the records of a batch that take effect with it, with their offsets. An abort stands for what it aborts."""
    held = None if before.transaction is None else [each for part in before.transaction.held for each in part]
    for offset, record in enumerate(batch.records, batch.base_offset):
        if isinstance(record, r.BeginTransaction):
            held = []
        elif isinstance(record, r.EndTransaction):
            yield from held or ()
            held = None
        elif isinstance(record, r.AbortTransaction):
            held = None
            yield offset, record
        elif held is not None:
            held.append((offset, record))
        else:
            yield offset, record


def _other(before: MetadataImage, batch: LoggedBatch, offset: int, record: r.AnyRecord) -> ObjectChange:
    """Return a change of something that has no words of its own: the fields of the record."""
    document = record_document(record, is_secret)
    about = str(document["type"]).removesuffix("_RECORD").lower().replace("_", " ")
    if isinstance(record, r.AbortTransaction):
        text = f"a metadata transaction is aborted: {record.reason or 'no reason was given'}; its records do not count"
    else:
        data = document["data"]
        assert isinstance(data, dict), "the fields of a record"
        text = ", ".join(f"{name} {msgspec.json.encode(value).decode()}" for name, value in data.items())
    shown = text if len(text) <= TEXT_CHARACTERS else f"{text[:TEXT_CHARACTERS]}…"
    return ObjectChange("other", about, None, _change(batch, offset, record, shown or about))


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
        of_broker = _of_broker(record)
        if of_broker is not None and of_broker[0] == str(broker_id):
            yield _change(found, offset, record, of_broker[1])


def _of_broker(record: r.AnyRecord) -> tuple[str, str] | None:
    """Return the id of the broker that a record changes ("": all brokers), and the change in words."""
    match record:
        case r.RegisterBroker() | r.UnregisterBroker() | r.BrokerRegistrationChange():
            return str(record.broker_id), _broker_text(record)
        case r.Config(resource_type=r.RESOURCE_BROKER):
            return record.resource_name, _config_text(record)
    return None


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
_Moves = dict[TopicPartition, _Why | None]


class _TopicChange(NamedTuple):
    """A change of the topic `name`, or of one of its partitions."""

    name: str
    partition: int | None
    change: SubjectChange


_Text = tuple[str, int | None, str, _Why]
"""Name of a topic, number of its partition or None, a change in words, and why it happened."""


def _topic_changes(name: str, before: MetadataImage, batches: list[LoggedBatch]) -> list[SubjectChange]:
    """Return the changes of the topics that ever had a name (a topic that is created again has another id), or of a partition."""
    names = {topic.name for topic in before.topics.by_id.values()}
    names |= {record.name for found in batches for record in found.records if isinstance(record, r.Topic)}
    partition: int | None = None
    part = re.fullmatch(r"(.+)-([0-9]{1,9})", name)
    if name not in names and part and part[1] in names:
        name, partition = part[1], int(part[2])
    if name not in names:
        known = sorted(names)
        shown = ", ".join([*known[:NAMES_SHOWN], *["…"][: len(known) > NAMES_SHOWN]]) or "no topics"
        raise LookupError(f"no topic {name} is in the log; it has {shown}")
    history = _TopicHistory(before, name, partition)
    told = history.told((found, list(enumerate(found.records, found.base_offset))) for found in batches)
    there = before.topics.get(name)
    numbers = history.numbers | set(() if there is None else there.partitions)
    if partition is not None and partition not in numbers:
        shown = ", ".join(map(str, sorted(numbers))) or "none"
        raise LookupError(f"topic {name} has no partition {partition}; it has {shown}")
    return [
        each.change
        if each.partition is None or partition is not None
        else msgspec.structs.replace(each.change, change=f"{name}-{each.partition}: {each.change.change}")
        for each in told
    ]


class _TopicHistory:
    """Tells what happens to all topics, or to those with one name, or to one partition of those. States come from the image
    `before` and from the records since.
    """

    def __init__(self, before: MetadataImage, name: str | None = None, partition: int | None = None) -> None:
        self._before = before
        self._name = name
        self._partition = partition
        self._new: dict[Uuid, str] = {}
        self._state: _State = {}
        self._moves: _Moves = {}
        self.numbers: set[int] = set()
        """Partitions that a record changed."""

    def told(self, batches: Iterable[tuple[LoggedBatch, list[tuple[int, r.AnyRecord]]]]) -> list[_TopicChange]:
        """Return the changes by the records of some batches, which are given with their offsets."""
        found: list[_TopicChange] = []
        held: tuple[int, _State, _Moves] | None = None
        for batch, records in batches:
            registrations = r.RegisterBroker | r.UnregisterBroker | r.BrokerRegistrationChange
            causes = "; ".join(_broker_text(record) for _, record in records if isinstance(record, registrations))
            moves = dict(self._moves)
            for _, record in records:
                if isinstance(record, r.Topic):
                    self._new[record.topic_id] = record.name
                elif isinstance(record, r.StartMoves):  # a move begins with its batch, whatever the order of its records
                    self._moves |= dict(self._requested(record))
            for offset, record in records:
                if isinstance(record, r.BeginTransaction):
                    held = len(found), {key: dict(value) for key, value in self._state.items()}, moves
                elif isinstance(record, r.AbortTransaction) and held is not None:
                    count, self._state, self._moves = held
                    del found[count:]
                for name, partition, text, why in self._texts(record, _Why(reason=causes) if causes else _Why()):
                    found.append(_TopicChange(name, partition, _change(batch, offset, record, text, why)))
        return found

    def _name_of(self, topic_id: Uuid) -> str | None:
        """Return the name of a topic that these changes concern, otherwise None."""
        known = self._before.topics.by_id.get(topic_id)
        name = self._new.get(topic_id) if known is None else known.name
        return name if self._name in (None, name) else None

    def _texts(self, record: r.AnyRecord, cause: _Why) -> Iterator[_Text]:
        match record:
            case r.Topic():
                yield from self._of_topic(record.topic_id, f"is created, id {to_text(record.topic_id)}")
            case r.RemoveTopic():
                yield from self._of_topic(record.topic_id, "is deleted")
            case r.Config(resource_type=r.RESOURCE_TOPIC) if self._name in (None, record.resource_name):
                if self._partition is None:
                    yield record.resource_name, None, _config_text(record), _Why()
            case r.ClearElr() if record.topic_name == "" or self._name in (None, record.topic_name):
                name = record.topic_name or self._name
                if name is not None:
                    yield name, None, "eligible leader replicas are cleared, as min.insync.replicas changed", _Why()
            case r.Partition() | r.PartitionChange():
                key = record.topic_id, record.partition_id
                if self._name_of(record.topic_id) is not None:
                    self.numbers.add(record.partition_id)
                    move = self._move_of(key)
                    is_of_move = isinstance(record, r.PartitionChange) and (record.replicas or record.adding_replicas)
                    why = cause if move is None or (cause.reason and not is_of_move) else move
                    text = self._created(record) if isinstance(record, r.Partition) else self._changed(record)
                    yield from self._of((key,), text, why)
            case r.StartMoves() | r.QueueMoves():
                text = "move starts" if isinstance(record, r.StartMoves) else "move waits in the queue"
                for key, why in self._requested(record):
                    yield from self._of((key,), text, why)
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

    def _of_topic(self, topic_id: Uuid, text: str) -> Iterator[_Text]:
        name = self._name_of(topic_id)
        if name is not None:
            yield name, None, f"topic {name} {text}", _Why()

    def _of(self, keys: Iterable[TopicPartition], text: str, why: _Why) -> Iterator[_Text]:
        """Yield the text for each partition that these changes concern."""
        for topic_id, number in keys:
            name = self._name_of(topic_id)
            if name is not None and self._partition in (None, number):
                yield name, number, text, why

    def _requested(self, record: r.StartMoves | r.QueueMoves) -> Iterator[tuple[TopicPartition, _Why]]:
        for topic_id, number, index, *_ in record.moves:
            move_id = move_id_text(record.request_offset, index)
            yield (topic_id, number), _Why(record.initiator, record.plan_id, move_id, record.reason)

    def _move_of(self, key: TopicPartition) -> _Why | None:
        """Return why a partition moves; None if it does not."""
        if key not in self._moves:
            of_topic = self._before.moves.running.get(key[0])
            move = None if of_topic is None else of_topic.get(key[1])
            return None if move is None else _Why(move.initiator, move.plan_id, move.move_id, move.reason)
        return self._moves[key]

    def _known(self, key: TopicPartition) -> dict[str, object]:
        """Return the newest state of a partition, to be changed."""
        if key not in self._state:
            there = self._before.topics.partition(*key)
            self._state[key] = {} if there is None else {field: getattr(there, name) for field, name in _FIELDS.items()}
        return self._state[key]

    def _created(self, record: r.Partition) -> str:
        state: dict[str, object] = {field: getattr(record, field) or () for field in _FIELDS}
        self._state[record.topic_id, record.partition_id] = state | {"leader": record.leader}
        return f"is created: replicas {_list(record.replicas)}, isr {_list(record.isr)}, leader {record.leader}"

    def _changed(self, record: r.PartitionChange) -> str:
        key: tuple[Uuid, int] = (record.topic_id, record.partition_id)
        known = self._known(key)
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
            self._moves[key] = None
        changed = {field: getattr(record, field) for field in _FIELDS}
        known |= {field: value for field, value in changed.items() if value is not None}
        return "; ".join(parts) or "partition epoch rises, nothing else changes"


def _members(old: tuple[int, ...], new: tuple[int, ...]) -> str:
    lost, gained = sorted(set(old) - set(new)), sorted(set(new) - set(old))
    parts = [f"{word} {', '.join(map(str, some))}" for word, some in (("loses", lost), ("gains", gained)) if some]
    return f" ({', '.join(parts)})" if parts else " (order)"


def _list(values: Iterable[int]) -> str:
    return f"[{','.join(map(str, values))}]"
