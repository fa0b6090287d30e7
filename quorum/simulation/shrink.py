"""From a failing run to the few faults that matter: delta debugging on the plan.

Theory of operation. A plan is smaller if it strikes less often, then if less is wrong with its network, disks and clocks. A
candidate is played and kept if it breaks the *same* rule; what it breaks later or elsewhere does not count. Every run ends soon
after the time at which the rule broke first (the bound on steps), so a candidate that breaks nothing costs little. The order
pays: first all strikes of one kind at a time, then single strikes by ddmin (halves, quarters, … until none can go alone; Zeller
2002), then the options one by one. Rounds repeat until one brings nothing. Since every strike draws from its own generator,
leaving one out does not change what the others are.

The result is minimal in the sense that no single strike, and no single simplification, can be left out; there may be others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from .options import RaftTuning, SimulationOptions, Strike
from .plan import Plan
from .runner import SeedResult

GRACE_US = 1_000_000
"""A candidate may break the rule so much later than the original."""
ROUNDS_MAX = 4

Play = Callable[[Plan], SeedResult]


class Shrunk(NamedTuple):
    """`plan` breaks the rule as `result` shows; `runs` were played to find it."""

    plan: Plan
    result: SeedResult
    runs: int


def _network(**changes: object) -> Callable[[SimulationOptions], SimulationOptions]:
    return lambda options: msgspec.structs.replace(options, network=msgspec.structs.replace(options.network, **changes))


def _options(**changes: object) -> Callable[[SimulationOptions], SimulationOptions]:
    return lambda options: msgspec.structs.replace(options, **changes)


SIMPLER: tuple[tuple[str, Callable[[SimulationOptions], SimulationOptions]], ...] = (
    ("no message is replayed", _network(replays=0)),
    ("no message comes twice", _network(duplicates=0)),
    ("no request is lost", _network(loss=0)),
    ("no response is lost", _network(response_loss=0)),
    ("messages keep their order", _network(reordering=False)),
    ("a fast network", _network(delay_us=200)),
    ("clocks run true", _options(clock_drift=False)),
    ("usual timers and limits", _options(tuning=RaftTuning())),
    ("no short reads", _options(short_reads=0)),
    ("everything heals", _options(heals_everything=True)),
    ("no clients", _options(clients=0)),
    ("no linearizable reads beside theirs", _options(read_interval_us=0)),
    ("no snapshots of their own accord", _options(snapshot_interval_us=0)),
    ("nobody joins by himself", _options(auto_join=False)),
    ("voters as configured", _options(dynamic_voters=False, auto_join=False)),
    ("no observers", _options(observers=0)),
    ("three voters", _options(voters=3)),
    ("applied at once", _options(apply_delay_us=0)),
    ("fast disks", _options(disk_latency_us=100)),
    ("large fetches", _options(fetch_max_bytes=8 * 1024 * 1024)),
    ("large segments", _options(segment_bytes=4096 + 1_000_000)),
    ("a large cache", _options(cache_bytes=1_000_000)),
    ("a quiet workload", _options(propose_interval_us=150_000)),
)
"""What can be made simpler about a world, and how."""


class _Shrinking:
    def __init__(self, result: SeedResult, play: Play, tell: Callable[[str], None]) -> None:
        self.rule = result.rule
        self.play = play
        self.tell = tell
        self.runs = 0
        self.until_us = result.ended_us + GRACE_US
        self.plan = msgspec.structs.replace(result.plan, until_us=self.until_us, rule=result.rule)

    def takes(self, candidate: Plan) -> bool:
        """Play it; if it breaks the same rule it is the plan from now on."""
        self.runs += 1
        if self.play(candidate).rule != self.rule:
            return False
        self.plan = candidate
        return True

    def run(self) -> Shrunk:
        for _ in range(ROUNDS_MAX):
            before = self.plan
            self._drop_kinds()
            self._drop_strikes()
            self._simplify()
            self.tell(f"{len(self.plan.strikes)} strikes after {self.runs} runs")
            if self.plan == before:
                break
        return self._trimmed()

    def _with(self, strikes: tuple[Strike, ...]) -> Plan:
        return msgspec.structs.replace(self.plan, strikes=strikes)

    def _drop_kinds(self) -> None:
        if self.plan.strikes and self.takes(self._with(())):
            return
        for kind in sorted({strike.fault for strike in self.plan.strikes}):
            self.takes(self._with(tuple(strike for strike in self.plan.strikes if strike.fault != kind)))

    def _drop_strikes(self) -> None:
        """ddmin: leave out ever smaller pieces."""
        pieces = 2
        while self.plan.strikes:
            strikes = self.plan.strikes
            size = -(-len(strikes) // pieces)
            cuts = [strikes[:start] + strikes[start + size :] for start in range(0, len(strikes), size)]
            if any(self.takes(self._with(rest)) for rest in cuts):
                pieces = max(pieces - 1, 2)
            elif size == 1:
                return
            else:
                pieces = min(pieces * 2, len(strikes))

    def _simplify(self) -> None:
        for _, simpler in SIMPLER:
            options = simpler(self.plan.options)
            if options != self.plan.options:
                self.takes(msgspec.structs.replace(self.plan, options=options))

    def _trimmed(self) -> Shrunk:
        """The plan ends where the rule breaks, and lists only the faults that strike."""
        kinds = tuple(sorted({strike.fault for strike in self.plan.strikes}))
        options = msgspec.structs.replace(self.plan.options, faults=kinds)
        result = self.play(msgspec.structs.replace(self.plan, options=options))
        plan = msgspec.structs.replace(result.plan, until_us=result.ended_us + 1)
        return Shrunk(plan, self.play(plan), self.runs + 2)


def shrink(result: SeedResult, play: Play, tell: Callable[[str], None] = lambda line: None) -> Shrunk:
    """The smallest plan found that breaks the rule that `result` broke. `play` plays a plan; `tell` hears of progress."""
    if result.ok:
        raise ValueError(f"seed {result.seed} breaks no rule: there is nothing to shrink")
    return _Shrinking(result, play, tell).run()


TEST = '''\
"""{rule} was broken by this plan: {violation}"""

from __future__ import annotations

from {runner} import run_plan
from kraftlab.quorum.simulation.plan import decode

PLAN = b"""\\
{plan}"""


def test_{name}_holds() -> None:
    {body}
'''
FOR_A_BUG = """result = run_plan(decode(PLAN, __file__))
    assert result.ok, "\\n".join([*result.violations, *result.tail])"""
FOR_A_PLANTED_BUG = """assert run_plan(decode(PLAN, __file__)).rule == "{rule}", "the planted bug is found no more"
    result = run_plan(decode(PLAN, __file__), with_mutant=False)
    assert result.ok, "\\n".join([*result.violations, *result.tail])"""
RUNNERS = {"consensus": "kraftlab.quorum.simulation.runner", "metadata": "kraftlab.controller.simulation.runner"}


def regression_test(plan: Plan, violation: str) -> str:
    """The text of a pytest module that plays the plan and demands that no rule breaks."""
    body = FOR_A_PLANTED_BUG.format(rule=plan.rule) if plan.mutant else FOR_A_BUG
    document = msgspec.json.format(msgspec.json.encode(plan), indent=2).decode().replace("\\", "\\\\")
    return TEST.format(
        rule=plan.rule,
        violation=violation.partition("\n")[0].replace('"""', "'''").replace("\\", "\\\\")[:100].rstrip('"'),
        runner=RUNNERS[plan.world],
        plan=document,
        name=f"seed_{plan.options.seed}_{plan.rule}".lower(),
        body=body,
    )
