"""Records of the quorum by its nodes: changes of state, and messages with both of their ends.

Pure. There are two sources. A trace (`kraftlab.quorum.trace`) contains every message that a node sent or received, so an arrow
has a beginning and an end; a message that is not in its receiver's trace did not arrive during the run. A node's log contains
only changes of state, some of which name the node whose message caused them. Then only the end of the arrow is known, and its
beginning is not invented.

A trace does not number messages. An arrival belongs to the newest message in flight with the same text between the same two
nodes; an arrival without one is a repeated arrival.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated

import msgspec

BOOT, STATE, COMMIT, SENT, AGAIN = "boot", "state", "commit", "sent", "again"
OUTWARDS = frozenset({"send", "reply"})
INWARDS = frozenset({"receive", "answer"})
ELECTION = frozenset(f"{name}{end}" for name in ("Vote", "BeginQuorumEpoch", "EndQuorumEpoch") for end in ("Request", "Response"))
"""The messages by which leaders change."""
LEADER = "leader"
QUARTER_US = 15 * 60 * 1_000_000
"""Time zones differ by multiples of a quarter of an hour."""
_NUMBER = r"(\d{1,10})"
_STATE = re.compile(
    r"^\0*(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) \w+ kraftlab\.quorum: "
    rf"node {_NUMBER}: state (?:.* -> )?(\w+) e{_NUMBER}(?: L{_NUMBER})?([^:]*.*)$",
    re.ASCII,
)
"""A change of state. Zeros in front of it are what a power cut left."""
_NAMED = (
    re.compile(r"^n(\d+) (?:asks for a vote|fetches in a higher epoch)"),
    re.compile(r"^node (\d+) (?:names the leader|knows a higher epoch)"),
)
_OF_THE_LEADER = frozenset({"BeginQuorumEpoch", "EndQuorumEpoch", "the leader has resigned"})


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event in the records of a node. `kind` is one of the words above. A message (`SENT`) goes to `peer` (-1: any node) and
    arrives at `arrived_us` at `target`, None if no arrival is recorded; `AGAIN` is a repeated arrival from `peer`. A change of
    `STATE` may name the `peer` whose message caused it. `state` is the state after the event.
    """

    at_us: int
    node: int
    kind: str
    text: str
    state: str = ""
    epoch: int = -1
    peer: int = -1
    message: str = ""
    arrived_us: int | None = None
    target: int = -1

    @property
    def is_of_an_election(self) -> bool:
        return self.kind in (BOOT, STATE) or self.message in ELECTION


class _Line(msgspec.Struct, frozen=True):
    """The needed fields of a line of a trace."""

    time_us: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    node: Annotated[int, msgspec.Meta(ge=0)]
    event: str
    state: str
    epoch: int
    hw: int
    peer: int = -1
    message: str = ""
    about: str = ""
    leader: int = -1
    voted: int = -1
    why: str = ""
    before: str = msgspec.field(name="from", default="")
    """The state before; a node that starts has none and boots instead."""


def from_trace(lines: Iterable[bytes]) -> list[Event]:
    """Return the events of all nodes by time. Lines that cannot be decoded are skipped: a node may have died while
    writing one.
    """
    decode = msgspec.json.Decoder(_Line).decode
    found: list[Event] = []
    in_transit: dict[tuple[int, int, str], list[int]] = {}
    read: list[_Line] = []
    for text in lines:
        try:
            read.append(decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    read.sort(key=lambda line: line.time_us)
    for line in read:
        if line.event in OUTWARDS:
            in_transit.setdefault((line.node, line.peer, line.about), []).append(len(found))
            found.append(_message(line, SENT))
        elif line.event in INWARDS:
            ways = ((line.peer, line.node, line.about), (line.peer, -1, line.about))
            waiting = next((in_transit[way] for way in ways if in_transit.get(way)), None)
            if waiting is None:
                found.append(_message(line, AGAIN))
            else:
                place = waiting.pop()
                found[place] = msgspec.structs.replace(found[place], arrived_us=line.time_us, target=line.node)
        elif line.event == STATE and line.before:
            found.append(_of_node(line, STATE, _state_text(line)))
        elif line.event == BOOT:
            found.append(_of_node(line, BOOT, f"starts, {line.state} e{line.epoch}"))
        elif line.event == COMMIT:
            found.append(_of_node(line, COMMIT, f"committed to {line.hw}"))
    return found


def _state_text(line: _Line) -> str:
    if line.state == "follower":
        return f"follower e{line.epoch} of {line.leader}"
    if line.state == "unattached" and line.voted >= 0:
        return f"unattached e{line.epoch}, votes for {line.voted}"
    return f"{line.state} e{line.epoch}{f': {line.why}' if line.why else ''}"


def _of_node(line: _Line, kind: str, text: str) -> Event:
    return Event(at_us=line.time_us, node=line.node, kind=kind, text=text, state=line.state, epoch=line.epoch)


def _message(line: _Line, kind: str) -> Event:
    return msgspec.structs.replace(_of_node(line, kind, line.about), peer=line.peer, message=line.message)


def from_logs(logs: Iterable[str], started_at_ms: int) -> list[Event]:
    """Return the changes of state in the logs of nodes, by time since the run began.

    Logs have local times. The first line, which is about as old as the run, shows the time zone.
    """
    found = changes(logs)
    if not found:
        return []
    ahead_us = found[0].at_us - started_at_ms * 1000
    zero_us = started_at_ms * 1000 + round(ahead_us / QUARTER_US) * QUARTER_US
    return [msgspec.structs.replace(event, at_us=event.at_us - zero_us) for event in found]


def changes(logs: Iterable[str]) -> list[Event]:
    """Return the changes of state in the logs of nodes, by the local time that the logs have."""
    return sorted((event for log in logs for event in _changes(log)), key=lambda event: event.at_us)


def _changes(log: str) -> Iterator[Event]:
    for line in log.splitlines():
        seen = _STATE.match(line)
        if seen is None:
            continue
        clock, ms, node, state, epoch, leader, rest = seen.groups()
        reason = rest.partition(": ")[2]
        named = next((match[1] for match in (pattern.match(reason) for pattern in _NAMED) if match), None)
        if named is None and reason in _OF_THE_LEADER:
            named = leader
        try:
            at_us = int(datetime.strptime(clock, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()) * 1_000_000
        except ValueError:  # there is no 31 November
            continue
        yield Event(
            at_us=at_us + int(ms) * 1000,
            node=int(node),
            kind=BOOT if reason == BOOT else STATE,
            text=f"{state} e{epoch}: {reason}" if reason else f"{state} e{epoch}",
            state=state,
            epoch=int(epoch),
            peer=-1 if named is None or named == node else int(named),
        )
