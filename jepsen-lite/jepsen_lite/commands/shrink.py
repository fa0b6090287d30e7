"""`kraftlab chaos shrink`: the smallest case of a failing run that still fails, and a test that shows it.

A smaller run counts as failing if a checker reports a violation of the same kind as in the original; other failures do not count.
On real processes a run that fails may pass the next time, so each case is tried several times before it counts as passing. The
time box, or Ctrl-C, ends the search with the best result so far.
"""

from __future__ import annotations

import json
import os
import pprint
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click
import msgspec

from kraftlab.cli.output import Output, json_option

from ..command import FiniteRange, HarnessError, WrongUse
from ..fault_plan import FaultPlan
from ..faults.shrink import Case, smallest_case
from ..report.page import write_page
from ..runs import Trial, TrialResult
from ..store import DEFAULT_STORE, LEAST_RUN, SHRUNK, RunDirectory, StoreError
from ..verdicts import Verdict
from .replay import trial_of
from .trials import run_trial

Failure = tuple[str, str]
"""(checker, kind of violation)."""
REFUSALS_MAX = 3
"""At most so many runs may fail to start, for example because a port is taken."""


class Search:
    """Tries cases and keeps the last run that failed. `run` executes a case."""

    def __init__(self, failed: frozenset[Failure], tries: int, deadline: float, run: Callable[[Case], TrialResult]) -> None:
        self._failed, self._tries, self._deadline, self._run = failed, tries, deadline, run
        self._is_ended = False
        self._refusals = 0
        self.runs = 0
        self.found: TrialResult | None = None

    @property
    def is_over(self) -> bool:
        """True once the time is over or the search was interrupted."""
        return self._is_ended or time.monotonic() > self._deadline

    def fails(self, case: Case) -> bool:
        """Return True if the case fails like the original in one of its tries before the search is over.

        Too many runs that cannot start end the search; they raise HarnessError or StoreError if nothing was found yet.
        """
        return any(self._fails_once(case) for _ in range(self._tries))

    def _fails_once(self, case: Case) -> bool:
        if self.is_over:
            return False
        self.runs += 1
        try:
            tried = self._run(case)
        except KeyboardInterrupt:
            self._is_ended = True
            return False
        except (HarnessError, StoreError):
            self._refusals += 1
            self._is_ended = self._refusals > REFUSALS_MAX
            if self._is_ended and self.found is None:
                raise
            return False
        self._is_ended = bool(tried.run.cut_short)
        if not failing(tried.verdicts) & self._failed:
            return False
        self.found = tried
        return True


def failing(verdicts: Iterable[Verdict]) -> frozenset[Failure]:
    """Return the checkers that reported a violation, each with its kind: one checker may report a broken rule and a cluster that
    is not ready again.
    """
    return frozenset((verdict.checker, verdict.kind) for verdict in verdicts if verdict.valid is False)


