"""Fixtures for the driver's tests: identities, and waiting for a condition with a deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from kraftlab.quorum.core.types import ReplicaKey
from kraftlab.quorum.driver.transport import PeerIdentity

CLUSTER_ID = "driver-test-cluster"


@pytest.fixture
def identity() -> Callable[..., PeerIdentity]:
    """Makes the identity of a node: same cluster and generation unless told otherwise."""

    def make(node_id: int, cluster_id: str = CLUSTER_ID, generation: int = 0) -> PeerIdentity:
        return PeerIdentity(cluster_id, generation, ReplicaKey(node_id, bytes([node_id]) * 16))

    return make


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """Waits until a condition holds; fails with its name after a deadline."""

    async def wait(condition: Callable[[], bool], what: str, within_s: float = 10.0) -> None:
        with trio.move_on_after(within_s) as scope:
            while not condition():  # noqa: ASYNC110 - what is waited for has no event to wait on
                await trio.sleep(0.005)
        assert not scope.cancelled_caught, f"not within {within_s} s: {what}"

    return wait
