"""Turns the lines of a trace into actions of the specification (Kraftlab.tla).

Theory of operation. A trace (quorum/trace.py) has a line for each change of a node's variables and for each message. Most lines
are one action. What the core does in one breath is one action too, so some lines are merged: a new election state with the move
that needs it, a leader's first batch with the move to leader, a commit with the append of the same answer. Everything is decided
line by line from the trace alone; nothing is searched. Whether the specification allows an action is TLC's business.

A message is in the network of the specification from its sending on. To keep TLC's states small, `Forget` loses the messages that
the trace never mentions again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

Line = dict[str, Any]
Action = Line

FORGET_EVERY = 25
"""Actions between two `Forget`."""
NO_VOTERS = (-1,)
"""The voters of a node that knows none, though it has a log: no state of the specification has these."""
CHECK_QUORUM = "no majority has fetched"
SENDS = {"Vote": "RequestVote", "Fetch": "Fetch", "Begin": "Announce", "End": "Announce", "FetchSnapshot": "FetchSnapshot"}
REPLIES = {"VoteReply": "Grant", "FetchReply": "Serve", "SnapshotReply": "ServeSnapshot", "View": "Tell"}


class BeyondSpecification(ValueError):
    """A trace that goes beyond the specification: a replaced or damaged disk, or no beginning."""


class Message(NamedTuple):
    """A message as the specification knows it. `target` -1: anybody. `more` are the fields that its type has."""

    source: int
    target: int
    type: str
    epoch: int
    more: tuple[tuple[str, object], ...]

    @property
    def leader(self) -> int:
        """Return the leader that an answer names, -1 if none."""
        leader = dict(self.more).get("leader", -1)
        return leader if isinstance(leader, int) else -1


def message_of(content: Line, source: int, target: int) -> Message:
    """Return a message as a value that can be compared."""
    more = sorted((name, _frozen(value)) for name, value in content.items() if name not in ("type", "epoch"))
    return Message(source, target, content["type"], content.get("epoch", -1), tuple(more))


def _frozen(value: object) -> object:
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value


class _Node:
    """Facts about one node that the reading needs."""

    def __init__(self, line: Line) -> None:
        self.directory = line["directory"]
        self.epoch, self.voted = line["epoch"], line["voted"]
        self.storing: list[int] = []
        self.writing: list[int] = []


def actions_of(lines: Iterable[Line]) -> list[Action]:
    """Return the actions, each with the number of its line in `line`. BeyondSpecification."""
    nodes: dict[int, _Node] = {}
    actions: list[Action] = []
    for step_lines in steps_of({**line, "number": number} for number, line in enumerate(lines, 1)):
        try:
            actions += _actions_of_step(step_lines, nodes)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            if isinstance(error, BeyondSpecification):
                raise
            number = step_lines[0]["number"]
            raise BeyondSpecification(
                f"line {number} and its step are not what a node writes: {type(error).__name__} {error}"
            ) from error
    try:
        return list(_forgetting(actions))
    except TypeError as error:
        raise BeyondSpecification(f"a message goes from or to no node: {error}") from error


def steps_of(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield the lines of each step. BeyondSpecification."""
    try:
        for _, group in groupby(lines, key=lambda line: (line["node"], line["step"])):
            yield list(group)
    except (KeyError, TypeError) as error:
        raise BeyondSpecification(f"this is not a trace, or one of an older release: a line has no field {error}") from error


def cut(lines: list[Line], most: int | None) -> list[Line]:
    """Return the beginning of a trace, at most so many lines. It ends where a step ends."""
    if most is None or most >= len(lines):
        return lines
    last = list(steps_of(lines[: most + 1]))[-1]
    return lines[: min(most, most + 1 - len(last))]


def _actions_of_step(lines: list[Line], nodes: dict[int, _Node]) -> list[Action]:
    node, number = lines[0]["node"], lines[0]["number"]
    if lines[0]["step"] == 0:
        return [_boot(line, nodes) for line in lines]
    if node not in nodes:
        raise BeyondSpecification(f"line {number}: node {node} has not booted: the trace must begin before the node")
    taken = list(_step(lines, nodes[node], nodes))
    if taken:
        taken[-1]["voters"] = lines[-1]["config"] or (NO_VOTERS if lines[-1]["end"] else ())
    return taken


