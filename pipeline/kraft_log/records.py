"""Records of Kafka's metadata log and the control records of KRaft, as dicts in the form of Kafka's own JSON.

The readers of `messages` decode them; here they make dicts: uuids are 22 characters of URL-safe base64, bytes base64, and numbers
that JSON lacks are words. A tagged field with its default value is left out.
"""

from __future__ import annotations

import binascii
import functools
import math
import struct
from functools import lru_cache
from typing import Any, NamedTuple

from kraftlab.messages.catalog import message_class
from kraftlab.messages.generated import METADATA_RECORDS as PLACES
from kraftlab.messages.reading import Frame, MalformedMessage, Reader, ReaderCode
from kraftlab.messages.schema import Message, Structure, defaults

from .errors import UndecodableRecord

FRAME_VERSION = 1
_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_VERSION = struct.Struct(">h")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class RecordType(NamedTuple):
    """A type of records. `number`: in the frame of a metadata record, in the key of a control record. `place`: of its class."""

    number: int
    name: str
    place: str

    @property
    def kind(self) -> type[Message]:
        return message_class(self.place)


METADATA_RECORDS = tuple(RecordType(number, place.partition(".")[0].upper(), place) for number, place in PLACES.items())
CONTROL_RECORDS = (
    RecordType(2, "LeaderChange", "leader_change_message.LeaderChangeMessage"),
    RecordType(3, "SnapshotHeader", "snapshot_header_record.SnapshotHeaderRecord"),
    RecordType(4, "SnapshotFooter", "snapshot_footer_record.SnapshotFooterRecord"),
    RecordType(5, "KRaftVersion", "k_raft_version_record.KRaftVersionRecord"),
    RecordType(6, "KRaftVoters", "voters_record.VotersRecord"),
)
_METADATA = {each.number: each for each in METADATA_RECORDS}
_CONTROL = {each.number: each for each in CONTROL_RECORDS}


@lru_cache(maxsize=1 << 16)
def uuid_text(raw: bytes) -> str:
    """Return a uuid's 16 bytes as Kafka prints them: URL-safe base64 without padding."""
    return binascii.b2a_base64(raw)[:22].translate(_URL_SAFE).decode()


def bytes_text(raw: bytes) -> str:
    """Return bytes as base64."""
    return binascii.b2a_base64(raw, newline=False).decode()


def json_float(value: float) -> float | str:
    """Return a float, or a word if JSON has no number for it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def json_name(field: str) -> str:
    """Return the name of a field in Kafka's JSON."""
    first, *others = field.split("_")
    return first + "".join(word.capitalize() for word in others)


class _JsonCode(ReaderCode):
    """Writes the reader of a record that makes a dict."""

    sequence = "list"

    def result(self, depth: int, kind: type[Structure], names: dict[str, str], target: str) -> None:
        fields = [field for field in kind.FIELDS if field.name in names]
        first_tagged = next((index for index, field in enumerate(fields) if field.tag >= 0), len(fields))
        items = (f"{json_name(field.name)!r}: {names[field.name]}" for field in fields[:first_tagged])
        self.add(depth, f"{target} = {{{', '.join(items)}}}")
        for field in fields[first_tagged:]:
            value, default = names[field.name], defaults(kind)[field.name]
            put = f"{target}[{json_name(field.name)!r}] = {value}"
            if field.tag < 0:
                self.add(depth, put)
            else:
                is_set = f"{value} is not None" if default is None else value if default == () else f"{value} != {default!r}"
                self.add(depth, f"if {is_set}:", f"    {put}")

    def converted(self, kind: object, value: str) -> str:
        texts = {"uuid": uuid_text, "bytes": bytes_text, "float64": json_float}
        return f"{self.keep(texts[str(kind)])}({value})" if kind in texts else value


class _Plan(NamedTuple):
    """The reader of a record of one type and version."""

    name: str
    version: int
    read: Reader

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


@functools.cache
def _plan(noun: str, number: int, version: int) -> _Plan:
    found = (_CONTROL if noun == "control record type" else _METADATA).get(number)
    if found is None:
        raise UndecodableRecord(f"unknown {noun} {number}", number, version)
    newest = found.kind.NEWEST
    if not 0 <= version <= newest:
        known = "version 0 is" if newest == 0 else f"versions 0 to {newest} are"
        raise UndecodableRecord(f"unknown version {version} of {found.name}; {known} known", number, version)
    return _Plan(found.name, version, _JsonCode(found.kind, version).reader())


_BY_FRAME: dict[bytes, _Plan] = {}
"""Plans by the first three bytes of a frame with numbers below 128, as all known numbers are."""


def decode_metadata(value: bytes) -> tuple[str, int, dict[str, Any]]:
    """Decode a data record's value into (type name, version, fields). UndecodableRecord."""
    plan, position = _BY_FRAME.get(value[:3]), 3
    if plan is None:
        plan, position = _plan_of_frame(value)
    return plan.name, plan.version, _decoded(plan, value, position)


def decode_control(key: bytes, value: bytes) -> tuple[str, dict[str, object]]:
    """Decode a control record into (name, fields). UndecodableRecord."""
    try:
        _, number = _CONTROL_KEY.unpack_from(key)
        (version,) = _CONTROL_VERSION.unpack_from(value)
    except struct.error:
        raise UndecodableRecord("the record ends too early") from None
    plan = _plan("control record type", number, version)
    return plan.name, _decoded(plan, value, 0)


def _decoded(plan: _Plan, value: bytes, position: int) -> dict[str, Any]:
    try:
        data, end = plan.read(Frame(value), position)
    except (IndexError, struct.error):
        end = len(value) + 1
    except UnicodeDecodeError as error:
        text = f"{plan} holds a text that is not UTF-8: {error.reason} in {error.object[:40]!r}"
        raise UndecodableRecord(text) from None
    except MalformedMessage as error:
        raise UndecodableRecord(f"{plan}: {error}") from None
    if end > len(value):
        raise UndecodableRecord(f"{plan} ends too early")
    if end < len(value):
        raise UndecodableRecord(f"{len(value) - end} bytes are left after {plan}")
    return data  # type: ignore[return-value]


def _plan_of_frame(value: bytes) -> tuple[_Plan, int]:
    numbers, frame = [], Frame(value)
    position = 0
    try:
        for _ in range(3):
            number, position = frame.varint(position)
            numbers.append(number)
            if numbers[0] != FRAME_VERSION:
                raise UndecodableRecord(f"frame version is {numbers[0]}, only {FRAME_VERSION} is known")
    except IndexError:
        raise UndecodableRecord("the record ends too early") from None
    except MalformedMessage as error:
        raise UndecodableRecord(str(error)) from None
    plan = _plan("record type", numbers[1], numbers[2])
    if position == 3:
        _BY_FRAME[value[:3]] = plan
    return plan, position
