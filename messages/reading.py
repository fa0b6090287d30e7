"""Kafka's messages from bytes: readers, compiled from the rows of fields on first use.

Theory of operation. For each message and version one Python function is written and compiled. Neighbours of a fixed size are one
`struct` read, structures and their arrays are read in place, and an empty section of tagged fields costs one comparison. Unknown
tagged fields, those of newer software, are skipped (KIP-482).

The bytes are not trusted. A position only ever grows, so a field that ends beyond the bytes is found at the end, at the latest: a
slice beyond the end is short, and any other read is an IndexError or struct.error. Memory is bounded: an array needs its count
times the fewest bytes of an element, and the elements of all arrays and the tagged fields together are limited, because an object
in memory is many times larger than its bytes.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from kraftlab.wire.parts import InMemory

from .schema import EVER, FORMATS, Field, Message, Structure, defaults, fields_of
from .source import Source

M = TypeVar("M", bound=Message)
ELEMENTS_MAX = 1_000_000
"""Elements of all arrays of a message, and its tagged fields. A reassignment of 200,000 partitions with three replicas each has
800,000 elements."""
_VARINT_BYTES_MAX = 5
_TAGGED_FIELD_BYTES_MIN = 2
"""Bytes of the shortest tagged field: its number, and size 0."""
_INT32 = struct.Struct(">i")


class MalformedMessage(ValueError):
    """The bytes are not a message of that kind. The text gives the field or the place."""


class TooManyElements(MalformedMessage):
    """The arrays and sections of tagged fields have more elements in all than is allowed."""


def read(kind: type[M], version: int, data: InMemory, at: int = 0, elements_max: int = ELEMENTS_MAX) -> tuple[M, int]:
    """Return the message at byte `at`, and the position after it. MalformedMessage. Record batches are views of the bytes."""
    frame = Frame(data, elements_max)
    try:
        value, end = _reader(kind, version)(frame, at)
    except (IndexError, struct.error):
        end = frame.end + 1
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"a text is not UTF-8: {error.reason} in {bytes(error.object)[:40]!r}") from error
    if end > frame.end:
        raise MalformedMessage(f"the message is longer than its {frame.end - at} bytes")
    return value, end  # type: ignore[return-value]


class Frame:
    """The bytes of a message. `elements_left`: number of elements that arrays may still have."""

    __slots__ = ("data", "elements_left", "end")

    def __init__(self, data: InMemory, elements_max: int = ELEMENTS_MAX) -> None:
        self.data = data
        self.end = len(data)
        self.elements_left = elements_max

    def varint(self, at: int) -> tuple[int, int]:
        """Return an unsigned varint and the position after it."""
        value = self.data[at]
        if value < 0x80:
            return value, at + 1
        value &= 0x7F
        for index in range(1, _VARINT_BYTES_MAX):
            byte = self.data[at + index]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value, at + index + 1
        raise MalformedMessage(f"a varint of more than {_VARINT_BYTES_MAX} bytes at byte {at}")

    def bad_array(self, count: int, at: int, bytes_min: int) -> MalformedMessage:
        """Return the error for an array that has too many elements for the bytes that are left, or for the message."""
        if count * bytes_min > self.end - at:
            return self.unfit(f"an array of {count} elements of at least {bytes_min} bytes", at)
        return self.too_many("arrays", count, at)

    def tagged_fields(self, at: int) -> tuple[int, int]:
        """Return the number of fields in a section of tagged fields, and the position of the first."""
        count, at = self.varint(at)
        if count * _TAGGED_FIELD_BYTES_MIN > self.end - at:
            raise self.unfit(f"a section of {count} tagged fields of at least {_TAGGED_FIELD_BYTES_MIN} bytes", at)
        self.elements_left -= count
        if self.elements_left < 0:
            raise self.too_many("sections of tagged fields", count, at)
        return count, at

    def tagged_field(self, at: int) -> tuple[int, int, int]:
        """Return the tag, the position of the field and the position after it."""
        tag, at = self.varint(at)
        size, at = self.varint(at)
        if size > self.end - at:
            raise self.unfit(f"a tagged field of {size} bytes", at)
        return tag, at, at + size

    def skip_tagged_fields(self, at: int) -> int:
        count, at = self.tagged_fields(at)
        for _ in range(count):
            _, _, at = self.tagged_field(at)
        return at

    def too_many(self, what: str, count: int, at: int) -> MalformedMessage:
        return TooManyElements(f"{what} with too many elements, {count} of them at byte {at}; send several smaller requests")

    def unfit(self, what: str, at: int) -> MalformedMessage:
        return MalformedMessage(f"{what} at byte {at}, where {max(0, self.end - at)} bytes are left")

    def bad_length(self, size: int, at: int, name: str) -> MalformedMessage:
        """Return the error for a length that is below 0."""
        if size == -1:
            return MalformedMessage(f"{name} is null before byte {at}, which its schema does not allow")
        return self.unfit(f"a field of {size} bytes", at)

    def no_array(self, count: int, at: int) -> MalformedMessage:
        """Return the error for a count that is below 0."""
        what = "a null array, which its schema does not allow," if count == -1 else f"an array of {count} elements"
        return self.unfit(what, at)


def _wrong_size(tag: int, read_bytes: int, size: int) -> MalformedMessage:
    return MalformedMessage(f"tagged field {tag} has a size of {size} bytes, but its value has {read_bytes}")


class _Formats(dict[int, struct.Struct]):
    """Number of elements → their `struct`. Short arrays, which are frequent, are compiled once."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> struct.Struct:
        found = struct.Struct(f">{count}{self._code}")
        if count < 64:
            self[count] = found
        return found