def _action(do: str, line: Line, **more: Any) -> Action:
    names = ("epoch", "leader", "voted", "end", "hw", "durable")
    after = {name: line[name] for name in names}
    return {"do": do, "n": line["node"], "role": line["state"], **after, "voters": (), "line": line["number"], **more}


def _boot(line: Line, nodes: dict[int, _Node]) -> Action:
    node, number = line["node"], line["number"]
    if line["repairing"]:
        raise BeyondSpecification(f"line {number}: node {node} repairs a damaged log, and the specification knows no damage")
    before = nodes.get(node)
    if before is not None and before.directory != line["directory"]:
        raise BeyondSpecification(f"line {number}: node {node} has another disk, and the specification knows one disk per node")
    if before is None and (line["end"] or line["epoch"] or line["start"]):
        raise BeyondSpecification(
            f"line {number}: node {node} begins with a log to {line['end']}: the trace must begin on empty disks"
        )
    nodes[node] = _Node(line)
    return _action("Begin" if before is None else "Restart", line, id=line["crc"], start=line["start"], first=line["config"])


def _step(lines: list[Line], node: _Node, nodes: dict[int, _Node]) -> Iterator[Action]:
    """Yield the actions of one step. `cause` is the message that it handles."""
    cause: Message | None = None
    heard = _heard(lines)
    rest = deque(lines)
    while rest:
        line = rest.popleft()
        event, following = line["event"], rest[0] if rest else None
        if heard and event not in ("answer", "store", "state"):
            yield _action(heard, lines[-1], m=cause)
            heard = ""
        if event in ("receive", "answer"):
            if line["m"]["type"] == "Other" or line["peer"] < 0 or line.get("asked", "") is None:
                continue
            cause = message_of(line["m"], line["peer"], line["node"])
            if line["peer"] not in nodes:
                yield _action("Appear", line, m=cause)
            yield _action(_arrival(line), line, m=cause)
        elif event == "store":
            node.storing.append(line["id"])
        elif event == "stored":
            count = sum(version <= line["id"] for version in node.storing)
            del node.storing[:count]
            if count:
                yield _action("Stored", line, count=count)
        elif event == "durable":
            count = sum(operation <= line["id"] for operation in node.writing)
            del node.writing[:count]
            if count:
                yield _action("Durable", line, count=count)
        elif event == "state" and "from" in line:
            if line["state"] == "leader":
                append = rest.popleft()
                node.writing.append(append["id"])
                yield _action("Lead", append, batch=append["batches"][0])
            else:
                yield from _move(line, cause, node)
            node.epoch, node.voted = line["epoch"], line["voted"]
        elif event == "gone":
            yield _action("LoseTouch", line)
        elif event == "append":
            node.writing.append(line["id"])
            if line["state"] == "leader":
                yield _action("Propose", line, batch=line["batches"][0])
            else:
                if cause is None or _frozen(line["batches"]) != dict(cause.more).get("data"):
                    raise BeyondSpecification(f"line {line['number']}: the batches are not those of the answer")
                with_commit = rest.popleft() if following is not None and following["event"] == "commit" else line
                yield _action("TakeRecords", with_commit, m=cause)
        elif event == "commit" and line["state"] == "leader":
            yield _action("Commit", line)
        elif event == "commit" and cause is not None and cause.type == "FetchReply":
            yield _action("TakeRecords", line, m=cause)
        elif event == "truncate":
            node.writing.append(line["id"])
            yield _action("Truncate", line, m=cause)
        elif event == "install":
            node.writing.append(line["id"])
            yield _action("Install", rest.popleft())
        elif event == "clean":
            yield _action("Clean", line, offset=line["offset"])
        elif event in ("send", "reply"):
            yield from _sent(line)
        elif event == "ask":
            yield _action("AskRead", line, token=line["id"])
        elif event == "ready":
            yield _action("AnswerRead", line, token=line["id"], offset=line["offset"])
    if heard:
        yield _action(heard, lines[-1], m=cause)


_CHANGES = frozenset({"append", "commit", "truncate", "install"})


def _heard(lines: list[Line]) -> str:
    """Return the action of a follower that takes notice of its leader's answer without records; "" if it does not."""
    first, last = lines[0], lines[-1]
    kind = first.get("m", {}).get("type")
    if (
        not first.get("awaited")
        or kind not in ("FetchReply", "SnapshotReply")
        or any(line["event"] in _CHANGES for line in lines)
    ):
        return ""
    is_of_leader = last["state"] == "follower" and (last["leader"], last["epoch"]) == (first["peer"], first["m"]["epoch"])
    return ("Hear" if kind == "FetchReply" else "Copy") if is_of_leader else ""


