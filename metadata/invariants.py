"""Invariants of every image, and of every step from one to the next: for tests and the simulator.

Each check returns sentences about violated invariants, () if there are none. An image is checked after a whole operation. In
the middle of an operation of several batches (fencing a broker with very many partitions) a broker may still lead although its
shutdown has begun. An in-sync set may be empty only since eligible leader replicas exist, and may be left empty when they are
switched off; a rule of single steps says that nothing else empties it.

Not checked: whether a replica has the data that an in-sync member must have. Only the brokers' logs can show that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kraftlab.common.uuids import Uuid, is_reserved, to_text

from . import eligible_leaders, requests
from .acls import AclsImage
from .acls import PatternType as _T
from .acls import PermissionType as _P
from .features import MIN_INSYNC_REPLICAS, is_supported
from .image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from .quotas import QuotasImage, quota_entity
from .records import NO_LEADER, RECOVERING, RESOURCE_BROKER, AnyRecord, Partition, PartitionChange, ProducerIds, RegisterBroker

NOT_SHUTTING_DOWN = "the leader is not shutting down"
"""The rule that does not hold in the middle of a controlled shutdown of several batches."""
_PARTITION_RULES: tuple[tuple[str, Callable[[PartitionImage], bool]], ...] = (
    ("there are replicas, each once", lambda p: bool(p.replicas) and _distinct(p.replicas)),
    ("each replica has a directory entry", lambda p: len(p.directories) == len(p.replicas)),
    ("the ISR is a set of replicas", lambda p: _distinct(p.isr) and set(p.isr) <= set(p.replicas)),
    ("the leader is -1 or a member of the ISR", lambda p: p.leader == NO_LEADER or p.leader in p.isr),
    ("while recovering, the ISR has one member", lambda p: p.leader_recovery_state != RECOVERING or len(p.isr) <= 1),
    ("the ELR is a set of replicas outside the ISR", lambda p: _distinct(p.elr) and set(p.elr) <= set(p.replicas) - set(p.isr)),
    ("the last known leader is a replica", lambda p: _distinct(p.last_known_elr) and set(p.last_known_elr) <= set(p.replicas)),
    ("a partition with a leader has no last known leader", lambda p: p.leader == NO_LEADER or not p.last_known_elr),
    ("the leader epoch is not above the partition epoch", lambda p: 0 <= p.leader_epoch <= p.partition_epoch),
    ("without a reassignment, no original and target set", lambda p: p.is_reassigning or not (p.original or p.target)),
    ("AR is the sorted target without the original", lambda p: p.adding == _sorted(set(p.target) - set(p.original))),
    ("R is the target and then RR", lambda p: not p.is_reassigning or p.replicas == p.target + p.removing),
    ("RR is sorted and apart from AR", lambda p: p.removing == _sorted(set(p.removing) - set(p.adding))),
    ("the original replicas are still replicas", lambda p: set(p.original) <= set(p.replicas)),
    ("a reassignment has an original and a target", lambda p: not p.is_reassigning or bool(p.original and p.target)),
    ("the original set has each replica once", lambda p: _distinct(p.original)),
)


def _violated(rules: Iterable[tuple[str, bool]], place: object = "", value: object = None) -> Iterator[str]:
    """Yield a sentence for each (rule, holds) that does not hold, with the place and the value if they are given."""
    for rule, holds in rules:
        if not holds:
            prefix, suffix = f"{place}: " if place else "", "" if value is None else f" in {value}"
            yield f"{prefix}violated: {rule}{suffix}"


def check_partition(partition: PartitionImage) -> tuple[str, ...]:
    """Violated rules of one partition."""
    return tuple(f"violated: {rule}" for rule, holds in _PARTITION_RULES if not holds(partition))


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
    """Violated rules of the partitions that these records, the last before `image`, have changed: their state, their leader, the
    listing, and their moves. The cost depends on the number of records, not on the size of the image.
    """
    changed = {(record.topic_id, record.partition_id) for record in records if isinstance(record, Partition | PartitionChange)}
    broken: list[str] = []
    for topic_id, number in sorted(changed):
        topic = image.topics.by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(number)
        if topic is None or partition is None:
            continue
        broken += _check_in_its_place(image, topic, number, partition)
        is_listed = number in image.topics.reassigning.get(topic_id, ())
        rule = ("exactly the partitions being reassigned are listed", is_listed == partition.is_reassigning)
        broken += _violated([rule], f"{topic.name}-{number}")
        broken += _check_move(image, topic_id, number)
    return tuple(broken)


def check_requests(answers: requests.RequestsImage) -> tuple[str, ...]:
    """Violated rules of the answers to requests: their number, their order, and the list of clients."""
    broken: list[str] = []
    older, kept_bytes, oldest_kept, count = None, 0, None, 0
    for client_id, client in answers.in_order():
        sequences = [answered.sequence for answered in client.answered]
        are_rising = sequences == sorted(set(sequences)) and len(sequences) <= requests.KEPT_PER_CLIENT
        broken += _violated(
            (
                ("a client's answers are few, and of rising sequences", are_rising),
                (
                    "a client's forgotten sequences are below its kept ones",
                    client.forgotten_up_to < min(sequences, default=1 << 64),
                ),
                ("each client follows its neighbour", client.older == older),
                ("clients without answers come first", bool(sequences) or oldest_kept is None),
            )
        )
        if oldest_kept is None and sequences:
            oldest_kept = client_id
        older, kept_bytes, count = client_id, kept_bytes + client.kept_bytes, count + 1
    found = (older, oldest_kept, kept_bytes, count)
    noted = (answers.newest, answers.oldest_kept, answers.kept_bytes, len(answers.clients))
    broken += _violated([("the list of clients has its ends, its number of clients and of bytes", found == noted)])
    return tuple(broken)


def check_step(before: MetadataImage, after: MetadataImage, record: AnyRecord) -> tuple[str, ...]:
    """Violated rules of replaying one record outside a transaction: epochs move exactly as the record says."""
    rules: Iterable[tuple[str, bool]] = ()
    if isinstance(record, PartitionChange):
        old = before.topics.partition(record.topic_id, record.partition_id)
        new = after.topics.partition(record.topic_id, record.partition_id)
        if old is None or new is None:
            rules = [("a changed partition exists before and after", False)]
        else:
            leader_epoch = old.leader_epoch + (record.leader is not None)
            has_arrived = not _is_completed(old, new) or set(old.adding) <= set(new.isr)
            rules = (
                ("the partition epoch rises by one with every change", new.partition_epoch == old.partition_epoch + 1),
                ("the leader epoch rises by one with every change that has a leader", new.leader_epoch == leader_epoch),
                ("a reassignment is complete once every replica that it adds is in sync", has_arrived),
                (
                    "without eligible leader replicas the ISR does not become empty",
                    bool(new.isr) or not old.isr or eligible_leaders.are_on(before),
                ),
            )
    elif isinstance(record, Partition):
        rules = [("a new partition exists", after.topics.partition(record.topic_id, record.partition_id) is not None)]
    elif isinstance(record, ProducerIds):
        rules = [("each producer id is given once", before.next_producer_id < after.next_producer_id == record.next_producer_id)]
    elif isinstance(record, RegisterBroker):
        known = before.cluster.brokers.get(record.broker_id)
        highest = max((broker.epoch for broker in before.cluster.brokers.values()), default=-1)
        rules = (
            (
                "a broker's epoch rises with a new incarnation and stays with the same",
                known is None or not _goes_back(known, record),
            ),
            ("a new broker's epoch is above all others", known is not None or record.broker_epoch > highest),
        )
    return tuple(_violated(rules, record))


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
    broken = _violated(
        (
            ("an ACL allows or denies", all(acl.permission_type in (_P.DENY, _P.ALLOW) for acl in acls.ids)),
            ("an ACL has a literal name or a prefix", all(acl.pattern_type in (_T.LITERAL, _T.PREFIXED) for acl in acls.ids)),
            ("an ACL names principal, host and resource", all(a.principal and a.host and a.resource_name for a in acls.ids)),
            ("no two ACLs are equal", len(acls.ids) == len(acls.by_id)),
        )
    )
    return [*broken] or [*_violated([("all maps arrange the same ACLs", acls == AclsImage().after(acls.by_id))])]


def _check_topics(image: MetadataImage) -> Iterator[str]:
    topics = image.topics
    by_name = {topic.name: topic_id for topic_id, topic in topics.by_id.items()}
    yield from _violated([("names and ids of topics belong to each other", by_name == dict(topics.by_name))])
    for topic_id, topic in sorted(topics.by_id.items()):
        moving = []
        for number, partition in sorted(topic.partitions.items()):
            yield from _check_in_its_place(image, topic, number, partition)
            if partition.is_reassigning:
                moving.append(number)
        rules = (
            ("a topic is found by its own id", topic.topic_id == topic_id),
            ("the listing has exactly the partitions being reassigned", topics.reassigning.get(topic_id, ()) == tuple(moving)),
        )
        yield from _violated(rules, topic.name)
    for topic_id in topics.reassigning:
        yield from _violated([("a topic of the listing exists", topic_id in topics.by_id)], to_text(topic_id))


def _check_in_its_place(image: MetadataImage, topic: TopicImage, number: int, partition: PartitionImage) -> Iterator[str]:
    """Check one partition among topics and brokers."""
    place = f"{topic.name}-{number}"
    for line in check_partition(partition):
        yield f"{place}: {line} in {partition}"
    leader = image.cluster.brokers.get(partition.leader)
    has_few = True
    if partition.elr and eligible_leaders.are_on(image):
        least = eligible_leaders.partition_min_isr(partition, eligible_leaders.min_insync_replicas(image, topic.name))
        has_few = len(partition.isr) < least
    rules = (
        ("the leader is registered and unfenced", partition.leader == NO_LEADER or (leader is not None and not leader.fenced)),
        (NOT_SHUTTING_DOWN, leader is None or not leader.in_controlled_shutdown),
        ("only a partition below its min ISR has an ELR", has_few),
    )
    yield from _violated(rules, place, partition)


def _check_brokers(image: MetadataImage) -> Iterator[str]:
    owners: dict[Uuid, int] = {}
    epochs: dict[int, int] = {}
    for broker_id, broker in sorted(image.cluster.brokers.items()):
        directories, cordoned = broker.log_dirs, broker.cordoned_log_dirs
        are_valid = list(directories) == sorted(set(directories)) and not any(map(is_reserved, directories))
        are_own = list(cordoned) == sorted(set(cordoned)) and set(cordoned) <= set(directories)
        rules = (
            ("a broker is found by its own id", broker.broker_id == broker_id),
            ("no two brokers have the same epoch", epochs.setdefault(broker.epoch, broker_id) == broker_id),
            ("directories are sorted, distinct and not reserved", are_valid),
            ("cordoned directories are sorted, distinct and its own", are_own),
            (
                "no two brokers have the same directory",
                {owners.setdefault(each, broker_id) for each in directories} <= {broker_id},
            ),
        )
        yield from _violated(rules, f"broker {broker_id}", broker)


def _check_configs(image: MetadataImage) -> Iterator[str]:
    for resource, values in image.configs.items():
        yield from _violated([("a resource without configs is not listed", bool(values))], resource)
    if eligible_leaders.are_on(image):
        having = {
            name for (kind, name), values in image.configs.items() if kind == RESOURCE_BROKER and MIN_INSYNC_REPLICAS in values
        }
        rule = "with eligible leader replicas the cluster has a min.insync.replicas, and no single broker has one"
        yield from _violated([(rule, having == {""})])


def _check_quotas(quotas: QuotasImage) -> Iterator[str]:
    for entity, values in quotas.items():
        rules = (
            ("an entity without quotas is not listed", bool(values)),
            ("an entity's parts are sorted, each type once", bool(entity) and entity == quota_entity(entity)),
            ("quotas are above 0", all(value > 0 for value in values.values())),
        )
        yield from _violated(rules, entity)


def _check_features(image: MetadataImage) -> Iterator[str]:
    for name, level in image.features.items():
        rules = [("this software supports a finalized level", level != 0 and is_supported(name, level))]
        yield from _violated(rules, f"{name}={level}")


def _check_moves(image: MetadataImage) -> Iterator[str]:
    """Moves belong to partitions that move, queued targets to partitions that do not; plans are found by their own names."""
    moves = image.moves
    for family in (moves.running, moves.queued):
        for topic_id, numbers in family.items():
            yield from _violated([("a topic without moves is not listed", bool(numbers))], to_text(topic_id))
            for number in numbers:
                yield from _check_move(image, topic_id, number)
    ids = [move.move_id for family in (moves.running, moves.queued) for each in family.values() for move in each.values()]
    yield from _violated([("no two moves, running or queued, have the same id", len(set(ids)) == len(ids))])
    for plan_id, plan in moves.plans.items():
        entries = plan.partitions.values()
        are_sound = all(len(was.replicas) == len(was.directories) and _distinct(was.replicas) for was in entries)
        rules = (
            ("a plan has its own name, and partitions", plan.plan_id == plan_id and bool(plan.partitions)),
            (
                "each partition is found by its own topic and number",
                all(key == (was.topic_id, was.partition) for key, was in plan.partitions.items()),
            ),
            ("a plan keeps replicas, each once and with its directory", are_sound),
        )
        yield from _violated(rules, f"plan {plan_id}")


def _check_move(image: MetadataImage, topic_id: Uuid, number: int) -> Iterator[str]:
    """Check the running and the queued move of one partition."""
    place = f"{to_text(topic_id)}-{number}"
    partition = image.topics.partition(topic_id, number)
    running, waiting = image.moves.move(topic_id, number), image.moves.waiting(topic_id, number)
    if running is not None:
        rules = (
            ("a move belongs to a partition that is being reassigned", partition is not None and partition.is_reassigning),
            ("a throttle is above 0, and only a throttle expires", _is_throttle(running.throttle, running.throttle_until_ms)),
            ("a move was requested before this image", running.request_offset < image.provenance.offset),
        )
        yield from _violated(rules, place, running)
    if waiting is not None:
        target, directories = waiting.target, waiting.directories
        is_target = bool(target) and _distinct(target) and len(directories) in (0, len(target))
        rules = (
            ("a partition with a queued target is not moving", partition is not None and not partition.is_reassigning),
            ("a queued target has each replica once, with all directories or without any", is_target),
            ("a throttle is above 0, and only a throttle expires", _is_throttle(waiting.throttle, waiting.throttle_for_ms)),
        )
        yield from _violated(rules, place, waiting)


def _is_throttle(bytes_per_s: int | None, expires_ms: int | None) -> bool:
    return expires_ms is None if bytes_per_s is None else bytes_per_s > 0 and (expires_ms is None or expires_ms > 0)
