"""Texts of `kraftlab sim`: tables of coverage, failures, and commands that replay them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tables import aligned

if TYPE_CHECKING:
    from kraftlab.simulation.consensus.coverage import Coverage
    from kraftlab.simulation.consensus.runner import SeedResult

TRACE_COLUMNS = (
    "# seconds  node (** is the world)  state, epoch e, leader L, log end/high watermark  event  => effects of the node"
)


def replay_command(result: SeedResult, *, chosen_faults: tuple[str, ...] | None = None) -> str:
    """Return the command that plays the seed again."""
    options = f" --faults {','.join(chosen_faults) or 'none'}" if chosen_faults is not None else ""
    options += f" --mutant {result.plan.mutant}" if result.plan.mutant else ""
    return f"kraftlab sim --seed {result.seed}{options}"


def failure_lines(result: SeedResult, replay: str, *, with_tail: bool) -> list[str]:
    """Return the violations of a seed, optionally its last steps, and the commands that replay and shrink it."""
    from kraftlab.simulation.rules import RULES

    lines = [f"seed {result.seed} FAILED: {violation}" for violation in result.violations]
    lines += [f"{result.rule} means: {RULES[result.rule]}"] if result.rule in RULES else []
    if with_tail:
        lines += [f"    {line}" for line in result.tail]
    return [*lines, f"replay: {replay} --trace", f"shrink: {replay} --shrink"]


def failure_document(result: SeedResult, replay: str) -> dict[str, object]:
    return {
        "seed": result.seed,
        "invariant": result.rule,
        "violation": result.violations[0],
        "faults": list(result.faults),
        "replay": replay,
    }


def result_document(result: SeedResult) -> dict[str, object]:
    """Return a seed's result as a JSON document, without the plan, with its trace hash as `hash`."""
    document = result._asdict()
    del document["plan"]
    return {"hash": result.trace_hash, **document, "simulated_ms": result.simulated_ms}


def coverage_lines(coverage: Coverage) -> list[str]:
    """Return the tables of coverage: counts of transitions, and counts of faults by the state of their node."""
    from kraftlab.simulation.consensus.coverage import EPOCH_RELATIONS, STATES, can_strike
    from kraftlab.simulation.consensus.faults import FAULTS

    moves = [["transition", "epoch", "count"]]
    moves += [[name, relation, f"{coverage.transitions.get(name, 0):,}"] for name, relation in EPOCH_RELATIONS.items()]
    strikes = [["fault, by the state of the node it strikes", *STATES]]
    for fault in FAULTS:
        counts = coverage.faults.get(fault, {})
        strikes.append([fault, *(f"{counts.get(state, 0):,}" if can_strike(fault, state) else "-" for state in STATES)])
    return [*aligned(moves, numbers_from=1), "", *aligned(strikes, numbers_from=1), "-: there is no process to strike", ""]


def coverage_document(coverage: Coverage) -> dict[str, object]:
    """Return the counts, zero for holes, without impossible pairs."""
    from kraftlab.simulation.consensus.coverage import EPOCH_RELATIONS, POSSIBLE_PAIRS

    faults: dict[str, dict[str, int]] = {}
    for fault, state in POSSIBLE_PAIRS:
        faults.setdefault(fault, {})[state] = coverage.faults.get(fault, {}).get(state, 0)
    return {"transitions": {name: coverage.transitions.get(name, 0) for name in EPOCH_RELATIONS}, "faults": faults}
