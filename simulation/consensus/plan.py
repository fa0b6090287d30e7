"""The plan of a run as data: the options that are drawn before it begins, and the list of strikes.

Theory of operation. A seed draws its options and then its strikes. A strike is a time, the name of a fault and a number. The
fault draws everything else from a generator of its own, named by the seed, the fault and that number. So a strike can be left out
and the others still do the same, as far as the world is still the same. A run is therefore a *plan* (options, strikes, perhaps an
end) that can be kept in a file, played again, and shrunk (shrink.py) to the few strikes that matter. A plan holds the drawn
values and not their seed, so it stays valid when later versions draw differently.
"""

from __future__ import annotations

import re

import msgspec

from kraftlab.config.json_files import BadJson, decode_json

from ..rules import RULES
from .faults import FAULTS
from .options import SimulationOptions, Strike

VERSION = 1


class PlanError(ValueError):
    """An invalid plan file; the text says what is wrong and what to do."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A run. `mutant` is planted first. `until_us` ends the run without a verdict on later events. `asks` limits the proposals
    and reads of the workload (World.asks). `rule` is the invariant that the plan breaks, "" if it breaks none.
    """

    version: int = VERSION
    rule: str = ""
    mutant: str | None = None
    until_us: int | None = None
    asks: tuple[int, int] | None = None
    options: SimulationOptions
    strikes: tuple[Strike, ...]

    def without(self, dropped: set[Strike]) -> Plan:
        return msgspec.structs.replace(self, strikes=tuple(strike for strike in self.strikes if strike not in dropped))


def draw_strikes(options: SimulationOptions) -> tuple[Strike, ...]:
    """Draw all strikes of the fault phase, in the order of time."""
    strikes: list[Strike] = []
    end_us = options.fault_phase_ms * 1000
    for name in options.faults:
        random = options.random(f"fault/{name}")
        pace = min(100, options.fault_pace) if FAULTS[name].keeps_pace else options.fault_pace
        interval_us = FAULTS[name].mean_interval_ms * 10 * pace
        time_us = int(random.random() * 2 * interval_us)
        number = 0
        while time_us < end_us:
            strikes.append(Strike(time_us, name, number))
            time_us += int(random.random() * 2 * interval_us)
            number += 1
    return tuple(sorted(strikes))


def strike_seed(options: SimulationOptions, strike: Strike) -> str:
    """Return the seed of the strike's own generator."""
    return f"{options.seed}/fault/{strike.fault}/{strike.number}"


def encode(plan: Plan) -> bytes:
    """Return a plan as an indented JSON document with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


def decode(data: bytes, source: str) -> Plan:
    """Return the plan in a JSON document. PlanError names `source`, the error and the next step."""
    try:
        plan = decode_json(data, Plan)
    except BadJson as error:
        raise PlanError(
            f"{source} is not a fault plan: {error}. Make one with: kraftlab sim --seed S --shrink --write-plan FILE"
        ) from error
    if plan.version != VERSION:
        raise PlanError(f"{source} is a fault plan of version {plan.version}, this is version {VERSION}: shrink its seed again")
    if re.fullmatch(r"[A-Z]\d+", plan.rule) and plan.rule not in RULES:
        raise PlanError(f"{source} breaks rule {plan.rule}, which does not exist: shrink its seed again")
    if plan.rule.startswith("M"):
        raise PlanError(
            f"{source} breaks {plan.rule}, a rule of controllers, and there are none in this world. Play them with: "
            "kraftlab chaos test -w admin --world simulated"
        )
    unknown = sorted({strike.fault for strike in plan.strikes} - FAULTS.keys())
    if unknown:
        raise PlanError(f"{source} names faults that do not exist: {', '.join(unknown)}. There are {', '.join(FAULTS)}")
    return plan
