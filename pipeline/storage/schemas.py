"""Every table of the lake with its columns, in order.

A table is declared once, as Spark's own schema text, from which the Arrow schema is made, so that the two cannot differ. For
Spark and Parquet every column can be null; the text after the tables names the columns that never are. All times are milliseconds
since 1970 (UTC), broker and controller ids ints, uuids Kafka's 22 characters, sizes bytes.

Layers: *bronze* holds the logs unchanged, one row per batch; *silver* holds their records, one table per kind of record; *gold*
holds conclusions.

Conventions of the silver tables. `offset` is the record's offset in the log. A record in a snapshot that ends before offset N has
offset N - 1, the last one that the snapshot reflects (-1 for the checkpoint that formatting writes). `idx_in_batch` orders
records of equal offset: the place in the batch, or in the whole snapshot. In change records null means *unchanged*, an empty list
*cleared*. `leader` -1 means no leader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

BRONZE, SILVER, GOLD = "bronze", "silver", "gold"
LAYERS = (BRONZE, SILVER, GOLD)

SPARK_SCHEMAS: Mapping[str, str] = MappingProxyType(
    {
        "bronze.batches": """
            segment string, pos bigint, base_offset bigint, last_offset bigint, leader_epoch int, append_ms bigint, n_records int,
            crc bigint, codec string, controller_id int, payload binary, status string, format string, cluster_id string""",
        "bronze.quarantine": """
            controller_id int, segment string, pos bigint, end_pos bigint, status string, detail string, prev_offset bigint,
            next_offset bigint, raw binary, format string, cluster_id string""",
        "bronze.offset_gaps": """
            controller_id int, from_offset bigint, to_offset bigint, cause string, format string, cluster_id string""",
        "silver.partition_changes": """
            offset bigint, leader_epoch int, ts_ms bigint, idx_in_batch int, kind string, topic_id string, topic string,
            partition int, isr array<int>, leader int, replicas array<int>, adding array<int>, removing array<int>,
            directories array<string>, partition_epoch int, rec_version int, original array<int>, target array<int>""",
        "silver.topics": """
            topic_id string, name string, offset bigint, ts_ms bigint, op string, idx_in_batch int, kind string""",
        "silver.brokers": """
            broker_id int, incarnation string, rack string, log_dirs array<string>, fenced boolean, offset bigint, ts_ms bigint,
            op string, idx_in_batch int, kind string""",
        "silver.configs": """
            resource_type string, resource string, key string, value string, offset bigint, ts_ms bigint, idx_in_batch int,
            kind string""",
        "silver.other_records": """
            offset bigint, type int, version int, raw binary, leader_epoch int, ts_ms bigint, idx_in_batch int, kind string,
            name string, error string""",
        "silver.partition_state": """
            topic_id string, topic string, partition int, replicas array<int>, isr array<int>, leader int, adding array<int>,
            removing array<int>, directories array<string>, rf_settled int, since_offset bigint""",
        "silver.log_dir_samples": """
            sampled_ms bigint, broker_id int, dir_id string, path string, topic_id string, topic string, partition int,
            size_bytes bigint, offset_lag bigint, is_future boolean, dir_total_bytes bigint, dir_usable_bytes bigint,
            error string""",
        "gold.reassignments": """
            reassignment_id string, topic string, partition int, start_offset bigint, start_ms bigint, end_offset bigint,
            end_ms bigint, status string, superseded_by string, orig array<int>, target array<int>, adding array<int>,
            removing array<int>, n_adding int, duration_ms bigint, rf_before int, rf_after int, leader_changes int,
            isr_shrinks int, truncated_left boolean, clock_skew boolean, topic_id string,
            requested array<int>""",
        "gold.reassignment_replicas": """
            reassignment_id string, replica int, role string, caught_up_offset bigint, caught_up_ms bigint, lag_ms bigint,
            dir_id string""",
        "gold.rf_drift": """
            topic string, partition int, rf int, rf_expected int, rf_mode_of_topic int, class string,
            culprit_reassignment_id string, offset bigint, confidence string""",
        "gold.broker_load": """
            as_of bigint, broker_id int, rack string, bytes bigint, replicas int, leaders int, mean_bytes double, ratio double,
            over_band boolean, offline boolean""",
        "gold.log_dir_skew": """
            as_of bigint, broker_id int, rack string, dir_id string, path string, bytes bigint, replicas int, leaders int,
            mean_bytes double, ratio double, over_band boolean, offline boolean""",
        "gold.plans": """
            plan_id string, as_of_offset bigint, goals string, eps double, solver string, bytes_moved bigint, moves bigint,
            intra_moves bigint, leader_swaps bigint, lower_bound_bytes bigint, ms bigint""",
        "gold.plan_moves": """
            plan_id string, wave int, topic string, partition int, from_replicas array<int>, to_replicas array<int>,
            add array<int>, remove array<int>, dirs array<string>, bytes bigint""",
        "gold.plan_checks": "plan_id string, check string, severity string, n bigint, example string",
        "gold.leader_epochs": "epoch int, leader int, start_offset bigint, end_offset bigint, ms bigint",
        "gold.log_divergence": """
            from_offset bigint, to_offset bigint, epoch int, controllers array<int>, crcs array<bigint>, epochs array<int>,
            class string""",
    }
)
"""Table → Spark's schema text.

