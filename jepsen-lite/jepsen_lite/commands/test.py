"""`kraftlab chaos test` and `kraftlab chaos test-all`: workloads on clusters while faults strike, and what checkers say of it."""

from __future__ import annotations

import logging
import os
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from kraftlab.checking.workers import done_by
from kraftlab.cli.completion.values import offer_words
from kraftlab.cli.output import CommandFailed, Output, json_option
from kraftlab.lab import ClusterError

from ..command import FiniteRange, HarnessError, WrongUse
from ..faults.capabilities import available_kinds, refusal
from ..faults.kinds import ALL, KINDS
from ..faults.networks.back_ends import LINKS, NETS
from ..faults.networks.network import own_network
from ..history import FAIL, INFO, OK
from ..progress import Progress
from ..report.index import Index
from ..report.page import write_page
from ..runs import Trial, Tried, run_test
from ..scheduler import GeneratorStuck
from ..store import DEFAULT_STORE, StoreError
from ..verdicts import HARNESS, NOT_KNOWN, UNKNOWN, VALID, Validity, exit_code, worst
from ..workload import Options
from ..workloads import NAMES, UnknownWorkload, workload_named
from ..workloads.admin import SetupFailed
from ..worlds.world import WORLDS, WorldFailed, kinds_of
from .many_seeds import play_many

logger = logging.getLogger("kraftlab.chaos")


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
"""Name → the runs; a workload that does not run in the world that is asked for is left out."""


class NumberOfWorkers(click.ParamType):  # type: ignore[type-arg]
    """A number, or a number of times the nodes: 10, 2n."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        digits = text.removesuffix("n") or "1"
        if not digits.isdecimal() or int(digits) < 1:
            self.fail(f"{value} is no number of workers; give one such as 10, or 2n for two per node", param, ctx)
        return text


def workers(text: str, nodes: int) -> int:
    """How many workers "10" or "2n" is in a cluster of so many nodes."""
    return int(text.removesuffix("n") or "1") * (nodes if text.endswith("n") else 1)


def _names(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that both commands have."""
    for option in reversed(
        (
            click.option(
                "--controllers", type=click.IntRange(min=1), metavar="N", help="Default: 3, or as many as the workload wants."
            ),
            click.option("--brokers", type=click.IntRange(min=1), default=3, show_default=True, metavar="N"),
            click.option(
                "--world",
                type=click.Choice(tuple(WORLDS)),
                default="real",
                show_default=True,
                help="Processes of this machine, their code in one process on a mock clock (shell), or the simulator.",
            ),
            click.option(
                "--net",
                type=click.Choice(tuple(NETS)),
                default=LINKS,
                show_default=True,
                help="What links between processes are broken by.",
            ),
            click.option(
                "--rate",
                type=FiniteRange(min=0),
                default=200.0,
                show_default=True,
                metavar="N",
                help="Operations per second over all workers; 0: as fast as they go.",
            ),
            click.option(
                "--concurrency",
                type=NumberOfWorkers(),
                default="2n",
                show_default=True,
                help="Workers: a number, or 2n for two per node.",
            ),
            click.option(
                "--ops-per-key",
                type=click.IntRange(min=1),
                default=120,
                show_default=True,
                metavar="N",
                help="About how many operations a key gets before the next one's turn.",
            ),
            click.option("--seed", metavar="S", help="What all chance follows from; by chance if not given."),
            click.option(
                "--store", type=click.Path(), metavar="DIR", default=DEFAULT_STORE, show_default=True, help="Where runs are kept."
            ),
            json_option,
        )
    ):
        command = option(command)
    return command


