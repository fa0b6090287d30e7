"""Plans on Spark: checks that agree with the plain ones, the load model, scenarios in parallel."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from kraftlab.cli.main import run
from kraftlab.pipeline.planning import checks_on_spark as on_spark
from kraftlab.pipeline.planning.checks import Asked, Target, check
from kraftlab.pipeline.planning.documents import Broker, ClusterDocument, LogDir, Partition, Topic, encode_cluster, tidied
from kraftlab.pipeline.planning.gold_rows import moves_table
from kraftlab.pipeline.planning.options import PlanOptions
from kraftlab.pipeline.planning.plan import PartitionMove, Plan
from kraftlab.pipeline.planning.propose import propose
from kraftlab.pipeline.planning.scenarios import standard_scenarios, summarise

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

    return tidied(ClusterDocument(brokers, tuple(Topic(f"t{at}", tuple(map(partition, range(10)))) for at in range(6))))


def test_the_load_model_is_that_of_the_plan(spark: SparkSession, document: ClusterDocument) -> None:
    plan = propose(document, PlanOptions())

    rows = on_spark.load_model(*on_spark.frames(spark, document)).collect()

    assert {row.broker_id: (row.bytes, row.replicas, row.leaders) for row in rows} == {
        load.id: (load.bytes_before, load.replicas_before, load.leaders_before) for load in plan.brokers
    }


def damaged(plan: Plan) -> Plan:
    """A plan with a fault of each kind."""
    first, second, third, fourth, fifth, *rest = plan.moves
    return msgspec.structs.replace(
        plan,
        moves=(
            msgspec.structs.replace(first, after=first.after[:2]),
            msgspec.structs.replace(second, after=(second.after[0],) * 3),
            msgspec.structs.replace(third, before=(1, 2, 3), after=(1, 5, 9)),
            msgspec.structs.replace(fourth, after=(77, 1, 2)),
            msgspec.structs.replace(fifth, topic="nothing"),
            *rest,
        ),
    )


def _targets(moves: tuple[PartitionMove, ...]) -> list[Target]:
    return [Target(move.topic, move.partition, move.after, (), move.before) for move in moves]


def test_the_checks_find_what_the_plain_ones_find(spark: SparkSession, document: ClusterDocument) -> None:
    sound = propose(document, PlanOptions())
    partitions, brokers = on_spark.frames(spark, document)
    other = Asked(rf={"t1": 2}, empty=(3,), untouched=(5,))

    for plan, asked in ((sound, Asked()), (damaged(sound), other)):
        moves = spark.createDataFrame(moves_table(plan))
        rows = on_spark.checks(plan.plan_id, partitions, brokers, moves, asked).collect()
        plain = check(document, _targets(plan.moves), asked)

        assert {(row.check, row.severity) for row in rows} == {(one.check, one.severity) for one in plain}
    assert len(rows) >= 6


def test_racks_with_few_brokers_hold_fewer_replicas(spark: SparkSession) -> None:
    """Three replicas may be in rack b, since there is one broker in rack a; four are too many for as many brokers."""
    brokers = (Broker(1, "a"), Broker(2, "b"), Broker(3, "b"), Broker(4, "b"), Broker(5, "b", alive=False))
    partitions = tuple(Partition(number, (2, 1), 2, 10) for number in range(2))
    cluster = tidied(ClusterDocument(brokers, (Topic("t", partitions),)))
    plan = propose(cluster, PlanOptions(rf={"t": 4}))
    crowded = (plan.moves[0], msgspec.structs.replace(plan.moves[1], after=(2, 3, 4, 5)))
    frames = on_spark.frames(spark, cluster)

    for moves, expected in ((plan.moves, []), (crowded, ["dead_broker", "rack"])):
        asked, made = Asked(rf={"t": 4}, banded=False), msgspec.structs.replace(plan, moves=moves)
        rows = on_spark.checks("id", *frames, spark.createDataFrame(moves_table(made)), asked).collect()

        assert sorted(row.check for row in rows) == expected
        assert sorted(finding.check for finding in check(cluster, _targets(moves), asked)) == expected


@pytest.mark.nightly
def test_scenarios_planned_by_tasks_are_those_planned_here(spark: SparkSession, document: ClusterDocument) -> None:
    scenarios = [one for one in standard_scenarios(document, PlanOptions()) if one.name in ("eps 5%", "lose r2", "add 3")]

    rows = on_spark.sweep(spark, document, scenarios).collect()

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
