"""A test from beginning to end: a world plays a workload, checkers judge the run, and the store keeps it."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import msgspec

from .checkers.availability import Availability
from .checkers.judgement import judge
from .checkers.log_agreement import LogAgreement
from .checkers.node_crashes import LogScan, NodeCrashes
from .checkers.stats import Course
from .fault_plan import FaultPlan
from .faults.networks.back_ends import LINKS
from .store import RunDirectory, RunRecord
from .verdicts import Verdict
from .workload import OWN, Checker, Options, Run, Workload
from .workloads import workload_named
from .worlds.world import Assignment, Listener, PlayedRun, world_named


class Trial(NamedTuple):
    """A test to run. Without a `plan` faults are drawn for the `nemeses`. `leave_running`, `net` and `watched_by` as in
    `Assignment`.
    """

    workload: str
    world: str
    nemeses: tuple[str, ...]
    options: Options
    plan: FaultPlan | None = None
    properties: Mapping[str, str] = {}
    leave_running: bool = False
    net: str = LINKS
    watched_by: Callable[[Path], AbstractContextManager[object]] | None = None

    @property
    def command(self) -> str:
        """The command that runs the same again: the same faults at the same times in any world, the same events in a simulated
        one.
        """
        options = self.options
        words = ["kraftlab", "chaos", "test", "-w", self.workload, "--world", self.world, "--seed", options.seed]
        words += ["-n", ",".join(self.nemeses)] if self.nemeses else []
        words += ["--time", _number(options.time_s), "--rate", _number(options.rate), "--concurrency", str(options.concurrency)]
        words += ["--controllers", str(options.controllers), "--brokers", str(options.brokers)]
        words += ["--ops-per-key", str(options.ops_per_key)]
        words += ["--net", self.net] if self.net != LINKS else []
        words += ["--client", options.client] if options.client != OWN else []
        words += ["--secure"] if options.secure else []
        words += ["--trace"] if options.trace else []
        return shlex.join(words)


def _number(value: float) -> str:
    """Return all digits of a number: a run that is a little longer is a different run."""
    return repr(float(value)).removesuffix(".0")


class TrialResult(NamedTuple):
    """A finished test. If its cluster was left running, `close` stops it; `endpoints` and `data` as in `PlayedRun`."""

    directory: RunDirectory
    record: RunRecord
    run: Run
    close: Callable[[], None] | None
    endpoints: str
    data: str

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self.record.verdicts


def run_test(trial: Trial, store: str, listener: Listener) -> TrialResult:
    """Run a test. UnknownWorkload, StoreError, WorldFailed, and any error of a world that cannot start."""
    workload = workload_named(trial.workload)
    directory = RunDirectory.new(store, trial.workload, trial.options.seed)
    assignment = Assignment(
        workload,
        trial.options,
        trial.nemeses,
        trial.plan,
        directory,
        listener,
        trial.properties,
        trial.leave_running,
        trial.net,
        trial.watched_by,
    )
    played = world_named(trial.world)(assignment)
    try:
        record = record_of(trial, played)
        if trial.plan is not None:  # the seed alone does not give this plan
            record = msgspec.structs.replace(record, command=shlex.join(("kraftlab", "chaos", "replay", str(directory.path))))
        directory.write_plan(played.plan)
        directory.write_run(record, played.run)
        verdicts = judge(played.run, checkers_of(workload, trial.options, directory.nodes))
        record = msgspec.structs.replace(record, verdicts=tuple(verdicts))
        directory.write_record(record)
    except BaseException:
        if played.close is not None:
            played.close()
        raise
    return TrialResult(directory, record, played.run, played.close, played.endpoints, played.data)


def checkers_of(workload: Workload, options: Options, nodes: Path | None = None) -> Sequence[Checker]:
    """Return the workload's own checkers and those of every run. `nodes` is the directory of node logs, which are scanned if
    there are any.
    """
    own = tuple(workload.checkers(options))
    logs = (LogScan(nodes),) if nodes is not None and any(nodes.glob("*.log")) else ()
    names = {checker.name for checker in own}
    return (*own, *(checker for checker in (*EVERY_RUN, *logs) if checker.name not in names))


EVERY_RUN: tuple[Checker, ...] = (LogAgreement(), NodeCrashes(), Availability(), Course())


def record_of(trial: Trial, played: PlayedRun) -> RunRecord:
    """Return the record of a run that is not yet judged."""
    run = played.run
    return RunRecord(
        **run.facts(),
        workload=trial.workload,
        world=trial.world,
        nemeses=trial.nemeses,
        links=played.links,
        command=trial.command,
        python=platform.python_version(),
        kernel=f"{platform.system()} {platform.release()}",
        product=importlib.metadata.version("kraftlab"),
        properties=dict(played.properties),
        log_start=run.log.start if run.log else 0,
        log_end=run.log.end if run.log else 0,
    )
