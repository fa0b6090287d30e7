"""A plan as rows of `gold.plans`, `gold.plan_moves` and `gold.plan_checks`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from ..storage.schemas import arrow_schema
from .checks import Finding
from .plan import Plan

if TYPE_CHECKING:
    from ..lake.commits import Lake

PLANS, MOVES, CHECKS = "gold.plans", "gold.plan_moves", "gold.plan_checks"


def plan_table(plan: Plan, ms: int) -> pa.Table:
    """Return the plan's row. `ms` is the time that its making took."""
    row = {
        "plan_id": plan.plan_id,
        "as_of_offset": plan.as_of_offset,
        "goals": msgspec.json.encode(plan.goals).decode(),
        "eps": plan.options.eps,
        "solver": plan.solver,
        "bytes_moved": plan.bytes_moved,
        "moves": plan.replica_moves,
        "intra_moves": plan.intra_moves,
        "leader_swaps": plan.leader_changes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "ms": ms,
    }
    return pa.Table.from_pylist([row], schema=arrow_schema(PLANS))


def moves_table(plan: Plan) -> pa.Table:
    """Return a row per partition that changes."""
    columns = {
        "plan_id": [plan.plan_id] * len(plan.moves),
        "wave": [move.wave for move in plan.moves],
        "topic": [move.topic for move in plan.moves],
        "partition": [move.partition for move in plan.moves],
        "from_replicas": [move.before for move in plan.moves],
        "to_replicas": [move.after for move in plan.moves],
        "add": [move.added for move in plan.moves],
        "remove": [move.removed for move in plan.moves],
        "dirs": [move.dirs for move in plan.moves],
        "bytes": [move.bytes for move in plan.moves],
    }
    return pa.table(columns, schema=arrow_schema(MOVES))


def checks_table(plan: Plan, findings: Iterable[Finding]) -> pa.Table:
    rows = [
        {"plan_id": plan.plan_id, "check": one.check, "severity": one.severity, "n": one.count, "example": one.example}
        for one in findings
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(CHECKS))


def record(lake: Lake, plan: Plan, findings: Iterable[Finding], ms: int) -> None:
    """Commit a plan with its moves and findings. Plans are numbered in order; the same plan keeps its number."""
    with lake.writing():
        numbers = {part.details.get("plan_id"): part.lo for part in lake.active(PLANS)}
        number = numbers.get(plan.plan_id, len(numbers))
        for table, rows in ((MOVES, moves_table(plan)), (CHECKS, checks_table(plan, findings)), (PLANS, plan_table(plan, ms))):
            lake.commit_arrow(rows, table, number, number + 1, details={"plan_id": plan.plan_id})
