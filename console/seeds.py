"""A seed of the simulator as a document to step through: a step for each line of the trace, and for each strike of a fault.

A step holds the variables that differ from those after the node's previous step, so a reader folds the steps from the first one
on. In the simulator a message and its receipts are one object, so a receipt names the step that sent it, even between equal
messages. A message without a receipt was lost, or its receiver was down; one with two receipts was doubled or replayed.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from kraftlab.checking.mutant import planted
from kraftlab.quorum.core.effects import Effects, Reply, Send
from kraftlab.quorum.core.events import RequestReceived, ResponseReceived
from kraftlab.quorum.core.local_log import LocalLog
from kraftlab.quorum.core.quorum_state import State
from kraftlab.simulation.consensus.faults import FAULTS
from kraftlab.simulation.consensus.mutants import MUTANTS
from kraftlab.simulation.consensus.options import SimulationOptions, Strike
from kraftlab.simulation.consensus.runner import options_for, play
from kraftlab.simulation.consensus.transcript import Transcript
from kraftlab.simulation.consensus.world import World
from kraftlab.simulation.rules import RULES

STEPS_MAX = 20_000
VARIABLES = ("state", "epoch", "leader", "voted", "end", "hw", "durable", "config")
MORE = ("peer", "message", "m", "awaited", "offset", "start", "batches")
Links = tuple[tuple[int, int], ...]


class Weather(msgspec.Struct, frozen=True, omit_defaults=True):
    """Faults in force: nodes that are down or paused, links that lose or hold messages, and disks in trouble by node."""

    down: tuple[int, ...] = ()
    paused: tuple[int, ...] = ()
    cut: Links = ()
    held: Links = ()
    disks: dict[int, str] = {}


class Step(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One step: an event of the trace (quorum/trace.py), a "strike" of `fault` that has `hit` nodes, a "note" of the simulator,
    or the "verdict". A node that starts finds `batches` on its disk. `sent_in` is the step that sent a received message,
    None if it came from outside. `weather` is there when it changes.
    """

    time_us: int
    event: str
    node: int = -1
    text: str = ""
    changed: dict[str, str | int | list[int]] = {}
    peer: int | None = None
    message: str = ""
    m: dict[str, object] = {}
    sent_in: int | None = None
    awaited: bool | None = None
    offset: int | None = None
    start: int | None = None
    batches: list[tuple[int, int, int, list[int] | None]] = []
    fault: str = ""
    hit: tuple[int, ...] = ()
    weather: Weather | None = None


class SeedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A played seed. `violation` and `rule` are empty if all rules held. Of `total` steps, `steps` has the first STEPS_MAX.
    `faults` and `mutants` are all there are to choose from, with what they do.
    """

    seed: int
    mutant: str | None
    options: SimulationOptions
    ended_us: int
    committed: int
    violation: str
    rule: str
    excuse: str | None
    total: int
    steps: list[Step]
    faults: dict[str, str]
    mutants: dict[str, str]


class _Recorder(Transcript):
    """Makes steps of what a world tells its transcript, and of the lines of its trace."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = True
        self.world: World | None = None
        self.total = 0
        self.made: list[Step] = []
        self.notes: list[str] | None = None
        """Notes of the strike that is under way."""
        self._starts = ""
        self._known: dict[int, dict[str, object]] = {}
        self._weather = Weather()
        self._messages: deque[object] = deque()
        self._sent: dict[tuple[int, int, int], tuple[int, object]] = {}
        """Steps by message, sender and receiver (-1: any). The message is kept, so that no other one gets its identity."""

    def show(self, time_us: int, node_id: int, event: object, state: State, log: LocalLog, effects: Effects) -> None:
        self._messages.clear()
        if isinstance(event, RequestReceived | ResponseReceived):
            self._messages.append(event.request if isinstance(event, RequestReceived) else event.response)
        for each in effects:
            if isinstance(each, Send | Reply):
                self._messages.append(each.request if isinstance(each, Send) else each.response)

    def note(self, time_us: int, text: str) -> None:
        found = re.match(r"n(\d+) (starts)?", text)
        if self.notes is not None:
            self.notes.append(text)
        elif found and found[2]:
            self._starts = text
        elif self.made:
            self.add(Step(time_us=time_us, event="note", node=int(found[1]) if found else -1, text=text))

    def line(self, text: str) -> None:
        line = msgspec.json.decode(text)
        node, event, peer = line["node"], line["event"], line.get("peer", -1)
        known = self._known.setdefault(node, {})
        changed = {name: line[name] for name in VARIABLES if known.get(name) != line[name]}
        known.update(changed)
        more = {name: line[name] for name in MORE if name in line}
        if event in ("send", "reply"):
            message = self._messages.popleft()
            self._sent[id(message), node, peer] = self.total, message
        elif event in ("receive", "answer"):
            message = id(self._messages.popleft())
            sent = self._sent.get((message, peer, node)) or self._sent.get((message, peer, -1))
            more["sent_in"] = None if sent is None else sent[0]
        elif event == "boot" and self.world is not None:
            log = self.world.machines[node].durable
            more["batches"] = [(*batch, None) for batch in zip(log.epochs, log.ends, log.crcs, strict=True)]
        said = self._starts if event == "boot" else line.get("about") or line.get("why", "")
        self.add(Step(time_us=line["time_us"], event=event, node=node, changed=changed, text=said, **more))

    def add(self, step: Step) -> None:
        """Add a step with the weather, if that has changed. Steps beyond the most are only counted."""
        self.total += 1
        if self.total <= STEPS_MAX and self.world is not None:
            weather = _weather(self.world, step.node if step.event == "boot" else None)
            self.made.append(step if weather == self._weather else msgspec.structs.replace(step, weather=weather))
            self._weather = weather