_ARRAYS = {kind: _Formats(code) for kind, code in FORMATS.items() if kind != "uuid"}
_LENGTHS = {"string": struct.Struct(">h"), "bytes": _INT32, "records": _INT32}


# --- compiled readers -------------------------------------------------------------------------------------------------------


Reader = Callable[[Frame, int], tuple[object, int]]
"""Takes a frame and the position of a message; returns the message and the position after it, which can be beyond the end.
MalformedMessage, UnicodeDecodeError; IndexError and struct.error beyond the end.
"""


class ReaderCode(Source):
    """Writes the reader of one message in one version. A subclass makes something else of the values than a message."""

    sequence = "tuple"
    """Type of arrays."""

    def __init__(self, kind: type[Message], version: int) -> None:
        super().__init__()
        self._kind = kind
        self._version = version
        self._is_flexible = version >= kind.FLEXIBLE

    def reader(self) -> Reader:
        self.add(0, "data, last, left = frame.data, frame.end, frame.elements_left")
        self.structure(0, self._kind, "value")
        self.add(0, "return value, at")
        return self.compiled("frame, at")  # type: ignore[return-value]

    def result(self, depth: int, kind: type[Structure], names: dict[str, str], target: str) -> None:
        """Make a structure of the values that `names` has by field."""
        absent = defaults(kind)
        arguments = [names[each.name] if each.name in names else self.keep(absent[each.name]) for each in kind.FIELDS]
        self.add(depth, f"{target} = {self.keep(kind, 'new')}({', '.join(arguments)})")

    def converted(self, kind: object, value: str) -> str:
        """Return the code of a value of the schema's kind: uuid, bytes or float64."""
        return value

    def structure(self, depth: int, kind: type[Structure], target: str) -> None:
        """Read a structure."""
        plain, tagged = fields_of(kind, self._version)
        names = {field.name: self.name(field.name) for field in (*plain, *tagged)}
        run: list[Field] = []
        for field in plain:
            if field.is_fixed:
                run.append(field)
                continue
            self._fixed(depth, run, names)
            run = []
            self._field(depth, field, names[field.name])
        self._fixed(depth, run, names)
        if self._is_flexible:
            for field in tagged:
                self.add(depth, f"{names[field.name]} = {self.keep(defaults(kind)[field.name])}")
            self._tagged(depth, tagged, names)
        self.result(depth, kind, names, target)

    def _fixed(self, depth: int, run: list[Field], names: dict[str, str]) -> None:
        """Read neighbours of a fixed size at once."""
        if run:
            form = struct.Struct(">" + "".join(FORMATS[str(field.kind)] for field in run))
            targets = "".join(f"{names[field.name]}, " for field in run)
            self.add(depth, f"{targets}= {self.keep(form.unpack_from, 'unpack')}(data, at)", f"at += {form.size}")
            for field in run:
                target = names[field.name]
                if (value := self.converted(field.kind, target)) != target:
                    self.add(depth, f"{target} = {value}")

    def _field(self, depth: int, field: Field, target: str) -> None:
        """Read a field that is not one of several neighbours."""
        if field.is_array:
            self._array(depth, field, target)
        elif field.is_fixed:
            self._fixed(depth, [field], {field.name: target})
        elif isinstance(field.kind, str):
            self._sized(depth, field, target)
        elif field.null_since > self._version or field.tag >= 0:
            self.structure(depth, field.kind, target)
        else:
            self.add(depth, "at += 1", "if data[at - 1] < 128:")
            self.structure(depth + 1, field.kind, target)
            self.add(depth, "else:", f"    {target} = None")

    def _sized(self, depth: int, field: Field, target: str) -> None:
        """Read text, bytes or records, with their length in front."""
        can_be_null = field.null_since <= self._version
        value = {
            "string": "str(data[at:end], 'utf-8')",
            "bytes": self.converted("bytes", "bytes(data[at:end])"),
            "records": "memoryview(data)[at:end]",
        }[str(field.kind)]
        if self._is_flexible and field.is_compact:
            self.add(depth, "size = data[at] - 1", "at += 1")
            self.add(depth, "if size > 126:", "    size, at = frame.varint(at - 1)", "    size -= 1")
        else:
            length = _LENGTHS[str(field.kind)]
            self.add(depth, f"size, = {self.keep(length.unpack_from, 'unpack')}(data, at)", f"at += {length.size}")
        self.add(depth, "if size >= 0:", "    end = at + size", f"    {target} = {value}", "    at = end")
        if can_be_null:
            self.add(depth, "elif size == -1:", f"    {target} = None")
        self.add(depth, "else:", f"    raise frame.bad_length(size, at, {field.name!r})")

    def _array(self, depth: int, field: Field, target: str) -> None:
        count = self.name("count")
        element = field._replace(is_array=False, null_since=EVER, tag=-1)
        least = self._least(element)
        if self._is_flexible:
            self.add(depth, f"{count} = data[at] - 1", "at += 1", f"if {count} > 126:")
            self.add(depth + 1, f"{count}, at = frame.varint(at - 1)", f"{count} -= 1")
        else:
            self.add(depth, f"{count}, = {self.keep(_INT32.unpack_from, 'unpack')}(data, at)", "at += 4")
        self.add(depth, f"if {count} > 0:", f"    left -= {count}", f"    if left < 0 or {count} * {least} > last - at:")
        self.add(depth + 2, f"raise frame.bad_array({count}, at, {least})")
        if field.kind == "uuid":
            each = self.converted("uuid", "bytes(data[i:i + 16])")
            self.add(depth + 1, f"end = at + 16 * {count}")
            self.add(depth + 1, f"{target} = {self.sequence}([{each} for i in range(at, end, 16)])", "at = end")
        elif field.kind in _ARRAYS:
            forms = _ARRAYS[field.kind]
            self.add(depth + 1, f"{target} = {self.sequence}({self.keep(forms)}[{count}].unpack_from(data, at))")
            self.add(depth + 1, f"at += {forms[1].size} * {count}")
        else:
            one, found = self.name("one"), self.name("found")
            self.add(depth + 1, f"{found} = []", f"for _ in range({count}):")
            self._field(depth + 2, element, one)
            self.add(depth + 2, f"{found}.append({one})")
            self.add(depth + 1, f"{target} = {self.sequence}({found})")
        self.add(depth, f"elif not {count}:", f"    {target} = {self.sequence}()")
        if field.null_since <= self._version:
            self.add(depth, f"elif {count} == -1:", f"    {target} = None")
        self.add(depth, "else:", f"    raise frame.no_array({count}, at)")

    def _tagged(self, depth: int, fields: Sequence[Field], names: dict[str, str]) -> None:
        """Read a section of tagged fields, of which these are known."""
        self.add(depth, "if not data[at]:", "    at += 1", "else:")
        if not fields:
            self.add(depth, "    at = frame.skip_tagged_fields(at)")
            return
        tags, tag, start, after = (self.name(each) for each in ("tags", "tag", "start", "after"))
        self.add(depth + 1, f"{tags}, at = frame.tagged_fields(at)", f"for _ in range({tags}):")
        self.add(depth + 2, f"{tag}, {after} = data[at], data[at + 1]", f"if {tag} | {after} < 128:", "    at += 2")
        self.add(depth + 3, f"{after} += at")
        self.add(depth + 2, "else:", f"    {tag}, at, {after} = frame.tagged_field(at)", f"{start} = at")
        for index, field in enumerate(fields):
            self.add(depth + 2, f"{'elif' if index else 'if'} {tag} == {field.tag}:")
            self._field(depth + 3, field, names[field.name])
        self.add(depth + 2, "else:", f"    at = {after}", f"if at != {after}:")
        self.add(depth + 3, f"raise {self.keep(_wrong_size)}({tag}, at - {start}, {after} - {start})")

    def _least(self, field: Field) -> int:
        """Return the fewest bytes of a field, at least 1."""
        if field.is_fixed:
            return struct.calcsize(">" + FORMATS[str(field.kind)])
        if field.is_array:
            return 1 if self._is_flexible else 4
        if isinstance(field.kind, str):
            return 1 if self._is_flexible and field.is_compact else _LENGTHS[field.kind].size
        if field.null_since <= self._version:
            return 1
        plain, _ = fields_of(field.kind, self._version)
        return max(sum(self._least(each) for each in plain) + self._is_flexible, 1)


@functools.cache
def _reader(kind: type[Message], version: int) -> Reader:
    return ReaderCode(kind, version).reader()
