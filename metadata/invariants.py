"""Invariants of every image, and of every step from one to the next: for tests and the simulator.

Each check returns sentences about violated invariants, () if there are none. An image is checked after a whole operation. In
the middle of an operation of several batches (fencing a broker with very many partitions) a broker may still lead although its
shutdown has begun. An in-sync set may be empty only since eligible leader replicas exist, and may be left empty when they are
switched off; a rule of single steps says that nothing else empties it.

Not checked: whether a replica has the data that an in-sync member must have. Only the brokers' logs can show that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from . import eligible_leaders, requests
from .acls import AclsImage
from .acls import PatternType as _T
from .acls import PermissionType as _P
from .features import MIN_INSYNC_REPLICAS, is_supported
from .image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from .quotas import QuotasImage, quota_entity
from .records import NO_LEADER, RECOVERING, RESOURCE_BROKER, AnyRecord, Partition, PartitionChange, ProducerIds, RegisterBroker
from .uuids import Uuid, is_reserved, to_text

_PARTITION_RULES: tuple[tuple[str, Callable[[PartitionImage], bool]], ...] = (
    ("there are replicas, none twice", lambda p: bool(p.replicas) and _distinct(p.replicas)),
    ("each replica has a directory entry", lambda p: len(p.directories) == len(p.replicas)),
    ("the ISR is a set of replicas", lambda p: _distinct(p.isr) and set(p.isr) <= set(p.replicas)),
    ("the leader is none or in the ISR", lambda p: p.leader == NO_LEADER or p.leader in p.isr),
    ("while recovering, the ISR has one member", lambda p: p.leader_recovery_state != RECOVERING or len(p.isr) <= 1),
    ("the ELR is a set of replicas outside the ISR", lambda p: _distinct(p.elr) and set(p.elr) <= set(p.replicas) - set(p.isr)),
    ("the last known leader is a replica", lambda p: _distinct(p.last_known_elr) and set(p.last_known_elr) <= set(p.replicas)),
    ("a leader is not known from before", lambda p: p.leader == NO_LEADER or not p.last_known_elr),
    ("the leader epoch is not above the partition epoch", lambda p: 0 <= p.leader_epoch <= p.partition_epoch),
    ("without a reassignment, no original and target set", lambda p: p.is_reassigning or not (p.original or p.target)),
    ("AR is the sorted target less the original", lambda p: p.adding == _sorted(set(p.target) - set(p.original))),
    ("R is the target and then RR", lambda p: not p.is_reassigning or p.replicas == p.target + p.removing),
    ("RR is sorted and apart from AR", lambda p: p.removing == _sorted(set(p.removing) - set(p.adding))),
    ("the original replicas are still there", lambda p: set(p.original) <= set(p.replicas)),
    ("a reassignment has an original and a target", lambda p: not p.is_reassigning or bool(p.original and p.target)),
    ("the original set has nobody twice", lambda p: _distinct(p.original)),
)


def check_partition(partition: PartitionImage) -> tuple[str, ...]:
    """Violated rules of one partition."""
    return tuple(f"not so: {rule}" for rule, holds in _PARTITION_RULES if not holds(partition))


def check_image(image: MetadataImage) -> tuple[str, ...]:
    """Violated rules of an image: of each partition, and of the image as a whole."""
    return (
        *_check_topics(image),
        *_check_brokers(image),
        *_check_configs(image),
        *_check_quotas(image.quotas),
        *_check_features(image),
        *_check_moves(image),
        *_check_acls(image.acls),
        *check_requests(image.requests),
    )


def check_changed(image: MetadataImage, records: Iterable[AnyRecord]) -> tuple[str, ...]:
    """Violated rules of the partitions that these records, the last before `image`, have changed: their state, their leader,
    the listing, and their moves. The cost depends on the number of records, not on the size of the image.
    """
    changed = {(record.topic_id, record.partition_id) for record in records if isinstance(record, Partition | PartitionChange)}
    broken: list[str] = []
    for topic_id, number in sorted(changed):
        topic = image.topics.by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(number)
        if topic is None or partition is None:
            continue
        broken.extend(_check_in_its_place(image, topic, number, partition))
        if (number in image.topics.reassigning.get(topic_id, ())) != partition.is_reassigning:
            broken.append(f"{topic.name}-{number}: not so: exactly what is being reassigned is listed")
        broken.extend(_check_move(image, topic_id, number))
    return tuple(broken)


def check_requests(answers: requests.RequestsImage) -> tuple[str, ...]:
    """Violated rules of the answers to requests: their number, their order, and the list of clients."""
    broken: list[str] = []
    older, kept_bytes, oldest_kept, count = None, 0, None, 0
    for client_id, client in answers.in_order():
        sequences = [answered.sequence for answered in client.answered]
        if sequences != sorted(set(sequences)) or len(sequences) > requests.KEPT_PER_CLIENT:
            broken.append("a client's answers are few, and of rising sequences")
        if sequences and sequences[0] <= client.forgotten_up_to:
            broken.append("what is forgotten of a client lies below what is kept")
        if client.older != older:
            broken.append("each client follows its neighbour")
        if oldest_kept is None and sequences:
            oldest_kept = client_id
        if oldest_kept is not None and not sequences:
            broken.append("clients without answers come first")
        older, kept_bytes, count = client_id, kept_bytes + client.kept_bytes, count + 1
    if (older, oldest_kept, kept_bytes, count) != (
        answers.newest,
        answers.oldest_kept,
        answers.kept_bytes,
        len(answers.clients),
    ):
        broken.append("the list of clients has its ends, its number of clients and of bytes")
    return tuple(f"not so: {rule}" for rule in broken)


def check_step(before: MetadataImage, after: MetadataImage, record: AnyRecord) -> tuple[str, ...]:
    """Violated rules of replaying one record outside a transaction: epochs move exactly as the record says."""
    broken: list[str] = []
    if isinstance(record, PartitionChange):
        old = before.topics.partition(record.topic_id, record.partition_id)
        new = after.topics.partition(record.topic_id, record.partition_id)
        if old is None or new is None:
            broken.append("a changed partition exists before and after")
        else:
            if new.partition_epoch != old.partition_epoch + 1:
                broken.append("the partition epoch rises by one with every change")
            if new.leader_epoch != old.leader_epoch + (record.leader is not None):
                broken.append("the leader epoch rises by one with every change that has a leader, and with no other")
            if _is_completed(old, new) and not set(old.adding) <= set(new.isr):
                broken.append("a reassignment is complete once every replica that it adds is in sync")
            if old.isr and not new.isr and not eligible_leaders.are_on(before):
                broken.append("without eligible leader replicas the ISR does not become empty")
    elif isinstance(record, Partition) and after.topics.partition(record.topic_id, record.partition_id) is None:
        broken.append("a new partition exists")
    elif isinstance(record, ProducerIds) and not before.next_producer_id < after.next_producer_id == record.next_producer_id:
        broken.append("each producer id is given once")
    elif isinstance(record, RegisterBroker):
        known = before.cluster.brokers.get(record.broker_id)
        if known is not None and _goes_back(known, record):
            broken.append("a broker's epoch rises with a new incarnation and stays with the same")
        if known is None and any(broker.epoch >= record.broker_epoch for broker in before.cluster.brokers.values()):
            broken.append("a new broker's epoch is above all others")
    return tuple(f"{record!r}: not so: {rule}" for rule in broken)


def _is_completed(old: PartitionImage, new: PartitionImage) -> bool:
    """Return True if a reassignment has ended at its target."""
    has_ended = old.is_reassigning and not new.is_reassigning
    return has_ended and set(new.replicas) == set(old.target) != set(old.original)


def _distinct(members: tuple[int, ...]) -> bool:
    return len(set(members)) == len(members)


def _sorted(members: set[int]) -> tuple[int, ...]:
    return tuple(sorted(members))


def _goes_back(known: BrokerImage, record: RegisterBroker) -> bool:
    if known.incarnation_id == record.incarnation_id:
        return known.epoch != record.broker_epoch
    return known.epoch >= record.broker_epoch


def _check_acls(acls: AclsImage) -> list[str]:
    rules = {
        "an access rule allows or denies": all(acl.permission_type in (_P.DENY, _P.ALLOW) for acl in acls.ids),
        "an access rule is about literal names or prefixes": all(
            acl.pattern_type in (_T.LITERAL, _T.PREFIXED) for acl in acls.ids
        ),
        "an access rule names principal, host and resource": all(
            acl.principal and acl.host and acl.resource_name for acl in acls.ids
        ),
    }
    if not all(rules.values()):
        return [f"not so: {rule}" for rule, holds in rules.items() if not holds]
    if len(acls.ids) != len(acls.by_id):
        return ["not so: no two access rules say the same"]
    return [] if acls == AclsImage().after(acls.by_id) else ["not so: access rules are arranged as they stand"]


def _check_topics(image: MetadataImage) -> list[str]:
    broken: list[str] = []
    topics = image.topics
    if {topic.name: topic_id for topic_id, topic in topics.by_id.items()} != dict(topics.by_name):
        broken.append("not so: names and ids of topics belong to each other")
    for topic_id, topic in sorted(topics.by_id.items()):
        if topic.topic_id != topic_id:
            broken.append(f"{topic.name}: not so: a topic is found by its own id")
        moving = []
        for number, partition in sorted(topic.partitions.items()):
            broken.extend(_check_in_its_place(image, topic, number, partition))
            if partition.is_reassigning:
                moving.append(number)
        if topics.reassigning.get(topic_id, ()) != tuple(moving):
            broken.append(f"{topic.name}: not so: the listing has exactly the partitions being reassigned, {moving}")
    broken.extend(
        f"not so: topic {to_text(topic_id)} of the listing exists"
        for topic_id in topics.reassigning
        if topic_id not in topics.by_id
    )
    return broken


def _check_in_its_place(image: MetadataImage, topic: TopicImage, number: int, partition: PartitionImage) -> list[str]:
    """Check one partition among topics and brokers."""
    place = f"{topic.name}-{number}"
    broken = [f"{place}: {line} in {partition}" for line in check_partition(partition)]
    leader = image.cluster.brokers.get(partition.leader)
    if partition.leader != NO_LEADER and (leader is None or not leader.is_active):
        broken.append(f"{place}: not so: leader {partition.leader} is registered, unfenced and not shutting down")
    if partition.elr and eligible_leaders.are_on(image):
        least = eligible_leaders.partition_min_isr(partition, eligible_leaders.min_insync_replicas(image, topic.name))
        if len(partition.isr) >= least:
            broken.append(f"{place}: not so: with {least} in sync or more the ELR is empty in {partition}")
    return broken


def _check_brokers(image: MetadataImage) -> list[str]:
    broken: list[str] = []
    owners: dict[bytes, int] = {}
    epochs: dict[int, int] = {}
    for broker_id, broker in sorted(image.cluster.brokers.items()):
        if broker.broker_id != broker_id:
            broken.append(f"broker {broker_id}: not so: a broker is found by its own id")
        if broker.epoch in epochs:
            broken.append(f"broker {broker_id}: not so: its epoch {broker.epoch} is its own ({epochs[broker.epoch]} has it)")
        epochs[broker.epoch] = broker_id
        if list(broker.log_dirs) != sorted(set(broker.log_dirs)) or any(map(is_reserved, broker.log_dirs)):
            broken.append(f"broker {broker_id}: not so: directories are sorted, distinct and none reserved")
        cordoned = broker.cordoned_log_dirs
        if list(cordoned) != sorted(set(cordoned)) or not set(cordoned) <= set(broker.log_dirs):
            broken.append(f"broker {broker_id}: not so: cordoned directories are sorted, distinct and its own")
        broken.extend(
            f"broker {broker_id}: not so: directory {to_text(directory_id)} is its own, not {owners[directory_id]}'s"
            for directory_id in broker.log_dirs
            if owners.setdefault(directory_id, broker_id) != broker_id
        )
    return broken


def _check_configs(image: MetadataImage) -> list[str]:
    broken = [f"{key}: not so: a resource without config is not listed" for key, values in image.configs.items() if not values]
    if eligible_leaders.are_on(image):
        having = {
            name for (kind, name), values in image.configs.items() if kind == RESOURCE_BROKER and MIN_INSYNC_REPLICAS in values
        }
        if having != {""}:
            broken.append("not so: with eligible leader replicas the cluster has a min.insync.replicas, and no broker its own")
    return broken


def _check_quotas(quotas: QuotasImage) -> list[str]:
    broken: list[str] = []
    for entity, values in quotas.items():
        if not values:
            broken.append(f"{entity}: not so: an entity without quota is not listed")
        if not entity or entity != quota_entity(entity):
            broken.append(f"{entity}: not so: an entity's parts are sorted, none twice")
        if not all(value > 0 for value in values.values()):
            broken.append(f"{entity}: not so: quotas are above 0")
    return broken


def _check_features(image: MetadataImage) -> list[str]:
    return [
        f"{name}={level}: not so: a finalized level is one that this software works at"
        for name, level in image.features.items()
        if level == 0 or not is_supported(name, level)
    ]


def _check_moves(image: MetadataImage) -> list[str]:
    """Moves belong to partitions that move, queued targets to partitions that do not; plans are found by their own names."""
    moves = image.moves
    broken: list[str] = []
    for family in (moves.running, moves.queued):
        for topic_id, numbers in family.items():
            if not numbers:
                broken.append(f"{to_text(topic_id)}: not so: a topic without moves is not listed")
            for number in numbers:
                broken.extend(_check_move(image, topic_id, number))
    ids = [move.move_id for family in (moves.running, moves.queued) for each in family.values() for move in each.values()]
    if len(set(ids)) < len(ids):
        broken.append("not so: each move, running or queued, has an id of its own")
    for plan_id, plan in moves.plans.items():
        if plan.plan_id != plan_id or not plan.partitions:
            broken.append(f"plan {plan_id}: not so: a plan has its own name, and partitions")
        if any(key != (was.topic_id, was.partition) for key, was in plan.partitions.items()):
            broken.append(f"plan {plan_id}: not so: each partition is found by its own topic and number")
        if any(len(was.replicas) != len(was.directories) or not _distinct(was.replicas) for was in plan.partitions.values()):
            broken.append(f"plan {plan_id}: not so: it remembers replicas, none twice, each with its directory")
    return broken


def _check_move(image: MetadataImage, topic_id: Uuid, number: int) -> list[str]:
    """Check the running and the queued move of one partition."""
    place = f"{to_text(topic_id)}-{number}"
    partition = image.topics.partition(topic_id, number)
    running, waiting = image.moves.move(topic_id, number), image.moves.waiting(topic_id, number)
    broken: list[str] = []
    if running is not None:
        if partition is None or not partition.is_reassigning:
            broken.append(f"{place}: not so: a move belongs to a partition that is being reassigned")
        if not _is_throttle(running.throttle, running.throttle_until_ms):
            broken.append(f"{place}: not so: a throttle is above 0, and nothing else expires in {running}")
        if running.request_offset >= image.provenance.offset:
            broken.append(f"{place}: not so: the move was asked for before {image.provenance} in {running}")
    if waiting is not None:
        if partition is None or partition.is_reassigning:
            broken.append(f"{place}: not so: what is queued stands still")
        if not waiting.target or not _distinct(waiting.target) or len(waiting.directories) not in (0, len(waiting.target)):
            broken.append(
                f"{place}: not so: what is queued has a target, nobody twice, with all directories or none in {waiting}"
            )
        if not _is_throttle(waiting.throttle, waiting.throttle_for_ms):
            broken.append(f"{place}: not so: a throttle is above 0, and nothing else expires in {waiting}")
    return broken


def _is_throttle(bytes_per_s: int | None, expires_ms: int | None) -> bool:
    return expires_ms is None if bytes_per_s is None else bytes_per_s > 0 and (expires_ms is None or expires_ms > 0)
