"""Three nodes that write a few entries, lose power together, and start again on disks of which some have been damaged.

Node A leads. Some entries are on all three disks, the next ones on those of A and B while C is down, and the last one, never
committed, on that of A. After the power cut the damage is done, and two nodes start, as a majority may: the damaged node and, of
the others, the one that knows less. The third starts later. Each node has a client that writes all the time.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from kraftlab.common.errors import InvariantViolation
from kraftlab.quorum.core.errors import LogTruncationRefused
from kraftlab.quorum.storage import LogCorrupt
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.quorum.storage.metadata_store import Rule
from kraftlab.quorum.storage.recovery import scan_positions
from kraftlab.quorum.storage.segment import HEADER_PAGE_BYTES
from kraftlab.simulation.consensus.durable_log import DurableLog
from kraftlab.simulation.consensus.invariants import Violation
from kraftlab.simulation.consensus.machine import DIRECTORY, Machine
from kraftlab.simulation.consensus.observed import Rot
from kraftlab.simulation.consensus.options import RaftTuning
from kraftlab.simulation.consensus.transcript import Transcript

from .experiment import Row
from .probed_world import BODY, RECORDS, ProbedWorld

NODES = "ABC"
FAULTS = TORN, ROT, LOST, MISDIRECTED = "torn tail", "bit rot", "lost write", "misdirected write"
"""Half of an entry is there and nothing follows; one bit has flipped; nothing was written; a neighbour is in its place."""
SETTLE_US, GAP_US = 3_000_000, 100_000
PATIENCE_US = 6_000_000
"""Ten fetch timeouts: so long two nodes have to answer, and then all three."""
NEVER_US = 1 << 50


class Damage(NamedTuple):
    """The fault that hits an entry on a node's disk. Entry 0 is the one that the leader's epoch begins with."""

    node: str
    entry: int
    fault: str


class Writes(NamedTuple):
    """The number of entries that are written on all three disks, then on those of A and B, then on that of A alone."""

    everywhere: int
    on_two: int
    on_one: int

    def entries(self, node: str) -> int:
        """Return the number of entries on a node's disk."""
        return 1 + self.everywhere + self.on_two * (node != "C") + self.on_one * (node == "A")


