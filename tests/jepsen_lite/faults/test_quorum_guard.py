"""Every voter set that a node acts on has a majority of undamaged voters under every plan for disks and voters."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jepsen_lite.faults.cluster_under_faults import ClusterUnderFaults, Leads
from jepsen_lite.faults.damage import Damage, batches, log_directory
from jepsen_lite.faults.errors import CannotStrike
from jepsen_lite.faults.injector import carry_out
from jepsen_lite.faults.plan_generator import draw_plan
from jepsen_lite.faults.quorum_guard import QuorumGuard, VoterSets, has_whole_majority
from jepsen_lite.workload import Options
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.lab import ClusterError
from kraftlab.quorum.core.batch import encode
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES

KINDS = ("kill", "pause", "bit-rot", "torn", "membership")
NO_PROCESS = 2**23
"""No system has process ids above."""
STEP_S = 0.4


def small_log() -> bytes:
    """Return a segment of batches, each of which marks the earlier ones as committed."""
    data, crc = bytes(HEADER_PAGE_BYTES), 0
    for offset in range(6):
        batch, crc = encode(
            b"a record", base_offset=offset, epoch=1, record_count=1, append_time_ms=1, high_watermark=offset, previous_crc=crc
        )
        data += batch
    return data


WHOLE = small_log()


class Quorum:
    """Controllers that act on the voters of their own logs, and elect, replicate, truncate and repair by turns. A node's log is
    its position, (epoch, length), and its last voter set. Changes are answered, refused or left open at random; an open change is
    only in the leader's log.
    """

    broker_ids = ()

    def __init__(self, count: int, directory: Path, random: Random) -> None:
        self.controller_ids = tuple(range(3000, 3000 + count))
        everybody = frozenset(self.controller_ids)
        self.logs = dict.fromkeys(self.controller_ids, ((1, 1), everybody))
        self.up, self.stopped = {*self.controller_ids}, set[int]()
        self.directory, self.random = directory, random
        self.leader, self.epoch = self.controller_ids[0], 1
        self.least_whole: list[tuple[frozenset[int], set[int]]] = []
        for node in self.controller_ids:
            self.fill(node)

    # -- what faults do to it ------------------------------------------------------------------------------------------

    def metadata_dir(self, node: int) -> Path:
        return self.directory / str(node)

    def _segment(self, node: int) -> Path:
        return log_directory(self.metadata_dir(node)) / f"{0:020}.log"

    def fill(self, node: int) -> None:
        self._segment(node).parent.mkdir(parents=True, exist_ok=True)
        self._segment(node).write_bytes(WHOLE)

    def pid(self, node: int) -> int | None:
        return NO_PROCESS + node if node in self.up else None

    def start_node(self, node: int) -> None:
        self.up.add(node)

    def kill_node(self, node: int) -> None:
        self.up.discard(node)
        self.stopped.discard(node)

    def pause_node(self, node: int) -> None:
        self.stopped.add(node)

    def resume_node(self, node: int) -> None:
        self.stopped.discard(node)

    def leave(self, node: int, timeout_ms: int) -> None:
        self._change(node, leaves=True)

    def join(self, node: int, timeout_ms: int) -> None:
        self._change(node, leaves=False)

    def wipe_controller(self, node: int) -> None:
        assert node not in self.up
        for file in self._segment(node).parent.iterdir():
            file.unlink()
        self.logs[node] = ((0, 0), frozenset())

    async def find_leader(self, above: int | None = None) -> Leads | None:
        await trio.lowlevel.checkpoint()
        return Leads(self.leader, self.epoch) if self.leader in self.answering else None

    async def find_voters(self) -> dict[int, frozenset[int]]:
        await trio.lowlevel.checkpoint()
        return {node: self.logs[node][1] for node in self.answering}

    # -- what it does --------------------------------------------------------------------------------------------------

    @property
    def answering(self) -> set[int]:
        return self.up - self.stopped

    def is_whole(self, node: int) -> bool:
        """Corruption is noticed where it is; a torn tail does no harm."""
        path = self._segment(node)
        return path.exists() and len(list(batches(path.read_bytes()))) == 6

    def look(self) -> None:
        """Record every voter set that is too weak."""
        whole = {node for node in self.controller_ids if self.is_whole(node)}
        for voters in {voters for _, voters in self.logs.values()} - {frozenset()}:
            if not has_whole_majority(voters, {*voters} - whole):
                self.least_whole.append((voters, whole))

    def _change(self, node: int, *, leaves: bool) -> None:
        leader = self.leader
        if leader not in self.answering or not self._is_led():
            raise ClusterError("nobody leads")
        position, voters = self.logs[leader]
        if leaves != (node in voters):
            raise ApiError(ErrorCode.VOTER_NOT_FOUND if leaves else ErrorCode.DUPLICATE_VOTER, "so it is")
        if not leaves and not (node in self.answering and self.is_whole(node)):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "it has not caught up")
        if self.random.random() < 0.2:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "another change is under way")
        self.logs[leader] = ((self.epoch, position[1] + 1), voters ^ {node})
        if self.random.random() < 0.3:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "it is not committed yet")
        self._replicate()

    def _is_led(self) -> bool:
        return self._has_majority(self.leader, self.logs[self.leader][1])

    def _has_majority(self, leader: int, voters: frozenset[int]) -> bool:
        return leader in self.answering and len(voters & self.answering) > len(voters) // 2

    def _replicate(self) -> None:
        for node in self.answering:
            if self.random.random() < 0.7:
                self.logs[node] = self.logs[self.leader]
                self._repair(node)

    def _repair(self, node: int) -> None:
        if not self.is_whole(node):
            self.fill(node)

    def step(self) -> None:
        if self._is_led() and self.random.random() < 0.9:
            return self._replicate()
        candidate = self.random.choice(self.controller_ids)
        position, voters = self.logs[candidate]
        granting = {node for node in self.answering & voters if self.logs[node][0] <= position and self.is_whole(node)}
        if candidate in granting and len(granting) > len(voters) // 2:
            self.leader, self.epoch = candidate, self.epoch + 1
            self.logs[candidate] = ((self.epoch, position[1] + 1), voters)
        return None

    async def live(self) -> None:
        while True:
            self.step()
            self.look()
            await trio.sleep(STEP_S * self.random.random())

    async def change_voters(self, guard: QuorumGuard) -> None:
        """Change the voters as the clients of a workload do."""
        while True:
            await trio.sleep(self.random.random())
            node, leaves = self.random.choice(self.controller_ids), self.random.random() < 0.5
            if leaves and len(self.logs[self.leader][1]) <= 2:
                continue
            try:
                async with guard.changing(node, leaves=leaves):
                    await trio.sleep(self.random.random())
                    self._change(node, leaves=leaves)
            except (CannotStrike, ClusterError, ApiError):
                continue


async def in_turn(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run work without a thread: the mock clock does not wait for threads."""
    await trio.sleep(0.05)
    return work(*arguments)


