"""A run as steps to go through: one for each line of its trace, for each strike of a fault, and for each note of the world.

A step holds the variables that differ from those after the node's previous step, so a reader folds the steps from the first one
on. A message and its receipts are one object here, so a receipt names the step that sent it, even between equal messages. A
message without a receipt was lost, or its receiver was down; one with two receipts was doubled or replayed.
"""

from __future__ import annotations

import re
from collections import deque

import msgspec

from kraftlab.quorum.core.effects import Effects, Reply, Send
from kraftlab.quorum.core.events import RequestReceived, ResponseReceived
from kraftlab.quorum.core.local_log import LocalLog
from kraftlab.quorum.core.quorum_state import State

from .options import SimulationOptions, Strike
from .transcript import Transcript
from .world import World

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
    """An event of the trace with the trace's names (quorum/trace.py), a "strike" of `fault` that has `hit` nodes, a "note" of the
    world, or the "verdict" at the end. A node that starts finds `batches` on its disk. A receipt has the number
    of the step that sent the message, `sent_in`, instead of the message, unless it came from outside. `weather` is there when it
    changes.
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


class StepRecorder(Transcript):
    """Keeps the first `most` steps of a world, of `total`. Give `make_world` and `line` to `runner.play`, once."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.is_read = True
        self.total = 0
        self.kept: list[Step] = []
        self._most = most
        self._world: World | None = None
        self._strike_notes: list[str] | None = None
        """Notes of the strike that is under way."""
        self._start_note = ""
        self._known: dict[int, dict[str, object]] = {}
        self._weather = Weather()
        self._messages: deque[object] = deque()
        """Messages of the node's step, in the order of their lines in the trace."""
        self._sent: dict[tuple[int, int, int], tuple[int, object]] = {}
        """Steps by message, sender and receiver (-1: any). The message is kept, so that no other one gets its identity."""

    def make_world(self, options: SimulationOptions, transcript: Transcript) -> World:
        self._world = world = _RecordedWorld(options, self)
        return world

    def show(self, time_us: int, node_id: int, event: object, state: State, log: LocalLog, effects: Effects) -> None:
        self._messages.clear()
        if isinstance(event, RequestReceived | ResponseReceived):
            self._messages.append(event.request if isinstance(event, RequestReceived) else event.response)
        for each in effects:
            if isinstance(each, Send | Reply):
                self._messages.append(each.request if isinstance(each, Send) else each.response)

    def note(self, time_us: int, text: str) -> None:
        found = re.match(r"n(\d+) (starts)?", text)
        if self._strike_notes is not None:
            self._strike_notes.append(text)
        elif found and found[2]:
            self._start_note = text
        elif self.total:
            self.add(Step(time_us=time_us, event="note", node=int(found[1]) if found else -1, text=text))

    def struck(self, time_us: int, fault: str, hit: tuple[int, ...]) -> None:
        text, self._strike_notes = "; ".join(self._strike_notes or ()), None
        self.add(Step(time_us=time_us, event="strike", text=text, fault=fault, hit=hit))

    def begin_strike(self) -> None:
        self._strike_notes = []

    def line(self, text: str) -> None:
        """Add the step of a line of the trace."""
        if self.total >= self._most:
            self.total += 1
            return
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
            if sent is not None:
                more = {"peer": peer, "sent_in": sent[0], **({"awaited": line["awaited"]} if event == "answer" else {})}
        elif event == "boot" and self._world is not None:
            log = self._world.machines[node].durable
            more["batches"] = [(*batch, None) for batch in zip(log.epochs, log.ends, log.crcs, strict=True)]
        said = self._start_note if event == "boot" else "" if "sent_in" in more else line.get("about") or line.get("why", "")
        self.add(Step(time_us=line["time_us"], event=event, node=node, changed=changed, text=said, **more))

    def add(self, step: Step) -> None:
        """Add a step, with the weather if that has changed."""
        self.total += 1
        if self.total <= self._most and self._world is not None:
            weather = _weather(self._world, step.node if step.event == "boot" else None)
            self.kept.append(step if weather == self._weather else msgspec.structs.replace(step, weather=weather))
            self._weather = weather


class _RecordedWorld(World):
    """A world whose strikes become steps of its recorder."""

    def __init__(self, options: SimulationOptions, recorder: StepRecorder) -> None:
        super().__init__(options, recorder)
        self._recorder = recorder

    def strike_with(self, strike: Strike) -> tuple[int, ...]:
        self._recorder.begin_strike()
        hit = super().strike_with(strike)
        self._recorder.struck(self.now_us, strike.fault, hit)
        return hit


def _weather(world: World, starting: int | None) -> Weather:
    """Return the faults in force. The node that is `starting` is up, although its process is not ready."""
    troubles: dict[int, str] = {}
    for machine in world.machines:
        disk, node = machine.file_system, machine.node_id
        if disk.broken or disk.full or disk.refuses_names or node in world.disk_slowness:
            troubles[node] = (
                "fails" if disk.broken else "full" if disk.full else "refuses names" if disk.refuses_names else "slow"
            )
    return Weather(
        down=tuple(each.node_id for each in world.machines if each.process is None and each.node_id != starting),
        paused=tuple(each.node_id for each in world.machines if each.paused_until_us > world.now_us),
        cut=world.network.cuts,
        held=world.network.held,
        disks=troubles,
    )
