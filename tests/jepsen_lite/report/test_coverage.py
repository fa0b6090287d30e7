"""Coverage of runs: faults by the states of their targets, operations by outcome, and the growth of both."""

from __future__ import annotations

from pathlib import Path

from jepsen_lite.history import Op
from jepsen_lite.report.coverage import RunPairs, coverage, growth, states_struck
from jepsen_lite.report.index import Index, pairs_of
from jepsen_lite.verdicts import Verdict
from kraftlab.checking.facts import Observation, Strike

OBSERVATIONS = (
    Observation(at_ns=10, node=3000, is_up=True, leader=3000),
    Observation(at_ns=10, node=3001, is_up=True, leader=3000),
    Observation(at_ns=10, node=0, is_up=True),
    Observation(at_ns=30, node=3000, is_up=False),
    Observation(at_ns=30, node=3001, is_up=True, leader=-1),
)


def strike(kind: str, begin_ns: int, *nodes: int, links: tuple[tuple[int, int], ...] = (), error: str = "") -> Strike:
    return Strike(kind=kind, begin_ns=begin_ns, end_ns=None, nodes=nodes, links=links, error=error)


def test_a_strike_counts_for_the_state_that_its_node_was_last_seen_in() -> None:
    strikes = [strike("kill", 20, 3000), strike("kill", 40, 3000), strike("kill", 40, 3001), strike("kill", 5, 3000)]
    assert states_struck(strikes, OBSERVATIONS) == {
        ("kill", "leads"): 1,
        ("kill", "down"): 1,
        ("kill", "knows no leader"): 1,
        ("kill", "not seen yet"): 1,
    }


def test_both_ends_of_a_link_count_once_and_brokers_are_not_followers() -> None:
    links = ((3000, 0), (0, 3000), (3000, 3001))
    assert states_struck([strike("partition", 20, links=links)], OBSERVATIONS) == {
        ("partition", "leads"): 1,
        ("partition", "broker"): 1,
        ("partition", "follows"): 1,
    }


def test_faults_that_failed_cover_nothing() -> None:
    assert states_struck([strike("kill", 20, 3000, error="it was gone")], OBSERVATIONS) == {}


FIRST = RunPairs({("kill", "leads"): 2}, {("get", "ok"): 5})
SECOND = RunPairs({("kill", "leads"): 1, ("pause", "follows"): 1}, {("get", "ok"): 4, ("get", "info"): 1})


def test_counts_of_runs_add_up_and_what_was_never_met_is_nought() -> None:
    found = coverage([FIRST, SECOND])
    assert (found.strikes.columns, found.strikes.rows) == (("leads", "follows"), (("kill", (3, 0)), ("pause", (0, 1))))
    assert (found.outcomes.columns, found.outcomes.rows) == (("ok", "fail", "info"), (("get", (9, 0, 1)),))


def test_pairs_are_counted_when_they_are_met_for_the_first_time() -> None:
    assert coverage([FIRST, SECOND, FIRST]).pairs == (2, 4, 4)
    assert coverage([]).pairs == ()


def test_the_curve_goes_from_the_first_run_to_the_last_and_ends_at_the_top() -> None:
    curve = growth((2, 4, 4))
    assert curve.path == "M44.0,65.0H382.0V10.0H720.0V10.0"
    assert curve.ticks == ((120, "0"), (10, "4"))
    assert growth((0,)).path == "M44.0,120.0"


OPS = [
    Op(index=0, process=0, f="get", outcome="ok", invoked_ns=0, ended_ns=5),
    Op(index=1, process=0, f="get", outcome="info", invoked_ns=6, ended_ns=9),
]


def test_the_coverage_of_a_run_comes_from_its_files(new_run) -> None:
    directory = new_run(OPS)
    assert pairs_of(directory) == RunPairs(
        {("kill", "follows"): 1, ("partition", "leads"): 1, ("partition", "not seen yet"): 1},
        {("get", "ok"): 1, ("get", "info"): 1},
    )


def test_the_index_shows_the_coverage_of_all_runs(new_run, tmp_path: Path) -> None:
    new_run(OPS, [Verdict(checker="stats", valid=True)])
    new_run(
        [*OPS, Op(index=2, process=0, f="set", outcome="ok", invoked_ns=6, ended_ns=9)], [Verdict(checker="stats", valid=True)]
    )
    text = Index(tmp_path).render()
    assert '<th scope="row">partition</th><td class="n">2</td><td class="n never">–</td><td class="n">2</td>' in text
    assert '<th scope="row">get</th><td class="n">2</td><td class="n never">–</td><td class="n">2</td>' in text
    assert "6 pairs were covered after 2 runs" in text
