"""The tables of silver, made of the batches of bronze in one pass.

`batches` are rows of `bronze.batches`, each batch once (`bronze.chosen`). `spans` are the offsets of aborted transactions, whose
records never happened (`transactions`), `names` those of topics by id. Both are found first, in the few batches that can hold
records which say so (`marks`); and both are checked by the pass itself, which tells what it found of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..lake.parts import PARTS, TaskFiles
from . import decoding
from .batch_rows import COLUMNS, Spans
from .decoding import ABORT, BEGIN, TOPIC

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

TABLES = ("silver.topics", "silver.partition_changes", "silver.brokers", "silver.configs", "silver.other_records")


class Marks(NamedTuple):
    """What a first look says: (offset, type) of the records that begin, end and abort transactions, and topics' names by id."""

    markers: frozenset[tuple[int, int]]
    names: Mapping[str, str]


def marks(batches: DataFrame) -> Marks:
    """Of all batches."""
    suspects = batches.where(decoding.may_have_marks()).select(*COLUMNS)
    found = suspects.mapInArrow(decoding.marks, decoding.MARKS_TEXT).toArrow().to_pylist()
    names = {row["topic_id"]: row["name"] for row in found if row["type"] == TOPIC}
    return Marks(frozenset((row["offset"], row["type"]) for row in found if row["type"] != TOPIC), names)


def tables(batches: DataFrame, names: Mapping[str, str], spans: Spans, uri: str, directories: Mapping[str, str]) -> DataFrame:
    """A job that writes all tables which have a directory in the lake. Its rows are `PARTS`; a task's notes are [markers, names]
    that it found: all of the former, of the latter those it was not given.
    """

    def decode(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = decoding.Decoder(names, spans)
        with TaskFiles(uri, directories) as files:
            files.add_all(decoder.tables(found))
            files.notes = [decoder.markers, decoder.unnamed]
            yield from files.report()

    return batches.select(*COLUMNS).mapInArrow(decode, PARTS)


class Transactions(NamedTuple):
    """Stretches [from, to) of aborted ones, and where one begins that has not ended (None: all have)."""

    aborted: tuple[tuple[int, int], ...]
    open_from: int | None


def transactions(markers: Iterable[tuple[int, int]]) -> Transactions:
    """What (offset, type) of markers say. An end without a beginning belongs to a transaction that a snapshot or a gap
    swallowed.
    """
    aborted = []
    begun: int | None = None
    for offset, number in sorted(markers):
        if number == BEGIN:
            begun = offset
        elif begun is not None:
            if number == ABORT:
                aborted.append((begun, offset + 1))
            begun = None
    return Transactions(tuple(aborted), begun)


def needed_snapshots(holes: Iterable[tuple[int, int]], found: Iterable[tuple[str, int]], has_segments: bool) -> set[str]:
    """Which snapshots (name, end offset) the state needs beside the segments: behind each hole the first that reflects it; the
    last one if there are no segments; what formatting wrote always.
    """
    by_end = sorted((end, name) for name, end in found)
    needed = {name for end, name in by_end if end <= 0}
    if not has_segments:
        return needed | {name for _, name in by_end[-1:]}
    for _, hole_end in holes:
        needed |= {name for end, name in by_end if end >= hole_end and end == min(e for e, _ in by_end if e >= hole_end)}
    return needed
