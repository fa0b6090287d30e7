"""The plan of a run is data: it can be drawn, kept, played again, thinned and shrunk."""

from __future__ import annotations

import msgspec
import pytest

from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.options import Strike, draw_options
from kraftlab.simulation.consensus.plan import Plan, PlanError, decode, draw_strikes, encode
from kraftlab.simulation.consensus.runner import SeedResult, run_plan, run_seed
from kraftlab.simulation.consensus.shrink import SIMPLER, regression_test, shrink


def plan_of(seed: int) -> Plan:
    options = draw_options(seed, FAULTS)
    return Plan(options=options, strikes=draw_strikes(options))


def test_a_plan_is_the_run_of_its_seed() -> None:
    assert run_plan(plan_of(5)).trace_hash == run_seed(5).trace_hash


def test_a_plan_survives_its_file() -> None:
    plan = plan_of(7)
    assert decode(encode(plan), "here") == plan


def test_a_plan_of_an_earlier_version_with_a_field_that_is_gone_is_read() -> None:
    plan = plan_of(7)
    assert decode(encode(plan).replace(b'"asks": null,', b'"asks": null, "gone": true,'), "here") == plan


def test_strikes_come_in_order_and_within_the_fault_phase() -> None:
    for seed in range(20):
        plan = plan_of(seed)
        assert list(plan.strikes) == sorted(plan.strikes)
        assert all(strike.time_us < plan.options.fault_phase_ms * 1000 for strike in plan.strikes)
        assert {strike.fault for strike in plan.strikes} <= set(plan.options.faults)


def test_a_strike_does_not_depend_on_other_strikes(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[int, float] = {}

    def noting(world, random):
        drawn[world.now_us] = random.random()
        return ()

    monkeypatch.setitem(FAULTS, "kill", FAULTS["kill"]._replace(strike=noting))
    plan = plan_of(2)
    strikes = tuple(Strike(time_us, "kill", number) for number, time_us in enumerate(range(100_000, 1_000_000, 100_000)))
    run_plan(msgspec.structs.replace(plan, strikes=strikes))
    every = dict(drawn)
    drawn.clear()
    run_plan(msgspec.structs.replace(plan, strikes=strikes[3:4] + strikes[7:8]))
    assert drawn == {strike.time_us: every[strike.time_us] for strike in (strikes[3], strikes[7])}
    assert len(set(every.values())) == len(every)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[:-20], "is not a fault plan"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "of version 2, this is version 1"),
        (lambda text: text.replace('"rule": ""', '"rule": "S99"'), "breaks rule S99, which does not exist"),
        (lambda text: text.replace('"rule": ""', '"rule": "M10"'), "breaks M10, a rule of controllers"),
        (lambda text: text.replace('"strikes": [', '"strikes": [[1, "rain", 0],', 1), "names faults that do not exist: rain"),
    ],
)
def test_an_invalid_plan_file_is_refused_with_the_reason(change, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        decode(change(encode(plan_of(3)).decode()).encode(), "here")


# Shrinking, on an imaginary world: the rule breaks if strikes 3 and 17 are both there and messages are lost


def imaginary(plan: Plan) -> SeedResult:
    numbers = {strike.number for strike in plan.strikes}
    breaks = {3, 17} <= numbers and plan.options.network.loss > 0
    result = run_plan(msgspec.structs.replace(plan, strikes=(), until_us=1))
    violations = ("S6 two strikes and a lost message",) if breaks else ("S1 something else",) if 3 in numbers else ()
    return result._replace(violations=violations, ended_us=1_000, plan=plan)


def test_shrinking_finds_the_strikes_that_matter() -> None:
    options = draw_options(1, FAULTS)
    network = msgspec.structs.replace(options.network, loss=50, response_loss=50, duplicates=20)
    options = msgspec.structs.replace(options, network=network, voters=5, observers=2)
    strikes = tuple(Strike(number * 10, "kill" if number % 2 else "pause", number) for number in range(60))
    shrunk = shrink(imaginary(Plan(options=options, strikes=strikes)), imaginary)
    assert [strike.number for strike in shrunk.plan.strikes] == [3, 17]
    assert shrunk.plan.rule == "S6"
    assert shrunk.plan.options.network.loss == 50, "it matters"
    assert shrunk.plan.options.network.duplicates == 0, "it does not"
    assert (shrunk.plan.options.voters, shrunk.plan.options.observers) == (1, 0)
    assert shrunk.plan.until_us == 1_001
    assert shrunk.runs < 120


def test_a_milder_strike_takes_the_place_of_one_that_is_not_needed() -> None:
    def play(plan: Plan) -> SeedResult:
        strikes = {strike.fault for strike in plan.strikes} & {"power-cut", "kill"}
        return imaginary(plan)._replace(violations=("S9 one went",) if strikes else (), ended_us=2_000_000)

    strikes = (Strike(1_500_000, "pause", 1), Strike(1_900_000, "power-cut-everywhere", 2), Strike(1_950_000, "power-cut", 3))
    plan = Plan(options=msgspec.structs.replace(draw_options(2, FAULTS), fault_phase_ms=12_000), strikes=strikes)
    shrunk = shrink(play(plan), play).plan
    assert [strike.fault for strike in shrunk.strikes] == ["kill"]
    assert shrunk.strikes[0].time_us < 1_950_000
    assert shrunk.options.fault_phase_ms < 3_000


def test_the_workload_is_cut_to_the_part_that_matters() -> None:
    def play(plan: Plan) -> SeedResult:
        first, last = plan.asks or (0, 100)
        result = imaginary(msgspec.structs.replace(plan, strikes=()))
        violations = ("S15 the seventieth and the next one",) if first <= 70 and last >= 72 else ()
        return result._replace(violations=violations, asked=last - first, plan=plan, ended_us=1_000)

    assert shrink(play(Plan(options=draw_options(2, FAULTS), strikes=())), play).plan.asks == (70, 72)


def test_requests_that_a_plan_leaves_out_are_not_sent() -> None:
    plan = msgspec.structs.replace(plan_of(3), strikes=(), until_us=1_500_000)
    asked = run_plan(msgspec.structs.replace(plan, options=msgspec.structs.replace(plan.options, clients=0)))
    less = run_plan(msgspec.structs.replace(asked.plan, asks=(3, 5)))
    assert asked.asked > 5
    assert less.asked == 2


def test_shrinking_needs_a_violation() -> None:
    with pytest.raises(ValueError, match="breaks no rule"):
        shrink(run_seed(1, faults=(), fault_phase_ms=500), run_plan)


def test_simplifications_are_idempotent() -> None:
    options = draw_options(4, FAULTS)
    for name, simpler in SIMPLER:
        assert simpler(simpler(options)) == simpler(options), name


def test_a_planted_bug_shrinks_to_a_test_that_says_so() -> None:
    shrunk = shrink(run_seed(1, mutant="vote-before-store"), run_plan)
    text = regression_test(shrunk.plan, shrunk.result.violations[0])
    compile(text, "test_shrunk.py", "exec")
    assert 'rule == "S17"' in text
    assert "with_mutant=False" in text
    assert shrunk.result.rule == "S17"
