"""Compaction of small ranges.

A follower of a log commits a range every few seconds, and every reader opens every file. So neighbouring ranges are merged, as
many at a time as make one range of the next tier. After a year of following, a lake has some dozens of ranges per table, and each
row was written once per tier. Large ranges stay as they are.

A merged range has the rows of its ranges. It is a commit like any other, which replaces them: if it is killed, the table is in
the state before or after, and both read the same. Its `content` is that of its oldest part. The caller has built everything that
is made of these tables, so a merge never makes a table count as stale, whether the table's own ranges were merged or not.

The library's own compaction merges files of a partition, and keeps no record of ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .commits import Lake, Range
from .parts import TaskFiles, written

FAN_IN = 32
SMALL_BYTES = 4 << 20
TIER = "tier"


def compact(lake: Lake, tables: Iterable[str]) -> int:
    """Merge small ranges, and return the number of merged ranges. The caller holds `writing()`, and has built everything that is
    made of these tables.
    """
    made = 0
    for table in tables:
        while due := _due(lake.active(table)):
            _merge(lake, table, due)
            made += 1
    return made


def _due(ranges: Iterable[Range]) -> Sequence[Range]:
    """Return the first ranges that can be merged, or none if there are too few."""
    run: list[Range] = []
    for each in ranges:
        if run and not (run[-1].hi == each.lo and _kind(run[-1]) == _kind(each)):
            run = []
        if sum(file.size_bytes for file in each.files) > SMALL_BYTES:
            run = []
            continue
        run.append(each)
        if len(run) == FAN_IN:
            return run
    return ()


def _kind(part: Range) -> tuple[object, ...]:
    """Return the properties in which ranges must agree to be merged, so that their details are true of the whole."""
    details = {name: value for name, value in part.details.items() if name != "batch_id"}
    return "batch_id" in part.details, tuple(sorted(({TIER: "0"} | details).items()))


def _merge(lake: Lake, table: str, parts: Sequence[Range]) -> None:
    lo, hi = parts[0].lo, parts[-1].hi
    with TaskFiles(lake.uri, {table: lake.directory(table, lo, hi)}) as files:
        for part in parts:
            for batch in lake.arrow_of(part).to_batches():
                files.add(table, batch)
        found = written(files.report()).files.get(table, ())
    inputs = {name: max(part.inputs.get(name, 0) for part in parts) for part in parts for name in part.inputs}
    tier = int(parts[-1].details.get(TIER, "0")) + 1
    details = {**parts[-1].details, TIER: str(tier)}
    lake.commit_parts(table, lo, hi, found, inputs=inputs, details=details, merged=min(part.content for part in parts))
