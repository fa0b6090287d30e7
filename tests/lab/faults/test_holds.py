"""The book of overlapping faults: what is wanted is what is held, whatever came before."""

from __future__ import annotations

import errno
import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from kraftlab.lab.faults.fault_steps import FaultSteps
from kraftlab.lab.faults.holds import CUT, DOWN, FAILED, FULL, LOSSY, PAUSED, SLOW, WRONG_CLOCK, Fault, Hold, Holds
from kraftlab.lab.links.shape import PLAIN, LinkShape

LINKS = ((0, 1), (1, 0))
FAULTS = [Fault(kind, *link) for kind in (CUT, SLOW, LOSSY) for link in LINKS] + [
    Fault(kind, node) for kind in (DOWN, PAUSED, WRONG_CLOCK) for node in (0, 1)
]
DISK_FAULTS = [Fault(kind, 0, directory=path) for kind in (FAILED, FULL) for path in ("/0/d0", "/0/d1")]


class Clock:
    rate = 1.0

    def run_at(self, rate: float) -> None:
        self.rate = rate

    def jump(self, seconds: float) -> None:
        raise AssertionError("nobody asked for that")


class Cluster:
    """Two brokers. Starting a node that runs, or killing one that does not, is a mistake."""

    controller_ids, broker_ids = (), (0, 1)

    def __init__(self) -> None:
        self.up, self.paused, self.cuts = {0, 1}, set[int](), dict[tuple[int, int], bool]()
        self.shapes = dict.fromkeys(LINKS, PLAIN)
        self.clocks = {0: Clock(), 1: Clock()}
        self.errors: Mapping[str, int] = {}

    def pid(self, node_id: int) -> int | None:
        return node_id if node_id in self.up else None

    def start_node(self, node_id: int) -> None:
        assert node_id not in self.up
        self.up.add(node_id)

    def kill_node(self, node_id: int) -> None:
        self.up.remove(node_id)
        self.paused.discard(node_id)

    def pause_node(self, node_id: int) -> None:
        self.paused |= self.up & {node_id}

    def resume_node(self, node_id: int) -> None:
        self.paused.discard(node_id)

    def clock(self, node_id: int) -> Clock:
        return self.clocks[node_id]

    def cut_all(self, links: list[tuple[int, int]], *, reset: bool = False) -> None:
        self.cuts |= dict.fromkeys(links, reset)

    def heal_links(self, links: list[tuple[int, int]], *, drop: bool = False) -> None:
        for link in links:
            del self.cuts[link]
            self.shapes[link] = PLAIN

    def shape_links(self, links: list[tuple[int, int]], shape: LinkShape) -> None:
        self.shapes |= dict.fromkeys(links, shape)

    def fail_directories(self, errors: Mapping[str, int]) -> None:
        self.errors = errors


amounts = st.sampled_from([0.0, 0.25, 0.5])
holders = st.builds(
    lambda delay_ms, loss, reset, rate: Hold(shape=LinkShape(delay_ms=delay_ms, loss=loss), reset=reset, rate=rate),
    *(amounts, amounts, st.booleans(), st.sampled_from([0.5, 1.0, 2.0])),
)


@given(st.lists(st.tuples(holders, st.sets(st.sampled_from([*FAULTS, *DISK_FAULTS]))), max_size=4), st.randoms(), st.booleans())
def test_a_cluster_is_as_its_holders_want_it_whatever_the_order(orders, random, adds_up) -> None:  # type: ignore[no-untyped-def]
    cluster, holds = Cluster(), Holds[Hold](adds_up=adds_up)
    steps = FaultSteps(cluster, holds)
    waiting, standing = list(orders), []
    while waiting or standing:
        if waiting and (not standing or random.random() < 0.5):
            hold, faults = waiting.pop()
            standing.append((hold, faults))
            holds.add(hold, faults)
        else:
            hold, faults = standing.pop(random.randrange(len(standing)))
            holds.drop(hold, faults)
        for _, step in steps.steps(faults):
            step()

        def holding(fault: Fault) -> list[Hold]:
            """The naive book."""
            return [hold for hold, faults in standing if fault in faults]

        def deciding(fault: Fault) -> list[Hold]:
            return holding(fault) if adds_up else holding(fault)[-1:]

        assert cluster.up == {node for node in (0, 1) if not holding(Fault(DOWN, node))}
        assert cluster.paused == {node for node in cluster.up if holding(Fault(PAUSED, node))}
        assert cluster.cuts == {link: found[-1].reset for link in LINKS if (found := holding(Fault(CUT, *link)))}
        for path in ("/0/d0", "/0/d1"):
            failed, full = (holding(Fault(kind, 0, directory=path)) for kind in (FAILED, FULL))
            assert cluster.errors.get(path) == (errno.EIO if failed else errno.ENOSPC if full else None)
        for node, clock in cluster.clocks.items():
            assert clock.rate == math.prod(hold.rate for hold in deciding(Fault(WRONG_CLOCK, node)))
        for link, shape in cluster.shapes.items():
            wanted = {id(hold): hold for kind in (SLOW, LOSSY) for hold in deciding(Fault(kind, *link))}.values()
            assert shape.delay_ms == sum(hold.shape.delay_ms for hold in wanted)
            assert math.isclose(shape.loss, 1 - math.prod(1 - hold.shape.loss for hold in wanted))
    assert not list(holds)


def test_the_last_holder_frees_a_fault_and_the_newest_says_how() -> None:
    first, second, cut = Hold(), Hold(reset=True), Fault(CUT, 0, 1)
    holds = Holds[Hold]()
    holds.add(first, [cut])
    holds.add(second, [cut])
    assert holds.newest(cut) is second
    assert holds.drop(first, [cut]) == []
    assert holds.drop(first, [cut]) == [], "it is not its holder any more"
    assert holds.held_by(second) == {cut}
    assert holds.drop(second, [cut]) == [cut]
    assert cut not in holds
