"""A seed of the simulator as a document to step through, forwards and backwards. Pure, apart from playing the seed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Sequence

import msgspec

from kraftlab.checking.mutant import planted
from kraftlab.common.exit_codes import USAGE
from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.mutants import MUTANTS
from kraftlab.simulation.consensus.options import SimulationOptions
from kraftlab.simulation.consensus.runner import options_for, play
from kraftlab.simulation.consensus.steps import Step, StepRecorder
from kraftlab.simulation.rules import RULES

STEPS_MAX = 20_000
PLAY_S = 60


class SeedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A played seed. `violation` and `rule`, the broken rule as a sentence, are empty if all rules held. `steps` are the first
    STEPS_MAX of `total`. `faults` and `mutants` are all there are to choose from, with what they do.
    """

    seed: int
    mutant: str | None
    options: SimulationOptions
    ended_us: int
    committed: int
    violation: str
    rule: str
    total: int
    steps: list[Step]
    faults: dict[str, str]
    mutants: dict[str, str]


def seed_document(seed: int, faults: Iterable[str] | None = None, mutant: str | None = None) -> SeedDocument:
    """Play a seed with these faults at most (None: all), and a planted bug. ValueError: there is no such fault or bug."""
    chosen = None if faults is None else tuple(faults)
    _check("fault", chosen or (), FAULTS)
    _check("planted bug", (mutant,) if mutant else (), MUTANTS)
    bug, recorder = MUTANTS[mutant] if mutant else None, StepRecorder(STEPS_MAX)
    options = options_for(bug, seed, chosen)
    with planted(bug):
        result = play(options, trace=recorder.line, make_world=recorder.make_world, with_tail=False)
    violation = "; ".join(result.violations)
    recorder.add(Step(time_us=result.ended_us, event="verdict", text=violation))
    return SeedDocument(
        seed=seed,
        mutant=mutant,
        options=options,
        ended_us=result.ended_us,
        committed=result.committed,
        violation=violation,
        rule=RULES.get(result.rule, ""),
        total=recorder.total,
        steps=recorder.kept,
        faults={name: " ".join((fault.strike.__doc__ or "").partition(".")[0].split()) for name, fault in FAULTS.items()},
        mutants={name: each.why for name, each in MUTANTS.items()},
    )


def _check(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"there is no {kind} {name[:40]!r}; choose from: {', '.join(known)}")


def main(arguments: Sequence[str]) -> None:
    """Write the document of a seed to stdout: SEED, FAULTS separated by commas or "", and a MUTANT or "". Exit code 64 with the
    reason for unknown names.
    """
    signal.alarm(PLAY_S)  # ends a bug that plays without end, also when nobody waits
    seed, faults, mutant = arguments
    names = None if not faults else () if faults == "none" else faults.split(",")
    try:
        document = seed_document(int(seed), names, mutant or None)
    except ValueError as error:
        sys.stderr.write(str(error))
        sys.exit(USAGE)
    sys.stdout.buffer.write(msgspec.json.encode(document))


if __name__ == "__main__":
    main(sys.argv[1:])
