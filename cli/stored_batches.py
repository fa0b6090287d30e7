"""Records of the batches in partitions' logs, compressed with any of Kafka's codecs or not at all."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping

from kraftlab.broker.log.errors import CorruptBatch
from kraftlab.broker.log.record_batch import HEADER_BYTES, BatchHeader, StoredRecord, records_of

_XERIAL_MAGIC = b"\x82SNAPPY\0"
"""Prefix of Java's clients: blocks of raw snappy follow, each after its length. Other clients write one raw block."""
_XERIAL_HEADER_BYTES = 16
_LENGTH = struct.Struct(">I")


class Unreadable(Exception):
    """A batch whose records cannot be shown. The text gives the reason."""


def stored_records(header: BatchHeader, batch: bytes) -> Iterator[StoredRecord]:
    """Yield the records of one whole batch, also of a control batch. Unreadable, possibly after some records."""
    if header.codec not in _DECOMPRESS:
        raise Unreadable(f"compressed with an unknown codec ({header.codec})")
    try:
        yield from records_of(header, _decompressed(header.codec, batch[HEADER_BYTES:]))
    except CorruptBatch as error:
        raise Unreadable(f"its records cannot be read: {error}") from error


def _decompressed(codec: str, body: bytes) -> bytes:
    """Return the decompressed body of a batch. Unreadable if the codec cannot decode the bytes."""
    if codec == "none":
        return body
    from cramjam import DecompressionError

    try:
        return _DECOMPRESS[codec](body)
    except (DecompressionError, OSError, EOFError, zlib.error, struct.error) as error:
        raise Unreadable(f"its records cannot be decompressed ({codec}): {error}") from error


def _snappy(body: bytes) -> bytes:
    from cramjam import snappy

    if not body.startswith(_XERIAL_MAGIC):
        return bytes(snappy.decompress_raw(body))
    found, at = bytearray(), _XERIAL_HEADER_BYTES
    while at < len(body):
        (size,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        found += bytes(snappy.decompress_raw(body[at : at + size]))
        at += size
    return bytes(found)


def _lz4(body: bytes) -> bytes:
    from cramjam import lz4

    return bytes(lz4.decompress(body))


def _zstd(body: bytes) -> bytes:
    from cramjam import zstd

    return bytes(zstd.decompress(body))


_DECOMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.decompress,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
