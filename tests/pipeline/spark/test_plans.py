"""Plans on Spark: scenarios in parallel."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from kraftlab.cli.main import run
from kraftlab.pipeline.planning.documents import Broker, ClusterDocument, LogDir, Partition, Topic, encode_cluster, validated
from kraftlab.pipeline.planning.options import PlanOptions
from kraftlab.pipeline.planning.scenarios import standard_scenarios, summarise
from kraftlab.pipeline.planning.sweep_on_spark import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def document() -> ClusterDocument:
    lots = random.Random(4)
    log_dirs = (LogDir("/d", total_bytes=10**13, usable_bytes=10**13),)
    brokers = tuple(Broker(id, f"r{id % 4}", True, log_dirs) for id in range(1, 10))

    def partition(number: int) -> Partition:
        replicas = tuple(lots.sample(range(1, 9), 3))
        return Partition(number, replicas, replicas[0], lots.randint(10**6, 10**9), ("/d",) * 3)

    return validated(ClusterDocument(brokers, tuple(Topic(f"t{at}", tuple(map(partition, range(10)))) for at in range(6))))


@pytest.mark.nightly
def test_scenarios_planned_by_tasks_are_those_planned_here(spark: SparkSession, document: ClusterDocument) -> None:
    scenarios = [one for one in standard_scenarios(document, PlanOptions()) if one.name in ("eps 5%", "lose r2", "add 3")]

    rows = sweep(spark, document, scenarios).collect()

    assert {row.scenario: row.asDict() for row in rows} == {
        scenario.name: msgspec.to_builtins(summarise(document, scenario)) for scenario in scenarios
    }
    assert len(rows) == 3


@pytest.mark.nightly
def test_a_sweep_says_the_same_wherever_it_runs(
    spark: SparkSession, document: ClusterDocument, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.json"
    file.write_bytes(encode_cluster(document))
    said = []
    for where in ((), ("--on-spark",)):
        assert run(["pipeline", "plan", "sweep", "--input", str(file), "--goals", "rack,disk,count", *where, "--json"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert len(json.loads(said[0])["scenarios"]) > 6
