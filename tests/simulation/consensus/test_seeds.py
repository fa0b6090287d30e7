"""Every invariant holds after every event under all faults, and after the heal the cluster comes together."""

from __future__ import annotations

from collections import Counter

import pytest

from kraftlab.simulation.consensus import faults
from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.process import SimulatedProcess
from kraftlab.simulation.consensus.runner import Tally, report, run_seed
from kraftlab.simulation.consensus.simulated_file_system import SimulatedFileSystem
from kraftlab.simulation.consensus.transcript import Transcript

SEEDS = 30
"""Number of seeds, the same each time. `make nightly` plays thousands of new ones."""
EXPECTED = {
    "a link cut in one direction only",
    "a request that arrives twice",
    "requests that overtake each other",
    "power gone between two effects of one step",
    "power gone during a flush",
    "power gone during the store of an election state",
    "a recovery cut short",
    "a directory entry lost",
    "a replaced or removed file back again",
    "a tail torn",
}
NOTES = {
    "loses power: between two effects": "power gone between two effects of one step",
    "loses power: while it flushes": "power gone during a flush",
    "loses power: while it stores": "power gone during the store of an election state",
    "does not come up: PowerCut": "a recovery cut short",
    "; cut /": "a tail torn",
}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    seen: Counter[str] = Counter()
    cut, receive, note, crash = faults.cut_links, SimulatedProcess.receive, Transcript.note, SimulatedFileSystem.crash
    newest: dict[tuple[object, object], int] = {}

    def counting_cut(world, pairs, duration_us):
        seen["a link cut in one direction only"] += any((b, a) not in pairs for a, b in pairs)
        cut(world, pairs, duration_us)

    def counting_receive(self, inbound):
        way, before = (inbound.caller, self), newest.get((inbound.caller, self), 0)
        seen["a request that arrives twice"] += inbound.correlation == before
        seen["requests that overtake each other"] += inbound.correlation < before
        newest[way] = max(before, inbound.correlation)
        receive(self, inbound)

    def counting_note(self, time_us, text):
        for part, what in NOTES.items():
            seen[what] += part in text
        note(self, time_us, text)

    def counting_crash(self, *, power_cut):
        before = dict(self._names)
        crash(self, power_cut=power_cut)
        seen["a directory entry lost"] += bool(before.keys() - self._names.keys())
        seen["a replaced or removed file back again"] += any(before.get(p) is not inode for p, inode in self._names.items())

    monkeypatch.setattr(faults, "cut_links", counting_cut)
    monkeypatch.setattr(SimulatedProcess, "receive", counting_receive)
    monkeypatch.setattr(Transcript, "note", counting_note)
    monkeypatch.setattr(SimulatedFileSystem, "crash", counting_crash)
    return seen


def test_thirty_seeds_meet_every_kind_of_trouble_and_break_no_rule(seen: Counter[str]):
    results = [run_seed(seed) for seed in range(SEEDS)]
    failures = [f"seed {r.seed}: {r.violations[0]}\n" + "\n".join(r.tail) for r in results if not r.ok]
    assert not failures, "\n\n".join(failures)
    assert {fault for r in results for fault in r.faults} == set(FAULTS), "a fault was never drawn"
    assert {r.voters for r in results} == {1, 2, 3, 4, 5}
    assert {r.observers for r in results} == {0, 1, 2, 3}
    assert sum(r.acknowledged for r in results) > 20 * SEEDS, "the workload hardly got anything committed"
    assert sum(r.mended_logs for r in results) > SEEDS // 10, "recovery hardly ever found a torn tail"
    assert sum(r.epochs for r in results) > 2 * SEEDS, "leaders hardly ever changed"
    tally = Tally(results)
    assert tally.failed_seeds == []
    assert report(tally).startswith(f"{SEEDS} seeds, all invariants held")
    assert {what for what, count in seen.items() if count} == EXPECTED, "what hardly ever happens is not tested"


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_alone_is_survived(fault):
    result = run_seed(1, faults=[fault], fault_phase_ms=3_000)
    assert result.ok, f"{result.violations[0]}\n" + "\n".join(result.tail)
