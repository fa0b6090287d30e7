"""`kraftlab chaos test-all`: a matrix of workloads and faults, one line per run."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click
import msgspec

from kraftlab.cli.output import Output

from ..command import FiniteRange, HarnessError
from ..faults.capabilities import available_kinds
from ..faults.kinds import ALL, KINDS
from ..faults.networks.back_ends import LINKS, NETS
from ..faults.networks.network import own_network
from ..history import FAIL, INFO, OK
from ..runs import TrialResult
from ..store import StoreError
from ..verdicts import HARNESS, NOT_KNOWN, UNKNOWN, Ending, Validity, ending, word, worst
from ..workload import KAFKA_PYTHON, OWN
from ..workloads import KAFKA_CLIENTS, KAFKA_ONLY, NAMES, workload_named
from ..worlds.world import kinds_of, left_out
from .trial_options import new_trial, seeds_from, shared_options
from .trials import run_trial


class Cell(NamedTuple):
    """One run of a matrix."""

    workload: str
    nemeses: tuple[str, ...]
    time_s: float


_USUAL = ("registers", "topics", "exactly-once", "list-append")


_SHORT_S, _LONG_S = 30.0, 60.0


MATRICES: dict[str, Callable[[], list[Cell]]] = {
    "ci": lambda: [
        Cell(name, nemeses, _SHORT_S)
        for name in _USUAL
        for nemeses in (("kill",), ("pause",), ("partition",), ("isolate-leader", "one-way"), ("kill", "pause", "partition"))
    ],
    "nightly": lambda: [
        Cell(name, nemeses, _LONG_S)
        for name in NAMES
        for nemeses in (*((kind,) for kind in KINDS), ("kill", "pause", "partition"), ("all",))
    ],
}
"""Name → the runs. Workloads that do not run in the chosen world, or with the chosen client, are left out."""


@click.command(
    "test-all",
    short_help="Run many workloads with many faults.",
    epilog="""\b
