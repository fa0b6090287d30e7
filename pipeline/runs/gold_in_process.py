"""Gold tables of samples and of bronze: made in this process, file by file, by columns.

Arrow reduces a log or the samples to a few rows, which the plain rules of `audits` decide. A Spark job would cost a tenth of a
second before its first row, and a query of several joins ten such jobs. Batches and samples are few compared with changes: one
process makes the tables of any lake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..audits import epochs, skew
from ..lake.commits import Lake
from ..sources.bronze_pass import BATCHES
from ..storage.parts import DataFile
from ..storage.schemas import batch_of_rows
from ..tables.batch_rows import SNAPSHOT_SUFFIX
from ..tables.log_dir_samples import TABLE as SAMPLES
from .build import BROKERS

STATE = "silver.partition_state"
BROKER_LOAD, DIR_SKEW = "gold.broker_load", "gold.log_dir_skew"
EPOCHS, DIVERGENCE = "gold.leader_epochs", "gold.log_divergence"
_BATCH = ["base_offset", "last_offset", "leader_epoch", "crc"]


def broker_load(lake: Lake) -> pa.Table:
    rows = [(*row[:3], *row[5:]) for row in skew.loads(*_sampled(lake), skew.BROKER)]
    return pa.Table.from_batches([batch_of_rows(BROKER_LOAD, rows)])


def log_dir_skew(lake: Lake) -> pa.Table:
    return pa.Table.from_batches([batch_of_rows(DIR_SKEW, skew.loads(*_sampled(lake), skew.DIRECTORY))])


def _sampled(lake: Lake) -> tuple[Iterator[pa.Table], dict[int, str | None], pa.Table]:
    """Return (samples, racks of brokers at their last registration, leaders of partitions)."""
    brokers = lake.arrow(BROKERS, ["broker_id", "rack", "op", "offset", "kind"]).to_pylist()
    brokers.sort(key=lambda row: (row["offset"], row["kind"]))
    racks = {row["broker_id"]: row["rack"] for row in brokers if row["op"] == "register"}
    samples = (rows for _, rows in _by_file(lake, SAMPLES, skew.SAMPLE_COLUMNS))
    return samples, racks, lake.arrow(STATE, skew.LEADER_COLUMNS)


class _Span(NamedTuple):
    """A stretch of an epoch in a controller's log: the place of its first batch, and its end."""

    base_offset: int
    pos: int
    first_ms: int
    last_offset: int
    last_ms: int
    file: DataFile

    def joined(self, other: _Span) -> _Span:
        first = min(self, other, key=lambda each: (each.base_offset, each.pos))
        return first._replace(last_offset=max(self.last_offset, other.last_offset), last_ms=max(self.last_ms, other.last_ms))


def leader_epochs(lake: Lake) -> pa.Table:
    """Read the bytes of the first batch of each epoch only: it names the leader."""
    spans: dict[tuple[int, int], _Span] = {}
    place = ["controller_id", "leader_epoch", "base_offset", "pos"]
    for file, rows in _logs(lake, [*place, "append_ms", "last_offset"]):
        ordered = rows.sort_by([(name, "ascending") for name in place]).group_by(place[:2], use_threads=False)
        firsts = [(name, "first") for name in ("base_offset", "pos", "append_ms")]
        found = ordered.aggregate([*firsts, ("last_offset", "max"), ("append_ms", "max")])
        for controller, epoch, base, pos, first_ms, last, last_ms in zip(
            *map(pa.ChunkedArray.to_pylist, found.columns), strict=True
        ):
            span = _Span(base, pos, first_ms, last, last_ms, file)
            spans[controller, epoch] = span.joined(spans.get((controller, epoch), span))
    files = {span.file.path: span.file for span in spans.values()}
    payloads: dict[tuple[int, ...], tuple[str, bytes]] = {}
    for path, file in files.items():
        offsets = [span.base_offset for span in spans.values() if span.file.path == path]
        is_first = pc.field("base_offset").isin(offsets)
        for row in lake.arrow_of_files(BATCHES, [file], [*place, "format", "payload"], is_first).to_pylist():
            payloads[tuple(row[name] for name in place)] = row["format"], row["payload"]
    starts = []
    for (controller, epoch), span in spans.items():
        format_name, payload = payloads[controller, epoch, span.base_offset, span.pos]
        leader = epochs.leader_of(format_name, payload)
        ends = span.last_offset + 1, span.first_ms, span.last_ms
        starts.append(epochs.EpochStart(controller, epoch, leader, span.base_offset, *ends))
    return pa.Table.from_batches([batch_of_rows(EPOCHS, epochs.leader_epochs(starts))])


def log_divergence(lake: Lake) -> pa.Table:
    """Compare batches, except those that all controllers whose logs reach so far hold alike."""
    reach: dict[int, tuple[int, int, int]] = {}
    for _, rows in _logs(lake, ["controller_id", *_BATCH[:3]]):
        ends = [("base_offset", "min"), ("last_offset", "max"), ("leader_epoch", "max")]
        spans = rows.group_by("controller_id").aggregate(ends)
        for controller, first, last, epoch in zip(*(column.to_pylist() for column in spans.columns), strict=True):
            known = reach.get(controller, (first, last, epoch))
            reach[controller] = min(first, known[0]), max(last, known[1]), max(epoch, known[2])
    batches = []
    for part in lake.active(BATCHES):
        rows = _of_segments(lake.arrow_of(part, ["controller_id", *_BATCH, "segment"]))
        held = rows.group_by(_BATCH).aggregate([("controller_id", "count_distinct")])
        bases, lasts = held["base_offset"].to_numpy(), held["last_offset"].to_numpy()
        reached = sum(((start <= lasts) & (bases <= end)).astype(np.int64) for start, end, _ in reach.values())
        missed = held.filter(pa.array(held["controller_id_count_distinct"].to_numpy() < reached)).select(_BATCH)
        found = rows.join(missed, _BATCH, join_type="inner")
        for node, base, last, epoch, crc in zip(*(found[name].to_pylist() for name in ("controller_id", *_BATCH)), strict=True):
            batches.append(epochs.LogBatch(node, base, last, epoch, crc, reach[node][2]))
    return pa.Table.from_batches([batch_of_rows(DIVERGENCE, epochs.log_divergence(batches))])


MADE_HERE: Mapping[str, Callable[[Lake], pa.Table]] = {
    BROKER_LOAD: broker_load,
    DIR_SKEW: log_dir_skew,
    EPOCHS: leader_epochs,
    DIVERGENCE: log_divergence,
}


def _by_file(lake: Lake, table: str, columns: list[str]) -> Iterator[tuple[DataFile, pa.Table]]:
    for part in lake.active(table):
        for file in part.files:
            yield file, lake.arrow_of_files(table, [file], columns)


def _logs(lake: Lake, columns: list[str]) -> Iterator[tuple[DataFile, pa.Table]]:
    """Yield rows of `bronze.batches` that belong to segments."""
    for file, rows in _by_file(lake, BATCHES, [*columns, "segment"]):
        yield file, _of_segments(rows).select(columns)


def _of_segments(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(pc.ends_with(rows["segment"], SNAPSHOT_SUFFIX)))
