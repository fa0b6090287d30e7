"""Fixtures for the pure kernels of the controller: small partitions written as rows, and the effect of a change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftlab.common.uuids import Uuid
from kraftlab.metadata.image import PartitionImage

Replicas = list[int]


def directory(broker_id: int) -> Uuid:
    return (1000 + broker_id).to_bytes(16, "big")


@pytest.fixture(scope="session")
def directory_of() -> Callable[[int], Uuid]:
    """The only directory of a broker."""
    return directory


@pytest.fixture(scope="session")
def partition() -> Callable[..., PartitionImage]:
    """Make a partition from lists: R, ISR, leader; AR, RR and the original set if it moves (target = R - RR)."""

    def make(
        replicas: Replicas,
        isr: Replicas,
        leader: int,
        adding: Replicas | None = None,
        removing: Replicas | None = None,
        original: Replicas | None = None,
    ) -> PartitionImage:
        dropped, new = tuple(removing or ()), tuple(adding or ())
        is_moving = bool(dropped or new)
        was = tuple(original) if original is not None else tuple(replica for replica in replicas if replica not in new)
        return PartitionImage(
            tuple(replicas),
            tuple(directory(replica) for replica in replicas),
            tuple(isr),
            leader,
            adding=new,
            removing=dropped,
            original=was if is_moving else (),
            target=tuple(replica for replica in replicas if replica not in dropped) if is_moving else (),
        )

    return make
