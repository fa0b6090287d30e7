"""`kraftlab chaos replay`: run a stored run again with the same faults."""

from __future__ import annotations

import click

from kraftlab.cli.output import Output, json_option

from ..command import WrongUse
from ..fault_plan import FaultPlan
from ..faults.kinds import KINDS
from ..faults.networks.back_ends import LINKS, NETS
from ..runs import Trial
from ..store import DEFAULT_STORE, RunDirectory, RunRecord
from ..workloads import UnknownWorkload, workload_named
from ..worlds.world import WORLDS
from .trials import report_runs, run_in_order

_OF_ANOTHER = "the run comes from another version"


def trial_of(record: RunRecord, plan: FaultPlan) -> Trial:
    """Return the trial of a stored run with that plan. WrongUse if it cannot run here."""
    if record.world not in WORLDS:
        raise WrongUse(f"the run was in the world {record.world!r}; this version has {', '.join(WORLDS)}")
    try:
        workload_named(record.workload)
    except UnknownWorkload as error:
        raise WrongUse(f"{error}; the run comes from a pytest test or from another version") from None
    unknown = sorted({action.kind for action in plan.actions}.difference(KINDS)) if record.world == "real" else ()
    if unknown:
        raise WrongUse(f"unknown nemesis {', '.join(unknown)}; known: {', '.join(KINDS)}; {_OF_ANOTHER}")
    net = record.links if record.links in NETS else LINKS
    return Trial(record.workload, record.world, record.nemeses, record.options, plan, record.properties, net=net)


@click.command(
    short_help="Run a stored run again, with the same faults at the same times.",
    epilog="""\b
Examples:
  kraftlab chaos replay latest
  kraftlab chaos replay registers/20260101T120000-7 --times 5""",
)
@click.argument("run", metavar="RUN")
@click.option("--times", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Number of runs.")
@click.option(
    "--store",
    type=click.Path(),
    metavar="DIR",
    default=DEFAULT_STORE,
    show_default=True,
    help="Directory in which runs are stored.",
)
@json_option
def replay(run: str, times: int, store: str, as_json: bool) -> None:
    """Repeat RUN (a path, or a name in the store such as "latest") with its workload, options, seed and fault plan.

    In the worlds simulated and shell the result is identical. On real processes the same faults strike at the same times, but the
    result may differ: use --times. The exit code is that of the worst run.
    """
    directory = RunDirectory.find(run, store)
    trial = trial_of(directory.record(), directory.plan())
    output = Output(as_json)
    raise SystemExit(report_runs(run_in_order([trial] * times, store, output), output))
