"""Small ranges put together.

Who follows a log commits a range every few seconds, and every reader opens every file. So ranges that lie side by side are put
together, as many at a time as make one of the next tier: a lake that was followed for a year has some dozens of ranges per table,
and each row was written once per tier. Ranges of some size stay as they are.

What is put together has the rows that its ranges had. It is one commit like any other, which replaces them: whatever kills it,
the table is as it was before or as it is after, and both read the same. Its manifest says which were the oldest of those that it
stands for and the newest that had rows (`Manifest.content`, `Manifest.changed`). Whoever puts ranges together has built all that
is made of them, so that nothing counts as made of other rows than before, whether its own ranges were put together or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .commits import CHANGED, CONTENT, Lake, Manifest
from .parts import TaskFiles, written

FAN_IN = 32
SMALL_BYTES = 4 << 20
TIER = "tier"


def compact(lake: Lake, tables: Iterable[str]) -> int:
    """How many ranges were made of small ones. The caller holds `writing()`, and has built all that is made of these tables."""
    made = 0
    for table in tables:
        while due := _due(lake.active(table)):
            _put_together(lake, table, due)
            made += 1
    return made


def _due(manifests: Iterable[Manifest]) -> Sequence[Manifest]:
    """The first so many that can be one, none if there are fewer."""
    run: list[Manifest] = []
    for each in manifests:
        if run and not (run[-1].hi == each.lo and _kind(run[-1]) == _kind(each)):
            run = []
        if sum(file.size_bytes for file in each.files) > SMALL_BYTES:
            run = []
            continue
        run.append(each)
        if len(run) == FAN_IN:
            return run
    return ()


def _kind(manifest: Manifest) -> tuple[object, ...]:
    """Only ranges that are alike in all this are put together: what their details say is then true of the whole."""
    details = {name: value for name, value in manifest.details.items() if name not in (CONTENT, CHANGED, "batch_id")}
    return manifest.schema_version, "batch_id" in manifest.details, tuple(sorted(({TIER: "0"} | details).items()))


def _put_together(lake: Lake, table: str, parts: Sequence[Manifest]) -> None:
    lo, hi = parts[0].lo, parts[-1].hi
    with TaskFiles(lake.uri, {table: lake.directory(table, lo, hi)}) as files:
        for part in parts:
            for batch in lake.arrow_of(part).to_batches():
                files.add(table, batch)
        found = written(files.report()).files.get(table, ())
    inputs = {name: max(part.inputs.get(name, 0) for part in parts) for part in parts for name in part.inputs}
    tier = int(parts[-1].details.get(TIER, "0")) + 1
    numbers = {
        CONTENT: str(min(part.content for part in parts)),
        CHANGED: str(max((part.changed for part in parts if part.has_changed), default=0)),
    }
    lake.commit_parts(table, lo, hi, found, inputs=inputs, details={**parts[-1].details, TIER: str(tier), **numbers})
