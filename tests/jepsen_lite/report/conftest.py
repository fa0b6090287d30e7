"""Hand-made runs for reports: a register answers wrongly once, while links are cut, a node stays killed and a fault fails."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jepsen_lite.checkers.linearizable import Linearizable
from jepsen_lite.fault_plan import Action, FaultPlan
from jepsen_lite.history import History, Op
from jepsen_lite.store import RunDirectory, RunRecord
from jepsen_lite.verdicts import Verdict
from jepsen_lite.workload import Options, Run
from kraftlab.checking.facts import Observation, Strike
from kraftlab.checking.models import Register

MS = 1_000_000
NOON = datetime.datetime(2026, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)

NewRun = Callable[..., RunDirectory]


def operation(index: int, f: str, value: Any, result: Any, begin_ms: int, end_ms: int, **others: Any) -> Op:
    fields: dict[str, Any] = {"process": index % 3, "outcome": "ok", "node": 3000, "offset": index + 1, "epoch": 2, "key": "x"}
    fields |= others
    return Op(index=index, f=f, value=value, result=result, invoked_ns=begin_ms * MS, ended_ns=end_ms * MS, **fields)


def stale_read() -> list[Op]:
    """Return writes of 1, then 2, then a read of 1, which no order explains; also a write with an unknown outcome and one that
    failed.
    """
    return [
        operation(0, "set", 1, None, 0, 10),
        operation(1, "set", 2, None, 20, 45),
        operation(2, "get", None, 1, 60, 75),
        operation(3, "set", 3, None, 65, 700, process=0, outcome="info", error="DEADLINE_EXCEEDED", node=-1, offset=-1, epoch=-1),
        operation(4, "set", 4, None, 100, 110, process=1, outcome="fail", error="NOT_CONTROLLER", offset=-1, epoch=-1),
        operation(5, "get", None, None, 900, 960, process=5, key="y"),
    ]


STRIKES = (
    Strike(kind="partition", begin_ns=50 * MS, end_ns=800 * MS, links=((3000, 3001),), detail="one way"),
    Strike(kind="kill", begin_ns=70 * MS, end_ns=None, nodes=(3002,)),
    Strike(kind="disk-full", begin_ns=80 * MS, end_ns=80 * MS, nodes=(1,), error="needs root"),
)
OBSERVATIONS = (
    Observation(at_ns=0, node=3000, is_up=True, epoch=2, leader=3000, high_watermark=1, log_end=2),
    Observation(at_ns=0, node=3002, is_up=True, epoch=2, leader=3000, high_watermark=1, log_end=1),
    Observation(at_ns=100 * MS, node=3000, is_up=True, epoch=2, leader=3000, high_watermark=5, log_end=6),
    Observation(at_ns=100 * MS, node=3002, is_up=False),
    Observation(at_ns=500 * MS, node=3000, is_up=True, epoch=3, leader=3001, high_watermark=6, log_end=6),
)


def judged(ops: Sequence[Op]) -> Verdict:
    return Linearizable(lambda key: Register()).check(Run(options=Options(), history=History(ops)))


@pytest.fixture
def new_run(tmp_path: Path) -> NewRun:
    """Write a run into the store `tmp_path`."""

    def new(
        ops: Sequence[Op] = (),
        verdicts: Sequence[Verdict] = (),
        *,
        workload: str = "registers",
        seed: str = "7",
        nemeses: tuple[str, ...] = ("partition", "kill"),
        strikes: Sequence[Strike] = STRIKES,
        observations: Sequence[Observation] = OBSERVATIONS,
        **record: Any,
    ) -> RunDirectory:
        directory = RunDirectory.new(tmp_path, workload, seed, NOON)
        run = Run(
            options=Options(seed=seed),
            history=History(ops),
            strikes=tuple(strikes),
            observations=tuple(observations),
            healed_ns=800 * MS,
            ended_ns=1000 * MS,
        )
        directory.write_plan(FaultPlan(seed=seed, actions=(Action(at_ms=50, kind="partition", target="leader", for_ms=750),)))
        for name in ("controller-3000", "controller-3002", "broker-1"):
            (directory.nodes / f"{name}.log").write_text("said something\n")
        fields: dict[str, Any] = {
            "world": "real",
            "links": "proxy",
            "command": f"kraftlab chaos replay {directory.name}",
            "python": "3.11.7",
            "kernel": "6.1",
            "product": "kraftlab 0.1.0",
        }
        directory.write_run(
            RunRecord(workload=workload, nemeses=nemeses, verdicts=tuple(verdicts), **(run.facts() | fields | record)),
            run,
        )
        return directory

    return new


@pytest.fixture
def illegal_run(new_run: NewRun) -> RunDirectory:
    return new_run(stale_read(), [Verdict(checker="stats", valid=True, seconds=0.01), judged(stale_read())])
