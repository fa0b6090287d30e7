"""Reads through the sources' readers as Spark would, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def reader_of() -> Callable[..., Any]:
    """(format name, place or places, columns=None, **options) → the reader."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from kraftlab.pipeline.sources.data_source import SCHEMAS
    from kraftlab.pipeline.sources.options import parse
    from kraftlab.pipeline.sources.reader import PushdownLogReader
    from kraftlab.pipeline.storage.schemas import arrow_of

    def make(format_name: str, place: object, columns: tuple[str, ...] | None = None, **options: object) -> PushdownLogReader:
        parsed = parse({"path": str(place)} | {name: str(value) for name, value in options.items()})
        known = SCHEMAS[parsed.rows]
        wanted = from_arrow_schema(arrow_of(known))
        if columns is not None:
            wanted.fields = [wanted[name] for name in columns]
            wanted.names = list(columns)
        return PushdownLogReader(format_name, parsed, known, wanted)

    return make


@pytest.fixture
def rows_of(reader_of: Callable[..., Any]) -> Callable[..., list[dict[str, Any]]]:
    """The same, all rows of all tasks in order."""

    def read(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
        reader = reader_of(*arguments, **options)
        return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]

    return read
