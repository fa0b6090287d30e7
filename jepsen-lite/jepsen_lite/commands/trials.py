"""Run trials, show their results, and sum them up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from kraftlab.checking.workers import done_by
from kraftlab.cli.output import CommandFailed, Output
from kraftlab.lab import ClusterError
from kraftlab.lab.cluster_plan import CLIENT_PROPERTIES

from ..command import HarnessError, MachineLacks
from ..history import FAIL, INFO, OK
from ..progress import Progress
from ..report.index import Index
from ..report.page import write_page
from ..runs import Trial, TrialResult, run_test
from ..scheduler import GeneratorStuck
from ..store import StoreError
from ..verdicts import HARNESS, NOT_KNOWN, UNKNOWN, VALID, Ending, combined, ending, word, worst
from ..workloads.callers import SetupFailed
from ..worlds.world import NotOnThisMachine, WorldFailed

logger = logging.getLogger("kraftlab.chaos")


def report_runs(runs: Iterable[TrialResult], output: Output) -> int:
    """Report each run and all runs together; return the exit code.

    No run begins after one that was cut short, after Ctrl-C if nothing of the current run can be kept, or after a run that the
    harness cannot execute. HarnessError or StoreError if that happens to the first run.
    """
    tried: list[TrialResult] = []
    endings: list[Ending] = []
    try:
        for one in runs:
            tried.append(one)
            endings.append(ending(one.verdicts))
            output.lines(verdict_lines(one))
            if one.close is not None:
                _hold(one, output)
            if one.run.cut_short:
                break
    except KeyboardInterrupt:
        if not tried:
            raise
        endings.append(NOT_KNOWN)
    except (HarnessError, StoreError) as error:
        if not tried:
            raise
        endings.append(HARNESS)
        output.findings([f"Error: {error}"])
    reached = worst(endings)
    found = summary(tried)
    output.result(found | {"valid": UNKNOWN} if found["valid"] is True and reached is not VALID else found)
    return reached.exit_code


def run_in_order(trials: Sequence[Trial], store: str, output: Output, jobs: int = 1) -> Iterator[TrialResult]:
    """Yield the finished trials in order. HarnessError."""
    if jobs == 1:
        for trial in trials:
            yield run_trial(trial, store, output)
        return
    yield from done_by(jobs, partial(run_trial, store=store, output=output, is_shown=False), trials)


def run_trial(trial: Trial, store: str, output: Output, *, is_shown: bool = True) -> TrialResult:
    """Run a trial and write its page; show its progress if `is_shown`. HarnessError."""
    progress = Progress(trial.workload) if is_shown else Progress(trial.workload, is_terminal=False, write=lambda text: None)
    try:
        tried = run_test(trial, store, progress)
        _write_pages(tried)
        return tried
    except NotOnThisMachine as error:
        raise MachineLacks(str(error)) from error
    except (WorldFailed, ClusterError, SetupFailed, GeneratorStuck) as error:
        raise HarnessError(str(error)) from error
    except (CommandFailed, HarnessError, StoreError, KeyboardInterrupt):
        raise
    except Exception as error:
        logger.exception("%s", trial.command)
        raise HarnessError(f"the harness failed: {type(error).__name__}: {error}; run again: {trial.command}") from error
    finally:
        progress.done()


def _write_pages(tried: TrialResult) -> None:
    """Write the run's page and its store's index. Both can be written later as well, so an error here is only logged."""
    try:
        write_page(tried.directory)
        index_of(tried.directory.path.parent.parent).write()
    except Exception as error:
        logger.warning("the page of %s was not written (%s); try: kraftlab chaos report", tried.directory.name, error)


@cache
def index_of(store: Path) -> Index:
    """Return the index of a store: one for all runs of a command, so that no run is read twice."""
    return Index(store)


def _hold(tried: TrialResult, output: Output) -> None:
    """Keep the cluster running until Ctrl-C."""
    assert tried.close is not None, "the cluster is running"
    is_secure = tried.run.options.secure
    try:
        output.findings(
            [
                f"the cluster runs at {tried.endpoints} until Ctrl-C",
                f"break it: kraftlab cluster isolate leader --for 5s --data {tried.data}",
                *([f"log in to it: --command-config {Path(tried.data) / CLIENT_PROPERTIES}"] if is_secure else []),
            ]
        )
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    finally:
        tried.close()


def verdict_lines(tried: TrialResult) -> Iterator[str]:
    """Yield a run's verdicts as a table, the counts, and the paths."""
    rows = [("checker", "valid", "kind", "seconds", "reason")]
    rows += [
        (verdict.checker, word(verdict.valid), verdict.kind, f"{verdict.seconds:.2f}", verdict.reason)
        for verdict in tried.verdicts
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        yield "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
    counts, strikes = tried.run.history.counts(), [strike for strike in tried.run.strikes if not strike.error]
    record = tried.record
    yield ""
    yield f"{word(record.valid)}: {counts[OK]:,} ok, {counts[FAIL]:,} fail, {counts[INFO]:,} info; {len(strikes)} faults injected"
    yield f"run      {tried.directory.path}"
    yield f"page     {tried.directory.report / 'index.html'}"
    yield f"again    {record.command}"


def summary(tried: Sequence[TrialResult]) -> dict[str, object]:
    """Return the document of `--json`: for several runs the total counts and the worst run."""
    worst_ending = worst(ending(one.verdicts) for one in tried)
    shown = next(one for one in tried if ending(one.verdicts) is worst_ending)
    found: dict[str, Any] = {
        "valid": combined(verdict for one in tried for verdict in one.verdicts),
        "ops": {outcome: sum(one.run.history.counts()[outcome] for one in tried) for outcome in (OK, FAIL, INFO)},
        "lost": sum(verdict.lost for one in tried for verdict in one.verdicts),
        "run": str(shown.directory.path),
    }
    return found if len(tried) == 1 else {**found, "runs": [str(one.directory.path) for one in tried]}
