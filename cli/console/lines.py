"""Conversion between records and lines of text for the consoles, with Kafka's properties and their defaults.

Pure functions of bytes: a line need not be UTF-8, and stored bytes are printed unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from kraftlab.records.record_batch import Record, StoredRecord

Headers = tuple[tuple[str, bytes | None], ...]


class ReaderProperties(msgspec.Struct, frozen=True, rename=lambda name: name.replace("_", ".")):
    """Properties that turn a line into a record: `[header:value,…⇥][key⇥]value`."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    """A line without a separator becomes a value, instead of an error."""
    key_separator: str = "\t"
    headers_delimiter: str = "\t"
    headers_separator: str = ","
    headers_key_separator: str = ":"
    null_marker: str | None = None
    """Text for a missing key, a missing value, or a header without a value."""


class FormatterProperties(msgspec.Struct, frozen=True, rename=lambda name: name.replace("_", ".")):
    """Parts of a record to print, in the order of the fields, with `key_separator` between them."""

    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_headers: bool = False
    print_key: bool = False
    print_value: bool = True
    key_separator: str = "\t"
    line_separator: str = "\n"
    headers_separator: str = ","
    null_literal: str = "null"


class BadLine(ValueError):
    """A line that is not a record. The text names the missing part."""


P = TypeVar("P", ReaderProperties, FormatterProperties)


def properties_from(kind: type[P], texts: Iterable[str]) -> P:
    """Parse `key=value` texts. ValueError names an invalid or unknown property."""
    known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            what = f"there is no property {name!r}" if equals else "a property is given as KEY=VALUE"
            raise ValueError(f"{text!r}: {what}; known are {', '.join(known)}")
        is_switch = known[name].type is bool
        if is_switch and value.lower() not in ("true", "false"):
            raise ValueError(f"{text!r}: give true or false")
        values[name] = value.lower() if is_switch else value
    return msgspec.convert(values, kind, strict=False)


def parse_line(line: bytes, number: int, properties: ReaderProperties) -> Record:
    """Return the record of a line without its end, with the current time. BadLine names the line's number."""
    rest, key = line, None
    headers: Headers = ()
    if properties.parse_headers:
        found, rest = _split(rest, properties.headers_delimiter, "headers delimiter", number, properties)
        headers = _headers(found, number, properties) if found else ()
    if properties.parse_key:
        key, rest = _split(rest, properties.key_separator, "key separator", number, properties)
    return Record(_or_null(key, properties), _or_null(rest, properties), time.time_ns() // 1_000_000, headers)


def _split(text: bytes, separator: str, name: str, number: int, properties: ReaderProperties) -> tuple[bytes | None, bytes]:
    first, found, rest = text.partition(separator.encode())
    if found:
        return first, rest
    if properties.ignore_error:
        return None, text
    shown = text.decode(errors="replace")
    raise BadLine(f"No {name} found on line number {number}: '{shown}'; it should be {separator!r}")


def _headers(text: bytes, number: int, properties: ReaderProperties) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for pair in text.split(properties.headers_separator.encode()):
        name, value = _split(pair, properties.headers_key_separator, "header key separator", number, properties)
        try:
            headers.append(((value if name is None else name).decode(), None if name is None else _or_null(value, properties)))
        except UnicodeDecodeError:
            raise BadLine(f"The name of a header on line number {number} is not UTF-8") from None
    return tuple(headers)


def _or_null(text: bytes | None, properties: ReaderProperties) -> bytes | None:
    is_null = text is not None and properties.null_marker is not None and text == properties.null_marker.encode()
    return None if is_null else text


def format_record(record: StoredRecord, partition: int, properties: FormatterProperties) -> bytes:
    """Return a record in the format of Kafka's console, with the line separator."""
    null = properties.null_literal.encode()
    headers = [name.encode() + b":" + (null if value is None else value) for name, value in record.headers]
    parts = (
        (properties.print_timestamp, b"CreateTime:%d" % record.timestamp_ms),
        (properties.print_partition, b"Partition:%d" % partition),
        (properties.print_offset, b"Offset:%d" % record.offset),
        (properties.print_headers, properties.headers_separator.encode().join(headers) or b"NO_HEADERS"),
        (properties.print_key, null if record.key is None else record.key),
        (properties.print_value, null if record.value is None else record.value),
    )
    shown = properties.key_separator.encode().join(part for is_shown, part in parts if is_shown)
    return shown + properties.line_separator.encode()


def record_document(record: StoredRecord, topic: str, partition: int) -> dict[str, object]:
    """Return a record as a JSON document. Bytes that are not UTF-8 become base64 in `key_base64`, `value_base64`."""
    document: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_text("key", record.key),
        **_text("value", record.value),
    }
    if record.headers:
        document["headers"] = [{"name": name, **_text("value", value)} for name, value in record.headers]
    return document


def _text(name: str, value: bytes | None) -> dict[str, str | bytes | None]:
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": value}


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key as in Kafka's producers: murmur2 without its sign, modulo the number of partitions."""
    return (_murmur2(key) & 0x7FFFFFFF) % partition_count


def _murmur2(data: bytes) -> int:
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    state = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        state = state * multiplier & mask ^ word
    if whole < len(data):
        state = (state ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    state = (state ^ state >> 13) * multiplier & mask
    return state ^ state >> 15