def in_mock_time(work: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000), st.integers(1, 5), st.booleans())
def test_no_plan_of_any_seed_leaves_voters_without_a_whole_majority(seed: int, controllers: int, clients_change: bool) -> None:
    options = Options(seed=str(seed), time_s=12, controllers=controllers, brokers=0)
    plan = draw_plan(options, KINDS)

    async def run() -> None:
        quorum = Quorum(controllers, Path(directory), options.random("quorum"))
        guard = QuorumGuard(quorum, quorum.find_voters)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quorum.live)
            if clients_change:
                nursery.start_soon(quorum.change_voters, guard)
            victim = ClusterUnderFaults(quorum, quorum.find_leader, guard, None, work=in_turn)
            await carry_out(victim, plan, lambda: round(trio.current_time() * 1e9))
            nursery.cancel_scope.cancel()
        assert not quorum.least_whole
        for _ in range(1_000):
            quorum.step()
        assert all(quorum.is_whole(node) for node in quorum.controller_ids), "the quorum did not come back"

    with tempfile.TemporaryDirectory() as directory:
        in_mock_time(run)


# -- which voter sets may be in force --------------------------------------------------------------------------------------

NODES = (1, 2, 3, 4)
nodes = st.sampled_from(NODES)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), nodes, st.booleans()),
        st.tuples(st.just("carry out"), st.integers(0, 5), nodes),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("copy"), nodes, nodes),
        st.tuples(st.just("begin_query"), st.sets(nodes) | st.just(set(NODES))),
    ),
    max_size=30,
)


