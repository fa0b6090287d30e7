"""The language of the golden transcripts: commands, and their output right below (after etcd-raft's `testdata`).

Theory of operation. A file is a list of blocks. A block is comments (`#`), commands, a line `----`, and the expected output up to
the next empty line. `replay` runs all commands of a file in order on one ScriptedCluster and returns the file with the current
output. The result equals the file as long as consensus does what the file says. `COMMANDS` has each command with its arguments
and its meaning; docs/transcripts.md is that table for people.

A command that cannot be carried out (an unknown node, a node that is down) prints an error. A command that does not exist is a
ValueError with file and line, since then the file is wrong and not the core.
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
    """A block of a file. `head`: comments and commands as written; `commands`: (line number, command)."""

    head: list[str]
    commands: list[tuple[int, str]]


def parse(text: str) -> list[Block]:
    """Return the blocks of a file, without their output."""
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
    """Return `text` with the current output of its commands. ValueError: a command does not exist, with `name` and line."""
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
    """A command that is not in COMMANDS."""


Run = Callable[["Interpreter", list[str]], None]
RunOnNode = Callable[["Interpreter", int], None]


class Command(NamedTuple):
    """A row of the language."""

    arguments: str
    meaning: str
    run: Run


COMMANDS: dict[str, Command] = {}
"""The language by the names of its commands."""
_FILTER = "[FROM->TO] [KIND…] [first]"


def command(name: str, arguments: str, meaning: str) -> Callable[[Run], Run]:
    """Decorate the method that runs the command."""

    def add(run: Run) -> Run:
        COMMANDS[name] = Command(arguments, meaning, run)
        return run

    return add


def node_command(name: str, arguments: str, meaning: str) -> Callable[[RunOnNode], RunOnNode]:
    """Decorate the method that runs the command on one node. Without arguments, the command runs on all nodes."""

    def add(run: RunOnNode) -> RunOnNode:
        def run_on_each(interpreter: Interpreter, words: list[str]) -> None:
            for node_id in interpreter.ids(words):
                run(interpreter, node_id)

        COMMANDS[name] = Command(arguments, meaning, run_on_each)
        return run

    return add


class Interpreter:
    """Runs commands, one line each, on a cluster of its own."""

    def __init__(self) -> None:
        self.cluster = ScriptedCluster()
        self._reads = 0

    def run(self, line: str) -> list[str]:
        """Run one command and return its output."""
        name, *arguments = shlex.split(line)
        is_quiet = name == "quiet" and bool(arguments)
        if is_quiet:
            name, *arguments = arguments
        command = COMMANDS.get(name)
        if command is None:
            raise UnknownCommand(f"{name!r} is not a command; there are {', '.join(sorted(COMMANDS))}")
        self.cluster.lines = []
        try:
            command.run(self, arguments)
        except ValueError as error:
            return [f"error: {error}"]
        return [] if is_quiet else self.cluster.lines

    def _say(self, line: str) -> None:
        self.cluster.lines.append(line)

    def ids(self, arguments: list[str]) -> list[int]:
        return [node_id_of(argument) for argument in arguments] or list(self.cluster.hosts)

    # Nodes

    @command(
        "add-nodes",
        "N [observers=K] [dynamic] [stopped] [SETTING=VALUE…]",
        "voters 1…N, observers after them; dynamic: voters live in the log",
    )
    def add_nodes(self, arguments: list[str]) -> None:
        words = [argument for argument in arguments if "=" not in argument]
        settings = {name: int(value) for name, value in _options([a for a in arguments if "=" in a]).items()}
        self.cluster.add_nodes(int(words[0]), settings.pop("observers", 0), dynamic="dynamic" in words, **settings)
        if "stopped" not in words:
            for node_id in self.cluster.hosts:
                self.start(node_id)

    @command("write-disk", "NODE [log=1,1,2] [epoch=E leader=L vote=V]", "what a stopped node will find")
    def write_disk(self, arguments: list[str]) -> None:
        host = self.cluster.host(node_id_of(arguments[0]))
        options = _options(arguments[1:])
        epochs = [int(epoch) for epoch in options.get("log", "").split(",") if epoch]
        host.disk = batches_of_epochs(epochs)
        if "epoch" in options:
            vote = key_of(int(options["vote"])) if "vote" in options else None
            host.stored = ElectionState(int(options["epoch"]), int(options.get("leader", -1)), vote)
        self.durable(node_id_of(arguments[0]))

    @node_command("start", "[NODE…]", "boot from what the disk holds; also after a crash")
    def start(self, node_id: int) -> None:
        self.cluster.start(node_id)

    @node_command("crash", "NODE…", "end a process; what is not durable is gone")
    def crash(self, node_id: int) -> None:
        if self.cluster.host(node_id).node:
            self.cluster.crash(node_id)

    @node_command("wipe", "NODE…", "empty the disk of a node that is down; it gets another directory id")
    def wipe(self, node_id: int) -> None:
        host = self.cluster.host(node_id)
        if host.is_up:
            raise ValueError(f"node {node_id} is up; crash it before its disk is wiped")
        host.wipe()

    @node_command("move", "NODE…", "change the address of a node that is down")
    def move(self, node_id: int) -> None:
        host = self.cluster.host(node_id)
        if host.is_up:
            raise ValueError(f"node {node_id} is up; crash it before it moves")
        host.move()

    @command("rot", "NODE OFFSET", "a node that is down loses its log from OFFSET on; recovery will know its former end")
    def rot(self, arguments: list[str]) -> None:
        host, offset = self.cluster.host(node_id_of(arguments[0])), int(arguments[1])
        if host.is_up or not host.disk:
            raise ValueError(f"node {arguments[0]} is up, or its log is empty; crash it before its disk rots")
        host.rot(offset)
        self.durable(node_id_of(arguments[0]))

    # Snapshots

    @command(
        "take-snapshot",
        "NODE [offset=O] [size=BYTES]",
        "the node has taken a snapshot, by default of everything committed",
    )
    def take_snapshot(self, arguments: list[str]) -> None:
        options = _options(arguments[1:])
        offset = int(options["offset"]) if "offset" in options else None
        self.cluster.take_snapshot(node_id_of(arguments[0]), offset, int(options.get("size", 0)))

    @node_command("snapshot-io", "NODE…", "a held disk completes the operations of a copied snapshot")
    def snapshot_io(self, node_id: int) -> None:
        self.cluster.complete_snapshot_work(node_id)

    @node_command("damage-snapshots", "NODE…", "a bit flips in every snapshot, finished or not")
    def damage_snapshots(self, node_id: int) -> None:
        self.cluster.host(node_id).snapshots.damage()

    @node_command("lose-snapshots", "NODE…", "the finished snapshots are gone from the disk")
    def lose_snapshots(self, node_id: int) -> None:
        self.cluster.host(node_id).snapshots.finished.clear()

    @node_command("campaign", "NODE…", "the node's election or fetch timer runs out now")
    def campaign(self, node_id: int) -> None:
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

    @command("set-randomized-election-timeout", "NODE MS", "election timers started from now on take so long")
    def set_randomized_election_timeout(self, arguments: list[str]) -> None:
        host = self.cluster.host(node_id_of(arguments[0]))
        host.jitter_ms = int(arguments[1]) - host.config.election_timeout_ms
        if not 0 <= host.jitter_ms < host.config.election_timeout_ms:
            longest_ms = 2 * host.config.election_timeout_ms - 1
            raise ValueError(f"{arguments[1]} ms is not between {host.config.election_timeout_ms} and {longest_ms}")
        host.random.jitter_ms = host.jitter_ms

    @command("propose", "NODE RECORD…", "propose one batch of these records; `x*1000` is a long one")
    def propose(self, arguments: list[str]) -> None:
        node_id, words = node_id_of(arguments[0]), arguments[1:]
        body = msgspec.msgpack.encode([_inflated(word) for word in words])
        node = self.cluster.host(node_id).node
        self.cluster.step(node_id, Propose(node.epoch, body, len(words)), f"n{node_id} is asked to append {' '.join(words)}")

    @node_command("read", "NODE", "which offset must a linearizable read reflect?")
    def read(self, node_id: int) -> None:
        self._reads += 1
        self.cluster.step(node_id, ReadIndexAsked(self._reads), f"n{node_id} is asked for linearizable read t{self._reads}")

    @node_command("resign", "NODE", "the leader is asked to resign")
    def resign(self, node_id: int) -> None:
        epoch = self.cluster.host(node_id).node.epoch
        self.cluster.step(node_id, ResignAsked(epoch, "asked to"), f"n{node_id} is asked to resign")

    @node_command("shutdown", "NODE", "a graceful stop")
    def shutdown(self, node_id: int) -> None:
        self.cluster.step(node_id, ShutdownAsked(), f"n{node_id} is asked to shut down")

    # Voters

    @command("add-voter", "NODE NEW [timeout=MS]", "a client asks NODE to make NEW a voter")
    def add_voter(self, arguments: list[str]) -> None:
        node_id, target_id, timeout_ms = self._voter_change(arguments)
        voter = Voter(self.cluster.host(target_id).config.key, {})
        self.cluster.ask(node_id, AddVoterRequest(-1, voter, timeout_ms), f"n{node_id} is asked to add node {target_id}")

    @command("remove-voter", "NODE OLD [timeout=MS]", "a client asks NODE to remove the voter OLD")
    def remove_voter(self, arguments: list[str]) -> None:
        node_id, target_id, timeout_ms = self._voter_change(arguments)
        voter = self.cluster.host(node_id).node.voters.get(target_id)
        key = voter.key if voter else self.cluster.host(target_id).config.key
        self.cluster.ask(node_id, RemoveVoterRequest(-1, key, timeout_ms), f"n{node_id} is asked to remove node {target_id}")

    @command("transfer-leadership", "NODE TARGET [timeout=MS]", "a client asks NODE to make way for TARGET")
    def transfer_leadership(self, arguments: list[str]) -> None:
        node_id, target_id, timeout_ms = self._voter_change(arguments)
        key = self.cluster.host(target_id).config.key
        title = f"n{node_id} is asked to make way for node {target_id}"
        self.cluster.ask(node_id, TransferLeadershipRequest(-1, key, timeout_ms), title)

    def _voter_change(self, arguments: list[str]) -> tuple[int, int, int]:
        options = _options(arguments[2:])
        return node_id_of(arguments[0]), node_id_of(arguments[1]), int(options.get("timeout", 5_000))

    @node_command("voters", "[NODE…]", "who votes, as the node's log says")
    def voters(self, node_id: int) -> None:
        node = self.cluster.host(node_id).node
        where = f"at {node.voters_offset}" if node.voters_offset >= 0 else "not in the log"
        self._say(f"n{node_id} {node.voters!r} {where}{'' if node.is_voter else ', not itself'}")

    # Disks

    @node_command("hold", "NODE…", "nothing becomes durable before a command says so")
    def hold(self, node_id: int) -> None:
        self.cluster.host(node_id).is_held = True

    @node_command("release", "NODE…", "everything is durable, and from now on at once")
    def release(self, node_id: int) -> None:
        self.cluster.release(node_id)

    @command("fsync", "NODE [aN]", "staged log operations, up to number N, are durable")
    def fsync(self, arguments: list[str]) -> None:
        limit = int(arguments[1].lstrip("a")) if len(arguments) > 1 else 1 << 60
        self.cluster.complete(
            node_id_of(arguments[0]), lambda op: not isinstance(op, StoreElectionState) and op.append_id <= limit
        )

    @command("store", "NODE", "the staged election states are durable")
    def store(self, arguments: list[str]) -> None:
        self.cluster.complete(node_id_of(arguments[0]), lambda op: isinstance(op, StoreElectionState))

    @node_command("storage-failed", "NODE", "the disk is full")
    def storage_failed(self, node_id: int) -> None:
        self.cluster.step(node_id, StorageFailed("no space left on device"), f"n{node_id} cannot write: its disk is full")

    # Messages

    @command("deliver", _FILTER, "hand over what is on its way now")
    def deliver(self, arguments: list[str]) -> None:
        for envelope in self._pick(arguments):
            self.cluster.deliver(envelope)

    @command("stabilize", "[NODE…]", "deliver (among these) until nothing is on its way; no time passes")
    def stabilize(self, arguments: list[str]) -> None:
        ids = set(self.ids(arguments))
        self.cluster.deliver_all(lambda envelope: envelope.source in ids and envelope.target in ids)

    @command("drop", _FILTER, "lose messages silently")
    def drop(self, arguments: list[str]) -> None:
        for envelope in self._pick(arguments) if arguments else list(self.cluster.in_flight):
            self.cluster.in_flight.remove(envelope)
            self._say(f"{envelope!r} (dropped)")

    @command("duplicate", _FILTER, "each will arrive twice")
    def duplicate(self, arguments: list[str]) -> None:
        for envelope in self._pick(arguments):
            self.cluster.in_flight.append(Envelope(envelope.source, envelope.target, envelope.call, envelope.payload))
            self._say(f"{envelope!r} (twice)")

    @command("delay", _FILTER, "set messages aside")
    def delay(self, arguments: list[str]) -> None:
        for envelope in self._pick(arguments):
            self.cluster.in_flight.remove(envelope)
            self.cluster.delayed.append(envelope)
            self._say(f"{envelope!r} (delayed)")

    @command("arrive", _FILTER, "deliver what was set aside")
    def arrive(self, arguments: list[str]) -> None:
        for envelope in self._pick(arguments, self.cluster.delayed):
            self.cluster.delayed.remove(envelope)
            self.cluster.deliver(envelope)

    @command("refuse", _FILTER, "nothing listens at the target of these requests")
    def refuse(self, arguments: list[str]) -> None:
        for envelope in self._pick(arguments):
            self._say(f"{envelope!r} (refused)")
            self.cluster.refuse(envelope)

    @command("cut", "LINK…", "links (1->2, 1<->2, 1<->*) lose everything")
    def cut(self, arguments: list[str]) -> None:
        self.cluster.cut(link for argument in arguments for link in self._links(argument))

    @command("heal", "[LINK…]", "links carry messages again")
    def heal(self, arguments: list[str]) -> None:
        self.cluster.cuts -= {link for argument in arguments or ["*<->*"] for link in self._links(argument)}

    def _links(self, argument: str) -> list[tuple[int, int]]:
        both = "<->" in argument
        left, arrow, right = argument.partition("<->" if both else "->")
        if not arrow:
            raise ValueError(f"{argument!r} is not a link; write 1->2, 1<->2 or 1<->*")
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

    @command("tick", "MS", "time passes: timers and time-outs; nothing is delivered")
    def tick(self, arguments: list[str]) -> None:
        self.cluster.pass_time(int(arguments[0]), deliver=False)

    @command("run", "MS", "time passes and messages are delivered at once")
    def run_for(self, arguments: list[str]) -> None:
        self.cluster.pass_time(int(arguments[0]), deliver=True)

    # Output

    @node_command("state", "[NODE…]", "the state, the high watermark, the log's extent and its durability")
    def state(self, node_id: int) -> None:
        host = self.cluster.host(node_id)
        self._say(repr(host.node) if host.is_up else f"n{node_id} down")

    @node_command("log", "[NODE…]", "the records by epoch; `|` parts durable from not durable")
    def log(self, node_id: int) -> None:
        host = self.cluster.host(node_id)
        drawn = _drawn(host.batches, host.node.log.start, host.node.durable_end_offset)
        self._say(f"n{node_id} hw={host.node.high_watermark} {drawn}")

    @node_command("durable", "[NODE…]", "what a crash would leave")
    def durable(self, node_id: int) -> None:
        host = self.cluster.host(node_id)
        snapshots = f"; snapshots {', '.join(map(repr, sorted(host.snapshots.finished)))}" if host.snapshots.finished else ""
        repair = f"; to be repaired up to {host.repair_until}" if host.repair_until else ""
        election = host.stored or "no election state"
        self._say(f"n{node_id} disk: {election}; {_drawn(host.disk, host.start)}{snapshots}{repair}")

    @command("messages", "", "what is on its way or set aside")
    def messages(self, arguments: list[str]) -> None:
        for envelope in self.cluster.in_flight:
            self._say(repr(envelope))
        for envelope in self.cluster.delayed:
            self._say(f"{envelope!r} (delayed)")
        if not self.cluster.lines:
            self._say("nothing on its way")

    @node_command("outbox", "[NODE…]", "what waits for a disk")
    def outbox(self, node_id: int) -> None:
        host = self.cluster.host(node_id)
        self._say(f"n{node_id} {host.node and host.outbox!r}")
        for message in host.held:
            what = message.request if not hasattr(message, "response") else message.response
            self._say(f"  {what!r} {message.after!r}")

    @node_command("timers", "[NODE…]", "how long the node will still wait")
    def timers(self, node_id: int) -> None:
        state = self.cluster.host(node_id).node.state
        if isinstance(state, Follower):
            name, deadline_ms = "fetch", state.fetch_deadline_ms
        elif isinstance(state, Leader):
            name, deadline_ms = "check-quorum", state.check_quorum_deadline_ms
        else:
            name, deadline_ms = "election", state.election_deadline_ms
        left = f"{deadline_ms - self.cluster.now_ms} ms" if deadline_ms < NEVER_MS else "never"
        self._say(f"n{node_id} {state.name} e{state.epoch}: {name} timer {left}")

    @node_command("progress", "NODE", "what the leader knows of voters and observers")
    def progress(self, node_id: int) -> None:
        node = self.cluster.host(node_id).node
        for kind, rows in (("voter", node.voter_progress(self.cluster.now_ms)), ("observer", node.observer_progress())):
            for row in rows:
                self._say(f"n{node_id} knows {kind} {row.key!r} end={row.end_offset}")


def _options(words: list[str]) -> dict[str, str]:
    """The values of NAME=VALUE words, by name."""
    return dict(word.split("=", 1) for word in words)


def node_id_of(word: str) -> int:
    return int(word.removeprefix("n"))


def _inflated(word: str) -> str:
    """Return the record that a word stands for: `x*1000` is x a thousand times."""
    text, star, count = word.partition("*")
    return text * int(count) if star else word


def _drawn(batches: list[bytes], start: OffsetAndEpoch, durable_end_offset: int | None = None) -> str:
    """Return a log as text. `[1:L1 1:x 1:y | 2:z]`: epoch and records of each batch; batches right of the bar are not durable.

    `[4@1: 1:z]`: the log begins after snapshot 4@1.
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
    """Return a control record as text. L1: node 1 leads from here; {1,2}: these voters from here; kraft.version is left out."""
    if isinstance(record, LeaderChange):
        return f"L{record.leader_id}"
    return repr(record.voters) if isinstance(record, KRaftVoters) else ""


def _deflated(record: str) -> str:
    return record if len(record) <= 16 else f"{record[0]}*{len(record)}"
