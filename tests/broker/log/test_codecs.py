"""Codecs of record batches: what comes back, which bytes other clients write, and what is refused."""

from __future__ import annotations

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.records.codecs import CodecError, compress, decompress
from kraftlab.records.record_batch import CODECS

COMPRESSED = CODECS[1:]
contents = st.binary(max_size=300) | st.builds(bytes.__mul__, st.binary(max_size=9), st.integers(0, 30_000))


@pytest.mark.parametrize("codec", CODECS)
@given(contents)
def test_records_come_back_as_they_were_compressed(codec: str, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_few_bytes_that_become_too_many_are_refused(codec: str) -> None:
    bomb = compress(codec, bytes(1_000_000))
    with pytest.raises(CodecError, match=f"{codec}.*more than 999999 bytes"):
        decompress(codec, bomb, 999_999)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(contents.filter(bool), st.data())
def test_damaged_records_are_refused_or_read_differently_but_never_crash(codec: str, data: bytes, draw: st.DataObject) -> None:
    compressed = compress(codec, data)
    cut = draw.draw(st.integers(0, len(compressed) - 1))
    changed = bytes([compressed[cut] ^ draw.draw(st.integers(1, 255))])
    for damaged in (compressed[:cut], compressed[:cut] + changed + compressed[cut + 1 :]):
        try:
            decompress(codec, damaged, 1_000_000)
        except CodecError as error:
            assert codec in str(error)


def test_frames_and_members_of_other_writers_are_read() -> None:
    data = bytes(range(256)) * 1000
    assert decompress("snappy", bytes(cramjam.snappy.compress_raw(data))) == data
    assert decompress("lz4", bytes(cramjam.lz4.compress(data))) == data
    assert decompress("gzip", compress("gzip", data) + compress("gzip", b"and more")) == data + b"and more"


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(CodecError, match=r"unknown codec \(codec-7\)"):
        decompress("codec-7", b"")
