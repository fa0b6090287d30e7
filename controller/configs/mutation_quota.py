"""The controller mutation quota: how many partitions a client may create and delete per second (KIP-599).

Theory of operation. A client's quota (`controller_mutation_rate`) is a token bucket: it fills at the quota's rate up to a burst
of rate × windows × window size, and every partition that is created or deleted takes a token. The bucket may go below zero: as
long as it is not, the next topic of a request is done whatever it costs, so that no topic is too large for a quota. While it is
below zero a *strict* request (CreateTopics 6, CreatePartitions 3, DeleteTopics 5 and newer) has its topics refused with
THROTTLING_QUOTA_EXCEEDED, and is told when to come again; an older, *permissive* one is done and told to wait.

Buckets belong to this process: another controller that becomes active begins with full ones. A request takes from a copy, and its
bucket counts once the request is carried out (`settle`): one that fails, or has to wait and begins again, has taken nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.quotas import QuotaEntity, resolve

MUTATION_RATE = "controller_mutation_rate"
WINDOWS_DEFAULT = 11
WINDOW_SIZE_S_DEFAULT = 1
THROTTLE_TIME_MS_MAX = (1 << 31) - 1
BUCKETS_MAX = 10_000
"""Beyond that those who owe nothing are forgotten: they begin with a full bucket again."""


class TokenBucket(NamedTuple):
    """`tokens` there were at `updated_ms`; below zero they are owed."""

    tokens: float
    updated_ms: int

    def at(self, now_ms: int, rate: float, burst: float) -> TokenBucket:
        """The bucket after it was filled until now. A clock that goes back fills nothing."""
        elapsed_s = max(0, now_ms - self.updated_ms) / 1000
        return TokenBucket(min(burst, self.tokens + rate * elapsed_s), max(now_ms, self.updated_ms))

    def without(self, count: int) -> TokenBucket:
        return TokenBucket(self.tokens - count, self.updated_ms)

    def throttle_time_ms(self, rate: float) -> int:
        """How long until nothing is owed any more, as far as an answer can say it."""
        return math.ceil(min(max(0.0, -self.tokens) / rate * 1000, THROTTLE_TIME_MS_MAX))


class MutationQuota:
    """The buckets of one controller process."""

    def __init__(self, windows: int = WINDOWS_DEFAULT, window_size_s: int = WINDOW_SIZE_S_DEFAULT) -> None:
        self._burst_s = windows * window_size_s
        self._buckets: dict[QuotaEntity, tuple[TokenBucket, int]] = {}
        """Each with the time until which something is owed."""

    def __len__(self) -> int:
        """How many users and clients may owe something."""
        return len(self._buckets)

    def charge(self, image: MetadataImage, user: str, client_id: str, *, is_strict: bool, now_ms: int) -> MutationCharge:
        """The account of one request."""
        found = resolve(image.quotas, user, client_id, MUTATION_RATE) if image.quotas else None
        if found is None:
            return UNLIMITED
        entity, rate = found
        return _LimitedCharge(self, entity, rate, is_strict, now_ms)

    def bucket(self, entity: QuotaEntity, rate: float, now_ms: int) -> TokenBucket:
        """An entity's bucket as it is now; a new one is full."""
        burst = rate * self._burst_s
        found = self._buckets.get(entity)
        return TokenBucket(burst, now_ms) if found is None else found[0].at(now_ms, rate, burst)

    def put(self, entity: QuotaEntity, bucket: TokenBucket, rate: float) -> None:
        now_ms = bucket.updated_ms
        if len(self._buckets) >= BUCKETS_MAX and entity not in self._buckets:
            self._buckets = {key: kept for key, kept in self._buckets.items() if kept[1] > now_ms}
        self._buckets[entity] = (bucket, now_ms + bucket.throttle_time_ms(rate))


def quota_of(static: Mapping[str, str]) -> MutationQuota:
    """With the windows that server.properties says (`controller.quota.window.num`, `.size.seconds`)."""
    return MutationQuota(
        int(static.get("controller.quota.window.num", WINDOWS_DEFAULT)),
        int(static.get("controller.quota.window.size.seconds", WINDOW_SIZE_S_DEFAULT)),
    )


class MutationCharge:
    """What one request takes; this one has no limit.

    Managers call `take` once per topic, before they make its records. `throttle_time_ms` is what the answer's header says.
    """

    throttle_time_ms = 0

    def take(self, partitions: int) -> None:
        """Takes a token per partition that is created or deleted. ApiError THROTTLING_QUOTA_EXCEEDED if nothing may be done."""

    def settle(self) -> None:
        """The request was carried out: what it took is gone."""


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
