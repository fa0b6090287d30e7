"""The histories of whole Arrow batches: life cycles and states, stepped row by row.

The rows come sorted by `ORDER`, all rows of a partition in one stream. The ends of batches have no meaning: a partition's history
continues in the next batch, and the last history is finished when the stream ends. Rows are taken from Arrow column by column,
since one Python object per value is the main cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from kraftlab.common.garbage import without_gc

from ..storage.schemas import batch_of_rows
from .life_cycles import Change, PartitionHistory, PartitionState, Reassignment, Removal

KEY = ("topic_id", "partition")
ORDER = ("topic_id", "partition", "offset", "kind", "idx_in_batch")
"""Rows of equal offset are ordered by kind: a snapshot that ends with a change follows the change, as `snapshot` does in the
alphabet.
"""
COLUMNS = ("topic_id", "topic", "partition", *Change._fields)

REASSIGNMENTS, REPLICAS, STATE = "gold.reassignments", "gold.reassignment_replicas", "silver.partition_state"
ROWS_PER_BATCH = 10_000

Deletions = Mapping[str, Removal]
"""By topic id."""
NO_DELETIONS: Deletions = MappingProxyType({})


def histories_of(batches: Iterable[pa.RecordBatch], deletions: Deletions = NO_DELETIONS) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Turn batches with `COLUMNS`, sorted by `ORDER`, into rows of three tables: reassignments, their replicas, and states of the
    partitions that exist. OffsetsStepBack.
    """
    ended: list[Reassignment] = []
    states: list[PartitionState] = []
    for history in _finished(batches, deletions, ended):
        if not history.is_removed:
            states.append(history.state())
        if len(ended) >= ROWS_PER_BATCH:
            yield from _of_reassignments(ended)
            ended.clear()
        if len(states) >= ROWS_PER_BATCH:
            yield STATE, batch_of_rows(STATE, states)
            states.clear()
    if ended:
        yield from _of_reassignments(ended)
    if states:
        yield STATE, batch_of_rows(STATE, states)


def _finished(batches: Iterable[pa.RecordBatch], deletions: Deletions, ended: list[Reassignment]) -> Iterator[PartitionHistory]:
    """Yield each partition's history when it is complete. Its cycles have been appended to `ended`."""
    history: PartitionHistory | None = None
    key: tuple[str, int] | None = None
    with without_gc():
        for batch in batches:
            changes = _changes(batch)
            for start, end, row_key in _runs(batch):
                if history is None or row_key != key:
                    if history is not None:
                        yield _ended(history, deletions)
                    key = row_key
                    history = PartitionHistory(row_key[0], batch["topic"][start].as_py(), row_key[1], ended)
                step = history.step
                for change in changes[start:end]:
                    step(change)
        if history is not None:
            yield _ended(history, deletions)


def _ended(history: PartitionHistory, deletions: Deletions) -> PartitionHistory:
    history.finish(deletions.get(history.topic_id))
    return history


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, int, tuple[str, int]]]:
    """Yield (start, end, key) of the consecutive rows of each partition."""
    if not batch.num_rows:
        return
    encoded = batch["topic_id"].dictionary_encode()
    codes, partitions = encoded.indices.to_numpy(), batch["partition"].to_numpy()
    changed = (codes[1:] != codes[:-1]) | (partitions[1:] != partitions[:-1])
    starts = np.concatenate(([0], changed.nonzero()[0] + 1))
    texts = encoded.dictionary.to_pylist()
    keys = zip((texts[code] for code in codes[starts].tolist()), partitions[starts].tolist(), strict=True)
    yield from zip(starts.tolist(), [*starts[1:].tolist(), batch.num_rows], keys, strict=True)


def _changes(batch: pa.RecordBatch) -> list[Change]:
    """Return the rows of a batch."""
    columns: list[Any] = [
        batch["offset"].to_numpy().tolist(),
        batch["ts_ms"].to_numpy().tolist(),
        _texts(batch["kind"]),
        _lists(batch["isr"]),
        _numbers(batch["leader"]),
        *(_lists(batch[name]) for name in Change._fields[5:]),
    ]
    return list(map(partial(tuple.__new__, Change), zip(*columns, strict=False)))


def _texts(column: pa.StringArray) -> list[str]:
    """Return a column with few distinct texts, with one object for each."""
    encoded = column.dictionary_encode()
    return list(map(encoded.dictionary.to_pylist().__getitem__, encoded.indices.to_numpy().tolist()))


def _numbers(column: pa.Int32Array) -> list[int | None]:
    numbers: list[int | None] = column.fill_null(0).to_numpy().tolist()
    if not column.null_count:
        return numbers
    return [number if given else None for number, given in zip(numbers, _valid(column), strict=True)]


def _lists(column: pa.ListArray) -> Sequence[tuple[Any, ...] | None] | repeat[None]:
    """Return a column of lists as tuples; null stays None. A column of nulls alone has no length."""
    if column.null_count == len(column):
        return repeat(None)
    offsets = column.offsets.to_numpy()
    values = column.values[offsets[0] : offsets[-1]]  # a slice has the values of the whole column
    items = tuple(values.to_pylist() if pa.types.is_string(values.type) else values.to_numpy().tolist())
    edges = (offsets - offsets[0]).tolist()
    if not column.null_count:
        return [items[start:end] for start, end in pairwise(edges)]
    return [items[start:end] if given else None for given, start, end in zip(_valid(column), edges, edges[1:], strict=False)]


def _valid(column: pa.Array) -> list[bool]:
    valid: list[bool] = column.is_valid().to_numpy(zero_copy_only=False).tolist()
    return valid


def _of_reassignments(rows: list[Reassignment]) -> Iterator[tuple[str, pa.RecordBatch]]:
    yield REASSIGNMENTS, batch_of_rows(REASSIGNMENTS, rows)
    of_replicas = [(row[0], *replica) for row in rows for replica in row[-1]]
    if of_replicas:
        yield REPLICAS, batch_of_rows(REPLICAS, of_replicas)
