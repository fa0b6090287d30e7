"""Shrinks the plan of a failing run to the few faults that matter, by delta debugging.

Theory of operation. A plan is smaller if it has fewer strikes, then if it has fewer nodes, a shorter time, less workload, and a
better network, disks and clocks. A candidate is played, and kept if it breaks the *same* rule; other rules do not count. Every
run ends soon after the time at which the newest kept plan broke the rule, so a candidate that breaks nothing costs little.

The order saves time: first no strikes at all, then a simpler world, which is played faster. Then come kinds of strikes and single
strikes by delta debugging (checking/ddmin.py), milder strikes in their place, and the world again. Rounds repeat until one
changes nothing. A plan that was played without success is not played again. Every strike draws from its own generator, so leaving
one out does not change the others.

The result is minimal in the sense that no single strike and no single simplification can be left out. There can be other minima.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from kraftlab.checking.ddmin import smallest

from .options import CALM, RaftTuning, SimulationOptions, Strike
from .plan import Plan
from .runner import SeedResult

GRACE_US = 500_000
"""Time by which a candidate can break the rule later than the plan it came from."""
HEAL_AFTER_MS = 200
"""Time after the last strike until the heal."""
ROUNDS_MAX = 8

Play = Callable[[Plan], SeedResult]
Simpler = Callable[[SimulationOptions], SimulationOptions]


class Shrunk(NamedTuple):
    """The smallest plan that was found, its result, and the number of runs that were played."""

    plan: Plan
    result: SeedResult
    runs: int


def _network(**changes: object) -> Simpler:
    return lambda options: msgspec.structs.replace(options, network=msgspec.structs.replace(options.network, **changes))


def _options(**changes: object) -> Simpler:
    return lambda options: msgspec.structs.replace(options, **changes)


def _rarely(name: str, interval_us: int) -> Simpler:
    """Return a simplification that makes an interval at least so long; 0 means never."""

    def rarer(options: SimulationOptions) -> SimulationOptions:
        now_us = getattr(options, name)
        return msgspec.structs.replace(options, **{name: max(interval_us, now_us) if now_us else 0})

    return rarer


SIMPLER: tuple[tuple[str, Simpler], ...] = (
    ("a good network", _options(network=CALM)),
    ("no message is replayed", _network(replays=0)),
    ("no message comes twice", _network(duplicates=0)),
    ("no request is lost", _network(loss=0)),
    ("no response is lost", _network(response_loss=0)),
    ("messages keep their order", _network(reordering=False)),
    ("clocks run true", _options(clock_drift=False)),
    ("no short reads", _options(short_reads=0)),
    ("everything heals", _options(heals_everything=True)),
    ("nothing rots in the end", _options(rots_in_the_end=False)),
    ("a fast network", _network(delay_us=200)),
    ("usual timers and limits", _options(tuning=RaftTuning())),
    ("no clients", _options(clients=0)),
    ("no linearizable reads beside theirs", _options(read_interval_us=0)),
    ("few linearizable reads", _rarely("read_interval_us", 100_000)),
    ("no snapshots of their own accord", _options(snapshot_interval_us=0)),
    ("nobody joins by himself", _options(auto_join=False)),
    ("voters as configured", _options(dynamic_voters=False, auto_join=False)),
    ("no observers", _options(observers=0)),
    ("applied at once", _options(apply_delay_us=0)),
    ("fast disks", _options(disk_latency_us=100)),
    ("large fetches", _options(fetch_max_bytes=8 * 1024 * 1024)),
    ("large segments", _options(segment_bytes=4096 + 1_000_000)),
    ("a large cache", _options(cache_bytes=1_000_000)),
    ("clients that ask rarely", _rarely("client_interval_us", 200_000)),
    ("a quiet workload", _rarely("propose_interval_us", 150_000)),
    ("hardly any workload", _rarely("propose_interval_us", 1_000_000)),
)
"""The simplifications of a world."""
MILDER = {
    "power-cut-everywhere": "power-cut",
    "crash-in-recovery": "power-cut",
    "crash-in-flush": "power-cut",
    "crash-in-store": "power-cut",
    "crash-between-effects": "power-cut",
    "power-cut": "kill",
    "kill": "graceful-restart",
    "failing-disk": "full-disk",
    "partition": "isolate",
    "isolate": "broken-link",
    "replace-disk": "kill",
    "clock-rate": "pause",
}
"""The milder fault that can replace a fault."""


class _ShrinkRun:
    def __init__(self, result: SeedResult, play: Play, report: Callable[[str], None]) -> None:
        self.rule = result.rule
        self.play = play
        self.report = report
        self.runs = 0
        self.asked = result.asked
        """The requests in the run of `plan`."""
        self.plan = _cut_off(msgspec.structs.replace(result.plan, rule=result.rule), result.ended_us)
        self._in_vain: set[bytes] = set()

    def takes(self, candidate: Plan) -> bool:
        """Play the candidate, and keep it as the plan if it breaks the same rule."""
        key = msgspec.msgpack.encode(candidate)
        if key in self._in_vain:
            return False
        self.runs += 1
        result = self.play(candidate)
        if result.rule != self.rule:
            self._in_vain.add(key)
            return False
        self.asked = result.asked
        self.plan = _cut_off(candidate, result.ended_us)
        return True

    def run(self) -> Shrunk:
        for _ in range(ROUNDS_MAX):
            before = self.plan
            if self.plan.strikes and not self.takes(self._with(())):
                self._make_simpler(SIMPLER, halvings=2)
            self._drop_strikes()
            self._take_milder_strikes()
            self._make_simpler(SIMPLER, halvings=len(SIMPLER))
            self._make_smaller()
            self._ask_less()
            self.report(f"{len(self.plan.strikes)} strikes after {self.runs} runs")
            if self.plan == before:
                break
        return self._trimmed()

    def _with(self, strikes: Iterable[Strike]) -> Plan:
        return msgspec.structs.replace(self.plan, strikes=tuple(strikes))

    def _drop_strikes(self) -> None:
        """Drop kinds of strikes, then single strikes."""
        kinds = tuple(dict.fromkeys(strike.fault for strike in self.plan.strikes))
        smallest(kinds, lambda left: self.takes(self._with(strike for strike in self.plan.strikes if strike.fault in left)))
        smallest(self.plan.strikes, lambda left: self.takes(self._with(left)))

    def _take_milder_strikes(self) -> None:
        for strike in self.plan.strikes:
            milder = MILDER.get(strike.fault)
            if milder is not None:
                taken = msgspec.structs.replace(strike, fault=milder)
                self.takes(self._with(taken if other == strike else other for other in self.plan.strikes))

    def _make_simpler(self, steps: Sequence[tuple[str, Simpler]], halvings: int) -> None:
        """Apply all of the steps at once; if that fails, try each half of them, and so on."""
        options = self.plan.options
        for _, simpler in steps:
            options = simpler(options)
        if options == self.plan.options or self.takes(msgspec.structs.replace(self.plan, options=options)):
            return
        if len(steps) > 1 and halvings:
            self._make_simpler(steps[: len(steps) // 2], halvings - 1)
            self._make_simpler(steps[len(steps) // 2 :], halvings - 1)

    def _make_smaller(self) -> None:
        for smaller in SMALLER:
            next((candidate for candidate in smaller(self.plan) if self.takes(candidate)), None)

    def _ask_less(self) -> None:
        """Drop the workload; if that fails, cut it shorter at both ends, by ever smaller steps."""
        if not self.asked or self._asks(0, 0):
            return
        first, last = self.plan.asks or (0, self.asked)
        step = (last - first) // 2
        while step:
            if self._asks(first + step, last):
                first += step
            elif self._asks(first, last - step):
                last -= step
            else:
                step //= 2

    def _asks(self, first: int, last: int) -> bool:
        return first <= last and self.takes(msgspec.structs.replace(self.plan, asks=(first, last)))

    def _trimmed(self) -> Shrunk:
        """Return the plan with its end at the time of the violation, and with only the faults that strike."""
        kinds = tuple(sorted({strike.fault for strike in self.plan.strikes}))
        result = self.play(_with_options(self.plan, faults=kinds))
        plan = msgspec.structs.replace(result.plan, until_us=result.ended_us + 1)
        return Shrunk(plan, self.play(plan), self.runs + 2)


def _cut_off(plan: Plan, ended_us: int) -> Plan:
    """Return the plan of a run that ended then, without later strikes and with an end soon after that."""
    until_us = ended_us + GRACE_US
    strikes = tuple(strike for strike in plan.strikes if strike.time_us <= ended_us)
    return msgspec.structs.replace(plan, strikes=strikes, until_us=min(until_us, plan.until_us or until_us))


def _with_options(plan: Plan, **changes: object) -> Plan:
    return msgspec.structs.replace(plan, options=msgspec.structs.replace(plan.options, **changes))


def _fewer(name: str) -> Callable[[Plan], Iterator[Plan]]:
    """Return a function that yields plans with fewer nodes or clients of a kind, from 1 on."""
    return lambda plan: (_with_options(plan, **{name: number}) for number in range(1, getattr(plan.options, name)))


def _shorter(plan: Plan) -> Iterator[Plan]:
    """Yield plans in which everything heals soon after the last strike."""
    last_us = max((strike.time_us for strike in plan.strikes), default=0)
    for wait_ms in (HEAL_AFTER_MS, 10 * HEAL_AFTER_MS):
        phase_ms = last_us // 1000 + wait_ms
        if phase_ms < plan.options.fault_phase_ms:
            yield _with_options(plan, fault_phase_ms=phase_ms)


def _sooner(plan: Plan) -> Iterator[Plan]:
    """Yield plans with all strikes earlier, so that the workload before them is smaller."""
    first_us = min((strike.time_us for strike in plan.strikes), default=0)
    for earlier_us in (first_us * 3 // 4, first_us // 2, first_us // 4):
        if earlier_us > 100_000:
            strikes = (msgspec.structs.replace(strike, time_us=strike.time_us - earlier_us) for strike in plan.strikes)
            yield msgspec.structs.replace(plan, strikes=tuple(strikes))


SMALLER = (_fewer("voters"), _fewer("observers"), _fewer("clients"), _shorter, _sooner)
"""Reductions of nodes and time. Each yields candidates from the smallest on."""


def shrink(
    result: SeedResult,
    play: Play,
    report: Callable[[str], None] = lambda line: None,
) -> Shrunk:
    """Return the smallest plan found that breaks the rule that `result` broke. `play` plays a plan, and `report` gets lines about
    the progress.
    """
    if result.ok:
        raise ValueError(f"seed {result.seed} breaks no rule: there is nothing to shrink")
    return _ShrinkRun(result, play, report).run()


TEST = '''\
"""{rule} was broken by this plan: {violation}"""

from __future__ import annotations

from kraftlab.simulation.consensus.plan import decode
from kraftlab.simulation.consensus.runner import run_plan

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


def regression_test(plan: Plan, violation: str) -> str:
    """Return the text of a pytest module that plays the plan and checks that no rule breaks."""
    body = FOR_A_PLANTED_BUG.format(rule=plan.rule) if plan.mutant else FOR_A_BUG
    document = msgspec.json.format(msgspec.json.encode(plan), indent=2).decode().replace("\\", "\\\\")
    return TEST.format(
        rule=plan.rule,
        violation=violation.partition("\n")[0].replace('"""', "'''").replace("\\", "\\\\")[:100].rstrip('"'),
        plan=document,
        name=f"seed_{plan.options.seed}_{plan.rule}".lower(),
        body=body,
    )
