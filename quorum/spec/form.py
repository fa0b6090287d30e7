"""The form of a trace: the fields of each line, and what may differ between two lines of a node.

The specification judges actions, and not every line is one. A line that no node writes would pass unseen: an event that does not
exist, a state that changes without an event of it, a step that is there twice. So the lines of a node are read here first. Fields
that the form does not know are ignored. Those of messages are left out: a message is compared with what the specification sends.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .actions import Line, Message, message_of

Number = Annotated[int, Meta(ge=-1, lt=1 << 31)]
"""A number that TLC can count with. -1: unknown."""
NodeId = Annotated[int, Meta(ge=0, lt=1 << 31)]
Id = Annotated[int, Meta(ge=0)]
Crc = Annotated[int, Meta(ge=0, lt=1 << 32)]


class _Batch(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    epoch: Number
    end: Number
    crc: Crc
    voters: list[NodeId] | None


class _Vote(msgspec.Struct, tag="Vote"):
    epoch: Number
    isPreVote: bool
    lastEpoch: Number
    end: Number


class _Begin(msgspec.Struct, tag="Begin"):
    epoch: Number


class _End(_Begin, tag="End"):
    pass


class _FetchSnapshot(_Begin, tag="FetchSnapshot"):
    pass


class _Fetch(msgspec.Struct, tag="Fetch"):
    epoch: Number
    offset: Number
    lastEpoch: Number
    round: Number


class _Other(msgspec.Struct, tag="Other"):
    pass


class _View(msgspec.Struct, tag="View"):
    epoch: Number
    leader: Number


class _VoteReply(_View, tag="VoteReply"):
    isPreVote: bool


class _FetchReply(_View, tag="FetchReply"):
    offset: Number
    lastEpoch: Number
    hw: Number
    round: Number
    outcome: Literal["records", "diverging", "snapshot"]
    data: list[_Batch | Number]


class _SnapshotReply(_View, tag="SnapshotReply"):
    snapshot: tuple[Number, Number]


_Request = _Vote | _Begin | _End | _Fetch | _FetchSnapshot | _Other
_Response = _View | _VoteReply | _FetchReply | _SnapshotReply


class _Line(msgspec.Struct, tag_field="event"):
    """The fields that every line has."""

    v: Literal[1]
    node: NodeId
    step: Id
    time_us: int
    state: Literal["unattached", "prospective", "candidate", "leader", "follower", "resigned"]
    epoch: Number
    leader: Number
    voted: Number
    end: Number
    hw: Number
    durable: Number
    config: list[NodeId]


class _Boot(_Line, tag="boot"):
    start: Number
    crc: Crc
    directory: str
    repairing: bool


class _State(_Line, tag="state"):
    why: str
    source: str = msgspec.field(name="from", default="")


class _Store(_Line, tag="store"):
    id: Id


class _StoreEnd(_Store, tag="stored"):
    pass


class _Durable(_Store, tag="durable"):
    pass


class _Ask(_Store, tag="ask"):
    pass


class _Ready(_Store, tag="ready"):
    offset: Number


class _Truncate(_Ready, tag="truncate"):
    pass


class _Install(_Ready, tag="install"):
    pass


class _Append(_Ready, tag="append"):
    batches: Annotated[list[_Batch], Meta(min_length=1)]


class _Clean(_Line, tag="clean"):
    offset: Number


class _Commit(_Line, tag="commit"):
    pass


class _Gone(_Line, tag="gone"):
    pass


class _Send(_Line, tag="send"):
    peer: Number
    m: _Request


class _Receive(_Send, tag="receive"):
    pass


class _Answer(_Line, tag="answer"):
    peer: NodeId
    m: _Response
    asked: _Request | None
    awaited: bool


class _Reply(_Line, tag="reply"):
    peer: Number
    m: _Response
    asked: _Request | None
    ignored: bool = False


_ANY = (
    _Boot
    | _State
    | _Store
    | _StoreEnd
    | _Durable
    | _Ask
    | _Ready
    | _Truncate
    | _Install
    | _Append
    | _Clean
    | _Commit
    | _Gone
    | _Send
    | _Receive
    | _Answer
    | _Reply
)
_FIELDS = {form.__struct_config__.tag: {"type", *form.__struct_fields__} for form in (_Request | _Response).__args__}
_VARIABLES = ("state", "epoch", "leader", "voted", "end", "hw", "durable")
_CHANGES = {
    "boot": {*_VARIABLES},
    "state": {"state", "epoch", "leader", "voted"},
    "append": {"end"},
    "truncate": {"end", "durable"},
    "install": {"end", "durable"},
    "commit": {"hw"},
    "durable": {"durable"},
}
"""Variables that an event changes."""
_FIRST = ("boot", "receive", "answer", "stored", "durable", "ask")
"""Events that begin a step."""


_ISSUES = {"store": "store", "append": "write", "truncate": "write", "install": "write", "ask": "ask"}
_COMPLETES = {"stored": "store", "durable": "write", "ready": "ask"}
"""Events that complete what another event began, by its number."""


class _Node:
    """Facts about a process: its newest line, the requests that are not answered, and the numbers of its newest operations."""

    def __init__(self, boot: Line) -> None:
        self.newest = boot
        self.received = Counter[Message]()
        self.sent = Counter[Message]()
        self.has_other_config = False
        """True if its voters have changed, and its step has not shown a change of the log so far."""
        self.issued = dict.fromkeys(_ISSUES.values(), -1)


class Form:
    """Reads the lines of one file in order."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}
        self._newest: Line = {}

    def read(self, line: Line) -> Line:
        """Return a line with the fields of its messages that the specification knows. ValueError says what is wrong with it."""
        msgspec.convert(line, _ANY)
        line = {name: _known(value) if name in ("m", "asked") else value for name, value in line.items()}
        if (line["event"] == "boot") != (line["step"] == 0):
            raise ValueError("a node boots in its step 0")
        node = self._nodes.get(line["node"])
        if line["event"] == "boot":
            self._nodes[line["node"]] = _Node(line)
        elif node is not None:
            _check_order(line, node.newest, node.newest is self._newest)
            _check_changes(line, node.newest)
            _check_config(line, node)
            _check_numbers(line, node.issued)
            _check_requests(line, node)
            node.newest = line
        self._newest = line
        return line


