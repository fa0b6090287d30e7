"""Rare requests of administrators and brokers: access rules, blocks of producer ids, unregistering, and reports of disks.

They have a generator of their own, so that the other requests do not depend on them.
"""

from __future__ import annotations

from typing import Any

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.uuids import Uuid
from kraftlab.controller.cluster import brokers, producer_ids
from kraftlab.controller.engine.quorum_controller import Generate
from kraftlab.controller.security import acls
from kraftlab.metadata.acls import Operation, PatternType, PermissionType, ResourceType

from .stage import MetadataStage, TargetController

RATE = 0.1
"""Share of the administrator's requests that one of these accompanies."""
DISK_RATE = 0.02
"""Share of a broker's heartbeats that report a disk."""
TIMEOUTS_MS = (20, 500, 5_000)
USERS = ("User:alice", "User:bob", "User:*")
NAMES = ("a", "b", "*")


class RareRequests:
    """Rare requests of the administrator."""

    def __init__(self, world: MetadataStage) -> None:
        self._world = world
        self._random = world.options.random("rare requests")
        self._requests = (self._allow, self._allow, self._forget, self._producer_ids, self._producer_ids, self._unregister)

    def ask(self, target: TargetController) -> None:
        """Send a rare request, with the probability RATE."""
        if self._random.random() < RATE:
            name, generate = self._random.choice(self._requests)(target)
            self._world.write(target, name, generate, self._random.choice(TIMEOUTS_MS))

    def _allow(self, target: TargetController) -> tuple[str, Generate[Any]]:
        random = self._random
        request = admin_pb2.CreateAclsRequest()
        for _ in range(random.randint(1, 3)):
            request.creations.add(
                resource_type=ResourceType.TOPIC,
                resource_name=random.choice(NAMES),
                resource_pattern_type=random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
                principal=random.choice(USERS),
                host="*",
                operation=random.choice((Operation.READ, Operation.ALTER)),
                permission_type=random.choice((PermissionType.DENY, PermissionType.ALLOW)),
            )
        return "CreateAcls", lambda state, context: acls.create(state, request, context)

    def _forget(self, target: TargetController) -> tuple[str, Generate[Any]]:
        request = admin_pb2.DeleteAclsRequest()
        request.filters.add(
            resource_type_filter=ResourceType.ANY,
            pattern_type_filter=PatternType.ANY,
            principal_filter=self._random.choice(USERS),
            operation=Operation.ANY,
            permission_type=PermissionType.ANY,
        )
        return "DeleteAcls", lambda state, context: acls.delete(state, request, context)

    def _producer_ids(self, target: TargetController) -> tuple[str, Generate[Any]]:
        known = sorted(target.controller.committed.image.cluster.brokers.items())
        request = admin_pb2.AllocateProducerIdsRequest()
        if known:
            request.broker_id, broker = self._random.choice(known)
            request.broker_epoch = broker.epoch
        return "AllocateProducerIds", lambda state, context: producer_ids.allocate(state, request, context)

    def _unregister(self, target: TargetController) -> tuple[str, Generate[Any]]:
        """Unregister a broker, mostly one that is down. It can come back."""
        known = target.controller.committed.image.cluster.brokers
        down = sorted(broker_id for broker_id, broker in known.items() if broker.fenced or self._random.random() < 0.05)
        request = admin_pb2.UnregisterBrokerRequest(broker_id=self._random.choice(down) if down else 0)
        return "UnregisterBroker", lambda state, context: brokers.unregister(state, request, context)


class Disks:
    """The directories of one broker: some fail, and some are cordoned."""

    def __init__(self, world: MetadataStage, broker_id: int) -> None:
        self._random = world.options.random(f"disks/{broker_id}")

    def report(self, directories: tuple[Uuid, ...]) -> dict[str, Any]:
        """Return fields of the next heartbeat. At least one directory of a broker does not fail."""
        random = self._random
        if random.random() >= DISK_RATE:
            return {}
        if len(directories) > 1 and random.random() < 0.5:
            return {"offline_log_dirs": directories[:1]}
        return {"cordoned_log_dirs": tuple(each for each in directories if random.random() < 0.5)}
