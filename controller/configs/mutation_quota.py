"""The controller mutation quota: number of partitions that a client may create and delete per second (KIP-599).

Theory of operation. A client's quota (`controller_mutation_rate`) is a token bucket. It fills at the quota's rate, up to a
burst of rate × windows × window size, and every created or deleted partition takes a token. The bucket may go below zero:
while it is not below zero, the next topic of a request is executed at any cost, so no topic is too large for a quota. While
it is below zero, a *strict* request (CreateTopics 6, CreatePartitions 3, DeleteTopics 5 and newer) has its topics refused with
THROTTLING_QUOTA_EXCEEDED and gets the time to wait. An older, *permissive* request is executed and gets the time to wait.

Buckets belong to this process: another controller that becomes active starts with full ones. A request takes tokens from a
copy of its bucket, and the copy replaces the bucket once the request is executed (`settle`). A request that fails, or has
to wait and starts again, has taken nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.quotas import QuotaEntity, resolve

MUTATION_RATE = "controller_mutation_rate"
WINDOWS_DEFAULT = 11
WINDOW_SIZE_S_DEFAULT = 1
THROTTLE_TIME_MS_MAX = (1 << 31) - 1
BUCKETS_MAX = 10_000
"""Beyond this number, buckets that are not below zero are dropped; they are full again when they are needed."""


class TokenBucket(NamedTuple):
    """`tokens` at `updated_ms`. Below zero they are owed."""

    tokens: float
    updated_ms: int

    def at(self, now_ms: int, rate: float, burst: float) -> TokenBucket:
        """The bucket, filled until now. A clock that goes back fills nothing."""
        elapsed_s = max(0, now_ms - self.updated_ms) / 1000
        return TokenBucket(min(burst, self.tokens + rate * elapsed_s), max(now_ms, self.updated_ms))

    def without(self, count: int) -> TokenBucket:
        return TokenBucket(self.tokens - count, self.updated_ms)

    def throttle_time_ms(self, rate: float) -> int:
        """Time until nothing is owed, limited to the largest value of the response's field."""
        return math.ceil(min(max(0.0, -self.tokens) / rate * 1000, THROTTLE_TIME_MS_MAX))


class MutationQuota:
    """Buckets of one controller process."""

    def __init__(self, windows: int = WINDOWS_DEFAULT, window_size_s: int = WINDOW_SIZE_S_DEFAULT) -> None:
        self._burst_s = windows * window_size_s
        self._buckets: dict[QuotaEntity, tuple[TokenBucket, int]] = {}
        """Bucket of each entity, with the time until which tokens are owed."""

    def __len__(self) -> int:
        """Number of buckets."""
        return len(self._buckets)

    def charge(self, image: MetadataImage, user: str, client_id: str, *, is_strict: bool, now_ms: int) -> MutationCharge:
        """Account of one request."""
        found = resolve(image.quotas, user, client_id, MUTATION_RATE) if image.quotas else None
        if found is None:
            return UNLIMITED
        entity, rate = found
        return _LimitedCharge(self, entity, rate, is_strict, now_ms)

    def bucket(self, entity: QuotaEntity, rate: float, now_ms: int) -> TokenBucket:
        """Current bucket of an entity. A new one is full."""
        burst = rate * self._burst_s
        found = self._buckets.get(entity)
        return TokenBucket(burst, now_ms) if found is None else found[0].at(now_ms, rate, burst)

    def put(self, entity: QuotaEntity, bucket: TokenBucket, rate: float) -> None:
        now_ms = bucket.updated_ms
        if len(self._buckets) >= BUCKETS_MAX and entity not in self._buckets:
            self._buckets = {key: kept for key, kept in self._buckets.items() if kept[1] > now_ms}
        self._buckets[entity] = (bucket, now_ms + bucket.throttle_time_ms(rate))


def quota_of(static: Mapping[str, str]) -> MutationQuota:
    """Quota with the windows of server.properties (`controller.quota.window.num`, `.size.seconds`)."""
    return MutationQuota(
        int(static.get("controller.quota.window.num", WINDOWS_DEFAULT)),
        int(static.get("controller.quota.window.size.seconds", WINDOW_SIZE_S_DEFAULT)),
    )


class MutationCharge:
    """Tokens of one request; this class has no limit.

    Managers call `take` once per topic, before they make its records. `throttle_time_ms` goes into the response's header.
    """

    throttle_time_ms = 0

    def take(self, partitions: int) -> None:
        """Take a token per created or deleted partition. ApiError THROTTLING_QUOTA_EXCEEDED if the topic has to wait."""

    def settle(self) -> None:
        """Keep the tokens that the request took: it was executed."""


UNLIMITED = MutationCharge()


class _LimitedCharge(MutationCharge):
    def __init__(self, quota: MutationQuota, entity: QuotaEntity, rate: float, is_strict: bool, now_ms: int) -> None:
        self.throttle_time_ms = 0
        self._quota = quota
        self._entity = entity
        self._rate = rate
        self._is_strict = is_strict
        self._bucket = quota.bucket(entity, rate, now_ms)

    def take(self, partitions: int) -> None:
        if self._is_strict and self._bucket.tokens < 0:
            self.throttle_time_ms = self._bucket.throttle_time_ms(self._rate)
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self._bucket = self._bucket.without(partitions)
        if not self._is_strict:
            self.throttle_time_ms = self._bucket.throttle_time_ms(self._rate)

    def settle(self) -> None:
        self._quota.put(self._entity, self._bucket, self._rate)
