"""Text from outside as UTF-8, with or without the byte-order mark that some editors write first."""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE

_OTHER_MARKS = (("UTF-32", (BOM_UTF32_LE, BOM_UTF32_BE)), ("UTF-16", (BOM_UTF16_LE, BOM_UTF16_BE)))
"""Marks of encodings that are refused. Those of UTF-32 come first: one begins with a mark of UTF-16."""


class OtherEncoding(ValueError):
    """Text that is not UTF-8. The message completes "The file is …"."""


def without_mark(data: bytes) -> bytes:
    """Return the text without its byte-order mark. OtherEncoding if the text is UTF-16 or UTF-32."""
    for name, marks in _OTHER_MARKS:
        if data.startswith(marks):
            raise OtherEncoding(f"{name} text; save it as UTF-8")
    if b"\0" in data[:2]:  # the first character is ASCII in all that we read
        raise OtherEncoding("UTF-16 or UTF-32 text, or not text at all; save it as UTF-8")
    return data.removeprefix(BOM_UTF8)
