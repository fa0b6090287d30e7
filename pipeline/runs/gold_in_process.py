"""Gold tables of small inputs, made in this process by the plain kernels of `audits`.

A job of Spark's costs a tenth of a second before it sees a row, and a query of several joins ten such jobs. For some ten thousand
rows, as a lake has that follows a cluster, that is most of what a micro-batch takes. The kernels here are those against which the
queries of `tables.gold` are tested, so that both ways give the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..audits import epochs, skew
from ..lake.commits import Lake
from ..lake.schemas import arrow_schema
from ..sources.bronze_pass import BATCHES
from ..tables.batch_rows import SNAPSHOT_SUFFIX
from ..tables.log_dir_samples import TABLE as SAMPLES
from .build import BROKERS

ROWS_MAX = 50_000
PAYLOAD_BYTES_MAX = 32 << 20
STATE = "silver.partition_state"
BROKER_LOAD, DIR_SKEW = "gold.broker_load", "gold.log_dir_skew"
EPOCHS, DIVERGENCE = "gold.leader_epochs", "gold.log_divergence"


def is_small(lake: Lake, tables: Iterable[str]) -> bool:
    """Whether these tables are small enough to be made something of here."""
    active = [manifest for table in tables for manifest in lake.active(table)]
    payloads = sum(file.size_bytes for each in active if each.table == BATCHES for file in each.files)
    return sum(each.rows for each in active) <= ROWS_MAX and payloads <= PAYLOAD_BYTES_MAX


def broker_load(lake: Lake) -> pa.Table:
    rows = skew.broker_load(*_loads(lake))
    return _table(BROKER_LOAD, [(*row[:3], *row[5:]) for row in rows])


def log_dir_skew(lake: Lake) -> pa.Table:
    return _table(DIR_SKEW, skew.log_dir_skew(*_loads(lake)))


def _loads(lake: Lake) -> tuple[list[skew.Sample], dict[int, str | None], list[tuple[str, int, int]]]:
    """(samples, racks of brokers as they registered last, leaders of partitions)."""
    samples = [skew.Sample(*row.values()) for row in lake.arrow(SAMPLES, list(skew.Sample._fields)).to_pylist()]
    brokers = lake.arrow(BROKERS, ["broker_id", "rack", "op", "offset", "kind"]).to_pylist()
    brokers.sort(key=lambda row: (row["offset"], row["kind"]))
    racks = {row["broker_id"]: row["rack"] for row in brokers if row["op"] == "register"}
    leaders = [tuple(row.values()) for row in lake.arrow(STATE, ["topic", "partition", "leader"]).to_pylist()]
    return samples, racks, [each for each in leaders if each[2] is not None and each[2] >= 0]


def leader_epochs(lake: Lake) -> pa.Table:
    columns = [
        "controller_id", "leader_epoch", "base_offset", "pos", "last_offset", "append_ms", "segment", "format", "payload",
    ]  # fmt: skip
    logs: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in _of_segments(lake.arrow(BATCHES, columns)).to_pylist():
        logs.setdefault((row["controller_id"], row["leader_epoch"]), []).append(row)
    starts = []
    for (controller_id, epoch), rows in logs.items():
        first = min(rows, key=lambda row: (row["base_offset"], row["pos"]))
        leader = epochs.leader_of(first["format"], first["payload"], first["base_offset"], epoch)
        end, last_ms = max(row["last_offset"] for row in rows) + 1, max(row["append_ms"] for row in rows)
        starts.append(epochs.EpochStart(controller_id, epoch, leader, first["base_offset"], end, first["append_ms"], last_ms))
    return _table(EPOCHS, epochs.leader_epochs(starts))


def log_divergence(lake: Lake) -> pa.Table:
    columns = ["controller_id", "base_offset", "last_offset", "leader_epoch", "crc", "segment"]
    rows = _of_segments(lake.arrow(BATCHES, columns)).to_pylist()
    last_epochs: dict[int, int] = {}
    for row in rows:
        last_epochs[row["controller_id"]] = max(row["leader_epoch"], last_epochs.get(row["controller_id"], 0))
    batches = [
        epochs.LogBatch(
            row["controller_id"],
            row["base_offset"],
            row["last_offset"],
            row["leader_epoch"],
            row["crc"],
            last_epochs[row["controller_id"]],
        )
        for row in rows
    ]
    return _table(DIVERGENCE, epochs.log_divergence(batches))


MADE_HERE: Mapping[str, Callable[[Lake], pa.Table]] = {
    BROKER_LOAD: broker_load,
    DIR_SKEW: log_dir_skew,
    EPOCHS: leader_epochs,
    DIVERGENCE: log_divergence,
}


def _of_segments(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(pc.ends_with(rows["segment"], SNAPSHOT_SUFFIX)))


def _table(table: str, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    schema = arrow_schema(table)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)
