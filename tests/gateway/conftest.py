"""Random entities of kio."""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


KINDS: dict[str, st.SearchStrategy[Any]] = {
    **{f"int{bits}": signed(bits) for bits in (8, 16, 32, 64)},
    "bool": st.booleans(),
    "bytes": st.binary(max_size=200),
    "datetime_i64": st.integers(0, 2**40).map(lambda each: EPOCH + each * MILLISECOND),
    "error_code": st.sampled_from(ErrorCode),
    "float64": st.floats(allow_nan=False),
    "records": st.binary(max_size=200),
    "string": st.text(max_size=20) | st.text(min_size=128, max_size=200),
    "timedelta_i32": signed(31).map(lambda each: each * MILLISECOND),
    "timedelta_i64": signed(31).map(lambda each: each * MILLISECOND),
    "uint16": st.integers(0, 2**16 - 1),
    "uuid": st.none() | st.uuids(),
}


def entities_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for entities of a kio class; fields with a default have that default at times."""
    return st.builds(kind, **{field.name: values_of(field) for field in dataclasses.fields(kind)})


def values_of(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    options = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
    inner: Any = next(option for option in options if option is not types.NoneType)
    is_array = typing.get_origin(inner) is tuple
    item = typing.get_args(inner)[0] if is_array else inner
    values = entities_of(item) if dataclasses.is_dataclass(item) else KINDS[field.metadata["kafka_type"]]
    if is_array:
        values = st.lists(values, max_size=3).map(tuple)
    if len(options) > 1 and "tag" not in field.metadata:
        values = st.none() | values
    return values if field.default is dataclasses.MISSING else st.just(field.default) | values


@pytest.fixture(scope="session")
def entities() -> Callable[[type], st.SearchStrategy[Any]]:
    """Class of kio → strategy for its entities."""
    return entities_of
