"""Gold tables made by Spark, compared with their plain oracles on made-up logs, a recorded log and 100,000 changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.reassignment_log import ReassignmentLog
from kraftlab.pipeline.audits import drift_arrow
from kraftlab.pipeline.audits.life_cycles import (
    Change,
    PartitionKey,
    PartitionState,
    Reassignment,
    all_life_cycles,
    partition_states,
)
from kraftlab.pipeline.storage.schemas import arrow_schema, spark_schema
from kraftlab.pipeline.tables import gold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[tuple[PartitionKey, Change]]
Deletions = dict[str, tuple[int, int]]
CHANGES = "silver.partition_changes"
ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
RECORDED = 1000
"""Changes of the recorded log that are enough for every kind of finding."""


def frame(spark: SparkSession, table: str, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """Rows as a table of the lake; columns that they do not name are null."""
    found = spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=arrow_schema(table)))
    return found.select(*arrow_schema(table).names)


def changes_frame(spark: SparkSession, rows: Rows) -> DataFrame:
    return frame(spark, CHANGES, [{**key._asdict(), **change._asdict(), "idx_in_batch": 0} for key, change in rows])


def topics_frame(spark: SparkSession, deletions: Deletions) -> DataFrame:
    rows = [{"topic_id": each, "offset": offset, "ts_ms": ms, "op": "delete"} for each, (offset, ms) in deletions.items()]
    return frame(spark, "silver.topics", rows)


def plain(value: Any) -> Any:
    """Lists, tuples, Spark's rows and named tuples alike."""
    return tuple(plain(item) for item in value) if isinstance(value, tuple | list) else value


def sorted_rows(rows: Iterable[Any]) -> list[Any]:
    return sorted((plain(row) for row in rows), key=repr)


def drift_of(cycles: list[Reassignment], states: list[PartitionState]) -> list[tuple[Any, ...]]:
    """The findings of the kernel, all at once."""
    found = pa.Table.from_pylist([cycle._asdict() for cycle in cycles], schema=arrow_schema("gold.reassignments"))
    of_states = pa.Table.from_pylist([state._asdict() for state in states], schema=arrow_schema("silver.partition_state"))
    of_states = of_states.select(drift_arrow.STATE_COLUMNS)
    return [tuple(row.values()) for row in drift_arrow.rf_drift(lambda columns: [found.select(columns)], of_states).to_pylist()]


def numbered(logs: list[Rows]) -> tuple[Rows, Deletions]:
    """Concatenate many logs, each with topics and offsets of its own. Every third topic is deleted, and as many have a deletion
    after their first row that does not count.
    """
    rows: Rows = []
    deletions: Deletions = {}
    for number, log in enumerate(logs):
        for key, change in log:
            own = key._replace(topic_id=f"{key.topic_id}-{number}", topic=f"{key.topic}-{number}")
            rows.append((own, change._replace(offset=len(rows))))
            if number % 3 == 0 and key.topic == "a":
                deletions[own.topic_id] = (1_000_000 + number, 50)
            if number % 3 == 1 and key.topic == "a":
                deletions.setdefault(own.topic_id, (len(rows), 50))
    return rows, deletions


@given(data=st.data())
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
def test_made_up_logs_and_a_recorded_one_give_what_the_oracles_give(
    spark: SparkSession, logs: st.SearchStrategy[Rows], kafka: Any, data: st.DataObject
) -> None:
    made_up, removed = numbered(data.draw(st.lists(logs, min_size=8, max_size=16)))
    rows, deletions = [*made_up, *kafka.rows[:RECORDED]], {**kafka.deletions, **removed}
    changes, topics = changes_frame(spark, rows), topics_frame(spark, deletions)
    expected, expected_states = all_life_cycles(rows, deletions), partition_states(rows, None, deletions)
    before = spark.conf.get(ROWS_PER_BATCH)
    spark.conf.set(ROWS_PER_BATCH, "7")
    try:
        cycles, states = gold.life_cycles(changes, topics).collect(), gold.partition_states(changes, topics).collect()
    finally:
        spark.conf.set(ROWS_PER_BATCH, before)
    assert sorted_rows(cycles) == sorted_rows(expected)
    assert sorted_rows(states) == sorted_rows(expected_states)
    at_offset = data.draw(st.integers(0, len(rows)))
    at_states = gold.partition_states(changes, topics, at_offset).collect()
    assert sorted_rows(at_states) == sorted_rows(partition_states(rows, at_offset, deletions))
    found = gold.rf_drift(
        gold.reassignments(spark.createDataFrame(cycles, gold.LIFE_CYCLES_TEXT)),
        spark.createDataFrame(states, spark_schema("silver.partition_state")),
    )
    drifts = drift_of(expected, expected_states)
    assert sorted_rows(found.collect()) == sorted_rows(drifts)
    assert {each[5] for each in drifts} >= {"rf_change", "sibling_mismatch"}


def test_a_partition_has_the_name_that_any_of_its_rows_knows(spark: SparkSession) -> None:
    nameless, named = PartitionKey("id", None, 0), PartitionKey("id", "orders", 0)
    created = Change(1, 10, "create", (1,), 1, (1,), (), ())
    moves, moved = Change(2, 20, replicas=(1, 2), adding=(2,)), Change(3, 30, isr=(1, 2), replicas=(1, 2), adding=())
    cycles = gold.life_cycles(changes_frame(spark, [(nameless, created), (nameless, moves), (named, moved)])).collect()
    assert [(cycle["reassignment_id"], cycle["topic"]) for cycle in cycles] == [("orders:0:2", "orders")]


@pytest.mark.nightly
def test_a_hundred_thousand_changes_give_what_was_done(spark: SparkSession) -> None:
    log = ReassignmentLog(100_000, keep_cycles=True)
    rows = [
        (PartitionKey(f"{topic:022d}", f"topic-{topic:07d}", index), Change(offset, ts_ms, kind, isr, leader, *lists))
        for offset, ts_ms, kind, topic, index, isr, leader, *lists in log.rows()
    ]
    oracle, truth = all_life_cycles(rows), log.truth
    assert Counter((each.start_offset, each.end_offset, each.status) for each in oracle) == Counter(truth.cycles)
    cycles = gold.life_cycles(changes_frame(spark, rows)).toArrow().to_pylist()
    assert Counter(cycle["status"] for cycle in cycles) == {
        "completed": truth.completed, "cancelled": truth.cancelled, "superseded": truth.superseded, "open": truth.open,
    }  # fmt: skip
    assert sum(row["caught_up_offset"] is not None for cycle in cycles for row in cycle["replicas"]) == truth.caught_up
    found = sorted_rows(
        [*list(cycle.values())[:-1], [tuple(replica.values()) for replica in cycle["replicas"]]] for cycle in cycles
    )
    assert found == sorted_rows(oracle)


def test_tables_have_the_columns_of_the_lake(spark: SparkSession) -> None:
    changes, topics, found = frame(spark, CHANGES, []), topics_frame(spark, {}), frame(spark, "gold.reassignments", [])
    cycles, states = gold.life_cycles(changes, topics), gold.partition_states(changes, topics)
    tables = {
        "gold.reassignments": gold.reassignments(cycles),
        "gold.reassignment_replicas": gold.reassignment_replicas(cycles),
        "silver.partition_state": states,
        "gold.rf_drift": gold.rf_drift(found, states),
    }
    for table, made in tables.items():
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in made.schema)
        assert (table, columns) == (table, spark_schema(table))
