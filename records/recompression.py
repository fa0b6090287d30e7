"""Compression of batches as the topic asks, whatever the producer chose (`compression.type`, `compression.*.level`, KIP-390).

The leader compresses a batch again if its codec is not the topic's; a batch with the right codec stays as it is, whatever its
level. Followers, moves and imports copy batches as they are. A batch grows if the topic's codec is weaker: it has to fit
`max.message.bytes` afterwards too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .codecs import CodecError, compress, decompress
from .errors import BatchTooLarge, InvalidRecords
from .record_batch import CODEC_MASK, CODECS, HEADER_BYTES, BatchHeader, encode_batch, read_header

AS_PRODUCED = "producer"
_CODEC_OF_TYPE = {"uncompressed": "none"}


class Compression(NamedTuple):
    """Codec of a topic's batches, one of `CODECS`, and its level. None: the codec's own default."""

    codec: str
    level: int | None = None

    @classmethod
    def of(cls, type_: str, level: str | None) -> Compression | None:
        """Read the topic's configs; None if batches stay as producers compress them. `level` None: the codec has no levels."""
        if type_ == AS_PRODUCED:
            return None
        return cls(_CODEC_OF_TYPE.get(type_, type_), None if level is None else int(level))


def recompressed(
    data: bytes | memoryview, headers: Sequence[BatchHeader], wanted: Compression, size_bytes_max: int
) -> tuple[bytearray, list[BatchHeader]]:
    """Return batches in the wanted codec with their headers. InvalidRecords for records that cannot be decompressed,
    BatchTooLarge for a batch that is larger than `size_bytes_max` afterwards.
    """
    out, found, position = bytearray(), list[BatchHeader](), 0
    for header in headers:
        batch = bytes(data[position : position + header.size_bytes])
        position += header.size_bytes
        if header.codec != wanted.codec:
            batch = _recompressed(batch, header, wanted)
            header = read_header(batch)
            if header.size_bytes > size_bytes_max:
                raise BatchTooLarge(
                    f"compressed as the topic asks ({wanted.codec}), the batch has {header.size_bytes} bytes, more than "
                    f"max.message.bytes={size_bytes_max} of the topic"
                )
        out += batch
        found.append(header)
    return out, found


def _recompressed(batch: bytes, header: BatchHeader, wanted: Compression) -> bytes:
    try:
        records = decompress(header.codec, batch[HEADER_BYTES:])
    except CodecError as error:
        raise InvalidRecords(str(error)) from error
    attributes = header.attributes & ~CODEC_MASK | CODECS.index(wanted.codec)
    return encode_batch(header._replace(attributes=attributes), compress(wanted.codec, records, wanted.level))
