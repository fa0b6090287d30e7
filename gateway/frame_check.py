"""Frames of the Kafka protocol, checked before kio decodes them.

Theory of operation. kio makes room for as many elements as an array claims to have, in native code: an impossible count ends the
process. So one walk over the frame comes first, along the fields of kio's classes. Every count and length has to fit into the
bytes that are left; an array needs its count times the fewest bytes of an element. The elements of all arrays and the tagged
fields together are bounded: an object in memory is many times larger than its bytes, and the walk takes time for each. Values are
not looked into: kio judges them.

The walk also notes what kio cannot read although it is right: tagged fields of newer software (KIP-482), which are skipped; a
true that is not 1; times beyond those of Python, which become the last that Python knows; and errors of newer brokers. kio then
reads a copy with these changes. A frame without them is not copied.

The steps of a class are worked out once. Each is a function that takes the walk and a position, and returns the position after
its field. Only large counts and lengths are compared with the bytes that are left: the position after the last field shows
whether short fields fitted too, and a step that reads beyond the frame is an IndexError or a struct.error.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from kio.static.protocol import Entity

from kraftlab.wire.parts import InMemory

from .primitives import tag_section

E = TypeVar("E", bound=Entity)
REQUEST_ELEMENTS_MAX = 1_000_000
"""Elements of all arrays of a request, and its tagged fields. A reassignment of 200,000 partitions with three replicas each has
800,000 elements."""
RESPONSE_ELEMENTS_MAX = 8_000_000
"""Elements of all arrays of a response, and its tagged fields."""
_KINDS = {
    1: ("int8", "uint8"),
    2: ("int16", "uint16"),
    4: ("int32", "uint32", "timedelta_i32"),
    8: ("int64", "uint64", "float64"),
    16: ("uuid",),
}
_SIZES = {kind: size for size, kinds in _KINDS.items() for kind in kinds}
"""Kafka type → number of bytes. Types that are neither here nor in `_READABLE` have a length in front."""
_INT16, _INT32, _INT64 = (struct.Struct(f">{code}") for code in "hiq")
_DURATION_MS_MAX = 2**63 // 1000 - 1
_DATE_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_ERRORS = frozenset(int(code) for code in ErrorCode)
_READABLE: dict[str, tuple[struct.Struct, Callable[[int], int]]] = {
    "bool": (struct.Struct(">B"), lambda value: min(value, 1)),
    "error_code": (_INT16, lambda value: value if value in _ERRORS else ErrorCode.unknown_server_error.value),
    "timedelta_i64": (_INT64, lambda value: min(max(value, -_DURATION_MS_MAX), _DURATION_MS_MAX)),
    "datetime_i64": (_INT64, lambda value: min(max(value, -1), _DATE_MS_MAX)),
}
"""Kafka type → its format, and the number that kio reads for a number: kio's type does not hold every one."""
_VARINT_BYTES_MAX = 5
_TAGGED_FIELD_BYTES_MIN = 2
"""Bytes of the shortest tagged field: its number, and size 0."""


class Unfit(ValueError):
    """A count, a length or a varint is impossible at its place. The text gives it."""


class TooManyElements(Unfit):
    """The arrays and sections of tagged fields have more elements in all than is allowed."""


class _Walk:
    """One walk over a frame. `changes`: (start, end, new bytes) of what kio cannot read."""

    __slots__ = ("changes", "data", "elements_left", "end")

    def __init__(self, data: InMemory, elements_max: int) -> None:
        self.data = data
        self.end = len(data)
        self.elements_left = elements_max
        self.changes: list[tuple[int, int, bytes]] = []

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
        raise Unfit(f"a varint of more than {_VARINT_BYTES_MAX} bytes at byte {at}")

    def take(self, count: int, at: int, what: str) -> None:
        """Count elements of an array, or tagged fields. TooManyElements if there are too many in all."""
        self.elements_left -= count
        if self.elements_left < 0:
            raise TooManyElements(f"{what} with too many elements, {count} of them at byte {at}; send several smaller requests")

    def unfit(self, what: str, at: int) -> Unfit:
        return Unfit(f"{what} at byte {at}, where {max(0, self.end - at)} bytes are left")

    def changed(self, start: int, end: int, changes: list[tuple[int, int, bytes]]) -> bytes:
        """Return the bytes from `start` to `end` with these changes, which are in order."""
        pieces: list[InMemory] = []
        for begin, finish, new in changes:
            pieces += [self.data[start:begin], new]
            start = finish
        return b"".join([*pieces, self.data[start:end]])


