"""One way to refuse JSON that cannot be used, for every file and message from outside."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from kraftlab.config.json_files import BadJson, decode_json, read_json


class Entry(msgspec.Struct):
    topic: str
    offsets: tuple[int, ...] = ()


def test_a_document_is_decoded_as_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "entry.json"
    path.write_text('{"topic": "foo", "offsets": [1, 2], "more": true}')
    assert decode_json(b"\xef\xbb\xbf" + path.read_bytes(), Entry) == Entry("foo", (1, 2))
    assert read_json(path, Entry) == read_json(str(path), Entry) == Entry("foo", (1, 2))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not valid JSON: Input data was truncated"),
        (b'{"topic": "foo"]', "not valid JSON: JSON is malformed: expected ',' or '}' (byte 15)"),
        (b"{}", "not of the expected shape: Object missing required field `topic`"),
        (b"[]", "not of the expected shape: Expected `object`, got `array`"),
        (b'{"topic": 1}', "not of the expected shape: Expected `str`, got `int` - at `$.topic`"),
        (b'{"topic": "\xff"}', "not UTF-8 text"),
        ('{"topic": "foo"}'.encode("utf-16"), "UTF-16 text; save it as UTF-8"),
        ('{"topic": "foo"}'.encode("utf-32"), "UTF-32 text; save it as UTF-8"),
        ('{"topic": "foo"}'.encode("utf-16-le"), "UTF-16 or UTF-32 text, or not text at all; save it as UTF-8"),
        ('{"topic": "foo"}'.encode("utf-16-be"), "UTF-16 or UTF-32 text, or not text at all; save it as UTF-8"),
        (b'{"topic": "foo", "more": ' + b"[" * 100_000, "not usable: arrays or objects are nested too deeply"),
    ],
)
def test_malformed_json_is_refused_in_one_line(data: bytes, text: str) -> None:
    with pytest.raises(BadJson) as refused:
        decode_json(data, Entry)
    assert str(refused.value) == text


def test_a_named_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadJson, match=r"^a named pipe \(FIFO\), not a regular file"):
        read_json(tmp_path / "pipe", Entry)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="absent"):
        read_json(tmp_path / "absent", Entry)