@click.command(
    "test",
    short_help="Run workloads while faults strike, and check what they saw.",
    epilog=f"""\b
Examples:
  kraftlab chaos test -w registers -n kill,pause,partition --time 30
  kraftlab chaos test -w topics,list-append -n isolate-leader --seed 7 --json
  kraftlab chaos test -w registers -n partition,one-way,loss --net netns
  kraftlab chaos test -w exactly-once -n all --world simulated --seeds 200
  kraftlab chaos test -w registers -n kill,partition --world shell --time 10 --seed 7

\b
Workloads: {", ".join(NAMES)}
Faults: {", ".join(KINDS)}, all

\b
Ctrl-C heals and stops the cluster, and keeps the run as far as it came.""",
)
@click.option(
    "-w",
    "--workload",
    "names",
    metavar="NAME[,…]",
    required=True,
    callback=_names,
    shell_complete=offer_words(lambda context: NAMES),
    help="What clients do.",
)
@click.option(
    "-n",
    "--nemesis",
    "nemeses",
    metavar="NAME[,…]",
    default="",
    callback=_names,
    shell_complete=offer_words(lambda context: (*KINDS, ALL)),
    help="What strikes; default: nothing.",
)
@click.option(
    "--time",
    "time_s",
    type=FiniteRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long clients and faults go on.",
)
@click.option(
    "--test-count", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Seeds, one after the other."
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="N",
    help="In the simulator: so many seeds, with one verdict for all; only runs that are not valid are kept.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Play runs that have no processes of their own, simulated or shell, in so many; default: 1, with --seeds one per core.",
)
@click.option("--leave-running", is_flag=True, help="Keep the cluster of the run until Ctrl-C.")
@_shared
def test(
    names: tuple[str, ...],
    nemeses: tuple[str, ...],
    time_s: float,
    test_count: int,
    seeds: int | None,
    jobs: int | None,
    leave_running: bool,
    as_json: bool,
    **shared: Any,
) -> None:
    """Runs each workload on a new cluster: clients and faults for --time, then all is healed, clients look once more, and
    checkers judge the history against the committed log.

    The exit code is the worst verdict's.
    """
    if leave_running and (len(names) > 1 or test_count > 1 or shared["world"] != "real"):
        raise WrongUse(
            "--leave-running is for one run on real processes; give one workload, and neither --test-count nor --world"
        )
    if (jobs or 1) > 1 and shared["world"] == "real":
        raise WrongUse(
            "--jobs is for runs that need nothing but a processor; add --world simulated or --world shell, or leave it out"
        )
    if seeds is not None and (shared["world"] != "simulated" or test_count > 1):
        raise WrongUse("--seeds is for --world simulated and stands instead of --test-count, which keeps every run")
    if not names:
        raise WrongUse(f"-w names no workload; there are: {', '.join(NAMES)}")
    chosen = _seeds(shared.pop("seed"), seeds or test_count)
    store = shared.pop("store")
    trials = [_trial(name, nemeses, seed, time_s, leave_running=leave_running, **shared) for seed in chosen for name in names]
    output = Output(as_json)
    if seeds is not None:
        keep = partial(_kept, store=store, output=output)
        raise SystemExit(play_many(trials, jobs or os.cpu_count() or 1, output, keep))
    raise SystemExit(told(in_order(trials, store, output, jobs or 1), output))


@click.command(
    "test-all",
    short_help="Run many workloads with many faults.",
    epilog="""\b
Examples:
  kraftlab chaos test-all --matrix ci
  kraftlab chaos test-all --matrix ci --time 10 --store /tmp/runs
  kraftlab chaos test-all --matrix nightly --time 20 --within 3600""",
)
@click.option("--matrix", type=click.Choice(tuple(MATRICES)), default="ci", show_default=True, help="Which.")
@click.option("--time", "time_s", type=FiniteRange(min=0.1), metavar="SECONDS", help="Of each run, instead of the matrix's.")
@click.option(
    "--within",
    "within_s",
    type=FiniteRange(min=0),
    metavar="SECONDS",
    help="Begin no run after so long; the order is the seed's then, so that any part is a fair one.",
)
@_shared
def test_all(matrix: str, time_s: float | None, within_s: float | None, as_json: bool, **shared: Any) -> None:
    """Runs every workload of the matrix with each of its sets of faults, and prints one line for each, and one for all.

    A run that the harness cannot carry out does not keep the others from being run. The exit code is the worst run's, that of
    "unknown" if none was begun.
    """
    (seed,) = _seeds(shared.pop("seed"), 1)
    deadline = None if within_s is None else time.monotonic() + within_s
    store = shared.pop("store")
    output = Output(as_json)
    cells = [cell for cell in MATRICES[matrix]() if shared["world"] not in workload_named(cell.workload).not_in]
    net, is_real = shared["net"], shared["world"] == "real"
    if is_real and NETS[net].module:
        own_network()  # before anything is tried in threads
    possible = {*(available_kinds(net) if is_real else kinds_of(shared["world"])), ALL}
    missing = [kind for kind in KINDS if any(kind in cell.nemeses for cell in cells) and kind not in possible]
    if missing:
        by = f" with --net {net}" if net != LINKS else ""
        who = f"this machine cannot do it{by}" if is_real else f"the world {shared['world']} has it not"
        output.findings([f"left out, since {who}: {', '.join(missing)}" + ("; see kraftlab chaos doctor" if is_real else "")])
    cells = [cell for cell in cells if possible.issuperset(cell.nemeses)]
    if deadline is not None:
        random.Random(f"{seed}/order").shuffle(cells)
    trials = [_trial(each.workload, each.nemeses, _seed_of(each, seed), time_s or each.time_s, **shared) for each in cells]
    rows: list[Row] = []
    codes: list[int] = []
    for trial in trials:
        if deadline is not None and time.monotonic() > deadline:
            break
        try:
            tried = carried_out(trial, store, output)
        except (HarnessError, StoreError) as error:
            if isinstance(error, StoreError) and not rows:
                raise  # none can be kept there
            rows.append(Row(trial.workload, ",".join(trial.nemeses), UNKNOWN, {}, 0, "", str(error)))
            codes.append(HARNESS)
        except KeyboardInterrupt:
            codes.append(NOT_KNOWN)
            break
        else:
            rows.append(row_of(tried))
            codes.append(exit_code(tried.verdicts))
        output.findings([rows[-1].line()])
        if codes[-1] != HARNESS and tried.run.cut_short:
            break
    output.findings([sum_line(rows, len(trials))])
    output.result([msgspec.to_builtins(row._asdict()) for row in rows])
    raise SystemExit(worst(codes or [NOT_KNOWN]))


