"""Kafka's messages to bytes: writers, compiled from the rows of fields on first use.

Theory of operation. As in `reading`, each message and version gets one function. It appends to one bytearray; neighbours of a
fixed size, an empty section of tagged fields included, share one `struct` call. Record batches are never copied: `cuts` holds the
position at which a batch belongs into the bytearray, and the parts of a message are pieces of both.

`struct` checks the width of numbers. Only after an error are the values looked at one by one, to name the one that is wrong.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kraftlab.wire.parts import InMemory, Part, part_bytes

from .schema import EVER, FORMATS, NO_ID, Field, Message, Structure, defaults, fields_of
from .source import Source

_KEPT_LISTS_MAX = 20_000
STRING_BYTES_MAX = 2**15 - 1
"""The longest string that is not compact."""
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_ONE_BYTE = tuple(bytes([value]) for value in range(0x80))
Cuts = list[tuple[int, Part]]
"""Positions in the bytes of a message, and the part that belongs there."""


class Unwritable(ValueError):
    """A value does not fit its field. The text gives both."""


def write(value: Message, version: int) -> list[Part]:
    """Return the bytes of a message in parts. Unwritable. An element of an array may be its bytes, of `write_element`."""
    out, cuts = bytearray(), Cuts()
    _run(_writer(type(value), type(value), version), out, value, cuts, version)
    return _in_parts(out, cuts) if cuts else [out]


def write_element(message: type[Message], value: Structure, version: int) -> bytes:
    """Return an element of an array of a message as bytes, which can take its place; or the whole message. It has no records."""
    out = bytearray()
    _run(_writer(message, type(value), version), out, value, [], version)
    return bytes(out)


def _run(writer: Callable[..., None], out: bytearray, value: Structure, cuts: Cuts, version: int) -> None:
    try:
        writer(out, value, cuts)
    except (struct.error, TypeError, AttributeError, ValueError) as error:
        wrong = next(_wrong(value, type(value).__name__, version), None)
        raise Unwritable(wrong or f"{type(value).__name__} version {version}: {error}") from error


# --- bytes of values --------------------------------------------------------------------------------------------------------


def uvarint(value: int) -> bytes:
    """Return an unsigned varint: seven bits a byte, the lowest first."""
    if value < 0x80:
        return _ONE_BYTE[value]
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _compact_string(text: str) -> bytes:
    data = text.encode()
    return uvarint(len(data) + 1) + data


def _bytes(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _compact_bytes(data: bytes) -> bytes:
    return uvarint(len(data) + 1) + data


def _length(values: Sequence[object]) -> bytes:
    return _INT32.pack(len(values))


def _compact_length(values: Sequence[object]) -> bytes:
    return uvarint(len(values) + 1)


class _Lists(dict[tuple[Any, ...], bytes]):
    """Array of numbers → its bytes. They are kept, because lists of replicas repeat."""

    def __init__(self, code: str, length: Callable[[Sequence[object]], bytes]) -> None:
        super().__init__()
        self._code = code
        self._length = length

    def __missing__(self, values: tuple[Any, ...]) -> bytes:
        if len(self) >= _KEPT_LISTS_MAX:
            self.clear()
        encoded = self[values] = self._length(values) + struct.pack(f">{len(values)}{self._code}", *values)
        return encoded


_LISTS = {
    (kind, is_compact): _Lists(code, _compact_length if is_compact else _length)
    for kind, code in FORMATS.items()
    if kind != "uuid"
    for is_compact in (False, True)
}

_SIZED = {
    ("string", False): _string,
    ("string", True): _compact_string,
    ("bytes", False): _bytes,
    ("bytes", True): _compact_bytes,
}
_NULL = {"string": b"\xff\xff", "bytes": b"\xff\xff\xff\xff", "records": b"\xff\xff\xff\xff"}


def tag_section(fields: Sequence[tuple[int, bytes | bytearray]]) -> bytes:
    """Return the tagged fields of a structure, in the order of their tags."""
    found = bytearray(uvarint(len(fields)))
    for tag, data in fields:
        found += uvarint(tag) + uvarint(len(data)) + data
    return bytes(found)


def _add_records(out: bytearray, records: Part, cuts: Cuts) -> None:
    out += _INT32.pack(part_bytes((records,)))
    if part_bytes((records,)):
        cuts.append((len(out), records))


def _add_compact_records(out: bytearray, records: Part, cuts: Cuts) -> None:
    out += uvarint(part_bytes((records,)) + 1)
    if part_bytes((records,)):
        cuts.append((len(out), records))


def _in_parts(out: bytearray, cuts: Cuts) -> list[Part]:
    """Return a message as parts: its bytes, without copies, with each cut's part at its position."""
    parts: list[Part] = []
    view, start = memoryview(out), 0
    for position, part in cuts:
        parts += [view[start:position], part]
        start = position
    if start < len(out):
        parts.append(view[start:])
    return parts


# --- compiled writers -------------------------------------------------------------------------------------------------------


@functools.cache
def _writer(message: type[Message], kind: type[Structure], version: int) -> Callable[..., None]:
    code = _Code(version, is_flexible=version >= message.FLEXIBLE)
    code.structure(0, kind, "value", "out")
    code.add(0, "return")
    return code.compiled("out, value, cuts")  # type: ignore[return-value]


