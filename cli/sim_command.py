"""`kraftlab sim`: the consensus code in a virtual world with faults, alone or under controllers that are asked things."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from .output import DONE, FAILED, CommandFailed, Output, json_option

SHOWN_TAILS = 3
"""So many failed seeds are shown with their last steps, further ones with a line each."""
PROGRESS_S = 10.0
TERMINAL_PROGRESS_S = 0.2


@click.command(
    "sim",
    short_help="Play seeds of the deterministic simulator.",
    epilog="""\b
Examples:
  kraftlab sim --seeds 200
  kraftlab sim --seed 17 --trace        # one seed's transcript; the same seed gives the same trace, always
  kraftlab sim --seeds 50 --first 1000 --processes 2
  kraftlab sim --metadata --seeds 30    # controllers, with administrators and brokers that ask them""",
)
@click.option("--seeds", type=click.IntRange(min=1), metavar="N", help="How many seeds to play.")
@click.option("--first", type=click.IntRange(min=0), default=0, metavar="S", show_default=True, help="The first of them.")
@click.option("--seed", type=click.IntRange(min=0), metavar="S", help="Play this seed alone.")
@click.option("--trace", is_flag=True, help="With --seed: print every step.")
@click.option(
    "--processes", type=click.IntRange(min=1), default=1, metavar="N", show_default=True, help="Play in so many processes."
)
@click.option("--mutant", metavar="NAME", help="Plant a known bug first, to see that it is found.")
@click.option("--metadata", is_flag=True, help="Run real controllers on top and judge what they answer; the mutants are theirs.")
@json_option
def sim(
    seeds: int | None,
    first: int,
    seed: int | None,
    trace: bool,
    processes: int,
    mutant: str | None,
    metadata: bool,
    as_json: bool,
) -> int:
    """Play seeds of the deterministic simulator and check the invariants of Raft after every step.

    Exit code 1 if any is broken; what broke, and the command that replays it, is printed."""
    from kraftlab.quorum.simulation import runner

    play, mutants = _metadata_game() if metadata else _consensus_game()
    if (seeds is None) == (seed is None):
        raise CommandFailed("Give either --seeds N or --seed S\nSee: kraftlab sim --help")
    if trace and seed is None:
        raise CommandFailed("--trace is for one seed: give --seed S\nSee: kraftlab sim --help")
    if mutant is not None and mutant not in mutants:
        raise CommandFailed(f"there is no mutant {mutant}; there are {', '.join(mutants)}")
    out = Output(as_json)
    started = time.perf_counter()
    played: Iterator[Any]
    if seed is not None:
        played = iter([play(seed, mutant=mutant, write=_write_line if trace and not as_json else None)])
    else:
        assert seeds is not None, "one of the two is given"
        results_in_order = runner.run_many(range(first, first + seeds), processes=processes, mutant=mutant, play=play)
        played = _with_progress(results_in_order, seeds)
    results, failures = [], 0
    for result in played:
        results.append(result)
        if not result.ok:
            failures += 1
            out.lines(failure_lines(result, mutant, metadata=metadata, with_tail=failures <= SHOWN_TAILS and not trace))
    summary = runner.summarize(results, time.perf_counter() - started)
    if seed is not None:
        out.lines([f"seed {seed}: trace hash {results[0].trace_hash}, {results[0].steps} steps"])
    out.lines([runner.report(summary)])
    shown: list[dict[str, Any]] = [result._asdict() for result in results]
    out.result({"summary": summary._asdict(), "seeds": shown})
    return FAILED if summary.failed_seeds else DONE


def _consensus_game() -> tuple[Callable[..., Any], Iterable[str]]:
    """What plays a seed, and the names of the bugs that can be planted in it."""
    from kraftlab.quorum.simulation.mutants import MUTANTS
    from kraftlab.quorum.simulation.runner import run_seed

    return run_seed, tuple(MUTANTS)


def _metadata_game() -> tuple[Callable[..., Any], Iterable[str]]:
    from kraftlab.controller.simulation.mutants import MUTANTS
    from kraftlab.controller.simulation.runner import run_seed

    return run_seed, tuple(MUTANTS)


def _write_line(line: str) -> None:
    sys.stdout.write(line + "\n")


def _with_progress(results: Iterator[Any], seeds: int) -> Iterator[Any]:
    """The same results; how far they are goes to stderr: on a terminal one line that changes, else a line now and then."""
    is_terminal = sys.stderr.isatty()
    started = shown = time.perf_counter()
    steps = simulated_ms = failed = 0
    for number, result in enumerate(results, start=1):
        steps, simulated_ms, failed = steps + result.steps, simulated_ms + result.simulated_ms, failed + (not result.ok)
        if is_terminal and not result.ok:
            click.echo("\r\033[K", err=True, nl=False)
        yield result
        now = time.perf_counter()
        if number < seeds and now - shown >= (TERMINAL_PROGRESS_S if is_terminal else PROGRESS_S):
            shown, real_s = now, now - started
            line = (
                f"{number:,} of {seeds:,} seeds, {failed} failed, {steps / real_s:,.0f} steps/s, "
                f"{simulated_ms / 1000 / real_s:,.0f} simulated seconds per second"
            )
            click.echo(f"\r\033[K{line}" if is_terminal else line, err=True, nl=not is_terminal)
    if is_terminal:
        click.echo("\r\033[K", err=True, nl=False)


def failure_lines(result: Any, mutant: str | None, *, with_tail: bool, metadata: bool = False) -> list[str]:
    """What went wrong in a seed, perhaps its last steps, and how to see it all."""
    lines = [f"seed {result.seed} FAILED: {violation}" for violation in result.violations]
    if with_tail:
        lines += [f"    {line}" for line in result.tail]
    options = (" --metadata" if metadata else "") + (f" --mutant {mutant}" if mutant else "")
    return [*lines, f"replay: kraftlab sim --seed {result.seed}{options} --trace"]
