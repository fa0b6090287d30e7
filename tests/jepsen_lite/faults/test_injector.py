"""A plan is carried out as written, and every fault is undone, whatever else happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from jepsen_lite.fault_plan import Action, FaultPlan
from jepsen_lite.faults.cluster_under_faults import ClusterUnderFaults, Leads
from jepsen_lite.faults.errors import CannotStrike
from jepsen_lite.faults.injector import carry_out
from jepsen_lite.faults.ledger import Ledger
from jepsen_lite.faults.quorum_guard import QuorumGuard
from kraftlab.checking.facts import Strike
from kraftlab.client import ClusterUnreachable
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.errors import ConfigError
from kraftlab.lab import ClusterError
from kraftlab.lab.links.shape import PLAIN, LinkShape
from kraftlab.lab.powered_disk import PoweredDisk

CONTROLLERS, BROKERS = (3000, 3001, 3002), (0, 1)
NO_PROCESS = 2**23
"""No system has process ids above."""


class Cluster:
    """A cluster that records its faults and reports a leader."""

    def __init__(self) -> None:
        self.controller_ids, self.broker_ids = CONTROLLERS, BROKERS
        self.up = {*CONTROLLERS, *BROKERS}
        self.stopped: set[int] = set()
        self.voters = {*CONTROLLERS}
        self.join_faults: list[Exception] = []
        self.cut_links: set[tuple[int, int]] = set()
        self.shapes: dict[tuple[int, int], LinkShape] = {}
        self.done: list[tuple[float, str]] = []
        self.refuses: set[str] = set()
        self.leads: Leads | None = Leads(3001, 5)

    def _note(self, what: str) -> None:
        if what in self.refuses:
            raise ClusterError(f"refused: {what}")
        self.done.append((round(trio.current_time() - self.began, 3), what))

    def begin(self) -> Callable[[], int]:
        self.began = trio.current_time()
        return lambda: round((trio.current_time() - self.began) * 1e9)

    def pid(self, node_id: int) -> int | None:
        return NO_PROCESS + node_id if node_id in self.up else None

    def start_node(self, node_id: int) -> None:
        assert node_id not in self.up
        self._note(f"start {node_id}")
        self.up.add(node_id)

    def kill_node(self, node_id: int) -> None:
        self._note(f"kill {node_id}")
        self.up.discard(node_id)

    def pause_node(self, node_id: int) -> None:
        self._note(f"stop {node_id}")
        self.stopped.add(node_id)

    def resume_node(self, node_id: int) -> None:
        self._note(f"go on {node_id}")
        self.stopped.discard(node_id)

    def cut_all(self, links: list[tuple[int, int]], *, reset: bool = False) -> None:
        self._note(f"cut {links[0]}")
        self.cut_links.update(links)

    def heal_links(self, links: list[tuple[int, int]], *, drop: bool = False) -> None:
        self._note(f"heal {len(links)}")
        self.cut_links.difference_update(links)

    def shape_links(self, links: list[tuple[int, int]], shape: LinkShape) -> None:
        self.shapes |= dict.fromkeys(links, shape)

    def leave(self, node_id: int, timeout_ms: int) -> None:
        self._note(f"leave {node_id}")
        self.voters.discard(node_id)

    def join(self, node_id: int, timeout_ms: int) -> None:
        if self.join_faults:
            raise self.join_faults.pop(0)
        self._note(f"join {node_id}")
        self.voters.add(node_id)

    def metadata_dir(self, node_id: int) -> Path:
        return Path("nowhere", str(node_id))

    async def find_voters(self) -> dict[int, frozenset[int]]:
        return dict.fromkeys(sorted(self.up & {*CONTROLLERS}), frozenset(self.voters))

    async def find_leader(self, above: int | None = None) -> Leads | None:
        await trio.lowlevel.checkpoint()
        return self.leads

    @property
    def is_whole(self) -> bool:
        return (
            self.up == {*CONTROLLERS, *BROKERS}
            and self.voters == {*CONTROLLERS}
            and not (self.stopped or self.cut_links or set(self.shapes.values()) - {PLAIN})
        )


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def at_once(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run work without a thread: the mock clock does not wait for threads."""
    await trio.lowlevel.checkpoint()
    return work(*arguments)


