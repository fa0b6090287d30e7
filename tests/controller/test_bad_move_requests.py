"""Any request about moves, valid or not, gets a code from the table and a helpful text, and the image stays sound."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.controller.reassignment import named_changes as kip_179
from kraftlab.controller.reassignment import reassignments
from kraftlab.controller.reassignment.listing import Observer, listing
from kraftlab.metadata.errors import ApiError, ErrorCode

LARGE = (1 << 63) - 1
INT32 = (1 << 31) - 1
NUMBERS = (0, 1, 2, 3, 4, 5, -1, 99, 3000, INT32, -INT32 - 1)
NAMES = ("t", "u", "", "nope", ".", "t" * 300, "__cluster_metadata", "\x00")
TEXTS = ("", "p", "q", "x" * 249, "x" * 250, "\n", "é" * 100)


class Requests:
    """Random requests: half of their values are valid."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def maybe(self, chance: float = 0.3) -> bool:
        return self.random.random() < chance

    def number(self) -> int:
        return self.random.randrange(5) if self.maybe(0.7) else self.random.choice(NUMBERS)

    def name(self) -> str:
        return self.random.choice(("t", "u")) if self.maybe(0.8) else self.random.choice(NAMES)

    def options(self, request: Any) -> Any:
        if self.maybe():
            request.validate_only = self.maybe()
        if self.maybe():
            request.reason = self.random.choice(TEXTS) * self.random.choice((1, 1, 20))
        if self.maybe():
            request.initiator = self.random.choice(TEXTS)
        if self.maybe():
            request.queued = True
            request.priority = self.random.choice((0, 1, -1, INT32))
        if self.maybe():
            request.throttle = self.random.choice((0, 1, 10**9, -1, LARGE))
        if self.maybe(0.2):
            request.throttle_expires_ms = self.random.choice((0, 1, 10**6, -5, LARGE))
        if self.maybe():
            request.plan_id = self.random.choice(TEXTS)
        return request

    def reassignment(self) -> Any:
        request = self.options(admin_pb2.AlterPartitionReassignmentsRequest())
        if self.maybe(0.1):
            request.cancel_all = True
        if self.maybe(0.1):
            request.cancel_topics.extend(self.name() for _ in range(self.random.randrange(3)))
        if self.maybe(0.1):
            request.rollback_plan_id = self.random.choice(TEXTS)
        if self.maybe():
            request.force = True
        if self.maybe():
            request.allow_replication_factor_change = self.maybe()
        for _ in range(self.random.randrange(4)):
            topic = request.topics.add(name=self.name())
            for _ in range(self.random.randrange(4)):
                entry = topic.partitions.add(partition_index=self.number())
                if self.maybe(0.8):
                    entry.replicas.SetInParent()
                    entry.replicas.values.extend(self.number() for _ in range(self.random.choice((0, 1, 2, 3, 50))))
                if self.maybe(0.1):
                    entry.expected_replicas.SetInParent()
                    entry.expected_replicas.values.extend(self.number() for _ in range(self.random.randrange(3)))
                if self.maybe(0.1):
                    entry.expected_partition_epoch = self.number()
        return request

    def factors(self) -> Any:
        request = self.options(admin_pb2.AlterReplicationFactorsRequest())
        for _ in range(self.random.randrange(3)):
            request.topics.add(name=self.name(), replication_factor=self.number())
        return request

    def throttle(self) -> Any:
        request = admin_pb2.AlterInterBrokerThrottleRequest(validate_only=self.maybe())
        for field in ("leader_rate", "follower_rate"):
            if self.maybe(0.6):
                setattr(request, field, self.random.choice((0, 5, -1, LARGE, -LARGE)))
        if self.maybe(0.7):
            request.broker_id = self.number()
        return request

    def counts(self) -> Any:
        request = admin_pb2.AlterPartitionCountsRequest(validate_only=self.maybe())
        for _ in range(self.random.randrange(3)):
            request.topics.add(name=self.name(), count=self.random.choice((*range(6), -1, INT32)))
        return request

    def any(self) -> tuple[Any, Any]:
        return self.random.choice(
            (
                *[(reassignments.alter, self.reassignment())] * 4,
                (kip_179.alter_replication_factors, self.factors()),
                (kip_179.alter_inter_broker_throttle, self.throttle()),
                (kip_179.alter_partition_counts, self.counts()),
            )
        )


def entries(response: Any) -> list[Any]:
    """All entries of the response with an error of their own."""
    found: list[Any] = []
    for field in ("responses", "topics", "partitions"):
        for entry in getattr(response, field, ()):
            found += [entry] if hasattr(entry, "error_code") else []
            found += entries(entry)
    return found


@pytest.mark.parametrize("seed", range(30))
async def test_senseless_requests_do_no_harm(five: Any, seed: int) -> None:
    await five.create("t", (0, 1), (1, 2), (2, 3))
    await five.create("u", (0,), (1,))
    requests = Requests(seed)
    observer = Observer(five.controller.moves.progress, five.clock.now_ms, five.settings)
    for _ in range(40):
        operation, request = requests.any()
        before = five.controller.newest.image
        try:
            response = await five.write(operation, request)
        except ApiError as error:
            assert error.code not in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE), f"{request}: {error}"
            assert len(error.message or "") > 20, f"{error.code.name} says what is wrong: {error.message!r}"
            assert five.controller.newest.image == before, "a refusal changes nothing"
            continue
        for entry in entries(response):
            assert entry.error_code != ErrorCode.UNKNOWN_SERVER_ERROR, f"{request}: {entry}"
            assert not entry.error_code or ErrorCode(entry.error_code)
        if getattr(request, "validate_only", False):
            assert five.controller.newest.image == before
        listed = listing(five.controller.committed, admin_pb2.ListPartitionReassignmentsRequest(), observer)
        assert listed.ByteSize() > 0, "it can be told to others"
        await five.pass_time(30)
