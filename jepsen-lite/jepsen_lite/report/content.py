"""The content of a run's page, from the run's directory alone.

Everything is computed here or in neighbouring modules, once; template and scripts only arrange it. Lists of single items are
bounded, and each says how many items there were.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from kraftlab.checking.facts import Strike
from kraftlab.console.lanes import Lane, fault_lanes, node_lanes, process_lanes
from kraftlab.console.messages import Event, from_logs, from_trace
from kraftlab.console.space_time import OPERATION, SpaceTime, space_time

from .. import evidence
from ..checkers.availability import AroundStrike, Successes
from ..evidence import Cycle, Evidence
from ..fault_plan import FaultPlan
from ..history import Op
from ..store import TRACE, TRANSCRIPT, RunDirectory, RunRecord
from ..verdicts import VALID, Verdict, ending
from ..workload import Run
from . import words
from .curves import Clock, Curve, Quantiles, Rate, bin_width_ns, clock_curves, offset_curves, overall, quantiles, rates, sample
from .orders import Illegal, Ring, illegal, ring

TIMELINE = 10_000
"""Operations in the timeline."""
NAMED_IN_DIAGRAM = 12
NAMED_AT_FIRST = 2
"""The first operations that a checker names without a picture belong together: one contradicts the other."""
LISTED = 200
"""Operations of a minimal run, steps of a simulation."""
DOWNLOADS = ("history.parquet", "plan.json", "log.jsonl", "strikes.json", "observations.json", "run.json", TRANSCRIPT, TRACE)
_NUMBER = re.compile(r"(\d+)$")


class Effect(NamedTuple):
    """A strike and the success of operations around it, as the availability checker measures it."""

    strike: Strike
    around: AroundStrike


class Download(msgspec.Struct, frozen=True):
    """A file of the run; `path` is relative to the run's directory."""

    name: str
    path: str
    bytes: int


class Minimal(msgspec.Struct, frozen=True):
    """The smallest run that fails in the same way: its page, its faults, its first operations, and their total number."""

    page: str
    plan: FaultPlan
    operations: tuple[str, ...]
    total: int


class ShownCycle(msgspec.Struct, frozen=True):
    """A cycle with its picture."""

    checker: str
    cycle: Cycle
    ring: Ring


class Shown(msgspec.Struct, frozen=True, array_like=True):
    """An operation in a picture or the timeline; times in µs, `lane` of the timeline (-1: not in the timeline)."""

    index: int
    lane: int
    begin_us: int
    end_us: int
    f: int
    outcome: str
    process: int
    node: int
    offset: int
    epoch: int
    text: str


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The data for the scripts. The positions in `functions`, `kinds` and `leaders` select colours and shapes. `points` are
    (index, begin in µs, duration in µs, position of f, first letter of the outcome); `quantiles` are by function, "" for all.
    """

    span_us: int
    healed_us: int
    functions: tuple[str, ...]
    kinds: tuple[str, ...]
    leaders: tuple[str, ...]
    faults: tuple[Lane, ...]
    nodes: tuple[Lane, ...]
    node_names: dict[int, str]
    curves: tuple[Curve, ...]
    clocks: tuple[Clock, ...]
    points: tuple[tuple[int, int, int, int, str], ...]
    width_us: int
    quantiles: dict[str, tuple[Quantiles, ...]]
    rates: tuple[Rate, ...]
    ops: tuple[Shown, ...]
    timeline_lanes: int
    named: tuple[int, ...]
    illegal: tuple[Illegal, ...]


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the page. `total`: number of operations; `point_step`, `timeline`: the part that is drawn. `overall`:
    latencies by function, "" for all. `damaged`: checkers whose evidence cannot be drawn, with the reason.
    """

    name: str
    record: RunRecord
    plan: FaultPlan
    counts: dict[str, int]
    total: int
    point_step: int
    timeline: tuple[int, int]
    overall: dict[str, Quantiles]
    injected: int
    effects: tuple[Effect, ...]
    failed: tuple[Strike, ...]
    cycles: tuple[ShownCycle, ...]
    minimal: Minimal | None
    damaged: dict[str, str]
    operations: dict[int, str]
    downloads: tuple[Download, ...]
    node_logs: tuple[Download, ...]
    transcript: tuple[str, ...]
    space_time: SpaceTime
    scene: Scene

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self.record.verdicts


