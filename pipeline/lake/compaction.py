"""Compaction of ranges.

A follower of a log commits a range every few seconds. Every reader opens every file, and every commit notes every range. So
neighbouring ranges are merged, as many at a time as make one range of the next tier: after a year of following, a lake has some
dozens of ranges per table. Rows of small ranges are written into one file, once per tier; large files stay as they are.

A merged range has the rows of its ranges. It is a commit like any other, which replaces them: if it is killed, the table is in
the state before or after, and both read the same. Its `content` is that of its oldest part. The caller has built everything that
is made of these tables, so a merge never makes a table count as stale, whether the table's own ranges were merged or not.

The library's own compaction merges files of a partition, and keeps no record of ranges.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ..storage.parts import DataFile, write_here
from .commits import Lake
from .delta import Range

FAN_IN = 32
SMALL_BYTES = 4 << 20
TIER = "tier"
SPARSE = frozenset({"silver.log_dir_samples"})
"""Tables whose ranges are single moments, so that nothing is missing between two of them."""


def compact(lake: Lake, tables: Iterable[str]) -> int:
    """Merge ranges, and return the number of merged ranges. The caller holds `writing()`, and has built everything that is made
    of these tables.
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
        if run and not ((run[-1].hi == each.lo or each.table in SPARSE) and _kind(run[-1]) == _kind(each)):
            run = []
        run.append(each)
        if len(run) == FAN_IN:
            return run
    return ()


def _kind(part: Range) -> tuple[object, ...]:
    """Return the properties in which ranges must agree to be merged, so that their details are true of the whole."""
    details = {name: value for name, value in part.details.items() if name != "batch_id"}
    return "batch_id" in part.details, tuple(sorted(({TIER: "0"} | details).items()))


def _merge(lake: Lake, table: str, parts: Sequence[Range]) -> None:
    files: list[DataFile] = []
    for is_small, some in itertools.groupby(parts, lambda part: sum(file.size_bytes for file in part.files) <= SMALL_BYTES):
        group = list(some)
        if is_small and len(group) > 1:
            files += write_here(lake.uri, lake.directory(table, group[0].lo, group[-1].hi), table, map(lake.arrow_of, group))
        else:
            files += (file for part in group for file in part.files)
    inputs = {name: max(part.inputs.get(name, 0) for part in parts) for part in parts for name in part.inputs}
    tier = int(parts[-1].details.get(TIER, "0")) + 1
    details = {**parts[-1].details, TIER: str(tier)}
    content = min(part.content for part in parts)
    lake.commit_parts(table, parts[0].lo, parts[-1].hi, files, inputs=inputs, details=details, merged=content)
