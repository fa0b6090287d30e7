"""The records of batches as they stand in partitions' logs, compressed with gzip or not at all."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator

from kraftlab.broker.log.errors import CorruptBatch
from kraftlab.broker.log.record_batch import HEADER_BYTES, BatchHeader, StoredRecord, records_of


class Unreadable(Exception):
    """A batch whose records cannot be shown; the text says why."""


def stored_records(header: BatchHeader, batch: bytes) -> Iterator[StoredRecord]:
    """The records of one whole batch, those of a control batch too. Unreadable, also after some of them were given."""
    body = batch[HEADER_BYTES:]
    if header.codec not in ("none", "gzip"):
        raise Unreadable(f"compressed ({header.codec}): its records are not shown")
    try:
        yield from records_of(header, gzip.decompress(body) if header.codec == "gzip" else body)
    except (CorruptBatch, OSError, EOFError, zlib.error) as error:
        raise Unreadable(f"its records cannot be read: {error}") from error