Values: bronze `status` is `ok` in batches, and `bad_magic`, `bad_crc`, `bad_length`, `bad_header`, `truncated`, `undecodable` or
`unknown_version` in quarantine, whose `raw` is the first 64 KiB; `cause` of a gap is `quarantine`, `compacted` or
`missing_segment`, its offsets are [from, to); `format` is `kraftlab` or `kafka`; `payload` is the whole batch, header included.
Silver `kind` is `log` or `snapshot` (in partition_changes `create`, `change` or `snapshot`; in other_records also `control`);
`op` of topics is `create` or `delete`, of brokers `register`, `change` or `unregister`; `error` of other_records is null for
known types. `original` and `target` of partition_changes are the sets of the running reassignment, which records of `kraftlab`
carry and Kafka's do not (always null). Never null in silver: offset, ts_ms, idx_in_batch, kind, and the key of the row's subject.
Gold: offsets of leader_epochs and log_divergence are [start, end); the arrays of log_divergence are parallel; its `epoch` is null
if the logs have different ones; its `class` is `log_matching` (one epoch, different bytes, which must never happen) or `tail` (a
deposed leader's batches that were not truncated yet).
"""

_SCALARS = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
}
_ARRAY = re.compile(r"array<(\w+)>")


def _arrow_type(text: str) -> pa.DataType:
    array = _ARRAY.fullmatch(text)
    if array is None:
        return _SCALARS[text]
    return pa.list_(pa.field("element", _SCALARS[array.group(1)]))


def arrow_of(text: str) -> pa.Schema:
    """Return the Arrow schema of a schema text of Spark's, with the types that the lake needs."""
    columns = (column.split() for column in text.split(","))
    return pa.schema([pa.field(name, _arrow_type(kind)) for name, kind in columns])


ARROW_SCHEMAS: Mapping[str, pa.Schema] = MappingProxyType({table: arrow_of(text) for table, text in SPARK_SCHEMAS.items()})
"""Table → its Arrow schema. Lists name their items `element`, as Spark does."""


class NoSuchTable(KeyError):
    """An unknown table name."""

    def __init__(self, table: str) -> None:
        super().__init__(table)
        self.table = table

    def __str__(self) -> str:
        return f"{self.table!r} is not a table; known are {', '.join(SPARK_SCHEMAS)}"


def arrow_schema(table: str) -> pa.Schema:
    """Return the columns of a table such as `silver.topics`. NoSuchTable."""
    try:
        return ARROW_SCHEMAS[table]
    except KeyError:
        raise NoSuchTable(table) from None


def batch_of_rows(table: str, rows: Iterable[tuple[object, ...]]) -> pa.RecordBatch:
    """Return rows of a table as an Arrow batch. Values beyond the table's columns are dropped."""
    schema = arrow_schema(table)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return batch_of_columns(table, dict(zip(schema.names, columns, strict=False)))


def batch_of_columns(table: str, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Return columns of a table, by name, as an Arrow batch."""
    schema = arrow_schema(table)
    arrays = [value if isinstance(value := columns[field.name], pa.Array) else pa.array(value, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def spark_schema(table: str) -> str:
    """Return Spark's schema text, for `DataFrameReader.schema`, `mapInArrow` and `createDataFrame`. NoSuchTable."""
    try:
        return " ".join(SPARK_SCHEMAS[table].split())
    except KeyError:
        raise NoSuchTable(table) from None


def tables(layer: str) -> tuple[str, ...]:
    """Return the tables of a layer, in the order in which they are built."""
    return tuple(table for table in SPARK_SCHEMAS if table.startswith(f"{layer}."))