@click.command(
    short_help="Make a failing run as small as possible.",
    epilog="""\b
Examples:
  kraftlab chaos shrink latest
  kraftlab chaos shrink registers/20260101T120000-7 --tries 3 --time-box 1800 --to tests/found""",
)
@click.argument("run", metavar="RUN")
@click.option(
    "--store",
    type=click.Path(),
    metavar="DIR",
    default=DEFAULT_STORE,
    show_default=True,
    help="Directory in which runs are stored.",
)
@click.option(
    "--tries",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of runs that must pass before a case counts as passing (default: 2 on real processes, else 1).",
)
@click.option(
    "--time-box", type=FiniteRange(min=1), default=900.0, show_default=True, metavar="SECONDS", help="Time limit for the search."
)
@click.option(
    "--to",
    "target",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Directory for the test and the plan (default: the run's directory).",
)
@json_option
def shrink(run: str, store: str, tries: int | None, time_box: float, target: Path | None, as_json: bool) -> None:
    """Remove faults of RUN while it still fails in the same way, then reduce time, clients, operations and nodes.

    Writes the remaining faults as plan.json, and a pytest test that runs the smallest case and fails until the bug is fixed.
    Every attempt is stored as a run, under shrinking/ in the store.
    """
    directory = RunDirectory.find(run, store)
    record = directory.record()
    failed = failing(record.verdicts)
    if not failed:
        raise WrongUse(f"{directory.name} did not fail; name a run that is INVALID")
    plan = directory.plan()
    trial = trial_of(record, plan)
    output = Output(as_json)
    tries = tries or (2 if record.world == "real" else 1)
    tries_store = str(Path(store) / "shrinking")

    def trial_with(case: Case) -> Trial:
        return trial._replace(options=case.options, plan=msgspec.structs.replace(plan, actions=case.actions))

    def carry_out(case: Case) -> TrialResult:
        try:
            tried = run_trial(trial_with(case), tries_store, output)
        except (HarnessError, StoreError) as error:
            output.findings([f"no run  {error}"])
            raise
        word = "fails" if failing(tried.verdicts) & failed else "passes"
        output.findings([f"{word:<6}  {_size(case)}"])
        return tried

    search = Search(failed, tries, time.monotonic() + time_box, carry_out)
    whole = Case(trial.options, plan.actions)
    if not search.fails(whole):
        raise HarnessError(f"{directory.name} did not fail again in {tries} runs; try more with --tries, or replay it first")
    least = smallest_case(whole, search.fails)
    assert search.found is not None, "the whole run failed"
    test_file, plan_file = write(trial_with(least), search.found, target or directory.path / SHRUNK)
    write_page(directory)
    is_least = "the smallest failing case" if not search.is_over else "not everything was tried, since the time was up"
    output.lines(
        [_size(whole), f"{_size(least)}: {is_least}, after {search.runs} runs", f"plan  {plan_file}", f"test  {test_file}"]
    )
    output.result(
        {
            "actions": len(least.actions),
            "of": len(whole.actions),
            "runs": search.runs,
            "is_least": not search.is_over,
            "plan": str(plan_file),
            "test": str(test_file),
            "run": str(search.found.directory.path),
        }
    )


def _size(case: Case) -> str:
    options = case.options
    return (
        f"{len(case.actions)} faults in {options.time_s:g} s, {options.concurrency} clients, {options.rate:g} operations/s, "
        f"{options.controllers} controllers, {options.brokers} brokers"
    )


def write(trial: Trial, tried: TrialResult, directory: Path) -> tuple[Path, Path]:
    """Write the test and the plan; return both paths. HarnessError."""
    test = directory / f"test_{trial.workload.replace('-', '_')}_{_file_name(trial.options.seed)}.py"
    plan = directory / "plan.json"
    assert trial.plan is not None, "a shrunk run has a plan"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        plan.write_bytes(msgspec.json.format(msgspec.json.encode(trial.plan), indent=2) + b"\n")
        test.write_text(test_text(trial, trial.plan, tried.verdicts), encoding="utf-8")
        (directory / LEAST_RUN).write_text(os.path.relpath(tried.directory.path, directory) + "\n", encoding="utf-8")
    except OSError as error:
        raise HarnessError(f"cannot write {error.filename}: {error.strerror}; choose another directory with --to") from error
    return test, plan


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in text)


def test_text(trial: Trial, plan: FaultPlan, verdicts: Sequence[Verdict]) -> str:
    """Return a test for pytest that runs the trial. It passes once no checker reports a violation and the checkers that found
    this one say valid: "unknown" does not show that the bug is fixed.
    """
    reasons = "\n".join(f"    {verdict.checker}: {verdict.reason}" for verdict in verdicts if verdict.valid is False)
    values = {
        "OPTIONS": msgspec.to_builtins(trial.options),
        "PLAN": msgspec.to_builtins(plan),
        "PROPERTIES": dict(trial.properties),
        "FOUND_BY": sorted({checker for checker, _ in failing(verdicts)}),
    }
    literals = "\n".join(f"{name} = {pprint.pformat(value, width=120, sort_dicts=False)}" for name, value in values.items())
    return TEMPLATE.format(
        workload=trial.workload,
        name=_file_name(trial.workload),
        title=json.dumps(trial.workload),
        world=json.dumps(trial.world),
        net=json.dumps(trial.net),
        nemeses=trial.nemeses,
        reasons=reasons.replace("\\", "\\\\").replace('"""', "'''"),
        literals=literals,
    )


TEMPLATE = '''"""The smallest failing case of {workload}:

{reasons}
"""

from pathlib import Path

import msgspec

from jepsen_lite.fault_plan import FaultPlan
from jepsen_lite.progress import Progress
from jepsen_lite.runs import Trial, run_test
from jepsen_lite.workload import Options

{literals}


def test_{name}_holds(tmp_path: Path) -> None:
    trial = Trial(
        {title},
        {world},
        {nemeses},
        msgspec.convert(OPTIONS, Options),
        msgspec.convert(PLAN, FaultPlan),
        PROPERTIES,
        net={net},
    )
    tried = run_test(trial, str(tmp_path), Progress({title}))
    wrong = [found for found in tried.verdicts if found.valid is False or (found.valid is not True and found.checker in FOUND_BY)]
    assert [found.reason for found in wrong] == []
'''
