"""The test plan of KIP-113 on real processes, with producers and consumers that check every record.

T1: replicas move between the log directories of their brokers, and then between brokers. T2: log directories fail one after the
other, by errors below the brokers' own file calls. Every acknowledged record is there once, at its offset and in order.

The rows that go beyond the KIP's plan, and the tests that cover them:

| row | tests |
| --- | --- |
| kill -9 at each step of a swap, and a restart | broker/log/test_log_dir_moves, simulation/crash_images (each disk image) |
| each row of the start-up table | broker/log/test_startup (all combinations of up to three directories) |
| cancel by `any`, by the current directory, by another one | broker/moves/test_moves |
| destination remembered before the replica exists | T1 below, broker/log/test_destinations, broker/moves/test_moves |
| throttle with N movers | broker/replication/test_throttle, broker/moves/test_moves, `python -m bench moves` |
| move of a leader under load | T1 below |
| move of a follower while the leader changes, while it is truncated | `…_while_leaders_change` below, broker/moves/test_moves |
| retention passes the future log's end | broker/moves/test_moves (records deleted during a move) |
| ENOSPC in the target, in the source | e2e/test_failing_directories (move in, append), broker/log/test_log_dir_moves |
| topic deleted during a move | broker/moves/test_moves |
| partition reassigned away during a move | `…_leaves_its_broker_…` below |
| two directories swapped by the operator | broker/log/test_log_dir_starts |
| duplicate directory.id | broker/log/test_log_manager (a copied directory), controller/cluster/test_brokers |
| controller silent while a move is queued | broker/moves/test_moves, broker/control/test_requests_to_the_controller |
| answer to an accepted request lost | broker/control/test_requests_to_the_controller (sent again) |
| topic of 249 characters | broker/log/test_log_dir_moves |
| offset lag and is_future in each phase | broker/moves/test_moves (progress), `…_leaves_its_broker_…` below |
| total and usable bytes of a shared volume | broker/log/test_placement |
"""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlab.client import AdminClient, ClusterUnreachable, DataClient, answer_of
from kraftlab.common.errors import ApiError
from kraftlab.demo.lab import wait_until
from kraftlab.lab import LocalCluster
from kraftlab.lab.cluster_plan import ClusterError
from kraftlab.lab.faults.failing_calls import CALLS, FailingCalls, Rule
from kraftlab.records.record_batch import Record, build_batch, decode_records

from .conftest import OVERRIDES, Workbench, scratch_directory

pytestmark = pytest.mark.cluster

BROKERS = (0, 1, 2)
BATCH = 5
PAUSE_S = 0.02
MORE = 40
"""Records that show that a producer goes on."""
DONE, MOVING = 0, 2
"""Exit codes of `reassign-partitions --verify`."""


class Pair:
    """An idempotent producer and a consumer of one partition, both in threads, until `check` stops them."""

    def __init__(self, bootstrap_servers: str, producer_id: int, topic: str, partition: int = 0) -> None:
        self._servers, self._producer_id = bootstrap_servers, producer_id
        self._topic, self._partition = topic, partition
        self._acknowledged: dict[int, int] = {}
        """Number of each record → offset."""
        self._consumed: list[tuple[int, int]] = []
        """(offset, number) of each record, as read."""
        self._stopping = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(run,), daemon=True) for run in (self._produce, self._consume)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def progress(self) -> int:
        """Number of records that are acknowledged and read."""
        if self._failures:
            raise self._failures[0]
        return min(len(self._acknowledged), len(self._consumed))

    def goes_on(self) -> None:
        """Return once records are acknowledged and read that were produced after the call."""
        wanted = self.progress + MORE
        wait_until(f"{self._topic}-{self._partition} goes on", lambda: self.progress >= wanted)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout=30)

    def check(self) -> None:
        """Stop; require that every record was acknowledged and read once, in order, without gaps."""
        self.stop()
        if self._failures:
            raise self._failures[0]
        offsets, numbers = [list(column) for column in zip(*self._consumed, strict=True)]
        assert offsets == list(range(len(offsets)))
        assert numbers == list(range(len(numbers))), "lost, doubled or out of order"
        assert dict(zip(numbers, offsets, strict=True)) == self._acknowledged

    def _guarded(self, run: Callable[[DataClient], None]) -> None:
        try:
            with AdminClient(self._servers) as admin, DataClient(admin) as data:
                run(data)
        except BaseException as error:
            self._failures.append(error)

    def _produce(self, data: DataClient) -> None:
        number = 0
        while not self._stopping.is_set():
            numbers = range(number, number + BATCH)
            records = [Record(None, b"%d" % each, int(time.time() * 1000)) for each in numbers]
            batch = build_batch(records, producer_id=self._producer_id, producer_epoch=0, base_sequence=number)
            answer = data.produce(self._topic, self._partition, batch)
            self._acknowledged.update(zip(numbers, range(answer.base_offset, answer.base_offset + BATCH), strict=True))
            number += BATCH
            self._stopping.wait(PAUSE_S)

    def _consume(self, data: DataClient) -> None:
        while not self._stopping.is_set() or len(self._consumed) < len(self._acknowledged):
            fetched = data.fetch(self._topic, self._partition, len(self._consumed), max_wait_ms=100)
            end = len(self._consumed)
            self._consumed += [(r.offset, int(r.value or b"-1")) for r in decode_records(fetched.records) if r.offset >= end]


