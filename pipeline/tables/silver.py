"""The tables of silver, made in one pass directly from the files of bronze (`wanted_batches`).

`spans` are the offsets of aborted transactions, whose records never happened (`transactions`); `names` are topics' names by id.
Both are found first, in the few batches that can hold such records (`marks`). The pass verifies both and returns its own
findings. Small inputs are handled in this process, without a Spark job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..storage.parts import PARTS, TaskFiles, WrittenFiles, written
from ..storage.tasks import of_spark
from . import decoding
from .batch_rows import Spans
from .decoding import ABORT, BEGIN, TOPIC
from .topic_names import TopicNames
from .wanted_batches import Piece, shared_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("silver.topics", "silver.partition_changes", "silver.brokers", "silver.configs", "silver.other_records")
RECORDS_HERE_MAX = 50_000
"""More records than these are worth a Spark job."""

Task = Callable[[Sequence[Piece]], Iterator[pa.RecordBatch]]


class Marks(NamedTuple):
    """Result of a first look: (offset, type) of the records that begin, end and abort transactions, and topics' names by id."""

    markers: frozenset[tuple[int, int]]
    names: Mapping[str, str]


def marks(spark: SparkSession, pieces: Sequence[Piece], uri: str) -> Marks:
    """Return the marks of all batches."""

    def look(mine: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        yield from decoding.marks(decoding.with_marks(batch) for piece in mine for batch in piece.rows(uri))

    found = pa.Table.from_batches(_done(spark, pieces, look, decoding.MARKS_TEXT), decoding.MARKS)
    is_topic = pc.equal(found["type"], TOPIC)
    topics, others = found.filter(is_topic), found.filter(pc.invert(is_topic))
    names = dict(zip(topics["topic_id"].to_pylist(), topics["name"].to_pylist(), strict=True))
    return Marks(frozenset(zip(others["offset"].to_pylist(), others["type"].to_pylist(), strict=True)), names)


def tables(
    spark: SparkSession, pieces: Sequence[Piece], names: Mapping[str, str], spans: Spans, uri: str, directories: Mapping[str, str]
) -> WrittenFiles:
    """Write all tables that have a directory in the lake. A task's notes are [markers, names]: all markers that it found, and the
    names that it was not given.
    """
    topics = TopicNames.of(names)

    def decode(mine: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        decoder = decoding.Decoder(topics, spans)
        with TaskFiles(uri, directories) as files:
            files.add_all(decoder.tables(batch for piece in mine for batch in piece.rows(uri)))
            files.notes = [decoder.markers, decoder.unnamed]
            yield from files.report()

    return written(_done(spark, pieces, decode, PARTS))


def _done(spark: SparkSession, pieces: Sequence[Piece], task: Task, schema: str) -> Iterable[pa.RecordBatch]:
    """Return the rows of the tasks, run here or in Spark."""
    if sum(piece.records for piece in pieces) <= RECORDS_HERE_MAX:
        return task(pieces)
    shares = shared_out(pieces)
    found: list[pa.RecordBatch] = of_spark(spark, len(shares), lambda number: task(shares[number]), schema).toArrow().to_batches()
    return found


class Transactions(NamedTuple):
    """Stretches [from, to) of aborted transactions, and the beginning of one that has not ended (None: all have)."""

    aborted: tuple[tuple[int, int], ...]
    open_from: int | None


def transactions(markers: Iterable[tuple[int, int]]) -> Transactions:
    """Pair (offset, type) of markers. An end without a beginning belongs to a transaction whose beginning is in a snapshot or a
    gap.
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
    """Return the snapshots (name, end offset) that the state needs in addition to the segments: after each hole the first
    snapshot that reflects it; the last one if there are no segments; always the snapshots of formatting.
    """
    by_end = sorted((end, name) for name, end in found)
    needed = {name for end, name in by_end if end <= 0}
    if not has_segments:
        return needed | {name for _, name in by_end[-1:]}
    for _, hole_end in holes:
        needed |= {name for end, name in by_end if end >= hole_end and end == min(e for e, _ in by_end if e >= hole_end)}
    return needed
