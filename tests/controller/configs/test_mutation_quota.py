"""The controller mutation quota (KIP-599): token buckets against a naive twin, strict and permissive requests."""

from __future__ import annotations

import immutables
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.configs.mutation_quota import BUCKETS_MAX, MUTATION_RATE, MutationQuota, TokenBucket
from kraftlab.metadata.image import EMPTY, MetadataImage
from kraftlab.metadata.quotas import QuotaEntity


def spend(quota: MutationQuota, image: MetadataImage, user: str, count: int, now_ms: int = 0) -> None:
    charge = quota.charge(image, user, "", is_strict=True, now_ms=now_ms)
    charge.take(count)
    charge.settle()


def limited(rate: float, entity: QuotaEntity = (("user", "alice"),)) -> MetadataImage:
    return msgspec.structs.replace(EMPTY, quotas=immutables.Map({entity: immutables.Map({MUTATION_RATE: rate})}))


@given(
    st.floats(0.1, 100),
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 200)), max_size=30),
)
def test_a_bucket_holds_what_flowed_in_less_what_was_taken_and_never_more_than_the_burst(
    rate: float, windows: int, steps: list[tuple[int, int]]
) -> None:
    burst = rate * windows
    bucket = TokenBucket(burst, 0)
    naive, now_ms = burst, 0
    for elapsed_ms, count in steps:
        now_ms += elapsed_ms
        naive = min(burst, naive + rate * elapsed_ms / 1000) - count
        bucket = bucket.at(now_ms, rate, burst).without(count)
        assert bucket.tokens == pytest.approx(naive)
        assert bucket.tokens <= burst
        throttle_ms = bucket.throttle_time_ms(rate)
        assert (throttle_ms == 0) == (bucket.tokens >= 0)
        assert bucket.at(now_ms + throttle_ms, rate, burst).tokens >= -1e-6 * max(1, rate)


def test_a_clock_that_goes_back_fills_nothing() -> None:
    assert TokenBucket(-5, 1000).at(500, 1, 10) == TokenBucket(-5, 1000)


@pytest.mark.parametrize("rate", [1e-9, 5e-324])
def test_a_wait_that_no_answer_can_say_is_the_longest_that_one_can(rate: float) -> None:
    assert TokenBucket(-10, 0).throttle_time_ms(rate) == 2**31 - 1


def test_a_strict_request_may_overshoot_once_and_is_refused_until_nothing_is_owed() -> None:
    quota, image = MutationQuota(windows=11), limited(2.0)
    charge = quota.charge(image, "alice", "", is_strict=True, now_ms=0)
    charge.take(21)
    charge.take(5)
    assert charge.throttle_time_ms == 0
    with pytest.raises(ApiError) as refused:
        charge.take(1)
    assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert charge.throttle_time_ms == 2000
    charge.settle()
    with pytest.raises(ApiError):
        quota.charge(image, "alice", "", is_strict=True, now_ms=1999).take(1)
    quota.charge(image, "alice", "", is_strict=True, now_ms=2000).take(1)


def test_a_permissive_request_is_carried_out_and_gets_a_time_to_wait() -> None:
    quota, image = MutationQuota(windows=1), limited(10.0)
    charge = quota.charge(image, "alice", "", is_strict=False, now_ms=0)
    charge.take(15)
    charge.take(10)
    assert charge.throttle_time_ms == 1500


def test_clients_without_a_quota_have_no_limit() -> None:
    charge = MutationQuota().charge(limited(1.0), "bob", "", is_strict=True, now_ms=0)
    charge.take(1_000_000)
    charge.take(1)
    assert charge.throttle_time_ms == 0


def test_users_that_share_a_default_have_buckets_of_their_own() -> None:
    quota, image = MutationQuota(windows=1), limited(1.0, (("user", None),))
    spend(quota, image, "alice", 100)
    spend(quota, image, "bob", 1)
    with pytest.raises(ApiError):
        quota.charge(image, "alice", "", is_strict=True, now_ms=0).take(1)


def test_a_lowered_quota_caps_the_saved_tokens() -> None:
    quota = MutationQuota(windows=10)
    spend(quota, limited(100.0), "alice", 1)
    charge = quota.charge(limited(1.0), "alice", "", is_strict=True, now_ms=0)
    charge.take(11)
    with pytest.raises(ApiError):
        charge.take(1)


def test_buckets_below_zero_are_kept_for_any_number_of_clients() -> None:
    quota, image = MutationQuota(windows=1), limited(1.0, (("user", None),))
    spend(quota, image, "debtor", 100)
    for number in range(BUCKETS_MAX + 10):
        spend(quota, image, f"user-{number}", 1)
    with pytest.raises(ApiError):
        quota.charge(image, "debtor", "", is_strict=True, now_ms=0).take(1)


def test_buckets_that_are_not_below_zero_are_dropped() -> None:
    quota, image = MutationQuota(windows=1), limited(1.0, (("user", None),))
    for number in range(BUCKETS_MAX):
        spend(quota, image, f"user-{number}", 100)
    spend(quota, image, "another", 1, now_ms=99_000)
    assert len(quota) == 1


def test_tokens_count_once_the_request_is_carried_out() -> None:
    quota, image = MutationQuota(windows=1), limited(1.0)
    for _ in range(3):
        quota.charge(image, "alice", "", is_strict=True, now_ms=0).take(100)
    spend(quota, image, "alice", 100)
    with pytest.raises(ApiError):
        spend(quota, image, "alice", 1)
