"""Many seeds of the simulated world, for their verdicts alone.

Theory of operation. What a simulated run does follows from its seed, so nothing needs to be kept of one in which all is well: no
history, no trace, no page. One that is not valid is played again for those (`runs.run_test`). The checkers are the same in both.
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
from .verdicts import HARNESS, Verdict, exit_code, worst
from .workloads import workload_named
from .workloads.admin import SetupFailed
from .worlds.simulated import run_simulated
from .worlds.simulated_faults import NoSuchFault

logger = logging.getLogger("kraftlab.chaos")


class Seed(NamedTuple):
    """What came of one. It travels between processes. `verdicts` are those that are not good; `failure` says why it could not be
    played, "" if it was. Times of this machine's are in `processor_s` alone.
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
    def code(self) -> int:
        """The exit code that it asks for."""
        return HARNESS if self.failure else exit_code(self.verdicts)


class Sum(NamedTuple):
    """Many seeds in numbers; rates are per second of one core's processor time."""

    seeds: int
    exit_code: int
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
    """Plays a trial of the simulated world and judges it. NoSuchFault."""
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
    """Plays them in this process or in so many; what came of them comes in their order."""
    return done_by(jobs, play_seed, trials)


def sum_of(seeds: Sequence[Seed]) -> Sum:
    """All of them together."""
    counts: dict[str, int] = {}
    for seed in seeds:
        for outcome, count in seed.counts.items():
            counts[outcome] = counts.get(outcome, 0) + count
    return Sum(
        seeds=len(seeds),
        exit_code=worst(seed.code for seed in seeds),
        counts=counts,
        steps=sum(seed.steps for seed in seeds),
        simulated_s=sum(seed.simulated_ms for seed in seeds) / 1_000,
        processor_s=sum(seed.processor_s for seed in seeds),
    )
