"""Many seeds of the simulated world, for their verdicts alone.

A simulated run follows from its seed, so nothing of a valid run needs to be kept: no history, no trace, no page. A run that is
not valid is played again to get them (`runs.run_test`). Both use the same checkers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kraftlab.checking.workers import done_by

from .checkers.judgement import judge
from .runs import Trial, checkers_of
from .scheduler import GeneratorStuck
from .verdicts import HARNESS, Ending, Verdict, ending, worst
from .workloads import workload_named
from .workloads.callers import SetupFailed
from .worlds.simulated import run_simulated
from .worlds.simulated_faults import NoSuchFault

logger = logging.getLogger("kraftlab.chaos")


class Seed(NamedTuple):
    """The result of one seed; it can be sent between processes. `verdicts` are those that are not valid. `failure` says why the
    seed could not be played, "" if it was. Only `processor_s` depends on this machine.
    """

    trial: Trial
    verdicts: tuple[Verdict, ...] = ()
    failure: str = ""
    counts: dict[str, int] = {}
    steps: int = 0
    simulated_ms: int = 0
    processor_s: float = 0.0
    trace_hash: str = ""
    history_hash: str = ""

    @property
    def ending(self) -> Ending:
        """The ending of this seed's run."""
        return HARNESS if self.failure else ending(self.verdicts)


class Sum(NamedTuple):
    """Totals over many seeds. Rates are per second of processor time."""

    seeds: int
    ending: Ending
    counts: dict[str, int]
    steps: int
    simulated_s: float
    processor_s: float

    @property
    def seeds_per_s(self) -> float:
        return self.seeds / max(self.processor_s, 1e-9)

    @property
    def simulated_s_per_s(self) -> float:
        return self.simulated_s / max(self.processor_s, 1e-9)


def play_seed(trial: Trial) -> Seed:
    """Play a trial in the simulated world and judge it. NoSuchFault."""
    begun_s = time.process_time()
    workload = workload_named(trial.workload)
    try:
        played = run_simulated(workload, trial.options.seed, trial.options, nemeses=trial.nemeses, is_checked=False)
    except (SetupFailed, GeneratorStuck) as error:
        return Seed(trial, failure=str(error), processor_s=time.process_time() - begun_s)
    except NoSuchFault:
        raise
    except Exception as error:
        logger.exception("%s", trial.command)
        failure = f"the harness failed: {type(error).__name__}: {error}"
        return Seed(trial, failure=failure, processor_s=time.process_time() - begun_s)
    verdicts = judge(played.run, checkers_of(workload, trial.options))
    return Seed(
        trial,
        tuple(verdict for verdict in verdicts if verdict.valid is not True),
        counts=played.run.history.counts(),
        steps=played.steps,
        simulated_ms=played.simulated_ms,
        processor_s=time.process_time() - begun_s,
        trace_hash=played.trace_hash,
        history_hash=played.history_hash,
    )


def play_seeds(trials: Sequence[Trial], jobs: int = 1) -> Iterator[Seed]:
    """Play the trials in this process or in several; yield the results in their order."""
    return done_by(jobs, play_seed, trials)


def sum_of(seeds: Sequence[Seed]) -> Sum:
    """Add up the results of many seeds."""
    counts: dict[str, int] = {}
    for seed in seeds:
        for outcome, count in seed.counts.items():
            counts[outcome] = counts.get(outcome, 0) + count
    return Sum(
        seeds=len(seeds),
        ending=worst(seed.ending for seed in seeds),
        counts=counts,
        steps=sum(seed.steps for seed in seeds),
        simulated_s=sum(seed.simulated_ms for seed in seeds) / 1_000,
        processor_s=sum(seed.processor_s for seed in seeds),
    )
