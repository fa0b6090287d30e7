"""The language of the golden transcripts: a line per command, what came of it right below (after etcd-raft's `testdata`).

Theory of operation. A file is a list of blocks. A block is comments (`#`), commands, a line `----`, and the expected output up to
the next empty line. `replay` runs all commands of a file in order on one ScriptedCluster and returns the file with the output
that they have now; it is equal to the file as long as consensus does what the file says. Commands are rows of a table:
`COMMANDS` names each with its arguments and its meaning, and docs/transcripts.md is that table for people.

A command that can not be carried out (no such node, a node that is down) says so in its output; a command that does not exist is
a ValueError with file and line, for then the file is wrong and not the core.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from kraftlab.quorum.core import ElectionState, OffsetAndEpoch, Voter
from kraftlab.quorum.core.batch import ControlRecord, KRaftVoters, LeaderChange, decode, decode_control
from kraftlab.quorum.core.effects import StoreElectionState
from kraftlab.quorum.core.events import (
    Propose,
    ReadIndexAsked,
    ResignAsked,
    ShutdownAsked,
    StorageFailed,
    TimerFired,
)
from kraftlab.quorum.core.leader import Leader
from kraftlab.quorum.core.messages import AddVoterRequest, RemoveVoterRequest, TransferLeadershipRequest
from kraftlab.quorum.core.states import Candidate, Follower, Prospective, Resigned, Unattached
from kraftlab.quorum.core.types import NEVER_MS

from .cluster import Envelope, ScriptedCluster, batches_of_epochs, key_of

SEPARATOR = "----"


class Block(NamedTuple):
    """`head`: comments and commands as written; `commands`: (line number, command)."""

    head: list[str]
    commands: list[tuple[int, str]]


def parse(text: str) -> list[Block]:
    """The blocks of a file; the old output is dropped."""
    blocks: list[Block] = []
    head: list[str] = []
    commands: list[tuple[int, str]] = []
    in_output = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if in_output and line.strip():
            continue
        if line.strip() == SEPARATOR and not in_output:
            in_output = True
        elif not line.strip():
            if head:
                blocks.append(Block(head, commands))
            head, commands, in_output = [], [], False
        else:
            head.append(line.rstrip())
            if not line.startswith("#"):
                commands.append((number, line))
    return blocks


def replay(text: str, name: str = "transcript") -> str:
    """`text` with the output its commands have now. ValueError: a command that does not exist, with `name` and line."""
    interpreter = Interpreter()
    parts = []
    for block in parse(text):
        lines = list(block.head)
        if block.commands:
            output: list[str] = []
            for number, command in block.commands:
                try:
                    output += interpreter.run(command)
                except UnknownCommand as error:
                    raise ValueError(f"{name}:{number}: {error}") from error
            lines += [SEPARATOR, *(output or ["ok"])]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


class UnknownCommand(ValueError):
    """No row of COMMANDS has this name."""


class Interpreter:
    """Runs commands, one line each, on a cluster of its own."""

    def __init__(self) -> None:
        self.cluster = ScriptedCluster()
        self._reads = 0

    def run(self, line: str) -> list[str]:
        """The output of one command."""
        name, *arguments = shlex.split(line)
        is_quiet = name == "quiet" and bool(arguments)
        if is_quiet:
            name, *arguments = arguments
        command = _BY_NAME.get(name)
        if command is None:
            raise UnknownCommand(f"{name!r} is no command; there are {', '.join(sorted(_BY_NAME))}")
        self.cluster.lines = []
        try:
            command.run(self, arguments)
        except ValueError as error:
            return [f"error: {error}"]
        return [] if is_quiet else self.cluster.lines

    def _say(self, line: str) -> None:
        self.cluster.lines.append(line)

    def _ids(self, arguments: list[str]) -> list[int]:
        return [node_id_of(argument) for argument in arguments] or list(self.cluster.hosts)

    # Nodes

    def add_nodes(self, arguments: list[str]) -> None:
        words = [argument for argument in arguments if "=" not in argument]
        settings = {name: int(value) for name, value in (a.split("=", 1) for a in arguments if "=" in a)}
        self.cluster.add_nodes(int(words[0]), settings.pop("observers", 0), dynamic="dynamic" in words, **settings)
        if "stopped" not in words:
            self.start([])

    def write_disk(self, arguments: list[str]) -> None:
        host = self.cluster.host(node_id_of(arguments[0]))
        options = dict(argument.split("=", 1) for argument in arguments[1:])
        epochs = [int(epoch) for epoch in options.get("log", "").split(",") if epoch]
        host.disk = batches_of_epochs(epochs)
        if "epoch" in options:
            vote = key_of(int(options["vote"])) if "vote" in options else None
            host.stored = ElectionState(int(options["epoch"]), int(options.get("leader", -1)), vote)
        self.durable([arguments[0]])

    def start(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            self.cluster.start(node_id)

    def crash(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            if self.cluster.host(node_id).node:
                self.cluster.crash(node_id)

    def wipe(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            host = self.cluster.host(node_id)
            if host.is_up:
                raise ValueError(f"node {node_id} is up; crash it before its disk is wiped")
            host.wipe()

    def move(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            host = self.cluster.host(node_id)
            if host.is_up:
                raise ValueError(f"node {node_id} is up; crash it before it moves")
            host.move()

    def rot(self, arguments: list[str]) -> None:
        host, offset = self.cluster.host(node_id_of(arguments[0])), int(arguments[1])
        if host.is_up or not host.disk:
            raise ValueError(f"node {arguments[0]} is up, or its log is empty; crash it before its disk rots")
        host.rot(offset)
        self.durable([arguments[0]])

    # Snapshots

    def take_snapshot(self, arguments: list[str]) -> None:
        options = dict(argument.split("=", 1) for argument in arguments[1:])
        offset = int(options["offset"]) if "offset" in options else None
        self.cluster.take_snapshot(node_id_of(arguments[0]), offset, int(options.get("size", 0)))

    def snapshot_io(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            self.cluster.complete_snapshot_work(node_id)

    def damage_snapshots(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            self.cluster.host(node_id).snapshots.damage()

    def lose_snapshots(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            self.cluster.host(node_id).snapshots.finished.clear()

    def campaign(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            node = self.cluster.host(node_id).node
            state = node.state
            if not node.may_stand:
                reason = "repairs its log and does not stand" if node.is_repairing else "is an observer; it never stands"
                raise ValueError(f"node {node_id} {reason}")
            if isinstance(state, Follower):
                state.fetch_deadline_ms = self.cluster.now_ms
            elif isinstance(state, Unattached | Prospective | Candidate | Resigned):
                state.election_deadline_ms = self.cluster.now_ms
            else:
                raise ValueError(f"node {node_id} leads; it has no election to call")
            self.cluster.step(node_id, TimerFired(), f"n{node_id} runs out of patience")

    def set_randomized_election_timeout(self, arguments: list[str]) -> None:
        host = self.cluster.host(node_id_of(arguments[0]))
        host.jitter_ms = int(arguments[1]) - host.config.election_timeout_ms
        if not 0 <= host.jitter_ms < host.config.election_timeout_ms:
            longest_ms = 2 * host.config.election_timeout_ms - 1
            raise ValueError(f"{arguments[1]} ms is not between {host.config.election_timeout_ms} and {longest_ms}")
        host.random.jitter_ms = host.jitter_ms

    def propose(self, arguments: list[str]) -> None:
        node_id, words = node_id_of(arguments[0]), arguments[1:]
        body = msgspec.msgpack.encode([_inflated(word) for word in words])
        node = self.cluster.host(node_id).node
        self.cluster.step(node_id, Propose(node.epoch, body, len(words)), f"n{node_id} is asked to append {' '.join(words)}")

    def read(self, arguments: list[str]) -> None:
        node_id = node_id_of(arguments[0])
        self._reads += 1
        self.cluster.step(node_id, ReadIndexAsked(self._reads), f"n{node_id} is asked for linearizable read t{self._reads}")

    def resign(self, arguments: list[str]) -> None:
        node_id = node_id_of(arguments[0])
        epoch = self.cluster.host(node_id).node.epoch
        self.cluster.step(node_id, ResignAsked(epoch, "asked to"), f"n{node_id} is asked to resign")

    def shutdown(self, arguments: list[str]) -> None:
        node_id = node_id_of(arguments[0])
        self.cluster.step(node_id, ShutdownAsked(), f"n{node_id} is asked to shut down")

    # Voters

    def add_voter(self, arguments: list[str]) -> None:
        node_id, target_id, timeout_ms = self._asked(arguments)
        voter = Voter(self.cluster.host(target_id).config.key, {})
        self.cluster.ask(node_id, AddVoterRequest(-1, voter, timeout_ms), f"n{node_id} is asked to add node {target_id}")

    def remove_voter(self, arguments: list[str]) -> None:
        node_id, target_id, timeout_ms = self._asked(arguments)
        voter = self.cluster.host(node_id).node.voters.get(target_id)
        key = voter.key if voter else self.cluster.host(target_id).config.key
        self.cluster.ask(node_id, RemoveVoterRequest(-1, key, timeout_ms), f"n{node_id} is asked to remove node {target_id}")

    def transfer_leadership(self, arguments: list[str]) -> None:
        node_id, target_id, timeout_ms = self._asked(arguments)
        key = self.cluster.host(target_id).config.key
        title = f"n{node_id} is asked to make way for node {target_id}"
        self.cluster.ask(node_id, TransferLeadershipRequest(-1, key, timeout_ms), title)

    def _asked(self, arguments: list[str]) -> tuple[int, int, int]:
        options = dict(argument.split("=", 1) for argument in arguments[2:])
        return node_id_of(arguments[0]), node_id_of(arguments[1]), int(options.get("timeout", 5_000))

    def voters(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            node = self.cluster.host(node_id).node
            where = f"at {node.voters_offset}" if node.voters_offset >= 0 else "not in the log"
            self._say(f"n{node_id} {node.voters!r} {where}{'' if node.is_voter else ', not itself'}")

    # Disks

    def hold(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            self.cluster.host(node_id).is_held = True

    def release(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            self.cluster.release(node_id)

    def fsync(self, arguments: list[str]) -> None:
        limit = int(arguments[1].lstrip("a")) if len(arguments) > 1 else 1 << 60
        self.cluster.complete(
            node_id_of(arguments[0]), lambda op: not isinstance(op, StoreElectionState) and op.append_id <= limit
        )

    def store(self, arguments: list[str]) -> None:
        self.cluster.complete(node_id_of(arguments[0]), lambda op: isinstance(op, StoreElectionState))

    def storage_failed(self, arguments: list[str]) -> None:
        node_id = node_id_of(arguments[0])
        self.cluster.step(node_id, StorageFailed("no space left on device"), f"n{node_id} cannot write: its disk is full")

    # Messages

    def deliver(self, arguments: list[str]) -> None:
        for envelope in self._pick(arguments):
            self.cluster.deliver(envelope)

    def stabilize(self, arguments: list[str]) -> None:
        ids = set(self._ids(arguments))
        self.cluster.deliver_all(lambda envelope: envelope.source in ids and envelope.target in ids)

    def drop(self, arguments: list[str]) -> None:
        for envelope in self._pick(arguments) if arguments else list(self.cluster.in_flight):
            self.cluster.in_flight.remove(envelope)
            self._say(f"{envelope!r} (dropped)")

    def duplicate(self, arguments: list[str]) -> None:
        for envelope in self._pick(arguments):
            self.cluster.in_flight.append(Envelope(envelope.source, envelope.target, envelope.call, envelope.payload))
            self._say(f"{envelope!r} (twice)")

    def delay(self, arguments: list[str]) -> None:
        for envelope in self._pick(arguments):
            self.cluster.in_flight.remove(envelope)
            self.cluster.delayed.append(envelope)
            self._say(f"{envelope!r} (delayed)")

    def arrive(self, arguments: list[str]) -> None:
        for envelope in self._pick(arguments, self.cluster.delayed):
            self.cluster.delayed.remove(envelope)
            self.cluster.deliver(envelope)

    def refuse(self, arguments: list[str]) -> None:
        for envelope in self._pick(arguments):
            self._say(f"{envelope!r} (refused)")
            self.cluster.refuse(envelope)

    def cut(self, arguments: list[str]) -> None:
        self.cluster.cut(link for argument in arguments for link in self._links(argument))

    def heal(self, arguments: list[str]) -> None:
        self.cluster.cuts -= {link for argument in arguments or ["*<->*"] for link in self._links(argument)}

    def _links(self, argument: str) -> list[tuple[int, int]]:
        both = "<->" in argument
        left, arrow, right = argument.partition("<->" if both else "->")
        if not arrow:
            raise ValueError(f"{argument!r} is no link; write 1->2, 1<->2 or 1<->*")
        pairs = [(a, b) for a in self._side(left) for b in self._side(right) if a != b]
        return pairs + [(b, a) for a, b in pairs] if both else pairs

    def _side(self, text: str) -> list[int]:
        return list(self.cluster.hosts) if text == "*" else [node_id_of(word) for word in text.split(",")]

    def _pick(self, arguments: list[str], pool: list[Envelope] | None = None) -> list[Envelope]:
        links: set[tuple[int, int]] | None = None
        kinds: set[str] = set()
        for argument in arguments:
            if "->" in argument:
                links = (links or set()) | set(self._links(argument))
            elif argument != "first":
                kinds.add(argument)
        pool = self.cluster.in_flight if pool is None else pool
        picked = [e for e in pool if (links is None or (e.source, e.target) in links) and (not kinds or e.kind in kinds)]
        if not picked:
            raise ValueError("there is no such message")
        return picked[:1] if "first" in arguments else picked

    # Time

    def tick(self, arguments: list[str]) -> None:
        self.cluster.pass_time(int(arguments[0]), deliver=False)

    def run_for(self, arguments: list[str]) -> None:
        self.cluster.pass_time(int(arguments[0]), deliver=True)

    # What can be seen

    def state(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            host = self.cluster.host(node_id)
            self._say(repr(host.node) if host.is_up else f"n{node_id} down")

    def log(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            host = self.cluster.host(node_id)
            drawn = _drawn(host.batches, host.node.log.start, host.node.durable_end_offset)
            self._say(f"n{node_id} hw={host.node.high_watermark} {drawn}")

    def durable(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            host = self.cluster.host(node_id)
            snapshots = f"; snapshots {', '.join(map(repr, sorted(host.snapshots.finished)))}" if host.snapshots.finished else ""
            repair = f"; to be repaired up to {host.repair_until}" if host.repair_until else ""
            election = host.stored or "no election state"
            self._say(f"n{node_id} disk: {election}; {_drawn(host.disk, host.start)}{snapshots}{repair}")

    def messages(self, arguments: list[str]) -> None:
        for envelope in self.cluster.in_flight:
            self._say(repr(envelope))
        for envelope in self.cluster.delayed:
            self._say(f"{envelope!r} (delayed)")
        if not self.cluster.lines:
            self._say("nothing on its way")

    def outbox(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            host = self.cluster.host(node_id)
            self._say(f"n{node_id} {host.node and host.outbox!r}")
            for message in host.held:
                what = message.request if not hasattr(message, "response") else message.response
                self._say(f"  {what!r} {message.after!r}")

    def timers(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            state = self.cluster.host(node_id).node.state
            if isinstance(state, Follower):
                name, deadline_ms = "fetch", state.fetch_deadline_ms
            elif isinstance(state, Leader):
                name, deadline_ms = "check-quorum", state.check_quorum_deadline_ms
            else:
                name, deadline_ms = "election", state.election_deadline_ms
            left = f"{deadline_ms - self.cluster.now_ms} ms" if deadline_ms < NEVER_MS else "never"
            self._say(f"n{node_id} {state.name} e{state.epoch}: {name} timer {left}")

    def progress(self, arguments: list[str]) -> None:
        for node_id in self._ids(arguments):
            node = self.cluster.host(node_id).node
            for kind, rows in (("voter", node.voter_progress(self.cluster.now_ms)), ("observer", node.observer_progress())):
                for row in rows:
                    self._say(f"n{node_id} knows {kind} {row.key!r} end={row.end_offset}")


def node_id_of(word: str) -> int:
    return int(word.removeprefix("n"))


def _inflated(word: str) -> str:
    """`x*1000` is x a thousand times."""
    text, star, count = word.partition("*")
    return text * int(count) if star else word


def _drawn(batches: list[bytes], start: OffsetAndEpoch, durable_end_offset: int | None = None) -> str:
    """`[1:L1 1:x 1:y | 2:z]`: epoch and records of each batch; what stands right of the bar is not durable.

    `[4@1: 1:z]`: the log begins behind snapshot 4@1.
    """
    words = [f"{start}:"] if start.offset else []
    if durable_end_offset is not None and durable_end_offset < start.offset:
        words.insert(0, "|")
    for data in batches:
        header, body, _ = decode(data)
        if durable_end_offset is not None and header.base_offset == durable_end_offset:
            words.append("|")
        if header.is_control:
            records = [word for word in map(_drawn_control, decode_control(body)) if word]
        else:
            records = [_deflated(record) for record in msgspec.msgpack.decode(body, type=list[str])]
        words.append(f"{header.epoch}:{','.join(records)}")
    return f"[{' '.join(words)}]"


def _drawn_control(record: ControlRecord) -> str:
    """L1: node 1 leads from here; {1,2}: these vote from here. A kraft.version goes without saying."""
    if isinstance(record, LeaderChange):
        return f"L{record.leader_id}"
    return repr(record.voters) if isinstance(record, KRaftVoters) else ""


def _deflated(record: str) -> str:
    return record if len(record) <= 16 else f"{record[0]}*{len(record)}"


class Command(NamedTuple):
    """One row of the language."""

    name: str
    arguments: str
    meaning: str
    run: Callable[[Interpreter, list[str]], None]


_FILTER = "[FROM->TO] [KIND…] [first]"
COMMANDS = (
    Command(
        "add-nodes",
        "N [observers=K] [dynamic] [stopped] [SETTING=VALUE…]",
        "voters 1…N, observers after them; dynamic: voters live in the log",
        Interpreter.add_nodes,
    ),
    Command("write-disk", "NODE [log=1,1,2] [epoch=E leader=L vote=V]", "what a stopped node will find", Interpreter.write_disk),
    Command("start", "[NODE…]", "boot from what the disk holds; also after a crash", Interpreter.start),
    Command("crash", "NODE…", "end a process; what is not durable is gone", Interpreter.crash),
    Command("wipe", "NODE…", "empty the disk of a node that is down; its directory id is another one then", Interpreter.wipe),
    Command("move", "NODE…", "a node that is down will be found at another address", Interpreter.move),
    Command(
        "rot", "NODE OFFSET", "a node that is down has lost its log from OFFSET on, and knows how far it went", Interpreter.rot
    ),
    Command(
        "take-snapshot",
        "NODE [offset=O] [size=BYTES]",
        "the shell has taken a snapshot, of all that is committed unless told otherwise",
        Interpreter.take_snapshot,
    ),
    Command("snapshot-io", "NODE…", "a held disk does what the copy of a leader's snapshot waits for", Interpreter.snapshot_io),
    Command("damage-snapshots", "NODE…", "a bit flips in every snapshot, finished or not", Interpreter.damage_snapshots),
    Command("lose-snapshots", "NODE…", "the finished snapshots are gone from the disk", Interpreter.lose_snapshots),
    Command("campaign", "NODE…", "the node's election or fetch timer runs out now", Interpreter.campaign),
    Command(
        "set-randomized-election-timeout",
        "NODE MS",
        "election timers started from now on take so long",
        Interpreter.set_randomized_election_timeout,
    ),
    Command("propose", "NODE RECORD…", "one batch of these records; `x*1000` is a long one", Interpreter.propose),
    Command("read", "NODE", "which offset must a linearizable read reflect?", Interpreter.read),
    Command("resign", "NODE", "the leader is asked to resign", Interpreter.resign),
    Command("shutdown", "NODE", "a graceful stop", Interpreter.shutdown),
    Command("add-voter", "NODE NEW [timeout=MS]", "a client asks NODE to make NEW a voter", Interpreter.add_voter),
    Command("remove-voter", "NODE OLD [timeout=MS]", "a client asks NODE to remove the voter OLD", Interpreter.remove_voter),
    Command(
        "transfer-leadership",
        "NODE TARGET [timeout=MS]",
        "a client asks NODE to make way for TARGET",
        Interpreter.transfer_leadership,
    ),
    Command("hold", "NODE…", "nothing becomes durable until it is told to", Interpreter.hold),
    Command("release", "NODE…", "everything is durable, and from now on at once", Interpreter.release),
    Command("fsync", "NODE [aN]", "staged log operations, up to number N, are durable", Interpreter.fsync),
    Command("store", "NODE", "the staged election states are durable", Interpreter.store),
    Command("storage-failed", "NODE", "the disk is full", Interpreter.storage_failed),
    Command("deliver", _FILTER, "hand over what is on its way now", Interpreter.deliver),
    Command("stabilize", "[NODE…]", "deliver (among these) until nothing is on its way; no time passes", Interpreter.stabilize),
    Command("drop", _FILTER, "lose messages silently", Interpreter.drop),
    Command("duplicate", _FILTER, "each will arrive twice", Interpreter.duplicate),
    Command("delay", _FILTER, "set messages aside", Interpreter.delay),
    Command("arrive", _FILTER, "deliver what was set aside", Interpreter.arrive),
    Command("refuse", _FILTER, "nothing listens at the target of these requests", Interpreter.refuse),
    Command("cut", "LINK…", "links (1->2, 1<->2, 1<->*) lose everything", Interpreter.cut),
    Command("heal", "[LINK…]", "links carry messages again", Interpreter.heal),
    Command("tick", "MS", "time passes: timers and time-outs; nothing is delivered", Interpreter.tick),
    Command("run", "MS", "time passes and messages are delivered at once", Interpreter.run_for),
    Command("state", "[NODE…]", "the state, the high watermark, the log's extent and its durability", Interpreter.state),
    Command("log", "[NODE…]", "the records by epoch; `|` parts durable from not durable", Interpreter.log),
    Command("durable", "[NODE…]", "what a crash would leave", Interpreter.durable),
    Command("messages", "", "what is on its way or set aside", Interpreter.messages),
    Command("outbox", "[NODE…]", "what waits for a disk", Interpreter.outbox),
    Command("timers", "[NODE…]", "how long the node will still wait", Interpreter.timers),
    Command("voters", "[NODE…]", "who votes, as the node's log says", Interpreter.voters),
    Command("progress", "NODE", "what the leader knows of voters and observers", Interpreter.progress),
)
_BY_NAME = {command.name: command for command in COMMANDS}