def action(at_s: float, kind: str, target: str, for_s: float, number: int = 0, **arguments: Any) -> Action:
    return Action(at_ms=int(at_s * 1000), kind=kind, target=target, for_ms=int(for_s * 1000), number=number, arguments=arguments)


async def carried_out(cluster: Cluster, *actions: Action) -> tuple[Strike, ...]:
    return await plan_carried_out(cluster, FaultPlan(seed="1", actions=actions))


async def plan_carried_out(
    cluster: Cluster, plan: FaultPlan, *, ended: Callable[[Strike], None] = lambda strike: None, **more: Any
) -> tuple[Strike, ...]:
    given = {"find_leader": cluster.find_leader, "guard": QuorumGuard(cluster, cluster.find_voters), "work": at_once, **more}
    with Ledger() as book:
        victim = ClusterUnderFaults(cluster, ledger=book, **given)
        return await carry_out(victim, plan, cluster.begin(), ended=ended)


async def test_a_node_is_killed_and_started_at_its_times(cluster: Cluster, autojump_clock: trio.testing.MockClock) -> None:
    (strike,) = await carried_out(cluster, action(2, "kill", "controller:1", 3))
    assert cluster.done == [(2, "kill 3001"), (5, "start 3001")]
    assert strike == Strike(kind="kill", begin_ns=2_000_000_000, end_ns=5_000_000_000, nodes=(3001,))


async def test_what_two_faults_hold_the_last_one_undoes(cluster: Cluster, autojump_clock: trio.testing.MockClock) -> None:
    await carried_out(
        cluster,
        action(1, "kill", "broker:0", 4),
        action(2, "kill", "brokers", 1, 1),
        action(1, "pause", "controller:0", 2),
        action(2, "pause", "controller:0", 2, 1),
        action(1, "isolate-leader", "controller:2", 2),
        action(2, "isolate-leader", "controller:2", 3, 1),
    )
    assert [step for step in cluster.done if step[1].startswith(("kill", "start"))] == [
        *((1, "kill 0"), (2, "kill 1")),
        *((3, "start 1"), (5, "start 0")),
    ]
    assert [step for step in cluster.done if step[1] == "go on 3000"] == [(4, "go on 3000")]
    assert [step for step in cluster.done if step[1].startswith("heal")] == [(5, "heal 8")]
    assert cluster.is_whole


