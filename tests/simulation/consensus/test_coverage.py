"""The seeds really meet the trouble that the simulator is for: what hardly ever happens is not tested."""

from __future__ import annotations

from collections import Counter

import pytest

from kraftlab.simulation.consensus import faults
from kraftlab.simulation.consensus.process import SimulatedProcess
from kraftlab.simulation.consensus.runner import run_seed
from kraftlab.simulation.consensus.simulated_file_system import SimulatedFileSystem
from kraftlab.simulation.consensus.transcript import Transcript

SEEDS_MAX = 120
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


def test_every_kind_of_trouble_is_met(seen: Counter[str]) -> None:
    for seed in range(SEEDS_MAX):
        assert run_seed(seed).ok
        if {what for what, count in seen.items() if count} == EXPECTED:
            return
    raise AssertionError(f"not met in {SEEDS_MAX} seeds: {[what for what in EXPECTED if not seen[what]]}")