def _arrival(line: Line) -> str:
    """Return the action of an arrival: an acknowledgement and a vote are counted at once."""
    content, leads = line["m"], line["state"] == "leader" and line["epoch"] == line["m"]["epoch"]
    if content["type"] in ("Fetch", "FetchSnapshot") and leads:
        return "Acknowledge"
    asker = "prospective" if content.get("isPreVote") else "candidate"
    is_counted = (
        content["type"] == "VoteReply" and line.get("awaited") and (line["state"], line["epoch"]) == (asker, content["epoch"])
    )
    return "CountGrant" if is_counted and line["peer"] in line["config"] else "Arrive"


def _move(line: Line, cause: Message | None, before: _Node) -> Iterator[Action]:
    """Yield the action of a change of state, which `cause` may explain."""
    state, epoch, leader = line["state"], line["epoch"], line["leader"]
    if state == "prospective":
        yield _action("Stand", line)
    elif state == "candidate":
        yield _action("Campaign", line)
    elif state == "resigned":
        yield _action("CheckQuorum" if line["why"].startswith(CHECK_QUORUM) else "Resign", line)
    elif state == "follower":
        is_named = cause is not None and (cause.epoch, _named_leader(cause)) == (epoch, leader)
        yield _action("Follow", line, m=cause) if is_named else _action("StandDown", line)
    elif epoch > before.epoch:
        is_named = cause is not None and cause.epoch == epoch
        yield _action("AdoptEpoch", line, m=cause) if is_named else _action("OpenEpoch", line)
    else:
        yield _action("Vote", line, m=cause) if line["voted"] != before.voted else _action("LoseLeader", line)


def _named_leader(message: Message) -> int:
    return message.source if message.type in ("Begin", "End") else message.leader


def _sent(line: Line) -> Iterator[Action]:
    content, peer = line["m"], line["peer"]
    if line["event"] == "send":
        if content["type"] in SENDS:
            yield _action(SENDS[content["type"]], line, m=message_of(content, line["node"], peer))
        return
    asked = line.get("asked")
    if peer < 0 and content["type"] == "FetchReply":
        yield _action("ServeClient", line)
    if peer < 0 or asked is None:
        return
    do = REPLIES[content["type"]]
    more: dict[str, Any] = {"asked": message_of(asked, peer, line["node"])}
    if line.get("ignored") or asked["type"] == "Other":
        do = "Refuse"
        del more["asked"]
    elif do == "Serve":
        data = content["data"]
        if content["outcome"] == "snapshot":
            do = "OfferSnapshot"
        else:
            is_empty = content["outcome"] == "diverging" or not data
            more["to"] = asked["offset"] if is_empty else data[-1][1]
    yield _action(do, line, m=message_of(content, line["node"], peer), **more)


def _forgetting(actions: list[Action]) -> Iterator[Action]:
    """Yield the actions with a Forget now and then. A message can leave its sender late, so it is lost twice."""
    last_use = {action["m"]: at for at, action in enumerate(actions) if action["do"] in _ARRIVALS}
    old: list[Message] = []
    new: list[Message] = []
    for at, action in enumerate(actions):
        yield action
        if "m" in action and action["do"] not in _ARRIVALS | _HANDLED:
            new.append(action["m"])
        if at % FORGET_EVERY == FORGET_EVERY - 1:
            lost = [m for m in {*old, *new} if _last_use(last_use, m) <= at]
            kept = [m for m in {*old, *new} if _last_use(last_use, m) > at]
            if lost:
                yield {"do": "Forget", "n": action["n"], "messages": tuple(lost), "line": action["line"]}
            old, new = [*kept, *(m for m in new if m in lost)], []


def _last_use(last_use: dict[Message, int], message: Message) -> int:
    """Return the last arrival. A request to anybody arrives at a certain node."""
    if message.target >= 0:
        return last_use.get(message, -1)
    return max((at for other, at in last_use.items() if other._replace(target=-1) == message), default=-1)


_ARRIVALS = frozenset({"Arrive", "Acknowledge", "CountGrant", "Appear", "Copy"})
_HANDLED = frozenset({"AdoptEpoch", "Follow", "Vote", "TakeRecords", "Truncate", "Hear"})