def _seed_of(cell: Cell, seed: str) -> str:
    """Each run of a matrix has its own: with one for all, a kind of fault would strike the same targets in all of them."""
    return str(random.Random(f"{seed}/{cell.workload}/{','.join(cell.nemeses)}").randrange(1 << 32))


def told(runs: Iterable[Tried], output: Output) -> int:
    """Says what came of each run, and of all together: the exit code. After one that was cut short no other begins; nor after
    Ctrl-C where nothing of the run that was on can be kept, or one that the harness cannot carry out: if that is the first,
    HarnessError or StoreError.
    """
    tried: list[Tried] = []
    codes: list[int] = []
    try:
        for one in runs:
            tried.append(one)
            codes.append(exit_code(one.verdicts))
            output.lines(verdict_lines(one))
            if one.close is not None:
                _hold(one, output)
            if one.run.cut_short:
                break
    except KeyboardInterrupt:
        if not tried:
            raise
        codes.append(NOT_KNOWN)
    except (HarnessError, StoreError) as error:
        if not tried:
            raise
        codes.append(HARNESS)
        output.findings([f"Error: {error}"])
    code = worst(codes)
    found = summary(tried)
    output.result(found | {"valid": UNKNOWN} if found["valid"] is True and code != VALID else found)
    return code


def in_order(trials: Sequence[Trial], store: str, output: Output, jobs: int = 1) -> Iterator[Tried]:
    """HarnessError."""
    if jobs == 1:
        for trial in trials:
            yield carried_out(trial, store, output)
        return
    yield from done_by(jobs, partial(carried_out, store=store, output=output, is_told=False), trials)


def _seeds(seed: str | None, count: int) -> list[str]:
    """So many, from that one on."""
    first = str(secrets.randbelow(1 << 32)) if seed is None else seed
    if first.isdecimal():
        return [str(int(first) + number) for number in range(count)]
    return [first, *(f"{first}-{number}" for number in range(2, count + 1))]


def _trial(
    name: str,
    nemeses: tuple[str, ...],
    seed: str,
    time_s: float,
    *,
    controllers: int | None,
    brokers: int,
    world: str,
    rate: float,
    concurrency: str,
    ops_per_key: int,
    net: str,
    leave_running: bool = False,
) -> Trial:
    """WrongUse if there is nothing of that name, or it does not run there."""
    try:
        workload = workload_named(name)
    except UnknownWorkload as error:
        raise WrongUse(str(error)) from None
    controllers = controllers or workload.controllers
    options = Options(
        seed=seed,
        time_s=time_s,
        rate=rate,
        concurrency=workers(concurrency, controllers + brokers),
        controllers=controllers,
        brokers=brokers,
        ops_per_key=ops_per_key,
    )
    if world in workload.not_in:
        others = ", ".join(sorted(WORLDS.keys() - workload.not_in.keys()))
        raise WrongUse(f"{name} does not run in the world {world!r}: {workload.not_in[world]}; it runs in: {others}")
    if unknown := sorted({*nemeses}.difference({ALL}, *map(kinds_of, WORLDS))):
        raise WrongUse(f"there is no nemesis {', '.join(unknown)}; there are {', '.join(kinds_of(world))}, and all")
    if strange := sorted({*nemeses}.difference(kinds_of(world), {ALL})):
        raise WrongUse(f"{', '.join(strange)} cannot strike in --world {world}; what can: {', '.join(kinds_of(world))}, all")
    if world != "real" and net != LINKS:
        raise WrongUse(f"--net {net} is for real processes, not for --world {world}; leave it out")
    if world == "real" and (refused := refusal(net, [kind for kind in nemeses if kind != ALL])):
        raise WrongUse(refused)
    return Trial(name, world, nemeses, options, leave_running=leave_running, net=net)


