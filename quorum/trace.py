"""A node's core transitions as NDJSON, one JSON object per line: for people with `jq`, and to check against a specification.

Theory of operation. `TraceWriter` belongs to one node and gets every step: the event and its effects. It walks the effects in
order and writes a line for each that changes Raft's variables: the state, the log's end, the commit point, stored data, and sent
messages. Each line holds the event and the node's variables *after* it, so that two lines are a transition, like the trace points
of etcd's raft and of trace validation with TLC. It knows neither sockets nor clocks: the simulator writes virtual microseconds, a
real node those of its wall clock.

Version 1 of the format, fields in this order; those with "?" only where they make sense::

    v         1
    time_us   time of the event
    node      the node's id
    event     one of EVENTS
    state     unattached, prospective, candidate, leader, follower or resigned
    epoch, leader, voted    the epoch, its leader and this node's vote in it (-1: unknown)
    end, hw   the end of the log, and the high watermark (-1: unknown)
    durable   everything below this offset is on this node's disk
    config    the voters' ids
    from?     the state before, with event "state"
    peer?     the other node of a message
    message?  the message's kind, with "send", "reply", "receive" and "answer"
    about?    the message itself, as the transcript shows it
    offset?   start of an append, cut of a truncation, start of a log that is installed or cleaned

Within a version the format only grows: readers must ignore fields that they do not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from .core.effects import Append, Apply, CleanLog, Effects, InstallSnapshot, Reply, Send, StoreElectionState, Trace, Truncate
from .core.events import ElectionStateStored, Event, RequestAbandoned, RequestReceived, ResponseReceived, StorageCompleted
from .core.raft_node import RaftNode

VERSION = 1
EVENTS = {
    "boot": "the node starts; the variables are those that its disk holds",
    "receive": "a request arrives",
    "answer": "the answer to one of the node's own requests arrives",
    "state": "another state, or another epoch of the same state",
    "append": "batches are appended to the log, not durable yet",
    "truncate": "the log is cut",
    "install": "a snapshot replaces the log, which ends at `offset` now",
    "clean": "the log begins at `offset` from now on, after a snapshot",
    "commit": "the high watermark rises",
    "store": "the election state goes to the disk",
    "stored": "the election state is on the disk",
    "durable": "the log is on the disk up to `durable`",
    "send": "a request is handed to the network, which may have to wait for the disk",
    "reply": "an answer is handed to the network, likewise",
}
"""Every event and its meaning."""


class TraceWriter:
    """Writes lines about one incarnation of one node. `write` gets whole lines, each with its newline.

    Create it before the node's first step, and pass it every step after `RaftNode.step` has returned.
    """

    def __init__(self, write: Callable[[str], object], node: RaftNode, now_us: int) -> None:
        self._write = write
        self._node = node
        self._encode = msgspec.json.Encoder().encode
        self.senders: dict[int, int] = {}
        election = node.election
        self._state = node.state_name
        self._epoch = election.epoch
        self._leader = election.leader_id
        self._voted = election.voted_key.node_id if election.voted_key is not None else -1
        self._end = node.log_end_offset
        self._high_watermark = node.high_watermark
        self._durable = node.durable_end_offset
        self._line(now_us, "boot")

    def step(self, now_us: int, event: Event, effects: Effects) -> None:
        """Write the lines of one step of the node."""
        if isinstance(event, RequestReceived):
            self.senders[event.correlation] = event.sender.node_id
            self._message(now_us, "receive", event.sender.node_id, event.request)
        elif isinstance(event, RequestAbandoned):
            self.senders.pop(event.correlation, None)
        elif isinstance(event, ResponseReceived):
            self._message(now_us, "answer", event.source, event.response)
        elif isinstance(event, ElectionStateStored):
            self._line(now_us, "stored")
        elif isinstance(event, StorageCompleted):
            self._durable = self._node.durable_end_offset
            self._line(now_us, "durable")
        for effect in effects:
            self._effect(now_us, effect)

    def _effect(self, now_us: int, effect: Any) -> None:
        if isinstance(effect, Trace):
            move = effect.move
            if move is not None:
                self._state, self._epoch, self._leader, self._voted = move.target, move.epoch, move.leader_id, move.voted_id
                self._line(now_us, "state", **({"from": move.source} if move.source else {}))
        elif isinstance(effect, Append):
            self._end = effect.end_offset
            self._line(now_us, "append", offset=effect.base_offset)
        elif isinstance(effect, Truncate):
            self._end = effect.to_offset
            self._durable = min(self._durable, effect.to_offset)
            self._line(now_us, "truncate", offset=effect.to_offset)
        elif isinstance(effect, InstallSnapshot):
            self._end = effect.id.offset
            self._line(now_us, "install", offset=effect.id.offset)
        elif isinstance(effect, CleanLog):
            self._line(now_us, "clean", offset=effect.start.offset)
        elif isinstance(effect, Apply):
            self._high_watermark = effect.high_watermark
            self._line(now_us, "commit")
        elif isinstance(effect, StoreElectionState):
            self._line(now_us, "store")
        elif isinstance(effect, Send):
            self._message(now_us, "send", effect.destination, effect.request)
        elif isinstance(effect, Reply):
            self._message(now_us, "reply", self.senders.pop(effect.correlation, -1), effect.response)

    def _message(self, now_us: int, event: str, peer: int, message: object) -> None:
        self._line(now_us, event, peer=peer, message=type(message).__name__, about=repr(message))

    def _line(self, now_us: int, event: str, **more: object) -> None:
        line = {
            "v": VERSION,
            "time_us": now_us,
            "node": self._node.config.node_id,
            "event": event,
            "state": self._state,
            "epoch": self._epoch,
            "leader": self._leader,
            "voted": self._voted,
            "end": self._end,
            "hw": self._high_watermark,
            "durable": self._durable,
            "config": self._node.voters.ids(),
            **more,
        }
        self._write(self._encode(line).decode() + "\n")