Examples:
  kraftlab chaos test-all --matrix ci
  kraftlab chaos test-all --matrix ci --time 10 --store /tmp/runs
  kraftlab chaos test-all --matrix nightly --time 20 --within 3600
  kraftlab chaos test-all --matrix nightly --time 20 --within 300 --client kafka-python""",
)
@click.option("--matrix", type=click.Choice(tuple(MATRICES)), default="ci", show_default=True, help="Set of runs.")
@click.option(
    "--time", "time_s", type=FiniteRange(min=0.1), metavar="SECONDS", help="Duration of each run (default: as in the matrix)."
)
@click.option(
    "--within",
    "within_s",
    type=FiniteRange(min=0),
    metavar="SECONDS",
    help="Start no new run after this time. Runs are shuffled by the seed, so those that started are a fair sample.",
)
@shared_options
def test_all(matrix: str, time_s: float | None, within_s: float | None, as_json: bool, **shared: Any) -> None:
    """Run every workload of the matrix with each of its sets of faults. Print one line per run, and a summary.

    A run that the harness cannot execute does not stop the others. The exit code is that of the worst run, or 2 (unknown) if
    no run was started.
    """
    (seed,) = seeds_from(shared.pop("seed"), 1)
    deadline = None if within_s is None else time.monotonic() + within_s
    store = shared.pop("store")
    output = Output(as_json)
    net, is_real, is_secure = shared["net"], shared["world"] == "real", shared["secure"]
    cells = [cell for cell in MATRICES[matrix]() if _plays(cell, shared["world"], shared["client"], net, is_secure)]
    for kind, reason in left_out(net, secure=is_secure).items():
        output.findings([f"left out: {kind} is {reason}"])
    if is_real and NETS[net].has_namespaces:
        own_network()  # must come before threads start
    possible = {*(available_kinds(net) if is_real else kinds_of(shared["world"])), ALL}
    missing = [kind for kind in KINDS if any(kind in cell.nemeses for cell in cells) and kind not in possible]
    if missing:
        by = f" with --net {net}" if net != LINKS else ""
        who = f"this machine does not support it{by}" if is_real else f"--world {shared['world']} does not support it"
        output.findings([f"left out, since {who}: {', '.join(missing)}" + ("; see kraftlab chaos doctor" if is_real else "")])
    cells = [cell for cell in cells if possible.issuperset(cell.nemeses)]
    if deadline is not None:
        random.Random(f"{seed}/order").shuffle(cells)
    trials = [new_trial(each.workload, each.nemeses, _seed_of(each, seed), time_s or each.time_s, **shared) for each in cells]
    rows: list[Row] = []
    endings: list[Ending] = []
    for trial in trials:
        if deadline is not None and time.monotonic() > deadline:
            break
        try:
            tried = run_trial(trial, store, output)
        except (HarnessError, StoreError) as error:
            if isinstance(error, StoreError) and not rows:
                raise  # no run can be kept there
            rows.append(Row(trial.workload, ",".join(trial.nemeses), UNKNOWN, {}, 0, "", str(error)))
            endings.append(HARNESS)
        except KeyboardInterrupt:
            endings.append(NOT_KNOWN)
            break
        else:
            rows.append(row_of(tried))
            endings.append(ending(tried.verdicts))
        output.findings([rows[-1].line()])
        if endings[-1] is not HARNESS and tried.run.cut_short:
            break
    output.findings([sum_line(rows, len(trials))])
    output.result([msgspec.to_builtins(row._asdict()) for row in rows])
    raise SystemExit(worst(endings or [NOT_KNOWN]).exit_code)


def _plays(cell: Cell, world: str, client: str, net: str, is_secure: bool) -> bool:
    client = KAFKA_PYTHON if cell.workload in KAFKA_ONLY else client
    is_known = client == OWN or cell.workload in KAFKA_CLIENTS
    unwanted = left_out(net, client=client, secure=is_secure)
    return is_known and world not in workload_named(cell.workload).not_in and unwanted.keys().isdisjoint(cell.nemeses)


def _seed_of(cell: Cell, seed: str) -> str:
    """Return the seed of one run: with one seed for all, a kind of fault would strike the same targets in every run."""
    return str(random.Random(f"{seed}/{cell.workload}/{','.join(cell.nemeses)}").randrange(1 << 32))


class Row(NamedTuple):
    """One run in a table of many."""

    workload: str
    nemeses: str
    valid: Validity
    ops: dict[str, int]
    lost: int
    run: str
    reason: str

    def line(self) -> str:
        counts = " ".join(f"{outcome} {self.ops.get(outcome, 0)}" for outcome in (OK, FAIL, INFO))
        found = f"  {self.reason}" if self.reason else ""
        return f"{word(self.valid):<8} {self.workload:<14} {self.nemeses or 'no faults':<24} {counts:<28} {self.run}{found}"


def sum_line(rows: Sequence[Row], planned: int) -> str:
    """Return the line of totals."""
    valid = Counter(word(row.valid) for row in rows)
    ops = {outcome: sum(row.ops.get(outcome, 0) for row in rows) for outcome in (OK, FAIL, INFO)}
    counted = ", ".join(f"{count} {name}" for name, count in valid.most_common())
    totals = " ".join(f"{outcome} {count:,}" for outcome, count in ops.items())
    left = f", {planned - len(rows)} not begun" if len(rows) < planned else ""
    lost = sum(row.lost for row in rows)
    return f"{len(rows)} runs: {counted or 'none'}{left}; operations: {totals}; acknowledged and lost: {lost}"


def row_of(tried: TrialResult) -> Row:
    reasons = [verdict.reason for verdict in tried.verdicts if verdict.valid is not True]
    return Row(
        tried.record.workload,
        ",".join(tried.record.nemeses),
        tried.record.valid,
        tried.run.history.counts(),
        sum(verdict.lost for verdict in tried.verdicts),
        str(tried.directory.path),
        reasons[0] if reasons else "",
    )