class DamagedWorld(ProbedWorld):
    """The three nodes. `together_us` is the time at which all of them have started again, `committed` the offset before that."""

    def __init__(
        self, rule: Rule, writes: Writes, damages: tuple[Damage, ...], seed: str, transcript: Transcript | None = None
    ) -> None:
        self._power_us = SETTLE_US + (sum(writes) + 2) * GAP_US
        self.together_us = self._power_us + GAP_US + PATIENCE_US
        super().__init__(seed, len(NODES), RaftTuning(), self.together_us + PATIENCE_US, transcript)
        self._rule, self._writes, self._damages = rule, writes, damages
        self._dice = self.options.random("damage")
        self.named: dict[str, Machine] = {}
        self.committed = 0

    def begin(self) -> None:
        super().begin()
        self.after(SETTLE_US, self._choose)
        self.after(self._power_us, self._lose_power)

    def _choose(self) -> None:
        """Name the nodes, and schedule the writes."""
        leader = self.settled_leader()
        others = [machine for machine in self.machines if machine is not leader.machine]
        self._dice.shuffle(others)
        a, b, c = machines = (self.machines[leader.node_id], *others)
        self.named = dict(zip(NODES, machines, strict=True))
        for number in range(sum(self._writes)):
            self.after(number * GAP_US + GAP_US // 2, leader.propose, BODY, RECORDS)
        if self._writes.on_two:
            self.after(self._writes.everywhere * GAP_US, self._crash, c)
        links = [(a.node_id, b.node_id), (b.node_id, a.node_id)]
        self.after((self._writes.everywhere + self._writes.on_two) * GAP_US, self.cut, links if self._writes.on_one else ())

    def _crash(self, machine: Machine) -> None:
        machine.crash(power_cut=True, reason="as planned", down_us=NEVER_US)

    def _lose_power(self) -> None:
        self.committed = self.history.end_offset
        for machine in self.machines:
            self._crash(machine)
            machine.rule = self._rule
        self.cut(())
        places = {node: self._places(node) for node in NODES}
        for damage in self._damages:
            self._do(self.named[damage.node], damage, places[damage.node])
        self.after(GAP_US, self._start)

    def _places(self, node: str) -> list[tuple[int, int]]:
        """Return position and size of each entry in the node's file. Rarely there are others before: of a leader before A."""
        machine, expected = self.named[node], self._writes.entries(node)
        data = machine.file_system.read(_segment(machine))
        found = [(position, header.size_bytes) for position, header in scan_positions(data, HEADER_PAGE_BYTES)]
        if len(found) < expected:
            raise AssertionError(f"node {node} has {len(found)} entries before the damage, {self._writes} were planned")
        return found[-expected:]

    def _do(self, machine: Machine, damage: Damage, places: list[tuple[int, int]]) -> None:
        """Damage an entry. The checkers of restarts must not take anything on this disk for certain."""
        files, path = machine.file_system, _segment(machine)
        data = files.read(path)
        position, size = places[damage.entry]
        self.note(f"{damage.fault} of entry {damage.entry} of n{machine.node_id}")
        if damage.fault == TORN:
            files.overwrite(path, position + size // 2, bytes(len(data) - position - size // 2))
        elif damage.fault == ROT:
            files.flip(path, position + self._dice.randrange(size), self._dice.randrange(8))
        elif damage.fault == LOST:
            files.overwrite(path, position, bytes(size))
        else:
            neighbour, _ = places[damage.entry + 1 if damage.entry + 1 < len(places) else damage.entry - 1]
            files.overwrite(path, position, data[neighbour : neighbour + size])
        machine.rot, machine.durable, machine.is_durable_exact = Rot(path, 0, range(0), False), DurableLog(), False

    def _start(self) -> None:
        """Start a majority with a damaged node and one that lacks entries, and the third node after PATIENCE_US."""
        late = "B" if self._damages and self._damages[0].node != "B" else "A"
        for name, machine in self.named.items():
            self.after(PATIENCE_US if self._writes.on_two and name == late else 0, machine.boot)
        self.start_clients()

    def refused_to_start(self, node_id: int, error: LogCorrupt) -> None:
        """Leave the node down."""
        self.note(f"n{node_id} refuses to start: {error}")
        self.machines[node_id].is_gone = True

    def is_back(self, damage: Damage) -> bool:
        """Return True if the damaged node runs with everything that was committed before the power cut."""
        process = self.named[damage.node].process
        return process is not None and not process.raft.is_repairing and process.raft.high_watermark >= self.committed


def _segment(machine: Machine) -> str:
    """Return the path of the one segment that such a short log has."""
    directory = partition_directory(DIRECTORY)
    [name] = [name for name in machine.file_system.names(directory) if name.endswith(".log")]
    return f"{directory}/{name}"


class Outcome(StrEnum):
    """The end of a trial."""

    WELL = "goes on"
    WAITS = "waits for the third node"
    DOWN = "damaged node stays down"
    SILENT = "no answers"
    LOST = "committed entry lost"


def measure(rule: Rule, writes: Writes, damages: tuple[Damage, ...], seed: str, transcript: Transcript | None = None) -> Row:
    """Play one trial and return its numbers. A broken rule of safety ends it: a committed entry is lost then."""
    world = DamagedWorld(rule, writes, damages, seed, transcript)
    violation = ""
    try:
        world.run()
    except (Violation, InvariantViolation, LogTruncationRefused) as error:
        violation = str(error)
    served_us = [each.time_us for each in world.probes.rounds if each.served]
    late_us = [time_us for time_us in served_us if time_us >= world.together_us]
    answers, comes_back = bool(late_us) and not violation, not violation and all(world.is_back(damage) for damage in damages)
    outcome = Outcome.WELL if len(late_us) < len(served_us) else Outcome.WAITS
    if not comes_back:
        outcome = Outcome.DOWN
    if not answers:
        outcome = Outcome.LOST if violation else Outcome.SILENT
    return {
        "outcome": outcome.value,
        "safe": not violation,
        "answers": answers,
        "comes_back": comes_back,
        "violation": violation,
        "silence_ms": (late_us[0] - world.together_us) // 1000 if late_us else -1,
    }
