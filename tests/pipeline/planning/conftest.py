"""Small made-up clusters, and plans judged with code that shares nothing with the planner."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kraftlab.pipeline.planning.checks import CheckOptions, Finding, Target, check
from kraftlab.pipeline.planning.documents import Broker, ClusterDocument, LogDir, Partition, Topic, validated
from kraftlab.pipeline.planning.plan import Plan

from ...helpers.commands import Ran, run_command

MakeCluster = Callable[..., ClusterDocument]


@pytest.fixture(scope="session")
def make_cluster() -> MakeCluster:
    """A cluster out of a seed. The last `new` brokers are empty; brokers are in racks in turn; all is in the first directory."""

    def make(
        seed: int = 0,
        *,
        brokers: int = 6,
        new: int = 1,
        racks: int = 3,
        topics: int = 4,
        partitions: int = 8,
        factor: int = 3,
        directories: int = 2,
        largest: int = 10**9,
        **broker_fields: Any,
    ) -> ClusterDocument:
        lots = random.Random(seed)
        log_dirs = tuple(LogDir(f"/d{at}", id=f"dir-{at}", usable_bytes=10**13) for at in range(directories))

        def partition(number: int) -> Partition:
            replicas = tuple(lots.sample(range(1, brokers - new + 1), factor))
            size = lots.randint(largest // 100, largest)
            return Partition(number, replicas, replicas[0], size, ("/d0",) * factor if directories else ())

        return validated(
            ClusterDocument(
                tuple(Broker(id, f"r{id % racks}" if racks else None, True, log_dirs) for id in range(1, brokers + 1)),
                tuple(Topic(f"t{at}", tuple(partition(number) for number in range(partitions))) for at in range(topics)),
            )
        )

    return make


def _targets(plan: Plan) -> list[Target]:
    return [Target(move.topic, move.partition, move.after, move.dirs, move.before) for move in plan.moves]


@pytest.fixture(scope="session")
def judge() -> Callable[[Plan], list[Finding]]:
    """Return the findings of the independent checks of a plan."""

    def judged(plan: Plan) -> list[Finding]:
        options = plan.options
        empty = (*options.drain, *(source for source, _ in options.replace))
        asked = CheckOptions(
            options.eps, options.rf, empty, options.drain_dirs, options.exclude_brokers, options.max_bytes, options.balances
        )
        return check(plan.cluster, _targets(plan), asked)

    return judged


@pytest.fixture(scope="session")
def after() -> Callable[[Plan], dict[tuple[str, int], tuple[int, ...]]]:
    """Return the replicas after a plan."""

    def placed(plan: Plan) -> dict[tuple[str, int], tuple[int, ...]]:
        found = {(topic.name, entry.partition): entry.settled for topic in plan.cluster.topics for entry in topic.partitions}
        return found | {(move.topic, move.partition): move.after for move in plan.moves}

    return placed


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(run_command, capsys)


@pytest.fixture
def plan(run: Run) -> Run:
    return lambda *arguments: run("pipeline", "plan", *arguments)
