"""One pass over logs that fills all of bronze: batches as they are, and the damages between them.

Rows of a data source go through the JVM, once for each kind of row. Here each task reads its pieces once and writes the files of
both tables itself (`storage.parts`), as soon as an Arrow batch is full. Nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from kraftlab.common.garbage import without_gc

from ..framing import Frame
from ..storage.parts import PARTS, TaskFiles
from ..storage.schemas import arrow_schema
from ..storage.tasks import of_spark
from .columns import DAMAGE_COLUMNS, FoundDamage, from_rows
from .formats import LogFormat, format_named
from .reader import Task, batches_of, is_near, piece_entries
from .survey import reader_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES, QUARANTINE = "bronze.batches", "bronze.quarantine"


def take(spark: SparkSession, tasks: Sequence[Task], format_name: str, uri: str, directories: Mapping[str, str]) -> DataFrame:
    """Return a job of these tasks. Its rows are `PARTS`; a task's notes are [records in its batches, files that were missing]."""

    def run(number: int) -> Iterator[pa.RecordBatch]:
        return taken(tasks[number], format_named(format_name), uri, directories)

    return of_spark(spark, len(tasks), run, PARTS)


def taken(task: Task, form: LogFormat, uri: str, directories: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Run one task. CorruptInput if a file is of another cluster."""
    schema, damages_schema = arrow_schema(BATCHES), arrow_schema(QUARANTINE)
    records, missing = 0, 0
    with without_gc(), TaskFiles(uri, directories) as files:
        for piece in task.pieces:
            try:
                read, size_bytes = reader_of(piece.file.uri)
            except FileNotFoundError:
                missing += 1
                continue
            damages: list[FoundDamage] = []
            entries = _batches_of(piece_entries(piece, form, read, size_bytes, task.cluster_id), damages)
            for batch in batches_of(entries, piece.file, form, task.bounds, schema):
                records += sum(batch.column("n_records").to_pylist())
                files.add(BATCHES, batch)
            near = [found for found in damages if is_near(found, piece.file, task.bounds)]
            files.add(QUARANTINE, from_rows(piece.file, near, form, DAMAGE_COLUMNS, damages_schema))
        files.notes = [records, missing]
        yield from files.report()


def _batches_of(entries: Iterator[Frame | FoundDamage], damages: list[FoundDamage]) -> Iterator[Frame | FoundDamage]:
    """Yield the batches of a piece, and append the damages to `damages`."""
    for entry in entries:
        if isinstance(entry, FoundDamage):
            damages.append(entry)
        else:
            yield entry
