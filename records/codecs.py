"""Compression of the records of a batch: Kafka's four codecs, by the libraries that own the formats.

gzip is zlib's. snappy is a stream of blocks as Java's clients write it (xerial: a 16-byte header, then blocks of raw snappy, each
after its length), or one raw block, as other clients write it. lz4 is a frame and zstd is a frame. `compress` writes what Java's
clients read: blocks of snappy and of lz4 hold 32 and 64 KiB and do not depend on each other.

A few bytes can decompress to gigabytes, so `decompress` has a limit, which also bounds the memory that it takes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping

from cramjam import DecompressionError, lz4, snappy, zstd

from .errors import LogError

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""Limit of the records of one batch. The largest batch that is stored has 12 MiB."""

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""Magic, version, and the lowest version that can read it."""
_XERIAL_BLOCK_BYTES = 32 * 1024
_LENGTH = struct.Struct(">I")
_LZ4_HEADER = bytes.fromhex("04224d18604082")
"""Frame of independent blocks of at most 64 KiB, without checksums; the last byte is the checksum of the two before it."""
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 1 << 31
"""Set in the length of a block that is not compressed."""
_LZ4_LENGTH = struct.Struct("<I")
_GZIP = 16 + zlib.MAX_WBITS
_GZIP_PIECE_BYTES = 16 * 1024
_ZSTD_LEVEL = 3
_FIRST_GUESS = 8
"""Bytes of output for each byte of input that the first attempt to decompress has room for."""


class CodecError(LogError):
    """Records that cannot be decompressed: an unknown codec, invalid bytes, or too many of them."""


def decompress(codec: str, data: bytes, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Return the decompressed records of a batch; `codec` is `BatchHeader.codec`. CodecError."""
    if codec not in _DECOMPRESS:
        raise CodecError(f"compressed with an unknown codec ({codec})")
    try:
        return _DECOMPRESS[codec](data, limit_bytes)
    except (DecompressionError, ValueError, zlib.error, struct.error) as error:
        raise CodecError(f"its records cannot be decompressed ({codec}): {error}") from error


def compress(codec: str, data: bytes, level: int | None = None) -> bytes:
    """Compress the records of a batch. `codec` is one of `CODECS`; `level` None: its default. Only gzip and zstd have levels."""
    return _COMPRESS[codec](data, level)


def _too_large(limit_bytes: int) -> ValueError:
    return ValueError(f"they take more than {limit_bytes} bytes")


def _plain(data: bytes, limit_bytes: int) -> bytes:
    return data


def _gunzip(data: bytes, limit_bytes: int) -> bytes:
    """Decompress all members of a stream. Each gets pieces, because a member returns a copy of the bytes after it."""
    found = bytearray()
    member, at, rest = zlib.decompressobj(_GZIP), 0, b""
    while rest or at < len(data):
        if not rest:
            rest, at = data[at : at + _GZIP_PIECE_BYTES], at + _GZIP_PIECE_BYTES
        if member.eof:
            member = zlib.decompressobj(_GZIP)
        found += member.decompress(rest, limit_bytes - len(found) + 1)
        if len(found) > limit_bytes:
            raise _too_large(limit_bytes)
        rest = member.unused_data
    if not member.eof and data:
        raise ValueError("the gzip stream is cut short")
    return bytes(found)


def _gzip(data: bytes, level: int | None) -> bytes:
    stream = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=_GZIP)
    return stream.compress(data) + stream.flush()


def _from_snappy(data: bytes, limit_bytes: int) -> bytes:
    found = bytearray()
    for block in _xerial_blocks(data) if data.startswith(_XERIAL_MAGIC) else (data,):
        if len(found) + snappy.decompress_raw_len(block) > limit_bytes:
            raise _too_large(limit_bytes)
        found += bytes(snappy.decompress_raw(block))
    return bytes(found)


def _xerial_blocks(data: bytes) -> Iterable[bytes]:
    at = len(_XERIAL_HEADER)
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if size > len(data) - at:
            raise ValueError(f"a block of {size} bytes is cut short")
        yield data[at : at + size]
        at += size


def _to_snappy(data: bytes, level: int | None) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for block in _blocks(data, _XERIAL_BLOCK_BYTES):
        compressed = bytes(snappy.compress_raw(block))
        out += _LENGTH.pack(len(compressed)) + compressed
    return bytes(out)


def _to_lz4(data: bytes, level: int | None) -> bytes:
    out = bytearray(_LZ4_HEADER)
    for block in _blocks(data, _LZ4_BLOCK_BYTES):
        compressed = bytes(lz4.compress_block(block, store_size=False))
        if len(compressed) < len(block):
            out += _LZ4_LENGTH.pack(len(compressed)) + compressed
        else:
            out += _LZ4_LENGTH.pack(len(block) | _LZ4_STORED) + block
    out += _LZ4_LENGTH.pack(0)
    return bytes(out)


def _to_zstd(data: bytes, level: int | None) -> bytes:
    return bytes(zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))


def _blocks(data: bytes, size_bytes: int) -> Iterable[bytes]:
    return (data[at : at + size_bytes] for at in range(0, len(data), size_bytes))


def _within(into: Callable[[bytes, bytearray], int]) -> Callable[[bytes, int], bytes]:
    """Return the function that decompresses with `into`, which needs a buffer that is large enough."""

    def work(data: bytes, limit_bytes: int) -> bytes:
        room = min(_FIRST_GUESS * len(data) + 1024, limit_bytes)
        while True:
            buffer = bytearray(room)
            try:
                return bytes(memoryview(buffer)[: into(data, buffer)])
            except DecompressionError as error:
                if "whole buffer" not in str(error):
                    raise
                if room == limit_bytes:
                    raise _too_large(limit_bytes) from error
                room = min(room * _FIRST_GUESS, limit_bytes)

    return work


_DECOMPRESS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "none": _plain,
    "gzip": _gunzip,
    "snappy": _from_snappy,
    "lz4": _within(lz4.decompress_into),
    "zstd": _within(zstd.decompress_into),
}
_COMPRESS: Mapping[str, Callable[[bytes, int | None], bytes]] = {
    "none": lambda data, level: data,
    "gzip": _gzip,
    "snappy": _to_snappy,
    "lz4": _to_lz4,
    "zstd": _to_zstd,
}
