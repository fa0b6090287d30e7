"""Rows of one partition near each other: row groups of a file hold buckets of keys.

Life cycles and states are made partition by partition, over all of the log. So that a task need not read all of it to find the
rows of its partitions, and none need be sent from one to another, each file of `silver.partition_changes` is written in row
groups that hold the rows of one bucket each, in the order in which they came; the file's metadata says which. Files of few rows,
as micro-batches write, are one row group that belongs to no bucket: there a reader looks at the keys.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

BUCKETED = frozenset({"silver.partition_changes"})
BUCKETS = 16
ROWS_MIN = 1 << 15
"""So many rows are worth being cut into buckets."""
ANY = -1
"""A row group of no bucket."""
METADATA_KEY = b"kraftlab.buckets"
_SPREAD = np.uint32(0x9E3779B1)


def hashes(rows: pa.Table) -> np.ndarray:
    """A number of 32 bits for each row, by `topic_id` and `partition`. It is part of the format of files."""
    partitions = rows["partition"].to_numpy().astype(np.uint32)
    found: np.ndarray = _crcs(rows["topic_id"].combine_chunks()) ^ (partitions * _SPREAD)
    return found


def _crcs(texts: pa.StringArray) -> np.ndarray:
    """The CRC-32 of each text."""
    encoded = texts.dictionary_encode()
    crcs = np.array([zlib.crc32(text.encode()) for text in encoded.dictionary.to_pylist()] or [0], np.uint32)
    found: np.ndarray = crcs[encoded.indices.to_numpy()]
    return found


def cut(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """(bucket, its rows), in the order of buckets; few rows are all of them, and of no bucket."""
    if rows.num_rows < ROWS_MIN:
        yield ANY, rows
        return
    rows = rows.combine_chunks()
    buckets = (hashes(rows) % BUCKETS).astype(np.uint8)
    ordered = rows.take(pa.array(np.argsort(buckets, kind="stable")))
    start = 0
    for bucket, count in enumerate(np.bincount(buckets, minlength=BUCKETS).tolist()):
        if count:
            yield bucket, ordered.slice(start, count)
        start += count


def metadata(groups: Sequence[int]) -> dict[bytes, bytes]:
    """What a file says of its row groups."""
    return {METADATA_KEY: " ".join(map(str, (BUCKETS, *groups))).encode()}


def groups_of(file: ParquetFile) -> list[tuple[int, int, int]]:
    """(number, bucket, rows) of a file's row groups; those of a file that says nothing, or has other buckets, are of none."""
    found = file.metadata
    count, *buckets = map(int, ((found.metadata or {}).get(METADATA_KEY) or b"0").split())
    known = count == BUCKETS and len(buckets) == found.num_row_groups
    return [
        (number, buckets[number] if known else ANY, found.row_group(number).num_rows) for number in range(found.num_row_groups)
    ]