def _weather(world: World, starting: int | None) -> Weather:
    slow = world.disk_slowness
    files = {each.node_id: each.file_system for each in world.machines}
    troubles = {
        node: "fails" if disk.broken else "full" if disk.full else "refuses names" if disk.refuses_names else "slow"
        for node, disk in files.items()
        if disk.broken or disk.full or disk.refuses_names or slow.get(node)
    }
    return Weather(
        down=tuple(each.node_id for each in world.machines if each.process is None and each.node_id != starting),
        paused=tuple(each.node_id for each in world.machines if each.paused_until_us > world.now_us),
        cut=world.network.cuts,
        held=world.network.held,
        disks=troubles,
    )


class _RecordedWorld(World):
    """A world whose strikes become steps."""

    recorder: _Recorder

    def strike_with(self, strike: Strike) -> tuple[int, ...]:
        self.recorder.notes = []
        hit = super().strike_with(strike)
        text, self.recorder.notes = "; ".join(self.recorder.notes), None
        self.recorder.add(Step(time_us=self.now_us, event="strike", text=text, fault=strike.fault, hit=hit))
        return hit


def seed_document(seed: int, faults: Iterable[str] | None = None, mutant: str | None = None) -> SeedDocument:
    """Play a seed with these faults at most (None: all), and a planted bug. ValueError: there is no such fault or bug."""
    chosen = None if faults is None else tuple(faults)
    for kind, names, known in (("fault", chosen or (), FAULTS), ("mutant", (mutant,) if mutant else (), MUTANTS)):
        for name in names:
            if name not in known:
                raise ValueError(f"there is no {kind} {name!r}; choose from: {', '.join(known)}")
    bug, recorder = MUTANTS[mutant] if mutant else None, _Recorder()

    def make(options: SimulationOptions, transcript: Transcript) -> World:
        recorder.world = world = _RecordedWorld(options, recorder)
        world.recorder = recorder
        return world

    options = options_for(bug, seed, chosen)
    with planted(bug):
        result = play(options, trace=recorder.line, make_world=make, with_tail=False)
    violation = "; ".join(result.violations)
    recorder.add(Step(time_us=result.ended_us, event="verdict", text=violation))
    return SeedDocument(
        seed=seed,
        mutant=mutant,
        options=options,
        ended_us=result.ended_us,
        committed=result.committed,
        violation=violation,
        rule=RULES.get(result.rule, ""),
        excuse=result.excuse,
        total=recorder.total,
        steps=recorder.made,
        faults={name: " ".join((fault.strike.__doc__ or "").partition(". ")[0].split()) for name, fault in FAULTS.items()},
        mutants={name: each.why for name, each in MUTANTS.items()},
    )


def main(arguments: Sequence[str]) -> None:
    """Write the document of a seed to stdout: SEED, FAULTS separated by commas or "", and a MUTANT or "". Exit code 2 with the
    reason for unknown names.
    """
    seed, faults, mutant = arguments
    names = None if not faults else () if faults == "none" else faults.split(",")
    try:
        document = seed_document(int(seed), names, mutant or None)
    except ValueError as error:
        sys.stderr.write(str(error))
        sys.exit(2)
    sys.stdout.buffer.write(msgspec.json.encode(document))


if __name__ == "__main__":
    main(sys.argv[1:])
