"""`kraftlab sim`: the consensus code in a simulated world with faults."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kraftlab.checking.workers import ends_with_its_workers
from kraftlab.common.exit_codes import DONE, FAILED

from ..completion.values import offer_words
from ..output import CommandFailed, Output, WrongUse, json_option, unknown_name
from ..progress import progress
from . import text as sim_text

if TYPE_CHECKING:
    from kraftlab.simulation.consensus.plan import Plan
    from kraftlab.simulation.consensus.runner import SeedResult

SHOWN_TAILS = 3
"""Number of failed seeds that are shown with their last steps. Further seeds have a line each."""
SEEDS_FOR_SEVERAL_JOBS = 40
SEE = "See: kraftlab sim --help"


def _faults(context: click.Context) -> Iterable[str]:
    from kraftlab.simulation.consensus.faults import FAULTS

    return (*FAULTS, "none")


def _mutants(context: click.Context) -> Iterable[str]:
    from kraftlab.simulation.consensus.mutants import MUTANTS

    return MUTANTS


class Choice(NamedTuple):
    """Faults and bug of the command line."""

    faults: tuple[str, ...] | None
    mutant: str | None


@click.command(
    "sim",
    epilog="""\b
Examples:
  kraftlab sim --seeds 200
  kraftlab sim --seeds 10000 --start 5000 --jobs 2 --coverage
  kraftlab sim --seed 17 --trace        # one seed's transcript; the same seed gives the same trace, always
  kraftlab sim --seed 17 --shrink       # a failing seed: the fewest faults that still fail, as a plan in a file
  kraftlab sim --plan seed-17.json      # play such a plan again
  kraftlab sim --seeds 9 --mutant vote-forgotten""",
)
@click.option("--seeds", type=click.IntRange(min=1), metavar="N", help="Number of seeds to play.")
@click.option("--start", type=click.IntRange(min=0), default=0, metavar="S", show_default=True, help="The first seed.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Number of processes (default: one per core).")
@click.option("--seed", type=click.IntRange(min=0), metavar="S", help="Play only this seed.")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), metavar="FILE", help="Play the fault plan in this file.")
@click.option(
    "--faults",
    metavar="NAME[,…]",
    shell_complete=offer_words(_faults),
    help="Inject only these faults, for example kill,partition; 'none' for no faults.",
)
@click.option(
    "--mutant",
    metavar="NAME",
    shell_complete=offer_words(_mutants),
    help="Plant this known bug, which the seeds should find; see `kraftlab mutants --list`.",
)
@click.option(
    "--coverage", "with_coverage", is_flag=True, help="Show which transitions were covered, and which faults in which states."
)
@click.option("--trace", is_flag=True, help="With --seed or --plan: print every step, below a line that names the columns.")
@click.option(
    "--ndjson", type=click.Path(path_type=Path), metavar="FILE", help="With --seed or --plan: write the trace to FILE as NDJSON."
)
@click.option("--shrink", "shrinks", is_flag=True, help="With --seed or --plan: find the fewest faults that make it fail.")
@click.option("--write-plan", type=click.Path(path_type=Path), metavar="FILE", help="With --shrink: write the plan to FILE.")
@click.option(
    "--write-test", type=click.Path(path_type=Path), metavar="FILE", help="With --shrink: write a pytest module to FILE."
)
@json_option
def sim(
    seeds: int | None,
    start: int,
    jobs: int | None,
    seed: int | None,
    plan_file: Path | None,
    faults: str | None,
    mutant: str | None,
    with_coverage: bool,
    trace: bool,
    ndjson: Path | None,
    shrinks: bool,
    write_plan: Path | None,
    write_test: Path | None,
    as_json: bool,
) -> int:
    """Play seeds of the deterministic simulator and check Raft's invariants after every step. Give --seeds, --seed or --plan.

    Exit code 1 if an invariant is violated. The violation and the command that replays it are printed."""
    if sum(given is not None for given in (seeds, seed, plan_file)) != 1:
        raise WrongUse(f"Error: give one of --seeds N, --seed S and --plan FILE\n{SEE}")
    single = {"--trace": trace, "--ndjson": ndjson, "--shrink": shrinks, "--write-plan": write_plan, "--write-test": write_test}
    if seeds is not None and any(single.values()):
        wrong = next(name for name, given in single.items() if given)
        raise WrongUse(f"Error: {wrong} is for one run: give --seed S or --plan FILE\n{SEE}")
    if (write_plan or write_test) and not shrinks:
        raise WrongUse(f"Error: --write-plan and --write-test need --shrink\n{SEE}")
    out = Output(as_json)
    if plan_file is not None:
        plan, replay = _load(plan_file), f"kraftlab sim --plan {plan_file}"
        return _play_plan(plan, replay, out, with_coverage, trace, ndjson, shrinks, write_plan, write_test)
    from kraftlab.simulation.consensus.runner import run_seed

    choice = _choose(faults, mutant)
    if seeds is not None:
        return _play_many(choice, range(start, start + seeds), jobs, with_coverage, out)
    assert seed is not None, "one of the three is given"
    with _trace(ndjson, trace and not as_json) as arguments:
        result = run_seed(seed, **choice._asdict(), **arguments)
    replay = sim_text.replay_command(result, chosen_faults=choice.faults)
    return _report_one(result, replay, out, with_coverage, trace, shrinks, write_plan, write_test)


def _choose(faults: str | None, mutant: str | None) -> Choice:
    from kraftlab.simulation.consensus.faults import FAULTS
    from kraftlab.simulation.consensus.mutants import MUTANTS

    if mutant is not None and mutant not in MUTANTS:
        raise WrongUse("Error: " + unknown_name("mutant", mutant, MUTANTS))
    if faults is None:
        return Choice(None, mutant)
    names = () if faults == "none" else tuple(name.strip() for name in faults.split(","))
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise WrongUse(f"Error: unknown fault {', '.join(unknown)}; known: {', '.join(FAULTS)}, or none")
    return Choice(names, mutant)


# Many seeds


def _play_many(choice: Choice, seeds: range, jobs: int | None, with_coverage: bool, out: Output) -> int:
    from kraftlab.simulation.consensus import runner

    processes = jobs or ((os.cpu_count() or 1) if len(seeds) >= SEEDS_FOR_SEVERAL_JOBS else 1)
    tally, started = runner.Tally(), time.perf_counter()
    results = runner.run_many(seeds, processes=processes, **choice._asdict())

    def describe(_newest: SeedResult) -> str:
        return (f"{len(tally.failures)} FAILED, " if tally.failures else "") + runner.rates(tally)

    with ends_with_its_workers():
        for result in progress(results, len(seeds), describe):
            tally.add(result)
            tally.real_s = time.perf_counter() - started
            if not result.ok:
                replay = sim_text.replay_command(result, chosen_faults=choice.faults)
                out.findings(sim_text.failure_lines(result, replay, with_tail=len(tally.failures) <= SHOWN_TAILS))
    if with_coverage:
        out.lines(sim_text.coverage_lines(tally.coverage))
    out.lines([runner.report(tally)])
    failures = [
        sim_text.failure_document(result, sim_text.replay_command(result, chosen_faults=choice.faults))
        for result in tally.failures
    ]
    out.result(
        {
            "seeds": tally.seeds,
            "violations": failures,
            "core_steps_per_s": round(tally.core_steps_per_s),
            "simulated_per_real": round(tally.simulated_s_per_s, 1),
            "coverage": sim_text.coverage_document(tally.coverage),
            "steps": tally.steps,
            "real_s": round(tally.real_s, 3),
            "simulated_s": round(tally.simulated_s, 3),
            "excused": tally.excused,
        }
    )
    return FAILED if tally.failures else DONE


# One seed or plan


@contextmanager
def _trace(ndjson: Path | None, to_stdout: bool) -> Iterator[dict[str, Any]]:
    """Yield the arguments of run_seed and run_plan for the lines of one run: to stdout, to an NDJSON file, both or nowhere."""
    arguments: dict[str, Any] = {"write": _write_line if to_stdout else None}
    if to_stdout:
        _write_line(sim_text.TRACE_COLUMNS)
    if ndjson is None:
        yield arguments
        return
    with ndjson.open("w", encoding="utf-8") as file:
        yield arguments | {"trace": file.write}


def _write_line(line: str) -> None:
    sys.stdout.write(line + "\n")


def _load(path: Path) -> Plan:
    from kraftlab.simulation.consensus.plan import PlanError, decode

    try:
        return decode(path.read_bytes(), str(path))
    except PlanError as error:
        raise CommandFailed(f"Error: {error}") from error


def _play_plan(plan: Plan, replay: str, out: Output, with_coverage: bool, trace: bool, ndjson: Path | None, *rest: Any) -> int:
    from kraftlab.simulation.consensus.mutants import MUTANTS
    from kraftlab.simulation.consensus.runner import run_plan

    if plan.mutant is not None and plan.mutant not in MUTANTS:
        raise CommandFailed(f"Error in the plan: {unknown_name('mutant', plan.mutant, MUTANTS)}")
    with _trace(ndjson, trace and not out.as_json) as arguments:
        result = run_plan(plan, **arguments)
    return _report_one(result, replay, out, with_coverage, trace, *rest)


def _report_one(
    result: SeedResult,
    replay: str,
    out: Output,
    with_coverage: bool,
    trace: bool,
    shrinks: bool,
    write_plan: Path | None,
    write_test: Path | None,
) -> int:
    if not result.ok:
        out.lines(sim_text.failure_lines(result, replay, with_tail=not trace))
    document = sim_text.result_document(result)
    if shrinks:
        if result.ok:
            raise CommandFailed(f"Error: seed {result.seed} violates no invariant: there is nothing to shrink")
        document["shrunk"] = _shrink(result, out, write_plan, write_test)
    if with_coverage:
        out.lines(sim_text.coverage_lines(result.coverage))
    verdict = f"FAILED: {result.rule}" if not result.ok else "all invariants held"
    excuse = f", excused by {result.excuse}" if result.excuse else ""
    out.lines(
        [
            f"seed {result.seed}: {verdict}{excuse}",
            f"trace hash {result.trace_hash}, {result.steps:,} steps, {result.simulated_ms / 1000:.1f} simulated seconds, "
            f"{result.voters} voters, {result.observers} observers, {len(result.plan.strikes)} strikes",
        ]
    )
    out.result(document)
    return DONE if result.ok else FAILED


def _shrink(result: SeedResult, out: Output, write_plan: Path | None, write_test: Path | None) -> dict[str, Any]:
    """Shrink a failing plan, write the files, print the result, and return its JSON document."""
    from kraftlab.simulation.consensus import plan as plans
    from kraftlab.simulation.consensus.runner import run_plan
    from kraftlab.simulation.consensus.shrink import regression_test, shrink

    shrunk = shrink(result, partial(run_plan, with_tail=False), lambda line: click.echo(line, err=True))
    path = write_plan or Path(f"seed-{result.seed}.json")
    path.write_text(plans.encode(shrunk.plan).decode(), encoding="utf-8")
    out.lines(
        [
            f"shrunk from {len(result.plan.strikes)} strikes to {len(shrunk.plan.strikes)} in {shrunk.runs} runs:",
            *(f"    {strike.time_us / 1_000_000:9.6f} {strike.fault} #{strike.number}" for strike in shrunk.plan.strikes),
            f"    {shrunk.result.violations[0]}",
            f"written to {path}; replay: kraftlab sim --plan {path} --trace",
        ]
    )
    if write_test is not None:
        write_test.write_text(regression_test(shrunk.plan, shrunk.result.violations[0]), encoding="utf-8")
        out.lines([f"a regression test is in {write_test}"])
    return {
        "strikes": [[strike.time_us, strike.fault, strike.number] for strike in shrunk.plan.strikes],
        "runs": shrunk.runs,
        "violation": shrunk.result.violations[0],
        "plan": str(path),
        "replay": f"kraftlab sim --plan {path}",
    }
