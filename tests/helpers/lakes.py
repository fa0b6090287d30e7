"""Lakes that were filled without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kraftlab.pipeline.lake.commits import Lake
from kraftlab.pipeline.sources.bronze_pass import BATCHES, QUARANTINE, taken
from kraftlab.pipeline.sources.formats import FORMATS
from kraftlab.pipeline.sources.options import Options
from kraftlab.pipeline.sources.pruning import Bounds
from kraftlab.pipeline.sources.reader import tasks_of
from kraftlab.pipeline.sources.survey import survey
from kraftlab.pipeline.storage.parts import written

SPARK: Any = SimpleNamespace(conf=SimpleNamespace(get={"spark.master": "local[1]"}.get))
"""As much of a session as is looked at where nothing is left to it."""


def ingest(lake: Lake, form_name: str, *places: Path) -> None:
    """Take all of the logs, as an ingest does."""
    form, options = FORMATS[form_name], Options(tuple(map(str, places)), end_offset=1000)
    found = survey(options.places, form)
    directories = {table: lake.directory(table, 0, found.log_end) for table in (BATCHES, QUARANTINE)}
    controllers = ",".join(str(log.controller_id) for log in found.logs)
    with lake.writing():
        parts: dict[str, list[Any]] = {}
        for task in tasks_of(found, form, options, Bounds.of(options)):
            for table, files in written(taken(task, form, lake.uri, directories)).files.items():
                parts.setdefault(table, []).extend(files)
        for table in directories:
            lake.commit_parts(table, 0, found.log_end, parts.get(table, ()), details={"controllers": controllers})
