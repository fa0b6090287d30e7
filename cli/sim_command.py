"""`kraftlab sim`: the consensus code in a virtual world with faults."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from .output import DONE, FAILED, CommandFailed, Output, json_option


@click.command(
    "sim",
    short_help="Play seeds of the deterministic simulator.",
    epilog="""\b
Examples:
  kraftlab sim --seeds 200
  kraftlab sim --seed 17 --trace        # one seed's transcript; the same seed gives the same trace, always
  kraftlab sim --seeds 50 --first 1000 --processes 2""",
)
@click.option("--seeds", type=click.IntRange(min=1), metavar="N", help="How many seeds to play.")
@click.option("--first", type=click.IntRange(min=0), default=0, metavar="S", show_default=True, help="The first of them.")
@click.option("--seed", type=click.IntRange(min=0), metavar="S", help="Play this seed alone.")
@click.option("--trace", is_flag=True, help="With --seed: print every step.")
@click.option(
    "--processes", type=click.IntRange(min=1), default=1, metavar="N", show_default=True, help="Play in so many processes."
)
@click.option("--mutant", metavar="NAME", help="Plant a known bug first, to see that it is found.")
@json_option
def sim(seeds: int | None, first: int, seed: int | None, trace: bool, processes: int, mutant: str | None, as_json: bool) -> int:
    """Play seeds of the deterministic simulator and check the invariants of Raft after every step. Exit code 1 if any is
    broken."""
    from kraftlab.quorum.simulation import runner
    from kraftlab.quorum.simulation.mutants import MUTANTS

    if (seeds is None) == (seed is None):
        raise CommandFailed("Give either --seeds N or --seed S\nSee: kraftlab sim --help")
    if trace and seed is None:
        raise CommandFailed("--trace is for one seed: give --seed S\nSee: kraftlab sim --help")
    if mutant is not None and mutant not in MUTANTS:
        raise CommandFailed(f"there is no mutant {mutant}; there are {', '.join(MUTANTS)}")
    out = Output(as_json)
    started = time.perf_counter()
    if seed is not None:
        results = [runner.run_seed(seed, mutant=mutant, write=_write_line if trace and not as_json else None)]
    else:
        assert seeds is not None, "one of the two is given"
        results = list(runner.run_many(range(first, first + seeds), processes=processes, mutant=mutant))
    summary = runner.summarize(results, time.perf_counter() - started)
    for result in results:
        if not result.ok:
            out.lines(failure_lines(result))
    if seed is not None:
        out.lines([f"seed {seed}: trace hash {results[0].trace_hash}, {results[0].steps} steps"])
    out.lines([runner.report(summary)])
    shown: list[dict[str, Any]] = [result._asdict() for result in results]
    out.result({"summary": summary._asdict(), "seeds": shown})
    return FAILED if summary.failed_seeds else DONE


def _write_line(line: str) -> None:
    sys.stdout.write(line + "\n")


def failure_lines(result: Any) -> list[str]:
    """What went wrong in a seed, its last steps, and how to see it all."""
    lines = [f"seed {result.seed} FAILED: {violation}" for violation in result.violations]
    lines += [f"    {line}" for line in result.tail]
    return [*lines, f"replay: kraftlab sim --seed {result.seed} --trace"]