async def test_words_are_looked_up_when_the_action_strikes(cluster: Cluster, autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:

        async def elect() -> None:
            await trio.sleep(2)
            cluster.leads = Leads(3002, 6)

        nursery.start_soon(elect)
        strikes = await carried_out(cluster, action(1, "pause", "leader", 1), action(3, "pause", "leader", 1, 1))
    assert [strike.nodes for strike in strikes] == [(3001,), (3002,)]


async def test_a_strike_at_the_next_leader_waits_for_an_election(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:

        async def elect() -> None:
            await trio.sleep(3)
            cluster.leads = None
            await trio.sleep(0.5)
            cluster.leads = Leads(3000, 7)

        nursery.start_soon(elect)
        (strike,) = await carried_out(cluster, action(2, "kill", "new-leader", 1))
    assert strike.nodes == (3000,)
    assert 3.5e9 <= strike.begin_ns <= 3.6e9
    assert strike.end_ns is not None
    assert strike.end_ns > strike.begin_ns
    assert cluster.is_whole


async def test_a_missing_election_fails_the_strike(cluster: Cluster, autojump_clock: trio.testing.MockClock) -> None:
    (strike,) = await carried_out(cluster, action(2, "kill", "new-leader", 1))
    assert strike.error == "no leader was elected within 5 s"
    assert not strike.nodes
    assert not cluster.done


@pytest.mark.parametrize(
    ("kind", "target", "arguments"),
    [
        ("kill", "majority", {}),
        ("pause", "all", {}),
        ("partition", "all", {"how": "bridge"}),
        ("isolate-leader", "leader", {}),
        ("one-way", "follower", {"way": "in"}),
        ("slow", "all", {"delay_ms": 50}),
        ("membership", "leader", {"wipe": False}),
    ],
)
async def test_a_cancelled_run_is_undone_and_its_strikes_reported(
    cluster: Cluster, autojump_clock: trio.testing.MockClock, kind: str, target: str, arguments: dict[str, Any]
) -> None:
    reported: list[Strike] = []
    plan = FaultPlan(seed="1", actions=(action(1, kind, target, 60, **arguments), action(30, "kill", "leader", 1, 1)))
    with trio.move_on_after(5):
        await plan_carried_out(cluster, plan, ended=reported.append)
    assert cluster.done or cluster.shapes
    assert cluster.is_whole
    assert [(strike.kind, strike.begin_ns, strike.end_ns) for strike in reported] == [(kind, 1_000_000_000, 5_000_000_000)]


async def test_a_fault_of_the_harness_ends_the_run_and_all_is_undone(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    async def fails(above: int | None = None) -> Leads | None:
        if trio.current_time() - cluster.began > 2:
            raise AssertionError("a bug")
        return cluster.leads

    plan = FaultPlan(seed="1", actions=(action(1, "kill", "all", 60), action(3, "pause", "leader", 1)))
    with pytest.RaisesGroup(pytest.RaisesExc(AssertionError, match="a bug")):
        await plan_carried_out(cluster, plan, find_leader=fails)
    assert cluster.is_whole


async def test_what_cannot_be_done_is_said_and_half_of_it_undone(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    cluster.refuses = {"kill 0", "cut (0, 3000)"}
    strikes = await carried_out(
        cluster,
        action(1, "kill", "all", 1),
        action(3, "isolate-leader", "controller:0", 1),
        action(5, "kill", "controller:8", 1, 1),
        action(6, "partition", "controller:0", 1, 1, how="halves"),
        action(7, "pause", "broker:1", 1),
    )
    assert [strike.error for strike in strikes] == [
        "refused: kill 0",
        "refused: cut (0, 3000)",
        "the target 'controller:8' matches none of 3000,3001,3002,0,1",
        "no link to cut around 3000",
        "",
    ]
    assert cluster.is_whole


async def test_what_cannot_be_undone_is_said_and_the_others_are(cluster: Cluster, autojump_clock: trio.testing.MockClock) -> None:
    cluster.refuses = {"start 3001"}
    (strike,) = await carried_out(cluster, action(1, "kill", "controllers", 1))
    assert strike.error == "could not be undone: refused: start 3001"
    assert cluster.up == {3000, 3002, *BROKERS}


class Disk:
    """A disk with or without power; `refusals`: how many mounts fail."""

    def __init__(self, refusals: int = 0) -> None:
        self.has_power, self.refusals = True, refusals

    def sync(self) -> None:
        assert self.has_power

    def lose_power(self) -> None:
        self.has_power = False

    def restore_power(self) -> None:
        self.refusals -= 1
        if self.refusals >= 0:
            raise CannotStrike("mount failed")
        self.has_power = True


async def test_a_node_whose_disk_is_not_mounted_again_is_not_started_without_it(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    disks = {3000: Disk(refusals=1), 3001: Disk(), 3002: Disk()}
    actions = (action(1, "power-loss", "controllers", 1), action(5, "kill", "controller:0", 1))
    first, second = await plan_carried_out(cluster, FaultPlan(seed="1", actions=actions), disks=disks)
    assert first.error == "could not be undone: mount failed"
    assert second.error == "none of these nodes is running"
    assert cluster.up == {3001, 3002, *BROKERS}


async def test_where_no_disk_is_mounted_no_power_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The power would be that of the disk below, which has the rest of the machine."""
    monkeypatch.setattr("fcntl.ioctl", lambda *_: pytest.fail("the machine's own disk was shut down"))
    with pytest.raises(ClusterError, match="nothing is mounted"):
        PoweredDisk(tmp_path / "image", tmp_path).lose_power()


class StubbornClock:
    """The clock of one node; it refuses to be restored if it `sticks`."""

    def __init__(self, sticks: bool) -> None:
        self.rate, self._sticks = 1.0, sticks

    def run_at(self, rate: float) -> None:
        if self._sticks and rate == 1.0:
            raise ClusterError("refused: the clock")
        self.rate = rate


async def test_a_clock_that_cannot_be_restored_does_not_keep_others_wrong(
    cluster: Cluster, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = {node: StubbornClock(node == 3001) for node in CONTROLLERS}
    monkeypatch.setattr(cluster, "clock", clocks.__getitem__, raising=False)
    (strike,) = await carried_out(cluster, action(1, "clock", "controllers", 1, rate=2.0))
    assert strike.error == "refused: the clock"
    assert [clocks[node].rate for node in CONTROLLERS] == [1.0, 2.0, 1.0]


async def test_a_node_stays_paused_after_another_fault_has_killed_it(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    await carried_out(cluster, action(1, "pause", "broker:0", 5), action(2, "kill", "broker:0", 1))
    assert cluster.done == [(1, "stop 0"), (2, "kill 0"), (3, "start 0"), (3, "stop 0"), (6, "go on 0")]
    assert cluster.is_whole


async def test_a_strike_names_exactly_its_nodes(cluster: Cluster, autojump_clock: trio.testing.MockClock) -> None:
    cluster.up.discard(0)
    strikes = await carried_out(cluster, action(1, "kill", "brokers", 1), action(3, "pause", "brokers", 1))
    assert [strike.nodes for strike in strikes] == [(1,), (1,)]


async def test_a_power_loss_names_the_nodes_of_its_disks(cluster: Cluster, autojump_clock: trio.testing.MockClock) -> None:
    plan = FaultPlan(seed="1", actions=(action(1, "power-loss", "all", 1),))
    (strike,) = await plan_carried_out(cluster, plan, disks={3000: Disk(), 3002: Disk()})
    assert (strike.nodes, strike.error) == ((3000, 3002), "")


async def test_a_disk_that_fails_is_of_a_node_that_runs(cluster: Cluster, autojump_clock: trio.testing.MockClock) -> None:
    """The end of another node would be unexpected."""
    cluster.up.discard(0)
    filled: list[int] = []

    class Disks:
        @asynccontextmanager
        async def full(self, node: int) -> AsyncIterator[None]:
            filled.append(node)
            yield

    plan = FaultPlan(seed="1", actions=(action(1, "disk-full", "brokers", 1),))
    (strike,) = await plan_carried_out(cluster, plan, tampering=Disks())
    assert strike.nodes == tuple(filled) == (1,)


async def test_a_voter_that_left_joins_however_often_it_is_refused(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    cluster.join_faults = [
        ClusterUnreachable("no node answers"),
        ConfigError("cannot read server.properties: Input/output error"),
        ApiError(ErrorCode.REQUEST_TIMED_OUT, "another change is under way"),
    ]
    (strike,) = await carried_out(cluster, action(1, "membership", "controller:2", 2))
    assert not strike.error
    assert [what for _, what in cluster.done] == ["leave 3002", "join 3002"]
    assert cluster.is_whole


async def test_a_change_of_voters_that_may_have_happened_is_undone(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    cluster.refuses = {"leave 3002"}
    cluster.join_faults = [ApiError(ErrorCode.DUPLICATE_VOTER, "it is a voter")]
    (strike,) = await carried_out(cluster, action(1, "membership", "controller:2", 2))
    assert strike.error == "refused: leave 3002"
    assert not cluster.join_faults
    assert cluster.is_whole