def _known(content: Any) -> Any:
    """Return a message without the fields that the specification does not know."""
    return content and {name: value for name, value in content.items() if name in _FIELDS[content["type"]]}


def _check_order(line: Line, before: Line, is_next: bool) -> None:
    """Check that a line goes on with the step of the node's line before it, or begins a later one. ValueError."""
    step, last = line["step"], before["step"]
    if step < last or (step == last and not is_next):
        raise ValueError(f"step {step} of node {line['node']} after its step {last}: lines are out of order, or there twice")
    if step == last and line["event"] in _FIRST:
        raise ValueError(f"`{line['event']}` in the middle of step {step}: lines are missing, or there twice")


def _check_changes(line: Line, before: Line) -> None:
    """Check that those variables have changed that the event of the line changes, and no others. ValueError."""
    event = line["event"]
    changed = [name for name in _VARIABLES if line[name] != before[name]]
    for name in changed:
        if name not in _CHANGES.get(event, ()):
            raise ValueError(f"`{name}` has changed from {before[name]} to {line[name]}, which `{event}` does not do")
    if event in ("state", "commit") and not changed and line["step"] > 1:  # step 1 tells what was booted
        raise ValueError(f"`{event}` changes nothing: the line is there twice")
    if line.get("from", before["state"]) != before["state"]:
        raise ValueError(f"a change of state from {line['from']}, and the node's state was {before['state']}")
    said = (before["end"], line["batches"][-1][1]) if event == "append" else (line.get("offset"),) * 2
    if event in ("append", "truncate", "install") and said != (line["offset"], line["end"]):
        raise ValueError(f"`{event}` from {before['end']} to {line['end']}, which are not the offsets of the operation")


def _check_config(line: Line, node: _Node) -> None:
    """Check that the voters, which all lines of a step name as they are after it, change with the log only. ValueError."""
    is_new, is_other = line["step"] != node.newest["step"], line["config"] != node.newest["config"]
    if (is_new and node.has_other_config) or (is_other and not is_new):
        raise ValueError(f"`config` has changed, without a step of the log, near {node.newest['config']} and {line['config']}")
    node.has_other_config = (node.has_other_config or is_other) and line["event"] not in ("append", "truncate", "install")


def _check_numbers(line: Line, issued: dict[str, int]) -> None:
    """Check that operations are numbered upwards, and that only such are completed. ValueError."""
    event = line["event"]
    if kind := _ISSUES.get(event):
        if line["id"] <= issued[kind]:
            raise ValueError(f"`{event}` {line['id']} after {issued[kind]}: lines are out of order, or there twice")
        issued[kind] = line["id"]
    elif (kind := _COMPLETES.get(event)) and line["id"] > issued[kind]:
        raise ValueError(f"`{event}` {line['id']}, which has not begun: lines are missing")


def _check_requests(line: Line, node: _Node) -> None:
    """Check that what a line answers is a request before it, which has no answer so far. ValueError."""
    event, asked = line["event"], line.get("asked")
    if event == "receive":
        node.received[message_of(line["m"], line["peer"], line["node"])] += 1
    elif event == "send":
        node.sent[message_of(line["m"], line["node"], line["peer"])] += 1
    elif event == "reply" and asked is not None:
        _take(node.received, [message_of(asked, line["peer"], line["node"])])
    elif event == "answer" and asked is not None:
        _take(node.sent, [message_of(asked, line["node"], target) for target in (line["peer"], -1)])


def _take(requests: Counter[Message], ways: list[Message]) -> None:
    found = next((request for request in ways if requests[request]), None)
    if found is None:
        raise ValueError(f"an answer to a request ({ways[0].type}) that is not before it: lines are missing, or there twice")
    requests[found] -= 1
