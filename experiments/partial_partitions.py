"""Partial partitions: leaders and commits while some links are cut, with and without pre-vote and check quorum."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from kraftlab.simulation.consensus.options import RaftTuning

from .experiment import Estimate, Experiment, Figure, Published, Row, Rows, Size, Trial, column, lines_of, trial
from .matrix import table
from .partitioned_world import AFTER, COLUMNS, COMMITS, LEADERS, OLD, OUTAGE, Scenario, measure
from .plots import Axis, Bar, bars

SCENARIOS = {
    "five servers": Scenario("12345", "3", "12 13 23 24 35"),
    "quorum loss": Scenario("LHABC", "L", "HL HA HB HC"),
    "constrained election": Scenario("LHABC", "L", "HA HB HC", behind="H"),
    "chained": Scenario("LHA", "L", "LH HA"),
    "half a link": Scenario("LHA", "L", "LH HA LA", lost="LA"),
    "mute leader": Scenario("LAB", "L", "LA LB AB", lost="LA LB"),
    "deaf leader": Scenario("LAB", "L", "LA LB AB", lost="AL BL"),
    "leader cut off": Scenario("LAB", "L", "AB"),
    "rejoining server": Scenario("LAB", "L", "LA"),
}
WHY = {
    "five servers": "Server 4 never hears from leaders 1 and 3, and server 5 never from 1 and 2. Without pre-votes each opens "
    "epoch after epoch. An epoch reaches the leader by a vote request, or by the next fetch of a server that has seen a request.",
    "quorum loss": "Everybody hears only the hub, which still hears the leader. With pre-votes alone the hub refuses all others, "
    "and a leader without a majority stays. Check quorum makes it resign; then the hub is elected.",
    "constrained election": "Only the hub hears a majority, and its log lacks the last committed writes, so nobody votes for it. "
    "Each other server gets two votes of five. No rule about time-outs changes that.",
    "chained": "Without pre-votes, the server that does not hear the leader takes over, until the one in the middle is elected.",
    "half a link": "Fetches of one server reach the leader, and the answers are lost. For that server the whole link is broken.",
    "mute leader": "Fetches reach the leader, so check quorum sees a majority. The others get no answers and elect another "
    "leader. The old one hears the vote request or the announcement.",
    "deaf leader": "No fetch reaches the leader, and no news of its successor. Check quorum makes it resign. Without pre-votes "
    "it then opens epochs that the others hear, and deposes leader after leader.",
    "leader cut off": "The others elect a leader. The old one leads on until the links are whole, or check quorum ends that.",
    "rejoining server": "A server that was away comes back with a higher epoch, unless it had to win pre-votes first.",
}
"""Explanations of the outcomes, from transcripts."""
VARIANTS = {
    "plain": RaftTuning(pre_vote=False, check_quorum=False),
    "pre-vote": RaftTuning(check_quorum=False),
    "check quorum": RaftTuning(pre_vote=False),
    "both": RaftTuning(),
}
TRIALS: dict[Size, int] = {"small": 3, "full": 50}


def trials(size: Size, seed: int) -> list[Trial]:
    """Return the trials of every scenario with every variant."""
    return [
        trial(f"{scenario}, {variant}", number, seed, scenario=scenario, variant=variant)
        for scenario, variant in product(SCENARIOS, VARIANTS)
        for number in range(TRIALS[size])
    ]


def run_trial(of: Trial) -> list[Row]:
    """Play one trial."""
    names: Row = {name: of.parameters[name] for name in ("scenario", "variant")}
    return [names | measure(SCENARIOS[str(names["scenario"])], VARIANTS[str(names["variant"])], of.seed)]


def figures(rows: Rows) -> list[Figure]:
    """Return the bars of each scenario, and a table of everything."""
    there = {str(row["scenario"]) for row in rows}
    found = [Figure(name.capitalize(), _bars(rows, name), WHY[name]) for name in SCENARIOS if name in there]
    lines = [(line, [of(rows, line).value for of in COLUMNS.values()]) for line in lines_of(rows)]
    return [
        *found,
        Figure(
            "All numbers",
            table(COLUMNS, lines),
            "Medians of times, means of the rest. 50 timeouts are the whole time of the cut.",
        ),
    ]


def _bars(rows: Rows, scenario: str) -> str:
    lines = [(variant, f"{scenario}, {variant}") for variant in VARIANTS]
    return "\n".join(
        bars(
            Axis(label, 0, high),
            [Bar(variant, COLUMNS[label](rows, line)) for variant, line in lines if column(rows, "leaders", line)],
        )
        for label, high in ((COMMITS, 100), (LEADERS, 80))
    )


def measured(rows: Rows) -> Mapping[str, Estimate]:
    """Return our numbers. The name of a published number is a line and a column."""
    there = set(lines_of(rows))
    named = ((what, *what.split(": ")) for what in [*(published.what for published in EXPERIMENT.published), *MORE])
    return {what: COLUMNS[label](rows, line) for what, line, label in named if line in there}


def remarks(rows: Rows) -> list[str]:
    """Return the lines in which commits stop, or leaders change all the time, and why our numbers differ."""
    stuck = [line for line in lines_of(rows) if COLUMNS[COMMITS](rows, line).value < 50]
    restless = [line for line in lines_of(rows) if COLUMNS[LEADERS](rows, line).value > 10]
    return [
        f"Hardly any commit while the links are cut: {'; '.join(stuck) or 'in no line'}.",
        f"More than ten new leaders per minute: {'; '.join(restless) or 'in no line'}. For five servers, Howard and Abraham say "
        "this in words: no stable leader. Commits do not stop, since every leader has a majority until it is deposed.",
        "The unit of Omni-Paxos's number is the time after which a silent leader is suspected. Here that is the fetch timeout.",
        "Votes carry the epoch as in Raft, but followers fetch: a leader learns of a new epoch also by a fetch, and a follower "
        "without answers to its fetches suspects the leader, although the leader may hear it.",
    ]


MORE = tuple(f"{line}: {LEADERS}" for line in ("five servers, plain", "five servers, both", "deaf leader, check quorum"))
"""Numbers of ours without a published one."""
THESIS, OMNI = "Ongaro's thesis, section 9.6", "Omni-Paxos (EuroSys'23)"
EXPERIMENT = Experiment(
    name="partial-partitions",
    question="Some links are cut, but not all. Is there a leader that commits, with and without pre-vote and check quorum?",
    method=(
        "The real core and storage in the simulator, 0.5 ms per link, fetch timeout 600 ms, election timeout 300 ms. After a "
        "leader is elected, the links of a scenario are cut for 30 s of virtual time, and then all are whole for 10 s. A client "
        "at every node writes every 50 ms to the leader that its node knows."
    ),
    source=f"Howard and Abraham (decentralizedthoughts, 2020-12-12); {OMNI}; {THESIS}; KIP-996; KAFKA-15489",
    published=(
        Published(f"quorum loss, both: {OUTAGE}", 4, "timeouts, at most", f"{OMNI}, for its own protocol"),
        Published(f"constrained election, both: {COMMITS}", 0, "%", f"{OMNI}; in words: Raft cannot elect a leader"),
        Published(f"rejoining server, plain: {AFTER}", 1, "leaders", THESIS),
        Published(f"rejoining server, pre-vote: {AFTER}", 0, "leaders", f"{THESIS}; KIP-996"),
        Published(f"leader cut off, both: {OLD}", 1.5, "timeouts", "KAFKA-15489 (from memory)"),
    ),
    trials=trials,
    run_trial=run_trial,
    figures=figures,
    measured=measured,
    remarks=remarks,
)