Step = Callable[[_Walk, int], int]


class _Layout(NamedTuple):
    """The steps of a field or class, and the fewest bytes that it has. `is_fixed`: it always has that many."""

    step: Step
    bytes_min: int
    is_fixed: bool = False


def read_entity(schema: type[E], frame: InMemory, at: int, elements_max: int) -> tuple[E, int]:
    """Return the entity at byte `at` of a frame, and its number of bytes there. Errors are those of kio, and ValueError."""
    data, size = checked(schema, frame, at, elements_max)
    entity, _ = entity_reader(schema)(data, at if data is frame else 0)
    return entity, size


def checked(schema: type[Entity], frame: InMemory, at: int, elements_max: int) -> tuple[InMemory, int]:
    """Return a frame whose entity at byte `at` kio can read, and the number of bytes of the entity: the same frame, or bytes of
    the entity alone, changed. Unfit for counts and lengths that do not fit, and for more than `elements_max` elements of arrays.
    """
    walk = _Walk(frame, elements_max)
    try:
        end = _structure(schema).step(walk, at)
    except (IndexError, struct.error):  # a read beyond the end
        end = walk.end + 1
    if end > walk.end:
        raise Unfit(f"the message is longer than its {walk.end - at} bytes")
    return walk.changed(at, end, walk.changes) if walk.changes else frame, end - at


# --- steps of each kind of field --------------------------------------------------------------------------------------------


def _skip(size: int) -> _Layout:
    return _Layout(lambda walk, at: at + size, size, is_fixed=True)


def _readable(form: struct.Struct, readable: Callable[[int], int]) -> _Layout:
    unpack, size = form.unpack_from, form.size

    def step(walk: _Walk, at: int) -> int:
        value: int = unpack(walk.data, at)[0]
        if value != (known := readable(value)):
            walk.changes.append((at, at + size, form.pack(known)))
        return at + size

    return _Layout(step, size)


def _compact_bytes(walk: _Walk, at: int) -> int:
    size = walk.data[at]
    if size < 0x80:
        return at + (size or 1)
    size, at = walk.varint(at)
    if size - 1 > walk.end - at:
        raise walk.unfit(f"a field of {size - 1} bytes", at)
    return at + max(size - 1, 0)


def _with_length(length: struct.Struct) -> _Layout:
    """Return the layout of a string or bytes that are not compact."""
    unpack, start = length.unpack_from, length.size

    def step(walk: _Walk, at: int) -> int:
        size: int = unpack(walk.data, at)[0]
        at += start
        if not -1 <= size <= walk.end - at:
            raise walk.unfit(f"a field of {size} bytes", at)
        return at + max(size, 0)

    return _Layout(step, start)


def _array(element: _Layout, is_compact: bool, *, is_nullable: bool) -> _Layout:
    step_of_one, bytes_min, is_fixed = element
    bytes_min = max(bytes_min, 1)

    def step(walk: _Walk, at: int) -> int:
        if is_compact:
            count, at = walk.varint(at)
            count -= 1
        else:
            (count,) = _INT32.unpack_from(walk.data, at)
            at += 4
        if count < 0:
            if count < -1:
                raise walk.unfit(f"an array of {count} elements", at)
            if not is_nullable:
                raise walk.unfit("a null array, which its schema does not allow,", at)
            return at
        if count * bytes_min > walk.end - at:
            raise walk.unfit(f"an array of {count} elements of at least {bytes_min} bytes", at)
        walk.take(count, at, "arrays")
        if is_fixed:
            return at + count * bytes_min
        for _ in range(count):
            at = step_of_one(walk, at)
        return at

    return _Layout(step, 1 if is_compact else 4)


def _nullable(inside: _Layout) -> _Layout:
    """Return the layout of a structure that may be null (KIP-893): a byte in front says so."""

    def step(walk: _Walk, at: int) -> int:
        return inside.step(walk, at + 1) if walk.data[at] < 0x80 else at + 1

    return _Layout(step, 1)


