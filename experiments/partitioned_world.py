"""One scenario of a partial partition: a leader is elected, links are cut for a while, and are whole again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import NamedTuple

from kraftlab.simulation.consensus.options import RaftTuning
from kraftlab.simulation.consensus.transcript import Transcript

from .experiment import Estimate, Row, Rows, column
from .probed_world import Link, ProbedWorld, Round
from .statistics import mean_of, median_of

FETCH_TIMEOUT_MS = 600
"""The default, which the worlds have: the time after which a follower without answers requests pre-votes."""
SETTLE_US, LAG_US, CUT_US, HEALED_US = 5_000_000, 400_000, 30_000_000, 10_000_000
"""A leader is elected; in one scenario a server falls behind; the links are cut; they are whole again."""
CUT_MINUTES = CUT_US / 60_000_000


class Scenario(NamedTuple):
    """Links that are cut. `servers` are letters, of which `leader` leads at that time.

    Only `links` stay. Of these, the direction from the first to the second letter of each pair in `lost` is cut as well. The
    server `behind` has missed the last writes before the cut.
    """

    servers: str
    leader: str
    links: str
    lost: str = ""
    behind: str = ""

    def cuts(self, numbers: dict[str, int]) -> set[Link]:
        """Return the links to cut, each in one direction. `numbers` are the node ids of the letters."""
        kept = {frozenset(link) for link in self.links.split()}
        lost = self.lost.split()
        pairs = [(a, b) for a, b in permutations(self.servers, 2) if frozenset((a, b)) not in kept or a + b in lost]
        return {(numbers[a], numbers[b]) for a, b in pairs}


class PartitionedWorld(ProbedWorld):
    """A quorum in which the scenario happens. `old_epoch` is that of the leader at the cut, at `cut_at_us`."""

    def __init__(self, scenario: Scenario, tuning: RaftTuning, seed: str, transcript: Transcript | None = None) -> None:
        super().__init__(seed, len(scenario.servers), tuning, SETTLE_US + LAG_US + CUT_US + HEALED_US, transcript)
        self._scenario = scenario
        self._roles = self.options.random("roles")
        self.cut_at_us = SETTLE_US + LAG_US
        self.old_epoch = 0

    def begin(self) -> None:
        """Schedule the scenario."""
        super().begin()
        self.start_clients()
        self.after(SETTLE_US, self._choose)

    def _choose(self) -> None:
        """Give the servers of the scenario their node ids."""
        scenario, leader = self._scenario, self.settled_leader()
        others = [node_id for node_id in range(len(scenario.servers)) if node_id != leader.node_id]
        self._roles.shuffle(others)
        numbers = dict(zip(scenario.servers.replace(scenario.leader, ""), others, strict=True)) | {
            scenario.leader: leader.node_id
        }
        if scenario.behind:
            late = numbers[scenario.behind]
            self.cut(pair for pair in permutations(numbers.values(), 2) if late in pair)
        self.after(LAG_US, self._cut, numbers)

    def _cut(self, numbers: dict[str, int]) -> None:
        self.old_epoch = self.settled_leader().quorum.epoch
        self.cut(self._scenario.cuts(numbers))
        self.after(CUT_US, self.cut, ())


def measure(scenario: Scenario, tuning: RaftTuning, seed: str) -> Row:
    """Play one trial and return its numbers."""
    world = PartitionedWorld(scenario, tuning, seed)
    world.run()
    cut_us, healed_us = world.cut_at_us, world.cut_at_us + CUT_US
    rounds = [each for each in world.probes.rounds if cut_us < each.time_us <= healed_us]
    elected = [time_us for time_us, _ in world.probes.elected]
    return {
        "somewhere": sum(bool(each.served) for each in rounds) / len(rounds),
        "clients": sum(len(each.served) for each in rounds) / len(rounds) / len(scenario.servers),
        "longest_outage_ms": max(outages_ms(rounds, cut_us, healed_us)),
        "old_leader_ms": max((each.time_us - cut_us for each in rounds if world.old_epoch in each.leading), default=0) // 1000,
        "leaders": sum(cut_us < time_us <= healed_us for time_us in elected),
        "leaders_after": sum(time_us > healed_us for time_us in elected),
    }


def outages_ms(rounds: list[Round], start_us: int, end_us: int) -> Iterator[int]:
    """Yield the periods between two writes that succeeded, from `start_us` to `end_us`."""
    before_us = start_us
    for time_us in [*(each.time_us for each in rounds if each.served), end_us]:
        yield (time_us - before_us) // 1000
        before_us = time_us


COMMITS, CLIENTS = "time with commits, %", "clients served, %"
OUTAGE, OLD = "longest outage, fetch timeouts", "old leader leads on, fetch timeouts"
LEADERS, AFTER = "new leaders per minute", "new leaders after the heal"
COLUMNS: dict[str, Callable[[Rows, str], Estimate]] = {
    COMMITS: lambda rows, line: mean_of([100 * share for share in column(rows, "somewhere", line)]),
    CLIENTS: lambda rows, line: mean_of([100 * share for share in column(rows, "clients", line)]),
    OUTAGE: lambda rows, line: median_of([ms / FETCH_TIMEOUT_MS for ms in column(rows, "longest_outage_ms", line)]),
    OLD: lambda rows, line: median_of([ms / FETCH_TIMEOUT_MS for ms in column(rows, "old_leader_ms", line)]),
    LEADERS: lambda rows, line: mean_of([count / CUT_MINUTES for count in column(rows, "leaders", line)]),
    AFTER: lambda rows, line: mean_of(column(rows, "leaders_after", line)),
}
"""The numbers of a line by their labels."""
