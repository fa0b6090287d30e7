"""Values of hot responses, and their encoders by API key."""

from __future__ import annotations

import datetime
import io
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_writer

from kraftlab.wire.parts import InMemory, Part

from ..translation import _absent, _fields, _to_kind


def _entity(source: Any, kind: Any) -> Any:
    return kind(**{field.name: _value(source, field) for field in _fields(kind)})


def _value(source: Any, field: Any) -> Any:
    name = next((each for each in (field.name, f"{field.name}_ms") if hasattr(source, each)), None)
    if name is None:
        return _absent(field)
    value = getattr(source, name)
    if field.is_list:
        if value is None:
            return None
        return tuple(_entity(each, field.nested) if field.nested else _to_kind(each, field) for each in value)
    if field.nested is not None:
        return _absent(field) if value is None else _entity(value, field.nested)
    if field.kind == "uuid":
        import uuid

        return uuid.UUID(bytes=value) if any(value) or not field.is_nullable else None
    if field.kind == "datetime_i64":
        return None if value < 0 else datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
    if field.kind == "records":
        return b"" if value is None else bytes(value)
    return value if field.kind == "string" else _to_kind(value, field)


def _encode(key: int, response: Any, version: int) -> list[Part]:
    kind = load_response_schema(key, version)
    files: list[Part] = []
    if key == 1:
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.records is not None and not isinstance(partition.records, InMemory):
                    files.append(partition.records)
                    partition.records = b"<<<%08d>>>" % len(files)
    buffer = io.BytesIO()
    entity_writer(kind)(buffer, _entity(response, kind))
    data = buffer.getvalue()
    parts: list[Part] = []
    for number, file in enumerate(files, 1):
        before, _, data = data.partition(b"<<<%08d>>>" % number)
        if version >= 12:
            head, value = before[:-1], file.size_bytes + 1  # type: ignore[union-attr]
            varint = bytearray()
            while value > 127:
                varint.append(value & 127 | 128)
                value >>= 7
            varint.append(value)
            parts += [head + bytes(varint), file]
        else:
            parts += [before[:-4] + struct.pack(">i", file.size_bytes), file]  # type: ignore[union-attr]
    return [*parts, data]


ENCODERS: Mapping[int, Callable[[Any, int], list[Part]]] = {key: partial(_encode, key) for key in (0, 1, 2, 3, 23)}