def _tags(known: dict[int, Step]) -> Step:
    """Return the step over a section of tagged fields, of which `known` has the fields of kio's class."""

    def step(walk: _Walk, at: int) -> int:
        start = at
        count, at = walk.varint(at)
        if count * _TAGGED_FIELD_BYTES_MIN > walk.end - at:
            raise walk.unfit(f"a section of {count} tagged fields of at least {_TAGGED_FIELD_BYTES_MIN} bytes", at)
        walk.take(count, at, "sections of tagged fields")
        kept: list[tuple[int, bytes]] = []
        before, is_changed = walk.changes, False
        for _ in range(count):
            tag, at = walk.varint(at)
            size, at = walk.varint(at)
            if size > walk.end - at:
                raise walk.unfit(f"a tagged field of {size} bytes", at)
            walk.changes = []
            if tag in known:
                if known[tag](walk, at) != at + size:
                    raise Unfit(f"tagged field {tag} at byte {at} has not the {size} bytes that it claims")
                kept.append((tag, walk.changed(at, at + size, walk.changes)))
            is_changed = is_changed or tag not in known or bool(walk.changes)
            at += size
        walk.changes = before
        if is_changed:
            walk.changes.append((start, at, tag_section(kept)))
        return at

    return step


# --- layouts of kio's classes -----------------------------------------------------------------------------------------------


@functools.cache
def _structure(kind: type[Entity]) -> _Layout:
    layouts: list[_Layout] = []
    tagged: dict[int, Step] = {}
    for field in dataclasses.fields(kind):
        layout = _field(field, kind)
        tag = field.metadata.get("tag", -1)
        if tag != -1:
            tagged[tag] = layout.step
        elif layouts and layouts[-1].is_fixed and layout.is_fixed:
            layouts[-1] = _skip(layouts[-1].bytes_min + layout.bytes_min)
        else:
            layouts.append(layout)
    is_fixed = all(layout.is_fixed for layout in layouts)
    bytes_min = sum(layout.bytes_min for layout in layouts)
    if not kind.__flexible__:
        return _skip(bytes_min) if is_fixed else _Layout(_in_order(layouts), bytes_min)
    before = _skip(bytes_min).step if is_fixed else _in_order(layouts)
    return _Layout(_with_tags(before, _tags(tagged)), bytes_min + 1)


def _in_order(layouts: list[_Layout]) -> Step:
    steps = tuple(layout.step for layout in layouts)

    def step(walk: _Walk, at: int) -> int:
        for each in steps:
            at = each(walk, at)
        return at

    return step


def _with_tags(before: Step, tags: Step) -> Step:
    """Return the step over fields and a section of tagged fields, which is empty in most structures."""

    def step(walk: _Walk, at: int) -> int:
        at = before(walk, at)
        return tags(walk, at) if walk.data[at] else at + 1

    return step


def _field(field: dataclasses.Field[Any], kind: type[Entity]) -> _Layout:
    options = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
    inner = next(option for option in options if option is not types.NoneType)
    is_array = typing.get_origin(inner) is tuple
    item: Any = typing.get_args(inner)[0] if is_array else inner
    # The client id is never compact (KIP-482).
    is_compact = kind.__flexible__ and not (kind.__name__ == "RequestHeader" and field.name == "client_id")
    is_nullable = len(options) > 1 and "tag" not in field.metadata  # A tagged field is null by its absence.
    if dataclasses.is_dataclass(item):
        nested: Any = item
        layout = _structure(nested)
        layout = _nullable(layout) if is_nullable and not is_array else layout
    else:
        layout = _scalar(field.metadata["kafka_type"], is_compact)
    return _array(layout, is_compact, is_nullable=len(options) > 1) if is_array else layout


def _scalar(kafka_type: str, is_compact: bool) -> _Layout:
    if kafka_type in _READABLE:
        return _readable(*_READABLE[kafka_type])
    if kafka_type in _SIZES:
        return _skip(_SIZES[kafka_type])
    if is_compact:
        return _Layout(_compact_bytes, 1)
    return _with_length(_INT16 if kafka_type == "string" else _INT32)
