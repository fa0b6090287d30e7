"""Faults that cannot be undone: the status shows them, and each heal tries again."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kraftlab.lab import ClusterError, LocalCluster
from kraftlab.lab.faults.breaker import Breaker
from kraftlab.lab.faults.orders import Order

pytestmark = pytest.mark.cluster


class DarkCluster(LocalCluster):
    """Two brokers without processes, whose disks lose their power, and get it again unless they are `unmountable`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 1, 2, 1)
        self.up = {0, 1}
        self.without_power: set[int] = set()
        self.unmountable: set[int] = set()
        self.notices: list[str] = []
        self.has_notice = threading.Event()

    def note(self, line: str) -> None:
        self.notices.append(line)
        self.has_notice.set()

    def pid(self, node_id: int) -> int | None:
        return os.getpid() if node_id in self.up else None

    def lose_power(self, node_ids: Iterable[int]) -> None:
        self.without_power |= set(node_ids)
        self.up -= self.without_power

    def restore_power(self, node_id: int) -> None:
        if node_id in self.unmountable:
            raise ClusterError(f"`mount broker-{node_id}` failed: no loop device is free")
        self.without_power.discard(node_id)

    def start_node(self, node_id: int) -> None:
        assert node_id not in self.without_power
        self.up.add(node_id)

    def in_doubt(self) -> tuple[str, ...]:
        """No line: there is no controller to ask, and a client would wait for one until its timeout."""
        return ()

    def health(self) -> None:
        """No answer, as of a cluster without controllers."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DarkCluster]:
    with contextlib.closing(DarkCluster(tmp_path)) as cluster:
        yield cluster


@pytest.fixture
def breaker(cluster: DarkCluster, monkeypatch: pytest.MonkeyPatch) -> Breaker:
    breaker = Breaker(cluster, cluster.note)
    monkeypatch.setattr(breaker, "leader", lambda: None)
    return breaker


def states(breaker: Breaker) -> tuple[list[str], list[str]]:
    """States of the brokers, and the orders in force."""
    status = breaker.carry_out(Order("status")).status
    assert status is not None
    return [node.state for node in status.nodes[1:]], [order.text for order in status.orders]


@pytest.mark.parametrize("fix", [Order("heal"), Order("restart", (("brokers",),))], ids=lambda order: order.order)
def test_a_node_whose_disk_cannot_be_mounted_stays_without_power_until_it_can(
    cluster: DarkCluster, breaker: Breaker, fix: Order
) -> None:
    breaker.carry_out(Order("power-loss", (("brokers",),)))
    cluster.unmountable.add(0)
    for _ in range(2):
        with pytest.raises(ClusterError, match="no loop device is free; still in force: broker-0 dark; fix that, then heal"):
            breaker.carry_out(fix)
        assert cluster.up == {1}
        assert states(breaker)[0][0] == "dark"
        assert len(states(breaker)[1]) == 1
    cluster.unmountable.clear()
    breaker.carry_out(fix)
    assert cluster.up == {0, 1}
    assert states(breaker)[1] == []


def test_an_order_that_is_over_and_cannot_be_undone_stays_until_it_is_healed(cluster: DarkCluster, breaker: Breaker) -> None:
    cluster.unmountable.add(1)
    breaker.carry_out(Order("power-loss", (("brokers",),), for_ms=1))
    assert cluster.has_notice.wait(10)
    assert cluster.notices[0].startswith(
        "could not undo order 1: `mount broker-1` failed: no loop device is free; still in force"
    )
    status = breaker.carry_out(Order("status")).status
    assert status is not None and [(order.number, order.left_ms) for order in status.orders] == [(1, None)]
    cluster.unmountable.clear()
    breaker.carry_out(Order("heal"))
    assert cluster.up == {0, 1}
