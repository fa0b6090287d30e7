"""`kraftlab chaos test`: workloads on clusters under faults, and the verdicts of their checkers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from kraftlab.cli.completion.values import offer_words
from kraftlab.cli.output import Output
from kraftlab.cli.web.child import check_installed, pages_of

from ..command import FiniteRange, WrongUse
from ..faults.kinds import ALL, KINDS
from ..faults.networks.back_ends import LINKS
from ..runs import Trial, TrialResult
from ..workloads import NAMES
from .many_seeds import play_many
from .trial_options import new_trial, seeds_from, shared_options, split_names
from .trials import report_runs, run_in_order, run_trial, verdict_lines


@click.command(
    "test",
    short_help="Run workloads under faults and check their histories.",
    epilog=f"""\b
Examples:
  kraftlab chaos test -w registers -n kill,pause,partition --time 30
  kraftlab chaos test -w topics,list-append -n isolate-leader --seed 7 --json
  kraftlab chaos test -w registers -n partition,one-way,loss --net netns
  kraftlab chaos test -w registers -n kill,partition --time 120 --console      # watch it in the browser
  kraftlab chaos test -w records -n kill,isolate-leader --client kafka-python
  kraftlab chaos test -w registers -n kill,partition --secure
  kraftlab chaos test -w registers -n kill,pause --trace && kraftlab trace check runs/latest
  kraftlab chaos test -w exactly-once -n all --world simulated --seeds 200
  kraftlab chaos test -w admin -n all --world simulated --time 5 --seeds 200
  kraftlab chaos test -w registers -n kill,partition --world shell --time 10 --seed 7

\b
Workloads: {", ".join(NAMES)}
Faults: {", ".join(KINDS)}, all

\b
Ctrl-C heals and stops the cluster, and keeps what was recorded so far.""",
)
@click.option(
    "-w",
    "--workload",
    "names",
    metavar="NAME[,…]",
    required=True,
    callback=split_names,
    shell_complete=offer_words(lambda context: NAMES),
    help="Workloads to run; see below.",
)
@click.option(
    "-n",
    "--nemesis",
    "nemeses",
    metavar="NAME[,…]",
    default="",
    callback=split_names,
    shell_complete=offer_words(lambda context: (*KINDS, ALL)),
    help="Faults to inject; see below (default: none).",
)
@click.option(
    "--time",
    "time_s",
    type=FiniteRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for which clients run and faults strike.",
)
@click.option(
    "--test-count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of runs of each workload, one after the other, each with its own seed.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --world simulated: number of seeds to play. They get one verdict, and only runs that are not valid are kept.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --world simulated or shell: number of processes (default: 1; with --seeds one per core).",
)
@click.option("--leave-running", is_flag=True, help="Keep the cluster running after the run, until Ctrl-C.")
@click.option(
    "--console", "with_console", is_flag=True, help="Serve pages that show the run's cluster live, with the faults that strike."
)
@click.option(
    *("--console-port", "port"),
    type=click.IntRange(0, 65535),
    default=8090,
    show_default=True,
    metavar="PORT",
    help="Port of the pages.",
)
@shared_options
def test(
    names: tuple[str, ...],
    nemeses: tuple[str, ...],
    time_s: float,
    test_count: int,
    seeds: int | None,
    jobs: int | None,
    leave_running: bool,
    with_console: bool,
    port: int,
    as_json: bool,
    **shared: Any,
) -> None:
    """Run each workload on a new cluster: run clients and faults for --time, heal everything, let clients read the final state,
    and check the history against the committed log.

    The exit code is that of the worst verdict.
    """
    if leave_running and (len(names) > 1 or test_count > 1 or shared["world"] != "real"):
        raise WrongUse("--leave-running is for one run on real processes; give one workload and neither --test-count nor --world")
    if with_console and (shared["world"] != "real" or shared["net"] != LINKS):
        raise WrongUse(
            "--console shows runs on real processes in this machine's network; leave out --world and --net, or look at a "
            "simulated run with: kraftlab console, page /sim"
        )
    if with_console:
        check_installed()
    if (jobs or 1) > 1 and shared["world"] == "real":
        raise WrongUse("--jobs is for --world simulated and --world shell; add one of them, or leave out --jobs")
    if seeds is not None and (shared["world"] != "simulated" or test_count > 1):
        raise WrongUse("--seeds is for --world simulated and excludes --test-count, which keeps every run")
    if not names:
        raise WrongUse(f"-w names no workload; known: {', '.join(NAMES)}")
    chosen = seeds_from(shared.pop("seed"), seeds or test_count)
    store = shared.pop("store")
    trials = [new_trial(name, nemeses, seed, time_s, leave_running=leave_running, **shared) for seed in chosen for name in names]
    output = Output(as_json)
    if with_console:
        watch = partial(_pages, port=port, allow_chaos=leave_running, output=output)
        trials = [trial._replace(watched_by=watch) for trial in trials]
    if seeds is not None:
        keep = partial(_kept, store=store, output=output)
        raise SystemExit(play_many(trials, jobs or os.cpu_count() or 1, output, keep))
    raise SystemExit(report_runs(run_in_order(trials, store, output, jobs or 1), output))


@contextmanager
def _pages(directory: Path, port: int, allow_chaos: bool, output: Output) -> Iterator[None]:
    """Serve the pages of a run's cluster inside the `with` block."""
    with pages_of(directory, port, allow_chaos=allow_chaos) as url:
        output.findings([f"console: {url}quorum"])
        yield


def _kept(trial: Trial, store: str, output: Output) -> TrialResult:
    """Play one of many seeds again and keep the run. HarnessError."""
    tried = run_trial(trial, store, output, is_shown=False)
    output.lines(verdict_lines(tried))
    return tried
