"""Row groups by partition: a row group of a file holds the rows of one bucket of keys.

Life cycles and states are made partition by partition, over all of the log. So that a task need not read the whole log to find
the rows of its partitions, and tasks need not exchange rows, each file of `silver.partition_changes` is written in row groups of
one bucket each, with rows in their original order. The file's metadata lists the buckets. Small files, as micro-batches write
them, are one row group without a bucket; a reader of these looks at the keys.
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
"""Fewer rows are not cut into buckets."""
ANY = -1
"""Bucket of a row group that has none."""
METADATA_KEY = b"kraftlab.buckets"
_SPREAD = np.uint32(0x9E3779B1)


def hashes(rows: pa.Table) -> np.ndarray:
    """Return a number of 32 bits for each row, by `topic_id` and `partition`. It is part of the format of files."""
    partitions = rows["partition"].to_numpy().astype(np.uint32)
    found: np.ndarray = _crcs(rows["topic_id"].combine_chunks()) ^ (partitions * _SPREAD)
    return found


def _crcs(texts: pa.StringArray) -> np.ndarray:
    """Return the CRC-32 of each text."""
    encoded = texts.dictionary_encode()
    crcs = np.array([zlib.crc32(text.encode()) for text in encoded.dictionary.to_pylist()] or [0], np.uint32)
    found: np.ndarray = crcs[encoded.indices.to_numpy()]
    return found


def cut(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield (bucket, its rows) in the order of buckets; few rows are one part without a bucket."""
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
    """Return a file's metadata about its row groups."""
    return {METADATA_KEY: " ".join(map(str, (BUCKETS, *groups))).encode()}


def groups_of(file: ParquetFile) -> list[tuple[int, int, int]]:
    """Return (number, bucket, rows) of a file's row groups. A file without metadata, or with another number of buckets, has no
    buckets.
    """
    found = file.metadata
    count, *buckets = map(int, ((found.metadata or {}).get(METADATA_KEY) or b"0").split())
    known = count == BUCKETS and len(buckets) == found.num_row_groups
    return [
        (number, buckets[number] if known else ANY, found.row_group(number).num_rows) for number in range(found.num_row_groups)
    ]