def gather(directory: RunDirectory) -> RunReport:
    """Read a run. StoreError."""
    record, plan, run = directory.record(), directory.plan(), directory.run()
    node_logs = _files(directory, [path.name for path in directory.node_logs()], "nodes/")
    names = {int(found[1]): log.name.removesuffix(".log") for log in node_logs if (found := _NUMBER.search(log.name[:-4]))}
    histories, cycles, damaged = _drawn(record.verdicts, run)
    named = {index for verdict in record.verdicts for index in verdict.ops if 0 <= index < len(run.history)}
    span_ns = max([run.ended_ns, 1_000, *(op.ended_ns for op in run.history)])
    first, last = _timeline(len(run.history), min(named, default=0))
    beside = (
        named
        | {box.op for each in histories for box in (each.among or each.alone).boxes}
        | {c.op for each in cycles for c in each.ring.corners}
    )
    points = sample(run.history, frozenset(named), span_ns)
    functions = tuple(sorted({op.f for op in run.history}))
    place = {f: number for number, f in enumerate(functions)}
    by_function = {"": run.history} | {f: run.history.of(f) for f in functions}
    width_ns = bin_width_ns(span_ns)
    lanes = process_lanes((op.process, op.invoked_ns, op.ended_ns) for op in run.history[first:last])
    nodes = node_lanes(run.observations, names, span_ns)
    operations = {index: words.operation(run.history[index]) for index in sorted(beside)}
    done = [strike for strike in run.strikes if not strike.error]
    return RunReport(
        name=directory.name,
        record=record,
        plan=plan,
        counts=run.history.counts(),
        total=len(run.history),
        point_step=points.step,
        timeline=(first, last),
        overall={f: overall(ops) for f, ops in by_function.items()},
        injected=len(done),
        effects=_effects(run.history, done, span_ns),
        failed=tuple(strike for strike in run.strikes if strike.error),
        cycles=cycles,
        minimal=_minimal(directory),
        damaged=damaged,
        operations=operations,
        downloads=_files(directory, DOWNLOADS),
        node_logs=node_logs,
        transcript=_transcript(directory),
        space_time=_space_time(directory, record, run, names),
        scene=Scene(
            span_us=span_ns // 1000,
            healed_us=run.healed_ns // 1000,
            functions=functions,
            kinds=tuple(dict.fromkeys(strike.kind for strike in sorted(done, key=lambda strike: strike.begin_ns))),
            leaders=_leaders(run),
            faults=fault_lanes(run.strikes, span_ns, names),
            nodes=nodes,
            node_names=names,
            curves=offset_curves(run.observations),
            clocks=clock_curves(run.observations),
            points=tuple(_point(op, place[op.f]) for op in points.ops),
            width_us=width_ns // 1000,
            quantiles={f: quantiles(ops, width_ns) for f, ops in by_function.items()},
            rates=rates(run.history, width_ns, span_ns),
            ops=tuple(
                _shown(run.history[index], place, lanes if first <= index < last else {})
                for index in sorted({*range(first, last), *beside})
            ),
            timeline_lanes=max(lanes.values(), default=-1) + 1,
            named=tuple(sorted(named)),
            illegal=histories,
        ),
    )


def _effects(ops: Sequence[Op], strikes: Iterable[Strike], ended_ns: int) -> tuple[Effect, ...]:
    """Return the effect of each strike, by begin time; empty if there were no operations."""
    if not ops:
        return ()
    successes = Successes(ops, ended_ns)
    return tuple(Effect(strike, successes.around(strike)) for strike in sorted(strikes, key=lambda strike: strike.begin_ns))


def _minimal(directory: RunDirectory) -> Minimal | None:
    least = directory.least()
    if least is None:
        return None
    history = least.run().history
    page = os.path.relpath(least.report / "index.html", directory.report)
    texts = tuple(f"{op.index} · process {op.process}: {words.operation(op)}" for op in history[:LISTED])
    return Minimal(page, least.plan(), texts, len(history))


def _transcript(directory: RunDirectory) -> tuple[str, ...]:
    path = directory.path / TRANSCRIPT
    return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines()[-LISTED:]) if path.is_file() else ()


def _space_time(directory: RunDirectory, record: RunRecord, run: Run, names: dict[int, str]) -> SpaceTime:
    """Read the trace, or if there is none the logs of the nodes."""
    events = from_trace(directory.trace())
    has_both_ends = bool(events)
    if not has_both_ends and record.started_at_ms:
        logs = [path.read_text(encoding="utf-8", errors="replace") for path in directory.node_logs()]
        events = from_logs(logs, record.started_at_ms)
    violation_us, ops = _violation(record, run)
    rows = [row for op in ops for row in operation_rows(op)]
    return space_time(events, names, has_both_ends=has_both_ends, violation_us=violation_us, operations=rows, strikes=run.strikes)


