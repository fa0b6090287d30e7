"""Records of the batches in partitions' logs, compressed with any of Kafka's codecs or not at all."""

from __future__ import annotations

from collections.abc import Iterator

from kraftlab.records.errors import CorruptBatch
from kraftlab.records.record_batch import CODEC_MASK, HEADER_BYTES, BatchHeader, StoredRecord, records_of


class Unreadable(Exception):
    """The records of a batch cannot be shown. The text gives the reason."""


def stored_records(header: BatchHeader, batch: bytes) -> Iterator[StoredRecord]:
    """Yield the records of one whole batch, also of a control batch. Unreadable, possibly after some records."""
    try:
        yield from records_of(header, _decompressed(header, batch[HEADER_BYTES:]))
    except CorruptBatch as error:
        raise Unreadable(f"its records cannot be read: {error}") from error


def _decompressed(header: BatchHeader, body: bytes) -> bytes:
    if not header.attributes & CODEC_MASK:
        return body
    from kraftlab.records.codecs import CodecError, decompress  # loads the codecs' libraries

    try:
        return decompress(header.codec, body)
    except CodecError as error:
        raise Unreadable(str(error)) from error