@settings(max_examples=200)
@given(steps)
def test_the_voters_of_every_log_are_among_the_possible_sets(steps: list[tuple[Any, ...]]) -> None:
    """A change is in the log of the node that made it and in copies of this log; nodes answer, or do not."""
    sets, reported = VoterSets(NODES), dict.fromkeys(NODES, frozenset(NODES))
    running: list[Any] = []
    for what, *of in steps:
        match what:
            case "begin":
                running.append(sets.begin(of[0], leaves=of[1]))
            case "carry out" if of[0] < len(running):
                change = running[of[0]]
                reported[of[1]] = reported[of[1]] - {change.node} if change.leaves else reported[of[1]] | {change.node}
            case "end" if of[0] < len(running):
                sets.end(running.pop(of[0]))
            case "copy":
                reported[of[1]] = reported[of[0]]
            case "begin_query":
                sets.end_query(sets.begin_query(), {node: reported[node] for node in of[0]})
        assert {*reported.values()} - {frozenset()} <= sets.possible()


def test_the_reports_of_all_nodes_are_the_only_possible_sets() -> None:
    sets = VoterSets((1, 2, 3))
    begun_at = sets.begin_query()
    sets.end(sets.begin(2, leaves=True))
    now = dict.fromkeys((1, 2, 3), frozenset({1, 2}))
    sets.end_query(begun_at, now)
    assert sets.possible() == {frozenset({1, 2}), frozenset({1})}, "it ended behind the question"
    sets.end_query(sets.begin_query(), now)
    assert sets.possible() == {frozenset({1, 2})}


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.fixture
def quorum(tmp_path: Path) -> Quorum:
    return Quorum(3, tmp_path, Random(1))


@pytest.fixture
def guard(quorum: Quorum) -> QuorumGuard:
    return QuorumGuard(quorum, quorum.find_voters)


def rot(quorum: Quorum, node: int) -> Damage:
    (path,) = log_directory(quorum.metadata_dir(node)).glob("*.log")
    damage = Damage(path, HEADER_PAGE_BYTES + 20, WHOLE[HEADER_PAGE_BYTES + 20 :][:2], b"??")
    damage.inflict()
    return damage


async def test_of_three_voters_one_may_be_damaged(guard: QuorumGuard) -> None:
    async with guard.damaging(3001):
        with pytest.raises(CannotStrike, match="without the log of node 3002, no majority of the voters 3000,3001,3002 would be"):
            async with guard.damaging(3002):
                pass
    async with guard.damaging(3002):
        assert not guard.is_whole(3002)


async def test_of_two_voters_none_may_be_damaged_and_who_votes_no_more_may_be(quorum: Quorum, guard: QuorumGuard) -> None:
    quorum.logs = dict.fromkeys(quorum.logs, ((1, 2), frozenset({3000, 3001})))
    with pytest.raises(CannotStrike, match="no majority of the voters 3000,3001 would be undamaged"):
        async with guard.damaging(3000):
            pass
    async with guard.damaging(3002):
        pass


async def test_no_voter_leaves_while_another_log_is_damaged(quorum: Quorum, guard: QuorumGuard) -> None:
    async with guard.damaging(3001):
        guard.damaged(3001, rot(quorum, 3001))
    with pytest.raises(CannotStrike, match="without node 3000 among the voters, no majority of the voters 3001,3002 would be"):
        async with guard.changing(3000, leaves=True):
            pass
    quorum.fill(3001)
    async with guard.changing(3000, leaves=True):
        pass


async def test_nothing_is_damaged_while_a_voter_may_be_leaving(guard: QuorumGuard) -> None:
    async with guard.changing(3000, leaves=True):
        with pytest.raises(CannotStrike, match="no majority of the voters 3001,3002 would be undamaged"):
            async with guard.damaging(3001):
                pass


async def test_a_damaged_node_joins_no_voter_that_would_need_it(quorum: Quorum, guard: QuorumGuard) -> None:
    quorum.logs = dict.fromkeys(quorum.logs, ((1, 2), frozenset({3000})))
    guard.damaged(3001, rot(quorum, 3001))
    with pytest.raises(CannotStrike, match="with node 3001 among the voters, no majority of the voters 3000,3001 would be"):
        async with guard.changing(3001, leaves=False):
            pass


async def test_what_is_damaged_is_not_damaged_again(quorum: Quorum, guard: QuorumGuard) -> None:
    guard.damaged(3001, rot(quorum, 3001))
    with pytest.raises(CannotStrike, match="the log of node 3001 is already damaged"):
        async with guard.damaging(3001):
            pass