def carried_out(trial: Trial, store: str, output: Output, *, is_told: bool = True) -> Tried:
    """Runs it, shows how that goes if it is to be told, and writes its page. HarnessError."""
    progress = Progress(trial.workload) if is_told else Progress(trial.workload, is_terminal=False, write=lambda text: None)
    try:
        tried = run_test(trial, store, progress)
        _write_pages(tried)
        return tried
    except (WorldFailed, ClusterError, SetupFailed, GeneratorStuck) as error:
        raise HarnessError(str(error)) from error
    except (CommandFailed, HarnessError, StoreError, KeyboardInterrupt):
        raise
    except Exception as error:
        logger.exception("%s", trial.command)
        raise HarnessError(f"the harness failed: {type(error).__name__}: {error}; run again: {trial.command}") from error
    finally:
        progress.done()


def _kept(trial: Trial, store: str, output: Output) -> Tried:
    """One of many seeds, played again to be looked at. HarnessError."""
    tried = carried_out(trial, store, output, is_told=False)
    output.lines(verdict_lines(tried))
    return tried


def _write_pages(tried: Tried) -> None:
    """The run's page and its store's index. They can be written later as well: a fault here does not end anything."""
    try:
        write_page(tried.directory)
        index_of(tried.directory.path.parent.parent).write()
    except Exception as error:
        logger.warning("the page of %s was not written (%s); try: kraftlab chaos report", tried.directory.name, error)


@cache
def index_of(store: Path) -> Index:
    """One for all runs of a command, so that none is read twice."""
    return Index(store)


def _hold(tried: Tried, output: Output) -> None:
    """Keeps the cluster until somebody wants it to end."""
    assert tried.close is not None, "it is running"
    try:
        output.findings(
            [
                f"the cluster runs at {tried.endpoints} until Ctrl-C",
                f"break it: kraftlab cluster isolate leader --for 5s --data {tried.data}",
            ]
        )
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    finally:
        tried.close()


# -- words ---------------------------------------------------------------------------------------------------------------------


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
        return f"{_word(self.valid):<8} {self.workload:<14} {self.nemeses or 'no faults':<24} {counts:<28} {self.run}{found}"


def sum_line(rows: Sequence[Row], planned: int) -> str:
    """All runs in one line."""
    valid = Counter(_word(row.valid) for row in rows)
    ops = {outcome: sum(row.ops.get(outcome, 0) for row in rows) for outcome in (OK, FAIL, INFO)}
    counted = ", ".join(f"{count} {word}" for word, count in valid.most_common())
    told = " ".join(f"{outcome} {count:,}" for outcome, count in ops.items())
    left = f", {planned - len(rows)} not begun" if len(rows) < planned else ""
    return (
        f"{len(rows)} runs: {counted or 'none'}{left}; operations: {told}; acknowledged and lost: {sum(row.lost for row in rows)}"
    )


def row_of(tried: Tried) -> Row:
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


def verdict_lines(tried: Tried) -> Iterator[str]:
    """A run's verdicts as a table, what was counted, and where it stands."""
    rows = [("checker", "valid", "kind", "seconds", "reason")]
    rows += [
        (verdict.checker, _word(verdict.valid), verdict.kind, f"{verdict.seconds:.2f}", verdict.reason)
        for verdict in tried.verdicts
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        yield "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
    counts, strikes = tried.run.history.counts(), [strike for strike in tried.run.strikes if not strike.error]
    record = tried.record
    yield ""
    yield f"{_word(record.valid)}: {counts[OK]:,} ok, {counts[FAIL]:,} fail, {counts[INFO]:,} info; {len(strikes)} faults struck"
    yield f"run      {tried.directory.path}"
    yield f"page     {tried.directory.report / 'index.html'}"
    yield f"again    {record.command}"


def summary(tried: Sequence[Tried]) -> dict[str, Any]:
    """The one document of `--json`: of several runs, all counts together and the worst run."""
    worst_code = worst(exit_code(one.verdicts) for one in tried)
    shown = next(one for one in tried if exit_code(one.verdicts) == worst_code)
    found: dict[str, Any] = {
        "valid": _together(one.record.valid for one in tried),
        "ops": {outcome: sum(one.run.history.counts()[outcome] for one in tried) for outcome in (OK, FAIL, INFO)},
        "lost": sum(verdict.lost for one in tried for verdict in one.verdicts),
        "run": str(shown.directory.path),
    }
    return found if len(tried) == 1 else {**found, "runs": [str(one.directory.path) for one in tried]}


def _together(validities: Iterable[Validity]) -> Validity:
    found = list(validities)
    return False if False in found else UNKNOWN if UNKNOWN in found else True


def _word(valid: Validity) -> str:
    return {True: "valid", False: "INVALID"}.get(valid, "unknown") if isinstance(valid, bool) else "unknown"
