"""`kraftlab pipeline report`: what the gold tables say, as a page, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from kraftlab.cli.output import Output, json_option

from ..command import CLEAN, FINDINGS

if TYPE_CHECKING:
    from ..reports.content import Report


@click.command(
    "report",
    short_help="Write one page with plots of moves, catch-up, skew and drift.",
    epilog="""\b
Examples:
  kraftlab pipeline report --lake /tmp/lake --out report.html
  kraftlab pipeline report --lake /tmp/lake --json | jq .statuses

\b
Exit codes: 0 nothing to look at, 1 findings (drift, log dirs over the band, damage, divergence).""",
)
@click.option("--lake", "place", metavar="URI", required=True, help="The lake whose gold tables are shown.")
@click.option(
    "--out",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="Where the page goes.",
)
@json_option
def report(place: str, path: Path, as_json: bool) -> int:
    """Show what was built last. Needs no Spark and no Java."""
    from ..errors import WrongUse
    from ..lake.commits import Lake
    from ..reports import content, page

    found = content.gather(Lake(place))
    if not found.rows:
        raise WrongUse(
            f"the lake {found.lake} holds no tables; the next step: kraftlab pipeline ingest LOGDIR... --lake {found.lake}"
        )
    try:
        page.write(found, path)
    except OSError as error:
        raise WrongUse(f"{path} cannot be written: {error.strerror}; name another with --out") from error
    output = Output(as_json)
    output.lines(_lines(found, path))
    output.result({**msgspec.to_builtins(found), "findings": found.findings, "page": str(path)})
    return FINDINGS if found.findings else CLEAN


def _lines(found: Report, path: Path) -> Iterator[str]:
    from ..reports.page import duration, moment

    yield f"Reassignments: {found.moves_total:,}{_counted(found.statuses)}"
    if found.duration_ms:
        yield "Took:          " + ", ".join(f"{name} {duration(ms)}" for name, ms in found.duration_ms.items())
    if found.catch_up:
        yield "Catch-up:      broker  replicas  half within  99 % within      slowest  never"
        for each in found.catch_up:
            spans = (each.quartiles_ms[1], each.p99_ms, each.max_ms)
            yield (
                f"               {each.broker_id:>6}  {each.replicas:>8,}"
                + "".join(f"  {duration(ms):>11}" for ms in spans)
                + f"  {each.never:>5,}"
            )
    for as_of, loads in found.dirs:
        worst = max(loads, key=lambda load: load.ratio)
        over = sum(load.over_band for load in loads)
        most = f"{worst.broker_id}:{worst.path} {worst.ratio:.2f} of the mean"
        yield f"Log dirs:      {len(loads)} at {moment(as_of)}: {over} over the band; the fullest is {most}"
    yield f"RF drift:      {found.drift_total:,}{_counted(found.drift_kinds)}"
    yield f"Leader epochs: {len(found.epochs):,}; divergences: {sum(found.divergences.values()):,}{_counted(found.divergences)}"
    yield f"Quarantined:   {sum(found.quarantined.values()):,}{_counted(found.quarantined)}"
    yield f"Offset gaps:   {sum(found.gaps.values()):,}{_counted(found.gaps)}"
    if found.missing:
        yield f"Not built:     {', '.join(found.missing)}"
    yield f"Page:          {path}"


def _counted(counts: dict[str, int]) -> str:
    return f" ({', '.join(f'{count:,} {kind}' for kind, count in counts.items())})" if counts else ""