class Plan:
    """A cluster of three brokers with two log directories each, whose file calls can fail."""

    def __init__(self, lab: Workbench, calls: FailingCalls, scratch: Path) -> None:
        self.lab, self.calls, self._scratch = lab, calls, scratch

    def pair(self, topic: str, partition: int = 0) -> Pair:
        producer_id = self.lab.admin.init_producer_id(0).producer_id
        return Pair(self.lab.cluster.bootstrap_servers, producer_id, topic, partition)

    def directory(self, broker: int, index: int) -> str:
        return str(self.lab.cluster.log_dirs(broker)[index])

    def places(self, topic: str) -> dict[int, dict[int, str]]:
        """Log directories of a topic's current replicas: partition → broker → directory."""
        found: dict[int, dict[int, str]] = {}
        for (name, partition), rows in self.lab.replicas_on_disk().items():
            if name == topic:
                found[partition] = {row.broker: row.log_dir for row in rows if not row.is_future}
        return found

    def move(self, run: Callable[..., tuple[int, str]], topic: str, wanted: dict[int, dict[int, str]]) -> None:
        """Move a topic by the tool, and poll the tool until it is there: partition → broker → log directory."""
        entries = [
            {"topic": topic, "partition": partition, "replicas": [*places], "log_dirs": [*places.values()]}
            for partition, places in wanted.items()
        ]
        path = self._scratch / f"{topic}.json"
        path.write_text(json.dumps({"version": 1, "partitions": entries}))
        command = ("reassign-partitions", *self.lab.at, "--reassignment-json-file", str(path))
        code, said = run(*command, "--execute")
        assert code == DONE, said

        def is_done() -> bool:
            code, said = run(*command, "--verify")
            assert code in (DONE, MOVING), said
            return code == DONE

        wait_until(f"{topic} has moved", is_done)
        assert self.places(topic) == wanted

    def other_directory(self, broker: int, log_dir: str) -> str:
        return next(str(path) for path in self.lab.cluster.log_dirs(broker) if str(path) != log_dir)

    def is_offline(self, broker: int, log_dir: str) -> bool:
        results = self.lab.admin.describe_log_dirs(broker, [])
        return bool(next(result.error_message for result in results if result.log_dir == log_dir))


@pytest.fixture(scope="module")
def plan() -> Iterator[Plan]:
    with scratch_directory("kip-113") as directory:
        try:
            calls = FailingCalls(directory / "calls")
        except ClusterError as error:
            pytest.skip(str(error))
        overrides = OVERRIDES | {"replica.high.watermark.checkpoint.interval.ms": "200"}
        with LocalCluster(directory / "cluster", 1, len(BROKERS), 2, overrides=overrides, failing_calls=calls) as cluster:
            lab = Workbench(cluster)
            try:
                yield Plan(lab, calls, directory)
            finally:
                lab.close()
        calls.close()


@pytest.fixture
def pairs(plan: Plan) -> Iterator[Callable[..., Pair]]:
    """Start a producer and a consumer; they end with the test."""
    begun: list[Pair] = []

    def begin(topic: str, partition: int = 0) -> Pair:
        begun.append(plan.pair(topic, partition))
        return begun[-1]

    yield begin
    for pair in begun:
        pair.stop()


def test_t1_replicas_move_between_directories_and_brokers_under_load(
    plan: Plan, pairs: Callable[..., Pair], kraftlab_here: Any
) -> None:
    plan.lab.create_topic("moved", *([broker] for broker in BROKERS))
    running = [pairs("moved", partition) for partition in BROKERS]
    for pair in running:
        pair.goes_on()

    begun = plan.places("moved")
    same_brokers = {
        partition: {broker: plan.other_directory(broker, log_dir) for broker, log_dir in places.items()}
        for partition, places in begun.items()
    }
    plan.move(kraftlab_here, "moved", same_brokers)
    for pair in running:
        pair.goes_on()

    next_brokers = {}
    for partition in same_brokers:
        broker = (partition + 1) % len(BROKERS)
        next_brokers[partition] = {broker: plan.other_directory(broker, same_brokers[broker][broker])}
    plan.move(kraftlab_here, "moved", next_brokers)
    for pair in running:
        pair.goes_on()
        pair.check()
    assert plan.lab.brokers() == [*BROKERS]
    assert not plan.lab.strays()


