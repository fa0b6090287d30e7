"""Decoders, compiled from the tables of schemas on first use.

For every record type and version one Python function is generated from the rows and compiled. Neighbouring fields of fixed width
become one `struct` read, lengths below 127 are read without a call, and tagged fields cost nothing if there are none. There is no
code for any single record type: a new field needs only a new row in the tables.

A decoder takes a record's bytes and the position of the fields, and returns (fields as a dict, position after them). It can raise
IndexError or struct.error if the bytes end early, and UnicodeDecodeError for a text that is not UTF-8. `decode_metadata` and
`decode_control` turn them all into UndecodableRecord. Slices beyond the end do not raise, but leave the position beyond the end,
which those two check.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from . import primitives
from .errors import UndecodableRecord
from .primitives import unsigned_varint
from .schema import FIXED_KINDS, Field, Kind, Schema, fields_of
from .tables import CONTROL_RECORDS, METADATA_RECORDS

Decoder = Callable[[bytes, int], tuple[dict[str, object], int]]
FRAME_VERSION = 1
_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_VERSION = struct.Struct(">h")
_BAD_BYTES = (IndexError, struct.error, UnicodeDecodeError)


class Plan(NamedTuple):
    """The decoder for a record of one type and version."""

    name: str
    version: int
    decode: Decoder


class _Writer:
    """Writes one decoder's source and keeps the values that the source refers to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.values: dict[str, object] = {
            "varint": unsigned_varint,
            "uuid": primitives.uuid_text,
            "base64": primitives.bytes_text,
            "number": primitives.json_float,
            "int32s": primitives.INT32_LISTS,
            "short": primitives.cut_short,
            "null": primitives.null_refused,
            "wrong_tag_size": primitives.wrong_tag_size,
        }
        self._names = count()

    def name(self, prefix: str) -> str:
        return f"{prefix}{next(self._names)}"

    def add(self, depth: int, *lines: str) -> None:
        self.lines += ["    " * depth + line for line in lines]

    def keep(self, prefix: str, value: object) -> str:
        name = self.name(prefix)
        self.values[name] = value
        return name

    def varint(self, depth: int, target: str) -> None:
        self.add(depth, f"{target} = data[p]", f"if {target} < 128:", "    p += 1", "else:", f"    {target}, p = varint(data, p)")

    def fixed(self, depth: int, fields: list[tuple[Field, str]]) -> None:
        """Read neighbours of fixed width at once."""
        plan = struct.Struct(">" + "".join(field.kind.value for field, _ in fields))
        read = self.keep("read", plan.unpack_from)
        self.add(depth, f"{', '.join(target for _, target in fields)}, = {read}(data, p)", f"p += {plan.size}")
        for field, target in fields:
            if field.kind is Kind.UUID:
                self.add(depth, f"{target} = uuid({target})")
            elif field.kind is Kind.FLOAT64:
                self.add(depth, f"{target} = number({target})")

    def value(self, depth: int, field: Field, target: str, version: int) -> None:
        """Read one field of any kind."""
        if field.array:
            self.array(depth, field, target, version)
        elif field.kind is Kind.STRUCT:
            decoder = self.keep("struct", compile_decoder(field.fields, version))
            self.add(depth, f"{target}, p = {decoder}(data, p)")
        elif field.kind in FIXED_KINDS:
            self.fixed(depth, [(field, target)])
        else:
            text = "str(data[p:e], 'utf-8')" if field.kind is Kind.STRING else "base64(data[p:e])"
            self.varint(depth, "n")
            self.add(depth, "if n:", "    e = p + n - 1", f"    {target} = {text}", "    p = e")
            self.absent(depth, field, target)

    def array(self, depth: int, field: Field, target: str, version: int) -> None:
        self.varint(depth, "n")
        self.add(depth, "if n:")
        if field.kind in (Kind.INT32, Kind.UUID):
            width = 4 if field.kind is Kind.INT32 else primitives.UUID_BYTES
            self.add(depth + 1, f"e = p + {width} * (n - 1)", "if e > len(data):", f"    raise short({field.name!r})")
            items = "int32s[n - 1].unpack_from(data, p)"
            if field.kind is Kind.UUID:
                items = f"[uuid(data[i:i + {width}]) for i in range(p, e, {width})]"
            self.add(depth + 1, f"{target} = list({items})" if field.kind is Kind.INT32 else f"{target} = {items}", "p = e")
        else:
            item, left = self.name("item"), self.name("left")
            self.add(depth + 1, f"{target} = []", "if n - 1 > len(data) - p:", f"    raise short({field.name!r})")
            self.add(depth + 1, f"for {left} in range(n - 1):")
            self.value(depth + 2, field._replace(array=False, nullable=False), item, version)
            self.add(depth + 2, f"{target}.append({item})")
        self.absent(depth, field, target)

    def absent(self, depth: int, field: Field, target: str) -> None:
        self.add(depth, "else:", f"    {target} = None" if field.nullable else f"    raise null({field.name!r})")

    def plain_fields(self, fields: list[tuple[Field, str]], version: int) -> None:
        run: list[tuple[Field, str]] = []
        for field, target in fields:
            if field.kind in FIXED_KINDS and not field.array:
                run.append((field, target))
                continue
            if run:
                self.fixed(1, run)
                run = []
            self.value(1, field, target, version)
        if run:
            self.fixed(1, run)

    def tagged_fields(self, fields: list[tuple[Field, str]], version: int) -> None:
        self.add(1, *(f"{target} = {_default(field)}" for field, target in fields))
        self.varint(1, "tags")
        self.add(1, "while tags:", "    tags -= 1")
        self.varint(2, "tag")
        self.varint(2, "size")
        self.add(2, "start = p")
        for index, (field, target) in enumerate(fields):
            self.add(2, f"{'elif' if index else 'if'} tag == {field.tag}:")
            self.value(3, field, target, version)
        self.add(2, "else:" if fields else "if True:", "    p += size")
        self.add(2, "if p != start + size:", "    raise wrong_tag_size(tag, size, p - start)")

    def result(self, fields: list[tuple[Field, str]]) -> None:
        """Return the dict in the order of the rows. Tagged fields appear only if they differ from their defaults."""
        first_tagged = next((index for index, (field, _) in enumerate(fields) if field.tag is not None), len(fields))
        items = ", ".join(f"{field.name!r}: {target}" for field, target in fields[:first_tagged])
        self.add(1, f"result = {{{items}}}")
        for field, target in fields[first_tagged:]:
            if field.tag is None:
                self.add(1, f"result[{field.name!r}] = {target}")
            else:
                default = _default(field)
                self.add(1, f"if {target} {'is not' if default == 'None' else '!='} {default}:")
                self.add(2, f"result[{field.name!r}] = {target}")
        self.add(1, "return result, p")