def operation_rows(op: Op) -> Iterable[Event]:
    """Yield the beginning and the end of an operation, for a diagram."""
    name = f"operation {op.index}, process {op.process}"
    yield Event(at_us=op.invoked_ns // 1000, node=-1, kind=OPERATION, text=f"{name} begins: {words.request(op)}")
    yield Event(at_us=op.ended_ns // 1000, node=-1, kind=OPERATION, text=f"{name} ends: {words.operation(op)}")


def _violation(record: RunRecord, run: Run) -> tuple[int | None, Sequence[Op]]:
    """Return the time of the first violation, and the operations that show it. A broken rule ends a run; otherwise it is the
    first contradiction that is drawn, or the first operations that the deciding checker names. None: there was no violation, or
    its time is unknown.
    """
    if run.violations:
        return run.ended_ns // 1000, ()
    decided = ending(record.verdicts)
    if decided == VALID:
        return None, ()
    deciding = next(verdict for verdict in record.verdicts if ending((verdict,)) == decided)
    contradictions = [
        deciding.ops[:NAMED_AT_FIRST],
        *(found for verdict in record.verdicts for found in _contradictions(verdict)),
    ]
    known = [[run.history[index] for index in found if 0 <= index < len(run.history)] for found in contradictions]
    shown = [ops for ops in (known[1:] if any(known[1:]) else known) if ops]
    if not shown:
        return None, ()
    first = min(shown, key=_complete_ns)
    return _complete_ns(first) // 1000, first[:NAMED_IN_DIAGRAM]


def _complete_ns(ops: Sequence[Op]) -> int:
    """Return the time at which the last of the operations had ended."""
    return max(op.ended_ns for op in ops)


def _contradictions(verdict: Verdict) -> Iterable[tuple[int, ...]]:
    """Yield sets of operations that contradict each other; none if the evidence cannot be read."""
    try:
        found = evidence.of(verdict.details)
    except (msgspec.ValidationError, ValueError):
        return
    for each in found.illegal:
        yield tuple(each.picture.ops)
    for cycle in found.cycles:
        yield tuple(edge.source for edge in cycle.edges)


def _timeline(count: int, named: int) -> tuple[int, int]:
    """Return the range of operations in the timeline: around the first operation that a verdict names, or the first ones."""
    first = min(max(named - TIMELINE // 2, 0), max(count - TIMELINE, 0))
    return first, min(first + TIMELINE, count)


def _drawn(verdicts: Iterable[Verdict], run: Run) -> tuple[tuple[Illegal, ...], tuple[ShownCycle, ...], dict[str, str]]:
    histories: list[Illegal] = []
    cycles: list[ShownCycle] = []
    damaged: dict[str, str] = {}
    for verdict in verdicts:
        try:
            found = evidence.of(verdict.details)
            _raise_if_foreign(found, len(run.history))
            histories += [illegal(each, run.history, run.strikes) for each in found.illegal]
            cycles += [ShownCycle(verdict.checker, cycle, ring(cycle)) for cycle in found.cycles if cycle.edges]
        except (msgspec.ValidationError, LookupError, ValueError) as error:
            damaged[verdict.checker] = str(error)
    return tuple(histories), tuple(cycles), damaged


def _raise_if_foreign(found: Evidence, count: int) -> None:
    named = {index for each in found.illegal for index in each.picture.ops}
    named |= {index for cycle in found.cycles for edge in cycle.edges for index in (edge.source, edge.target)}
    foreign = sorted(index for index in named if not 0 <= index < count)
    if foreign:
        raise LookupError(f"it names operation {foreign[0]}, but the history has {count} operations")


def _leaders(run: Run) -> tuple[str, ...]:
    return tuple(str(leader) for leader in sorted({seen.leader for seen in run.observations if seen.is_up and seen.leader >= 0}))


def _point(op: Op, place: int) -> tuple[int, int, int, int, str]:
    return op.index, op.invoked_ns // 1000, (op.ended_ns - op.invoked_ns) // 1000, place, op.outcome[0]


def _shown(op: Op, place: dict[str, int], lanes: dict[int, int]) -> Shown:
    return Shown(
        index=op.index,
        lane=lanes.get(op.process, -1),
        begin_us=op.invoked_ns // 1000,
        end_us=op.ended_ns // 1000,
        f=place[op.f],
        outcome=op.outcome[0],
        process=op.process,
        node=op.node,
        offset=op.offset,
        epoch=op.epoch,
        text=words.operation(op),
    )


def _files(directory: RunDirectory, names: Iterable[str], folder: str = "") -> tuple[Download, ...]:
    paths = [(name, directory.path / folder / name) for name in names]
    return tuple(Download(name, f"{folder}{name}", path.stat().st_size) for name, path in paths if path.is_file())


def details(verdict: Verdict) -> dict[str, object]:
    """Return the details of a verdict without its evidence."""
    return {name: value for name, value in verdict.details.items() if name not in evidence.Evidence.__struct_fields__}
