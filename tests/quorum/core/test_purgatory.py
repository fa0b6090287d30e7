"""Parked fetches leave for exactly one of their reasons."""

from kraftlab.common.replica_key import ReplicaKey
from kraftlab.quorum.core.messages import FetchRequest
from kraftlab.quorum.core.purgatory import FetchPurgatory, ParkedFetch
from kraftlab.quorum.core.types import NEVER_MS


def fetch(correlation: int, high_watermark: int = 0) -> ParkedFetch:
    return ParkedFetch(correlation, FetchRequest(1, ReplicaKey(2), 5, 1, high_watermark, 100, 1000))


def test_all_leave_in_the_order_of_arrival() -> None:
    purgatory = FetchPurgatory()
    for correlation in (3, 1, 2):
        purgatory.park(fetch(correlation), 100)
    assert [parked.correlation for parked in purgatory.take_all()] == [3, 1, 2]
    assert purgatory.next_deadline_ms() == NEVER_MS


def test_only_those_behind_leave_when_the_high_watermark_rises() -> None:
    purgatory = FetchPurgatory()
    purgatory.park(fetch(1, high_watermark=4), 100)
    purgatory.park(fetch(2, high_watermark=7), 100)
    assert [parked.correlation for parked in purgatory.take_behind(7)] == [1]
    assert len(purgatory) == 1


def test_the_next_deadline_is_that_of_a_fetch_still_parked() -> None:
    purgatory = FetchPurgatory()
    purgatory.park(fetch(1), 100)
    purgatory.park(fetch(2), 200)
    purgatory.discard(1)
    assert purgatory.next_deadline_ms() == 200
    assert purgatory.take_expired(199) == []
    assert [parked.correlation for parked in purgatory.take_expired(200)] == [2]
