"""An administrator who does everything: requests of all kinds, small and large, sent again and again, with short deadlines.

An operation is a kind of request. Its content is drawn each time. Most requests have ids and are sent several times: at once,
while an earlier attempt can still be in flight, and late, when the cluster may have forgotten the answer. Any answer counts as a
success. The rules of the simulated world (`kraftlab.simulation.metadata`) judge what controllers answer, write and show.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.config.resources import ResourceType
from kraftlab.metadata.acls import Operation, PatternType, PermissionType
from kraftlab.metadata.acls import ResourceType as AclResource
from kraftlab.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, MIN_INSYNC_REPLICAS
from kraftlab.metadata.requests import KEPT_PER_CLIENT
from kraftlab.quorum.core.batch import MAX_RECORDS
from kraftlab.simulation.metadata.named_requests import METRICS, PAIRS, SUBSCRIPTIONS

from ..checkers.exactly_once import ExactlyOnce
from ..checkers.stats import Stats
from ..generators import Invocation, Source, mix, repeat
from ..history import INFO
from ..workload import CallFailed, Checker, Completion, Options, Port, Workload
from .callers import DELETE, NODE_OF_CHOICE_RATE, SET, Caller, SeenBrokers, ended, need_brokers, nodes, repeated_until_ok

TOPICS = ("a", "b", "c.d", "c_d", "e", "f")
"""Two of the names collide."""
PLANS = ("plan", "another plan")
USERS = ("User:alice", "User:bob", "User:*")
ACL_TOPICS = ("a", "b", "*")
DEADLINES_MS = (20, 500, 500, 5_000)
REMEMBERED = KEPT_PER_CLIENT + 2
"""Number of requests of a process that can be sent again; some of them are too old."""
AGAIN_RATE = 0.3
"""Share of the operations that send an earlier request again, and of attempts after which another one follows."""
NAMED_RATE = 0.8
"""Share of the requests that have ids."""
LOOK_RATE = 0.1
"""Share of the operations before which the administrator looks at the brokers again."""
SMALL_BATCH, LARGE = 4, 12
"""Number of records in the batches of half of the seeds, and of entries in large requests."""


def workload() -> Workload:
    why_not = "its checks are rules of the simulator"
    return Workload(
        "admin",
        Administrator,
        _generator,
        lambda _: repeated_until_ok(*map(Invocation, REQUESTS)),
        _checkers,
        need_brokers,
        not_in={"real": why_not, "shell": why_not},
        properties={"reassignment.max.moves.per.broker": "1"},
        batch_records=(SMALL_BATCH, MAX_RECORDS),
        summary="administrators' requests of all kinds, sent again and again, judged by all rules of the simulator",
    )


def _generator(options: Options) -> Source:
    weights = [weight for weight, _ in REQUESTS.values()]
    return mix(*(repeat(Invocation(name)) for name in REQUESTS), weights=weights)


def _checkers(options: Options) -> Sequence[Checker]:
    return (Stats(), ExactlyOnce(*REQUESTS))


# -- requests ---------------------------------------------------------------------------------------------------------------


def _create_topics(random: Random, brokers: SeenBrokers) -> Any:
    request = pb.CreateTopicsRequest()
    for name in random.sample(TOPICS, random.choice((1, 1, 2))):
        request.topics.add(name=name, num_partitions=random.randint(1, 4), replication_factor=random.choice((1, 2, 3)))
    return request


def _create_partitions(random: Random, brokers: SeenBrokers) -> Any:
    topics = [pb.CreatePartitionsTopic(name=name, count=random.randint(1, 8)) for name in random.sample(TOPICS, 2)]
    return pb.CreatePartitionsRequest(topics=topics)


def _delete_topics(random: Random, brokers: SeenBrokers) -> Any:
    return pb.DeleteTopicsRequest(topics=[pb.DeleteTopicState(name=random.choice(TOPICS))])


def _elect_leaders(random: Random, brokers: SeenBrokers) -> Any:
    """Elect the preferred leaders, or any, of all partitions."""
    return pb.ElectLeadersRequest(election_type=random.choice((0, 1)))


def _configs(kind: int, resources: Iterable[str], key: str, value: str | None) -> Any:
    """Set a config of some resources to one value; None deletes it."""
    request = pb.IncrementalAlterConfigsRequest()
    for name in resources:
        resource = request.resources.add(resource_type=kind, resource_name=name)
        resource.configs.add(name=key, config_operation=DELETE if value is None else SET, value=value)
    return request


def _subscribe(random: Random, brokers: SeenBrokers) -> Any:
    """Set the metrics of one subscription, or of a pair with others between, to a value that was never written before."""
    names: tuple[str, ...] = (random.choice(SUBSCRIPTIONS),)
    if random.random() < 0.5:
        first, last = random.choice(PAIRS)
        names = (first, *(f"between-{number}" for number in range(random.randint(1, LARGE))), last)
    return _configs(ResourceType.CLIENT_METRICS, names, METRICS, f"{random.getrandbits(60)}")


def _allow_unclean(random: Random, brokers: SeenBrokers) -> Any:
    value = random.choice(("true", "false", None, None))
    return _configs(ResourceType.TOPIC, [random.choice(TOPICS)], "unclean.leader.election.enable", value)


def _set_min_isr(random: Random, brokers: SeenBrokers) -> Any:
    """Change min.insync.replicas of a topic, the cluster or a broker. The last is refused while the feature is on."""
    kind, name = ResourceType.TOPIC, random.choice(TOPICS)
    if random.random() < 0.4:
        kind, name = ResourceType.BROKER, random.choice(("", *map(str, brokers.epochs)))
    return _configs(kind, [name], MIN_INSYNC_REPLICAS, random.choice(("1", "2", "3", None)))


def _update_features(random: Random, brokers: SeenBrokers) -> Any:
    """Switch the feature of eligible leader replicas on or off."""
    level, upgrade_type = random.choice(((0, 2), (1, 1), (1, 1)))
    request = pb.UpdateFeaturesRequest()
    request.feature_updates.add(feature=ELIGIBLE_LEADER_REPLICAS_VERSION, max_version_level=level, upgrade_type=upgrade_type)
    return request


def _set_quota(random: Random, brokers: SeenBrokers) -> Any:
    request = pb.AlterClientQuotasRequest()
    entry = request.entries.add()
    entry.entity.add(entity_type="user", entity_name=random.choice(("alice", "bob")))
    entry.ops.add(key="producer_byte_rate", value=random.randint(1, 9), remove=random.random() < 0.3)
    return request


def _reassign(random: Random, brokers: SeenBrokers) -> Any:
    """Start, replace, queue or cancel reassignments, running or not."""
    request, known = pb.AlterPartitionReassignmentsRequest(), sorted(brokers.epochs)
    for name in random.sample(TOPICS, random.choice((1, 1, 2))):
        topic = request.topics.add(name=name)
        for number in range(random.randint(1, 3)):
            entry = topic.partitions.add(partition_index=number)
            if known and random.random() < 0.75:
                entry.replicas.values.extend(random.sample(known, random.randint(1, min(3, len(known)))))
    request.queued = random.random() < 0.5
    request.priority = random.choice((0, 0, 1))
    if random.random() < 0.3:
        request.plan_id = random.choice(PLANS)
    if random.random() < 0.3:
        request.throttle, request.throttle_expires_ms = 1000, random.choice((50, 5_000))
    return request


def _cancel(random: Random, brokers: SeenBrokers) -> Any:
    return pb.CancelReassignmentsRequest(force=random.random() < 0.5)


def _roll_back(random: Random, brokers: SeenBrokers) -> Any:
    return pb.RollbackPlanRequest(force=random.random() < 0.5, rollback_plan_id=random.choice(PLANS))


def _create_acls(random: Random, brokers: SeenBrokers) -> Any:
    request = pb.CreateAclsRequest()
    for _ in range(random.choice((1, 2, 3, LARGE))):
        request.creations.add(
            resource_type=AclResource.TOPIC,
            resource_name=random.choice(ACL_TOPICS),
            resource_pattern_type=random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
            principal=random.choice(USERS),
            host="*",
            operation=random.choice((Operation.READ, Operation.ALTER)),
            permission_type=random.choice((PermissionType.DENY, PermissionType.ALLOW)),
        )
    return request


def _delete_acls(random: Random, brokers: SeenBrokers) -> Any:
    request = pb.DeleteAclsRequest()
    request.filters.add(
        resource_type_filter=AclResource.ANY,
        pattern_type_filter=PatternType.ANY,
        principal_filter=random.choice(USERS),
        operation=Operation.ANY,
        permission_type=PermissionType.ANY,
    )
    return request


def _allocate(random: Random, brokers: SeenBrokers) -> Any:
    broker_id, epoch = random.choice(sorted(brokers.epochs.items()) or [(0, -1)])
    return pb.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)


def _unregister(random: Random, brokers: SeenBrokers) -> Any:
    """Unregister a broker, mostly one that is down. It can come back."""
    known = brokers.fenced if random.random() < 0.9 else tuple(brokers.epochs)
    return pb.UnregisterBrokerRequest(broker_id=random.choice(known or (0,)))


REQUESTS: dict[str, tuple[int, Callable[[Random, SeenBrokers], Any]]] = {
    "create-topics": (12, _create_topics),
    "create-partitions": (3, _create_partitions),
    "delete-topics": (4, _delete_topics),
    "elect-leaders": (5, _elect_leaders),
    "subscribe": (16, _subscribe),
    "allow-unclean": (4, _allow_unclean),
    "set-min-isr": (8, _set_min_isr),
    "update-features": (4, _update_features),
    "set-quota": (4, _set_quota),
    "reassign": (16, _reassign),
    "cancel": (1, _cancel),
    "roll-back": (1, _roll_back),
    "create-acls": (3, _create_acls),
    "delete-acls": (2, _delete_acls),
    "allocate": (4, _allocate),
    "unregister": (2, _unregister),
}
"""Kind of request → weight and function that draws one."""


# -- the administrator --------------------------------------------------------------------------------------------------------


class _Request(NamedTuple):
    """A request that was sent. `sequence` 0: it has no id, and is not sent again."""

    api: str
    request: Any
    sequence: int


class Administrator:
    """The client of one process. It remembers its requests with ids, and the brokers that it saw last."""

    def __init__(self, options: Options, process: int) -> None:
        self._caller = Caller(options, process)
        self._random = self._caller.random
        self._remembered: deque[_Request] = deque(maxlen=REMEMBERED)
        self._brokers: SeenBrokers | None = None

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        if self._brokers is None or self._random.random() < LOOK_RATE:
            self._brokers = await self._caller.see_brokers(port, local=True)
        if self._remembered and self._random.random() < AGAIN_RATE:
            return await self._send(self._random.choice(self._remembered), port)
        request = REQUESTS[invocation.f][1](self._random, self._brokers)
        sequence = 0  # a broker may pass a request without an id on twice
        if invocation.f == "subscribe" or self._random.random() < NAMED_RATE:
            sequence = self._caller.sequence = self._caller.sequence + 1
        sent = _Request(type(request).__name__.removesuffix("Request"), request, sequence)
        if sequence:
            self._remembered.append(sent)
        return await self._send(sent, port)

    async def _send(self, sent: _Request, port: Port) -> Completion:
        """Send a request once or several times: it succeeds if any attempt does, and its outcome is unknown if any one's is."""
        random, succeeded, failed, attempts = self._random, None, None, 1
        while sent.sequence and random.random() < AGAIN_RATE:
            attempts += 1
        for _ in range(attempts):
            node = random.choice(nodes(port)) if random.random() < NODE_OF_CHOICE_RATE else None
            deadline_ms = random.choice(DEADLINES_MS)
            try:
                succeeded = await self._caller.send_as(
                    port, sent.api, sent.request, sent.sequence, node=node, timeout_ms=deadline_ms
                )
            except CallFailed as error:
                failed = failed if failed is not None and failed.outcome == INFO else error
        if succeeded is not None:
            return ended(succeeded.reply, request_id=succeeded.request_id)
        assert failed is not None, "an attempt succeeds or fails"
        raise failed
