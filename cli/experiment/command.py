"""`kraftlab experiment`: figures of published papers, measured again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlab.common.exit_codes import DONE
from kraftlab.experiments.catalogue import MODULES, experiment_named

from ..command_groups import CommandGroup, Endings
from ..completion.values import offer_words
from ..output import CommandFailed, Output, WrongUse, json_option, unknown_name
from ..progress import progress
from ..tables import aligned

if TYPE_CHECKING:
    from kraftlab.experiments.experiment import Size, Trial
    from kraftlab.experiments.runner import Outcome

OUT = "runs/experiments"
ENDINGS = Endings(codes=(), text=str, extra="chaos", packages=frozenset({"pyarrow", "jinja2"}))

size_option = click.option("--small/--full", "is_small", default=True, help="Few trials, or as many as the paper has.")
seed_option = click.option(
    "--seed", type=click.IntRange(min=0), default=1, metavar="S", show_default=True, help="Seed of all trials."
)
out_option = click.option(
    "--out", type=click.Path(path_type=Path), default=OUT, metavar="DIR", show_default=True, help="Directory of rows and pages."
)
names_argument = click.argument("names", metavar="NAME…", nargs=-1, shell_complete=offer_words(lambda _: MODULES))


class ExperimentGroup(CommandGroup):
    """The group, which names the packages that are missing."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise ENDINGS.failure(error) or error from error


@click.group(
    "experiment",
    cls=ExperimentGroup,
    epilog="""\b
Examples:
  kraftlab experiment list
  kraftlab experiment run leader-crash                # a figure in a minute: runs/experiments/index.html
  kraftlab experiment run leader-crash --full --jobs 2
  kraftlab experiment plot leader-crash --full        # the page again, from the rows

\b
docs/research/experiments.md has the method, and how to add an experiment.""",
)
def experiment() -> None:
    """Measure the figures of published papers again, on kraftlab."""


@experiment.command(
    "list",
    short_help="List the experiments.",
    epilog="""\b
Examples:
  kraftlab experiment list
  kraftlab experiment list --json""",
)
@json_option
def list_(as_json: bool) -> int:
    """List the experiments with their questions and sources."""
    found = [experiment_named(name) for name in MODULES]
    out = Output(as_json)
    rows = [["experiment", "question", "source"], *([one.name, one.question, one.source] for one in found)]
    out.lines(aligned(rows))
    out.result(
        [
            {
                "name": one.name,
                "question": one.question,
                "source": one.source,
                "published": [published._asdict() for published in one.published],
            }
            for one in found
        ]
    )
    return DONE


@experiment.command(
    "run",
    short_help="Run experiments and write their pages.",
    epilog="""\b
Examples:
  kraftlab experiment run leader-crash
  kraftlab experiment run --all --jobs 2
  kraftlab experiment run split-votes --full --seed 7 --out /tmp/experiments --json

\b
A run that was interrupted goes on where it was: give the same size, seed and directory.""",
)
@names_argument
@click.option("--all", "is_all", is_flag=True, help="Run all experiments.")
@size_option
@seed_option
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Number of processes (default: one per core).")
@out_option
@json_option
def run(names: tuple[str, ...], is_all: bool, is_small: bool, seed: int, jobs: int | None, out: Path, as_json: bool) -> int:
    """Run the trials of experiments that are not there so far, and write rows as Parquet and a page with the figures."""
    if is_all == bool(names):
        raise WrongUse("Error: give the names of experiments, or --all to run all\nSee: kraftlab experiment list")
    chosen, size = tuple(MODULES) if is_all else _known(names), _size(is_small)
    from kraftlab.experiments import runner
    from kraftlab.experiments.store import BadRows

    output, documents = Output(as_json), []
    for name in chosen:
        try:
            outcome = runner.run(name, size, seed, jobs=jobs or os.cpu_count() or 1, out=out, watch=partial(_watch, name))
        except BadRows as error:
            raise CommandFailed(f"Error: {error}") from error
        documents.append(_document(outcome))
        output.lines(_lines(outcome))
    output.result(documents)
    return DONE


@experiment.command(
    "plot",
    short_help="Write pages again from the rows.",
    epilog="""\b
Examples:
  kraftlab experiment plot leader-crash
  kraftlab experiment plot leader-crash split-votes --full --out /tmp/experiments""",
)
@names_argument
@size_option
@seed_option
@out_option
@json_option
def plot(names: tuple[str, ...], is_small: bool, seed: int, out: Path, as_json: bool) -> int:
    """Write the pages of experiments again from the rows that are there. Exit code 1 if there are none."""
    chosen, size = _known(names), _size(is_small)
    from kraftlab.experiments import runner
    from kraftlab.experiments.store import BadRows

    output, documents = Output(as_json), []
    for name in chosen:
        try:
            outcome = runner.plot(name, size, seed, out=out)
        except BadRows as error:
            raise CommandFailed(f"Error: {error}") from error
        if outcome is None:
            again = f"kraftlab experiment run {name} --{size} --seed {seed} --out {out}"
            raise CommandFailed(
                f"Error: there are no rows of {name} in {out} in this size with this seed; get them with: {again}"
            )
        documents.append(_document(outcome))
        output.lines([f"{name}: {outcome.page}"])
    output.result(documents)
    return DONE


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise WrongUse("Error: give the name of an experiment\nSee: kraftlab experiment list")
    for name in names:
        if name not in MODULES:
            raise WrongUse("Error: " + unknown_name("experiment", name, MODULES))
    return names


def _size(is_small: bool) -> Size:
    return "small" if is_small else "full"


def _watch(name: str, finished: Iterable[Trial], left: int) -> Iterator[Trial]:
    """Show the progress on stderr."""
    return progress(finished, left, lambda trial: f"{name}, {trial.line}")


def _lines(outcome: Outcome) -> list[str]:
    from kraftlab.experiments.page import compared, estimate, number

    rows = [["number", "published", "ours", "unit"]]
    for what, published, ours in compared(outcome.experiment, outcome.rows):
        texts = ("–", "") if published is None else (number(published.value), published.unit)
        rows.append([what, texts[0], "–" if ours is None else estimate(ours), texts[1]])
    head = f"{outcome.experiment.name}: {outcome.trials:,} trials, {outcome.page}"
    return [
        head,
        *(f"  {line}" for line in aligned(rows)),
        *(f"  {remark}" for remark in outcome.experiment.remarks(outcome.rows)),
    ]


def _document(outcome: Outcome) -> dict[str, object]:
    from kraftlab.experiments.page import compared

    numbers = [
        {"what": what, "published": published and published._asdict(), "ours": ours and ours._asdict()}
        for what, published, ours in compared(outcome.experiment, outcome.rows)
    ]
    return {
        "name": outcome.experiment.name,
        "trials": outcome.trials,
        "page": str(outcome.page),
        "rows": str(outcome.page.with_name("rows.parquet")),
        "numbers": numbers,
        "remarks": outcome.experiment.remarks(outcome.rows),
    }
