"""`kraftlab chaos check`: judge stored runs again."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from kraftlab.checking.linearizability import STEPS_MAX
from kraftlab.cli.output import Output, json_option

from ..checkers.judgement import judge
from ..checkers.linearizable import Linearizable
from ..command import WrongUse
from ..runs import checkers_of
from ..store import DEFAULT_STORE, LATEST, RunDirectory, RunRecord, StoreError, all_runs, first_run
from ..verdicts import HARNESS, ending, word, worst
from ..workload import Checker, Run
from ..workloads import UnknownWorkload, workload_named
from ..workloads.scoped_checkers import ScopedChecker


@click.command(
    "check",
    short_help="Check stored runs again.",
    epilog="""\b
Examples:
  kraftlab chaos check
  kraftlab chaos check topics/20260101T120000-7 registers/20260101T120100-8
  kraftlab chaos check --steps 50000000
  kraftlab chaos check --all""",
)
@click.argument("runs", metavar="[RUN…]", nargs=-1)
@click.option("--all", "of_all", is_flag=True, help="Check all runs of the store.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Maximum number of search steps per key (default: {STEPS_MAX}).",
)
@click.option(
    "--store",
    type=click.Path(),
    metavar="DIR",
    default=DEFAULT_STORE,
    show_default=True,
    help="Directory in which runs are stored.",
)
@json_option
def check(runs: tuple[str, ...], of_all: bool, steps: int | None, store: str, as_json: bool) -> None:
    """Check each RUN (default: the newest) again with the checkers of this version, and store the new verdicts in it.

    To update its page: kraftlab chaos report RUN. The exit code is that of the worst run. With --all, a run that cannot be
    checked does not stop the others.
    """
    if runs and of_all:
        raise WrongUse(f"RUN {runs[0]} and --all were both given; leave one of them out")
    directories = list(all_runs(store)) if of_all else [RunDirectory.find(run, store) for run in runs or (LATEST,)]
    if not directories:
        raise WrongUse(f"there are no runs in {store}; make one with: {first_run(store)}")
    output = Output(as_json)
    try:
        judged: list[tuple[RunDirectory, RunRecord]] = []
        for directory in directories:
            try:
                record, _ = rechecked(directory, steps)
            except (StoreError, UnknownWorkload) as error:
                if not of_all:
                    raise
                output.findings([f"not judged {directory.name}: {error}"])
                continue
            judged.append((directory, record))
            output.lines(_lines(directory, record))
    except UnknownWorkload as error:
        raise WrongUse(f"{error}; the run comes from a pytest test or from another version") from error
    output.result(
        [
            {"run": str(directory.path), "valid": record.valid, "verdicts": msgspec.to_builtins(record.verdicts)}
            for directory, record in judged
        ]
    )
    endings = [ending(record.verdicts) for _, record in judged]
    raise SystemExit(worst([*endings, HARNESS] if len(judged) < len(directories) else endings).exit_code)


def _lines(directory: RunDirectory, record: RunRecord) -> list[str]:
    """Return the run with the reasons of its verdicts; of valid verdicts only the names."""
    fine = [verdict.checker for verdict in record.verdicts if verdict.valid is True]
    lines = [f"{word(record.valid):<8} {directory.name}"]
    lines += [f"  {verdict.checker}: {verdict.reason}" for verdict in record.verdicts if verdict.valid is not True]
    return [*lines, f"  fine: {', '.join(fine)}"] if fine else lines


def rechecked(directory: RunDirectory, steps_max: int | None = None) -> tuple[RunRecord, Run]:
    """Judge a run again and write the new verdicts into its record. `steps_max` limits each search; None keeps the workload's
    limit. StoreError, UnknownWorkload.
    """
    record, run = directory.record(), directory.run()
    checkers: Sequence[Checker] = checkers_of(workload_named(record.workload), record.options, directory.nodes)
    if steps_max is not None:
        checkers = [_limited(checker, steps_max) for checker in checkers]
    record = msgspec.structs.replace(record, verdicts=tuple(judge(run, checkers)))
    directory.write_record(record)
    return record, run


def _limited(checker: Checker, steps_max: int) -> Checker:
    """Return the checker with another limit of its search; a checker without a search is returned unchanged."""
    if isinstance(checker, Linearizable):
        return Linearizable(checker.model, steps_max=steps_max)
    if isinstance(checker, ScopedChecker) and isinstance(checker.checker, Linearizable):
        return checker.with_checker(Linearizable(checker.checker.model, steps_max=steps_max))
    return checker
