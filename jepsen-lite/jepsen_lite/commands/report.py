"""`kraftlab chaos report`: the page of a run, and the index of all runs of its store."""

from __future__ import annotations

from pathlib import Path

import click

from kraftlab.cli.output import Output, json_option
from kraftlab.common.exit_codes import FAILED

from ..command import HarnessError, WrongUse
from ..store import DEFAULT_STORE, LATEST, RunDirectory, StoreError, all_runs, first_run


@click.command(
    "report",
    short_help="Write the page of a run and the index of its store.",
    epilog="""\b
Examples:
  kraftlab chaos report
  kraftlab chaos report topics/20260101T120000-7
  kraftlab chaos report --all --store /tmp/runs""",
)
@click.argument("run", metavar="[RUN]", default=LATEST)
@click.option("--all", "of_all", is_flag=True, help="Write the pages of all runs.")
@click.option(
    "--store",
    type=click.Path(),
    metavar="DIR",
    default=DEFAULT_STORE,
    show_default=True,
    help="Directory in which runs are stored.",
)
@json_option
def report(run: str, of_all: bool, store: str, as_json: bool) -> None:
    """Write report/index.html into the directory of RUN (default: the newest) and index.html into the store.

    The pages can be opened from disk, without a server or a network. A RUN outside the store, given by its path, is not in the
    index.
    """
    from ..report.index import Index
    from ..report.page import write_page

    if of_all and run != LATEST:
        raise WrongUse(f"RUN {run} and --all were both given; leave one of them out")
    directories = list(all_runs(Path(store).resolve())) if of_all else [RunDirectory.find(run, store)]
    if not directories:
        raise WrongUse(f"there are no runs in {store}; make one with: {first_run(store)}")
    pages: list[Path] = []
    unreadable: list[str] = []
    try:
        for directory in directories:
            try:
                pages.append(write_page(directory))
            except StoreError as error:
                if not of_all:
                    raise
                unreadable.append(str(error))
        place = Path(store).resolve()
        indices = [Index(place).write()] if directories[0].path.is_relative_to(place) else []
    except OSError as error:
        raise HarnessError(f"cannot write {error.filename}: {error.strerror}") from error
    output = Output(as_json)
    output.lines(map(str, [*pages, *indices]))
    output.result({"pages": list(map(str, pages)), "index": str(indices[0]) if indices else None, "unreadable": unreadable})
    if unreadable and as_json:
        raise SystemExit(FAILED)  # the JSON document has the runs
    if unreadable:
        raise HarnessError(f"{len(unreadable)} of {len(directories)} runs have no page: {'; '.join(unreadable)}")
