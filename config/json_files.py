"""JSON from outside: files and messages of people or other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from .regular_files import OddFile, read_regular
from .utf8 import OtherEncoding, without_mark

BYTES_MAX = 1 << 30

T = TypeVar("T")


class BadJson(ValueError):
    """Bytes that are not the expected JSON. The text completes "The file is …": not valid JSON, not UTF-8 text, …"""


def read_json(path: str | Path, kind: type[T]) -> T:
    """Return the document in a file, decoded as `kind`. BadJson; OSError if the file cannot be read. /dev/stdin and pipes of a
    shell (/dev/fd) are read as they are.
    """
    try:
        data = Path(path).read_bytes() if Path(path).is_relative_to("/dev") else read_regular(path, BYTES_MAX)
    except OddFile as error:
        raise BadJson(str(error)) from None
    return decode_json(data, kind)


def decode_json(data: bytes, kind: type[T]) -> T:
    """Return a document, decoded as `kind`. A byte-order mark before UTF-8 is skipped. BadJson."""
    try:
        return msgspec.json.decode(without_mark(data), type=kind)
    except OtherEncoding as error:
        raise BadJson(str(error)) from None
    except msgspec.ValidationError as error:
        raise BadJson(f"not of the expected shape: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        is_text = not isinstance(error, UnicodeDecodeError) and "UTF-8" not in str(error)
        raise BadJson(f"not valid JSON: {error}" if is_text else "not UTF-8 text") from None
    except RecursionError:
        raise BadJson("not usable: arrays or objects are nested too deeply") from None