class _Code(Source):
    """Writes the writer of one message in one version."""

    def __init__(self, version: int, *, is_flexible: bool) -> None:
        super().__init__()
        self._version = version
        self._is_flexible = is_flexible

    def structure(self, depth: int, kind: type[Structure], source: str, out: str) -> None:
        """Append a structure to `out`."""
        plain, tagged = fields_of(kind, self._version)
        run: list[Field] = []
        for field in plain:
            if field.is_fixed:
                run.append(field)
                continue
            self._fixed(depth, run, source, out)
            run = []
            self._field(depth, field, f"{source}.{field.name}", out)
        no_tags = self._is_flexible and not tagged
        self._fixed(depth, run, source, out, "x" if no_tags and run else "")
        if no_tags and not run:
            self.add(depth, f'{out} += b"\\x00"')
        elif tagged:
            self._tagged(depth, tagged, defaults(kind), source, out)

    def _fixed(self, depth: int, run: list[Field], source: str, out: str, end: str = "") -> None:
        """Append neighbours of a fixed size at once."""
        if run:
            pack = struct.Struct(">" + "".join(FORMATS[str(field.kind)] for field in run) + end).pack
            values = ", ".join(f"{source}.{field.name}" for field in run)
            self.add(depth, f"{out} += {self.keep(pack, 'pack')}({values})")

    def _field(self, depth: int, field: Field, source: str, out: str) -> None:
        """Append a field that is not one of several neighbours."""
        is_compact = self._is_flexible and field.is_compact
        if field.is_fixed:
            self.add(depth, f"{out} += {self.keep(struct.Struct('>' + FORMATS[str(field.kind)]).pack, 'pack')}({source})")
            return
        if field.null_since < EVER:
            # Null is the empty value in versions without null.
            can_be_null = field.null_since <= self._version
            if not can_be_null and (field.is_array or field.kind in ("string", "bytes")):
                source = f"({source} or {'()' if field.is_array else repr('') if field.kind == 'string' else repr(b'')})"
            elif can_be_null:
                self.add(depth, f"if {source} is None:", f"    {out} += {self._null(field, is_compact)!r}", "else:")
                depth += 1
                if not field.is_array and not isinstance(field.kind, str) and field.tag < 0:
                    self.add(depth, f'{out} += b"\\x01"')
        if field.is_array:
            self._array(depth, field, source, out)
        elif field.kind == "records":
            add = _add_compact_records if is_compact else _add_records
            self.add(depth, f"{self.keep(add)}({out}, {source}, cuts)")
        elif isinstance(field.kind, str):
            self.add(depth, f"{out} += {self.keep(_SIZED[field.kind, is_compact])}({source})")
        else:
            self.structure(depth, field.kind, source, out)

    def _null(self, field: Field, is_compact: bool) -> bytes:
        if not field.is_array and not isinstance(field.kind, str):
            return b"\xff"
        return b"\x00" if is_compact else b"\xff\xff\xff\xff" if field.is_array else _NULL[str(field.kind)]

    def _array(self, depth: int, field: Field, source: str, out: str) -> None:
        if (field.kind, self._is_flexible) in _LISTS:
            self.add(depth, f"{out} += {self.keep(_LISTS[str(field.kind), self._is_flexible], 'lists')}[{source}]")
            return
        one = self.name("one")
        self.add(depth, f"{out} += {self.keep(_compact_length if self._is_flexible else _length)}({source})")
        self.add(depth, f"for {one} in {source}:")
        if not isinstance(field.kind, str):
            self.add(depth + 1, f"if {one}.__class__ is bytes:", f"    {out} += {one}", "    continue")
        self._field(depth + 1, field._replace(is_array=False, null_since=EVER), one, out)

    def _tagged(self, depth: int, fields: Sequence[Field], absent: dict[str, object], source: str, out: str) -> None:
        """Append the tagged fields that have not their defaults."""
        tags, data = self.name("tags"), self.name("data")
        self.add(depth, f"{tags} = None")
        for field in fields:
            value = f"{source}.{field.name}"
            is_set = value if absent[field.name] == () else f"{value} != {self.keep(absent[field.name])}"
            self.add(depth, f"if {is_set}:", f"    {data} = bytearray()")
            self._field(depth + 1, field, value, data)
            self.add(depth + 1, f"{tags} = {tags} or []", f"{tags}.append(({field.tag}, {data}))")
        self.add(depth, f'{out} += {self.keep(tag_section)}({tags}) if {tags} else b"\\x00"')


# --- the value that is wrong ------------------------------------------------------------------------------------------------


def _wrong(value: Any, path: str, version: int) -> Iterator[str]:
    """Yield each value within a structure that its field cannot hold."""
    for field in type(value).FIELDS if isinstance(value, Structure) else ():
        if field.is_in(version):
            found, name = getattr(value, field.name), f"{path}.{field.name}"
            if found is None and field.null_since < EVER:
                continue
            if field.is_array and not isinstance(found, tuple | list):
                yield f"{name} is {found!r:.80}, expected a tuple"
                continue
            for each in found if field.is_array else (found,):
                yield from _wrong_one(each, field.kind, name, version)


def _wrong_one(value: Any, kind: str | type[Structure], name: str, version: int) -> Iterator[str]:
    if not isinstance(kind, str):
        if isinstance(value, kind):
            yield from _wrong(value, name, version)
        elif not isinstance(value, bytes):
            yield f"{name} is {value!r:.80}, expected a {kind.__name__}"
        return
    try:
        if kind in FORMATS:
            struct.pack(">" + FORMATS[kind], value)
            is_wrong = kind == "uuid" and len(value) != len(NO_ID)
        elif kind == "string":
            is_wrong = len(value.encode()) > STRING_BYTES_MAX
        else:
            is_wrong = kind == "bytes" and not isinstance(value, InMemory)
    except (struct.error, AttributeError, UnicodeEncodeError):
        is_wrong = True
    if is_wrong:
        yield f"{name} is {value!r:.80}, expected {kind}"