def _default(field: Field) -> str:
    if field.nullable:
        return "None"
    return "[]" if field.array else repr(field.default)


def compile_decoder(fields: tuple[Field, ...], version: int) -> Decoder:
    """Return the decoder of a struct in one version."""
    writer = _Writer()
    named = [(field, writer.name("f")) for field in fields_of(fields, version)]
    writer.add(0, "def decode_fields(data, p):")
    writer.plain_fields([entry for entry in named if entry[0].tag is None], version)
    writer.tagged_fields([entry for entry in named if entry[0].tag is not None], version)
    writer.result(named)
    exec("\n".join(writer.lines), writer.values)  # the source is made of our own tables alone
    decoder: Decoder = writer.values["decode_fields"]  # type: ignore[assignment]
    return decoder


class Plans:
    """The decoders of a table, compiled on demand."""

    def __init__(self, schemas: tuple[Schema, ...], noun: str) -> None:
        self._schemas = {schema.number: schema for schema in schemas}
        self._noun = noun
        self._plans: dict[tuple[int, int], Plan] = {}

    def plan(self, number: int, version: int) -> Plan:
        """Return the decoder for a type and version. UndecodableRecord for an unknown one."""
        plan = self._plans.get((number, version))
        if plan is None:
            schema = self._schemas.get(number)
            if schema is None:
                raise UndecodableRecord(f"unknown {self._noun} {number}", number, version)
            if not 0 <= version <= schema.latest:
                known = "version 0 is" if schema.latest == 0 else f"versions 0 to {schema.latest} are"
                raise UndecodableRecord(f"unknown version {version} of {schema.name}; {known} known", number, version)
            plan = Plan(schema.name, version, compile_decoder(schema.fields, version))
            self._plans[number, version] = plan
        return plan


METADATA_PLANS = Plans(METADATA_RECORDS, "record type")
CONTROL_PLANS = Plans(CONTROL_RECORDS, "control record type")
_BY_FRAME: dict[bytes, Plan] = {}
"""Plans by the first three bytes of a frame with numbers below 128, as all known numbers are."""


def decode_metadata(value: bytes) -> tuple[str, int, dict[str, Any]]:
    """Decode a data record's value into (type name, version, fields). UndecodableRecord."""
    plan, position = _BY_FRAME.get(value[:3]), 3
    try:
        if plan is None:
            plan, position = _plan_of_frame(value)
    except IndexError as error:
        raise _unreadable(error, None) from None
    return plan.name, plan.version, _decoded(plan, value, position)


def decode_control(key: bytes, value: bytes) -> tuple[str, dict[str, object]]:
    """Decode a control record into (name, fields). UndecodableRecord."""
    try:
        _, number = _CONTROL_KEY.unpack_from(key)
        (version,) = _CONTROL_VERSION.unpack_from(value)
    except struct.error as error:
        raise _unreadable(error, None) from None
    plan = CONTROL_PLANS.plan(number, version)
    return plan.name, _decoded(plan, value, 0)


def _decoded(plan: Plan, value: bytes, position: int) -> dict[str, Any]:
    try:
        data, end = plan.decode(value, position)
    except _BAD_BYTES as error:
        raise _unreadable(error, plan) from None
    except UndecodableRecord as error:
        raise UndecodableRecord(f"{plan.name} v{plan.version}: {error.reason}") from None
    if end != len(value):
        raise _wrong_end(plan, end, len(value))
    return data


def _plan_of_frame(value: bytes) -> tuple[Plan, int]:
    frame, position = unsigned_varint(value, 0)
    if frame != FRAME_VERSION:
        raise UndecodableRecord(f"frame version is {frame}, only {FRAME_VERSION} is known")
    number, position = unsigned_varint(value, position)
    version, position = unsigned_varint(value, position)
    plan = METADATA_PLANS.plan(number, version)
    if position == 3:
        _BY_FRAME[value[:3]] = plan
    return plan, position


def _unreadable(error: Exception, plan: Plan | None) -> UndecodableRecord:
    what = "the record" if plan is None else f"{plan.name} v{plan.version}"
    if isinstance(error, UnicodeDecodeError):
        return UndecodableRecord(f"{what} holds a text that is not UTF-8: {error.reason} in {error.object[:40]!r}")
    return UndecodableRecord(f"{what} ends too early")


def _wrong_end(plan: Plan, end: int, size: int) -> UndecodableRecord:
    what = f"{plan.name} v{plan.version}"
    return UndecodableRecord(f"{what} ends too early" if end > size else f"{size - end} bytes are left after {what}")
