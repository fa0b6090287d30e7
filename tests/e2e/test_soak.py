"""The soak of the data plane, short."""

from __future__ import annotations

import pytest

from bench.soak import measure

pytestmark = pytest.mark.cluster

SECONDS = 60


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [11, 12])
def test_every_acknowledged_record_is_on_every_replica_once_and_in_order(seed: int) -> None:
    result = measure(SECONDS, seed)
    assert not result.differences
    assert result.acknowledged > 0
    assert sum(result.troubles.values()) > 10
