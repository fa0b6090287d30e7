"""Compiled decoders against a naive encoder of the same tables: every record type in every version."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.messages.schema import Field, Structure, defaults
from kraftlab.pipeline.kraft_log.errors import UndecodableRecord
from kraftlab.pipeline.kraft_log.records import (
    CONTROL_RECORDS,
    METADATA_RECORDS,
    RecordType,
    decode_control,
    decode_metadata,
    json_name,
)

Encode = Callable[..., bytes]

METADATA = [(schema, version) for schema in METADATA_RECORDS for version in range(schema.kind.NEWEST + 1)]
CONTROL = [(schema, version) for schema in CONTROL_RECORDS for version in range(schema.kind.NEWEST + 1)]
BY_NAME = {schema.name: schema for schema in METADATA_RECORDS + CONTROL_RECORDS}


def label(value: object) -> str:
    return value.name if isinstance(value, RecordType) else f"v{value}"


def whole(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)) if signed else 0, 2 ** (bits - 1) - 1 if signed else 2**bits - 1)


PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": whole(8),
    "int16": whole(16),
    "uint16": whole(16, signed=False),
    "int32": whole(32),
    "int64": whole(64),
    "float64": st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["Infinity", "-Infinity"]),
    "uuid": st.binary(min_size=16, max_size=16).map(lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("=")),
    "string": st.text(max_size=20) | st.integers(124, 130).map(lambda size: "ß" * (size // 2)),
    "bytes": st.binary(max_size=20).map(lambda raw: base64.b64encode(raw).decode()),
}


def values_of(field: Field, version: int) -> st.SearchStrategy[Any]:
    one = PLAIN[field.kind] if isinstance(field.kind, str) else fields_values(field.kind, version)
    if field.is_array:
        one = st.lists(one, max_size=3) | (
            st.integers(124, 130).map(lambda size: list(range(size))) if field.kind == "int32" else st.nothing()
        )
    return st.none() | one if field.null_since <= version else one


def fields_of(kind: type[Structure], version: int) -> list[Field]:
    return [field for field in kind.FIELDS if field.is_in(version)]


def fields_values(kind: type[Structure], version: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({json_name(field.name): values_of(field, version) for field in fields_of(kind, version)})


def is_default(kind: type[Structure], field: Field, value: Any) -> bool:
    default = defaults(kind)[field.name]
    return bool(value == ([] if default == () else default))


def shown(kind: type[Structure], values: dict[str, Any], version: int) -> dict[str, Any]:
    """Values without the tagged fields that hold their defaults."""
    return {
        json_name(field.name): values[json_name(field.name)]
        for field in fields_of(kind, version)
        if field.tag < 0 or not is_default(kind, field, values[json_name(field.name)])
    }


@pytest.mark.parametrize(("schema", "version"), METADATA, ids=label)
@settings(max_examples=5, deadline=None)
@given(data=st.data(), write_defaults=st.booleans(), unknown_tag=st.none() | st.binary(max_size=20))
def test_random_records_are_read_as_they_were_written(
    schema: RecordType,
    version: int,
    encode: Encode,
    frame: Encode,
    data: st.DataObject,
    write_defaults: bool,
    unknown_tag: bytes | None,
) -> None:
    values = data.draw(fields_values(schema.kind, version))
    expected = shown(schema.kind, values, version)

    written = frame(schema.number, version, encode(schema, version, values if write_defaults else expected, unknown_tag))

    name, read_version, decoded = decode_metadata(written)
    assert (name, read_version, decoded) == (schema.name, version, expected)
    assert list(decoded) == list(expected)


@pytest.mark.parametrize(("schema", "version"), CONTROL, ids=label)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_random_control_records_are_read_as_they_were_written(
    schema: RecordType, version: int, encode: Encode, data: st.DataObject
) -> None:
    values = data.draw(fields_values(schema.kind, version)) | {"version": version}

    written = encode(schema, version, values)

    assert decode_control(struct.pack(">hh", 0, schema.number), written) == (schema.name, values)


@settings(max_examples=120, deadline=None)
@given(entry=st.sampled_from(METADATA), body=st.binary(max_size=80))
def test_bytes_that_are_no_record_are_refused_as_such(entry: tuple[RecordType, int], frame: Encode, body: bytes) -> None:
    schema, version = entry
    try:
        name, _, _ = decode_metadata(frame(schema.number, version, body))
    except UndecodableRecord as error:
        assert schema.name in error.reason
    else:
        assert name == schema.name


@pytest.mark.parametrize(("schema", "version"), METADATA, ids=label)
@settings(max_examples=2, deadline=None)
@given(data=st.data())
def test_a_record_that_is_cut_anywhere_is_refused(
    schema: RecordType, version: int, encode: Encode, frame: Encode, data: st.DataObject
) -> None:
    written = frame(schema.number, version, encode(schema, version, data.draw(fields_values(schema.kind, version))))

    for size in range(len(written)):
        with pytest.raises(UndecodableRecord):
            decode_metadata(written[:size])


def refusal(value: bytes) -> str:
    with pytest.raises(UndecodableRecord) as caught:
        decode_metadata(value)
    return caught.value.reason


def test_an_unknown_type_is_named_by_its_number(frame: Encode) -> None:
    assert refusal(frame(6, 0, b"")) == "unknown record type 6"
    assert refusal(frame(4711, 3, b"")) == "unknown record type 4711"


def test_an_unknown_version_is_named_beside_those_that_are_known(frame: Encode) -> None:
    assert refusal(frame(5, 3, b"")) == "unknown version 3 of PARTITION_CHANGE_RECORD; versions 0 to 2 are known"
    assert refusal(frame(2, 300, b"")) == "unknown version 300 of TOPIC_RECORD; version 0 is known"


def test_another_frame_version_is_refused(frame: Encode) -> None:
    assert refusal(frame(20, 0, b"\0", frame_version=0)) == "frame version is 0, only 1 is known"


def test_bytes_left_after_a_record_are_counted(frame: Encode) -> None:
    assert refusal(frame(20, 0, b"\0xyz")) == "3 bytes are left after NO_OP_RECORD v0"


def test_a_null_where_none_may_be_is_named(frame: Encode) -> None:
    assert (
        refusal(frame(2, 0, b"\0" + bytes(17))) == "TOPIC_RECORD v0: name is null before byte 4, which its schema does not allow"
    )


def test_a_text_that_is_not_utf_8_is_shown(frame: Encode) -> None:
    reason = refusal(frame(28, 0, b"\x03\xff\xfe\0"))
    assert reason.startswith("CLEAR_ELR_RECORD v0 holds a text that is not UTF-8") and r"b'\xff\xfe'" in reason


def test_a_tagged_field_of_a_wrong_size_is_refused(frame: Encode) -> None:
    fields = bytes(20) + b"\x01\x01\x05" + bytes(5)
    assert refusal(frame(5, 0, fields)) == "PARTITION_CHANGE_RECORD v0: tagged field 1 has a size of 5 bytes, but its value has 4"


def test_a_list_longer_than_its_record_is_refused_without_reading_it(frame: Encode) -> None:
    fields = bytes(20) + b"\xff\xff\xff\xff\x0f"
    assert refusal(frame(3, 0, fields)) == (
        "PARTITION_RECORD v0: an array of 4294967294 elements of at least 4 bytes at byte 28, where 0 bytes are left"
    )


def test_what_json_has_no_number_for_is_a_word(encode: Encode, frame: Encode) -> None:
    values = {"entity": [], "key": "k", "value": float("nan"), "remove": False}
    _, _, decoded = decode_metadata(frame(14, 0, encode(BY_NAME["CLIENT_QUOTA_RECORD"], 0, values)))
    assert decoded["value"] == "NaN"
