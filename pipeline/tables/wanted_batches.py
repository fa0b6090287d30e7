"""The batches of bronze from which silver is made, as rows of row groups of files.

The keys of batches are a few numbers each, which fit in memory for any log. So the choice of batches is made before any task
starts, and passed to the tasks. Each task reads its row groups from the files (`Piece.rows`), and no batch goes through the JVM.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..storage import uris
from . import bronze
from .batch_rows import COLUMNS, SNAPSHOT_SUFFIX

RECORDS_PER_TASK = 400_000
_KEYS = [*bronze.KEYS, "leader_epoch", "n_records"]


class Piece(NamedTuple):
    """Rows of one row group of a file, with a path relative to the lake: those whose bit in `wanted` is set (None: all).
    `records` is their number of records.
    """

    path: str
    group: int
    wanted: bytes | None
    records: int

    def rows(self, uri: str) -> Iterator[pa.RecordBatch]:
        """Yield the batches, with `batch_rows.COLUMNS`."""
        from pyarrow import parquet

        system, root = uris.file_system(uri)
        with parquet.ParquetFile(f"{root}/{self.path}", filesystem=system) as file:
            rows = file.read_row_group(self.group, columns=list(COLUMNS), use_threads=False).select(COLUMNS)
        if self.wanted is not None:
            bits = np.unpackbits(np.frombuffer(self.wanted, np.uint8), count=rows.num_rows)
            rows = rows.filter(pa.array(bits.astype(bool)))
        yield from rows.to_batches()


def pieces(
    uri: str, paths: Iterable[str], lo: int, hi: int, snapshots: Collection[str], *, of_several: bool
) -> tuple[Piece, ...]:
    """Return the batches of offsets [lo, hi) in these files, and of the snapshots only those that are named. With `of_several`
    controllers' logs each batch is taken once.
    """
    groups = list(_groups(uri, paths))
    if not groups:
        return ()
    keys = pa.concat_tables([rows for _, _, rows in groups])
    is_wanted = _is_wanted(keys, lo, hi, snapshots)
    if of_several:
        is_wanted &= bronze.chosen(keys, is_wanted)
    counts = np.where(is_wanted, keys["n_records"].to_numpy(), 0)
    found, start = [], 0
    for path, group, rows in groups:
        end = start + rows.num_rows
        mine, records = is_wanted[start:end], int(counts[start:end].sum())
        if mine.any():
            found.append(Piece(path, group, None if mine.all() else np.packbits(mine).tobytes(), records))
        start = end
    return tuple(found)


def _groups(uri: str, paths: Iterable[str]) -> Iterator[tuple[str, int, pa.Table]]:
    """Yield (path, number, keys) of all row groups."""
    from pyarrow import parquet

    system, root = uris.file_system(uri)
    for path in paths:
        with parquet.ParquetFile(f"{root}/{path}", filesystem=system) as file:
            for group in range(file.num_row_groups):
                yield path, group, file.read_row_group(group, columns=_KEYS, use_threads=False).select(_KEYS)


def _is_wanted(keys: pa.Table, lo: int, hi: int, snapshots: Collection[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    at = np.maximum(0, keys["base_offset"].to_numpy())
    is_snapshot = pc.ends_with(keys["segment"], SNAPSHOT_SUFFIX)
    is_needed = pc.is_in(keys["segment"], value_set=pa.array(sorted(snapshots), pa.string()))
    counts = pc.or_(pc.invert(is_snapshot), is_needed).to_numpy()
    found: np.ndarray[Any, np.dtype[np.bool_]] = counts & (at >= lo) & (at < hi)
    return found


def shared_out(found: Sequence[Piece]) -> list[list[Piece]]:
    """Return the pieces of each task, with about equal numbers of records."""
    tasks: list[list[Piece]] = [[] for _ in range(min(len(found), 1 + sum(each.records for each in found) // RECORDS_PER_TASK))]
    sizes = [0] * len(tasks)
    for piece in sorted(found, key=lambda each: -each.records):
        least = sizes.index(min(sizes))
        tasks[least].append(piece)
        sizes[least] += piece.records
    return tasks