def test_a_future_replica_that_leaves_its_broker_leaves_no_trace(plan: Plan, pairs: Callable[..., Pair]) -> None:
    plan.lab.set_broker_configs({"replica.alter.log.dirs.io.max.bytes.per.second": "20000"})
    plan.lab.create_topic("leaving", [0, 1])
    plan.lab.fill("leaving", 400_000)
    source = plan.places("leaving")[0][0]
    plan.lab.admin.alter_replica_log_dirs(0, {("leaving", 0): plan.other_directory(0, source)})

    def rows() -> dict[bool, Any]:
        return {row.is_future: row for row in plan.lab.replicas_on_disk().get(("leaving", 0), []) if row.broker == 0}

    wait_until("bytes are copied", lambda: True in rows() and rows()[True].size_bytes > 0)
    assert rows()[False].log_dir == source
    plan.lab.reassign({("leaving", 0): [2, 1]})
    wait_until("it has left", lambda: not rows())
    wait_until("its files go", lambda: not _directories_of(plan, "leaving", 0))
    plan.lab.set_broker_configs({"replica.alter.log.dirs.io.max.bytes.per.second": None})
    assert plan.lab.replicas_are_equal("leaving")


@pytest.mark.nightly
def test_a_follower_moves_while_leaders_change(plan: Plan, pairs: Callable[..., Pair]) -> None:
    plan.lab.create_topic("led", [0, 1, 2], configs={"min.insync.replicas": "2"})
    pair = pairs("led")
    pair.goes_on()
    for leader in (1, 2, 0):
        places = plan.places("led")[0]
        moved = {broker: plan.other_directory(broker, log_dir) for broker, log_dir in places.items()}
        for broker, log_dir in moved.items():
            plan.lab.admin.alter_replica_log_dirs(broker, {("led", 0): log_dir})
        plan.lab.reassign({("led", 0): [leader, *(broker for broker in BROKERS if broker != leader)]})
        answer_of(lambda: plan.lab.admin.elect_leaders(0, [("led", 0)]))
        wait_until(f"broker {leader} leads", lambda leader=leader: plan.lab.partitions()["led", 0].leader_id == leader)
        wait_until("all have moved", lambda moved=moved: plan.places("led")[0] == moved)
        pair.goes_on()
    pair.check()
    wait_until("replicas are equal", lambda: plan.lab.replicas_are_equal("led"))


def _directories_of(plan: Plan, topic: str, broker: int) -> list[Path]:
    return [path for log_dir in plan.lab.cluster.log_dirs(broker) for path in log_dir.glob(f"{topic}-*")]


def test_t2_directories_fail_one_after_the_other(plan: Plan, pairs: Callable[..., Pair], kraftlab_here: Any) -> None:
    plan.lab.create_topic("first", [0, 1, 2])
    plan.lab.create_topic("second", [0, 1, 2])
    for topic, index in (("first", 0), ("second", 1)):
        plan.move(kraftlab_here, topic, {0: {broker: plan.directory(broker, index) for broker in BROKERS}})
    first, second = pairs("first"), pairs("second")
    first.goes_on()
    second.goes_on()

    leader = plan.lab.partitions()["first", 0].leader_id
    follower = next(broker for broker in BROKERS if broker != leader)
    bad: list[Rule] = []
    for broker in (follower, leader):
        log_dir = plan.directory(broker, 1)
        bad += [Rule(call, errno.EACCES, f"{log_dir}/*") for call in CALLS]
        with plan.calls.failing(*bad):
            wait_until(f"{log_dir} is offline", lambda broker=broker, log_dir=log_dir: plan.is_offline(broker, log_dir))
            first.goes_on()
            second.goes_on()
    second.check()
    last = next(broker for broker in BROKERS if broker not in (leader, follower))
    log_dir = plan.directory(last, 1)
    bad += [Rule(call, errno.EACCES, f"{log_dir}/*") for call in CALLS]
    with plan.calls.failing(*bad):
        with pytest.raises((ApiError, ClusterUnreachable)):
            plan.lab.data.produce("second", 0, build_batch([Record(None, b"late", 1)]), timeout_ms=2_000)
        wait_until(f"{log_dir} is offline", lambda: plan.is_offline(last, log_dir))
        first.goes_on()
    first.check()
    assert plan.lab.brokers() == [*BROKERS], "every broker serves from its other directory"
